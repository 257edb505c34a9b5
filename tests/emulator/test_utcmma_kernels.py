"""Every type, row width, cluster and block size of tcgen05 kernels, bit-exact on small integers in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.operands import padded

TN, NT = ("row", "col", "row"), ("col", "row", "row")
TYPES: dict[str, tuple[tuple[str, str, str], tuple[int, int, int], tuple[str, str, str]]] = {
    "f16 in f16": (("f16", "f16", "f16"), (128, 24, 48), ("row", "row", "col")),
    "f16 in f32": (("f16", "f16", "f32"), (64, 8, 16), NT),
    "tf32": (("tf32", "tf32", "f32"), (192, 40, 24), TN),
    "fp8": (("e4m3", "e5m2", "f32"), (128, 64, 96), ("col", "row", "col")),
    "fp8 in f16": (("e5m2", "e4m3", "f16"), (64, 112, 32), ("row", "row", "row")),
    "int8": (("s8", "u8", "s32"), (256, 16, 64), ("col", "col", "row")),
    "uint8": (("u8", "u8", "s32"), (64, 8, 160), TN),
}


def descriptor(types: tuple[str, str, str], size: tuple[int, int, int], order: tuple[str, str, str]) -> dx.Descriptor:
    return tile(size).with_(dx.Precision(*types), dx.Arrangement(*order))


def product(plan: dx.PipelinePlan, schedule: str = "adversarial", m: int = 0, n: int = 0, **scalars: float) -> None:
    """A ragged problem of several tiles and K blocks, against exact sums."""
    compiled, device = dx.compile(dx.render(plan)), EmulatedDevice(schedule=schedule, processors=plan.cluster_size)
    found = plan.descriptor
    m, n, k = m or found.m + 37, n or found.n + 13, 2 * found.k + 8
    random = np.random.default_rng(m + n)

    def draw(rows: int, columns: int, element: dx.Element, order: object) -> Any:
        values = random.integers(-3 if element.is_signed else 0, 4, (rows, columns))
        return padded(values.astype(element.numpy_dtype), order)

    a = draw(m, k, found.precision.a, found.arrangement.a)
    b = draw(k, n, found.precision.b, found.arrangement.b)
    result = dx.Gemm(compiled, device)(a, b, **scalars)
    true = scalars.get("alpha", 1) * (a.astype(np.float64) @ b.astype(np.float64))
    np.testing.assert_array_equal(result, true.astype(result.dtype))
    assert device.last is not None
    assert device.last.hazards == ()


@pytest.mark.parametrize("schedule", ["lazy", "adversarial", "random"])
@pytest.mark.parametrize("name", TYPES)
def test_types(name: str, schedule: str) -> None:
    product(dx.suggest_pipeline(descriptor(*TYPES[name]), depth=2), schedule)


@pytest.mark.parametrize(("size", "depth"), [((256, 256, 256), None), ((128, 256, 64), 6)])
def test_oversized_shared_memory(size: tuple[int, int, int], depth: int | None) -> None:
    """Stages beyond 256 KiB, whose addresses take a bit more in matrix descriptors (PTX ISA 9.4, SM 1070)."""
    plan = dx.suggest_pipeline(tile(size, sm=1070), depth=depth)
    assert plan.oversized
    product(plan, m=130, n=70)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", ["fp8", "f16 in f32"])
def test_fixed_blocksize(name: str, depth: int) -> None:
    plan = dx.suggest_pipeline(descriptor(*TYPES[name]), depth=depth, fixed_blocksize=True)
    assert plan.block_dim == 128
    product(plan)


CLUSTERS: list[tuple[tuple[int, int], str, bool]] = [
    ((1, 2), "bf16", False),
    ((3, 2), "bf16", False),
    ((2, 1), "bf16", True),
    ((4, 1), "bf16", True),
    ((2, 2), "fp8", True),
    ((4, 2), "int8", False),  # N = 16 is no multiple of 32
    ((2, 1), "f16 in f32", False),
]


@pytest.mark.parametrize("schedule", ["adversarial", "random"])
@pytest.mark.parametrize(("cluster", "name", "pair"), CLUSTERS)
def test_clusters(cluster: tuple[int, int], name: str, pair: bool, schedule: str) -> None:
    """Grids of whole clusters over problems that are none."""
    found = tile((128, 64, 64), a="col", b="row") if name == "bf16" else descriptor(*TYPES[name])
    plan = dx.suggest_pipeline(found + dx.BlocksPerCluster(*cluster), depth=2)
    assert plan.pair is pair
    m, n = found.m * (cluster[0] + 1) + 5, found.n * (cluster[1] + 1) + 3
    product(plan, schedule, m, n, alpha=2.0)


@pytest.mark.parametrize("size", [(64, 64, 64), (192, 32, 32)])
def test_pairs_of_64_rows(size: tuple[int, int, int]) -> None:
    """Lane layout B, which only the instruction set's description speaks for: no kernel of another origin was seen."""
    plan = dx.suggest_pipeline(tile(size) + dx.BlocksPerCluster(2, 1), depth=2)
    assert plan.pair
    assert plan.tensor_memory.lanes == "B"
    product(plan)


def test_a_pair_with_a_fixed_block_size() -> None:
    plan = dx.suggest_pipeline(tile() + dx.BlocksPerCluster(2, 1), depth=2, fixed_blocksize=True)
    assert plan.pair
    product(plan)


def test_a_pair_that_is_required() -> None:
    narrow = tile((128, 40, 64)) + dx.BlocksPerCluster(2, 1)
    assert not dx.suggest_pipeline(narrow).pair
    with pytest.raises(dx.PlanError, match=r"N = 40 is no multiple of 16") as caught:
        dx.suggest_pipeline(narrow, require_pair=True)
    assert caught.value.code == "cta_pair"
    with pytest.raises(dx.PlanError, match=r"asked for by BlocksPerCluster with an even"):
        dx.suggest_pipeline(tile(), require_pair=True)
    assert dx.suggest_pipeline(tile() + dx.BlocksPerCluster(2, 1), require_pair=True).pair
