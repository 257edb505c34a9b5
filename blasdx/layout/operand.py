"""One operand tile: how TMA writes it to shared memory and how the MMA reads it from there.

A tile is a row of *spans*: ``swizzle.span`` bytes wide along the operand's contiguous dimension and as long as the
tile along the other, so that eight lines of a span are one swizzle period. K-major tiles put several spans along K,
MN-major tiles along M or N (canonical layouts, PTX ISA 9.7.16.5; wgmma reads the same ones). TMA copies a span in
one box, or in several where it is longer than the 256 lines a box may have.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict

from blasdx.elements import Element
from blasdx.layout.descriptors import Generation, Major, matrix_descriptor
from blasdx.layout.swizzle import Swizzle
from blasdx.layout.tensor_map import TensorMapSpec

MAX_BOX = 256
"""Elements of a TMA box along one dimension (CUDA driver API, cuTensorMapEncodeTiled)."""

MMA_K_BYTES = 32
"""Bytes along K that one MMA reads of each operand, for every kind and by wgmma (PTX ISA 9.7.16.2.1, 9.7.15.2)."""


class OperandTile(BaseModel):
    """Shared-memory layout of one operand's tile: extents in elements, everything called bytes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    element: Element
    major: Major
    rows: int
    k: int
    swizzle: Swizzle
    sharers: int = 1

    @classmethod
    def of(
        cls,
        name: str,
        element: Element,
        major: Major,
        *,
        rows: int,
        k: int,
        block_rows: int | None = None,
        sharers: int = 1,
    ) -> Self:
        """The tile of ``rows`` x ``k`` elements in the widest swizzle whose span divides its contiguous extent.

        Where MMAs take blocks of ``block_rows`` rows, no span of an MN-major tile straddles two of them. ``sharers``
        CTAs of a cluster hold the same tile.
        """
        contiguous = (k if major is Major.K else block_rows or rows) * element.bits // 8
        swizzle = next(mode for mode in WIDEST_FIRST if contiguous % mode.span == 0)
        return cls(name=name, element=element, major=major, rows=rows, k=k, swizzle=swizzle, sharers=sharers)

    @property
    def bytes(self) -> int:
        """Bytes of one stage."""
        return self.rows * self.k * self.element.bits // 8

    @property
    def span(self) -> int:
        """Elements of a span's width."""
        return self.swizzle.span * 8 // self.element.bits

    @property
    def spans(self) -> int:
        """Spans side by side."""
        return (self.k if self.major is Major.K else self.rows) // self.span

    @property
    def span_bytes(self) -> int:
        """Bytes of a whole span."""
        return self.bytes // self.spans

    @property
    def lines(self) -> int:
        """Lines of a span: rows of a K-major tile, K of an MN-major one."""
        return self.rows if self.major is Major.K else self.k

    @property
    def shares(self) -> int:
        """CTAs that load a part of the tile each, into all its sharers: as many as can have whole groups of 8 lines."""
        groups = self.lines // 8
        return next(count for count in range(self.sharers, 0, -1) if groups % count == 0)

    @property
    def box(self) -> tuple[int, int]:
        """Extents of one TMA box in elements, innermost first.

        The longest that divides a CTA's part of the span into whole groups of eight lines, which keeps every box on a
        swizzle period.
        """
        part = self.lines // self.shares
        return self.span, next(lines for lines in range(min(part, MAX_BOX), 0, -8) if part % lines == 0)

    @property
    def boxes(self) -> int:
        """TMA copies of one CTA a stage."""
        return self.spans * (self.lines // self.shares // self.box[1])

    def tensor_map(
        self, rows: int, k: int, leading_dimension: int, *, batches: int = 1, batch_stride: int = 0
    ) -> TensorMapSpec:
        """The tensor map of ``batches`` whole ``rows`` x ``k`` operands.

        Lines are ``leading_dimension`` elements apart, batches ``batch_stride``, which a single one has no use for.
        """
        inner, outer = (k, rows) if self.major is Major.K else (rows, k)
        strides = (leading_dimension, batch_stride or leading_dimension * outer)
        return TensorMapSpec(
            element=self.element,
            dims=(inner, outer, batches),
            strides_bytes=tuple(stride * self.element.itemsize for stride in strides),
            box=(*self.box, 1),
            swizzle=self.swizzle,
        )

    def matrix_descriptor(self, generation: Generation) -> int:
        """The shared-memory matrix descriptor without its address.

        A K-major tile always has a swizzle, because K is a multiple of the 32 bytes that an MMA takes.
        """
        eight_lines = self.swizzle.period
        if self.major is Major.K:
            leading, stride = 0, eight_lines
        elif self.swizzle is Swizzle.NONE:
            leading, stride = eight_lines, self.span_bytes  # without a swizzle the two trade places
        else:
            leading, stride = self.span_bytes, eight_lines
        return matrix_descriptor(self.swizzle, generation, leading_bytes=leading, stride_bytes=stride)

    @property
    def layout_text(self) -> str:
        """The matrix descriptor's fields in words."""
        across = "rows" if self.major is Major.K else "K"
        swizzle = "no swizzle" if self.swizzle is Swizzle.NONE else f"{self.swizzle} swizzle"
        text = f"{swizzle}, {self.swizzle.period} B between groups of 8 {across}"
        return text if self.major is Major.K else f"{text}, {self.span_bytes} B between spans"

    @property
    def steps_per_span(self) -> int:
        """MMA steps along K until the next span begins."""
        return self.swizzle.span // MMA_K_BYTES if self.major is Major.K else self.k // self._step_k

    @property
    def step_bytes(self) -> int:
        """Bytes from one MMA step to the next inside a span."""
        return MMA_K_BYTES if self.major is Major.K else self._step_k * self.swizzle.span

    def block_bytes(self, rows: int) -> int:
        """Bytes from one block of ``rows`` rows to the next, as the MMAs of a tile step through M or N."""
        if self.major is Major.K:
            return rows * self.swizzle.span
        return rows // self.span * self.span_bytes

    @property
    def _step_k(self) -> int:
        return MMA_K_BYTES * 8 // self.element.bits


WIDEST_FIRST = (Swizzle.B128, Swizzle.B64, Swizzle.B32, Swizzle.NONE)
"""Swizzle modes by span, 128 bytes first."""
