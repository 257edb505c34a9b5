"""The by-value argument of a kernel: the C++ ``struct Problem`` of the templates, packed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

_LAYOUT = struct.Struct("<6Q6I2f")

PROBLEM_BYTES = _LAYOUT.size
"""Size of the struct; the rendered kernel asserts the same number."""


@dataclass(frozen=True)
class Arguments:
    """out = alpha * A * B + beta * c for ``batches`` problems of m x n x k.

    ``out`` and ``c`` are device addresses, ``c`` is never read when ``beta`` is zero; leading dimensions count
    elements between rows of a row-major C, between columns of a column-major one; ``out_batch`` and ``c_batch`` count
    those between batches. ``a_batch`` and ``b_batch`` are 0 where all batches share one operand, otherwise 1.
    """

    out: int
    c: int
    out_ld: int
    c_ld: int
    m: int
    n: int
    k: int
    alpha: float
    beta: float
    batches: int = 1
    a_batch: int = 0
    b_batch: int = 0
    out_batch: int = 0
    c_batch: int = 0

    def packer(self) -> Callable[[int, int], bytes]:
        """What packs the struct with other addresses of out and c."""
        strides = self.out_ld, self.c_ld, self.out_batch, self.c_batch
        extents = self.m, self.n, self.k, self.batches, self.a_batch, self.b_batch
        rest = (*strides, *extents, self.alpha, self.beta)
        return lambda out, c: _LAYOUT.pack(out, c, *rest)

    def pack(self) -> bytes:
        """The struct's bytes, in the order of the C++ fields."""
        return self.packer()(self.out, self.c)
