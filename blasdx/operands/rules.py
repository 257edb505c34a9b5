"""The rules of one operand, one function each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from blasdx.elements import Element
from blasdx.operands.batches import fits_batches
from blasdx.operands.values import TMA_ALIGNMENT, Operand, OperandMiss

if TYPE_CHECKING:
    from blasdx.descriptor import Descriptor

TMA_STRIDE_LIMIT = 1 << 40
"""Bytes that a stride of a tensor map stays below (CUDA driver API, cuTensorMapEncodeTiled)."""

SHAPELESS = ("negative-stride", "arrangement", "contiguity", "leading-dimension", "batch-stride")
"""Rules without which there is no telling which bytes an operand has."""

COORDINATE_LIMIT = 1 << 31
"""Tile coordinates are signed 32-bit integers (PTX ISA 9.7.9.27.1.2); the last tile's end must still be one."""


def rank(operand: Operand) -> Iterator[OperandMiss]:
    """A matrix, with any number of batch dimensions in front."""
    if len(operand.shape) < 2:
        yield OperandMiss(
            operand.name,
            "rank",
            f"{len(operand.shape)} dimension{'s' * (len(operand.shape) != 1)}, shape {operand.shape}",
            "2, or more with batches in front",
            "Rows and columns are the last two dimensions.",
            "reshape to a matrix: a vector is one with a single row or column",
        )


def inner_dimensions(a: Operand, b: Operand) -> Iterator[OperandMiss]:
    """K is K."""
    if a.shape[-1] != b.shape[-2]:
        yield OperandMiss(
            "b",
            "shape",
            f"shape {b.shape}",
            f"{a.shape[-1]} rows",
            f"a is {a.shape[-2]} x {a.shape[-1]} (M x K), so b is {a.shape[-1]} x N (K x N).",
            "transpose or slice an operand",
        )


def result(operand: Operand, shape: tuple[int, ...], element: Element) -> Iterator[OperandMiss]:
    """out has the shape of the result, c at least goes with its batches; both have the descriptor's type."""
    right = operand.shape == shape if operand.name == "out" else _goes_with(operand.shape, shape)
    if not right:
        batched = len(shape) > 2
        why = "It is M x N: the rows of a, the columns of b"
        why += f", for the batches {shape[:-2]} that a and b have together." if batched else "."
        need = f"{shape}" + (", whose batches may be 1 or left out" if batched and operand.name == "c" else "")
        fix = f"pass an array of shape {shape}"
        yield OperandMiss(operand.name, "shape", f"shape {operand.shape}", need, why, fix)
    yield from element_type(operand, element)


