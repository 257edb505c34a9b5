"""The zero-column mask descriptor of tcgen05.mma.ws: which columns of B count as zeros, and at which column B begins.

PTX ISA 9.7.16.4.3. Runs of used and of zero columns alternate. The examples there give the lengths of the two the
other way round than its table of fields does; the examples are followed: use span + 1 columns are used, skip span + 1
are zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blasdx.emulator.errors import DecodeError

ALL = ()
"""No mask: every column is used."""


@dataclass(frozen=True)
class ZeroColumns:
    """A decoded descriptor.

    Attributes
    ----------
    shift : int
        Column of B that takes part as column 0.
    zeros : tuple[bool, ...]
        For each column of D whether B counts as zero there; empty when it never does.
    """

    shift: int = 0
    zeros: tuple[bool, ...] = ALL

    def apply(self, codes: NDArray[Any], columns: int) -> NDArray[Any]:
        """The (columns, K) codes that take part, of codes (at least shift + columns, K) in shared memory."""
        kept = codes[self.shift : self.shift + columns]
        if any(self.zeros):
            kept = kept.copy()
            kept[np.array(self.zeros)] = 0
        return kept


def decode_zero_columns(bits: int, m: int, n: int, most: int) -> ZeroColumns:
    """Decode the 64 bits for an `m` x `n` product whose instruction descriptor allows shifts of at most `most`.

    Raises
    ------
    DecodeError
        For reserved bits, a shift beyond the limit, or a start count beyond the first run, for which the instruction
        set gives no mask.
    """
    if not bits:
        return ZeroColumns()

    def refuse(field: str, got: int, need: str) -> DecodeError:
        return DecodeError(f"zero-column mask descriptor {bits:#018x}: {field} is {got}, needs {need}")

    if bits >> 36 & 7 or bits >> 62:
        raise refuse("a reserved field (bits 36-38, 62-63)", bits >> 36 & 7 or bits >> 62, "0")
    shift = bits >> 56 & 63
    if shift > most:
        raise refuse("column shift", shift, f"at most {most} (bits 30-31 of the instruction descriptor)")
    if not bits >> 39 & 1:
        return ZeroColumns(shift)
    skipped, used = (bits >> 40 & 255) + 1, (bits >> 48 & 255) + 1
    parts = 128 // m  # M = 128, 64 and 32 have one, two and four masks side by side
    zeros: list[bool] = []
    for part in range(parts):
        start, first = bits >> 8 * part & 255, bits >> 32 + part & 1
        run = skipped if first else used
        if start >= run:
            raise refuse(f"start count {part}", start, f"less than the {run} columns of the first span")
        lengths = (skipped, used) if first else (used, skipped)
        pattern = [bool(first)] * lengths[0] + [not first] * lengths[1]
        zeros += [pattern[(start + column) % len(pattern)] for column in range(n // parts)]
    return ZeroColumns(shift, tuple(zeros))
