"""Situations in which products of other libraries were wrong, on the kernels that are shipped."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice

bf16 = ml_dtypes.bfloat16


@cache
def kernel(size: tuple[int, int, int], depth: int, a: str = "row", b: str = "col") -> dx.CompiledKernel:
    return dx.compile(dx.render(dx.suggest_pipeline(tile(size, a=a, b=b), depth=depth)))


def gemm(size: tuple[int, int, int] = (64, 32, 64), depth: int = 2, processors: int = 2, **orders: str) -> dx.Gemm:
    return dx.Gemm(kernel(size, depth, **orders), EmulatedDevice(processors=processors))


def integers(rows: int, columns: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(bf16)


def product(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64)


# ---- K


@pytest.mark.parametrize("depth", [2, 5])
@pytest.mark.parametrize("k", [1, 15, 16, 17, 33, 64, 65, 129, 192, 257, 511])
def test_every_k_whatever_the_depth(k: int, depth: int) -> None:
    """Fewer K blocks than stages, as many, one more, and a tail of every kind."""
    a, b = dx.padded(integers(5, k, k)), dx.padded(integers(k, 11, k + 1), "col")
    np.testing.assert_array_equal(gemm((64, 16, 64), depth)(a, b), product(a, b))


@pytest.mark.parametrize(
    ("tile_k", "a_order", "b_order"),
    [(64, "row", "col"), (192, "row", "col"), (256, "row", "row"), (16, "col", "row"), (48, "col", "row")],
)
def test_every_part_of_k_is_multiplied(tile_k: int, a_order: str, b_order: str) -> None:
    """Row i of a selects element i of K, so that a dropped or doubled one shows where it is."""
    k = 270
    a, b = dx.padded(np.eye(k, dtype=bf16), a_order), dx.padded(integers(k, 10, 3), b_order)
    result = gemm((128, 64, tile_k), 1, a=a_order, b=b_order)(a, b)
    np.testing.assert_array_equal(result, b.astype(np.float32))


def test_16384_ones_are_16384() -> None:
    """An f16 sum of ones stays at 2,048, a bf16 one at 256."""
    a, b = np.ones((3, 16384), bf16), np.ones((2, 16384), bf16).T
    assert (gemm((64, 8, 256), 2)(a, b) == 16384).all()


# ---- M and N


@pytest.mark.parametrize("m", [1, 2, 31, 33, 63, 65, 96, 129])
def test_every_row_of_few_is_written(m: int) -> None:
    a, b, out = integers(m, 128, m), integers(40, 128, 1).T, np.full((m, 40), np.nan, np.float32)
    gemm()(a, b, out=out)
    np.testing.assert_array_equal(out, product(a, b))


@pytest.mark.parametrize("processors", [1, 4, 132])
@pytest.mark.parametrize(("tiles_m", "tiles_n"), [(1, 1), (1, 9), (5, 3)])
def test_every_tile_is_visited_once(tiles_m: int, tiles_n: int, processors: int) -> None:
    """In place, out = c + a @ b: a tile that is visited twice is added twice."""
    m, n = tiles_m * 64 - 3, tiles_n * 32 - 5
    a, b = integers(m, 8, 4), integers(n, 8, 5).T
    c = np.arange(m * n, dtype=np.float32).reshape(m, n) % 101
    true = c + product(a, b)
    gemm(processors=processors)(a, b, c, beta=1.0, out=c)
    np.testing.assert_array_equal(c, true)


def test_c_ends_where_its_last_element_does() -> None:
    """A ragged last tile reads as little of c as it writes: what follows is no memory of this process's arrays."""
    m, n = 65, 33
    a, b = integers(m, 16), integers(n, 16).T
    memory = np.full(m * n + 64, np.nan, np.float32)
    c = memory[: m * n].reshape(m, n)
    c[...] = 3
    np.testing.assert_array_equal(gemm()(a, b, c, beta=2.0), 6 + product(a, b))


# ---- views


