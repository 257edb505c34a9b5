"""Bit fields, counts, permutations and shifts of pairs on lane values (PTX ISA 9.7.1.16 and on, 9.7.8).

Factories like those of :mod:`~blasdx.emulator.integers`.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from blasdx.emulator.integers import Operation
from blasdx.emulator.lanes import DTYPES, Array, Value, lanewise


@cache
def bit_field_extract(bits: int, signed: bool) -> Operation:
    """bfe: position and length are the low bytes of their operands."""

    @lanewise(32)
    def operation(a: Array, position: Array, length: Array) -> Array:
        kind = DTYPES[bits]
        a = a.astype(kind)
        pos, count = (position & 0xFF).astype(np.int64), (length & 0xFF).astype(np.int64)
        shifted = np.where(pos < bits, a >> np.minimum(pos, bits - 1).astype(kind), 0).astype(kind)
        keep = np.where(
            count >= bits, kind((1 << bits) - 1), (kind(1) << np.minimum(count, bits - 1).astype(kind)) - kind(1)
        ).astype(kind)
        value = shifted & keep
        if signed:
            top = np.minimum(pos + count - 1, bits - 1)
            sign = (a >> np.maximum(top, 0).astype(kind)) & kind(1)
            reach = np.minimum(count, bits - pos)  # bits that really come from a; the rest is sign
            low = np.where(
                reach >= bits, kind((1 << bits) - 1), (kind(1) << np.clip(reach, 0, bits - 1).astype(kind)) - kind(1)
            ).astype(kind)
            value = np.where((count > 0) & (sign == 1), (value & low) | ~low, value & low).astype(kind)
        return value

    if bits == 32:
        return operation

    @lanewise(64)
    def wide(a: Array, position: Array, length: Array) -> Array:
        result: Array = operation.__wrapped__(a, position, length)  # type: ignore[attr-defined]
        return result

    return wide


@cache
def bit_field_insert(bits: int) -> Operation:
    """bfi: the low bits of a into b."""

    @lanewise(bits)
    def operation(a: Array, b: Array, position: Array, length: Array) -> Array:
        kind = DTYPES[bits]
        pos, count = (position & 0xFF).astype(np.int64), (length & 0xFF).astype(np.int64)
        ones = np.where(
            count >= bits, kind((1 << bits) - 1), (kind(1) << np.minimum(count, bits - 1).astype(kind)) - kind(1)
        ).astype(kind)
        shift = np.minimum(pos, bits - 1).astype(kind)
        field = np.where(pos < bits, ones << shift, 0).astype(kind)
        return (b & ~field) | ((a << shift) & field)

    return operation


@cache
def find_leading(bits: int, signed: bool, as_shift: bool) -> Operation:
    """bfind: position of the most significant bit that is not a sign bit; all ones when there is none."""

    @lanewise(bits)
    def operation(a: Array) -> Array:
        if signed:
            a = np.where(a >> (bits - 1), ~a, a).astype(DTYPES[bits])
        position = _bit_length(a, bits).astype(np.int64) - 1
        if as_shift:
            position = np.where(position >= 0, bits - 1 - position, -1)
        return position.astype(np.int32).view(np.uint32)

    return operation


def _bit_length(a: Array, bits: int) -> Array:
    length = np.zeros(a.shape, np.uint32)
    rest = a.copy()
    step = bits // 2
    while step:
        high = rest >> step
        big = high != 0
        length += np.where(big, step, 0).astype(np.uint32)
        rest = np.where(big, high, rest)
        step //= 2
    return length + (rest != 0)


@cache
def count_leading_zeros(bits: int) -> Operation:
    """clz."""

    @lanewise(bits)
    def operation(a: Array) -> Array:
        return (bits - _bit_length(a, bits)).astype(np.uint32)

    return operation


@cache
def population_count(bits: int) -> Operation:
    """popc."""

    @lanewise(bits)
    def operation(a: Array) -> Array:
        return np.bitwise_count(a).astype(np.uint32)

    return operation


@cache
def reverse_bits(bits: int) -> Operation:
    """brev."""

    @lanewise(bits)
    def operation(a: Array) -> Array:
        data = np.ascontiguousarray(a).view(np.uint8).reshape(-1, bits // 8)
        flipped = np.packbits(np.unpackbits(data, axis=1, bitorder="little")[:, ::-1], axis=1, bitorder="little")
        return np.ascontiguousarray(flipped).view(DTYPES[bits])[:, 0]

    return operation


@cache
def find_nth_set() -> Operation:
    """fns: the n-th set bit from a base position on, all ones when there is none."""

    @lanewise(32)
    def operation(mask: Array, base: Array, offset: Array) -> Array:
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        result = np.empty(mask.shape, np.uint32)
        for i in range(len(mask)):
            m, b, n = int(mask[i]), int(base[i]), int(offset[i].astype(np.int32))
            positions = [p for p in range(32) if m >> p & 1]
            if n == 0:
                result[i] = b if m >> b & 1 else 0xFFFFFFFF
                continue
            found = [p for p in positions if p >= b] if n > 0 else [p for p in reversed(positions) if p <= b]
            result[i] = found[abs(n) - 1] if len(found) >= abs(n) else 0xFFFFFFFF
        return result

    return operation


@cache
def permute(mode: str) -> Operation:
    """prmt.b32: bytes of {b, a} picked by the nibbles of the selector (default mode), or one of the fixed patterns."""
    tables = {
        "f4e": lambda s: [s, s + 1, s + 2, s + 3],
        "b4e": lambda s: [s, (s - 1) & 7, (s - 2) & 7, (s - 3) & 7],
        "rc8": lambda s: [s, s, s, s],
        "ecl": lambda s: [max(s, i) for i in range(4)],
        "ecr": lambda s: [min(s, i) for i in range(4)],
        "rc16": lambda s: [2 * (s & 1), 2 * (s & 1) + 1] * 2,
    }
    table = np.array([[v & 7 for v in tables[mode](s)] for s in range(4)], np.int64) if mode else None

    @lanewise(32)
    def operation(a: Array, b: Array, c: Array) -> Array:
        a, b, c = np.broadcast_arrays(a, b, c)
        source = np.concatenate([_bytes(a), _bytes(b)], axis=1)
        if table is not None:
            pick, replicate = table[(c & 3).astype(np.int64)], np.zeros((len(c), 4), np.bool_)
        else:
            nibbles = (c[:, None] >> np.array([0, 4, 8, 12], np.uint32)) & 0xF
            pick, replicate = (nibbles & 7).astype(np.int64), (nibbles & 8) != 0
        out = np.take_along_axis(source, pick, axis=1)
        out = np.where(replicate, np.where(out & 0x80, 0xFF, 0).astype(np.uint8), out)
        return np.ascontiguousarray(out).view(np.uint32)[:, 0]

    return operation


def _bytes(a: Array) -> Array:
    return np.ascontiguousarray(a).view(np.uint8).reshape(-1, 4)


@cache
def logic3(table: int) -> Operation:
    """lop3: bit i of the table is the result for the input bits (a, b, c) = binary i."""

    def operation(a: Value, b: Value, c: Value) -> Value:
        result: Value = 0
        for i in range(8):
            if table >> i & 1:
                x = a if i & 4 else a ^ 0xFFFFFFFF
                y = b if i & 2 else b ^ 0xFFFFFFFF
                z = c if i & 1 else c ^ 0xFFFFFFFF
                result = result | (x & y & z)
        return result

    return operation


@cache
def funnel_shift(left: bool, clamp: bool) -> Operation:
    """shf: the upper or lower half of a shifted pair."""

    @lanewise(32)
    def operation(a: Array, b: Array, c: Array) -> Array:
        n = (np.minimum(c, 32) if clamp else c & 31).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        if left:
            return ((both << n) >> np.uint64(32)).astype(np.uint32)
        return (both >> n).astype(np.uint32)

    return operation


@cache
def bit_mask(clamp: bool) -> Operation:
    """bmsk: `length` ones from a position on."""

    @lanewise(32)
    def operation(position: Array, length: Array) -> Array:
        pos = position.astype(np.uint64) if clamp else (position & 31).astype(np.uint64)
        count = length.astype(np.uint64) if clamp else (length & 31).astype(np.uint64)
        ones = np.where(count >= 32, np.uint64(0xFFFFFFFF), (np.uint64(1) << np.minimum(count, 32)) - np.uint64(1))
        return np.where(pos >= 32, 0, (ones << np.minimum(pos, 32)) & np.uint64(0xFFFFFFFF)).astype(np.uint32)

    return operation


@cache
def extend_from(signed: bool, clamp: bool) -> Operation:
    """szext: keep the low n bits and extend."""

    @lanewise(32)
    def operation(a: Array, width: Array) -> Array:
        n = np.minimum(width, 32) if clamp else width & 31
        n64 = n.astype(np.uint64)
        ones = (np.uint64(1) << n64) - np.uint64(1)
        value = a.astype(np.uint64) & ones
        if signed:
            negative = (n > 0) & ((value >> np.maximum(n64, 1) - np.uint64(1)) & np.uint64(1) == 1)
            value = np.where(negative, value | ~ones, value)
        return value.astype(np.uint32)

    return operation
