"""Accumulators in registers: how a tile is shared out among warpgroups and cut into wgmma instructions.

Source: PTX ISA 9.7.15.2 (shapes) and 9.7.15.5.1 (fragments): one instruction multiplies 64 rows by N columns, and its
128 threads hold N / 2 elements each.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from blasdx.elements import Element

ROWS = 64
"""Rows of one instruction."""

MAX_COLUMNS = 256
"""Columns of one instruction at most."""

_INTEGER_COLUMNS = (8, 16, 24, *range(32, MAX_COLUMNS + 1, 16))
"""Columns that integer instructions come in; all other types take every multiple of 8."""


class WarpgroupTile(BaseModel):
    """An M x N accumulator shared out among ``groups_m`` x ``groups_n`` warpgroups."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    m: int
    n: int
    groups_m: int
    groups_n: int
    element: Element

    @property
    def groups(self) -> int:
        """Warpgroups."""
        return self.groups_m * self.groups_n

    @property
    def rows(self) -> int:
        """Rows of one warpgroup."""
        return self.m // self.groups_m

    @property
    def columns(self) -> int:
        """Columns of one warpgroup."""
        return self.n // self.groups_n

    @property
    def mma_n(self) -> int:
        """Columns of one instruction: the most that divide those of the warpgroup."""
        legal = range(8, MAX_COLUMNS + 1, 8) if self.element.is_float else _INTEGER_COLUMNS
        return max(n for n in legal if self.columns % n == 0)

    @property
    def row_blocks(self) -> int:
        """Instructions along M."""
        return self.rows // ROWS

    @property
    def column_blocks(self) -> int:
        """Instructions along N."""
        return self.columns // self.mma_n

    @property
    def registers(self) -> int:
        """Registers a thread holds of one instruction's accumulator: one an element, or one for two of 16 bits."""
        return self.mma_n // 2 * self.element.bits // 32

    @property
    def elements_per_thread(self) -> int:
        """Elements that one thread of a warpgroup owns."""
        return self.rows * self.columns // 128

    @property
    def stages(self) -> int:
        """Accumulators there are room for at once."""
        return 1

    @property
    def place(self) -> str:
        """Where the accumulator is."""
        return "registers"

    @property
    def text(self) -> str:
        """The tile in one line."""
        held = self.row_blocks * self.column_blocks * self.registers
        return (
            f"{self.rows} x {self.columns} a warpgroup of {self.groups_m} x {self.groups_n}, {held} registers a thread"
        )
