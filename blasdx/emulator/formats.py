"""Element types: codes to values and back, with the rounding modes and saturation of PTX ``cvt``.

Values are float64 (which holds every finite value of every type here exactly) or int64. Encodings: PTX ISA 5.2.3;
e4m3 and ue4m3 have no infinity, e2m3, e3m2 and e2m1 neither infinity nor NaN, ue8m0 is a bare exponent.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rounding = Literal["rn", "rz", "rm", "rp", "rna"]


class FloatFormat(NamedTuple):
    """Layout of a floating-point type with at most 24 significand bits."""

    exponent: int  # bits
    fraction: int
    bias: int
    largest: int  # code of the largest finite value
    nan: int | None  # canonical
    infinity: int | None
    signed: bool = True

    @property
    def bits(self) -> int:
        """Bits that carry information (tf32: 19, held in the upper bits of a 32-bit word)."""
        return self.exponent + self.fraction + self.signed

    @property
    def least_exponent(self) -> int:
        """Exponent of subnormal values and of the smallest normal ones."""
        return 1 - self.bias


FLOATS = {
    "f16": FloatFormat(5, 10, 15, 0x7BFF, 0x7FFF, 0x7C00),
    "bf16": FloatFormat(8, 7, 127, 0x7F7F, 0x7FFF, 0x7F80),
    "tf32": FloatFormat(8, 10, 127, 0x3FBFF, 0x3FFFF, 0x3FC00),
    "f32": FloatFormat(8, 23, 127, 0x7F7FFFFF, 0x7FFFFFFF, 0x7F800000),
    "e4m3": FloatFormat(4, 3, 7, 0x7E, 0x7F, None),
    "e5m2": FloatFormat(5, 2, 15, 0x7B, 0x7F, 0x7C),
    "e2m3": FloatFormat(2, 3, 1, 0x1F, None, None),
    "e3m2": FloatFormat(3, 2, 3, 0x1F, None, None),
    "e2m1": FloatFormat(2, 1, 1, 0x7, None, None),
    "ue4m3": FloatFormat(4, 3, 7, 0x7E, 0x7F, None, signed=False),
}
INTEGERS = {f"{sign}{bits}": (sign == "s", bits) for sign in "su" for bits in (8, 16, 32, 64)}
_TF32_SHIFT = 13


def is_float(element: str) -> bool:
    """Whether values of `element` are float64 (otherwise int64)."""
    return element not in INTEGERS


def least_exponent(element: str) -> int:
    """Exponent that subnormal values of `element` are stored with."""
    return -127 if element == "ue8m0" else -1022 if element == "f64" else FLOATS[element].least_exponent


@cache
def _table(element: str) -> NDArray[np.float64]:
    """All values of a type of at most 8 bits, by code."""
    if element == "ue8m0":
        values = np.ldexp(1.0, np.arange(256) - 127)
        values[255] = np.nan
        return values
    form = FLOATS[element]
    magnitude = np.arange(1 << (form.exponent + form.fraction), dtype=np.int64)
    biased, fraction = magnitude >> form.fraction, magnitude & ((1 << form.fraction) - 1)
    significand = np.where(biased > 0, fraction + (1 << form.fraction), fraction)
    values = np.ldexp(significand.astype(np.float64), np.maximum(biased, 1) - form.bias - form.fraction)
    values[magnitude > form.largest] = np.nan
    if form.infinity is not None:
        values[form.infinity] = np.inf
    values = np.concatenate([values, -values])
    # Bits above the type's own do not take part.
    return np.tile(values if form.signed else np.concatenate([values[:128]] * 2), 256 // len(values))


def decode(codes: NDArray[Any], element: str) -> NDArray[Any]:
    """Values of unsigned `codes`; tf32 codes are 32-bit words of which the low 13 bits are dropped.

    Returns
    -------
    float64 array, or int64 for integer types.
    """
    if element == "f16":
        return _widened(codes.astype(np.uint16, copy=False).view(np.float16))
    if element == "bf16":
        return _widened((codes.astype(np.uint32) << np.uint32(16)).view(np.float32))
    if element == "tf32":
        return _widened((codes.astype(np.uint32, copy=False) & np.uint32(0xFFFFE000)).view(np.float32))
    if element == "f32":
        return _widened(codes.astype(np.uint32, copy=False).view(np.float32))
    if element == "f64":
        return codes.astype(np.uint64, copy=False).view(np.float64).copy()
    if element in INTEGERS:
        signed, bits = INTEGERS[element]
        kept = codes.astype(np.dtype(f"u{bits // 8}"))
        return (kept.view(np.dtype(f"i{bits // 8}")) if signed else kept).astype(np.int64)
    return _table(element)[codes.astype(np.uint8, copy=False)]


def _widened(values: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # a signalling NaN is data here
        return values.astype(np.float64)


def encode(values: NDArray[Any], element: str, *, rounding: Rounding = "rn", saturate: bool = False) -> NDArray[Any]:
    """Codes of `values`, rounded once.

    Parameters
    ----------
    values
        float64 (or int64 for integer types).
    rounding
        ``rn`` to nearest even, ``rna`` to nearest, ties away from zero, ``rz`` toward zero, ``rm`` down, ``rp`` up.
    saturate
        Finite overflow and infinities become the largest finite value of their sign; integers clamp instead of
        wrapping. Types without NaN always saturate, and map NaN to their positive maximum (PTX ``.satfinite``).

    Returns
    -------
    uint32 codes, uint64 for 64-bit types.
    """
    if element in INTEGERS:
        return _encode_integer(values, *INTEGERS[element], saturate)
    x = np.asarray(values, np.float64)
    if element == "f64":
        return x.view(np.uint64).copy()
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if element == "f32" and rounding == "rn" and not saturate:
            words: NDArray[np.uint32] = x.astype(np.float32).view(np.uint32)
            words[np.isnan(x)] = 0x7FFFFFFF
            return words
        if element == "ue8m0":
            return _encode_exponent(x, rounding, saturate)
        return _encode_float(x, FLOATS[element], rounding, saturate) << np.uint32(
            _TF32_SHIFT if element == "tf32" else 0
        )


def _encode_integer(values: NDArray[Any], signed: bool, bits: int, saturate: bool) -> NDArray[Any]:
    whole = np.asarray(values)
    if saturate:
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << min(bits, 63)) - 1)
        whole = np.clip(whole, low, high)
    words = whole.astype(np.int64).view(np.uint64)
    return words if bits == 64 else (words & np.uint64((1 << bits) - 1)).astype(np.uint32)


def round_to_integer(q: NDArray[np.float64], negative: NDArray[np.bool_], rounding: Rounding) -> NDArray[np.float64]:
    """Non-negative `q` as whole numbers, where `negative` says which of them stand for negative values."""
    if rounding == "rn":
        return np.rint(q)
    floor = np.floor(q)
    rest = q - floor
    if rounding == "rna":
        return floor + (rest >= 0.5)
    if rounding == "rz":
        return floor
    away = negative if rounding == "rm" else ~negative
    return floor + ((rest > 0) & away)


def _encode_float(x: NDArray[np.float64], form: FloatFormat, rounding: Rounding, saturate: bool) -> NDArray[np.uint32]:
    negative = np.signbit(x)
    magnitude = np.abs(x)
    finite = np.isfinite(x)
    safe = np.where(finite, magnitude, 0.0)
    exponent = np.where(safe > 0, np.maximum(np.frexp(safe)[1] - 1, form.least_exponent), form.least_exponent)
    steps = round_to_integer(np.ldexp(safe, form.fraction - exponent), negative, rounding)
    # A significand that rounds up to the next power of two carries into the exponent field by itself.
    codes = ((exponent - form.least_exponent).astype(np.int64) << form.fraction) + steps.astype(np.int64)
    upward: Any = {"rn": True, "rna": True, "rz": False, "rm": negative, "rp": ~negative}[rounding]
    overflow = codes > form.largest
    saturated = saturate or (form.infinity is None and form.nan is None)
    beyond = form.infinity if form.infinity is not None else form.nan
    limit: Any = form.largest if saturated or beyond is None else np.where(upward, beyond, form.largest)
    codes = np.where(overflow, limit, codes)
    codes = np.where(finite, codes, form.largest if saturated or beyond is None else beyond)
    if form.signed:
        codes |= negative.astype(np.int64) << (form.exponent + form.fraction)
    else:
        codes = np.where(negative, 0, codes)
    codes = np.where(np.isnan(x), form.largest if form.nan is None else form.nan, codes)
    return codes.astype(np.uint32)


def _encode_exponent(x: NDArray[np.float64], rounding: Rounding, saturate: bool) -> NDArray[np.uint32]:
    """Encode ue8m0: a power of two, rounded toward zero or up; negative values have no meaning and give NaN."""
    fraction, exponent = np.frexp(np.where(np.isfinite(x) & (x > 0), x, 1.0))
    code = exponent.astype(np.int64) - 1 + 127
    if rounding != "rz":
        code += fraction > 0.5
    code = np.where(x == 0, 0, np.clip(code, 0, 254 if saturate else 255))
    code = np.where(x == np.inf, 254 if saturate else 255, code)
    return np.where(np.isnan(x) | (x < 0), 255, code).astype(np.uint32)
