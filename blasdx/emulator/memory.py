"""Byte-addressed memory: bounds and alignment checked, read and written for a whole warp at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import ArrayLike

from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import DTYPES, FULL, WARP, Array, Value, lane_index, lane_value, spread
from blasdx.emulator.windows import GLOBAL_START

_PAD = 64  # vector accesses read whole 32-byte rows; the padding keeps the last one inside the array
_LOG = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5}


class Region:
    """A contiguous piece of memory.

    Parameters
    ----------
    name : str
        For error messages.
    data : NDArray[np.uint8]
        Backing store; its length is a multiple of 32.
    origin : int
        Address of ``data[0]``.
    start, stop : int
        First legal address and the one behind the last.
    """

    def __init__(self, name: str, data: Array, origin: int, start: int, stop: int, *, read_only: bool = False) -> None:
        self.name = name
        self.data = data
        self.origin = origin
        self.start = start
        self.stop = stop
        self.read_only = read_only
        self.views: dict[int, Array] = {size: data.view(DTYPES[8 * size]) for size in (1, 2, 4, 8)}
        self.rows: dict[tuple[int, int], Array] = {}

    def outside(self, address: int, width: int) -> EmulationError:
        """The error for an access beyond the ends."""
        return EmulationError(
            f"access of {width} byte(s) at {address:#x} is outside {self.name} [{self.start:#x}, {self.stop:#x})"
        )

    def check(self, address: int, width: int) -> int:
        """The index of `address` in `data`, after checking bounds and natural alignment."""
        if address < self.start or address + width > self.stop:
            raise self.outside(address, width)
        if address % width:
            raise EmulationError(f"access of {width} bytes at {address:#x} in {self.name} is not aligned")
        return address - self.origin

    def vectors(self, size: int, count: int) -> Array:
        """The memory as rows of `count` elements of `size` bytes."""
        key = (size, count)
        if key not in self.rows:
            self.rows[key] = self.views[size].reshape(-1, count)
        return self.rows[key]

    # one address

    def load_one(self, address: int, size: int, count: int) -> tuple[int, ...]:
        """`count` elements of `size` bytes at one address."""
        at = self.check(address, size * count)
        if size == 16:
            return (int.from_bytes(self.data[at : at + 16].tobytes(), "little"),)
        at >>= _LOG[size]
        return tuple(self.views[size][at : at + count].tolist())

    def store_one(self, address: int, size: int, values: Sequence[int]) -> None:
        """Elements of `size` bytes to one address."""
        at = self.check(address, size * len(values))
        if self.read_only:
            raise EmulationError(f"store to read-only {self.name} at {address:#x}")
        if size == 16:
            self.data[at : at + 16] = np.frombuffer(values[0].to_bytes(16, "little"), np.uint8)
            return
        at >>= _LOG[size]
        self.views[size][at : at + len(values)] = values

    # one address per lane; offsets were checked

    def gather(self, offsets: Array, size: int, count: int) -> Array:
        """Values with the lanes last: (lanes,) or (count, lanes); (lanes, 2) uint64 for 16-byte elements."""
        if size == 16:
            return self.vectors(8, 2)[offsets >> 4]
        if count == 1:
            return self.views[size][offsets >> _LOG[size]]
        return self.vectors(size, count)[offsets >> _LOG[size * count]].T

    def scatter(self, offsets: Array, size: int, count: int, values: Array) -> None:
        """Write values shaped as `gather` returns them. Of lanes that write the same place, the highest wins."""
        if self.read_only:
            raise EmulationError(f"store to read-only {self.name}")
        if size == 16:
            self.vectors(8, 2)[offsets >> 4] = values
        elif count == 1:
            self.views[size][offsets >> _LOG[size]] = values
        else:
            self.vectors(size, count)[offsets >> _LOG[size * count]] = values.T


class Buffer(Region):
    """An allocation in global memory.

    Attributes
    ----------
    address : int
    nbytes : int
    """

    def __init__(self, origin: int, array: Array, name: str, offset: int = 0) -> None:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        data = np.zeros(-(-(offset + len(flat)) // 32) * 32 + _PAD, np.uint8)
        data[offset : offset + len(flat)] = flat
        super().__init__(name, data, origin, origin + offset, origin + offset + len(flat))
        self.address = self.start
        self.nbytes = len(flat)
        self.dtype = array.dtype
        self.shape = array.shape

    def read(self) -> Array:
        """A copy of the current contents, with the dtype and shape of what was uploaded."""
        return self._own.copy().view(self.dtype).reshape(self.shape)

    def write(self, array: ArrayLike) -> None:
        """Replace the contents by an array of the same size in bytes."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if len(flat) != self.nbytes:
            raise EmulationError(f"{len(flat)} bytes given for {self.name}, {self.nbytes} needed")
        self._own[...] = flat

    @property
    def _own(self) -> Array:
        first = self.start - self.origin
        return self.data[first : first + self.nbytes]


