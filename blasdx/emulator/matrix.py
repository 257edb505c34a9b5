"""Operand tiles in shared memory: matrix descriptors decoded from their 64 bits, and where each element lies.

Bit fields: PTX ISA 9.7.16.4.1 (tcgen05) and 9.7.15.5.1 (wgmma). Canonical layouts: PTX ISA 9.7.16.10.3, checked
element by element against CuTe's layouts, and with wgmma on an H200 (all but the 32-byte atom, in both majornesses).
In all of them 16 consecutive bytes stay together, so an operand is a table of 16-byte units.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blasdx.emulator.errors import DecodeError
from blasdx.emulator.swizzle import SWIZZLES

# Bits 61-63 of a tcgen05 descriptor; a wgmma descriptor has the same bits, without the 32-byte atom.
_SWIZZLE_CODES = {0: "none", 1: "128B_ATOM_32B", 2: "128B", 4: "64B", 6: "32B"}


@dataclass(frozen=True, slots=True)
class SharedDescriptor:
    """A decoded shared-memory matrix descriptor; offsets and addresses in bytes.

    `base` is subtracted from the number of the 128-byte line that enters the swizzle (measured with wgmma on an H200
    for all eight values; tcgen05 defines the field with the same words).
    """

    start: int
    leading: int
    stride: int
    swizzle: str
    base: int = 0

    @property
    def anchored(self) -> bool:
        """Whether the tile starts in the first 128-byte line of its swizzle pattern, as the base offset declares."""
        return not ((self.start >> 7) - self.base) & SWIZZLES[self.swizzle].rows


@lru_cache(maxsize=4096)
def decode_shared(bits: int, target: str) -> SharedDescriptor:
    """Decode a 64-bit matrix descriptor for `target` (``"sm_100a"``; ``"sm_90a"`` selects wgmma's encoding).

    Raises
    ------
    DecodeError
        For reserved or unknown bits, with the field's name. The absolute leading offset (K = 96 only) is refused:
        what hardware does with it is not established.
    """
    sm = int(target.removeprefix("sm_").rstrip("af"))
    wide = sm == 107  # PTX ISA 9.4 widens both address fields by one bit
    width = 15 if wide else 14

    def refuse(field: str, got: int, need: str) -> None:
        raise DecodeError(
            f"shared-memory matrix descriptor {bits:#018x}: {field} is {got:#x}, needs {need} on {target}"
        )

    for low in (width, 16 + width):
        high = 16 if low < 16 else 32
        carried = (bits >> low) & ((1 << (high - low)) - 1)
        if carried:
            refuse(f"bits {low}-{high - 1}", carried, "zero (an advance of the start address carried into them?)")
    if sm == 90:
        if bits >> 46 & 7 or bits >> 52 & 0x3FF:
            refuse("bits 46-48 and 52-61", (bits >> 46 & 7) | (bits >> 52 & 0x3FF) << 6, "zero")
    else:
        if bits >> 46 & 7 != 1:
            refuse("version (bits 46-48)", bits >> 46 & 7, "1")
        if bits >> 52 & 1:
            refuse("leading-offset mode (bit 52)", 1, "0: absolute leading offsets (K = 96) are not emulated")
        if bits >> 53 & 255:
            refuse("bits 53-60", bits >> 53 & 255, "zero")
    swizzle = bits >> 61
    if swizzle not in _SWIZZLE_CODES:
        refuse("swizzle (bits 61-63)", swizzle, "0 (none), 2 (128B), 4 (64B), 6 (32B) or, from sm_100 on, 1")
    mask = (1 << width) - 1
    return SharedDescriptor(
        start=(bits & mask) << 4,
        leading=(bits >> 16 & mask) << 4,
        stride=(bits >> 32 & 0x3FFF) << 4,
        swizzle=_SWIZZLE_CODES[swizzle],
        base=bits >> 49 & 7,
    )


class Operand(NamedTuple):
    """Where an operand of one instruction lies in shared memory."""

    units: NDArray[np.intp]  # 16-byte units: (rows, units along K), or (K, units along rows) when MN-major
    mask: int  # the same units as bits
    mn_major: bool
    bits: int  # of one element in shared memory


@lru_cache(maxsize=8192)
def operand(desc: SharedDescriptor, mn_major: bool, rows: int, depth: int, bits: int) -> Operand:
    """Units of a `rows` x `depth` operand (M or N by K) of `bits`-bit elements.

    4- and 6-bit elements that are padded to 16 bytes for 16 elements count as 8-bit ones; densely packed 4-bit
    elements (kinds mxf4 and mxf4nvf4) as 4-bit ones. Cached.
    """
    inner, outer = (rows, depth) if mn_major else (depth, rows)
    if inner * bits % 128:
        raise DecodeError(f"{inner} elements of {bits} bits are not whole 16-byte units of a matrix row")
    units = np.arange(inner * bits // 128, dtype=np.int64)[None, :]
    lines = np.arange(outer, dtype=np.int64)[:, None]
    linear = desc.start + _offsets(desc, mn_major, units * 16, lines)
    physical = SWIZZLES[desc.swizzle](linear, desc.base)
    index = (physical >> 4).astype(np.intp)
    index.flags.writeable = False
    return Operand(index, _bit_mask(index), mn_major, bits)


def _offsets(desc: SharedDescriptor, mn_major: bool, inner: NDArray[np.int64], line: NDArray[np.int64]) -> Any:
    """Byte offsets before swizzling: `inner` bytes along the major direction, `line` across it."""
    if desc.swizzle == "none":
        # Core matrices of 8 lines x 16 bytes. LBO and SBO swap their roles between the two majornesses.
        along, across = (desc.stride, desc.leading) if mn_major else (desc.leading, desc.stride)
        return inner // 16 * along + line % 8 * 16 + line // 8 * across
    span = SWIZZLES[desc.swizzle].span
    # With the 32-byte atom the MN-major pattern closes after 4 lines instead of 8.
    group = 4 if mn_major and desc.swizzle == "128B_ATOM_32B" else 8
    offset = inner % span + line % group * span + line // group * desc.stride
    # K-major swizzled tiles are one span wide: the leading offset is unused.
    return offset + inner // span * desc.leading if mn_major else offset


def _bit_mask(index: NDArray[np.intp]) -> int:
    hit = np.zeros(int(index.max()) + 1, np.bool_)
    hit[index] = True
    return int.from_bytes(np.packbits(hit, bitorder="little").tobytes(), "little")


def read(shared: NDArray[Any], where: Operand) -> NDArray[Any]:
    """Raw element codes (rows, K) of an operand.

    Parameters
    ----------
    shared
        Shared memory as 1-D array of 16-byte items, item 0 at shared address 0.

    Returns
    -------
    uint8, uint16 or uint32 codes; 4-bit elements one to a uint8. Padded elements stay packed as they lie: give
    the result to `unpack_padded`.

    Raises
    ------
    DecodeError
        When the operand reaches beyond `shared`.
    """
    if where.mask.bit_length() > len(shared):
        raise DecodeError(
            f"an operand reaches shared address {where.mask.bit_length() * 16 - 1:#x}, "
            f"shared memory ends at {len(shared) * 16 - 1:#x}"
        )
    units = shared[where.units]
    lines = units.view(np.uint8).reshape(len(units), -1)
    if where.bits == 4:
        codes = np.empty((lines.shape[0], lines.shape[1] * 2), np.uint8)
        codes[:, 0::2] = lines & 15
        codes[:, 1::2] = lines >> 4
    else:
        codes = lines.view(np.dtype(f"u{where.bits // 8}"))
    return codes.T if where.mn_major else codes


def unpack_padded(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Codes of 4- or 6-bit elements of which 16 lie in the low bytes of each 16-byte unit, K-major.

    Kinds f8f6f4 and mxf8f6f4 (PTX ISA 9.7.16.10.4.4): (rows, K) bytes in, (rows, K) codes out.
    """
    units = codes.reshape(len(codes), -1, 16)
    return unpack_dense(units[:, :, : 2 * bits], bits).reshape(codes.shape)


def unpack_dense(data: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Codes of 4- or 6-bit elements packed without gaps along the last axis, lowest bits first."""
    if bits == 4:
        low_high = np.stack((data & 15, data >> 4), axis=-1)
        return low_high.reshape(*data.shape[:-1], -1)
    triples = data.reshape(*data.shape[:-1], -1, 3).astype(np.uint32)
    word = triples[..., 0] | triples[..., 1] << 8 | triples[..., 2] << 16
    fields = np.stack([word >> shift & 63 for shift in (0, 6, 12, 18)], axis=-1)
    return fields.astype(np.uint8).reshape(*data.shape[:-1], -1)
