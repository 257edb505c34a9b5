"""Directed rounding where float64 is not wide enough to round twice: f64 arithmetic, and f32 roots and reciprocals.

The result to nearest is compared with the exact value, and moved by one step when it lies on the wrong side.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from blasdx.emulator.floats import Operation
from blasdx.emulator.lanes import Array, lanewise
from blasdx.emulator.rounding import FLOAT_BITS, flush, widen

_LARGEST = np.finfo(np.float64).max


def step64(nearest: Array, error: Array, mode: str) -> Array:
    """`nearest` moved to the side of `mode`; `error` has the sign of the exact value minus it."""
    if mode == "rn":
        return nearest
    down = (error < 0) & ((mode == "rm") | ((mode == "rz") & (nearest > 0)))
    up = (error > 0) & ((mode == "rp") | ((mode == "rz") & (nearest < 0)))
    result = np.where(down, np.nextafter(nearest, -np.inf), nearest)
    return np.where(up, np.nextafter(result, np.inf), result)


Exact = Callable[..., "Fraction | None"]


def _sum(x: Fraction, y: Fraction) -> Fraction:
    return x + y


def _product(x: Fraction, y: Fraction) -> Fraction:
    return x * y


def _fused(x: Fraction, y: Fraction, z: Fraction) -> Fraction:
    return x * y + z


def _quotient(x: Fraction, y: Fraction) -> Fraction | None:
    return x / y if y else None


_EXACT: dict[str, Exact] = {"add": _sum, "mul": _product, "fma": _fused, "div": _quotient}
_NEAREST: dict[str, Callable[..., Array]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "fma": lambda x, y, z: x * y + z,
    "div": lambda x, y: x / y,
}


@cache
def arithmetic64(name: str, mode: str, subtract: bool = False) -> Operation:
    """add, mul, fma and div of f64, rounded toward zero, down or up."""

    @lanewise(64)
    def operation(*arguments: Array) -> Array:
        values = [np.array(v) for v in np.broadcast_arrays(*(a.view(np.float64) for a in arguments))]
        if subtract:
            values[-1] = -values[-1]
        result = np.array(_NEAREST[name](*values))
        finite = np.logical_and.reduce([np.isfinite(v) for v in values])
        for i in np.flatnonzero(finite):
            exact = _EXACT[name](*(Fraction(float(v[i])) for v in values))
            if exact is not None:
                result[i] = _rounded(exact, float(result[i]), mode, name in ("add", "fma"))
        return result.view(np.uint64)

    return operation


def _rounded(exact: Fraction, near: float, mode: str, sum_: bool) -> float:
    """`exact`, of which `near` is an approximation that has the right sign when it is zero."""
    if not exact:
        # x - x is +0 in every mode but down; zeros that agree in sign keep it.
        return -0.0 if sum_ and mode == "rm" and near == 0 and _cancelled(near) else near
    try:
        found = float(exact)
    except OverflowError:
        found = np.inf if exact > 0 else -np.inf
    if abs(found) == np.inf:
        toward = mode == "rz" or (mode == "rm") == (exact > 0)
        return float(np.copysign(_LARGEST if toward else np.inf, found))
    error = exact - Fraction(found)
    sign = 1.0 if error > 0 else -1.0 if error < 0 else 0.0
    zero = np.copysign(0.0, 1.0 if exact > 0 else -1.0)
    moved = float(step64(np.array(found if found else zero), np.array(sign), mode))
    if not moved and mode == "rz":
        return float(zero)
    return moved


def _cancelled(near: float) -> bool:
    """To nearest, only a sum of two negative zeros is -0, which stays; every other zero comes from cancellation."""
    return not np.signbit(near)


@cache
def root(name: str, kind: str, mode: str, ftz: bool = False) -> Operation:
    """rcp and sqrt, rounded toward zero, down or up."""

    @lanewise(FLOAT_BITS[kind])
    def operation(a: Array) -> Array:
        x = widen(flush(a, kind) if ftz else a, kind)
        nearest = np.sqrt(x) if name == "sqrt" else 1.0 / x
        if kind == "f32":
            nearest = nearest.astype(np.float32)
        result = np.array(nearest)
        for i in np.flatnonzero(np.isfinite(x) & (x != 0) & ~np.isnan(nearest)):
            result[i] = _root(name, Fraction(float(x[i])), nearest[i], mode)
        bits: Array = result.view(np.uint32 if kind == "f32" else np.uint64)
        if np.isnan(result).any() and kind == "f32":
            bits = np.where(np.isnan(result), np.uint32(0x7FFFFFFF), bits)
        return flush(bits, kind) if ftz else bits

    return operation


def _root(name: str, x: Fraction, near: Any, mode: str) -> Any:
    kind = type(near)
    if np.isinf(near):
        toward = mode == "rz" or (mode == "rm") == (x > 0)
        return kind(np.copysign(np.finfo(kind).max, near)) if toward else near
    value = Fraction(float(near))
    above = value > 1 / x if name == "rcp" else value * value > x
    below = value < 1 / x if name == "rcp" else value * value < x
    if above and (mode == "rm" or (mode == "rz" and near > 0)):
        return np.nextafter(near, kind(-np.inf))
    if below and (mode == "rp" or (mode == "rz" and near < 0)):
        return np.nextafter(near, kind(np.inf))
    return near
