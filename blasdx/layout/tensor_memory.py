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
    """An M x N accumulator in tensor memory: ``blocks`` MMAs of ``mma_m`` rows side by side, N columns each.

    An element takes one 32-bit column of its lane whatever its type is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    m: int
    n: int

    @property
    def mma_m(self) -> int:
        """Rows of one MMA: 128 where M is a multiple of it, otherwise 64."""
        return 128 if self.m % 128 == 0 else 64

    @property
    def blocks(self) -> int:
        """MMAs along M."""
        return self.m // self.mma_m

    @property
    def columns(self) -> int:
        """Columns of one accumulator stage."""
        return self.blocks * self.n

    @property
    def stages(self) -> int:
        """Accumulators that fit at once; with two or more, one tile's epilogue overlaps the next tile's MMAs."""
        return min(COLUMNS // self.columns, MAX_ACCUMULATOR_STAGES)

    @property
    def chunk(self) -> int:
        """Columns the epilogue reads at a time: the widest load that divides N, so that none straddles two blocks."""
        return next(width for width in (32, 16, 8) if self.n % width == 0)

    @property
    def run(self) -> int:
        """Consecutive columns a thread gets of each chunk.

        An MMA of 64 rows fills 16 lanes of each quarter of 32, so two threads share a row.
        """
        return self.chunk if self.mma_m == 128 else self.chunk // 2

    @property
    def elements_per_thread(self) -> int:
        """Elements that one of the 128 epilogue threads owns."""
        return self.m * self.n // 128

    @property
    def load_shape(self) -> str:
        """The ``tcgen05.ld`` shape that hands every thread ``run`` columns of one row."""
        return "32x32b" if self.mma_m == 128 else "16x32bx2"

    @property
    def place(self) -> str:
        """Where the accumulator is."""
        return "tensor memory"

    @property
    def text(self) -> str:
        """The tile in one line."""
        return f"{self.stages} accumulator stage{'s' * (self.stages > 1)} of {self.columns} columns"
