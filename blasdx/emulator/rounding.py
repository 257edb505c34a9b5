"""Bits of float formats to exact float64 and back, rounded once.

Sums and products are formed in float64 together with their rounding error, and the float64 is made odd when it is
inexact, so that the second rounding cannot go wrong (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums:
proved algorithms using rounding to odd").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blasdx.emulator.lanes import Array

FLOAT_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "tf32": 32}
CANONICAL_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "tf32": 0x7FFFFFFF}
_EXPONENT_AND_SIGN: dict[str, tuple[Any, Any]] = {
    "f16": (np.uint16(0x7C00), np.uint16(0x8000)),
    "bf16": (np.uint16(0x7F80), np.uint16(0x8000)),
    "f32": (np.uint32(0x7F800000), np.uint32(0x80000000)),
    "tf32": (np.uint32(0x7F800000), np.uint32(0x80000000)),
    "f64": (np.uint64(0x7FF0000000000000), np.uint64(0x8000000000000000)),
}


def widen(bits: Array, kind: str) -> Array:
    """Bits of a format as exact float64."""
    if kind == "f32":
        return bits.view(np.float32).astype(np.float64)
    if kind == "f64":
        return bits.view(np.float64)
    if kind == "f16":
        return bits.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    raise AssertionError(kind)


def round_odd(value: Array, error: Array) -> Array:
    """The float64 `value` made odd where `error` (the exact result minus `value`) is not zero."""
    bits = value.view(np.int64)
    inexact = (error != 0) & (bits & 1 == 0) & np.isfinite(value)
    if not inexact.any():
        return value
    step = np.where((error > 0) == (value > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(np.float64)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Sum and its exact rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def narrow(value: Array, kind: str, mode: str) -> Array:
    """Round float64 to the bits of a format. `mode` is rn, rz, rm, rp or rna (ties away)."""
    if kind == "f64":
        return value.view(np.uint64)
    if kind == "f32":
        result = value.astype(np.float32)
        if mode != "rn":
            result = _directed(value, result, mode)
        return _canonical(result.view(np.uint32), value, kind)
    if kind == "f16":
        half = value.astype(np.float16)
        if mode != "rn":
            half = _directed(value, half, mode)
        return _canonical(half.view(np.uint16), value, kind)
    drop = {"bf16": 16, "tf32": 13}[kind]
    odd = _to_odd_f32(value)
    bits = _drop_bits(odd, drop, mode)
    if kind == "bf16":
        return _canonical((bits >> np.uint32(16)).astype(np.uint16), value, kind)
    return _canonical(bits, value, kind)


def _canonical(bits: Array, value: Array, kind: str) -> Array:
    nan = np.isnan(value)
    return np.where(nan, bits.dtype.type(CANONICAL_NAN[kind]), bits) if nan.any() else bits


def _directed(value: Array, nearest: Array, mode: str) -> Array:
    back = nearest.astype(np.float64)
    zero, down, up = nearest.dtype.type(0), nearest.dtype.type(-np.inf), nearest.dtype.type(np.inf)
    if mode == "rz":
        wrong = (np.abs(back) > np.abs(value)) & ~np.isinf(value)
        return np.where(wrong, np.nextafter(nearest, zero), nearest)
    if mode == "rm":
        return np.where((back > value) & ~np.isinf(value), np.nextafter(nearest, down), nearest)
    if mode == "rp":
        return np.where((back < value) & ~np.isinf(value), np.nextafter(nearest, up), nearest)
    raise AssertionError(mode)


def _to_odd_f32(value: Array) -> Array:
    """float64 to float32 bits, truncated and made odd when inexact; overflow saturates and stays odd."""
    nearest = value.astype(np.float32)
    toward = _directed(value, nearest, "rz")
    inexact = toward.astype(np.float64) != value
    bits = toward.view(np.uint32)
    return np.where(inexact & ~np.isnan(value), bits | np.uint32(1), bits)


def _drop_bits(bits: Array, drop: int, mode: str) -> Array:
    """Round float32 bits to fewer mantissa bits; the bits below stay zero."""
    low = np.uint32((1 << drop) - 1)
    half = np.uint32(1 << (drop - 1))
    special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    negative = bits >> np.uint32(31) != 0
    if mode == "rn":
        rounded = bits + (half - np.uint32(1)) + ((bits >> np.uint32(drop)) & np.uint32(1))
    elif mode == "rna":
        rounded = bits + half
    elif mode == "rz":
        rounded = bits
    else:
        away = negative if mode == "rm" else ~negative
        rounded = np.where(away, bits + low, bits)
    return np.where(special, bits, rounded).astype(np.uint32) & ~low


def flush(bits: Array, kind: str) -> Array:
    """Subnormals to zero of the same sign (`.ftz`)."""
    exponent, sign = _EXPONENT_AND_SIGN[kind]
    return np.where((bits & exponent) == 0, bits & sign, bits)
