"""Clusters: grids are whole ones, no tile is left out, and shapes that no GPU launches are refused while planning."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiles import tile

import blasdx as dx

SHAPES = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (8, 1))


@cache
def plan(cluster: tuple[int, int]) -> dx.PipelinePlan:
    return dx.suggest_pipeline(tile((128, 64, 64), sm=900).with_(dx.BlocksPerCluster(*cluster)), depth=1)


@given(
    st.sampled_from(SHAPES),
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.integers(1, 5),
    st.sampled_from([1, 7, 114, 132, 148]),
)
def test_a_grid_is_whole_clusters_and_every_cluster_belongs_to_one_batch(
    cluster: tuple[int, int], m: int, n: int, batches: int, processors: int
) -> None:
    """An odd number of tiles is filled up for each batch, so that no cluster straddles two."""
    asked = plan(cluster)
    size = cluster[0] * cluster[1]
    grid, tiles = asked.grid(m, n, processors, batches), asked.tiles(m, n, batches)
    assert grid % size == 0
    assert 0 < grid <= max(processors, size)
    assert tiles == batches * asked.tiles(m, n)
    assert tiles % (batches * size) == 0
    assert -(-m // 128) * -(-n // 64) * batches <= tiles


@pytest.mark.parametrize(("m", "tiles"), [(192, 2), (384, 4), (129, 2), (128, 2)])
def test_three_tiles_in_pairs_are_four(m: int, tiles: int) -> None:
    assert plan((2, 1)).tiles(m, 64, batches=3) == 3 * tiles


@pytest.mark.parametrize("cluster", [(16, 1), (4, 4), (3, 5)])
def test_more_blocks_than_every_gpu_takes_are_planned_and_more_than_any_takes_refused(cluster: tuple[int, int]) -> None:
    found = dx.suggest_pipeline(tile((128, 64, 64), sm=900).with_(dx.BlocksPerCluster(*cluster)))
    assert found.cluster_size == cluster[0] * cluster[1]
    with pytest.raises(ValueError, match=r"legal: .* 16"):
        dx.BlocksPerCluster(cluster[0], 16 // cluster[0] + 1)


@pytest.mark.parametrize("cluster", [(2, 1), (4, 2)])
@pytest.mark.parametrize("number", [890, 1200, 1210])
def test_clusters_on_chips_without_this_pipeline_are_refused(cluster: tuple[int, int], number: int) -> None:
    with pytest.raises(dx.GateError, match=f"SM {number} has n") as caught:
        dx.suggest_pipeline(tile(sm=1000).with_(dx.BlocksPerCluster(*cluster), dx.SM(number)))
    assert {miss.gate for miss in caught.value.misses} >= {"sm"}
