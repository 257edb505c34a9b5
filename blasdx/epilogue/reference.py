"""What an epilogue means, in NumPy and float64.

It shares the nodes with the generator, and nothing of what becomes of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from blasdx.elements import Element
from blasdx.epilogue import tree
from blasdx.epilogue.functions import CASTS
from blasdx.epilogue.value import Epilogue

Array = np.ndarray[Any, Any]

SATURATING = {"e4m3": (-448.0, 448.0), "e5m2": (-57344.0, 57344.0)}
"""Largest finite numbers of the types that have no other way to be too large (OCP 8-bit Floating Point, table 1)."""


def reference(epilogue: Epilogue, acc: Array, output: Element, operands: Mapping[str, Any]) -> Array:
    """Evaluate an epilogue.

    Parameters
    ----------
    epilogue : Epilogue
    acc : numpy.ndarray
        (..., m, n), the sums.
    output : Element
        What the results are rounded to.
    operands : mapping
        ``c``, ``alpha``, ``beta`` and all that the expression names; vectors are (m,) and (n,), batches go in front.

    Returns
    -------
    numpy.ndarray
        In the output's type.
    """
    values = dict(operands)
    for array in epilogue.arrays:
        given = np.asarray(values[array.name]).astype(np.float64)
        batches = given.shape[: given.ndim - len(array.axes)]
        if not array.axes and set(batches) <= {1}:
            batches = ()
        across = {(): (1, 1), ("m",): (-1, 1), ("n",): (1, -1)}.get(array.axes, given.shape[-2:])
        values[array.name] = given.reshape(*batches, *across)
    values[tree.ACCUMULATOR] = np.asarray(acc).astype(np.float64)
    if epilogue.reads_c:
        unread = epilogue.scales_c and values[tree.BETA] == 0
        values[tree.SOURCE] = np.zeros(()) if unread else np.asarray(values[tree.SOURCE]).astype(np.float64)
    with np.errstate(all="ignore"):
        result = np.broadcast_to(_evaluate(epilogue.node, values), values[tree.ACCUMULATOR].shape)
        return rounded(result, output)


def rounded(x: Array, element: Element) -> Array:
    """Numbers in an element type: to nearest even; beyond it infinity for f16, bf16 and f32, its ends for others."""
    if not element.is_float:
        ends = np.iinfo(element.numpy_dtype)
        x = np.clip(np.rint(np.nan_to_num(x, nan=0.0)), ends.min, ends.max)
    elif element.name in SATURATING:
        x = np.clip(x, *SATURATING[element.name])
    converted: Array = np.asarray(x, np.float64).astype(element.numpy_dtype)
    return converted


def _evaluate(node: tree.Node, values: Mapping[str, Any]) -> Any:
    match node:
        case tree.Number(value):
            return value
        case tree.Name(name) | tree.Element(name):
            return values[name]
        case tree.Negative(operand):
            return -_evaluate(operand, values)
        case tree.Binary(operator, left, right):
            if _left_out(node, values):
                return 0.0
            x, y = np.asarray(_evaluate(left, values)), np.asarray(_evaluate(right, values))
            return _OPERATORS[operator](x, y)
        case tree.Call(function, arguments):
            return _FUNCTIONS[function](*(np.asarray(_evaluate(argument, values)) for argument in arguments))


def _left_out(node: tree.Node, values: Mapping[str, Any]) -> bool:
    """Whether this is a product with C that a beta of zero leaves out, whatever else it multiplies."""
    factors = tree.factors(node)
    return (
        len(factors) > 1
        and tree.Name(tree.BETA) in factors
        and values[tree.BETA] == 0
        and tree.count(node, tree.SOURCE) > 0
    )


def _tanh_gelu(x: Array) -> Array:
    result: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return result


_erf = np.vectorize(math.erf, otypes=[np.float64])

_OPERATORS: dict[str, Callable[..., Any]] = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh": _tanh_gelu,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    **{name: lambda x, element=element: rounded(x, element).astype(np.float64) for name, element in CASTS.items()},
}
