"""How one bulk tensor copy moves a box between global and shared memory: in-bounds parts, fill, order, swizzle.

Box element ``(i0, ..., id)`` lies at byte ``(((id * n_{d-1} + ...) * n_0) + i0) * size`` of the tile, i0 fastest; the
tile is swizzled by absolute shared address (PTX ISA 5.5 and 9.7.9.25; anchors measured on an H200).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from blasdx.emulator.errors import DecodeError, EmulationError
from blasdx.emulator.formats import decode, encode
from blasdx.emulator.swizzle import pattern

if TYPE_CHECKING:
    from blasdx.emulator.tensormap import TensorMap

View: TypeAlias = Callable[[int, tuple[int, ...], tuple[int, ...]], NDArray[np.uint8]]
"""(address, shape, strides in bytes; innermost last) -> uint8 view of global memory."""

Units: TypeAlias = "slice | NDArray[np.intp]"
"""Index of 16-byte units of shared memory."""


class Window(NamedTuple):
    """The part of a box that lies inside the tensor."""

    address: int
    shape: tuple[int, ...]  # outermost first; the last is bytes of a row
    strides: tuple[int, ...]  # bytes
    inside: tuple[slice, ...]  # the same part of the tile, a byte array of the box's shape


def windows(m: TensorMap, coordinates: tuple[int, ...], gather: bool) -> list[Window]:
    """In-bounds parts of the box at `coordinates`; none when all of it lies outside.

    Raises
    ------
    DecodeError
        For a wrong number of coordinates, an interleaved map, a gather from a map that is not 2-D with one-row boxes.
    """
    if m.interleave != "none":
        raise DecodeError(f"interleave {m.interleave!r} is not emulated (im2col and NC/8HWC8 layouts are not)")
    if not gather:
        if len(coordinates) != m.rank:
            raise DecodeError(f"a {m.rank}-D tensor map needs {m.rank} coordinates, got {len(coordinates)}")
        window = _window(m, coordinates)
        return [] if window is None else [window]
    if m.rank != 2 or m.box[1] != 1 or len(coordinates) != 5:
        raise DecodeError(
            f"gather4 and scatter4 need a 2-D map with a box of one row and five coordinates (column, four rows); "
            f"got rank {m.rank}, box {m.box}, {len(coordinates)} coordinates"
        )
    found = []
    for i, row in enumerate(coordinates[1:]):
        window = _window(m, (coordinates[0], row))
        if window is not None:
            found.append(window._replace(inside=(slice(i, i + 1), window.inside[1])))
    return found


def _window(m: TensorMap, coordinates: tuple[int, ...]) -> Window | None:
    address = m.address
    shape: list[int] = []
    strides: list[int] = []
    index: list[slice] = []
    for i, (start, extent, count) in enumerate(zip(coordinates, m.dims, m.counts, strict=True)):
        step = m.element_strides[i] if i else 1
        first = max(0, -(start // step)) if start < 0 else 0
        last = min(count, (extent - 1 - start) // step + 1)
        if first >= last:
            return None
        if i == 0:
            bits = m.format.bits
            if (start + first) * bits % 8 or (last - first) * bits % 8:
                raise DecodeError(f"column {start} of a {m.dtype} map does not start on a byte")
            address += (start + first) * bits // 8
            shape.append((last - first) * bits // 8)
            strides.append(1)
            index.append(slice(first * bits // 8, last * bits // 8))
        else:
            address += (start + first * step) * m.strides_bytes[i - 1]
            shape.append(last - first)
            strides.append(step * m.strides_bytes[i - 1])
            index.append(slice(first, last))
    return Window(address, tuple(shape[::-1]), tuple(strides[::-1]), tuple(index[::-1]))


def _tile_shape(m: TensorMap, gather: bool) -> tuple[int, ...]:
    outer = m.counts[:0:-1]
    return (*((4,) if gather else outer), m.counts[0] * m.format.bits // 8)


def load(m: TensorMap, coordinates: tuple[int, ...], view: View, gather: bool) -> NDArray[np.uint8]:
    """See `TensorMap.load`."""
    shape = _tile_shape(m, gather)
    parts = windows(m, coordinates, gather)
    whole = sum(int(np.prod(part.shape)) for part in parts) == int(np.prod(shape))
    tile = np.empty(shape, np.uint8) if whole else _filled(m, shape)
    for part in parts:
        tile[part.inside] = view(part.address, part.shape, part.strides)
    return _padded(m, _converted(m, tile.reshape(-1)))


def store(m: TensorMap, coordinates: tuple[int, ...], tile: NDArray[np.uint8], view: View, gather: bool) -> None:
    """See `TensorMap.store`."""
    if m.format.bits != m.format.shared_bits:
        raise DecodeError(f"a {m.dtype} map only loads: its padded shared-memory form cannot be stored")
    tile = tile.reshape(_tile_shape(m, gather))
    for part in windows(m, coordinates, gather):
        for written in (_whole_units(part, tile.shape[-1]), part):
            try:
                target = view(written.address, written.shape, written.strides)
            except EmulationError:
                if written is part:
                    raise
                continue  # the last unit reaches past the buffer, where nobody of this launch looks
            target[...] = tile[written.inside]
            break


def _whole_units(part: Window, row_bytes: int) -> Window:
    """What a store writes of a row that the tensor's edge cuts: up to the next 16 bytes, as far as the box reaches.

    Measured on an H200: behind a row of 53 floats three more were overwritten, of 33 three more. Which bytes land there
    was not told apart (both the box and a fill were zero); these are the box's.
    """
    end, inner = part.address + part.shape[-1], part.inside[-1]
    more = min(-end % 16, row_bytes - inner.stop)
    if more == 0:
        return part
    return part._replace(
        shape=(*part.shape[:-1], part.shape[-1] + more),
        inside=(*part.inside[:-1], slice(inner.start, inner.stop + more)),
    )


def reduce(
    m: TensorMap, coordinates: tuple[int, ...], tile: NDArray[np.uint8], view: View, op: str, gather: bool
) -> None:
    """See `TensorMap.reduce`."""
    if m.dtype not in REDUCTIONS.get(op, ()):
        legal = ", ".join(REDUCTIONS.get(op, ())) or "none: the operation is not known"
        raise DecodeError(f"a bulk reduction .{op} of a {m.dtype} map does not exist; its types are {legal}")
    tile = tile.reshape(_tile_shape(m, gather))
    for part in windows(m, coordinates, gather):
        target = view(part.address, part.shape, part.strides)
        new = combine(np.ascontiguousarray(target), np.ascontiguousarray(tile[part.inside]), m.dtype, op)
        target[...] = new.reshape(target.shape)


_INTEGERS = ("u32", "s32", "u64", "s64")
_WRAPPING = ("u32", "s32", "u64")
REDUCTIONS = {
    "add": (*_WRAPPING, "f16", "bf16", "f32"),
    "min": (*_INTEGERS, "f16", "bf16"),
    "max": (*_INTEGERS, "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": _WRAPPING,
    "or": _WRAPPING,
    "xor": _WRAPPING,
}
"""Element types of each bulk reduction: those that an H200 executes (s64 elsewhere is an illegal instruction there)."""


def combine(old: NDArray[np.uint8], new: NDArray[np.uint8], dtype: str, op: str) -> NDArray[Any]:
    """Bytes of ``op(old, new)``, element by element; floats are rounded to nearest even."""
    bits = int(dtype.lstrip("subf"))
    a, b = (x.reshape(-1).view(np.dtype(f"u{bits // 8}")) for x in (old, new))
    if op in ("and", "or", "xor"):
        joined: NDArray[Any] = {"and": a & b, "or": a | b, "xor": a ^ b}[op]
        return joined.view(np.uint8)
    if op in ("inc", "dec"):
        # inc: 0 after reaching b; dec: b after 0 or from beyond b (PTX atom).
        out = np.where(a >= b, 0, a + 1) if op == "inc" else np.where((a == 0) | (a > b), b, a - 1)
        return out.astype(a.dtype).view(np.uint8)
    if dtype in _INTEGERS:
        x, y = (v.view(np.dtype(f"i{bits // 8}")) if dtype[0] == "s" else v for v in (a, b))
        whole: NDArray[Any] = {"add": np.add, "min": np.minimum, "max": np.maximum}[op](x, y)
        return whole.view(np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        p, q = decode(a, dtype), decode(b, dtype)
        # 53 bits are at least 2 * 24 + 2, so rounding the float64 sum a second time changes nothing.
        total = {"add": np.add, "min": np.fmin, "max": np.fmax}[op](p, q)
        return encode(total, dtype).astype(a.dtype).view(np.uint8)


_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f64": 0x7FFFFFFFFFFFFFFF}


def _filled(m: TensorMap, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    tile = np.zeros(shape, np.uint8)
    if m.oob_fill == "nan":
        word = np.dtype(f"<u{m.format.bits // 8}")
        tile.reshape(-1).view(word)[...] = _NAN.get(m.dtype, 0x7FFFFFFF)
    return tile


def _converted(m: TensorMap, tile: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Round tf32 on the way in, to nearest even, subnormals included; NaN becomes 0x7FFFE000.

    Measured on an H200. The ftz types flush nothing there: f32_ftz arrives unchanged, tf32_ftz as tf32. Stores
    change no type.
    """
    if not m.format.tf32:
        return tile
    words = tile.view(np.uint32)
    nan = (words & 0x7FFFFFFF) > 0x7F800000
    words += np.uint32(0xFFF) + (words >> np.uint32(13) & np.uint32(1))
    words &= np.uint32(0xFFFFE000)
    words[nan] = 0x7FFFE000
    return tile


