"""The rules of a result: that it can be written, and that nothing else is written or read there meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from blasdx.operands.values import Operand, OperandMiss

SEARCH = 10_000
"""Steps after which the search for a shared byte gives up; the operands then count as overlapping."""


def alone(operands: Sequence[Operand]) -> Iterator[OperandMiss]:
    """out, where it is among them, is writable and shares memory with no input, unless it is exactly c."""
    out = next((operand for operand in operands if operand.name == "out"), None)
    if out is None:
        return
    if not out.writable:
        why = "The kernel writes its result there."
        yield OperandMiss(
            "out", "read-only", "a read-only array", "a writable one", why, "out=None, or a writable array"
        )
    for one in operands:
        name = one.name
        if one is out or (name == "c" and _same_place(one, out)):
            continue  # the thread that reads an element of c is the one that then writes it
        if overlap(one, out):
            need = "memory of its own" + (", or exactly the array c" if name == "c" else "")
            why = f"Tiles are written while others still read {name}."
            yield OperandMiss("out", "overlap", f"memory shared with {name}", need, why, "out=None, or copy the input")


def overlap(x: Operand, y: Operand) -> bool:
    """Whether two operands share a byte."""
    if not (x.address < y.address + y.span and y.address < x.address + x.span):
        return False
    try:
        return np.shares_memory(_shadow(x), _shadow(y), max_work=SEARCH)  # type: ignore[arg-type]  # its stub knows -1 and 0 only
    except np.exceptions.TooHardError:
        return True


def _shadow(operand: Operand) -> np.ndarray[Any, Any]:
    """An array with the operand's address and strides, whose elements are never looked at."""
    interface = {
        "version": 3,
        "shape": operand.shape,
        "strides": operand.strides,
        "typestr": f"|V{operand.dtype.itemsize}",
        "data": (operand.address, True),
    }
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def _same_place(x: Operand, y: Operand) -> bool:
    return (x.address, x.shape, x.dtype) == (y.address, y.shape, y.dtype) and all(
        extent == 1 or mine == other for extent, mine, other in zip(x.shape, x.strides, y.strides, strict=True)
    )


def batches_alone(out: Operand, copy: str) -> Iterator[OperandMiss]:
    """Batches of a result share no element: each stride is longer than all that lies within it."""
    dimensions = sorted((stride, extent) for extent, stride in zip(out.shape, out.strides, strict=True) if extent > 1)
    inside = out.dtype.itemsize
    for stride, extent in dimensions:
        if 0 <= stride < inside:
            why = "Each element of out belongs to one batch and is written once."
            got = f"strides {out.strides} B: steps of {stride} B over {inside} B"
            yield OperandMiss("out", "overlap", got, f"at least {inside} B", why, copy)
            return
        inside += (extent - 1) * stride
