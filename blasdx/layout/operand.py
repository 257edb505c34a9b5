"""One operand tile: how TMA writes it to shared memory and how the MMA reads it from there.

A tile is a row of *boxes*, each ``span`` bytes wide along the operand's contiguous dimension and as long as the
tile along the other. A box is one TMA copy; inside it, eight rows of ``span`` bytes are one swizzle period. K-major
tiles put several boxes along K, MN-major tiles along M or N (canonical layouts, PTX ISA 9.7.16.5).
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict

from blasdx.elements import Element
from blasdx.layout.descriptors import Major, matrix_descriptor
from blasdx.layout.swizzle import Swizzle
from blasdx.layout.tensor_map import TensorMapSpec

MMA_K_BYTES = 32
"""Bytes along K that one MMA reads of each operand, for every kind (PTX ISA 9.7.16.2.1)."""


class OperandTile(BaseModel):
    """Shared-memory layout of one operand's tile: extents in elements, everything called bytes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    element: Element
    major: Major
    rows: int
    k: int
    swizzle: Swizzle

    @classmethod
    def of(cls, name: str, element: Element, major: Major, *, rows: int, k: int) -> Self | None:
        """The tile of ``rows`` x ``k`` elements, or None when its contiguous rows are no whole 128-byte spans."""
        contiguous = k if major is Major.K else rows
        if contiguous * element.bits // 8 % Swizzle.B128.span:
            return None
        return cls(name=name, element=element, major=major, rows=rows, k=k, swizzle=Swizzle.B128)

    @property
    def bytes(self) -> int:
        """Bytes of one stage."""
        return self.rows * self.k * self.element.bits // 8

    @property
    def box(self) -> tuple[int, int]:
        """Extents of one TMA box in elements, innermost first."""
        return self.swizzle.span * 8 // self.element.bits, self.rows if self.major is Major.K else self.k

    @property
    def boxes(self) -> int:
        """TMA copies a stage."""
        return (self.k if self.major is Major.K else self.rows) // self.box[0]

    @property
    def box_bytes(self) -> int:
        """Bytes of one box."""
        return self.bytes // self.boxes

    def tensor_map(self, rows: int, k: int, leading_dimension: int) -> TensorMapSpec:
        """The tensor map of a whole ``rows`` x ``k`` operand whose lines are ``leading_dimension`` elements apart."""
        return TensorMapSpec(
            element=self.element,
            dims=(k, rows) if self.major is Major.K else (rows, k),
            strides_bytes=(leading_dimension * self.element.bits // 8,),
            box=self.box,
            swizzle=self.swizzle,
        )

    @property
    def matrix_descriptor(self) -> int:
        """The shared-memory matrix descriptor without its address."""
        if self.major is Major.K:
            return matrix_descriptor(self.swizzle, leading_bytes=0, stride_bytes=self.swizzle.period)
        return matrix_descriptor(self.swizzle, leading_bytes=self.box_bytes, stride_bytes=self.swizzle.period)

    @property
    def matrix_descriptor_text(self) -> str:
        """The descriptor's fields in words."""
        groups = f"{self.swizzle} swizzle, {self.swizzle.period} B between groups of 8"
        if self.major is Major.K:
            return f"{groups} rows"
        return f"{groups} K, {self.box_bytes} B between spans"

    @property
    def steps_per_box(self) -> int:
        """MMA steps along K until the next box begins."""
        return self.swizzle.span // MMA_K_BYTES if self.major is Major.K else self.k // self._step_k

    @property
    def step_bytes(self) -> int:
        """Bytes from one MMA step to the next inside a box."""
        return MMA_K_BYTES if self.major is Major.K else self._step_k * self.swizzle.span

    def block_bytes(self, rows: int) -> int:
        """Bytes from one block of ``rows`` rows to the next, as the MMAs of a tall tile step through M."""
        if self.major is Major.K:
            return rows * self.swizzle.span
        return rows // self.box[0] * self.box_bytes

    @property
    def _step_k(self) -> int:
        return MMA_K_BYTES * 8 // self.element.bits