@pytest.mark.parametrize(
    "cut", [np.s_[:, :40], np.s_[::2, :40], np.s_[::3, 8:48], np.s_[40:, 72:112], np.s_[5:6, 16:56]], ids=str
)
def test_slices_are_read_with_the_strides_of_their_parent(cut: Any) -> None:
    parent, other = integers(70, 128, 7), integers(40, 24, 8)
    a, b = parent[cut], dx.padded(other, "col")
    np.testing.assert_array_equal(gemm()(a, b), product(a, b))
    a, b = dx.padded(integers(9, 40, 9)), parent[cut].T
    np.testing.assert_array_equal(gemm()(a, b), product(a, b))


@pytest.mark.parametrize("cut", [np.s_[:, 8:48], np.s_[::2, :40], np.s_[3:23, 1:34], np.s_[7:8, 2:39]], ids=str)
def test_what_lies_between_the_rows_of_out_stays(cut: Any) -> None:
    parent = np.full((40, 64), -77, np.float32)
    out = parent[cut]
    a, b = integers(out.shape[0], 24, 1), integers(out.shape[1], 24, 2).T
    assert gemm()(a, b, out=out) is out
    np.testing.assert_array_equal(out, product(a, b))
    out[...] = -77
    assert (parent == -77).all()


def test_flipped_operands_after_the_copy_that_the_refusal_proposes() -> None:
    a, b = integers(21, 40, 1)[::-1], integers(40, 13, 2)[:, ::-1]
    with pytest.raises(dx.OperandError, match=r"blasdx.padded\(a, 'row'\)(?s:.)*blasdx.padded\(b, 'col'\)"):
        gemm()(a, b)
    np.testing.assert_array_equal(gemm()(dx.padded(a, "row"), dx.padded(b, "col")), product(a, b))


# ---- values that are no numbers


def test_a_nan_stays_in_its_row_and_an_infinity_in_its_column() -> None:
    a, b = integers(70, 40, 1), integers(40, 37, 2)
    a[:, 0], a[11, 39], b[0, 5] = 2, np.nan, np.inf
    result = gemm()(a, dx.padded(b, "col"))
    np.testing.assert_array_equal(result, product(a, b))
    assert np.isnan(result).sum() == 37
    assert np.isinf(result).sum() == 69


def test_what_was_in_out_does_not_matter() -> None:
    a, b = integers(70, 40, 1), integers(37, 40, 2).T
    for before in (np.nan, np.inf, -0.0):
        out = np.full((70, 37), before, np.float32)
        np.testing.assert_array_equal(gemm()(a, b, np.full_like(out, np.nan), beta=0.0, out=out), product(a, b))


@pytest.mark.parametrize(("alpha", "beta"), [(np.nan, 0), (np.inf, 1), (1, np.nan), (0, np.nan), (2, -np.inf)])
def test_scalars_that_are_no_numbers_do_what_arithmetic_says(alpha: float, beta: float) -> None:
    a, b, c = np.ones((3, 8), bf16), np.ones((5, 8), bf16).T, np.full((3, 5), 2, np.float32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(gemm()(a, b, c, alpha=alpha, beta=beta), alpha * np.float32(8) + beta * c)


def test_the_largest_sums_overflow_to_infinity_and_not_to_noise() -> None:
    a, b = np.full((2, 64), 3e38, bf16), np.ones((3, 64), bf16).T
    assert (gemm()(a, b) == np.inf).all()
    assert (gemm()(-a, b) == -np.inf).all()


# ---- again


def test_the_same_bits_whatever_the_schedule_and_the_number_of_processors() -> None:
    random = np.random.default_rng(5)
    a, b = random.standard_normal((130, 200)).astype(bf16), random.standard_normal((70, 200)).astype(bf16).T
    results = [
        dx.Gemm(kernel((64, 32, 64), 2), EmulatedDevice(schedule=schedule, seed=seed, processors=processors))(a, b)
        for schedule, seed, processors in (("eager", 0, 1), ("lazy", 0, 3), ("adversarial", 0, 2), ("random", 7, 132))
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result.view(np.uint32), results[0].view(np.uint32))


def test_call_after_call_of_one_gemm() -> None:
    """Barriers, tensor memory and counters are left as they were found, call after call and size after size."""
    product_of = gemm()
    for m in range(1, 140, 12):
        a, b = integers(m, 24, m), integers(9, 24, m + 1).T
        np.testing.assert_array_equal(product_of(a, b), product(a, b))
