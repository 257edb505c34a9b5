"""The by-value argument of a kernel: the C++ ``struct Problem`` of the templates, packed."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_LAYOUT = struct.Struct("<QQQQIIIff4x")

PROBLEM_BYTES = _LAYOUT.size
"""Size of the struct; the rendered kernel asserts the same number."""


@dataclass(frozen=True)
class Arguments:
    """out = alpha * A * B + beta * c for an m x n x k problem.

    ``out`` and ``c`` are device addresses, ``c`` is never read when ``beta`` is zero; leading dimensions count
    elements between rows of a row-major C, between columns of a column-major one.
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

    def pack(self) -> bytes:
        """The struct's bytes, fields in the order of this class."""
        return _LAYOUT.pack(self.out, self.c, self.out_ld, self.c_ld, self.m, self.n, self.k, self.alpha, self.beta)
