"""How the value of a register is represented, and the few operations that depend on it.

A register of a warp (more exactly: of a set of lanes that run together) holds either

- a Python ``int`` or ``bool``: the same value in every running lane, or
- a NumPy array with one element per lane: ``bool`` for predicates, ``uint8/16/32/64`` for the other widths, and
  ``(32, 2) uint64`` for 128 bits.

Floats are kept as their bits. Uniform code, which is most of a GEMM's control flow, so costs Python integers only, and
code that one elected lane runs is uniform by nature. Arrays held by registers are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

WARP = 32
FULL = 0xFFFFFFFF

# Spelled Any: generated code mixes the kinds freely, and NumPy's stubs give Any for most expressions on them.
Value = Any  # int | bool | NDArray
Array = Any  # NDArray of one element per lane

DTYPES: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
LANES = np.arange(WARP, dtype=np.uint32)


@lru_cache(maxsize=4096)
def lanes_of(mask: int) -> tuple[int, ...]:
    """The lanes of a bit mask, ascending."""
    return tuple(i for i in range(WARP) if mask >> i & 1)


@lru_cache(maxsize=4096)
def lane_index(mask: int) -> Array:
    """The lanes of a bit mask as an index array."""
    return np.array(lanes_of(mask), np.int64)


def mask_array(mask: int) -> NDArray[np.bool_]:
    """A bit mask as 32 booleans."""
    return np.unpackbits(np.frombuffer(mask.to_bytes(4, "little"), np.uint8), bitorder="little").view(np.bool_)


def mask_bits(predicate: Value) -> int:
    """A predicate as a bit mask of all 32 lanes."""
    if predicate.__class__ is np.ndarray:
        return int.from_bytes(np.packbits(predicate, bitorder="little").tobytes(), "little")
    return FULL if predicate else 0


def spread(value: Value, bits: int) -> NDArray[Any]:
    """A value as an array of 32 lanes."""
    if value.__class__ is np.ndarray:
        array: NDArray[Any] = value
        return array
    if bits == 128:
        return np.tile(np.array([value & (1 << 64) - 1, value >> 64], np.uint64), (WARP, 1))
    return np.full(WARP, value, DTYPES[bits])


def lane_value(value: Value, lane: int) -> Value:
    """The value of one lane, as a Python int or bool."""
    if value.__class__ is not np.ndarray:
        return value
    if value.ndim == 2:
        return int(value[lane, 0]) | int(value[lane, 1]) << 64
    return value[lane].item()


def select(predicate: Value, new: Value, old: Value, bits: int) -> Value:
    """`new` where the predicate holds, `old` elsewhere."""
    if predicate.__class__ is not np.ndarray:
        return new if predicate else old
    if bits == 128:
        return np.where(predicate[:, None], spread(new, 128), spread(old, 128))
    if new.__class__ is not np.ndarray:
        if old.__class__ is not np.ndarray and new == old:
            return new
        new = DTYPES[bits](new)
    if old.__class__ is not np.ndarray:
        old = DTYPES[bits](old)
    return np.where(predicate, new, old)


def place(old: Value, lane: int, value: Value, bits: int) -> Value:
    """`old` with one lane replaced."""
    array = spread(old, bits).copy()
    if bits == 128:
        array[lane] = (value & (1 << 64) - 1, value >> 64)
    else:
        array[lane] = value
    return array


def merged(parts: list[tuple[int, Value]], bits: int) -> Value:
    """One value of what disjoint sets of lanes, given as masks, hold."""
    first = parts[0][1]
    if all(value.__class__ is not np.ndarray and value == first for _, value in parts):
        return first
    out = np.array(spread(first, bits))
    for mask, value in parts[1:]:
        chosen = lane_index(mask)
        out[chosen] = spread(value, bits)[chosen]
    return out


def uniform(value: Value, mask: int) -> Value | None:
    """The common value of the lanes in `mask`, or None when they differ."""
    if value.__class__ is not np.ndarray:
        return value
    if mask == FULL:
        first = value[0]
        return lane_value(value, 0) if (value == first).all() else None
    lanes = list(lanes_of(mask))
    chosen = value[lanes]
    return lane_value(value, lanes[0]) if (chosen == chosen[0]).all() else None


def lanewise(bits: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function that is written for arrays work on uniform values too.

    Integer arguments become one-element arrays of `bits` bits, and the function must let them broadcast; when no
    argument was an array, neither is the result.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        dtype = DTYPES[bits]

        @wraps(function)
        def wrapper(*arguments: Any) -> Any:
            for argument in arguments:
                if argument.__class__ is np.ndarray:
                    return function(*[a if a.__class__ is np.ndarray else np.array([a], dtype) for a in arguments])
            result = function(*[np.array([a], dtype) for a in arguments])
            return tuple(r[0].item() for r in result) if result.__class__ is tuple else result[0].item()

        return wrapper

    return decorate


def zero_extend(value: Value, source: int, target: int) -> Value:
    """The low `source` bits of a value, in a register of `target` bits."""
    if value.__class__ is not np.ndarray:
        return value & ((1 << min(source, target)) - 1)
    if source < target:
        return value.astype(DTYPES[source]).astype(DTYPES[target])
    return value.astype(DTYPES[target])


def sign_extend(value: Value, source: int, target: int) -> Value:
    """The low `source` bits of a value, sign-extended into a register of `target` bits."""
    if value.__class__ is not np.ndarray:
        if source >= target:
            return value & ((1 << target) - 1)
        sign = 1 << (source - 1)
        return (((value & ((1 << source) - 1)) ^ sign) - sign) & ((1 << target) - 1)
    if source >= target:
        return value.astype(DTYPES[target])
    return value.astype(DTYPES[source]).view(SIGNED[source]).astype(SIGNED[target]).view(DTYPES[target])


def to_signed(value: int, bits: int) -> int:
    """An unsigned Python integer read as two's complement."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value
