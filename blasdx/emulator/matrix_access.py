"""ldmatrix, stmatrix and movmatrix (PTX ISA 9.7.14.5): a warp's matrices of 16-byte rows, between memory and registers.

Lanes ``8 i .. 8 i + 7`` (16 of them for m16n16) point at the rows of matrix i. Maps of the 8-bit forms: CuTe's traits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blasdx.emulator.access import generic, note_shared
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import FULL, Value, spread
from blasdx.emulator.matrix import unpack_dense
from blasdx.emulator.memory import Region
from blasdx.emulator.warp import Path

_LANE = np.arange(32)
_GROUP, _QUAD = _LANE // 4, _LANE % 4


@dataclass(frozen=True)
class Form:
    """Shape, number of matrices, transposition, and the bits of an element in memory."""

    shape: str
    count: int
    transpose: bool
    bits: int

    @property
    def rows(self) -> int:
        """Rows in memory of one matrix."""
        return 16 if self.shape == "m16n16" else 8

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return self.count * (2 if self.shape == "m16n16" else 1)


def load(w: Path, form: Form, address: Value, is_generic: bool, mask: int, line: int) -> list[Value]:
    """ldmatrix."""
    region, units = _rows(w, form, address, is_generic, mask, line, write=False)
    data = region.vectors(8, 2)[units].view(np.uint8).reshape(form.count, form.rows, 16)
    if form.bits == 16:
        halves = data.view(np.uint16)
        if form.transpose:
            halves = halves.transpose(0, 2, 1)
        return [np.ascontiguousarray(each).reshape(32, 2).view(np.uint32)[:, 0] for each in halves]
    if form.bits < 8:
        data = unpack_dense(data[:, :, : 2 * form.bits], form.bits)
    if form.shape == "m8n16":
        return [np.ascontiguousarray(each).reshape(32, 4).view(np.uint32)[:, 0] for each in data]
    registers = []
    for each in data:
        for r in range(2):
            parts = [each[4 * _QUAD + 2 * r + (e & 1), _GROUP + 8 * (e >> 1)] for e in range(4)]
            registers.append(np.stack(parts, axis=1).view(np.uint32)[:, 0])
    return registers


def store(w: Path, form: Form, address: Value, is_generic: bool, values: Sequence[Value], mask: int, line: int) -> None:
    """stmatrix."""
    w.machine.events += 1
    region, units = _rows(w, form, address, is_generic, mask, line, write=True)
    words = [np.ascontiguousarray(spread(v, 32)) for v in values]
    if form.bits == 16:
        data = np.stack([word.view(np.uint16).reshape(8, 8) for word in words])
        if form.transpose:
            data = data.transpose(0, 2, 1)
    else:
        data = np.empty((form.count, 8, 16), np.uint8)
        for matrix, word in zip(data, words, strict=True):
            parts = word.view(np.uint8).reshape(32, 4)
            for e in range(4):
                matrix[2 * _QUAD + (e & 1), _GROUP + 8 * (e >> 1)] = parts[:, e]
    region.vectors(8, 2)[units] = np.ascontiguousarray(data).view(np.uint8).reshape(-1, 16).view(np.uint64)


def transpose(w: Path, value: Value, mask: int) -> Value:
    """movmatrix.trans: an 8 x 8 matrix of 16-bit elements, from row fragments to column fragments."""
    _whole(mask)
    del w
    matrix = np.ascontiguousarray(spread(value, 32)).view(np.uint16).reshape(8, 8)
    return np.ascontiguousarray(matrix.T).reshape(32, 2).view(np.uint32)[:, 0]


def _whole(mask: int) -> None:
    if mask != FULL:
        raise EmulationError("ldmatrix, stmatrix and movmatrix need all 32 lanes")


def _rows(
    w: Path, form: Form, address: Value, is_generic: bool, mask: int, line: int, *, write: bool
) -> tuple[Region, Any]:
    """The memory, and the 16-byte units of all rows in order."""
    _whole(mask)
    if is_generic:
        space, address = generic(address, mask)
        if space != "shared":
            raise EmulationError(f"ldmatrix and stmatrix work on shared memory, not on {space} memory")
    count = form.rows * form.count
    rows = spread(address, 64 if is_generic else 32).astype(np.uint32)
    note_shared(w, rows, (1 << count) - 1, 16, write, line)
    rows = rows[:count].astype(np.int64)
    region = w.cta.region(int(rows[0]))
    for row in rows.tolist():
        region.check(row, 16)
    return region, (rows - region.origin) >> 4
