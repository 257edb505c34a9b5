"""Batches: which operands share them, and how few launches walk over them.

A kernel walks over batches that lie one step apart in each operand. Several batch dimensions become one where every
operand's steps agree with that; the others cost a launch for each of their indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from blasdx.operands.values import Operand, OperandMiss, Product

OUT = 3
"""The slot of out among a product's matrices."""


@dataclass(frozen=True)
class Walk:
    """``count`` batches in one launch, and one launch for each index of ``extents``.

    ``steps`` are the bytes between the batches of a launch, ``outer`` those along each of ``extents``, for the operands
    in the order of `Product.matrices`.
    """

    count: int
    steps: tuple[int, ...]
    extents: tuple[int, ...] = ()
    outer: tuple[tuple[int, ...], ...] = ((),) * 4

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """The bytes by which each launch's operands lie behind those of the first."""
        for index in product(*map(range, self.extents)):
            yield tuple(sum(i * step for i, step in zip(index, steps, strict=True)) for steps in self.outer)


def walk(checked: Product) -> Walk:
    """Collapse the batch dimensions of a product; the longest that is left goes into the launch."""
    steps = [(0,) * len(checked.batches) if one is None else one.steps for one in checked.matrices]
    dimensions = [
        (extent, along) for extent, along in zip(checked.batches, zip(*steps, strict=True), strict=True) if extent > 1
    ]
    dimensions.sort(key=lambda dimension: dimension[1][OUT], reverse=True)  # as they lie in out
    merged: list[tuple[int, tuple[int, ...]]] = []
    for extent, along in dimensions:
        if merged and merged[-1][1] == tuple(step * extent for step in along):
            extent *= merged.pop()[0]
        merged.append((extent, along))
    merged.sort(key=lambda dimension: dimension[0])
    count, inside = merged.pop() if merged else (1, (0,) * len(steps))
    extents = tuple(extent for extent, _ in merged)
    outer = tuple(tuple(along[slot] for _, along in merged) for slot in range(len(steps)))
    return Walk(count, inside, extents, outer)


def batch_shape(a: Operand, b: Operand) -> tuple[tuple[int, ...], list[OperandMiss]]:
    """The batches of a product, by the broadcasting rules of NumPy, and what is wrong with them."""
    try:
        return np.broadcast_shapes(a.batch_shape, b.batch_shape), []
    except ValueError:
        miss = OperandMiss(
            "b",
            "batch",
            f"batches {b.batch_shape} in shape {b.shape}",
            f"batches that go with {a.batch_shape}",
            f"a has shape {a.shape}; batch extents are equal, or one of them is 1 and serves all.",
            "slice an operand, or give it a batch extent of 1",
        )
        return a.batch_shape, [miss]


def batch_steps(operand: Operand, alignment: int, copy: str) -> Iterator[OperandMiss]:
    """Batches lie in ascending order, and each begins where the first one may."""
    item = operand.dtype.itemsize
    for extent, step in zip(operand.batch_shape, operand.strides[:-2], strict=True):
        if extent < 2:
            continue
        got = f"{step} B from one batch to the next"
        if step < 0:
            why = "A tensor map only counts upwards."
            yield OperandMiss(operand.name, "negative-stride", got, "no negative stride", why, copy)
        elif step % alignment:
            what = f"{item} B element" if alignment == item else f"{alignment} B that the first is promised to lie at"
            why = f"Every batch begins at a multiple of the {what}."
            yield OperandMiss(operand.name, "batch-stride", got, f"a multiple of {alignment} B", why, copy)


def fits_batches(shape: Sequence[int], batches: tuple[int, ...]) -> bool:
    """Whether an operand with these batch extents serves all batches of the product."""
    try:
        return np.broadcast_shapes(tuple(shape), batches) == batches
    except ValueError:
        return False
