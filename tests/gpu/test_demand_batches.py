"""Batches on a Hopper GPU: more than a grid dimension holds, in clusters, in views, beyond 2^31 elements."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blasdx as dx
from tests.gpu.test_wgmma import kernel

bf16 = ml_dtypes.bfloat16


def integers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(bf16)


def product(a: Any, b: Any) -> Any:
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64)


@pytest.mark.parametrize("m", [192, 384, 300])
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (2, 2), (1, 4)])
def test_an_odd_number_of_tiles_a_batch_in_clusters(hopper: Any, m: int, cluster: tuple[int, int]) -> None:
    """No cluster straddles two batches, whichever number of tiles one of them has."""
    a, b = integers(3, m, 136, seed=1), integers(3, 200, 136, seed=2)
    gemm = dx.Gemm(kernel((128, 64, 64), 256, cluster=cluster), "cuda")
    result = gemm(hopper.asarray(a), hopper.asarray(b).swapaxes(1, 2))
    np.testing.assert_array_equal(hopper.asnumpy(result), product(a, b.swapaxes(1, 2)))


def test_more_batches_than_a_grid_dimension_holds(hopper: Any) -> None:
    a, b = integers(70_001, 3, 8, seed=1), integers(70_001, 5, 8, seed=2)
    result = dx.Gemm(kernel((64, 8, 16), 128), "cuda")(hopper.asarray(a), hopper.asarray(b).swapaxes(1, 2))
    np.testing.assert_array_equal(hopper.asnumpy(result), product(a, b.swapaxes(1, 2)))


@pytest.mark.parametrize(("a_batch", "b_batch"), [((1,), (4,)), ((), (4,)), ((2, 1), (3,)), ((3, 2), (3, 2))])
def test_one_matrix_serves_all_batches(hopper: Any, a_batch: tuple[int, ...], b_batch: tuple[int, ...]) -> None:
    a, b = integers(*a_batch, 72, 264, seed=1), integers(*b_batch, 136, 264, seed=2)
    result = dx.Gemm(kernel((64, 64, 64), 128), "cuda")(hopper.asarray(a), hopper.asarray(b).swapaxes(-1, -2))
    np.testing.assert_array_equal(hopper.asnumpy(result), product(a, b.swapaxes(-1, -2)))


@pytest.mark.parametrize("output", [None, "bf16"])
@pytest.mark.parametrize("cut", [np.s_[:, :, 8:72], np.s_[::2, :65, :33], np.s_[1:4, 1:70, 3:68]], ids=str)
def test_gaps_of_a_batched_out_stay(hopper: Any, cut: Any, output: str | None) -> None:
    compiled = kernel((64, 64, 64), 128, output=output)
    parent = hopper.asarray(np.full((6, 72, 80), -77, compiled.source.plan.output.numpy_dtype))
    out = parent[cut]
    a, b = integers(len(out), out.shape[1], 24, seed=1), integers(len(out), out.shape[2], 24, seed=2)
    dx.Gemm(compiled, "cuda")(hopper.asarray(a), hopper.asarray(b).swapaxes(1, 2), out=out)
    host = hopper.asnumpy(parent)
    np.testing.assert_array_equal(host[cut].astype(np.float64), product(a, b.swapaxes(1, 2)))
    host[cut] = -77
    assert (host == -77).all()


def test_transposed_batches_cost_no_memory(hopper: Any) -> None:
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    a, b = hopper.asarray(integers(5, 64, 128, seed=1)), hopper.asarray(integers(5, 96, 128, seed=2))
    out = hopper.empty((5, 64, 96), np.float32)
    gemm(a, b.transpose(0, 2, 1), out=out)
    pool = hopper.get_default_memory_pool()
    before = pool.used_bytes()
    gemm(a, b.transpose(0, 2, 1), out=out)
    assert pool.used_bytes() == before


def test_more_elements_than_31_bits_count(hopper: Any) -> None:
    rows, k = 270_000, 8192
    assert rows * k > 2**31
    a, b = hopper.ones((rows, k), np.float16), hopper.ones((3, k), np.float16)
    a[-1] = 0.5
    result = dx.Gemm(kernel((128, 8, 64), 128, precision="f16"), "cuda")(a, b.T)
    assert bool((result[:-1] == k).all())
    assert bool((result[-1] == k / 2).all())