def _padded(m: TensorMap, tile: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """16 elements of 4 or 6 bits in the low bytes of each 16-byte unit, for the types that pad."""
    if m.format.bits == m.format.shared_bits:
        return tile
    packed = tile.reshape(-1, 16 * m.format.bits // 8)
    out = np.zeros((len(packed), 16), np.uint8)
    out[:, : packed.shape[1]] = packed
    return out.reshape(-1)


@lru_cache(maxsize=4096)
def units(swizzle: str, row: int, size: int, address: int) -> Units:
    """See `TensorMap.units`; `row` and `size` are bytes of a box row and of the box.

    Rows narrower than the swizzle's span keep the span as their pitch (measured on an H200).

    Raises
    ------
    DecodeError
        For a shared address that is not 128-byte aligned.
    """
    if address % 128:
        raise DecodeError(f"a bulk tensor copy needs a 128-byte aligned shared address, got {address:#x}")
    swz = pattern(swizzle)
    if not swz.rows:
        return slice(address // 16, (address + size) // 16)
    rows = np.arange(size // row, dtype=np.int64)[:, None] * swz.span
    linear = address + rows + np.arange(0, row, 16, dtype=np.int64)
    index = (swz(linear.reshape(-1)) >> 4).astype(np.intp)
    index.flags.writeable = False
    return index


@lru_cache(maxsize=4096)
def granules(swizzle: str, row: int, size: int, address: int) -> int:
    """See `TensorMap.granules`."""
    index = units(swizzle, row, size, address)
    if isinstance(index, slice):
        return ((1 << size // 16) - 1) << address // 16
    hit = np.zeros(int(index.max()) + 1, np.bool_)
    hit[index] = True
    return int.from_bytes(np.packbits(hit, bitorder="little").tobytes(), "little")
