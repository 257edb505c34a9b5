"""cp.async, and the groups in which threads wait for it and for bulk stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from blasdx.emulator import access, memory
from blasdx.emulator.asynchronous import Operation
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.groups import CopyGroups
from blasdx.emulator.lanes import Value, lane_value, lanes_of
from blasdx.emulator.warp import Path, Wait


def bulk_groups(w: Path) -> CopyGroups:
    """The bulk groups of the warp."""
    if w.warp.bulk is None:
        w.warp.bulk = CopyGroups()
    return w.warp.bulk


def copy_groups(w: Path) -> CopyGroups:
    """The cp.async groups of the warp."""
    if w.warp.copies is None:
        w.warp.copies = CopyGroups()
    return w.warp.copies


def commit_group(w: Path, bulk: bool, mask: int) -> None:
    """cp.async.commit_group, cp.async.bulk.commit_group."""
    (bulk_groups if bulk else copy_groups)(w).commit(mask)


def wait_group(w: Path, bulk: bool, newest: int, everything: bool, following: int, line: int) -> int | None:
    """cp.async.wait_group / wait_all, cp.async.bulk.wait_group."""
    groups = (bulk_groups if bulk else copy_groups)(w)
    needed = groups.needed(w.mask, newest)
    if everything:
        needed += [item for item in groups.open if item[0] & w.mask]
    missing = [item[1] for item in needed if not item[1].done]

    def ready() -> bool:
        if any(not operation.done for operation in missing):
            return False
        if w.monitor is not None:
            for _, _, agent in needed:
                w.monitor.join(w.warp.agent, agent)
        groups.forget(w.mask, newest)
        return True

    def text() -> str:
        return f"{sum(not o.done for o in missing)} asynchronous copies of its groups"

    def again() -> None:
        if w.wait is wait:
            w.machine.retry(w)

    wait = Wait(text, ready, line)
    result = w.suspend(wait, following)
    if result is None:
        for operation in missing:
            if not operation.done:
                operation.watchers.append(again)
    return result


def copy_async(w: Path, destination: Value, source: Value, size: int, source_size: Value, mask: int, line: int) -> None:
    """cp.async: `size` bytes a lane, of which `source_size` are read and the rest is zero."""
    space, source = access.generic(source, mask)
    if space != "global":
        raise EmulationError("cp.async reads global memory")
    agent = w.monitor.issue(w.warp.agent, "cp.async", line) if w.monitor is not None else 0
    if w.monitor is not None:
        lane = lanes_of(mask)[0]
        rank = int(lane_value(destination, lane)) >> 24
        found = access.granules(destination, mask, size)
        # cp.async writes through the generic proxy, but completes asynchronously.
        w.monitor.access(agent, "shared", w.cta.peer(rank).number, found, write=True, proxy="generic", line=line)

    if w.machine.races is not None:
        whole = sum(1 << lane for lane in lanes_of(mask) if int(lane_value(source_size, lane)) == size)
        if whole:
            w.machine.races.lanes(w, source, whole, size, line, "read")
    find = w.machine.memory.find
    region = w.cta.region

    def action() -> None:
        if source_size.__class__ is not np.ndarray and source_size == size:
            _copy_lanes(destination, source, size, mask, find, region)
            return
        for lane in lanes_of(mask):
            count = int(lane_value(source_size, lane))
            at, into = int(lane_value(source, lane)), int(lane_value(destination, lane))
            data = np.zeros(size, np.uint8)
            if count:
                buffer = find(at)
                if at + count > buffer.stop:
                    raise buffer.outside(at, count)
                data[:count] = buffer.data[at - buffer.origin : at - buffer.origin + count]
            target = region(into)
            first = target.check(into, size)
            target.data[first : first + size] = data

    operation = w.machine.submit("cp.async", action, f"cta {w.cta.number} cp.async", line)
    copy_groups(w).add(mask, operation, agent)


def _copy_lanes(destination: Value, source: Value, size: int, mask: int, find: Any, region: Any) -> None:
    element, count = (8, 2) if size == 16 else (size, 1)
    values = memory.load(source, mask, element, count, find)
    memory.store(destination, mask, element, list(values) if count == 2 else [values], region)


def copy_arrive(w: Path, address: Value, noinc: bool, mask: int, line: int) -> None:
    """cp.async.mbarrier.arrive: an arrival when the earlier copies of the thread are over."""
    rank = int(lane_value(address, lanes_of(mask)[0])) >> 24
    groups = copy_groups(w)
    before: list[tuple[int, Operation, int]] = [i for i in groups.open if i[0] & mask]
    before += [i for lanes, members in groups.groups if lanes & mask for i in members]
    barrier = w.cta.peer(rank).barrier(int(lane_value(address, lanes_of(mask)[0])) & 0xFFFFFF)
    count = mask.bit_count()
    if not noinc:
        barrier.pending += count
    pending = [o for _, o, _ in before if not o.done]

    def fire() -> None:
        if w.monitor is not None:
            for _, _, agent in before:
                w.monitor.finish(agent, barrier.key)
            w.monitor.release(w.warp.agent, barrier.key, line)
        if barrier.arrive(count):
            w.machine.flipped(barrier)

    if not pending:
        fire()
        return
    state = {"fired": False}

    def watch() -> None:
        if not state["fired"] and all(o.done for o in pending):
            state["fired"] = True
            fire()

    for operation in pending:
        operation.watchers.append(watch)
