"""The numbers of tcgen05: which chips, which types, which extents (cuBLASDx 0.8 Blackwell pipeline card)."""

from __future__ import annotations

from blasdx import arch
from blasdx.descriptor import Descriptor
from blasdx.elements import Element, bf16, e4m3, e5m2, f16, f32, s8, s32, tf32, u8
from blasdx.operators import (
    MM,
    SM,
    Arrangement,
    Block,
    BlockDim,
    EnableInputStreaming,
    Function,
    MaxAlignment,
    Precision,
    Size,
    Type,
    WithPipeline,
    arch_specific,
    col_major,
    real,
    row_major,
)
from blasdx.paths import common

NUMBERS = tuple(a.number for a in arch.ARCHS if a.tcgen05)
INTEGER_NUMBERS = tuple(a.number for a in arch.ARCHS if a.tcgen05_integer)
COLUMNS = 512
"""Columns of tensor memory, of 128 lanes each (PTX ISA 9.7.16.1)."""

BOX = 256
"""Elements of a TMA box along each dimension, at most (CUDA driver API, cuTensorMapEncodeTiled)."""

LEGAL_M = (64, 128, 192, 256)

FP8 = (e4m3, e5m2)
INT8 = (s8, u8)
PRECISIONS = (
    Precision(f16, f16, f32),
    Precision(f16, f16, f16),
    Precision(bf16, bf16, f32),
    Precision(tf32, tf32, f32),
    *(Precision(a, b, c) for c in (f32, f16) for a in FP8 for b in FP8),
    *(Precision(a, b, s32) for a in INT8 for b in INT8),
)

CARD = (
    Size(128, 256, 64)
    + Precision(bf16, bf16, f32)
    + Type(real)
    + Function(MM)
    + Arrangement(row_major, col_major, row_major)
    + Block()
    + BlockDim(128)
    + MaxAlignment()
    + WithPipeline()
    + EnableInputStreaming()
    + SM(1000, arch_specific)
)
"""The card's own descriptor; it meets every gate."""


def inputs(descriptor: Descriptor) -> set[Element]:
    """The types of A and B."""
    return {descriptor.precision.a, descriptor.precision.b}


def legal_n(descriptor: Descriptor) -> tuple[int, ...]:
    """Every N that the input types take with this majorness of B, whatever M is."""
    types, k_major = inputs(descriptor), common.k_major_b(descriptor)
    if types & set(INT8):
        return (*((8,) if k_major else ()), *range(16, BOX + 1, 16))
    step = 16 if types & set(FP8) and not k_major else 8
    return tuple(range(step, BOX + 1, step))


def blocks(m: int) -> int:
    """Accumulator blocks along M: of 128 lanes where M is a multiple of 128, of 64 otherwise."""
    return m // 128 if m % 128 == 0 else -(-m // 64)


def columns(m: int, n: int) -> int:
    """Tensor-memory columns of an m x n accumulator: one 32-bit column an element, f16 included."""
    return blocks(m) * n


def pair_step(descriptor: Descriptor) -> int:
    """N of a pair's tile is a multiple of this."""
    types = inputs(descriptor)
    wide = types & set(INT8) or (types & set(FP8) and not common.k_major_b(descriptor))
    return 32 if wide else 16
