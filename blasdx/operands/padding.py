"""A copy that lies as TMA needs it, for operands that are refused as they are."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from blasdx.operands.values import TMA_ALIGNMENT
from blasdx.operators import row_major

ORDERS = ("row", "col", "row_major", "col_major")


def padded(array: Any, order: object = row_major, *, alignment: int = TMA_ALIGNMENT, namespace: Any = None) -> Any:
    """A copy in the given order, whose first element and rows (columns, if column-major) lie as TMA needs them.

    Parameters
    ----------
    array : array
        (..., rows, columns) of NumPy, CuPy or PyTorch, with any strides. Batches of the copy follow each other.
    order : Order or {"row", "col"}
    alignment : int
        Bytes of which the address and all strides are multiples: 16, or what the descriptor promises.
    namespace : module
        numpy or cupy, whose ``empty`` makes the buffer; the array's own when left out.

    Raises
    ------
    TypeError
        ``array`` is no array of these libraries, or no matrix.
    ValueError
        ``order`` is none.
    """
    if str(order) not in ORDERS:
        raise ValueError(f"order = {order!r} is none: {', '.join(ORDERS)}")
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise TypeError(f"padded copies arrays of NumPy, CuPy and PyTorch, not {type(array).__name__}")
    if len(array.shape) < 2:
        raise TypeError(f"padded copies matrices, and this array has the shape {tuple(array.shape)}")
    module = namespace or sys.modules[type(array).__module__.partition(".")[0]]
    *batches, rows, columns = array.shape
    by_rows = str(order).startswith("row")
    inner, outer = (columns, rows) if by_rows else (rows, columns)
    step = max(alignment // array.dtype.itemsize, 1)
    pitch = math.ceil(inner / step) * step
    size = math.prod(batches) * outer * pitch
    place = (
        {"device": array.device} if hasattr(array, "data_ptr") else {}
    )  # PyTorch's; the others follow the current one
    buffer = module.empty(size + step, dtype=array.dtype, **place)
    first = -_address(buffer) % alignment // array.dtype.itemsize
    lines = buffer[first : first + size].reshape(*batches, outer, pitch)[..., :inner]
    copy = lines if by_rows else lines.swapaxes(-1, -2)
    copy[...] = array
    return copy


def _address(array: Any) -> int:
    if isinstance(array, np.ndarray):
        return int(array.ctypes.data)
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.data.ptr)
