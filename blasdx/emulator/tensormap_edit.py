"""Tensor maps built or changed by a kernel: tensormap.replace and tensormap.cp_fenceproxy (PTX ISA 9.7.9.28).

Fields go where ``tensormap.replace`` was seen to write them in SASS for sm_90a to sm_107a. Extents, boxes and element
strides are given as they are and stored minus one, strides in bytes and stored divided by 16; the rank is given minus
one (PTX ISA).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blasdx.emulator import access
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import Value, lane_value, lanes_of
from blasdx.emulator.memory import Region
from blasdx.emulator.synchronisation import one
from blasdx.emulator.warp import Path

_ELEMENTS = {11: (7, 1), 12: (8, 1), 13: (11, 0), 14: (12, 0), 15: (13, 0)}  # PTX code: bits 7-10 and bit 16
BYTES = 128


def _bits(words: Any, word: int, low: int, width: int, value: int) -> None:
    """Write a bit field of one word."""
    mask = ((1 << width) - 1) << low
    words[word] = int(words[word]) & ~mask & 0xFFFFFFFF | value << low & mask


def _need(condition: bool, field: str, value: int, legal: str) -> None:
    if not condition:
        raise EmulationError(f"tensormap.replace of {field} with {value}; {legal} is needed")


def _address(words: Any, index: int, value: int) -> None:
    del index
    _need(value % 16 == 0, "global_address", value, "a multiple of 16")
    words[0], words[1] = value & 0xFFFFFFFF, value >> 32


def _rank(words: Any, index: int, value: int) -> None:
    del index
    _need(value <= 4, "rank", value, "0 to 4 (the number of dimensions minus one)")
    _bits(words, 2, 4, 3, value)


def _box(words: Any, index: int, value: int) -> None:
    _need(1 <= value <= 256, "box_dim", value, "1 to 256")
    if index:
        _bits(words, 14, 8 * (index - 1), 8, value - 1)
    else:
        _bits(words, 13, 24, 8, value - 1)


def _extent(words: Any, index: int, value: int) -> None:
    words[8 + index] = (value - 1) & 0xFFFFFFFF


def _stride(words: Any, index: int, value: int) -> None:
    _need(value % 16 == 0 and value < 1 << 40 and index < 4, "global_stride", value, "a multiple of 16 below 2^40")
    words[3 + index] = value >> 4 & 0xFFFFFFFF
    _bits(words, 7, 4 * index, 4, value >> 36)


def _step(words: Any, index: int, value: int) -> None:
    _need(1 <= value <= 8, "element_stride", value, "1 to 8")
    _bits(words, 13, 3 * index, 3, value - 1)


def _element(words: Any, index: int, value: int) -> None:
    del index
    _need(value <= 15, "elemtype", value, "0 to 15")
    code, tf32 = _ELEMENTS.get(value, (value, 0))
    _bits(words, 2, 7, 4, code)
    _bits(words, 2, 16, 1, tf32)


def _field(name: str, low: int, width: int, most: int) -> Callable[[Any, int, int], None]:
    def write(words: Any, index: int, value: int) -> None:
        del index
        _need(value <= most, name, value, f"0 to {most}")
        _bits(words, 2, low, width, value)

    return write


# Bits of the new value; where it goes.
FIELDS: dict[str, tuple[int, Callable[[Any, int, int], None]]] = {
    "global_address": (64, _address),
    "rank": (32, _rank),
    "box_dim": (32, _box),
    "global_dim": (32, _extent),
    "global_stride": (64, _stride),
    "element_stride": (32, _step),
    "elemtype": (32, _element),
    "interleave_layout": (32, _field("interleave_layout", 11, 2, 2)),
    "swizzle_mode": (32, _field("swizzle_mode", 13, 2, 3)),
    "swizzle_atomicity": (32, _field("swizzle_atomicity", 19, 2, 3)),
    "fill_mode": (32, _field("fill_mode", 15, 1, 1)),
}
INDEXED = ("box_dim", "global_dim", "global_stride", "element_stride")


def _map_at(w: Path, space: str, address: int) -> Region:
    region = w.cta.region(address) if space == "shared" else w.machine.memory.find(address)
    if address % BYTES:
        raise EmulationError(f"the tensor map at {address:#x} is not aligned to its {BYTES} bytes")
    if address < region.start or address + BYTES > region.stop:
        raise region.outside(address, BYTES)
    return region


def replace(w: Path, space: str, address: Value, field: str, index: int, value: Value, mask: int, line: int) -> None:
    """tensormap.replace: one field of the map at an address."""
    if space == "generic":
        space, address = access.generic(address, mask)
    for lane in lanes_of(mask):
        at = int(lane_value(address, lane))
        region = _map_at(w, space, at)
        words = region.views[4][(at - region.origin) // 4 : (at - region.origin + BYTES) // 4]
        FIELDS[field][1](words, index, int(lane_value(value, lane)))
        if space == "global" and w.monitor is not None:
            w.monitor.change_map(w.warp.agent, at, line)
    if space == "shared":
        access.note_shared(w, address, mask, BYTES, True, line)
    w.machine.events += 1


def copy(w: Path, target: Value, source: Value, line: int) -> None:
    """tensormap.cp_fenceproxy: a map from shared to global memory, released to tensor-map readers."""
    if not w.whole:
        raise EmulationError(f"tensormap.cp_fenceproxy is .sync.aligned: all lanes of {w.warp.name} have to execute it")
    into, at = one(target, w, "the target"), one(source, w, "the source")
    shared, memory = _map_at(w, "shared", at), _map_at(w, "global", into)
    access.note_shared(w, at, w.mask, BYTES, False, line)
    first = at - shared.origin
    memory.data[into - memory.origin : into - memory.origin + BYTES] = shared.data[first : first + BYTES]
    if w.monitor is not None:
        w.monitor.change_map(w.warp.agent, into, line)
    w.machine.events += 1


def acquire(w: Path, address: Value, mask: int) -> None:
    """fence.proxy.tensormap::generic.acquire: what comes after it in this CTA may use the map."""
    if w.monitor is None:
        return
    _, address = access.generic(address, mask)
    for lane in lanes_of(mask):
        w.monitor.acquire_map(w.warp.agent, int(lane_value(address, lane)))
