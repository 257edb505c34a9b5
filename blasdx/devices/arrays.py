"""Arrays of other libraries on a CUDA device, and the streams that those libraries work on.

Neither CuPy nor PyTorch nor any other library is imported here: who hands over an array has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from blasdx.operands import Seen, reject

Sight = tuple[int, Seen | None]
"""Address, and all else that is seen of an array; 0 and None for one that was left out."""

Reader = Callable[[str, Any], Sight]

TORCH_DTYPES = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "bool": np.bool_,
}
"""PyTorch's types whose names NumPy does not know."""

LEGACY = 1
"""The legacy stream's handle in protocols where 0 could mean another (DLPack, __cuda_array_interface__)."""

READ_ONLY = ("jax", "jaxlib")
"""Libraries whose arrays never change, whatever DLPack says of them."""


def reader(array: object) -> Reader | None:
    """How arrays of this type are looked at, where their library is known; None for those that export themselves."""
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return _see_cupy
    if torch is not None and isinstance(array, torch.Tensor):
        return _TorchReader(torch)
    return None


def _see_cupy(name: str, array: Any) -> Sight:
    memory = array.data
    return memory.ptr, Seen(array.shape, array.strides, array.dtype, True, memory.device_id, "cupy")


class _TorchReader:
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._dtypes: dict[Any, np.dtype[Any]] = {}

    def __call__(self, name: str, tensor: Any) -> Sight:
        dtype = self._dtypes.get(tensor.dtype) or self._dtype(name, tensor.dtype)
        if not tensor.is_cuda:
            refuse_host(name, tensor, f"{name}.cuda()")
        if tensor.requires_grad and self._torch.is_grad_enabled():
            reject(
                name,
                "gradient",
                "a tensor that requires a gradient",
                "one that does not, or torch.no_grad()",
                "The product is not recorded for differentiation, and the gradient would be lost without a word.",
                f"{name}.detach()",
            )
        item = dtype.itemsize
        strides = tuple([stride * item for stride in tensor.stride()])
        return tensor.data_ptr(), Seen(tuple(tensor.shape), strides, dtype, True, tensor.device.index, "torch")

    def _dtype(self, name: str, given: Any) -> np.dtype[Any]:
        text = str(given).removeprefix("torch.")
        try:
            dtype = np.dtype(TORCH_DTYPES.get(text, text))
        except TypeError:
            reject(
                name,
                "element-type",
                f"dtype {given}",
                "a type of the descriptor's",
                "Neither NumPy nor ml_dtypes has this one.",
                f"{name}.view(torch.uint8) where the descriptor says what the bytes are",
            )
        return self._dtypes.setdefault(given, dtype)


def borrow(name: str, array: Any, stream: int) -> tuple[Sight, Any]:
    """Look at an array through DLPack or ``__cuda_array_interface__``.

    Its library makes the stream wait for whatever still writes the array, as both protocols say.

    Returns
    -------
    tuple
        The sight, and what keeps the memory alive.
    """
    from cuda.core.utils import StridedMemoryView

    library = type(array).__module__.partition(".")[0]
    if not (hasattr(array, "__dlpack__") or hasattr(array, "__cuda_array_interface__")) or library == "numpy":
        refuse_host(name, array, f"cupy.asarray({name})")
    try:
        view = StridedMemoryView.from_any_interface(array, stream_ptr=stream or LEGACY)
        dtype = view.dtype
    except (TypeError, BufferError) as error:
        reject(
            name,
            "array-library",
            f"{_type(array)} that cannot be exported: {error}",
            "an array that DLPack or __cuda_array_interface__ hands over",
            "8-bit floats, among others, have no exchange that all libraries know.",
            "pass the same bytes as uint8; the descriptor says what they are",
        )
    if not view.is_device_accessible:
        refuse_host(name, array, f"cupy.asarray({name})")
    item = dtype.itemsize
    elements = view.strides or tuple(np.cumprod((1, *view.shape[:0:-1]))[::-1].tolist())
    strides = tuple(stride * item for stride in elements)
    writable = not view.readonly and library not in READ_ONLY
    return (view.ptr, Seen(tuple(view.shape), strides, dtype, writable, view.device_id, library)), view


def refuse_host(name: str, array: object, copy: str) -> NoReturn:
    """Raise an `OperandError` for what is not in device memory."""
    reject(
        name,
        "array-library",
        _type(array),
        "an array in the memory of a CUDA device",
        "The kernel reads and writes device memory; nothing is copied on the way.",
        copy,
    )


def _type(array: object) -> str:
    return f"{type(array).__module__}.{type(array).__name__}"


# ---- streams ---------------------------------------------------------------------------------------------------------


def handle_of(stream: object) -> int:
    """The driver's handle of a stream."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        reject(
            "stream",
            "stream",
            _type(stream),
            "an object with __cuda_stream__",
            "It is how CuPy, PyTorch, cuda.core and others hand a stream over.",
            "pass such a stream, or leave it out for the current one of the operands' library",
        )
    return int((protocol() if callable(protocol) else protocol)[1])


def current_stream(libraries: Collection[str], device: int) -> int:
    """The stream that the operands' libraries work on now.

    Raises
    ------
    OperandError
        There are several, so that there is no order that serves all operands.
    """
    if len(libraries) == 1 and (only := next(iter(libraries))) in CURRENT:
        return CURRENT[only](device)
    streams = {library: CURRENT[library](device) for library in sorted(libraries) if library in CURRENT}
    if not streams:
        return CURRENT["cupy"](device)
    if len(set(streams.values())) > 1:
        reject(
            "stream",
            "stream",
            " and ".join(f"{library}'s current stream {handle:#x}" for library, handle in streams.items()),
            "one stream",
            "Operands of several libraries are ready in the order of several streams, and a launch has one.",
            "stream=..., which has waited for the other",
        )
    return next(iter(streams.values()))


CURRENT: dict[str, Callable[[int], int]] = {
    "cupy": lambda device: sys.modules["cupy"].cuda.get_current_stream(device).ptr,
    "torch": lambda device: sys.modules["torch"].cuda.current_stream(device).cuda_stream,
}
"""Libraries that have a current stream; others order their work by the protocols through which arrays are borrowed."""
