"""What an array is to a kernel, what a checked call is, and what is wrong with one that is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from blasdx.errors import OperandError
from blasdx.operators import Order, row_major

TMA_ALIGNMENT = 16
"""Bytes that the address and the strides of a tensor map are multiples of (CUDA driver API, cuTensorMapEncodeTiled)."""


class Seen(NamedTuple):
    """All that is seen of an array except where it lies: arrays that are alike in this share one encoded launch.

    ``strides`` are bytes; ``device`` is the number of a CUDA device, None in host memory; ``library`` is the name of
    the module that made the array.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    writable: bool
    device: int | None
    library: str


@dataclass(frozen=True)
class Operand:
    """One array as a device sees it.

    Attributes
    ----------
    name : str
        "a", "b", "c", "out" or one of the epilogue's, as the caller knows it.
    shape, strides : tuple of int
        Extents, and bytes from one element to the next along each dimension; the last two are the matrix.
    dtype : numpy.dtype
    address : int
        Where element [0, ..., 0] lies; a device pointer on CUDA.
    writable : bool
    array : object
        The array itself, for the device that looked at it.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    address: int
    writable: bool = True
    array: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, name: str, address: int, seen: Seen, array: Any) -> Operand:
        """The operand at an address."""
        return cls(name, seen.shape, seen.strides, seen.dtype, address, seen.writable, array)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The dimensions in front of the matrix."""
        return self.shape[:-2]

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last one; strides are not negative."""
        if 0 in self.shape:
            return 0
        steps = ((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return sum(steps) + self.dtype.itemsize


@dataclass(frozen=True)
class OperandMiss:
    """One rule that an operand breaks.

    Attributes
    ----------
    operand : str
        Name of an operand or a number of the call: "a", "b", "c", "out", "alpha", "bias", ...
    rule : str
        A stable kebab-case id.
    got, need, why, fix : str
        What was given, what is needed, the reason, and what to change.
    """

    operand: str
    rule: str
    got: str
    need: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"  {self.operand}: {self.got}; needs {self.need}\n      {self.why}\n      fix: {self.fix}"


@dataclass(frozen=True)
class Matrix:
    """A checked operand: ``outer`` lines of ``inner`` adjacent elements, ``ld`` elements from one line to the next.

    ``steps`` are bytes from one batch to the next along each batch dimension of the product, 0 where all share one.
    """

    operand: Operand
    inner: int
    outer: int
    ld: int
    steps: tuple[int, ...] = ()

    @property
    def stride(self) -> int:
        """Bytes from one line to the next."""
        return self.ld * self.operand.dtype.itemsize


@dataclass(frozen=True)
class Product:
    """A checked call, m x n x k, for every index of ``batches``.

    ``c`` is None where it is not read. ``arrays`` are those that the epilogue reads besides, in its order, each as a
    matrix: a vector has lines of one element. ``numbers`` are those that it is given by value, by name.
    """

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix | None
    out: Matrix | None
    numbers: Mapping[str, np.float32]
    batches: tuple[int, ...] = ()
    arrays: tuple[Matrix, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self.batches, self.m, self.n)

    @property
    def alpha(self) -> np.float32:
        """The factor of the products."""
        return self.numbers["alpha"]

    @property
    def beta(self) -> np.float32:
        """The factor of C."""
        return self.numbers["beta"]

    @property
    def result(self) -> Matrix:
        """`out`, once there is one."""
        assert self.out is not None
        return self.out

    @property
    def matrices(self) -> tuple[Matrix | None, ...]:
        """a, b, c and out, then the epilogue's arrays."""
        return self.a, self.b, self.c, self.out, *self.arrays


def inner_axis(order: Order) -> int:
    """The axis, counted from the end, whose elements are adjacent."""
    return -1 if order is row_major else -2


def matrix(operand: Operand, order: Order, batches: tuple[int, ...] = ()) -> Matrix:
    """Lines, leading dimension and batch steps of an operand whose strides are known to be right."""
    inside = inner_axis(order)
    outside = -3 - inside
    inner, outer = operand.shape[inside], operand.shape[outside]
    item = operand.dtype.itemsize
    # One line has no next: whatever its stride says, take the smallest that a tensor map accepts.
    tight = math.ceil(max(inner, 1) * item / TMA_ALIGNMENT) * TMA_ALIGNMENT // item
    ld = operand.strides[outside] // item if outer > 1 and inner else tight
    own = [0 if extent == 1 else step for extent, step in zip(operand.shape, operand.strides, strict=True)][:-2]
    steps = (*(0,) * (len(batches) - len(own)), *own)
    return Matrix(operand, inner, outer, ld, steps)


def refuse(misses: Sequence[OperandMiss]) -> None:
    """Raise an `OperandError` that lists the misses, when there are any."""
    if not misses:
        return
    rules = f"{len(misses)} rule{'s' * (len(misses) > 1)}"
    text = "\n".join([f"this call breaks {rules}:", *map(str, misses)])
    raise OperandError(text, operand=misses[0].operand, misses=tuple(misses))


def reject(operand: str, rule: str, got: str, need: str, why: str, fix: str) -> NoReturn:
    """Raise an `OperandError` for one miss."""
    refuse([OperandMiss(operand, rule, got, need, why, fix)])
    raise AssertionError
