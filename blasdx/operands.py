"""Operands: what a kernel is called with, checked before anything is launched.

`bind` turns arrays, seen as addresses and strides, into the numbers of a launch, or raises one `OperandError` that
lists everything that is wrong with the call. It needs no device and touches no array.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from blasdx.elements import Element
from blasdx.errors import OperandError
from blasdx.operators import Order, row_major

if TYPE_CHECKING:
    from blasdx.descriptor import Descriptor

TMA_ALIGNMENT = 16
"""Bytes that the address and the strides of a tensor map are multiples of (CUDA driver API, cuTensorMapEncodeTiled)."""

TMA_STRIDE_LIMIT = 1 << 40
"""Bytes that a stride of a tensor map stays below (same source)."""

COORDINATE_LIMIT = 1 << 31
"""Tile coordinates are signed 32-bit integers (PTX ISA 9.7.9.27.1.2); the last tile's end must still be one."""

F32_MIN, F32_MAX = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Operand:
    """One array as a device sees it.

    Attributes
    ----------
    name : str
        "a", "b", "c" or "out", as the caller knows it.
    shape, strides : tuple of int
        Extents, and bytes from one element to the next along each dimension.
    dtype : numpy.dtype
    address : int
        Where element [0, 0] lies; a device pointer on CUDA.
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


@dataclass(frozen=True)
class OperandMiss:
    """One rule that an operand breaks.

    Attributes
    ----------
    operand : str
        "a", "b", "c", "out", "alpha" or "beta".
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
    """A checked operand: ``outer`` lines of ``inner`` adjacent elements, ``ld`` elements from one line to the next."""

    operand: Operand
    inner: int
    outer: int
    ld: int

    @property
    def width(self) -> int:
        """Bytes of one line."""
        return self.inner * self.operand.dtype.itemsize

    @property
    def stride(self) -> int:
        """Bytes from one line to the next."""
        return self.ld * self.operand.dtype.itemsize

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last one."""
        return (self.outer - 1) * self.stride + self.width if self.outer and self.inner else 0


@dataclass(frozen=True)
class Product:
    """A checked call: out = alpha * a @ b + beta * c, m x n x k. ``c`` is None where beta is zero."""

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix | None
    out: Matrix | None
    alpha: np.float32
    beta: np.float32

    @property
    def result(self) -> Matrix:
        """`out`, once there is one."""
        assert self.out is not None
        return self.out


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
        (m, k), (k, n), (m, n), (m, n); c and out may be left out, and may be the same array.
    output : Element, optional
        Element type of c and out; the descriptor's C type when left out.
    alpha, beta : real number
        Rounded to f32. beta is 0 when c is left out, and has to be given when it is not.

    Raises
    ------
    OperandError
        With every rule that the call breaks in ``misses``.
    """
    matrices = [operand for operand in (a, b, c, out) if operand is not None]
    refuse([miss for operand in matrices for miss in _rank(operand)])
    m, n, k = a.shape[0], b.shape[1], a.shape[1]
    arrangement = descriptor.arrangement

    misses = [*_inner_dimensions(a, b), *_extents(descriptor, m, n, k)]
    checks = (
        (a, (m, k), descriptor.a_value_type, arrangement.a, descriptor.alignment.a),
        (b, (b.shape[0], n), descriptor.b_value_type, arrangement.b, descriptor.alignment.b),
        (c, (m, n), output or descriptor.c_value_type, arrangement.c, None),
        (out, (m, n), output or descriptor.c_value_type, arrangement.c, None),
    )
    bound: dict[str, Matrix] = {}
    for operand, shape, element, order, alignment in checks:
        if operand is None:
            continue
        inner_axis = _inner_axis(order)
        misses += [*_shape(operand, shape), *_dtype(operand, element)]
        if strides := list(_strides(operand, inner_axis, str(order))):
            misses += strides
            continue
        misses += _element_address(operand, inner_axis) if alignment is None else _tma(operand, inner_axis, alignment)
        bound[operand.name] = matrix(operand, order)
    if "out" in bound:
        misses += _output(bound["out"], [bound[name] for name in ("a", "b", "c") if name in bound])
    scalars, wrong = _scalars(c, alpha, beta)
    refuse([*misses, *wrong])
    return Product(m, n, k, bound["a"], bound["b"], bound.get("c") if scalars[1] else None, bound.get("out"), *scalars)


