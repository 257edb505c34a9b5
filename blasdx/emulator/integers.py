"""Integer and logic operations on lane values, as the PTX ISA defines them (9.7.1, 9.7.2, 9.7.8).

Functions come out of factories that take the static part of the instruction (width, signedness, mode); the translator
binds one such function to each instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from blasdx.emulator.lanes import DTYPES, SIGNED, Array, Value, lanewise

Operation = Callable[..., Value]


def _typed(value: Array, bits: int, signed: bool) -> Array:
    return value.view(SIGNED[bits]) if signed else value


@cache
def shift_left(bits: int) -> Operation:
    """shl: amounts from the width on give 0."""
    mask = (1 << bits) - 1

    @lanewise(bits)
    def vector(a: Array, b: Array) -> Array:
        amount = np.minimum(b, bits - 1).astype(a.dtype)
        return np.where(b < bits, a << amount, 0).astype(a.dtype)

    def operation(a: Value, b: Value) -> Value:
        if b.__class__ is int:
            if b >= bits:
                return 0
            return (a << b) & mask if a.__class__ is int else a << b
        return vector(a, b)

    return operation


@cache
def shift_right(bits: int, signed: bool) -> Operation:
    """shr: amounts from the width on give 0, or the sign."""

    @lanewise(bits)
    def vector(a: Array, b: Array) -> Array:
        amount = np.minimum(b, bits - 1).astype(a.dtype)
        if signed:
            return (a.view(SIGNED[bits]) >> amount.view(SIGNED[bits])).view(a.dtype)
        return np.where(b < bits, a >> amount, 0).astype(a.dtype)

    def operation(a: Value, b: Value) -> Value:
        if b.__class__ is int:
            amount = min(b, bits - 1 if signed else bits)
            if a.__class__ is int:
                if signed and a >> (bits - 1):
                    return ((a - (1 << bits)) >> amount) & ((1 << bits) - 1)
                return a >> amount
            if signed:
                return (a.view(SIGNED[bits]) >> amount).view(a.dtype)
            return a >> amount if amount < bits else a & 0
        return vector(a, b)

    return operation


@cache
def multiply_wide(bits: int, signed: bool) -> Operation:
    """mul.wide: twice as many bits."""
    wide = DTYPES[2 * bits]

    @lanewise(bits)
    def vector(a: Array, b: Array) -> Array:
        if signed:
            x = a.view(SIGNED[bits]).astype(SIGNED[2 * bits])
            return (x * b.view(SIGNED[bits]).astype(SIGNED[2 * bits])).view(wide)
        return a.astype(wide) * b.astype(wide)

    def operation(a: Value, b: Value) -> Value:
        if a.__class__ is int and b.__class__ is int:
            if signed:
                a, b = a - ((a >> (bits - 1)) << bits), b - ((b >> (bits - 1)) << bits)
            return (a * b) & ((1 << 2 * bits) - 1)
        return vector(a, b)

    return operation


@cache
def multiply_high(bits: int, signed: bool) -> Operation:
    """mul.hi: the upper half of the product."""
    if bits < 64:
        wide = multiply_wide(bits, signed)

        def narrow(a: Value, b: Value) -> Value:
            product = wide(a, b) >> bits
            return product if product.__class__ is int else product.astype(DTYPES[bits])

        return narrow

    @lanewise(64)
    def vector(a: Array, b: Array) -> Array:
        half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
        a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
        middle = (a0 * b0 >> half) + (a1 * b0 & low) + (a0 * b1 & low)
        high = a1 * b1 + (a1 * b0 >> half) + (a0 * b1 >> half) + (middle >> half)
        if signed:
            high = high - np.where(a >> np.uint64(63), b, 0) - np.where(b >> np.uint64(63), a, 0)
        return high.astype(np.uint64)

    return vector


@cache
def divide(bits: int, signed: bool) -> Operation:
    """div: toward zero; a division by zero gives all ones."""

    @lanewise(bits)
    def operation(a: Array, b: Array) -> Array:
        zero = b == 0
        if not signed:
            return np.where(zero, DTYPES[bits](-1 & ((1 << bits) - 1)), a // np.where(zero, DTYPES[bits](1), b))
        x, y, q = _magnitudes(a, b, zero)
        negative = (x < 0) ^ (y < 0)
        return np.where(zero, DTYPES[bits]((1 << bits) - 1), np.where(negative, -q, q).astype(DTYPES[bits]))

    def _magnitudes(a: Array, b: Array, zero: Array) -> tuple[Array, Array, Array]:
        x, y = a.view(SIGNED[bits]), b.view(SIGNED[bits])
        size_a = np.where(x < 0, -a, a).astype(DTYPES[bits])
        size_b = np.where(zero, 1, np.where(y < 0, -b, b)).astype(DTYPES[bits])
        return x, y, size_a // size_b

    return operation


@cache
def remainder(bits: int, signed: bool) -> Operation:
    """rem: with the sign of the dividend."""
    quotient = divide(bits, signed)
    mask = (1 << bits) - 1

    def operation(a: Value, b: Value) -> Value:
        result = a - quotient(a, b) * b
        return result & mask if result.__class__ is int else result

    return operation


@cache
def extreme(bits: int, signed: bool, largest: bool) -> Operation:
    """min and max."""
    sign = 1 << (bits - 1) if signed else 0
    array = np.maximum if largest else np.minimum
    scalar = max if largest else min

    def operation(a: Value, b: Value) -> Value:
        if a.__class__ is int and b.__class__ is int:
            return scalar(a ^ sign, b ^ sign) ^ sign
        return array(a ^ sign, b ^ sign) ^ sign

    return operation


@cache
def absolute(bits: int) -> Operation:
    """abs."""

    @lanewise(bits)
    def operation(a: Array) -> Array:
        return np.where(a >> (bits - 1), -a, a).astype(DTYPES[bits])

    return operation


@cache
def sum_of_absolute_differences(bits: int, signed: bool) -> Operation:
    """sad: c + |a - b|."""

    @lanewise(bits)
    def operation(a: Array, b: Array, c: Array) -> Array:
        less = _typed(a, bits, signed) < _typed(b, bits, signed)
        return (np.where(less, b - a, a - b) + c).astype(DTYPES[bits])

    return operation


@cache
def saturating(bits: int, subtract: bool) -> Operation:
    """add.sat.s32 / sub.sat.s32."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    @lanewise(bits)
    def operation(a: Array, b: Array) -> Array:
        x, y = a.view(SIGNED[bits]).astype(np.int64), b.view(SIGNED[bits]).astype(np.int64)
        return np.clip(x - y if subtract else x + y, low, high).astype(SIGNED[bits]).view(DTYPES[bits])

    return operation


