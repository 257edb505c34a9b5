"""What the lanes of a warp do together: elect, shfl, vote, match, redux."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from blasdx.emulator import floats
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import (
    FULL,
    WARP,
    Value,
    lane_value,
    lanes_of,
    mask_array,
    mask_bits,
    merged,
    spread,
    to_signed,
)
from blasdx.emulator.warp import Path, Wait, Warp

_LANES = np.arange(WARP)


class Group:
    """Lanes of a warp that take part, whichever paths they are on."""

    def __init__(self, warp: Warp, mask: int) -> None:
        self.warp = warp
        self.mask = mask


Compute = Callable[..., Any]
"""``compute(group, *values, members)``: one result for each destination."""


class Meeting:
    """A path that waits in a ``.sync`` instruction for members of the mask that are elsewhere."""

    __slots__ = ("done", "path", "values")

    def __init__(self, path: Path, values: tuple[Value, ...]) -> None:
        self.path = path
        self.values = values
        self.done = False


class Place:
    """One ``.sync`` instruction with one member mask, where paths of a warp meet."""

    def __init__(self, compute: Compute, bits: tuple[int, ...], members: int, targets: tuple[int | None, ...]) -> None:
        self.compute = compute
        self.bits = bits
        self.members = members
        self.targets = targets
        self.waiting: list[Meeting] = []


def meet(
    w: Path,
    compute: Compute,
    values: tuple[Value, ...],
    bits: tuple[int, ...],
    members: Value,
    targets: tuple[int | None, ...],
    following: int,
    line: int,
) -> int | None:
    """Execute a ``.sync`` instruction once all its members that have not exited are there."""
    wanted = int(lane_value(members, lanes_of(w.mask)[0]))
    if not wanted & w.warp.alive & ~w.mask:
        _deliver(w, compute(w, *values, wanted), targets)
        return following
    # bar.warp.sync lets lanes meet wherever they are; everything else is about one instruction.
    key = (w.pc if targets else -1, wanted)
    place = w.warp.meetings.setdefault(key, Place(compute, bits, wanted, targets))
    meeting = Meeting(w, values)
    place.waiting.append(meeting)
    check(w.warp, w, following)

    def text() -> str:
        here = 0
        for each in place.waiting:
            here |= each.path.mask
        return f"lanes {wanted & w.warp.alive & ~here:#010x}, which a .sync instruction names and which are elsewhere"

    return w.suspend(Wait(text, lambda: meeting.done, line), following)


def check(warp: Warp, running: Path | None = None, following: int = -1) -> None:
    """Let paths go on whose members have all come or exited; ``running``, one of them, goes on at ``following``."""
    for key, place in list(warp.meetings.items()):
        mask = 0
        for meeting in place.waiting:
            mask |= meeting.path.mask
        if place.members & warp.alive & ~mask:
            continue
        del warp.meetings[key]
        columns = zip(*(meeting.values for meeting in place.waiting), strict=True)
        values = [
            merged([(m.path.mask, v) for m, v in zip(place.waiting, column, strict=True)], bits)
            for column, bits in zip(columns, place.bits, strict=True)
        ]
        results = place.compute(Group(warp, mask), *values, place.members)
        if running is not None and not place.targets and mask == warp.alive:
            # Hardware brings a whole warp together here, and what is .aligned relies on it.
            here = [m for m in place.waiting if m.path is not running and m.path.pc == following]
            running.absorb([m.path for m in here], following)
            place.waiting = [m for m in place.waiting if m not in here]
        for meeting in place.waiting:
            meeting.done = True
            _deliver(meeting.path, results, place.targets)
            if meeting.path is not running:
                meeting.path.machine.retry(meeting.path)


def _deliver(w: Path, results: tuple[Value, ...], targets: tuple[int | None, ...]) -> None:
    single = not w.mask & (w.mask - 1)
    for target, value in zip(targets, results, strict=True):
        if target is not None:
            w.regs[target] = lane_value(value, w.mask.bit_length() - 1) if single else value


def nothing(group: Group, members: int) -> tuple[()]:
    """bar.warp.sync."""
    del group, members
    return ()


def elect(w: Path, members: Value, mask: int) -> tuple[Value, Value]:
    """elect.sync: the lowest running member."""
    chosen = lane_value(members, lanes_of(mask)[0]) & mask
    if not chosen:
        raise EmulationError(f"elect.sync with member mask {members:#x} that none of the running lanes is in")
    leader = (chosen & -chosen).bit_length() - 1
    if not w.mask & (w.mask - 1):
        return leader, True
    return leader, leader == _LANES


def shuffle(mode: str, w: Group, a: Value, b: Value, c: Value, members: int) -> tuple[Value, Value]:
    """shfl.sync (PTX ISA 9.7.9.6)."""
    if mode == "idx" and a.__class__ is not np.ndarray and b.__class__ is int and c == 31:
        return a, True
    del members
    lane = _LANES
    bval = spread(b, 32).astype(np.int64) & 31
    cval = spread(c, 32).astype(np.int64)
    segment = (cval >> 8) & 31
    clamp = cval & 31
    limit = (lane & segment) | (clamp & ~segment)
    if mode == "up":
        source = lane - bval
        inside = source >= limit
    elif mode == "down":
        source = lane + bval
        inside = source <= limit
    elif mode == "bfly":
        source = lane ^ bval
        inside = source <= limit
    else:
        source = (lane & segment) | (bval & ~segment)
        inside = source <= limit
    source = np.where(inside, source, lane)
    values = spread(a, 32)
    running = mask_array(w.mask)
    if not running[source[running] & 31].all():
        raise EmulationError(f"{w.warp.name}: shfl.sync reads from a lane that does not take part")
    result = values[source & 31]
    if not w.mask & (w.mask - 1):
        only = w.mask.bit_length() - 1
        return lane_value(result, only), bool(inside[only])
    if mode == "idx" and b.__class__ is int and (segment == 0).all():
        only = lanes_of(w.mask)[0]
        if inside[only]:
            return lane_value(result, only), True
    return result, inside


def vote(mode: str, w: Group, predicate: Value, members: int) -> tuple[Value]:
    """vote.sync."""
    wanted = members & w.warp.alive
    true = mask_bits(predicate) & wanted
    if mode == "ballot":
        return (true,)
    if mode == "all":
        return (true == wanted,)
    if mode == "any":
        return (true != 0,)
    return (true in (0, wanted),)


def match(mode: str, w: Group, value: Value, members: int) -> tuple[Value, Value]:
    """match.any / match.all."""
    wanted = members & w.warp.alive
    if value.__class__ is not np.ndarray:
        return wanted, True
    lanes = lanes_of(wanted)
    if mode == "all":
        same = len({int(value[lane]) for lane in lanes}) == 1
        return (wanted if same else 0), same
    groups: dict[int, int] = {}
    for lane in lanes:
        groups[int(value[lane])] = groups.get(int(value[lane]), 0) | 1 << lane
    out = np.array([groups.get(int(v), 0) for v in value], np.uint32)
    return out, True


def reduce(name: str, kind: str, w: Group, value: Value, members: int) -> tuple[Value]:
    """redux.sync."""
    wanted = members & w.warp.alive
    found = [int(lane_value(value, lane)) for lane in lanes_of(wanted)]
    if kind.endswith("f32"):
        function = floats.extreme("f32", name == "max", "NaN" in kind)
        if "abs" in kind:
            found = [v & 0x7FFFFFFF for v in found]
        return (_fold(found, function),)
    if name in ("min", "max") and kind == "s32":
        signed = [to_signed(v, 32) for v in found]
        return ((min(signed) if name == "min" else max(signed)) & FULL,)
    functions: dict[str, Callable[[int, int], int]] = {
        "add": lambda x, y: (x + y) & FULL,
        "min": min,
        "max": max,
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
    }
    return (_fold(found, functions[name]),)


def _fold(values: list[int], function: Callable[..., Any]) -> int:
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result
