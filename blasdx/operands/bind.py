"""From arrays, seen as addresses and strides, to a checked product."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from blasdx.elements import Element
from blasdx.epilogue import DEFAULT, ArrayOperand, Epilogue
from blasdx.operands import rules
from blasdx.operands.arrays import as_matrix, element_rules, extent_rules, missing, place_rules
from blasdx.operands.arrays import bound as lines
from blasdx.operands.batches import batch_shape, batch_steps
from blasdx.operands.overlap import alone, batches_alone
from blasdx.operands.scalars import scalars
from blasdx.operands.values import Operand, OperandMiss, Product, inner_axis, matrix, refuse
from blasdx.operators import Order

if TYPE_CHECKING:
    from blasdx.descriptor import Descriptor


def bind(
    descriptor: Descriptor,
    a: Operand,
    b: Operand,
    c: Operand | None = None,
    out: Operand | None = None,
    *extra: Operand | None,
    output: Element | None = None,
    epilogue: Epilogue = DEFAULT,
    alpha: object = 1.0,
    beta: object = None,
    numbers: Mapping[str, object] | None = None,
) -> Product:
    """Check a call against the descriptor whose kernel is to serve it.

    Parameters
    ----------
    descriptor : Descriptor
        Gives element types, arrangement and the alignment that a and b promise.
    a, b, c, out : Operand
        (..., m, k), (..., k, n), (..., m, n), (..., m, n), where the batches of a, b and c broadcast to those of out; c
        and out may be left out, and may be the same array.
    *extra : Operand
        What the epilogue reads besides, in the order of its ``arrays``.
    output : Element, optional
        Element type of out, and of c where the epilogue declares no other; the descriptor's C type when left out.
    epilogue : Epilogue
    alpha, beta : real number
        Rounded to f32. beta is 0 when c is left out, and has to be given when it is not.
    numbers : mapping
        The epilogue's other numbers by value, by name.

    Raises
    ------
    OperandError
        With every rule that the call breaks in ``misses``.
    """
    operands = [operand for operand in (a, b, c, out) if operand is not None]
    refuse([miss for operand in operands for miss in rules.rank(operand)])
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    batches, misses = batch_shape(a, b)
    result = (*batches, m, n)
    misses = [*rules.inner_dimensions(a, b), *misses, *rules.extents(descriptor, m, n, k, math.prod(batches))]

    order, element = descriptor.arrangement, output or descriptor.c_value_type
    roles = {
        "a": (descriptor.a_value_type, order.a, descriptor.alignment.a),
        "b": (descriptor.b_value_type, order.b, descriptor.alignment.b),
        "c": (epilogue.c_element(element), order.c, None),
        "out": (element, order.c, None),
    }
    placed: list[Operand] = []
    for operand in operands:
        known, its_order, alignment = roles[operand.name]
        misses += rules.element_type(operand, known) if alignment else rules.result(operand, result, known)
        wrong_place = list(_place(operand, its_order, alignment))
        misses += wrong_place
        if not any(miss.rule in rules.SHAPELESS for miss in wrong_place):
            placed.append(operand)
    added = []
    for array, given in zip(epilogue.arrays, extra or (None,) * len(epilogue.arrays), strict=True):
        wrong = list(_array(given, array, epilogue, {"m": m, "n": n}, batches, order.c))
        misses += wrong
        if given is not None and not wrong:
            added.append(as_matrix(given, array))
    misses += alone([*placed, *added])
    values, wrong = scalars(epilogue, c, alpha, beta, numbers or {})
    refuse([*misses, *wrong])
    bound = {operand.name: matrix(operand, roles[operand.name][1], batches) for operand in operands}
    c_read = bound.get("c") if values["beta"] or not epilogue.scales_c else None
    arrays = tuple(lines(one, array, batches, order.c) for one, array in zip(added, epilogue.arrays, strict=True))
    return Product(m, n, k, bound["a"], bound["b"], c_read, bound.get("out"), values, batches, arrays)


def _array(
    operand: Operand | None,
    array: ArrayOperand,
    epilogue: Epilogue,
    extents: dict[str, int],
    batches: tuple[int, ...],
    order: Order,
) -> Iterator[OperandMiss]:
    """An array of the epilogue."""
    if operand is None:
        yield missing(array, epilogue.expression)
        return
    wrong_shape = list(extent_rules(operand, array, extents, batches))
    yield from wrong_shape
    yield from element_rules(operand, array)
    if not wrong_shape:
        yield from place_rules(operand, array, order)


def _place(operand: Operand, order: Order, alignment: int | None) -> Iterator[OperandMiss]:
    """Where the elements lie; ``alignment`` is what a and b promise, for TMA."""
    if 0 in operand.shape:
        return
    inside = inner_axis(order)
    if strides := list(rules.lines(operand, inside, str(order))):
        yield from strides
        return
    yield from rules.tma(operand, inside, alignment) if alignment else rules.element_address(operand, inside)
    copy = rules.copied(operand.name, inside, alignment or 0)
    yield from batch_steps(operand, alignment or operand.dtype.itemsize, copy)
    if operand.name == "out":
        yield from batches_alone(operand, copy)
