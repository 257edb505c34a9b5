"""Loads, stores and atomics as generated code calls them; `w` is the running path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from blasdx.emulator import memory
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import DTYPES, FULL, LANES, Value, lane_index, lane_value, lanes_of, merged, spread
from blasdx.emulator.memory import Region
from blasdx.emulator.warp import Path
from blasdx.emulator.windows import GLOBAL_START, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW


def granules(address: Value, mask: int, width: int) -> int:
    """Bit mask of the 16-byte units that an access of `width` bytes a lane touches."""
    if address.__class__ is not np.ndarray:
        start = int(address) & 0xFFFFFF
        only, last = start >> 4, (start + width - 1) >> 4
        return ((1 << last - only + 1) - 1) << only
    offsets = address[lane_index(mask)].astype(np.int64) & 0xFFFFFF
    first = offsets >> 4
    low, high = int(first.min()), int((offsets.max() + width - 1) >> 4)
    if high - low > 8192:
        hits = set(first.tolist()) | set(((offsets + width - 1) >> 4).tolist())
        return sum(1 << h for h in hits)
    flags = np.zeros(high - low + 1, np.bool_)
    flags[first - low] = True
    for extra in range(16, width + 15, 16):
        flags[((offsets + min(extra, width - 1)) >> 4) - low] = True
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little") << low


def note_shared(w: Path, address: Value, mask: int, width: int, write: bool, line: int, mode: str = "") -> None:
    """Tell the hazard monitor about a generic access to shared memory."""
    monitor = w.machine.monitor
    if monitor is None:
        return
    rank = (int(address) if address.__class__ is not np.ndarray else int(address[lanes_of(mask)[0]])) >> 24
    cta = w.cta if rank == w.cta.rank else w.cta.peer(rank)
    touched = granules(address, mask, width)
    if write:
        for offset in monitor.barriers_in(cta.number, touched):
            _check_barrier(w, address, mask, width, offset, line)
    monitor.access(
        w.warp.agent, "shared", cta.number, touched, write=write, proxy="generic", line=line, mode=mode
    )  # fmt: skip


def _check_barrier(w: Path, address: Value, mask: int, width: int, offset: int, line: int) -> None:
    """Report a store to the eight bytes of a live mbarrier."""
    starts = {int(lane_value(address, lane)) & 0xFFFFFF for lane in lanes_of(mask)}
    if w.monitor is not None and any(start < offset + 8 and start + width > offset for start in starts):
        text = f"{w.warp.name} writes over the mbarrier at {offset:#x}; mbarrier.inval is needed before"
        w.monitor.report("error", "mbarrier-overwritten", text, (line,))


def _local(w: Path, address: Value, mask: int) -> tuple[Value, Region]:
    """Every lane has its own local memory; they lie behind each other in one region."""
    region = w.warp.local
    if region is None:
        raise EmulationError("access to local memory of a kernel that declares none")
    size = w.machine.program.local_bytes
    narrow = spread(address, 64).astype(np.int64)
    lanes = narrow[list(lanes_of(mask))]
    if int(lanes.min()) < 0 or int(lanes.max()) >= size:
        raise EmulationError(f"local address {int(lanes.max()):#x} is outside the {size} bytes of a thread")
    return (narrow + LANES.astype(np.int64) * size).astype(np.uint64), region


def _resolve(w: Path, space: str, address: Value, mask: int) -> tuple[str, Value, Callable[[int], Region]]:
    """Space, address in it, and how to find the memory behind an address."""
    if space == "generic":
        space, address = generic(address, mask)
    if space == "global":
        return space, address, w.machine.memory.find
    if space == "shared":
        return space, address, w.cta.region
    if space == "param":
        return space, address, lambda _: w.machine.params
    address, region = _local(w, address, mask)
    return space, address, lambda _: region


def split_spaces(address: Value, mask: int) -> list[int]:
    """Lanes by the state space of their generic addresses; empty when all lie in one."""
    if address.__class__ is not np.ndarray:
        return []
    tops = (address if mask == FULL else address[lane_index(mask)]) >> np.uint64(32)
    if (tops == tops[0]).all():
        return []
    tops = (address >> np.uint64(32)).astype(np.int64)
    tops[tops >= GLOBAL_START >> 32] = GLOBAL_START >> 32
    parts: dict[int, int] = {}
    for lane in lanes_of(mask):
        parts[int(tops[lane])] = parts.get(int(tops[lane]), 0) | 1 << lane
    return list(parts.values()) if len(parts) > 1 else []


def _merged(parts: list[tuple[int, Any]], bits: int, count: int) -> Any:
    """What several sets of lanes loaded, as one value, or one for each element."""
    columns = [merged([(mask, found if count == 1 else found[k]) for mask, found in parts], bits) for k in range(count)]
    return columns[0] if count == 1 else columns


def generic(address: Value, mask: int) -> tuple[str, Value]:
    """The state space a generic address lies in, and the address in that space."""
    varying = address.__class__ is np.ndarray
    first = int(address[lanes_of(mask)[0]]) if varying else address
    top = first & ~0xFFFFFFFF
    if varying:
        tops = address[list(lanes_of(mask))] >> np.uint64(32)
        if top < GLOBAL_START and (tops != tops[0]).any():
            raise EmulationError("the lanes of one generic access lie in different state spaces")
    spaces = {SHARED_WINDOW: "shared", LOCAL_WINDOW: "local", PARAM_WINDOW: "param"}
    if top in spaces:
        return spaces[top], (address & np.uint64(0xFFFFFFFF)) if varying else address & 0xFFFFFFFF
    return "global", address


def load(w: Path, space: str, address: Value, size: int, count: int, mask: int, line: int, order: str = "") -> Any:
    """ld: `count` elements of `size` bytes a lane. `order` names an acquiring form."""
    if space == "generic" and (parts := split_spaces(address, mask)):
        return _merged([(p, load(w, space, address, size, count, p, line, order)) for p in parts], 8 * size, count)
    space, address, choose = _resolve(w, space, address, mask)
    if space == "shared":
        note_shared(w, address, mask, size * count, False, line)
    elif space == "global":
        note_global(w, address, mask, size * count, order, line, write=False)
    if space == "local" and address.__class__ is np.ndarray and not w.mask & (w.mask - 1):
        found = memory.load(int(address[w.mask.bit_length() - 1]), mask, size, count, choose)
    else:
        found = memory.load(address, mask, size, count, choose)
    return found


def store(
    w: Path, space: str, address: Value, size: int, values: Sequence[Value], mask: int, line: int, order: str = ""
) -> None:
    """st."""
    w.machine.events += 1
    if space == "generic" and (parts := split_spaces(address, mask)):
        for part in parts:
            store(w, space, address, size, values, part, line, order)
        return
    space, address, choose = _resolve(w, space, address, mask)
    if space == "shared":
        note_shared(w, address, mask, size * len(values), True, line)
    elif space == "global":
        note_global(w, address, mask, size * len(values), order, line, write=True)
    memory.store(address, mask, size, values, choose)


def fill(w: Path, space: str, address: Value, size: Value, mask: int, line: int) -> None:
    """st.bulk: `size` zero bytes of shared memory for each lane; addresses and sizes are multiples of 8."""
    w.machine.events += 1
    space, address, choose = _resolve(w, space, address, mask)
    if space != "shared":
        raise EmulationError(f"st.bulk writes shared memory, not {space} memory")
    for lane in lanes_of(mask):
        at, count = int(lane_value(address, lane)) & 0xFFFFFFFF, int(lane_value(size, lane))
        if at % 8 or count % 8:
            raise EmulationError(f"st.bulk of {count} bytes at {at:#x}; both have to be multiples of 8")
        region = choose(at)
        if at < region.start or at + count > region.stop:
            raise region.outside(at, count)
        if count:
            note_shared(w, at, 1 << lane, count, True, line)
            region.data[at - region.origin : at - region.origin + count] = 0


def note_global(w: Path, address: Value, mask: int, width: int, order: str, line: int, *, write: bool) -> None:
    """Tell the hazard monitor about a load or store of global memory: ordinary, or with a memory order."""
    races = w.machine.races
    if races is None:
        return
    if not order:
        races.lanes(w, address, mask, width, line, "write" if write else "read")
        return
    races.synchronise(w, address, mask, acquire=not write, release=write, strong=order == "release")
    races.lanes(w, address, mask, width, line, "put" if write else "look")
    if order == "volatile" or order == ("release" if write else "acquire"):
        synchronise(w, address, mask, line, acquire=not write, release=write)


def synchronise(w: Path, address: Value, mask: int, line: int, *, acquire: bool = False, release: bool = False) -> None:
    """Order through a flag in global memory, as far as the hazard monitor is concerned."""
    monitor = w.machine.monitor
    if monitor is None:
        return
    # Pages instead of addresses: data updated by a whole warp would make a key for every lane.
    pages = {int(lane_value(address, lane)) >> 12 for lane in lanes_of(mask)}
    for page in pages:
        if release:
            monitor.release(w.warp.agent, ("global", page), line)
        if acquire:
            monitor.acquire(w.warp.agent, ("global", page), line)


def atomic(
    w: Path,
    space: str,
    address: Value,
    size: int,
    operands: Sequence[Sequence[Value]],
    function: Callable[..., Value],
    mask: int,
    line: int,
    order: str = "",
) -> Any:
    """atom and red: `operands` holds the values of each element; `function(old, ...)` is the new value.

    Returns
    -------
    The old values: one value, or one for each element.
    """
    count = len(operands)
    if space == "generic" and (parts := split_spaces(address, mask)):
        each = [(p, atomic(w, space, address, size, operands, function, p, line, order)) for p in parts]
        return _merged(each, 8 * size, count)
    space, address, choose = _resolve(w, space, address, mask)
    if space == "shared":
        note_shared(w, address, mask, size * count, True, line, "atomic")
    elif space == "global" and w.machine.races is not None:
        strong = order in ("release", "acq_rel")
        w.machine.races.synchronise(w, address, mask, acquire=True, release=True, strong=strong)
        if order in ("acquire", "release", "acq_rel"):
            synchronise(w, address, mask, line, acquire=order != "release", release=order != "acquire")
    lanes = lane_index(mask)
    if address.__class__ is np.ndarray and len(np.unique(address[lanes])) == len(lanes) and size < 16:
        old = memory.load(address, mask, size, count, choose)
        olds = [old] if count == 1 else list(old)
        new = [spread(function(o, *values), 8 * size) for o, values in zip(olds, operands, strict=True)]
        memory.store(address, mask, size, new, choose)
        # An update that changes nothing, such as a failed compare-and-swap, must not look like progress.
        w.machine.events += any((spread(o, 8 * size) != n).any() for o, n in zip(olds, new, strict=True))
        return old
    out = [np.zeros((32, 2), np.uint64) if size == 16 else np.zeros(32, DTYPES[8 * size]) for _ in range(count)]
    for lane in lanes.tolist():
        at = int(lane_value(address, lane))
        found = memory.load(at, 1 << lane, size, count, choose)
        before = [found] if count == 1 else list(found)
        after = [function(b, *(lane_value(v, lane) for v in vs)) for b, vs in zip(before, operands, strict=True)]
        memory.store(at, 1 << lane, size, after, choose)
        w.machine.events += before != after
        for k, value in enumerate(before):
            out[k][lane] = (value & (1 << 64) - 1, value >> 64) if size == 16 else value
    if not w.mask & (w.mask - 1):
        lane = w.mask.bit_length() - 1
        single = [lane_value(o, lane) for o in out]
        return single[0] if count == 1 else single
    return out[0] if count == 1 else out
