"""Where a kernel runs: a CUDA device or the emulator, behind one small protocol.

A device looks at arrays (`Device.view`), makes new ones, and launches a kernel with arguments that are said in terms of
operands: it alone knows what an address is, how a tensor map is encoded and whether anything has to be copied.
"""

from __future__ import annotations

from blasdx.devices.protocol import (
    NAMES,
    Addresses,
    Argument,
    Arrays,
    Device,
    Encoded,
    Launch,
    Look,
    StructArgument,
    TensorMapArgument,
)
from blasdx.devices.select import select

__all__ = [
    "NAMES",
    "Addresses",
    "Argument",
    "Arrays",
    "Device",
    "Encoded",
    "Launch",
    "Look",
    "StructArgument",
    "TensorMapArgument",
    "select",
]