@cache
def dot4(a_signed: bool, b_signed: bool) -> Operation:
    """dp4a."""

    @lanewise(32)
    def operation(a: Array, b: Array, c: Array) -> Array:
        x, y = (_elements(v, s, np.uint8, np.int8) for v, s in ((a, a_signed), (b, b_signed)))
        return (c.astype(np.int64) + (x * y).sum(axis=1)).astype(np.uint32)

    return operation


@cache
def dot2(a_signed: bool, b_signed: bool, high: bool) -> Operation:
    """dp2a."""

    @lanewise(32)
    def operation(a: Array, b: Array, c: Array) -> Array:
        x = _elements(a, a_signed, np.uint16, np.int16)
        y = _elements(b, b_signed, np.uint8, np.int8)[:, 2 if high else 0 : 4 if high else 2]
        return (c.astype(np.int64) + (x * y).sum(axis=1)).astype(np.uint32)

    return operation


def _elements(value: Array, signed: bool, unsigned_type: Any, signed_type: Any) -> Array:
    kind = signed_type if signed else unsigned_type
    return np.ascontiguousarray(value).view(kind).reshape(len(value), -1).astype(np.int64)


@cache
def packed16(name: str, signed: bool) -> Operation:
    """add / min / max on two 16-bit halves."""
    kind = np.int16 if signed else np.uint16
    function = {"add": np.add, "min": np.minimum, "max": np.maximum}[name]

    @lanewise(32)
    def operation(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        x = function(np.ascontiguousarray(a).view(kind), np.ascontiguousarray(b).view(kind))
        return np.ascontiguousarray(x.astype(kind)).view(np.uint32)

    return operation


@cache
def carry(bits: int, subtract: bool) -> Operation:
    """(result, carry out) of an addition or subtraction with carry in."""

    @lanewise(bits)
    def vector(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
        a, b, c = np.broadcast_arrays(a, b, c.astype(DTYPES[bits]))
        if subtract:
            result = a - b - c
            out = (a < b) | ((a == b) & (c != 0))
        else:
            result = a + b + c
            out = (result < a) | ((c != 0) & (result == a))
        return result.astype(DTYPES[bits]), out.astype(DTYPES[bits])

    return vector
