"""Batches of products, in the shapes and views that other libraries read with the wrong strides."""

from __future__ import annotations

from functools import cache
from itertools import product as combinations
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice

bf16 = ml_dtypes.bfloat16
M, N, K, BATCHES = 35, 21, 24, 3


@cache
def kernel(a: str, b: str, c: str) -> dx.CompiledKernel:
    return dx.compile(dx.render(dx.suggest_pipeline(tile((64, 64, 64), a=a, b=b, c=c), depth=2)))


def gemm(a: str = "row", b: str = "col", c: str = "row") -> dx.Gemm:
    return dx.Gemm(kernel(a, b, c), EmulatedDevice())


def integers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(bf16)


def lines(batches: int, rows: int, columns: int, order: str, *, pad: int = 8, seed: int = 0) -> Any:
    """Matrices whose lines are padded to whole 16 bytes and then by as much again, NaN in between."""
    outer, inner = (rows, columns) if order == "row" else (columns, rows)
    whole = np.full((batches, outer + 1, -(-inner // 8) * 8 + pad), np.nan, bf16)
    view = whole[:, :outer, :inner]
    view[...] = integers(batches, outer, inner, seed=seed)
    return view if order == "row" else view.transpose(0, 2, 1)


def product(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize(("a_order", "b_order", "c_order"), list(combinations(("row", "col"), repeat=3)))
def test_every_layout_with_padded_lines_and_gaps_between_batches(a_order: str, b_order: str, c_order: str) -> None:
    """No two of M, N, K and the batch agree, so that an extent in the place of another shows."""
    a, b = lines(BATCHES, M, K, a_order, seed=1), lines(BATCHES, K, N, b_order, seed=2)
    result = gemm(a_order, b_order, c_order)(a, b)
    assert result.shape == (BATCHES, M, N)
    np.testing.assert_array_equal(result, product(a, b))


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((1, M, K), (4, K, N)),
        ((M, K), (4, K, N)),
        ((4, M, K), (K, N)),
        ((2, 1, M, K), (3, K, N)),
        ((1, 1, M, K), (K, N)),
        ((0, M, K), (0, K, N)),
    ],
    ids=str,
)
def test_one_matrix_serves_all_batches(a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> None:
    a, b = integers(*a_shape, seed=1), integers(*b_shape[:-2], N, K, seed=2).swapaxes(-1, -2)
    result = gemm()(a, b)
    assert result.shape == (*np.broadcast_shapes(a_shape[:-2], b_shape[:-2]), M, N)
    np.testing.assert_array_equal(result, product(a, b))


def test_batches_that_do_not_go_together_are_refused_with_both_shapes() -> None:
    a, b = integers(3, M, K), integers(5, N, K).swapaxes(1, 2)
    out = np.full((3, M, N), 7, np.float32)
    with pytest.raises(dx.OperandError) as caught:
        gemm()(a, b, out=out)
    assert f"(5, {K}, {N})" in str(caught.value)
    assert f"(3, {M}, {K})" in str(caught.value)
    assert (out == 7).all()


def test_an_out_with_fewer_or_more_batches_is_refused() -> None:
    a, b = integers(3, M, K), integers(3, N, K).swapaxes(1, 2)
    for shape in ((M, N), (1, M, N), (4, M, N), (3, 1, M, N)):
        with pytest.raises(dx.OperandError, match="out: shape"):
            gemm()(a, b, out=np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    "cut",
    [np.s_[:, :, 8 : 8 + N], np.s_[::2, :M, :N], np.s_[1:4, 1 : M + 1, 3 : 3 + N]],
    ids=str,
)
def test_gaps_of_a_batched_out_stay(cut: Any) -> None:
    parent = np.full((6, M + 2, 40), -77, np.float32)
    out = parent[cut]
    a, b = integers(len(out), out.shape[1], K, seed=1), integers(len(out), out.shape[2], K, seed=2).swapaxes(1, 2)
    assert gemm()(a, b, out=out) is out
    np.testing.assert_array_equal(out, product(a, b))
    out[...] = -77
    assert (parent == -77).all()


def test_batches_in_another_order_than_memory_has_them() -> None:
    """Strides of two batch dimensions that do not collapse to one, in any order."""
    a = integers(2, 3, M, K, seed=1).swapaxes(0, 1)
    b = integers(5, 2, N, K, seed=2)[1:4].swapaxes(-1, -2)
    np.testing.assert_array_equal(gemm()(a, b), product(a, b))


def test_beta_with_a_c_that_is_out_and_with_one_c_for_all() -> None:
    a, b = integers(3, M, K, seed=1), integers(3, N, K, seed=2).swapaxes(1, 2)
    c = np.arange(3 * M * N, dtype=np.float32).reshape(3, M, N) % 31
    true = 2 * product(a, b) - c
    np.testing.assert_array_equal(gemm()(a, b, c, alpha=2.0, beta=-1.0), true)
    single = c[1]
    np.testing.assert_array_equal(gemm()(a, b, single, beta=1.0), product(a, b) + single)
    gemm()(a, b, c, alpha=2.0, beta=-1.0, out=c)
    np.testing.assert_array_equal(c, true)


@pytest.mark.parametrize("written", ["a", "b"])
def test_an_out_inside_a_batched_input_is_refused(written: str) -> None:
    memory = np.zeros(1 << 16, np.float32)
    inputs = {
        "a": memory.view(bf16)[: 3 * M * K].reshape(3, M, K) if written == "a" else integers(3, M, K),
        "b": (memory.view(bf16)[: 3 * N * K] if written == "b" else integers(3 * N * K))
        .reshape(3, N, K)
        .swapaxes(1, 2),
    }
    out = memory[600 : 600 + 3 * M * N].reshape(3, M, N)
    with pytest.raises(dx.OperandError, match=f"memory shared with {written}"):
        gemm()(**inputs, out=out)


def test_an_out_whose_batches_lie_over_each_other_is_refused() -> None:
    a, b = integers(3, M, K), integers(3, N, K).swapaxes(1, 2)
    out = np.broadcast_to(np.zeros((M, N), np.float32), (3, M, N))
    writable = np.lib.stride_tricks.as_strided(np.zeros((M, N), np.float32), out.shape, out.strides)
    with pytest.raises(dx.OperandError, match="out: "):
        gemm()(a, b, out=writable)


def test_many_small_products_are_one_launch() -> None:
    device = EmulatedDevice(processors=7)
    launches = []
    launch = device.launch
    device.launch = lambda *given, **named: launches.append(given) or launch(*given, **named)  # type: ignore[method-assign]
    a, b = integers(40, 16, 16, seed=1), integers(40, 16, 16, seed=2).swapaxes(1, 2)
    np.testing.assert_array_equal(dx.Gemm(kernel("row", "col", "row"), device)(a, b), product(a, b))
    assert len(launches) == 1
