"""Which element of a matrix each register of each thread holds, for wgmma and mma.sync.

PTX ISA 9.7.14 and 9.7.15; checked element by element against CuTe's traits. `lane` is the thread in its warp. All maps
are index arrays (registers, 32) for registers that hold one element, (registers, 32, elements) for packed ones.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LANE = np.arange(32, dtype=np.intp)


class Fragment(NamedTuple):
    """Rows (M, N or the matrix's own) and columns of the elements, both shaped alike."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]


@lru_cache(maxsize=128)
def accumulator(n: int) -> Fragment:
    """One warp's 16 x `n` part of D, one element a register: (n / 2, 32)."""
    i = np.arange(n // 2, dtype=np.intp)[:, None]
    rows = _LANE // 4 + 8 * (i >> 1 & 1)
    return Fragment(rows, 8 * (i >> 2) + 2 * (_LANE % 4) + (i & 1))


@lru_cache(maxsize=32)
def operand(rows: int, depth: int, bits: int) -> Fragment:
    """A of `rows` x `depth` (16 rows), or B as `rows` columns x `depth` (8 of them): (registers, 32, elements).

    Registers run over the eight-row halves first and then along K; each holds ``32 / bits`` neighbours along K (one
    element for 32 and 64 bits).
    """
    each = max(1, 32 // bits)
    halves = rows // 8
    count = halves * depth // (4 * each)
    r = np.arange(count, dtype=np.intp)[:, None, None]
    e = np.arange(each, dtype=np.intp)[None, None, :]
    lane = _LANE[None, :, None]
    k = each * (lane % 4) + 4 * each * (r // halves) + e
    return Fragment(*np.broadcast_arrays(lane // 4 + 8 * (r % halves), k))


def gather(matrix: NDArray[Any], where: Fragment) -> NDArray[Any]:
    """The elements of a fragment."""
    found: NDArray[Any] = matrix[where.rows, where.columns]
    return found


def scatter(values: NDArray[Any], where: Fragment, shape: tuple[int, int]) -> NDArray[Any]:
    """A matrix from its fragment."""
    matrix = np.empty(shape, values.dtype)
    matrix[where.rows, where.columns] = values
    return matrix


def unpack(registers: NDArray[Any], bits: int) -> NDArray[Any]:
    """Registers (count, 32) as element codes (count, 32, elements), lowest bits first."""
    if bits >= 32:
        return registers[:, :, None]
    if bits >= 8:
        return np.ascontiguousarray(registers).view(np.dtype(f"u{bits // 8}")).reshape(*registers.shape, -1)
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return (registers[:, :, None] >> shifts & np.uint32((1 << bits) - 1)).astype(np.uint8)


def pack_halves(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """16-bit values of an accumulator fragment (one a word) as registers of two."""
    return words[0::2] & np.uint32(0xFFFF) | words[1::2] << np.uint32(16)


def unpack_halves(registers: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The inverse of `pack_halves`."""
    words = np.empty((2 * len(registers), 32), np.uint32)
    words[0::2] = registers & np.uint32(0xFFFF)
    words[1::2] = registers >> np.uint32(16)
    return words