def padded(array: Any, order: object = row_major, *, alignment: int = TMA_ALIGNMENT, namespace: Any = None) -> Any:
    """A copy in the given order, whose first element and rows (columns, if column-major) lie as TMA needs them.

    Parameters
    ----------
    array : array
        (rows, columns), with any strides.
    order : Order or {"row", "col"}
    alignment : int
        Bytes of which the address and the leading dimension are multiples: 16, or what the descriptor promises.
    namespace : module
        numpy or cupy, whose ``empty`` makes the buffer; the array's own when left out.
    """
    module = namespace or sys.modules[type(array).__module__.partition(".")[0]]
    rows, columns = array.shape
    by_rows = str(order).startswith("row")
    inner, outer = (columns, rows) if by_rows else (rows, columns)
    step = max(alignment // array.dtype.itemsize, 1)
    pitch = math.ceil(inner / step) * step
    buffer = module.empty(outer * pitch + step, dtype=array.dtype)
    first = -_address(buffer) % alignment // array.dtype.itemsize
    lines = buffer[first : first + outer * pitch].reshape(outer, pitch)[:, :inner]
    copy = lines if by_rows else lines.T
    copy[...] = array
    return copy


def _address(array: Any) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


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


# ---- one rule each --------------------------------------------------------------------------------------------------


def _rank(operand: Operand) -> Iterator[OperandMiss]:
    if len(operand.shape) != 2:
        yield OperandMiss(
            operand.name,
            "rank",
            f"{len(operand.shape)} dimensions, shape {operand.shape}",
            "2",
            "One call is one matrix product; batches are not supported so far.",
            "reshape to a matrix, or loop over the batch",
        )


def _inner_dimensions(a: Operand, b: Operand) -> Iterator[OperandMiss]:
    if a.shape[1] != b.shape[0]:
        yield OperandMiss(
            "b",
            "shape",
            f"shape {b.shape}",
            f"{a.shape[1]} rows",
            f"a is {a.shape[0]} x {a.shape[1]} (M x K), so b is {a.shape[1]} x N (K x N).",
            "transpose or slice an operand",
        )


def _shape(operand: Operand, shape: tuple[int, int]) -> Iterator[OperandMiss]:
    if operand.shape != shape:
        yield OperandMiss(
            operand.name,
            "shape",
            f"shape {operand.shape}",
            f"{shape}",
            "It is M x N: the rows of a, the columns of b.",
            f"pass an array of shape {shape}",
        )


def _extents(descriptor: Descriptor, m: int, n: int, k: int) -> Iterator[OperandMiss]:
    for operand, name, extent, tile in (
        ("a", "M", m, descriptor.m),
        ("b", "N", n, descriptor.n),
        ("a", "K", k, descriptor.k),
    ):
        if math.ceil(extent / tile) * tile >= COORDINATE_LIMIT:
            yield OperandMiss(
                operand,
                "extent",
                f"{name} = {extent:,}",
                f"at most {COORDINATE_LIMIT // tile * tile - tile:,}",
                f"Tile coordinates are signed 32-bit integers, and {name} is covered in tiles of {tile}.",
                f"split {name}",
            )
    tiles = math.ceil(m / descriptor.m) * math.ceil(n / descriptor.n)
    if tiles >= COORDINATE_LIMIT:
        yield OperandMiss(
            "out",
            "extent",
            f"{tiles:,} tiles of {descriptor.m} x {descriptor.n}",
            f"fewer than {COORDINATE_LIMIT:,}",
            "Tiles are counted in 32 bits.",
            "split M or N",
        )


def _dtype(operand: Operand, element: Element) -> Iterator[OperandMiss]:
    as_bytes = element.is_float and element.bits == 8 and operand.dtype == np.uint8
    # CuPy has no 8-bit floats: their bytes travel as uint8, and the descriptor says what they are.
    if operand.dtype != element.numpy_dtype and not as_bytes:
        type_name = element.numpy_dtype.name
        bits = operand.dtype.kind == "u" and operand.dtype.itemsize == element.itemsize and element.is_float
        view = f"{operand.name}.view({type_name!r}) of bits, " if bits else ""
        yield OperandMiss(
            operand.name,
            "element-type",
            f"dtype {operand.dtype}",
            f"{element.numpy_dtype}",
            f"The kernel reads and writes {element.name} bits; nothing converts them on the way.",
            f"{view}{operand.name}.astype({type_name!r}), or a descriptor with the array's own type",
        )


def _strides(operand: Operand, inner_axis: int, order: str) -> Iterator[OperandMiss]:
    """The elements of a row (of a column, if column-major) are adjacent, and rows do not overlap."""
    if 0 in operand.shape:
        return
    name, item = operand.name, operand.dtype.itemsize
    inner, outer = operand.shape[inner_axis], operand.shape[1 - inner_axis]
    inner_stride, outer_stride = operand.strides[inner_axis], operand.strides[1 - inner_axis]
    line = "row" if inner_axis else "column"
    got = f"strides {operand.strides} B"
    copy = _copied(name, inner_axis)
    if (inner > 1 and inner_stride < 0) or (outer > 1 and outer_stride < 0):
        why = "A tensor map and a leading dimension only count upwards."
        yield OperandMiss(name, "negative-stride", got, "no negative stride", why, copy)
    elif inner > 1 and inner_stride != item:
        other = "col" if inner_axis else "row"
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


def _element_address(operand: Operand, inner_axis: int) -> Iterator[OperandMiss]:
    """What loads and stores of single elements ask for."""
    item = operand.dtype.itemsize
    if 0 not in operand.shape and operand.address % item:
        yield OperandMiss(
            operand.name,
            "pointer-alignment",
            f"first element at {operand.address:#x}, {operand.address % item} B past a multiple of {item}",
            f"a multiple of {item} B",
            "An address between two elements faults.",
            _copied(operand.name, inner_axis),
        )


def _tma(operand: Operand, inner_axis: int, alignment: int) -> Iterator[OperandMiss]:
    """What a tensor map can describe."""
    if 0 in operand.shape:
        return
    name, item = operand.name, operand.dtype.itemsize
    line = "row" if inner_axis else "column"
    if operand.address % alignment:
        yield OperandMiss(
            name,
            "pointer-alignment",
            f"first element at {operand.address:#x}, {operand.address % alignment} B past a multiple of {alignment}",
            f"a multiple of {alignment} B",
            f"The descriptor promises it, and TMA reads from addresses that are multiples of {TMA_ALIGNMENT} B.",
            f"start the view at a multiple of {alignment // item} elements, or {_copied(name, inner_axis, alignment)}",
        )
    stride, inner, outer = operand.strides[1 - inner_axis], operand.shape[inner_axis], operand.shape[1 - inner_axis]
    if outer > 1 and stride % alignment:
        pitch = math.ceil(inner * item / alignment) * alignment // item
        yield OperandMiss(
            name,
            "leading-dimension-alignment",
            f"{stride} B from one {line} to the next ({stride // item} elements of {item} B)",
            f"a multiple of {alignment} B",
            f"The descriptor promises it, and TMA strides are multiples of {TMA_ALIGNMENT} B.",
            f"pad the leading dimension to {pitch} elements: {_copied(name, inner_axis, alignment)}",
        )
    if outer > 1 and stride >= TMA_STRIDE_LIMIT:
        why = "The stride field of a tensor map holds 36 bits of 16-byte units."
        yield OperandMiss(
            name, "leading-dimension", f"{stride:,} B", "less than 2^40 B", why, _copied(name, inner_axis)
        )


def _copied(name: str, inner_axis: int, alignment: int = TMA_ALIGNMENT) -> str:
    """What to pass instead of an array whose strides or address are wrong."""
    if name == "out":
        return "out=None, or an array of its own"
    promised = f", alignment={alignment}" if alignment > TMA_ALIGNMENT else ""
    return f"blasdx.padded({name}, {'row' if inner_axis else 'col'!r}{promised})"


def _output(out: Matrix, inputs: Sequence[Matrix]) -> Iterator[OperandMiss]:
    if not out.operand.writable:
        why = "The kernel writes its result there."
        yield OperandMiss(
            "out", "read-only", "a read-only array", "a writable one", why, "out=None, or a writable array"
        )
    for matrix in inputs:
        name = matrix.operand.name
        if name == "c" and _same_place(matrix, out):
            continue  # the thread that reads an element of c is the one that then writes it
        if _overlap(matrix, out):
            need = "memory of its own" + (", or exactly the array c" if name == "c" else "")
            why = f"Tiles are written while others still read {name}."
            yield OperandMiss("out", "overlap", f"memory shared with {name}", need, why, "out=None, or copy the input")


def _scalars(c: Operand | None, alpha: object, beta: object) -> tuple[list[np.float32], list[OperandMiss]]:
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


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def matrix(operand: Operand, order: Order) -> Matrix:
    """Lines and leading dimension of an operand whose strides are known to be right."""
    axis = _inner_axis(order)
    inner, outer = operand.shape[axis], operand.shape[1 - axis]
    item = operand.dtype.itemsize
    # One line has no next: whatever its stride says, take the smallest that a tensor map accepts.
    tight = math.ceil(max(inner, 1) * item / TMA_ALIGNMENT) * TMA_ALIGNMENT // item
    ld = operand.strides[1 - axis] // item if outer > 1 and inner else tight
    return Matrix(operand, inner, outer, ld)


def _inner_axis(order: Order) -> int:
    return 1 if order is row_major else 0


def _same_place(x: Matrix, y: Matrix) -> bool:
    return (x.operand.address, x.inner, x.outer, x.ld) == (y.operand.address, y.inner, y.outer, y.ld)


def _overlap(x: Matrix, y: Matrix) -> bool:
    """Whether two matrices share a byte; where their leading dimensions differ, whether their spans meet."""
    first, second = sorted((x, y), key=lambda matrix: matrix.operand.address)
    distance = second.operand.address - first.operand.address
    if not (first.span and second.span) or distance >= first.span:
        return False
    strides = {matrix.stride for matrix in (first, second) if matrix.outer > 1}
    if len(strides) != 1:
        return True
    # Both are bands of one wider matrix, so that their places within its lines decide.
    (stride,) = strides
    place = distance % stride
    return place < first.width or place + second.width > stride
