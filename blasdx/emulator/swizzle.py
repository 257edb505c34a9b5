"""Shared-memory swizzles, as functions of absolute address bits.

The pattern is anchored to the shared-memory address itself, not to the start of a tile (PTX ISA 9.7.9, checked on an
H200 with destinations that start in the middle of a pattern), so every user adds its offset first and swizzles last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blasdx.emulator.errors import DecodeError


class Swizzle(NamedTuple):
    """One XOR pattern: ``address ^ (((address >> 7) & rows) << shift)``."""

    name: str
    span: int  # bytes of one row of the pattern
    rows: int  # mask of the 128-byte line number that enters the XOR
    shift: int  # log2 of the bytes that move together

    def __call__(self, address: NDArray[np.int64], base: int = 0) -> NDArray[np.int64]:
        """Physical addresses of logical `address` (bytes, any shape).

        `base` is the number of the 128-byte line at which the pattern starts, a matrix descriptor's base offset.
        """
        if not self.rows:
            return address
        return address ^ ((((address >> 7) - base) & self.rows) << self.shift)

    @property
    def period(self) -> int:
        """Bytes after which the pattern repeats (16 without swizzle)."""
        return 128 * (self.rows + 1) if self.rows else 16


SWIZZLES = {
    pattern.name: pattern
    for pattern in (
        Swizzle("none", 16, 0, 0),
        Swizzle("32B", 32, 1, 4),
        Swizzle("64B", 64, 3, 4),
        Swizzle("128B", 128, 7, 4),
        Swizzle("128B_ATOM_32B", 128, 3, 5),
        Swizzle("128B_ATOM_64B", 128, 1, 6),
    )
}


def pattern(name: str) -> Swizzle:
    """The pattern called `name`.

    Raises
    ------
    DecodeError
        For a pattern whose bytes are not known well enough to execute it.
    """
    try:
        return SWIZZLES[name]
    except KeyError:
        raise DecodeError(
            f"swizzle {name!r} cannot be executed: only {', '.join(SWIZZLES)} have a documented byte pattern"
        ) from None