class GlobalMemory:
    """Global memory: buffers at made-up addresses with gaps between them, so that a stray access is noticed."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._buffers: list[Buffer] = []
        self._next = GLOBAL_START
        self.symbols: dict[object, dict[str, int]] = {}

    def upload(self, array: ArrayLike, name: str = "", *, offset: int = 0) -> Buffer:
        """Copy an array into global memory.

        Parameters
        ----------
        array : array_like
            Any dtype and shape; stored contiguously in C order.
        name : str
            For error messages.
        offset : int
            Bytes by which it begins behind a multiple of 4096.

        Returns
        -------
        Buffer
            With ``address`` and ``read()``.
        """
        data = np.asarray(array)
        buffer = Buffer(self._next, data, name or f"buffer {len(self._buffers)}", offset)
        self._next += (-(-max(offset + buffer.nbytes, 1) // 4096) + 16) * 4096
        self._starts.append(buffer.address)
        self._buffers.append(buffer)
        return buffer

    def find(self, address: int) -> Buffer:
        """The buffer an address belongs to.

        Raises
        ------
        EmulationError
            When no buffer holds it.
        """
        index = bisect_right(self._starts, address) - 1
        if index >= 0 and address < self._buffers[index].stop:
            return self._buffers[index]
        near = f"; the nearest below is {self._buffers[index].name}, ending at {self._buffers[index].stop:#x}"
        raise EmulationError(f"address {address:#x} is in no buffer of global memory" + (near if index >= 0 else ""))

    def view(self, address: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
        """A uint8 view of a strided piece of one buffer; bounds checked."""
        buffer = self.find(address)
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if prod(shape) and address + last >= buffer.stop:
            raise buffer.outside(address + last, 1)
        return as_strided(buffer.data[address - buffer.origin :], tuple(shape), tuple(strides))


Chooser = Callable[[int], Region]
_OR = np.bitwise_or.reduce
_MAX = np.maximum.reduce


def _offsets(region: Region, address: Array, width: int) -> Array | None:
    """Offsets in a region of accesses of `width` bytes, or None when some do not fit or are not aligned."""
    offsets = address - region.start  # unsigned: an address below the region becomes a very large offset
    most = region.stop - region.start - width
    bits = int(_OR(offsets))
    # All bits together are no less than the largest offset, and almost always small enough themselves.
    if bits & (width - 1) or (bits > most and int(_MAX(offsets)) > most):
        return None
    if region.start != region.origin:
        offsets += region.start - region.origin
    return offsets.view(np.int64) if offsets.itemsize == 8 else offsets


def _groups(address: Array, lanes: Array, width: int, choose: Chooser) -> list[tuple[Region, Array]]:
    """Lanes grouped by the region their address lies in; every access is checked."""
    groups: dict[int, tuple[Region, list[int]]] = {}
    for lane in lanes.tolist():
        at = int(address[lane])
        region = choose(at)
        region.check(at, width)
        groups.setdefault(id(region), (region, []))[1].append(lane)
    return [(region, np.array(members)) for region, members in groups.values()]


def load(address: Value, mask: int, size: int, count: int, choose: Chooser) -> Any:
    """Load `count` elements of `size` bytes per lane.

    Returns
    -------
    One value, or a sequence of `count` values.
    """
    width = size * count
    if address.__class__ is not np.ndarray:
        values = choose(address).load_one(address, size, count)
        return values[0] if count == 1 else values
    lanes = lane_index(mask)
    chosen = address if mask == FULL else address[lanes]
    region = choose(int(chosen[0]))
    offsets = _offsets(region, chosen, width)
    if offsets is not None:
        groups = [(lanes, region.gather(offsets, size, count))]
        if mask == FULL:
            return groups[0][1]
    else:
        groups = [
            (members, each.gather((address[members] - each.origin).astype(np.int64), size, count))
            for each, members in _groups(address, lanes, width, choose)
        ]
    shape = (WARP, 2) if size == 16 else (WARP,) if count == 1 else (count, WARP)
    out = np.zeros(shape, np.uint64 if size == 16 else DTYPES[8 * size])
    for members, found in groups:
        if size == 16 or count == 1:
            out[members] = found
        else:
            out[:, members] = found
    return out


def store(address: Value, mask: int, size: int, values: Sequence[Value], choose: Chooser) -> None:
    """Store elements of `size` bytes per lane."""
    count = len(values)
    if address.__class__ is not np.ndarray:
        last = mask.bit_length() - 1  # every lane writes the same place; one of them wins
        choose(address).store_one(address, size, [lane_value(v, last) for v in values])
        return
    lanes = lane_index(mask)
    data = _stacked(size, values)
    whole = mask == FULL
    chosen = address if whole else address[lanes]
    region = choose(int(chosen[0]))
    offsets = _offsets(region, chosen, size * count)
    if offsets is not None:
        region.scatter(offsets, size, count, data if whole else _pick(data, lanes, size, count))
        return
    for each, members in _groups(address, lanes, size * count, choose):
        at = (address[members] - each.origin).astype(np.int64)
        each.scatter(at, size, count, _pick(data, members, size, count))


def _stacked(size: int, values: Sequence[Value]) -> Array:
    """Values of all elements and lanes: (lanes,), (elements, lanes), or (lanes, 2) uint64 for 16-byte elements."""
    if len(values) == 1:
        return spread(values[0], 8 * size)
    data = np.empty((len(values), WARP), DTYPES[8 * size])
    for k, value in enumerate(values):
        data[k] = value
    return data


def _pick(data: Array, lanes: Array, size: int, count: int) -> Array:
    return data[lanes] if size == 16 or count == 1 else data[:, lanes]
