"""What a gate sees of an array: shape, strides, element type, and the address where it is known."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, model_validator

from blasdx.elements import Element
from blasdx.errors import OperandError


class OperandSpec(BaseModel):
    """An array without its contents. Takes positional arguments: ``OperandSpec((512, 256), None, "bf16")``.

    Attributes
    ----------
    shape : tuple of int
        Extents, elements.
    strides : tuple of int
        Bytes from one element to the next along each dimension, as in NumPy; None means row-major without gaps.
    dtype : Element or str
        The element type, or the dtype's own name where it is none of ours ("bool").
    address : int or None
        Where the first element lies, if that is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Element | str
    address: int | None = None

    if TYPE_CHECKING:

        def __init__(
            self, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: object, address: int | None = None
        ) -> None: ...

    else:

        def __init__(self, *args: Any, **fields: Any) -> None:
            super().__init__(**dict(zip(("shape", "strides", "dtype", "address"), args, strict=False)), **fields)

    @model_validator(mode="before")
    @classmethod
    def _normal(cls, fields: Any) -> Any:
        fields = dict(fields, dtype=_element(fields.get("dtype", "")))
        if fields.get("strides") is None:
            item = fields["dtype"].itemsize if isinstance(fields["dtype"], Element) else 1
            fields["strides"] = _row_major(fields["shape"], item)
        return fields

    @model_validator(mode="after")
    def _one_stride_each(self) -> OperandSpec:
        if len(self.shape) != len(self.strides):
            raise ValueError(f"{len(self.shape)} extents {self.shape} and {len(self.strides)} strides {self.strides}")
        return self

    @classmethod
    def of(cls, array: object, name: str = "operand") -> OperandSpec:
        """Read the spec off anything array-like.

        Parameters
        ----------
        array : OperandSpec or array
            NumPy, CuPy, PyTorch and JAX arrays; anything with ``shape`` and ``dtype``, with
            ``__cuda_array_interface__``, or with ``__dlpack__`` and its data in host memory.
        name : str
            What the error calls it.

        Raises
        ------
        OperandError
            When it is no array.
        """
        if isinstance(array, OperandSpec):
            return array
        try:
            return _read(array)
        except (AttributeError, TypeError, ValueError, BufferError) as error:
            refusal = OperandError(f"{name} is no array but a {type(array).__name__}: {error}")
            refusal.operand = name
            raise refusal from error


def _read(array: Any) -> OperandSpec:
    if hasattr(array, "shape") and hasattr(array, "dtype"):
        element = _element(array.dtype)
        item = element.itemsize if isinstance(element, Element) else int(getattr(array, "itemsize", 1))
        return OperandSpec(tuple(array.shape), _strides(array, item), element, _address(array))
    import numpy as np

    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        strides = interface.get("strides")
        return OperandSpec(interface["shape"], strides, np.dtype(interface["typestr"]), interface["data"][0])
    if hasattr(array, "__dlpack__"):
        return _read(np.from_dlpack(array))
    raise TypeError("it has neither shape and dtype, nor __cuda_array_interface__, nor __dlpack__")


def _element(dtype: object) -> Element | str:
    """The element type, or the dtype's own text: an unknown dtype is a missed gate, not an error."""
    try:
        return Element.of(dtype)
    except ValueError:
        return str(dtype)


def _strides(array: Any, item: int) -> tuple[int, ...] | None:
    strides = getattr(array, "strides", None)
    if strides is not None:
        return tuple(strides)
    in_elements = getattr(array, "stride", None)  # PyTorch
    return tuple(step * item for step in in_elements()) if callable(in_elements) else None


def _row_major(shape: Any, item: int) -> tuple[int, ...]:
    inner_to_outer = accumulate(reversed(tuple(shape)[1:]), lambda step, extent: step * max(extent, 1), initial=item)
    return tuple(reversed(list(inner_to_outer))) if len(shape) else ()


def _address(array: Any) -> int | None:
    pointer = getattr(array, "data_ptr", None)  # PyTorch
    if callable(pointer):
        return int(pointer())
    for protocol in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(array, protocol, None)
        if isinstance(interface, dict):
            return int(interface["data"][0])
    return None