def _goes_with(shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    return shape[-2:] == result[-2:] and fits_batches(shape[:-2], result[:-2])


def extents(descriptor: Descriptor, m: int, n: int, k: int, batches: int) -> Iterator[OperandMiss]:
    """Coordinates and counts of tiles fit 32 bits."""
    cluster_m, cluster_n = descriptor.blocks_per_cluster
    covered = (("a", "M", m, descriptor.m * cluster_m), ("b", "N", n, descriptor.n * cluster_n))
    for operand, name, extent, tile in (*covered, ("a", "K", k, descriptor.k)):
        if math.ceil(extent / tile) * tile >= COORDINATE_LIMIT:
            yield OperandMiss(
                operand,
                "extent",
                f"{name} = {extent:,}",
                f"at most {COORDINATE_LIMIT // tile * tile - tile:,}",
                f"Tile coordinates are signed 32-bit integers, and {name} is covered in tiles of {tile}.",
                f"split {name}",
            )
    blocks = math.prod(math.ceil(extent / tile) for _, _, extent, tile in covered)
    tiles = blocks * cluster_m * cluster_n * max(batches, 1)
    if tiles >= COORDINATE_LIMIT:
        each = f" for each of {batches:,} batches" if batches > 1 else ""
        yield OperandMiss(
            "out",
            "extent",
            f"{tiles:,} tiles of {descriptor.m} x {descriptor.n}{each}",
            f"fewer than {COORDINATE_LIMIT:,}",
            "Tiles are counted in 32 bits.",
            "split M or N" + (", or the batches" if batches > 1 else ""),
        )


def element_type(operand: Operand, element: Element) -> Iterator[OperandMiss]:
    """Exactly the descriptor's."""
    as_bytes = element.is_float and element.bits == 8 and operand.dtype == np.uint8
    # CuPy has no 8-bit floats: their bytes travel as uint8, and the descriptor says what they are.
    if operand.dtype != element.numpy_dtype and not as_bytes:
        type_name = element.numpy_dtype.name
        bits = operand.dtype.kind == "u" and operand.dtype.itemsize == element.itemsize and element.is_float
        view = f"{operand.name}.view({type_name!r}) of bits, " if bits else ""
        converted = f"{operand.name}.astype({type_name!r}), or a descriptor with the array's own type"
        yield OperandMiss(
            operand.name,
            "element-type",
            f"dtype {operand.dtype}",
            f"{element.numpy_dtype}",
            f"The kernel reads and writes {element.name} bits; nothing converts them on the way.",
            f"{view}out=None, or an array of {type_name}" if operand.name == "out" else f"{view}{converted}",
        )


def lines(operand: Operand, inside: int, order: str) -> Iterator[OperandMiss]:
    """The elements of a row (of a column, if column-major) are adjacent, and rows do not overlap."""
    if 0 in operand.shape:
        return
    outside = -3 - inside
    name, item = operand.name, operand.dtype.itemsize
    inner, outer = operand.shape[inside], operand.shape[outside]
    inner_stride, outer_stride = operand.strides[inside], operand.strides[outside]
    line = "row" if inside == -1 else "column"
    got = f"strides {operand.strides} B"
    copy = copied(name, inside)
    if (inner > 1 and inner_stride < 0) or (outer > 1 and outer_stride < 0):
        why = "A tensor map and a leading dimension only count upwards."
        yield OperandMiss(name, "negative-stride", got, "no negative stride", why, copy)
    elif inner > 1 and inner_stride != item:
        other = "row" if inside == -2 else "col"
        if outer_stride == item or outer == 1:
            yield OperandMiss(
                name,
                "arrangement",
                f"{got}: {other}-major",
                f"{order}, {item} B between the elements of a {line}",
                f"The descriptor arranges {name} {order}.",
                f"a descriptor whose Arrangement says {other!r} for {name}, or {copy}",
            )
        else:
            why = "One dimension has to be contiguous; only the other may have gaps."
            yield OperandMiss(name, "contiguity", got, f"{item} B between the elements of a {line}", why, copy)
    elif outer > 1 and outer_stride < inner * item:
        why = f"A {line} takes {inner} x {item} B = {inner * item} B, so {line}s overlap."
        yield OperandMiss(name, "leading-dimension", got, f"at least {inner * item} B between {line}s", why, copy)
    elif outer > 1 and outer_stride % item:
        why = f"A leading dimension counts whole elements of {item} B."
        yield OperandMiss(name, "leading-dimension", got, f"a multiple of {item} B", why, copy)
    else:
        steps = (stride for extent, stride in zip(operand.shape, operand.strides, strict=True) if extent > 1)
        if (longest := max(steps, default=0)) >= TMA_STRIDE_LIMIT:
            why = "The stride field of a tensor map holds 36 bits of 16-byte units."
            yield OperandMiss(name, "leading-dimension", f"{longest:,} B", "less than 2^40 B", why, copy)


def element_address(operand: Operand, inside: int) -> Iterator[OperandMiss]:
    """What loads and stores of single elements ask for."""
    item = operand.dtype.itemsize
    if 0 not in operand.shape and operand.address % item:
        yield OperandMiss(
            operand.name,
            "pointer-alignment",
            f"first element at {operand.address:#x}, {operand.address % item} B past a multiple of {item}",
            f"a multiple of {item} B",
            "An address between two elements faults.",
            copied(operand.name, inside),
        )


def tma(operand: Operand, inside: int, alignment: int) -> Iterator[OperandMiss]:
    """What a tensor map can describe."""
    if 0 in operand.shape:
        return
    outside = -3 - inside
    name, item = operand.name, operand.dtype.itemsize
    line = "row" if inside == -1 else "column"
    copy = copied(name, inside, alignment)
    if operand.address % alignment:
        yield OperandMiss(
            name,
            "pointer-alignment",
            f"first element at {operand.address:#x}, {operand.address % alignment} B past a multiple of {alignment}",
            f"a multiple of {alignment} B",
            f"The descriptor promises it, and TMA reads from addresses that are multiples of {TMA_ALIGNMENT} B.",
            f"start the view at a multiple of {alignment // item} elements, or {copy}",
        )
    stride, inner, outer = operand.strides[outside], operand.shape[inside], operand.shape[outside]
    if outer > 1 and stride % alignment:
        pitch = math.ceil(inner * item / alignment) * alignment // item
        yield OperandMiss(
            name,
            "leading-dimension-alignment",
            f"{stride} B from one {line} to the next ({stride // item} elements of {item} B)",
            f"a multiple of {alignment} B",
            f"The descriptor promises it, and TMA strides are multiples of {TMA_ALIGNMENT} B.",
            f"pad the leading dimension to {pitch} elements: {copy}",
        )


def copied(name: str, inside: int, alignment: int = TMA_ALIGNMENT) -> str:
    """What to pass instead of an array whose strides or address are wrong."""
    if name == "out":
        return "out=None, or an array of its own"
    promised = f", alignment={alignment}" if alignment > TMA_ALIGNMENT else ""
    return f"blasdx.padded({name}, {'row' if inside == -1 else 'col'!r}{promised})"
