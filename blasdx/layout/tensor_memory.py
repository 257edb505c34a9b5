"""Tensor memory: how an accumulator tile is cut into MMA blocks, and how its columns are read back.

Sources: PTX ISA 9.7.16.1 (128 lanes x 512 columns of 32 bit), 9.7.16.10.5 (lane layouts D for M = 128 and F for
M = 64), 9.7.16.8 (load shapes).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

COLUMNS = 512
"""32-bit columns of tensor memory an SM has; the kernel takes them all."""

MAX_ACCUMULATOR_STAGES = 16
"""The most accumulator stages a pipeline uses (the API card's limit)."""


class AccumulatorTile(BaseModel):
    """An M x N accumulator in tensor memory: ``blocks`` MMAs side by side.

    Each has ``block_rows`` of this CTA's rows. An element takes one 32-bit column of its lane whatever its type is. A
    ``pair`` of CTAs multiplies twice the rows with one MMA, and each keeps its half.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    m: int
    n: int
    pair: bool = False

    @property
    def block_rows(self) -> int:
        """Rows of one MMA in this CTA: 128 where M is a multiple of it, otherwise 64."""
        return 128 if self.m % 128 == 0 else 64

    @property
    def mma_m(self) -> int:
        """Rows of one MMA, those of the other CTA of a pair included."""
        return self.block_rows * (2 if self.pair else 1)

    @property
    def lanes(self) -> str:
        """The lane layout's letter in the PTX ISA (9.7.16.10.5).

        D and A (of a pair): 128 rows, row r in lane r. F: 64 rows, 16 in each quarter of 32 lanes. B (of a pair): 64
        rows in the lower lanes, the same again with the right half of the columns in the upper ones.
        """
        if self.block_rows == 128:
            return "A" if self.pair else "D"
        return "B" if self.pair else "F"

    @property
    def block_columns(self) -> int:
        """Tensor-memory columns of one block."""
        return self.n // 2 if self.lanes == "B" else self.n

    @property
    def blocks(self) -> int:
        """MMAs along M."""
        return self.m // self.block_rows

    @property
    def columns(self) -> int:
        """Columns of one accumulator stage."""
        return self.blocks * self.block_columns

    @property
    def stages(self) -> int:
        """Accumulators that fit at once; with two or more, one tile's epilogue overlaps the next tile's MMAs."""
        return min(COLUMNS // self.columns, MAX_ACCUMULATOR_STAGES)

    @property
    def chunk(self) -> int:
        """Columns the epilogue reads at a time: the widest load that divides a block and so straddles no two."""
        return next(width for width in (32, 16, 8) if self.block_columns % width == 0)

    @property
    def run(self) -> int:
        """Consecutive columns a thread gets of each chunk.

        In layout F two threads share a row.
        """
        return self.chunk // 2 if self.lanes == "F" else self.chunk

    @property
    def warp_rows(self) -> int:
        """Rows of a block that one of the four epilogue warps reads."""
        return 16 if self.lanes == "F" else 32

    @property
    def elements_per_thread(self) -> int:
        """Elements that one of the 128 epilogue threads owns."""
        return self.m * self.n // 128

    @property
    def load_shape(self) -> str:
        """The ``tcgen05.ld`` shape that hands every thread ``run`` columns of one row."""
        return "16x32bx2" if self.lanes == "F" else "32x32b"

    @property
    def place(self) -> str:
        """Where the accumulator is."""
        return "tensor memory"

    @property
    def text(self) -> str:
        """The tile in one line."""
        return f"{self.stages} accumulator stage{'s' * (self.stages > 1)} of {self.columns} columns"
