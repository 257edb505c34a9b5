"""What TMA has to know of a matrix in global memory, as a value that a device encodes into its 128 opaque bytes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from blasdx.elements import Element
from blasdx.layout.swizzle import Swizzle


class TensorMapSpec(BaseModel):
    """A tiled tensor map: extents innermost first in elements, strides of all but the innermost dimension in bytes.

    Out-of-bounds elements are filled with zeros; element strides are one (CUDA driver API, cuTensorMapEncodeTiled).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    element: Element
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: Swizzle
