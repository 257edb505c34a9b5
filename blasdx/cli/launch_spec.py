"""A launch as a JSON document: what ``blasdx emulate`` runs.

The document names buffers of global memory with their first contents, the kernel's parameters in the order of its PTX,
and what becomes of the buffers afterwards. ``blasdx emulate --schema`` prints its JSON schema; docs/emulator.md has an
example of each kind of parameter.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from blasdx.elements import Element

DType = Literal[
    "f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"
]  # fmt: skip
Extent = Annotated[int, Field(ge=1, le=1 << 31)]
Dim3 = Annotated[tuple[Extent, ...], Field(min_length=1, max_length=3)]

LARGEST_BUFFER = 1 << 32  # bytes; a slip of the keyboard should not ask the host for a terabyte


class _Part(BaseModel):
    """Frozen, and strict about names: a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _fits(value: float, dtype: DType) -> None:
    """Refuse a number that an element type cannot take."""
    element = Element.of(dtype)
    if element.is_float:
        return
    low, high = (
        (-(1 << element.bits - 1), (1 << element.bits - 1) - 1) if element.is_signed else (0, (1 << element.bits) - 1)
    )
    if value != int(value) or not low <= value <= high:
        raise ValueError(f"{value} is no {dtype}, which holds the integers {low} to {high}")


class Ints(_Part):
    """Random integers, both ends included: ``numpy.random.default_rng(seed)``."""

    kind: Literal["ints"]
    low: int
    high: int
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        return self

    def values(self, dtype: DType, shape: tuple[int, ...], folder: Path) -> np.ndarray[Any, Any]:
        """The elements."""
        del folder
        _fits(self.low, dtype)
        _fits(self.high, dtype)
        drawn = np.random.default_rng(self.seed).integers(self.low, self.high, shape, endpoint=True)
        return drawn.astype(Element.of(dtype).numpy_dtype)


class Normal(_Part):
    """Normal numbers of mean 0 and deviation 1, rounded to the element type."""

    kind: Literal["normal"]
    seed: Annotated[int, Field(ge=0)] = 0

    def values(self, dtype: DType, shape: tuple[int, ...], folder: Path) -> np.ndarray[Any, Any]:
        """The elements."""
        del folder
        if not Element.of(dtype).is_float:
            raise ValueError(f"normal numbers are for floating-point types, not {dtype}")
        return np.random.default_rng(self.seed).standard_normal(shape).astype(Element.of(dtype).numpy_dtype)


class Fill(_Part):
    """One value everywhere."""

    kind: Literal["fill"]
    value: float | int = 0

    def values(self, dtype: DType, shape: tuple[int, ...], folder: Path) -> np.ndarray[Any, Any]:
        """The elements."""
        del folder
        _fits(self.value, dtype)
        return np.full(shape, self.value, Element.of(dtype).numpy_dtype)


class Npy(_Part):
    """A ``.npy`` file of exactly this shape and element type; paths are relative to the document.

    NumPy stores the types of ml_dtypes as opaque bytes (``V1``, ``V2``), which are taken for what `dtype` says.
    """

    kind: Literal["npy"]
    path: str

    def values(self, dtype: DType, shape: tuple[int, ...], folder: Path) -> np.ndarray[Any, Any]:
        """The elements."""
        return load_array(folder / self.path, dtype, shape)


Init = Annotated[Ints | Normal | Fill | Npy, Field(discriminator="kind")]


