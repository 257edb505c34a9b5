"""The arithmetic of matrix instructions: D = A B + C on decoded operands, in two models.

``exact``: products and sums in float64 (integers exactly), rounded once to D.

``hardware``: the model of dense tensor-core operations that MMA-Sim (arXiv 2511.10909) found to match Hopper and
Blackwell parts bit for bit. Every product and C are aligned to the largest exponent among them, truncated toward zero
to F fraction bits, added exactly, and rounded (toward zero for f32). F = 25 for tcgen05 and for wgmma's 16-bit types,
13 for wgmma's fp8. With wgmma on an H200 every bit of 54 random products (f16, bf16, tf32, e4m3, e5m2, s8; f32, f16 and
s32 results; subnormals, infinities and NaN included) agreed; no tcgen05 hardware has been measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from blasdx.emulator.formats import FLOATS, decode, encode, is_float, least_exponent

Floats = NDArray[np.float64]
Exponents = NDArray[Any]


@dataclass(frozen=True)
class Arithmetic:
    """How a matrix instruction computes.

    Attributes
    ----------
    model : "exact" or "hardware"
    fraction_bits : int
        F of the hardware model.
    result_bits : int
        Fraction bits that an f32 result keeps (23, or 13 for fp8 on Hopper and Ada).
    passes : int
        Equal sequential parts of K, each rounded (2 for the largest shapes of Ampere and Ada).
    group : int
        Products that are summed exactly before they are scaled (16 for mxf4; otherwise 1).
    """

    model: Literal["exact", "hardware"] = "exact"
    fraction_bits: int = 25
    result_bits: int = 23
    passes: int = 1
    group: int = 1


EXACT = Arithmetic()
TCGEN05 = Arithmetic("hardware")
TCGEN05_MXF4 = Arithmetic("hardware", fraction_bits=35, group=16)
WGMMA = Arithmetic("hardware")
WGMMA_FP8 = Arithmetic("hardware", fraction_bits=13, result_bits=13)
MMA_SYNC = Arithmetic("hardware")

Model = Literal["exact", "hardware"]
_HARDWARE = {
    "tcgen05": TCGEN05,
    "tcgen05.mxf4": TCGEN05_MXF4,
    "wgmma": WGMMA,
    "wgmma.fp8": WGMMA_FP8,
    "mma.sync": MMA_SYNC,
}


def arithmetic(model: Model, family: str) -> Arithmetic:
    """How the instructions of a family (``"wgmma.fp8"``) compute under a model."""
    return EXACT if model == "exact" else _HARDWARE[family]


@dataclass(frozen=True, eq=False)
class Factor:
    """One operand of a product: raw codes (rows, K) and what modifies them.

    Attributes
    ----------
    codes : ndarray
        Unsigned codes of `element`.
    scales, scale : ndarray or None, str
        Block scales (rows, K / vector), codes of element type `scale`.
    """

    codes: NDArray[Any]
    element: str
    negate: bool = False
    scales: NDArray[np.uint8] | None = None
    scale: str = ""

    def values(self) -> Floats:
        """Values (rows, K) as float64, integers included, without block scales."""
        found = decode(self.codes, self.element)
        floats: Floats = found.astype(np.float64, copy=False)
        return -floats if self.negate else floats

    def scale_values(self) -> Floats | None:
        """Scales (rows, K) as float64, one for each element."""
        if self.scales is None:
            return None
        each = self.codes.shape[1] // self.scales.shape[1]
        return np.repeat(decode(self.scales, self.scale), each, axis=1)


def multiply(
    a: Factor,
    b: Factor,
    c: NDArray[np.uint32] | None,
    d: str,
    arithmetic: Arithmetic = EXACT,
    *,
    saturate: bool = False,
    shift: int = 0,
) -> NDArray[np.uint32]:
    """``A B^T + C`` as 32-bit words of element type `d`.

    Parameters
    ----------
    a, b
        (M, K) and (N, K).
    c
        (M, N) words of type `d`, or None for zero. f16 words hold the value in their low half.
    saturate
        Clamp an s32 result instead of wrapping, once for the instruction.
    shift
        C enters as ``C * 2**-shift`` (``scale-input-d``).
    """
    if not is_float(d):
        # Sums of 8-bit products stay far below 2^53, so float64 computes them exactly and fast.
        whole = _product(a.values(), b.values()).astype(np.int64)
        if c is not None:
            whole += decode(c, d)
        return encode(whole, d, saturate=saturate)
    if d == "f32" and not shift and arithmetic.model == "exact":
        with np.errstate(invalid="ignore", over="ignore"):
            total = _product(_scaled(a), _scaled(b))
            if c is not None:
                total += c.view(np.float32)
            return _rounded32(total)
    added = None if c is None else decode(c if d != "f16" else c & np.uint32(0xFFFF), d)
    if added is not None and shift:
        added = np.ldexp(added, -shift)
    with np.errstate(invalid="ignore", over="ignore"):
        if arithmetic.model == "exact":
            total = _product(_scaled(a), _scaled(b))
            if added is not None:
                total += added
        else:
            total = _hardware(a, b, added, d, arithmetic)
        return encode(total, d)


def _rounded32(total: Floats) -> NDArray[np.uint32]:
    """Words of f32, rounded to nearest even; NaN is canonical."""
    words: NDArray[np.uint32] = total.astype(np.float32).view(np.uint32)
    whole = total.sum()  # NaN when there is one (and for infinities of both signs)
    if whole != whole:
        words[np.isnan(total)] = 0x7FFFFFFF
    return words


# OpenBLAS hands products beyond this many multiplications to its threads, which wait for each other on a busy machine:
# 10 ms instead of 0.05 for 128 x 256 x 16.
_ONE_THREAD = 1 << 18


def _product(a: Floats, b: Floats) -> Floats:
    """``A B^T`` in column chunks that stay in one thread."""
    (m, k), n = a.shape, len(b)
    step = max(8, _ONE_THREAD // (m * k))
    if n <= step:
        return a @ b.T
    total = np.empty((m, n))
    for first in range(0, n, step):
        np.matmul(a, b[first : first + step].T, out=total[:, first : first + step])
    return total


def _scaled(factor: Factor) -> Floats:
    scales = factor.scale_values()
    return factor.values() if scales is None else factor.values() * scales


def _exponents(values: Floats, least: int) -> Exponents:
    """Exponents as stored: subnormal values have the least one; zeros can never be the largest."""
    found: Exponents = np.maximum(np.frexp(values)[1] - 1, least)
    found[values == 0] = _NOTHING
    return found


_NOTHING = -(1 << 20)


def _hardware(a: Factor, b: Factor, c: Floats | None, d: str, arithmetic: Arithmetic) -> Floats:
    va, vb = a.values(), b.values()
    ea: Exponents
    eb: Exponents
    ea, eb = _exponents(va, least_exponent(a.element)), _exponents(vb, least_exponent(b.element))
    sa, sb = a.scale_values(), b.scale_values()
    if sa is not None and sb is not None:
        va, vb = va * sa, vb * sb
        # A scale enters with its own exponent; a group summed exactly keeps none of its elements'.
        ea = np.frexp(sa)[1] - 1 + (ea if arithmetic.group == 1 else 0)
        eb = np.frexp(sb)[1] - 1 + (eb if arithmetic.group == 1 else 0)
    total = np.zeros((len(va), len(vb))) if c is None else c
    step = va.shape[1] // arithmetic.passes
    for first in range(0, va.shape[1], step):
        part = slice(first, first + step)
        total = _aligned_sum(va[:, part], ea[:, part], vb[:, part], eb[:, part], total, d, arithmetic)
    return total


def _aligned_sum(
    a: Floats,
    ea: Exponents,
    b: Floats,
    eb: Exponents,
    c: Floats,
    d: str,
    arithmetic: Arithmetic,
) -> Floats:
    """One pass of the model. Column by column: a (M, N, K) array of products would not fit a cache."""
    rows, columns = np.isfinite(a).all(axis=1), np.isfinite(b).all(axis=1)
    special = np.logical_not(np.logical_and.outer(rows, columns) & np.isfinite(c))
    through = a @ b.T + c if special.any() else None
    a, b, c = (np.where(np.isfinite(x), x, 0.0) for x in (a, b, c))
    largest: Exponents = _exponents(c, FLOATS[d].least_exponent)
    group = arithmetic.group
    for k in range(0, a.shape[1], group):
        np.maximum(largest, ea[:, k, None] + eb[None, :, k], out=largest)
    np.copyto(largest, 0, where=np.less(largest, _NOTHING // 2))  # nothing but zeros
    unit = np.ldexp(1.0, largest - arithmetic.fraction_bits)
    total = np.trunc(c / unit)
    for k in range(0, a.shape[1], group):
        term = a[:, k, None] * b[None, :, k] if group == 1 else a[:, k : k + group] @ b[:, k : k + group].T
        term /= unit
        total += np.trunc(term, out=term)
    total *= unit
    if d == "f32":
        total = _truncate(total, arithmetic.result_bits)
    elif arithmetic.passes > 1:
        total = decode(encode(total, d), d)
    return total if through is None else np.where(special, through, total)


def _truncate(x: Floats, fraction: int) -> Floats:
    """Toward zero to an f32 with `fraction` fraction bits; beyond the range, infinity."""
    unit = np.ldexp(1.0, np.maximum(np.frexp(x)[1] - 1, -126) - fraction)
    kept = np.trunc(x / unit) * unit
    rounded: Floats = np.where(np.abs(kept) >= 2.0**128, np.copysign(np.inf, kept), kept)
    return rounded
