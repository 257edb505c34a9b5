"""Sums of narrow types on the Hopper kernels: nothing wraps, nothing is rounded twice, bytes mean what is said."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


@cache
def kernel(precision: tuple[str, str, str], k: int, output: str | None = None) -> dx.CompiledKernel:
    descriptor = tile((64, 16, k), sm=900).with_(dx.Precision(*precision))
    return dx.compile(dx.render(dx.suggest_pipeline(descriptor, output=output, depth=2)))


def gemm(precision: tuple[str, str, str], k: int = 64, output: str | None = None) -> dx.Gemm:
    return dx.Gemm(kernel(precision, k, output), EmulatedDevice())


def test_int8_sums_at_the_end_of_their_range() -> None:
    """127 x 127 x 1041 is odd and beyond 2^24, so that f32 would round it; nothing wraps."""
    most, least = (dx.padded(np.full((3, 1041), value, np.int8)) for value in (127, -128))
    product = gemm(("s8", "s8", "s32"), 128)
    assert (product(most, most.T) == 16_790_289).all()
    assert (product(least, most.T) == -16_922_496).all()
    assert (product(least, least.T) == 17_055_744).all()


def test_signed_times_unsigned_is_neither_twice() -> None:
    signed, unsigned = np.array([[-128, 127, -1] * 16], np.int8), np.array([[255, 128, 1] * 16], np.uint8)
    true = signed.astype(int) @ unsigned.astype(int).T
    np.testing.assert_array_equal(gemm(("s8", "u8", "s32"), 32)(signed, unsigned.T), true)
    np.testing.assert_array_equal(gemm(("u8", "s8", "s32"), 32)(unsigned, signed.T), true)


def test_bytes_and_typed_arrays_of_fp8_are_the_same() -> None:
    random = np.random.default_rng(3)
    a, b = random.standard_normal((7, 48)).astype(E4M3), random.standard_normal((9, 48)).astype(E5M2)
    product = gemm(("e4m3", "e5m2", "f32"))
    typed, plain = product(a, b.T), product(a.view(np.uint8), b.view(np.uint8).T)
    np.testing.assert_array_equal(typed, plain)
    true = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(typed - true).max() < 0.01
    as_e4m3 = gemm(("e4m3", "e4m3", "f32"))(a.view(np.uint8), b.view(np.uint8).T)
    assert np.abs(as_e4m3 - true).max() > 0.1, "the descriptor decides what bytes are"


def test_the_largest_and_the_least_of_fp8_and_a_nan() -> None:
    a = np.zeros((4, 32), E4M3)
    a[0], a[1], a[2, 3], a[3, 5] = 448, -448, np.nan, 2**-9
    b = np.ones((2, 32), E4M3)
    result = gemm(("e4m3", "e4m3", "f32"))(a, b.T)
    np.testing.assert_array_equal(result[:2], [[14336, 14336], [-14336, -14336]])
    assert np.isnan(result[2]).all()
    assert (result[3] == 2**-9).all()


@pytest.mark.parametrize(("alpha", "beta"), [(1.1, 0.0), (-0.3, 0.7), (1.0, 1.0)])
@pytest.mark.parametrize("output", ["f16", "bf16"])
def test_a_narrow_output_is_rounded_once(output: str, alpha: float, beta: float) -> None:
    """alpha * sum + beta * c in f32, and then one rounding to the output, not one of the sum before."""
    random = np.random.default_rng(1)
    product = gemm(("f16", "f16", "f32"), 64, output)
    dtype = product.kernel.source.plan.output.numpy_dtype
    a, b, c = (random.integers(-9, 10, shape).astype(t) for shape, t in
               (((70, 200), np.float16), ((37, 200), np.float16), ((70, 37), dtype)))  # fmt: skip
    result = product(a, b.T, c, alpha=alpha, beta=beta)
    scaled = np.float64(np.float32(alpha)) * (a.astype(np.float64) @ b.astype(np.float64).T)
    added = np.float64(np.float32(beta)) * c.astype(np.float64)
    true = scaled + added
    half = 0.5 * np.abs(np.spacing(true.astype(dtype)).astype(np.float64))
    assert (np.abs(result.astype(np.float64) - true) <= half + 2.0**-23 * (abs(scaled) + abs(added))).all()


@pytest.mark.parametrize(
    ("output", "value", "stored"),
    [
        ("f16", 65504, 65504),
        ("f16", 65520, np.inf),
        ("f16", -1e6, -np.inf),
        ("bf16", 1e6, 999424),
        ("f16", np.nan, np.nan),
    ],
)
def test_sums_beyond_a_narrow_output_are_infinite_and_nan_stays(output: str, value: Any, stored: Any) -> None:
    a, b = np.ones((3, 16), np.float16), np.zeros((5, 16), np.float16).T
    c = np.ones((3, 5), dx.Element.of(output).numpy_dtype)
    result = gemm(("f16", "f16", "f32"), 64, output)(a, b, c, beta=value)
    np.testing.assert_array_equal(result.astype(np.float64), np.full((3, 5), stored))


def test_tf32_is_asked_for_and_keeps_ten_bits() -> None:
    """What f32 arrays lose to tf32 is there because the descriptor says tf32, and no more than that."""
    random = np.random.default_rng(2)
    a, b = random.standard_normal((33, 64)).astype(np.float32), random.standard_normal((17, 64)).astype(np.float32)
    result = gemm(("tf32", "tf32", "f32"), 32)(a, b.T)
    true, magnitude = (
        a.astype(np.float64) @ b.T.astype(np.float64),
        abs(a.astype(np.float64)) @ abs(b.T.astype(np.float64)),
    )
    assert (np.abs(result - true) <= 2.0**-9 * magnitude).all()
    assert (np.abs(result - true) > 2.0**-20 * magnitude).any()


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("output", ["f32", "bf16"])
def test_a_result_that_begins_anywhere_in_a_row_of_16_bytes(output: str, shift: int) -> None:
    """TMA stores it where it can; elsewhere the kernel does, whatever the leading dimension would allow."""
    product = gemm(("bf16", "bf16", "f32"), 64, output)
    whole = np.full((70, 48), -77, product.kernel.source.plan.output.numpy_dtype)
    random = np.random.default_rng(shift)
    a, b = (random.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((67, 40), (33, 40)))
    out = whole[2:69, shift : shift + 33]
    product(a, b.T, out=out)
    np.testing.assert_array_equal(out.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64).T)
    out[...] = -77
    assert (whole == -77).all()


def test_memory_that_begins_between_two_lines_of_32_bytes_has_ends_on_both_sides() -> None:
    from blasdx.emulator import EmulationError, GlobalMemory

    memory = GlobalMemory()
    buffer = memory.upload(np.arange(5, dtype=np.float32), offset=20)
    assert buffer.address % 4096 == 20
    assert memory.find(buffer.address + 19) is buffer
    assert buffer.load_one(buffer.address + 8, 4, 1) == np.float32([2]).view(np.uint32)
    for beyond in (-4, 20):
        with pytest.raises(EmulationError):
            memory.find(buffer.address + beyond).load_one(buffer.address + beyond, 4, 1)
    buffer.write(buffer.read() + 1)
    np.testing.assert_array_equal(buffer.read(), [1, 2, 3, 4, 5])
