"""alpha, beta and the other numbers by value: host numbers that f32 holds."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from blasdx.epilogue import Epilogue
from blasdx.operands.values import Operand, OperandMiss

F32_MIN, F32_MAX = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)


def scalars(
    epilogue: Epilogue, c: Operand | None, alpha: object, beta: object, given: Mapping[str, object]
) -> tuple[dict[str, np.float32], list[OperandMiss]]:
    """The numbers of a call as f32, by name, and what is wrong with them and with what comes together with them."""
    values: dict[str, np.float32] = {}
    misses: list[OperandMiss] = []
    wanted = {"alpha": alpha, "beta": 0.0 if beta is None else beta}
    for name, number in {**wanted, **{name: given[name] for name in epilogue.scalars if name in given}}.items():
        value = _scalar(number)
        if value is None:
            need, why = "a real number in host memory", "It is passed to the kernel by value."
            misses.append(OperandMiss(name, "scalar", repr(number), need, why, "pass a float"))
        elif _leaves_f32(number, value):
            need = "a number that f32 holds"
            why = f"The kernel takes it as f32, which goes from {F32_MIN:.3g} to {F32_MAX:.3g}."
            misses.append(OperandMiss(name, "scalar", _brief(number), need, why, "scale an operand instead"))
        else:
            values[name] = value
    misses += _unnamed(epilogue, alpha, beta, given)
    misses += _source(epilogue, c, beta, values)
    return values, misses


def _unnamed(epilogue: Epilogue, alpha: object, beta: object, given: Mapping[str, object]) -> Iterator[OperandMiss]:
    """What the epilogue names is given, and nothing else."""
    reads = f"out = {epilogue} reads it."
    for name in epilogue.scalars:
        if name not in given:
            yield OperandMiss(name, "missing", "nothing", "a number", reads, f"pass {name}=...")
    extra = [name for name in given if name not in epilogue.scalars]
    extra += ["alpha"] * (not epilogue.uses_alpha and not _is(alpha, 1))
    extra += ["beta"] * (not epilogue.uses_beta and beta is not None and not _is(beta, 0))
    for name in extra:
        need = f"one of {', '.join(epilogue.names)}" if epilogue.names else "no operand by that name"
        why = f"out = {epilogue} does not name it."
        yield OperandMiss(name, "unused", f"{name}=...", need, why, f"leave {name}= out, or another epilogue")


def _source(
    epilogue: Epilogue, c: Operand | None, beta: object, values: Mapping[str, np.float32]
) -> Iterator[OperandMiss]:
    """C and beta, where they are named, come together."""
    if not epilogue.reads_c:
        if c is not None:
            why = f"out = {epilogue} does not name it."
            yield OperandMiss("c", "unused", "c", "no c", why, "leave c out, or another epilogue")
        return
    why = f"out = {epilogue} reads c."
    if c is None and not epilogue.scales_c:
        yield OperandMiss("c", "missing", "no c", "c", why, "pass c")
    elif c is None and values.get("beta", 0) != 0:
        yield OperandMiss("c", "missing", f"beta = {beta!r} and no c", "c, or beta = 0", why, "pass c")
    elif c is not None and beta is None and epilogue.uses_beta:
        why = "Left out, beta is 0, and c would not be read."
        yield OperandMiss("c", "unused", "c, and no beta", "both or neither", why, "beta=1.0, or leave c out")


def _is(given: object, number: int) -> bool:
    return isinstance(given, numbers.Real) and given == number


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
