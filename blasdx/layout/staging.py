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


class StagingTile(BaseModel):
    """A chunk of ``rows`` x ``columns`` elements of C, each row one swizzled span, or a part of the narrowest one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    element: Element
    rows: int
    columns: int
    swizzle: Swizzle

    @classmethod
    def of(cls, element: Element, *, rows: int, divides: int) -> Self:
        """The widest chunk whose columns divide ``divides`` columns, which are a multiple of 8."""
        item = element.itemsize
        modes = (mode for mode in WIDEST_FIRST if divides * item % mode.span == 0 and mode.span <= MAX_COLUMNS * item)
        swizzle = next(modes, None)
        if swizzle is None:
            return cls(element=element, rows=rows, columns=8, swizzle=Swizzle.NONE)
        return cls(element=element, rows=rows, columns=swizzle.span // item, swizzle=swizzle)

    @property
    def bytes(self) -> int:
        """Bytes of the chunk."""
        return self.rows * self.columns * self.element.itemsize

    @property
    def is_bulk_storable(self) -> bool:
        """Whether a row is wide enough for TMA, whose boxes have rows of whole 16 bytes (CUDA driver API)."""
        return self.columns * self.element.itemsize % Swizzle.NONE.span == 0

    def tensor_map(
        self, m: int, n: int, leading_dimension: int, *, batches: int = 1, batch_stride: int = 0
    ) -> TensorMapSpec:
        """The tensor map of ``batches`` whole row-major m x n C.

        Rows are ``leading_dimension`` elements apart, batches ``batch_stride``, which a single one has no use for.
        """
        strides = (leading_dimension, batch_stride or leading_dimension * m)
        return TensorMapSpec(
            element=self.element,
            dims=(n, m, batches),
            strides_bytes=tuple(stride * self.element.itemsize for stride in strides),
            box=(self.columns, self.rows, 1),
            swizzle=self.swizzle,
        )
