"""tcgen05.ld, .st and .wait as generated code calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from blasdx.emulator import tensor_memory
from blasdx.emulator.lanes import Value, spread
from blasdx.emulator.synchronisation import one
from blasdx.emulator.tensor_core import COLUMN_MASK, check_allocated, whole_warp
from blasdx.emulator.warp import Path


def load(w: Path, shape: str, count: int, packed: bool, half: int, address: Value, line: int) -> list[Value]:
    """tcgen05.ld."""
    whole_warp(w, "tcgen05.ld")
    at = one(address, w, "the address")
    found = tensor_memory.register_map(shape, count, packed=packed, second_half=half)
    lane = tensor_memory.warp_lane(at, w.warp.index, found.rows)
    column = at & COLUMN_MASK
    check_allocated(w.cta, column, 1, "tcgen05.ld reads")
    if w.monitor is not None:
        w.warp.loads.append(_note(w, "tcgen05.ld", shape, count, packed, half, lane, column, line))
    return list(tensor_memory.load(w.cta.tensor_memory, found, lane, column, packed=packed))


def fold(registers: Sequence[Value], function: Callable[..., Value], absolute: bool) -> Value:
    """The reduction of tcgen05.ld.red over the registers of a thread."""
    values = [value & 0x7FFFFFFF for value in registers] if absolute else list(registers)
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result


def _note(
    w: Path, kind: str, shape: str, count: int, packed: bool, half: int, lane: int, column: int, line: int
) -> int:
    monitor = w.monitor
    assert monitor is not None
    agent = monitor.issue(w.warp.agent, kind, line)
    mask = tensor_memory.access_mask(shape, count, lane, column, packed=packed, second_half=half)
    write = kind == "tcgen05.st"
    monitor.access(agent, "tensor", w.cta.number, mask, write=write, proxy="tensor", line=line)
    return agent


def store(
    w: Path, shape: str, count: int, packed: bool, half: int, address: Value, values: Sequence[Value], line: int
) -> None:
    """tcgen05.st."""
    whole_warp(w, "tcgen05.st")
    at = one(address, w, "the address")
    found = tensor_memory.register_map(shape, count, packed=packed, second_half=half)
    lane = tensor_memory.warp_lane(at, w.warp.index, found.rows)
    column = at & COLUMN_MASK
    check_allocated(w.cta, column, 1, "tcgen05.st writes")
    if w.monitor is not None:
        w.warp.stores.append(_note(w, "tcgen05.st", shape, count, packed, half, lane, column, line))
    words = np.empty((len(values), 32), np.uint32)
    for k, value in enumerate(values):
        words[k] = spread(value, 32)
    tensor_memory.store(w.cta.tensor_memory, found, lane, column, words, packed=packed)
    w.machine.events += 1


def wait(w: Path, stores: bool) -> None:
    """tcgen05.wait::ld and ::st."""
    pending = w.warp.stores if stores else w.warp.loads
    if w.monitor is not None:
        for agent in pending:
            w.monitor.join(w.warp.agent, agent)
    pending.clear()
