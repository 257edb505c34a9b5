"""alpha and beta: host numbers that f32 holds."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from blasdx.operands.values import Operand, OperandMiss

F32_MIN, F32_MAX = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)


def scalars(c: Operand | None, alpha: object, beta: object) -> tuple[list[np.float32], list[OperandMiss]]:
    """alpha and beta as f32, and what is wrong with them."""
    values: list[np.float32] = []
    misses: list[OperandMiss] = []
    for name, given in (("alpha", alpha), ("beta", 0.0 if beta is None else beta)):
        value = _scalar(given)
        if value is None:
            need, why = "a real number in host memory", "It scales f32 sums and is passed by value."
            misses.append(OperandMiss(name, "scalar", repr(given), need, why, "pass a float"))
            continue
        if _leaves_f32(given, value):
            need = "a number that f32 holds"
            why = f"The kernel takes it as f32, which goes from {F32_MIN:.3g} to {F32_MAX:.3g}."
            misses.append(OperandMiss(name, "scalar", _brief(given), need, why, "scale an operand instead"))
            continue
        values.append(value)
        if name == "beta" and c is None and value != 0:
            why = "out = alpha * a @ b + beta * c reads c."
            misses.append(OperandMiss("c", "missing", f"beta = {given!r} and no c", "c, or beta = 0", why, "pass c"))
    if c is not None and beta is None:
        why = "Left out, beta is 0, and c would not be read."
        misses.append(OperandMiss("c", "unused", "c, and no beta", "both or neither", why, "beta=1.0, or leave c out"))
    return values, misses


def _scalar(given: object) -> np.float32 | None:
    """A real number of Python, NumPy or ml_dtypes as f32; None for anything else."""
    if not isinstance(given, numbers.Real | np.generic):
        return None
    if isinstance(given, np.generic) and given.dtype.kind in "SUMmcO":  # float() would read some of them
        return None
    try:
        with np.errstate(over="ignore"):
            return np.float32(float(given))
    except OverflowError:  # an integer beyond f64
        return np.float32(np.inf)
    except (TypeError, ValueError):
        return None


def _leaves_f32(given: Any, value: np.float32) -> bool:
    """Whether rounding makes infinity of a finite number, or zero of another."""
    return bool((np.isinf(value) and given not in (math.inf, -math.inf)) or (value == 0 and given != 0))


def _brief(given: object) -> str:
    if isinstance(given, int) and given.bit_length() > 128:
        return f"an integer of {given.bit_length()} bits"
    return repr(given)
