"""cvt on lane values (PTX ISA 9.7.9.21)."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from blasdx.emulator import directed, floats, rounding
from blasdx.emulator.formats import FLOATS, Rounding, decode, encode
from blasdx.emulator.lanes import DTYPES, SIGNED, Array, Value, lanewise


@cache
def integer_to_float(source_bits: int, signed: bool, kind: str, mode: str) -> floats.Operation:
    """Rounded once, also from 64 bits."""

    @lanewise(source_bits)
    def operation(a: Array) -> Array:
        value = a.view(SIGNED[source_bits]) if signed else a
        near = value.astype(np.float64)
        if source_bits == 64:
            if kind == "f64" and mode == "rn":
                return near.view(np.uint64)
            # float64 has 53 bits; what it lost decides the second rounding. 2**64 itself does not fit back.
            edge = near >= (2.0**63 if signed else 2.0**64)
            back = np.where(edge, 0.0, near).astype(value.dtype)
            lost = (value - back).view(np.int64).astype(np.float64)
            if kind == "f64":
                return directed.step64(near, np.where(edge, -1.0, lost), mode).view(np.uint64)
            near = rounding.round_odd(near, np.where(edge, -1.0, lost))
        return rounding.narrow(near, kind, mode)

    return operation


_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@cache
def float_to_integer(kind: str, target_bits: int, signed: bool, mode: str, ftz: bool) -> floats.Operation:
    """Out of range clamps; NaN gives 0, or 0x80...0 when f64 or 64 bits are involved."""
    low = -(1 << (target_bits - 1)) if signed else 0
    high = (1 << (target_bits - 1)) - 1 if signed else (1 << target_bits) - 1
    nan = 1 << (target_bits - 1) if kind == "f64" or target_bits == 64 else 0

    @lanewise(rounding.FLOAT_BITS[kind])
    def operation(a: Array) -> Array:
        value = _INTEGRAL[mode](rounding.widen(rounding.flush(a, kind) if ftz else a, kind))
        number = np.where(np.isnan(value), 0.0, value)
        inside = (number >= low) & (number < float(high) + (1.0 if target_bits < 64 else 0.0))
        kept = np.where(inside, number, 0.0)
        whole = (kept.astype(np.int64).view(np.uint64) if signed else kept.astype(np.uint64)) & np.uint64(
            (1 << target_bits) - 1
        )
        clamped = np.where(number < 0, np.uint64(low & ((1 << target_bits) - 1)), np.uint64(high))
        result = np.where(inside, whole, clamped)
        return np.where(np.isnan(value), np.uint64(nan), result).astype(DTYPES[target_bits])

    return operation


@cache
def float_to_float(source: str, target: str, mode: str, ftz: bool, sat: bool, relu: bool) -> floats.Operation:
    """Also rounding to integral values (rni, rzi, rmi, rpi) in one format, and f32 to tf32."""

    @lanewise(rounding.FLOAT_BITS[source])
    def operation(a: Array) -> Array:
        value = rounding.widen(rounding.flush(a, source) if ftz else a, source)
        if mode in _INTEGRAL:
            value = _INTEGRAL[mode](value)
        if sat:
            value = np.where(np.isnan(value), 0.0, np.clip(value, 0.0, 1.0))
        if relu:
            value = np.where(np.isnan(value), value, np.maximum(value, 0.0))
        bits = rounding.narrow(value, target, "rn" if mode in _INTEGRAL or not mode else mode)
        return rounding.flush(bits, target) if ftz else bits

    return operation


@cache
def satfinite(operation: floats.Operation, kind: str) -> floats.Operation:
    """Infinity to the largest finite number, after rounding."""
    largest = {"f16": 0x7BFF, "bf16": 0x7F7F, "tf32": 0x7F7FE000}[kind]
    bits = rounding.FLOAT_BITS[kind]
    sign = 1 << (bits - 1)
    infinity = {"f16": 0x7C00, "bf16": 0x7F80, "tf32": 0x7F800000}[kind]

    @lanewise(bits)
    def clamp(a: Array) -> Array:
        return np.where(a & (sign - 1) == infinity, (a & sign) | largest, a).astype(DTYPES[bits])

    def result(a: Value) -> Value:
        return clamp(operation(a))

    return result


@cache
def saturate_integer(source_bits: int, source_signed: bool, target_bits: int, target_signed: bool) -> floats.Operation:
    """Integer to integer with .sat."""
    low = -(1 << (target_bits - 1)) if target_signed else 0
    high = (1 << (target_bits - 1)) - 1 if target_signed else (1 << target_bits) - 1

    @lanewise(source_bits)
    def operation(a: Array) -> Array:
        value = a.view(SIGNED[source_bits]) if source_signed else a
        info = np.iinfo(value.dtype)
        clipped = np.clip(value, max(low, int(info.min)), min(high, int(info.max)))
        return clipped.astype(SIGNED[target_bits] if target_signed else DTYPES[target_bits]).view(DTYPES[target_bits])

    return operation


@cache
def encode_small(element: str, source: str, mode: Rounding, relu: bool, saturate: bool) -> floats.Operation:
    """A float as the code of an 8-, 6- or 4-bit type."""

    @lanewise(rounding.FLOAT_BITS[source])
    def operation(a: Array) -> Array:
        value = rounding.widen(a, source)
        if relu:
            value = np.where(np.isnan(value) | (value > 0), value, 0.0)
        return encode(value, element, rounding=mode, saturate=saturate).astype(np.uint8)

    return operation


@cache
def stochastic(element: str, random_bits: int, relu: bool, saturate: bool) -> floats.Operation:
    """cvt.rs of one f32: away from zero when adding `random_bits` random bits to the discarded ones carries.

    The random bits are aligned with the highest discarded ones, also where the result is subnormal.
    """
    form = FLOATS[element]

    @lanewise(32)
    def operation(a: Array, random: Array) -> Array:
        value = rounding.widen(a, "f32")
        if relu:
            value = np.where(np.isnan(value) | (value > 0), value, 0.0)
        size = np.where(np.isfinite(value), np.abs(value), 0.0)
        exponent = np.maximum(np.frexp(size)[1] - 1, form.least_exponent)
        ulp = exponent - form.fraction
        dither = np.ldexp(random.astype(np.float64) % (1 << random_bits), -random_bits)
        rounded = np.copysign(np.ldexp(np.floor(np.ldexp(size, -ulp) + dither), ulp), value)
        codes = encode(np.where(np.isfinite(value), rounded, value), element, saturate=saturate)
        return codes.astype(DTYPES[max(8, -(-form.bits // 8) * 8)])

    return operation


@cache
def reverse_byte() -> floats.Operation:
    """The low 8 bits in reverse order."""
    table = np.array([int(f"{v:08b}"[::-1], 2) for v in range(256)], np.uint32)

    @lanewise(32)
    def operation(a: Array) -> Array:
        return table[a & np.uint32(0xFF)]

    return operation


@cache
def decode_small(element: str, target: str, relu: bool) -> floats.Operation:
    """The code of an 8-, 6- or 4-bit type as f16 or bf16."""

    @lanewise(8)
    def operation(a: Array) -> Array:
        value = decode(a, element)
        if relu:
            value = np.where(np.isnan(value) | (value > 0), value, 0.0)
        return rounding.narrow(value, target, "rn")

    return operation


def pack_nibbles(low: Value, high: Value) -> Value:
    """Two 4-bit codes in one byte."""
    return low | high << 4


def unpack_nibbles(value: Value) -> tuple[Value, Value]:
    """The inverse of `pack_nibbles`."""
    return value & 15, value >> 4


@cache
def pack_saturated(target_bits: int, target_signed: bool) -> floats.Operation:
    """cvt.pack: a above b, clamped, below the low bits of c."""
    low = -(1 << (target_bits - 1)) if target_signed else 0
    high = (1 << (target_bits - 1)) - 1 if target_signed else (1 << target_bits) - 1
    mask = (1 << target_bits) - 1

    @lanewise(32)
    def operation(a: Array, b: Array, c: Array) -> Array:
        top, bottom = (np.clip(v.view(np.int32), low, high).view(np.uint32) & np.uint32(mask) for v in (a, b))
        kept = c.astype(np.uint64) << np.uint64(2 * target_bits)
        return (kept | top.astype(np.uint64) << np.uint64(target_bits) | bottom).astype(np.uint32)

    return operation


def pack(low: Value, high: Value, half: int) -> Value:
    """Two values of `half` bits in one of twice as many."""
    if low.__class__ is not np.ndarray and high.__class__ is not np.ndarray:
        return low | high << half
    out = np.empty((32, 2), DTYPES[half])
    out[:, 0], out[:, 1] = low, high
    return out.view(DTYPES[2 * half])[:, 0]


def pack128(low: Value, high: Value) -> Value:
    """Two 64-bit values in one 128-bit value."""
    if low.__class__ is not np.ndarray and high.__class__ is not np.ndarray:
        return low | high << 64
    out = np.empty((32, 2), np.uint64)
    out[:, 0], out[:, 1] = low, high
    return out


def pack_many(parts: tuple[Value, ...], part_bits: int) -> Value:
    """Equal parts, lowest first, joined to one value."""
    bits = part_bits
    values = list(parts)
    while len(values) > 1:
        join = pack128 if bits == 64 else partial(pack, half=bits)
        values = [join(values[k], values[k + 1]) for k in range(0, len(values), 2)]
        bits *= 2
    return values[0]


def unpack_many(value: Value, bits: int, part_bits: int) -> tuple[Value, ...]:
    """A value as its equal parts, lowest first."""
    count = bits // part_bits
    if value.__class__ is not np.ndarray:
        mask = (1 << part_bits) - 1
        return tuple((value >> k * part_bits) & mask for k in range(count))
    parts = np.ascontiguousarray(value).view(DTYPES[part_bits]).reshape(32, count)
    return tuple(parts[:, k] for k in range(count))
