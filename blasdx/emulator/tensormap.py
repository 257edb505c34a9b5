"""Tensor maps: the 128-byte objects that tell the bulk-copy engine (TMA) about a tensor in global memory.

Field positions are those that ``tensormap.replace`` writes (read off SASS for sm_90a to sm_107a) and that
``cuTensorMapEncodeTiled`` was measured to write on an H200 with driver 580; limits are the driver API's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from math import prod
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from blasdx.emulator import boxes
from blasdx.emulator.errors import DecodeError
from blasdx.emulator.swizzle import SWIZZLES


class HasAddress(Protocol):
    """A buffer in global memory."""

    @property
    def address(self) -> int:
        """Global address of its first byte."""


class Format(NamedTuple):
    """How one element of a map is stored."""

    name: str
    code: int  # word 2, bits 7-10
    tf32: bool  # word 2, bit 16
    bits: int  # in global memory
    shared_bits: int  # in shared memory: 4- and 6-bit elements may be padded to 8
    is_float: bool


FORMATS = {
    form.name: form
    for form in (
        Format("u8", 0, False, 8, 8, False),
        Format("u16", 1, False, 16, 16, False),
        Format("u32", 2, False, 32, 32, False),
        Format("s32", 3, False, 32, 32, False),
        Format("u64", 4, False, 64, 64, False),
        Format("s64", 5, False, 64, 64, False),
        Format("f16", 6, False, 16, 16, True),
        Format("f32", 7, False, 32, 32, True),
        Format("f32_ftz", 8, False, 32, 32, True),
        Format("f64", 9, False, 64, 64, True),
        Format("bf16", 10, False, 16, 16, True),
        Format("tf32", 7, True, 32, 32, True),
        Format("tf32_ftz", 8, True, 32, 32, True),
        Format("16u4_align8b", 11, False, 4, 4, False),
        Format("16u4_align16b", 12, False, 4, 8, False),
        Format("16u6_align16b", 13, False, 6, 8, False),
    )
}
_BY_CODE = {(form.code, form.tf32): form for form in FORMATS.values()}
_ALIASES = {
    alias: name
    for name, aliases in {
        "u8": "s8 b8 e4m3 e5m2 ue8m0 ue4m3 uint8 int8",
        "u16": "s16 b16 uint16",
        "u32": "b32 uint32",
        "s32": "int32",
        "u64": "b64 uint64",
        "s64": "int64",
        "f16": "float16",
        "bf16": "bfloat16",
        "f32": "float32",
        "f32_ftz": "float32_ftz",
        "f64": "float64",
        "tf32": "tfloat32",
        "tf32_ftz": "tfloat32_ftz",
        "16u4_align8b": "b4x16",
        "16u4_align16b": "b4x16_p64",
        "16u6_align16b": "b6x16_p32",
    }.items()
    for alias in aliases.split()
}
_INTERLEAVES = ("none", "16B", "32B")
_PROMOTIONS = ("none", "64B", "128B", "256B")
# Swizzle name -> (word 2 bits 13-14, atom in bits 19-20).
_SWIZZLE_CODES = {
    "none": (0, 0),
    "32B": (1, 0),
    "64B": (2, 0),
    "128B": (3, 0),
    "128B_ATOM_32B": (3, 1),
    "128B_ATOM_32B_FLIP_8B": (3, 2),
    "128B_ATOM_64B": (3, 3),
}
_SWIZZLE_NAMES = {code: name for name, code in _SWIZZLE_CODES.items()}
_SPANS = {"none": 1 << 20, "32B": 32, "64B": 64}
# Word 2: what no driver and no tensormap.replace was seen to write. Bit 22 (96-byte swizzle, sm_103a and sm_107a)
# is written by neither measured driver and its pattern is not published.
_RESERVED_WORD2 = ~((7 << 4) | (15 << 7) | (3 << 11) | (3 << 13) | (1 << 15) | (1 << 16) | (3 << 17) | (3 << 19))

Fill = Literal["zero", "nan"]


@dataclass(frozen=True, init=False, repr=True)
class TensorMap:
    """A tensor in global memory and the box that one bulk copy moves.

    Parameters
    ----------
    tensor
        Buffer with an ``address``, or the address itself.
    dtype
        ``f16 bf16 tf32 f32 f64 u8 s8 e4m3 ...``, or the driver's names (``FLOAT16``, ``TFLOAT32_FTZ``,
        ``16U4_ALIGN16B``, with or without ``CU_TENSOR_MAP_DATA_TYPE_``). Types of the same map code are one type.
    dims
        Extents in elements, innermost first; one to five of them.
    strides_bytes
        Strides of all dimensions but the innermost, which is dense.
    box
        Elements of one copy, innermost first.
    element_strides
        Every how many elements one is taken (default 1 each); the innermost one has no effect.
    swizzle
        ``none 32B 64B 128B 128B_ATOM_32B 128B_ATOM_32B_FLIP_8B 128B_ATOM_64B``.
    interleave, oob_fill, l2_promotion
        ``none 16B 32B``; ``zero nan``; ``none 64B 128B 256B``.
    offset
        Bytes from the start of `tensor`.

    Raises
    ------
    DecodeError
        Naming the argument, its value and the limit (cuTensorMapEncodeTiled's) that it breaks.
    """

    address: int
    dtype: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: str
    interleave: str
    oob_fill: str
    l2_promotion: str

    def __init__(
        self,
        tensor: HasAddress | int,
        dtype: str,
        dims: Sequence[int],
        strides_bytes: Sequence[int],
        box: Sequence[int],
        element_strides: Sequence[int] | None = None,
        swizzle: str = "none",
        interleave: str = "none",
        oob_fill: str = "zero",
        offset: int = 0,
        l2_promotion: str = "none",
    ) -> None:
        values: dict[str, Any] = {
            "address": (tensor if isinstance(tensor, int) else tensor.address) + offset,
            "dtype": _format_name(dtype),
            "dims": tuple(map(int, dims)),
            "strides_bytes": tuple(map(int, strides_bytes)),
            "box": tuple(map(int, box)),
            "element_strides": tuple(map(int, element_strides if element_strides is not None else [1] * len(dims))),
            "swizzle": swizzle,
            "interleave": interleave,
            "oob_fill": oob_fill,
            "l2_promotion": l2_promotion,
        }
        for field in fields(self):
            object.__setattr__(self, field.name, values[field.name])
        _validate(self)

    @cached_property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @cached_property
    def format(self) -> Format:
        """How one element is stored."""
        return FORMATS[self.dtype]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Elements that one copy moves in each dimension: ``ceil(box / element stride)``, innermost first."""
        strides = (1, *self.element_strides[1:])
        return tuple(-(-extent // stride) for extent, stride in zip(self.box, strides, strict=True))

    @cached_property
    def box_bytes(self) -> int:
        """Bytes of shared memory that one copy writes, and that it signals to its mbarrier, fill included."""
        return prod(self.counts) * self.format.shared_bits // 8

    def to_bytes(self) -> bytes:
        """The 128 bytes that the driver writes for this map."""
        return _encode(self)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> TensorMap:
        """Decode 128 bytes, made by a driver, by `to_bytes` or in a kernel by ``tensormap.replace``.

        Raises
        ------
        DecodeError
            For reserved or contradicting bits, im2col maps included.
        """
        return _decode(bytes(data))

    def load(self, coordinates: Sequence[int], view: boxes.View, *, gather: bool = False) -> NDArray[np.uint8]:
        """Bytes of the box at `coordinates` in shared-memory order before swizzling.

        Parameters
        ----------
        coordinates
            Innermost first, may lie outside the tensor. With `gather`: a column and four rows.
        view
            Called with (address, shape, strides in bytes, innermost last), gives a uint8 view of global memory.

        Returns
        -------
        1-D array of `box_bytes` (four times that with `gather`); outside the tensor the fill value.
        """
        return boxes.load(self, tuple(coordinates), view, gather)

    def store(
        self, coordinates: Sequence[int], tile: NDArray[np.uint8], view: boxes.View, *, gather: bool = False
    ) -> None:
        """Write `tile` (as `load` gives it) through `view`; what lies outside the tensor is skipped."""
        boxes.store(self, tuple(coordinates), tile, view, gather)

    def reduce(
        self, coordinates: Sequence[int], tile: NDArray[np.uint8], view: boxes.View, op: str, *, gather: bool = False
    ) -> None:
        """Combine `tile` with global memory (``cp.reduce.async.bulk.tensor``); outside the tensor nothing happens.

        Raises
        ------
        DecodeError
            When `op` (add, min, max, inc, dec, and, or, xor) does not exist for the map's type.
        """
        boxes.reduce(self, tuple(coordinates), tile, view, op, gather)

    def units(self, address: int, *, gather: bool = False) -> boxes.Units:
        """Where a box at shared address `address` lies, as indices of 16-byte units of shared memory.

        Unit ``i`` of the bytes of `load` goes to shared bytes ``16 * units[i]`` and on. Cached.
        """
        return boxes.units(self.swizzle, self.counts[0] * self.format.shared_bits // 8, self._bytes(gather), address)

    def granules(self, address: int, *, gather: bool = False) -> int:
        """The same units as a bit mask: bit i is the 16 bytes of shared memory at ``16 * i``. Cached."""
        return boxes.granules(self.swizzle, self.counts[0] * self.format.shared_bits // 8, self._bytes(gather), address)

    def _bytes(self, gather: bool) -> int:
        return self.box_bytes * (4 if gather else 1)


def _format_name(dtype: str) -> str:
    name = str(dtype).lower().removeprefix("cu_tensor_map_data_type_")
    name = _ALIASES.get(name, name)
    if name not in FORMATS:
        raise DecodeError(f"TensorMap dtype {dtype!r} is unknown; known: {' '.join(FORMATS)} {' '.join(_ALIASES)}")
    return name


def _require(condition: bool, what: str, got: object, need: str) -> None:
    if not condition:
        raise DecodeError(f"TensorMap {what}: got {got}, needs {need}")


def _validate(m: TensorMap) -> None:
    """Refuse what cuTensorMapEncodeTiled refuses."""
    _require(m.swizzle in _SWIZZLE_CODES, "swizzle", repr(m.swizzle), "one of " + ", ".join(_SWIZZLE_CODES))
    _require(m.interleave in _INTERLEAVES, "interleave", repr(m.interleave), "one of " + ", ".join(_INTERLEAVES))
    _require(m.oob_fill in ("zero", "nan"), "oob_fill", repr(m.oob_fill), "zero or nan")
    _require(m.l2_promotion in _PROMOTIONS, "l2_promotion", repr(m.l2_promotion), "one of " + ", ".join(_PROMOTIONS))
    rank, form = len(m.dims), m.format
    _require(1 <= rank <= 5, "dims", f"{rank} dimensions", "1 to 5")
    _require(rank >= 3 or m.interleave == "none", "dims", f"{rank} dimensions", "at least 3 when interleaved")
    _require(len(m.strides_bytes) == rank - 1, "strides_bytes", m.strides_bytes, f"{rank - 1} (all but the innermost)")
    _require(len(m.box) == rank, "box", m.box, f"{rank} extents")
    _require(len(m.element_strides) == rank, "element_strides", m.element_strides, f"{rank} values")
    wide = m.interleave == "32B" or form.shared_bits > form.bits
    unit = 32 if wide else 16
    _require(0 <= m.address < 1 << 64, "address", hex(m.address), "a 64-bit address")
    _require(m.address % unit == 0, "address", hex(m.address), f"a multiple of {unit} bytes")
    _require(all(1 <= d <= 1 << 32 for d in m.dims), "dims", m.dims, "1 to 2^32 each")
    _require(
        all(s % unit == 0 for s in m.strides_bytes), "strides_bytes", m.strides_bytes, f"multiples of {unit} bytes"
    )
    _require(all(0 <= s < 1 << 40 for s in m.strides_bytes), "strides_bytes", m.strides_bytes, "0 to 2^40 - 1 each")
    _require(all(1 <= b <= 256 for b in m.box), "box", m.box, "1 to 256 elements in every dimension")
    _require(all(1 <= s <= 8 for s in m.element_strides), "element_strides", m.element_strides, "1 to 8 each")
    _require(form.is_float or m.oob_fill == "zero", "oob_fill", f"nan for {m.dtype}", "a floating-point type")
    if form.shared_bits > form.bits:
        _require(m.dims[0] % 128 == 0, "dims", m.dims, f"an innermost extent that is a multiple of 128 for {m.dtype}")
        _require(m.box[0] == 128, "box", m.box, f"an innermost extent of 128 for {m.dtype}")
    _validate_row(m)


def _validate_row(m: TensorMap) -> None:
    row = m.box[0] * m.format.shared_bits // 8
    told = f"{m.box[0]} x {m.format.shared_bits} bits = {row} bytes"
    if m.interleave == "none":
        _require(m.box[0] * m.format.shared_bits % 128 == 0, "box", told + " a row", "a multiple of 16 bytes")
        span = _SPANS.get(m.swizzle, 128)
        _require(row <= span, "box", told + " a row", f"at most the {m.swizzle} swizzle's span of {span} bytes")


def _encode(m: TensorMap) -> bytes:
    words = [0] * 32
    words[0], words[1] = m.address & 0xFFFFFFFF, m.address >> 32
    swizzle, atom = _SWIZZLE_CODES[m.swizzle]
    words[2] = (
        (m.rank - 1) << 4
        | m.format.code << 7
        | _INTERLEAVES.index(m.interleave) << 11
        | swizzle << 13
        | (m.oob_fill == "nan") << 15
        | m.format.tf32 << 16
        | _PROMOTIONS.index(m.l2_promotion) << 17
        | atom << 19
    )
    for i, stride in enumerate(m.strides_bytes):
        words[3 + i] = stride >> 4 & 0xFFFFFFFF
        words[7] |= stride >> 36 << 4 * i
    for i, (extent, step, size) in enumerate(zip(m.dims, m.element_strides, m.box, strict=True)):
        words[8 + i] = extent - 1
        words[13] |= step - 1 << 3 * i
        if i == 0:
            words[13] |= size - 1 << 24
        else:
            words[14] |= size - 1 << 8 * (i - 1)
    words[16] = _driver_box_bytes(m)
    words[18] = _period(m)
    return struct.pack("<32I", *words)


def _driver_box_bytes(m: TensorMap) -> int:
    """Word 16: bytes of a box. Of element strides the driver takes the floor, the copy itself the ceiling."""
    return prod(b // s for b, s in zip(m.box, m.element_strides, strict=True)) * m.format.shared_bits // 8


def _period(m: TensorMap) -> int:
    return SWIZZLES[m.swizzle].period if m.swizzle in SWIZZLES else 0


@lru_cache(maxsize=256)
def _decode(data: bytes) -> TensorMap:
    if len(data) != 128:
        raise DecodeError(f"a tensor map has 128 bytes, got {len(data)}")
    words = struct.unpack("<32I", data)
    _check_reserved(words)
    rank = (words[2] >> 4 & 7) + 1
    _require(rank <= 5, "word 2 bits 4-6", rank - 1, "0 to 4 (rank - 1)")
    code = (words[2] >> 7 & 15, bool(words[2] >> 16 & 1))
    _require(code in _BY_CODE, "word 2 bits 7-10 and 16", code, "a known element code")
    swizzle = (words[2] >> 13 & 3, words[2] >> 19 & 3)
    _require(swizzle in _SWIZZLE_NAMES, "word 2 bits 13-14 and 19-20", swizzle, "atoms only with 128B swizzle")
    interleave = words[2] >> 11 & 3
    _require(interleave < 3, "word 2 bits 11-12", interleave, "0, 1 or 2 (interleave)")
    box = [words[13] >> 24, *(words[14] >> 8 * i & 255 for i in range(4))]
    unused = [*words[8 + rank : 13], *words[2 + rank : 7], words[7] >> 4 * (rank - 1), *box[rank:]]
    _require(not any(unused), "dimensions beyond the rank", unused, f"zeros beyond dimension {rank - 1}")
    m = TensorMap(
        words[0] | words[1] << 32,
        _BY_CODE[code].name,
        dims=[word + 1 for word in words[8 : 8 + rank]],
        strides_bytes=[(words[3 + i] | (words[7] >> 4 * i & 15) << 32) << 4 for i in range(rank - 1)],
        box=[size + 1 for size in box[:rank]],
        element_strides=[(words[13] >> 3 * i & 7) + 1 for i in range(rank)],
        swizzle=_SWIZZLE_NAMES[swizzle],
        interleave=_INTERLEAVES[interleave],
        oob_fill="nan" if words[2] >> 15 & 1 else "zero",
        l2_promotion=_PROMOTIONS[words[2] >> 17 & 3],
    )
    # Maps built in a kernel from zeroed bytes leave both at zero; the driver writes them.
    size = _driver_box_bytes(m)
    _require(words[16] in (0, size), "word 16", words[16], f"0 or the bytes of one box, {size}")
    _require(words[18] in (0, _period(m)), "word 18", words[18], f"0 or the pattern period, {_period(m)}")
    return m


def _check_reserved(words: Sequence[int]) -> None:
    if words[2] >> 22 & 1:
        raise DecodeError("TensorMap word 2 bit 22: the 96-byte swizzle is not emulated (its pattern is not published)")
    reserved = words[2] & _RESERVED_WORD2
    _require(not reserved, "word 2", hex(words[2]), f"bits {reserved:#x} clear (reserved)")
    _require(not words[13] >> 15 & 0x1FF, "word 13", hex(words[13]), "bits 15-23 clear (reserved)")
    _require(not words[7] >> 16, "word 7", hex(words[7]), "bits 16-31 clear (reserved)")
    for i in (15, 17, *range(19, 32)):
        _require(words[i] == 0, f"word {i}", hex(words[i]), "zero for a tiled map (im2col maps are not emulated)")
