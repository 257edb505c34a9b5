"""From arrays, seen as addresses and strides, to a checked product."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from blasdx.elements import Element
from blasdx.operands import rules
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
    *,
    output: Element | None = None,
    alpha: object = 1.0,
    beta: object = None,
) -> Product:
    """Check a call against the descriptor whose kernel is to serve it.

    Parameters
    ----------
    descriptor : Descriptor
        Gives element types, arrangement and the alignment that a and b promise.
    a, b, c, out : Operand
        (..., m, k), (..., k, n), (..., m, n), (..., m, n), where the batches of a, b and c broadcast to those of out; c
        and out may be left out, and may be the same array.
    output : Element, optional
        Element type of c and out; the descriptor's C type when left out.
    alpha, beta : real number
        Rounded to f32. beta is 0 when c is left out, and has to be given when it is not.

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
        "c": (element, order.c, None),
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
    misses += alone(placed)
    values, wrong = scalars(c, alpha, beta)
    refuse([*misses, *wrong])
    bound = {operand.name: matrix(operand, roles[operand.name][1], batches) for operand in operands}
    alpha_f32, beta_f32 = values
    c_read = bound.get("c") if beta_f32 else None
    return Product(m, n, k, bound["a"], bound["b"], c_read, bound.get("out"), alpha_f32, beta_f32, batches)


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
