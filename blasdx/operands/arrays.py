"""The rules of what an epilogue reads besides C: vectors along the rows or columns of C, matrices, single numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from blasdx.epilogue import ArrayOperand
from blasdx.operands import rules
from blasdx.operands.batches import batch_steps, fits_batches
from blasdx.operands.values import Matrix, Operand, OperandMiss, inner_axis
from blasdx.operators import Order


def missing(array: ArrayOperand, expression: str) -> OperandMiss:
    """The miss of one that was left out."""
    need = f"{array.element}, {_shape_text(array)}"
    return OperandMiss(
        array.name, "missing", "nothing", need, f"out = {expression} reads it.", f"pass {array.name}=..."
    )


def extent_rules(
    operand: Operand, array: ArrayOperand, extents: dict[str, int], batches: tuple[int, ...]
) -> Iterator[OperandMiss]:
    """Its shape is that of its axes, with batches in front that go with the product's."""
    wanted = tuple(extents[axis] for axis in array.axes)
    inside = len(operand.shape) - len(wanted)
    if inside < 0 or operand.shape[inside:] != wanted or not _fits(operand.shape[:inside], batches, array):
        got = f"shape {operand.shape}"
        need = f"shape {wanted}" + (f", with batches in front that go with {batches}" if batches else "")
        why = f"{array} has {_shape_text(array)}."
        yield OperandMiss(operand.name, "shape", got, need, why, f"reshape {operand.name} to {wanted}")


def element_rules(operand: Operand, array: ArrayOperand) -> Iterator[OperandMiss]:
    """Its elements are of the type that the epilogue declares."""
    for miss in rules.element_type(operand, array.element):
        own = f"another Epilogue(..., {array.name}=...)"
        yield replace(miss, fix=miss.fix.replace("a descriptor with the array's own type", own))


def place_rules(operand: Operand, array: ArrayOperand, order: Order) -> Iterator[OperandMiss]:
    """Strides and addresses are whole elements; a matrix lies as C does."""
    if 0 in operand.shape:
        return
    item, inside = operand.dtype.itemsize, inner_axis(order)
    if len(array.axes) == 2:
        if strides := list(rules.lines(operand, inside, str(order))):
            yield from strides
            return
        copy = rules.copied(operand.name, inside, 0)
    else:
        copy = f"{operand.name}.copy()"
        stride = operand.strides[-1] if array.axes and operand.shape[-1] > 1 else 0
        if stride < 0 or stride % item:
            rule, need = (
                ("negative-stride", "no negative stride") if stride < 0 else ("contiguity", f"a multiple of {item} B")
            )
            why = "A step counts whole elements, upwards."
            yield OperandMiss(operand.name, rule, f"{stride} B from one element to the next", need, why, copy)
    yield from rules.element_address(operand, inside)
    yield from batch_steps(as_matrix(operand, array), item, copy)


def as_matrix(operand: Operand, array: ArrayOperand) -> Operand:
    """The same memory with two dimensions behind the batches: a vector along m is a column, one along n a row."""
    if len(array.axes) == 2:
        return operand
    item = operand.dtype.itemsize
    inside = len(operand.shape) - len(array.axes)
    batches, between = operand.shape[:inside], operand.strides[:inside]
    if not array.axes and set(batches) <= {1}:  # one number for all, however many dimensions it was given
        batches, between = (), ()
    if array.axes == ("m",):
        return replace(operand, shape=(*batches, operand.shape[-1], 1), strides=(*between, operand.strides[-1], item))
    if array.axes == ("n",):
        return replace(operand, shape=(*batches, 1, operand.shape[-1]), strides=(*between, item, operand.strides[-1]))
    return replace(operand, shape=(*batches, 1, 1), strides=(*between, item, item))


def bound(operand: Operand, array: ArrayOperand, batches: tuple[int, ...], order: Order) -> Matrix:
    """A checked array as lines: ``ld`` is the step from one element of a vector to the next."""
    item = operand.dtype.itemsize
    across = -1 if array.axes == ("m",) else -2
    inside = inner_axis(order) if len(array.axes) == 2 else across
    outside = -3 - inside
    inner, outer = operand.shape[inside], operand.shape[outside]
    ld = operand.strides[outside] // item if outer > 1 else inner
    own = [0 if extent == 1 else step for extent, step in zip(operand.shape, operand.strides, strict=True)][:-2]
    return Matrix(operand, inner, outer, ld, (*(0,) * (len(batches) - len(own)), *own))


def _fits(shape: tuple[int, ...], batches: tuple[int, ...], array: ArrayOperand) -> bool:
    return fits_batches(shape, batches) or (not array.axes and set(shape) <= {1})


def _shape_text(array: ArrayOperand) -> str:
    return {
        (): "one element",
        ("m",): "one element for each row of C",
        ("n",): "one element for each column of C",
        ("m", "n"): "one element for each of C, and lies as C does",
    }[array.axes]
