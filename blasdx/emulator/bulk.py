"""Asynchronous copies as generated code calls them: TMA, bulk copies, cp.async, clusterlaunchcontrol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from blasdx.emulator import access
from blasdx.emulator.cp_async import bulk_groups
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import Value, lane_value, lanes_of
from blasdx.emulator.mbarrier import Barrier
from blasdx.emulator.resident import Cta
from blasdx.emulator.synchronisation import shared_address
from blasdx.emulator.tensormap import TensorMap
from blasdx.emulator.warp import Path

Reduction = Callable[..., Value]


def _varying(*values: Value) -> bool:
    return any(v.__class__ is np.ndarray for v in values)


def _issuers(w: Path, mask: int, *values: Value) -> tuple[int, ...]:
    """Lanes that issue; when all operands agree, one for all of them."""
    del w
    lanes = lanes_of(mask)
    return lanes if _varying(*values) else lanes[:1]


def read_map(w: Path, address: int) -> TensorMap:
    """The tensor map at a generic address (parameter, constant or global space)."""
    if address % 64:
        raise EmulationError(f"the tensor map at {address:#x} is not 64-byte aligned")
    space, at = access.generic(address, w.mask)
    region = w.machine.params if space == "param" else w.machine.memory.find(at) if space == "global" else None
    if region is None:
        raise EmulationError(f"a tensor map cannot lie in {space} memory")
    if at < region.start or at + 128 > region.stop:
        raise region.outside(at, 128)
    if w.monitor is not None:
        w.monitor.use_map(w.warp.agent, at, w.program.blocks[w.pc].line)
    first = at - region.origin
    return TensorMap.from_bytes(region.data[first : first + 128].tobytes())


def _issue(w: Path, kind: str, line: int) -> int:
    return w.monitor.issue(w.warp.agent, kind, line) if w.monitor is not None else 0


def completed(w: Path, barrier: Barrier, count: int, agent: int) -> None:
    """An asynchronous operation signals `count` bytes to a barrier."""
    if w.monitor is not None:
        w.monitor.finish(agent, barrier.key)
    if barrier.transfer(-count):
        w.machine.flipped(barrier)


def _destinations(
    w: Path, destination: int, barrier: int, pair: bool, multicast: int | None
) -> list[tuple[Cta, int, int, int]]:
    """(CTA, shared offset, rank of the barrier's CTA, offset of the barrier) of each copy of the data."""
    offset, bar_offset = destination & 0xFFFFFF, barrier & 0xFFFFFF
    rank, bar_rank = destination >> 24, barrier >> 24
    if multicast is None:
        if not pair and rank != bar_rank:
            raise EmulationError(
                f"the barrier (cluster rank {bar_rank}) must be in the destination CTA (rank {rank}) "
                "without .cta_group::2"
            )
        if pair and rank >> 1 != bar_rank >> 1:
            raise EmulationError(f"the barrier (cluster rank {bar_rank}) is not in the pair of CTA rank {rank}")
        return [(w.cta.peer(rank), offset, bar_rank, bar_offset)]
    if not multicast:
        raise EmulationError("multicast to no CTA")
    result = []
    for target in range(16):
        if multicast >> target & 1:
            signalled = (target & ~1) | (bar_rank & 1) if pair else target
            result.append((w.cta.peer(target), offset, signalled, bar_offset))
    return result


def tensor_load(
    w: Path,
    destination: Value,
    map_address: Value,
    coordinates: Sequence[Value],
    barrier: Value,
    multicast: Value | None,
    pair: bool,
    gather: bool,
    mask: int,
    line: int,
) -> None:
    """cp.async.bulk.tensor from global to shared memory."""
    lanes = lanes_of(mask)
    for lane in lanes:
        tensor = read_map(w, int(lane_value(map_address, lane)))
        at = tuple(_signed(lane_value(c, lane)) for c in coordinates)
        cast = None if multicast is None else int(lane_value(multicast, lane))
        targets = _destinations(w, int(lane_value(destination, lane)), int(lane_value(barrier, lane)), pair, cast)
        for cta, offset, bar_rank, bar_offset in targets:
            _load_box(w, tensor, at, cta, offset, (bar_rank, bar_offset), gather, line)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _load_box(
    w: Path,
    tensor: TensorMap,
    coordinates: tuple[int, ...],
    cta: Cta,
    offset: int,
    barrier: tuple[int, int],
    gather: bool,
    line: int,
) -> None:
    size = tensor.box_bytes * (4 if gather else 1)
    units = tensor.units(offset, gather=gather)
    _inside(cta, offset, size)
    signal = w.cta.peer(barrier[0]).barrier(barrier[1])
    agent = _issue(w, "tma-load", line)
    monitor = w.monitor
    if monitor is not None:
        monitor.use_barrier(w.warp.agent, signal.cta, signal.offset, line)
        found = tensor.granules(offset, gather=gather)
        monitor.access(agent, "shared", cta.number, found, write=True, proxy="async", line=line)
    if w.machine.races is not None:
        w.machine.races.box(w, tensor, coordinates, gather, line, write=False)
    view = w.machine.memory.view

    def action() -> None:
        tile = tensor.load(coordinates, view, gather=gather)
        cta.shared16[units] = tile.view(np.complex128)
        completed(w, signal, size, agent)

    w.machine.submit("tma-load", action, f"cta {cta.number} tma", line)


def _inside(cta: Cta, offset: int, size: int) -> None:
    region = cta.shared
    address = region.origin + offset
    if address < region.start or address + size > region.stop:
        raise region.outside(address, size)


def tensor_store(
    w: Path,
    map_address: Value,
    coordinates: Sequence[Value],
    source: Value,
    reduction: str,
    gather: bool,
    mask: int,
    line: int,
) -> None:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    for lane in _issuers(w, mask, map_address, source, *coordinates):
        tensor = read_map(w, int(lane_value(map_address, lane)))
        at = tuple(_signed(lane_value(c, lane)) for c in coordinates)
        address = int(lane_value(source, lane))
        if address >> 24 != w.cta.rank:
            raise EmulationError("a bulk store reads shared memory of its own CTA only")
        offset = address & 0xFFFFFF
        size = tensor.box_bytes * (4 if gather else 1)
        _inside(w.cta, offset, size)
        units = tensor.units(offset, gather=gather)
        agent = _issue(w, "tma-store", line)
        if w.monitor is not None:
            found = tensor.granules(offset, gather=gather)
            w.monitor.access(agent, "shared", w.cta.number, found, write=False, proxy="async", line=line)
        if w.machine.races is not None and not reduction:
            w.machine.races.box(w, tensor, at, gather, line, write=True)
        action = _store_action(w.machine.memory.view, w.cta, tensor, at, units, reduction, gather)
        operation = w.machine.submit("tma-store", action, f"cta {w.cta.number} tma", line)
        bulk_groups(w).add(mask if not _varying(map_address, source, *coordinates) else 1 << lane, operation, agent)


def _store_action(
    view: Any,
    cta: Cta,
    tensor: TensorMap,
    coordinates: tuple[int, ...],
    units: Any,
    reduction: str,
    gather: bool,
) -> Callable[[], None]:
    def action() -> None:
        tile = np.ascontiguousarray(cta.shared16[units]).view(np.uint8)
        if reduction:
            tensor.reduce(coordinates, tile, view, reduction, gather=gather)
        else:
            tensor.store(coordinates, tile, view, gather=gather)

    return action


# ---------------------------------------------------------------------------------------------------- plain bulk copies


def bulk_load(
    w: Path,
    destination: Value,
    source: Value,
    size: Value,
    barrier: Value,
    multicast: Value | None,
    mask: int,
    line: int,
) -> None:
    """cp.async.bulk from global to shared memory, with complete_tx."""
    for lane in lanes_of(mask):
        start, count = int(lane_value(source, lane)), int(lane_value(size, lane))
        _check_bulk(start, int(lane_value(destination, lane)), count)
        cast = None if multicast is None else int(lane_value(multicast, lane))
        targets = _destinations(w, int(lane_value(destination, lane)), int(lane_value(barrier, lane)), False, cast)
        for cta, offset, bar_rank, bar_offset in targets:
            _inside(cta, offset, count)
            buffer = w.machine.memory.find(start)
            if start + count > buffer.stop:
                raise buffer.outside(start, count)
            data = buffer.data[start - buffer.origin : start - buffer.origin + count]
            if w.machine.races is not None:
                w.machine.races.piece(w, start, count, line, write=False)
            _copy(w, data, cta, offset, count, (bar_rank, bar_offset), line)


def bulk_peer(
    w: Path, destination: Value, source: Value, size: Value, barrier: Value, reduction: Reduction | None, width: int,
    mask: int, line: int,
) -> None:  # fmt: skip
    """cp.async.bulk and cp.reduce.async.bulk from shared memory to that of another CTA."""
    for lane in lanes_of(mask):
        start, count = int(lane_value(source, lane)), int(lane_value(size, lane))
        _check_bulk(start, int(lane_value(destination, lane)), count)
        if start >> 24 != w.cta.rank:
            raise EmulationError("a bulk copy reads shared memory of its own CTA only")
        _inside(w.cta, start & 0xFFFFFF, count)
        data = w.cta.shared.data[start & 0xFFFFFF : (start & 0xFFFFFF) + count]
        targets = _destinations(w, int(lane_value(destination, lane)), int(lane_value(barrier, lane)), False, None)
        cta, offset, bar_rank, bar_offset = targets[0]
        _inside(cta, offset, count)
        _copy(w, data, cta, offset, count, (bar_rank, bar_offset), line, (w.cta, start & 0xFFFFFF), reduction, width)


def _check_bulk(*values: int) -> None:
    if any(v % 16 for v in values):
        raise EmulationError(f"bulk copies need 16-byte aligned addresses and sizes, got {', '.join(map(hex, values))}")


def _copy(
    w: Path,
    data: Any,
    cta: Cta,
    offset: int,
    count: int,
    barrier: tuple[int, int],
    line: int,
    source: tuple[Cta, int] | None = None,
    reduction: Reduction | None = None,
    width: int = 1,
) -> None:
    signal = w.cta.peer(barrier[0]).barrier(barrier[1])
    agent = _issue(w, "bulk-copy", line)
    monitor = w.monitor
    if monitor is not None:
        span = (1 << count // 16) - 1
        monitor.use_barrier(w.warp.agent, signal.cta, signal.offset, line)
        found, mode = span << offset // 16, "atomic" if reduction else ""
        monitor.access(agent, "shared", cta.number, found, write=True, proxy="async", line=line, mode=mode)
        if source is not None:
            from_cta, at = source
            monitor.access(agent, "shared", from_cta.number, span << at // 16, write=False, proxy="async", line=line)

    write = _bulk_action(cta.shared.data[offset : offset + count], data, reduction, width)

    def action() -> None:
        write()
        completed(w, signal, count, agent)

    w.machine.submit("bulk-copy", action, f"cta {cta.number} tma", line)


def bulk_store(
    w: Path, destination: Value, source: Value, size: Value, reduction: Reduction | None, width: int, kept: Value,
    mask: int, line: int,
) -> None:  # fmt: skip
    """cp.async.bulk and cp.reduce.async.bulk from shared to global memory, in a bulk group.

    Bit i of `kept` says whether byte i of each 16 bytes is written (.cp_mask).
    """
    for lane in _issuers(w, mask, destination, source, size, kept):
        target, start, count = (int(lane_value(v, lane)) for v in (destination, source, size))
        _check_bulk(target, start, count)
        _inside(w.cta, start & 0xFFFFFF, count)
        buffer = w.machine.memory.find(target)
        if target + count > buffer.stop:
            raise buffer.outside(target, count)
        agent = _issue(w, "tma-store", line)
        if w.monitor is not None:
            span = ((1 << count // 16) - 1) << (start & 0xFFFFFF) // 16
            w.monitor.access(agent, "shared", w.cta.number, span, write=False, proxy="async", line=line)
        into = buffer.data[target - buffer.origin : target - buffer.origin + count]
        if w.machine.races is not None and reduction is None:
            w.machine.races.piece(w, target, count, line, write=True)
        data = w.cta.shared.data[start & 0xFFFFFF : (start & 0xFFFFFF) + count]
        bytes_ = int(lane_value(kept, lane))
        action = _bulk_action(into, data, reduction, width, bytes_)
        operation = w.machine.submit("bulk-store", action, f"cta {w.cta.number} tma", line)
        bulk_groups(w).add(1 << lane if _varying(destination, source, size, kept) else mask, operation, agent)


def _bulk_action(
    into: Any, data: Any, reduction: Reduction | None, width: int, kept: int = 0xFFFF
) -> Callable[[], None]:
    """Copy or reduce `data` into equally many bytes."""

    def action() -> None:
        if reduction is None and kept == 0xFFFF:
            into[:] = data
            return
        if reduction is None:
            chosen = [k for k in range(16) if kept >> k & 1]
            into.reshape(-1, 16)[:, chosen] = data.reshape(-1, 16)[:, chosen]
            return
        kind = np.dtype(f"u{width}")
        for at in range(0, len(data), 32 * width):
            old = into[at : at + 32 * width].view(kind)
            old[:] = reduction(old.copy(), data[at : at + 32 * width].view(kind))[: len(old)]

    return action


# -------------------------------------------------------------------------------------------- clusterlaunchcontrol


def try_cancel(w: Path, address: Value, barrier: Value, generic: bool, multicast: bool, mask: int, line: int) -> None:
    """clusterlaunchcontrol.try_cancel: always answers that nothing was cancelled, which is legal at any time."""
    address, barrier = (shared_address(v, generic, mask) for v in (address, barrier))
    for lane in lanes_of(mask):
        offset, bar_offset = (int(lane_value(v, lane)) & 0xFFFFFF for v in (address, barrier))
        for cta in w.cta.cluster.ctas if multicast else [w.cta]:
            _answer(w, cta, offset, bar_offset, line)


def _answer(w: Path, cta: Cta, offset: int, bar_offset: int, line: int) -> None:
    signal = cta.barrier(bar_offset)
    _inside(cta, offset, 16)
    agent = _issue(w, "bulk-copy", line)
    if w.monitor is not None:
        w.monitor.access(agent, "shared", cta.number, 1 << offset // 16, write=True, proxy="async", line=line)

    def action() -> None:
        cta.shared.data[offset : offset + 16] = 0
        completed(w, signal, 16, agent)

    w.machine.submit("clusterlaunchcontrol", action, f"cta {cta.number} tma", line)