class BufferSpec(_Part):
    """An allocation in global memory.

    Attributes
    ----------
    dtype, shape
        Of the elements; tf32 is stored as f32. Packed 4- and 6-bit elements and scale factors are ``u8``.
    strides : optional
        In elements, one a dimension, not negative; row-major without gaps when left out.
    bytes : optional
        Size of the allocation when it is larger than the elements reach.
    init
        First contents. Bytes between and behind the elements are zero.
    """

    dtype: DType
    shape: Annotated[tuple[Extent, ...], Field(min_length=1, max_length=8)]
    strides: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    bytes: Annotated[int, Field(ge=1)] | None = None
    init: Init = Fill(kind="fill", value=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise ValueError(f"{len(self.strides)} strides for {len(self.shape)} dimensions")
        if self.bytes is not None and self.bytes < self.reach:
            raise ValueError(f"the elements reach {self.reach} bytes far, bytes = {self.bytes}")
        # Strides of 0 make elements that take no memory of their own, but the host holds them all for a while.
        held = prod(self.shape) * Element.of(self.dtype).itemsize
        if max(self.nbytes, held) > LARGEST_BUFFER:
            raise ValueError(f"{max(self.nbytes, held)} bytes; at most {LARGEST_BUFFER} are served")
        return self

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Strides in elements."""
        if self.strides is not None:
            return self.strides
        steps = [1]
        for extent in self.shape[:0:-1]:
            steps.append(steps[-1] * extent)
        return tuple(reversed(steps))

    @property
    def reach(self) -> int:
        """Bytes from the first element to the end of the last."""
        last = sum((extent - 1) * step for extent, step in zip(self.shape, self.element_strides, strict=True))
        return (last + 1) * Element.of(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the allocation."""
        return self.reach if self.bytes is None else self.bytes

    def elements(self, memory: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, Any]:
        """The elements as a view of the allocation's bytes."""
        dtype = Element.of(self.dtype).numpy_dtype
        strides = tuple(step * dtype.itemsize for step in self.element_strides)
        return np.ndarray(self.shape, dtype, memory.data, 0, strides)

    def contents(self, folder: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The allocation's first bytes."""
        memory = np.zeros(self.nbytes, np.uint8)
        self.elements(memory)[...] = self.init.values(self.dtype, self.shape, folder)
        return memory


class Pointer(_Part):
    """The address of a buffer, `offset` bytes behind its start; 8 bytes."""

    kind: Literal["pointer"]
    buffer: str
    offset: int = 0


class Null(_Part):
    """A null pointer; 8 bytes."""

    kind: Literal["null"]


class Scalar(_Part):
    """A number by value, as wide as its type."""

    kind: Literal["scalar"]
    dtype: DType
    value: float | int

    @model_validator(mode="after")
    def _representable(self) -> Self:
        _fits(self.value, self.dtype)
        return self

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return np.array(self.value).astype(Element.of(self.dtype).numpy_dtype).tobytes()


class TensorMapSpec(_Part):
    """A tensor map by value; 128 bytes. The arguments are those of cuTensorMapEncodeTiled.

    `dims` and `strides_bytes` are the buffer's own when left out: its dimensions from the innermost, which is dense.
    """

    kind: Literal["tensor_map"]
    buffer: str
    box: tuple[int, ...]
    dtype: str | None = None
    dims: tuple[int, ...] | None = None
    strides_bytes: tuple[int, ...] | None = None
    element_strides: tuple[int, ...] | None = None
    swizzle: str = "none"
    interleave: str = "none"
    oob_fill: str = "zero"
    offset: int = 0


class FixUp(_Part):
    """A pointer, number or tensor map inside raw bytes, `at` bytes behind their start."""

    at: Annotated[int, Field(ge=0)]
    value: Annotated[Pointer | Null | Scalar | TensorMapSpec, Field(discriminator="kind")]


class Raw(_Part):
    """Bytes as they are, for structs by value; addresses are put into them afterwards."""

    kind: Literal["bytes"]
    hex: str
    fixups: tuple[FixUp, ...] = ()

    @field_validator("hex")
    @classmethod
    def _hexadecimal(cls, text: str) -> str:
        bytes.fromhex(text)
        return text


Parameter = Annotated[Pointer | Null | Scalar | TensorMapSpec | Raw, Field(discriminator="kind")]


class Output(_Part):
    """What becomes of a buffer's elements: written to `path`, compared with `expected`, or both.

    An element is right when ``|got - expected| <= atol + rtol * |expected|``, or when both are NaN.
    """

    buffer: str
    path: str | None = None
    expected: str | None = None
    rtol: Annotated[float, Field(ge=0)] = 0.0
    atol: Annotated[float, Field(ge=0)] = 0.0


class LaunchSpec(_Part):
    """A launch.

    Attributes
    ----------
    entry : optional
        The kernel; needed when the module has more than one.
    grid, block, cluster
        CTAs, threads and CTAs, one to three extents each.
    dynamic_smem
        Dynamic shared memory in bytes.
    buffers, parameters, outputs
        Parameters in the order of the PTX, one for each.
    names : optional
        Names for messages and the trace: ``{"warp 4": "mma", "mbarrier 0x400": "full[0]"}``.
    """

    entry: str | None = None
    grid: Dim3
    block: Dim3
    cluster: Dim3 = (1, 1, 1)
    dynamic_smem: Annotated[int, Field(ge=0)] = 0
    buffers: dict[str, BufferSpec] = {}
    parameters: tuple[Parameter, ...]
    outputs: tuple[Output, ...] = ()
    names: dict[str, str] = {}

    @model_validator(mode="after")
    def _known_buffers(self) -> Self:
        for index, parameter in enumerate(self.parameters):
            self._check(f"parameter {index}", parameter)
            for fixup in parameter.fixups if isinstance(parameter, Raw) else ():
                self._check(f"parameter {index}, fix-up at {fixup.at}", fixup.value)
        for output in self.outputs:
            self._buffer("an output", output.buffer)
        return self

    def _check(self, where: str, parameter: Pointer | Null | Scalar | TensorMapSpec | Raw) -> None:
        if isinstance(parameter, (Pointer, TensorMapSpec)):
            size = self._buffer(where, parameter.buffer).nbytes
            if not 0 <= parameter.offset <= size:
                raise ValueError(
                    f"{where}: offset {parameter.offset} is outside buffer {parameter.buffer} of {size} bytes"
                )

    def _buffer(self, where: str, name: str) -> BufferSpec:
        if name not in self.buffers:
            raise ValueError(f"{where} names buffer {name!r}; there are: {', '.join(self.buffers) or 'none'}")
        return self.buffers[name]


def load_array(path: Path, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The array in a file, which has to have this element type and shape.

    Raises
    ------
    ValueError
        When it has another, or the file is no ``.npy``.
    OSError
        When it cannot be read.
    """
    array = np.load(path, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} is an archive of arrays; one array is needed")
    wanted = Element.of(dtype).numpy_dtype
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)
    if array.dtype != wanted or array.shape != shape:
        raise ValueError(f"{path} holds {array.dtype} of shape {array.shape}; {wanted} of shape {shape} is needed")
    return array
