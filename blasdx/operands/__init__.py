"""Operands: what a kernel is called with, checked before anything is launched.

`bind` turns arrays, seen as addresses and strides, into the numbers of a launch, or raises one `OperandError` that
lists everything that is wrong with the call. It needs no device and touches no array.
"""

from __future__ import annotations

from blasdx.operands.batches import Walk, walk
from blasdx.operands.bind import bind
from blasdx.operands.padding import padded
from blasdx.operands.values import (
    TMA_ALIGNMENT,
    Matrix,
    Operand,
    OperandMiss,
    Product,
    Seen,
    matrix,
    refuse,
    reject,
)

__all__ = [
    "TMA_ALIGNMENT",
    "Matrix",
    "Operand",
    "OperandMiss",
    "Product",
    "Seen",
    "Walk",
    "bind",
    "matrix",
    "padded",
    "refuse",
    "reject",
    "walk",
]
