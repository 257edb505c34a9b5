"""Situations in which products of other libraries were wrong, on a Hopper GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blasdx as dx
from tests.gpu.test_wgmma import check, kernel

ROW, COL = "row", "col"
bf16 = ml_dtypes.bfloat16


def integers(rows: int, columns: int, seed: int = 0, dtype: Any = bf16) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(dtype)


def product(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64)


# ---- extents


@pytest.mark.parametrize("depth", [2, 3, 6])
def test_every_k_whatever_the_depth(hopper: Any, depth: int) -> None:
    compiled = kernel((64, 64, 64), 128, depth=depth)
    for k in (1, 8, 15, 16, 17, 31, 33, 63, 64, 65, 80, 192, 511, 8191):
        check(hopper, compiled, 70, 43, k, seed=k)


def test_every_m_up_to_two_tiles(hopper: Any) -> None:
    """All rows are written, from one up, whatever was in out."""
    gemm = dx.Gemm(kernel((64, 128, 64), 128), "cuda")
    b = integers(128, 128, 1)
    device_b = hopper.asarray(b).T
    for m in range(1, 131):
        a = integers(m, 128, m)
        out = hopper.full((m, 128), np.nan, np.float32)
        gemm(hopper.asarray(a), device_b, out=out)
        np.testing.assert_array_equal(hopper.asnumpy(out), product(a, b.T), err_msg=f"M = {m}")


@pytest.mark.parametrize(("tiles_m", "tiles_n"), [(1, 1), (1, 9), (7, 13), (33, 3), (41, 37)])
def test_every_tile_is_visited_once(hopper: Any, tiles_m: int, tiles_n: int) -> None:
    """In place, out = c + a @ b: a tile that is visited twice is added twice."""
    m, n = tiles_m * 64 - 3, tiles_n * 64 - 5
    a, b = integers(m, 16, 4), integers(n, 16, 5)
    c = np.arange(m * n, dtype=np.float32).reshape(m, n) % 101
    place = hopper.asarray(c)
    dx.Gemm(kernel((64, 64, 64), 128), "cuda")(hopper.asarray(a), hopper.asarray(b).T, place, beta=1.0, out=place)
    np.testing.assert_array_equal(hopper.asnumpy(place), c + product(a, b.T))


@pytest.mark.parametrize(
    ("precision", "m", "n", "k", "tile_k"),
    [("f16", 1471, 513, 257, 64), (("e4m3", "e4m3", "f32"), 65, 33, 47, 64), (("s8", "s8", "s32"), 129, 67, 35, 64)],
)
def test_extents_that_are_no_multiple_of_anything(
    hopper: Any, precision: Any, m: int, n: int, k: int, tile_k: int
) -> None:
    check(hopper, kernel((128, 64, tile_k), 256, precision=precision), m, n, k)


# ---- views


@pytest.mark.parametrize(
    "cut", [np.s_[:, :40], np.s_[::2, :40], np.s_[::3, 8:48], np.s_[40:, 72:112], np.s_[5:6, 16:56]], ids=str
)
def test_slices_are_read_with_the_strides_of_their_parent(hopper: Any, cut: Any) -> None:
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    parent, other = integers(170, 128, 7), integers(24, 40, 8)
    device, device_other = hopper.asarray(parent), hopper.asarray(other)
    result = hopper.asnumpy(gemm(device[cut], device_other.T))
    np.testing.assert_array_equal(result, product(parent[cut], other.T))
    result = hopper.asnumpy(gemm(device_other, device[cut].T))
    np.testing.assert_array_equal(result, product(other, parent[cut].T))


@pytest.mark.parametrize("output", [None, "bf16"])
@pytest.mark.parametrize("cut", [np.s_[:, 8:72], np.s_[::2, :64], np.s_[3:133, 1:66], np.s_[7:8, 2:77]], ids=str)
def test_what_lies_between_the_rows_of_out_stays(hopper: Any, cut: Any, output: str | None) -> None:
    compiled = kernel((64, 64, 64), 128, output=output)
    parent = hopper.asarray(np.full((140, 96), -77, compiled.source.plan.output.numpy_dtype))
    out = parent[cut]
    a, b = integers(out.shape[0], 24, 1), integers(out.shape[1], 24, 2)
    dx.Gemm(compiled, "cuda")(hopper.asarray(a), hopper.asarray(b).T, out=out)
    host = hopper.asnumpy(parent)
    np.testing.assert_array_equal(host[cut].astype(np.float64), product(a, b.T))
    host[cut] = -77
    assert (host == -77).all()


def test_flipped_operands_after_the_copy_that_the_refusal_proposes(hopper: Any) -> None:
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    a, b = integers(21, 40, 1), integers(40, 13, 2)
    flipped_a, flipped_b = hopper.asarray(a)[::-1], hopper.asarray(b)[:, ::-1]
    with pytest.raises(dx.OperandError, match=r"blasdx.padded\(a, 'row'\)(?s:.)*blasdx.padded\(b, 'col'\)"):
        gemm(flipped_a, flipped_b)
    result = gemm(dx.padded(flipped_a, ROW), dx.padded(flipped_b, COL))
    np.testing.assert_array_equal(hopper.asnumpy(result), product(a[::-1], b[:, ::-1]))


def test_views_cost_no_memory(hopper: Any) -> None:
    """Nothing is allocated but the result, and with out nothing at all."""
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    wide = hopper.asarray(integers(512, 1024, 1))
    a, b = wide[:, 64:576], wide[:256, 8:520].T
    out = hopper.empty((512, 256), np.float32)
    gemm(a, b, out=out)
    pool = hopper.get_default_memory_pool()
    before = pool.used_bytes()
    for _ in range(3):
        gemm(a, b, out=out)
    assert pool.used_bytes() == before
    kept = gemm(a, b)
    assert pool.used_bytes() == before + kept.nbytes


# ---- sums


def test_16384_ones_are_16384(hopper: Any) -> None:
    """An f16 sum of ones stays at 2,048."""
    ones = hopper.ones((3, 16384), np.float16)
    gemm = dx.Gemm(kernel((64, 64, 64), 128, precision="f16"), "cuda")
    assert bool((gemm(ones, ones.T) == 16384).all())


@pytest.mark.parametrize("k", [512, 4096, 16384])
def test_fp8_sums_keep_their_accuracy_however_long_they_are(hopper: Any, k: int) -> None:
    """All terms are positive, so that what the tensor core drops adds up; promotion bounds it."""
    random = np.random.default_rng(k)
    a, b = (random.uniform(0.25, 4, (100, k)).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    exact = product(a, b.T)
    errors = {}
    for promote in (True, False):
        descriptor = kernel((64, 64, 128), 128, precision=("e4m3", "e4m3", "f32")).source.plan.descriptor
        compiled = dx.compile(dx.render(dx.suggest_pipeline(descriptor, promote=promote)))
        got = dx.Gemm(compiled, "cuda")(hopper.asarray(a.view(np.uint8)), hopper.asarray(b.view(np.uint8)).T)
        errors[promote] = float(np.max(np.abs(hopper.asnumpy(got) - exact) / exact))
    assert errors[True] < 1e-3
    assert errors[True] < errors[False], "the flag does something"


def test_int8_sums_at_the_end_of_their_range(hopper: Any) -> None:
    """127 x 127 x 1041 is odd and beyond 2^24, so that f32 would round it; nothing wraps."""
    gemm = dx.Gemm(kernel((64, 64, 128), 128, precision=("s8", "s8", "s32")), "cuda")
    most, least = (dx.padded(hopper.full((5, 1041), value, np.int8)) for value in (127, -128))
    assert bool((gemm(most, most.T) == 16_790_289).all())
    assert bool((gemm(least, most.T) == -16_922_496).all())


# ---- values that are no numbers


def test_a_nan_stays_in_its_row_and_an_infinity_in_its_column(hopper: Any) -> None:
    a, b = integers(70, 40, 1), integers(37, 40, 2).T
    a[:, 0], a[11, 39], b[0, 5] = 2, np.nan, np.inf
    result = dx.Gemm(kernel((64, 64, 64), 128), "cuda")(hopper.asarray(a), hopper.asarray(b.T).T)
    np.testing.assert_array_equal(hopper.asnumpy(result), product(a, b))


@pytest.mark.parametrize("output", [None, "bf16"])
def test_beta_zero_reads_neither_c_nor_out(hopper: Any, output: str | None) -> None:
    compiled = kernel((64, 64, 64), 128, output=output)
    dtype = compiled.source.plan.output.numpy_dtype
    a, b = integers(70, 40, 1), integers(37, 40, 2)
    c, out = (hopper.asarray(np.full((70, 37), before, dtype)) for before in (np.nan, np.inf))
    dx.Gemm(compiled, "cuda")(hopper.asarray(a), hopper.asarray(b).T, c, beta=0.0, out=out)
    np.testing.assert_array_equal(hopper.asnumpy(out).astype(np.float64), product(a, b.T))


@pytest.mark.parametrize(("alpha", "beta"), [(1.1, 0.0), (1.1, 1.2), (-0.3, 0.7), (1.0, 1.0)])
@pytest.mark.parametrize("output", ["f16", "bf16"])
def test_a_narrow_output_is_rounded_once(hopper: Any, output: str, alpha: float, beta: float) -> None:
    """alpha * sum + beta * c in f32, and then one rounding to the output, not one of the sum before."""
    compiled = kernel((64, 64, 64), 128, precision="f16", output=output)
    dtype = compiled.source.plan.output.numpy_dtype
    a, b, c = integers(70, 200, 1, np.float16), integers(37, 200, 2, np.float16), integers(70, 37, 3, dtype)
    result = dx.Gemm(compiled, "cuda")(
        hopper.asarray(a), hopper.asarray(b).T, hopper.asarray(c), alpha=alpha, beta=beta
    )
    scaled = np.float64(np.float32(alpha)) * product(a, b.T)
    added = np.float64(np.float32(beta)) * c.astype(np.float64)
    true = scaled + added
    once = 0.5 * np.abs(np.spacing(true.astype(dtype)).astype(np.float64))
    assert (
        np.abs(hopper.asnumpy(result).astype(np.float64) - true) <= once + 2.0**-23 * (abs(scaled) + abs(added))
    ).all()
