"""C on its way out: chunks in shared memory that TMA stores."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict

from blasdx.elements import Element
from blasdx.layout.operand import WIDEST_FIRST
from blasdx.layout.swizzle import Swizzle
from blasdx.layout.tensor_map import TensorMapSpec

MAX_COLUMNS = 64
"""Of a chunk. With 128, which 8-bit elements would allow, a thread holds 32 elements of each operand and spills."""

MAX_BYTES = 8192
"""Of a chunk: 64 rows of the widest swizzle's span."""


class StagingTile(BaseModel):
    """A chunk of ``rows`` x ``columns`` elements of C, which lie in the order of C's memory.

    Its lines are rows, or columns of a column-major C. Each is one swizzled span, a part of the narrowest one, or
    several spans, which then are boxes of their own, one behind the other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    element: Element
    rows: int
    columns: int
    row_major: bool
    swizzle: Swizzle

    @classmethod
    def of(cls, element: Element, *, rows: int, divides: int, row_major: bool) -> Self:
        """The widest chunk whose columns divide ``divides`` columns, which are a multiple of 8."""
        item = element.itemsize
        if row_major:
            whole = [mode for mode in WIDEST_FIRST if divides * item % mode.span == 0]
            swizzle = next((mode for mode in whole if mode.span <= MAX_COLUMNS * item), Swizzle.NONE)
            columns = swizzle.span // item if whole else 8
        else:
            swizzle = next(mode for mode in WIDEST_FIRST if rows * item % mode.span == 0)
            most = min(MAX_COLUMNS, MAX_BYTES // (rows * item))
            columns = max(columns for columns in range(8, most + 1, 8) if divides % columns == 0)
        return cls(element=element, rows=rows, columns=columns, row_major=row_major, swizzle=swizzle)

    @property
    def bytes(self) -> int:
        """Bytes of the chunk."""
        return self.rows * self.columns * self.element.itemsize

    @property
    def line(self) -> int:
        """Elements of a line."""
        return self.columns if self.row_major else self.rows

    @property
    def span(self) -> int:
        """Elements of a line in one box."""
        return min(self.line, self.swizzle.span // self.element.itemsize)

    @property
    def boxes(self) -> int:
        """Spans of a line, which TMA stores one by one."""
        return self.line // self.span

    @property
    def unit(self) -> int:
        """Elements of a line that a thread copies at once: 16 bytes, or a whole line where that is less."""
        return min(self.line, Swizzle.NONE.span // self.element.itemsize)

    @property
    def is_bulk_storable(self) -> bool:
        """Whether a line is wide enough for TMA, whose boxes have lines of whole 16 bytes (CUDA driver API)."""
        return self.line * self.element.itemsize % Swizzle.NONE.span == 0

    def tensor_map(
        self, m: int, n: int, leading_dimension: int, *, batches: int = 1, batch_stride: int = 0
    ) -> TensorMapSpec:
        """The tensor map of ``batches`` whole m x n C.

        Lines are ``leading_dimension`` elements apart, batches ``batch_stride``, which a single one has no use for.
        """
        width, lines = (n, m) if self.row_major else (m, n)
        strides = (leading_dimension, batch_stride or leading_dimension * lines)
        return TensorMapSpec(
            element=self.element,
            dims=(width, lines, batches),
            strides_bytes=tuple(stride * self.element.itemsize for stride in strides),
            box=(self.span, self.columns if not self.row_major else self.rows, 1),
            swizzle=self.swizzle,
        )
