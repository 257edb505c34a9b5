"""Swizzle modes of shared-memory tiles.

A tile row of ``span`` bytes is stored so that the 16-byte units of eight consecutive rows fall into different
banks: the hardware XORs three address bits into three others. Source: PTX ISA 5.5.7 and 9.7.16.5 (the same function
serves TMA, tcgen05 and wgmma); that the pattern is anchored to the absolute shared-memory address was measured on
an H200.
"""

from __future__ import annotations

from enum import StrEnum


class Swizzle(StrEnum):
    """A swizzle mode, named by its span: the bytes of one row that the pattern permutes."""

    NONE = "none"
    B32 = "32B"
    B64 = "64B"
    B128 = "128B"

    @property
    def span(self) -> int:
        """Bytes of one tile row; 16, the unit that is never torn apart, without a swizzle."""
        return _SPAN[self]

    @property
    def period(self) -> int:
        """Bytes after which the pattern repeats, and the alignment a tile needs: eight rows of ``span`` bytes."""
        return 8 * self.span

    @property
    def matrix_descriptor_code(self) -> int:
        """Bits 61-63 of the sm_100 shared-memory matrix descriptor (PTX ISA 9.7.16.4.1)."""
        return _CODE[self]

    @property
    def rows(self) -> int:
        """The address bits, from bit 7 on, that are XORed into those from bit 4 on, as a mask."""
        return _ROWS[self]

    def physical(self, address: int) -> int:
        """The shared-memory address at which the byte with the unswizzled address ``address`` is stored."""
        return address ^ (((address >> 7) & self.rows) << 4)


_SPAN = {Swizzle.NONE: 16, Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}
_ROWS = {Swizzle.NONE: 0, Swizzle.B32: 1, Swizzle.B64: 3, Swizzle.B128: 7}
_CODE = {Swizzle.NONE: 0, Swizzle.B128: 2, Swizzle.B64: 4, Swizzle.B32: 6}
