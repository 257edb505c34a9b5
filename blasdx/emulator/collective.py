"""What the lanes of a warp do together: elect, shfl, vote, match, redux."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from blasdx.emulator import floats
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import FULL, WARP, Value, lane_value, lanes_of, mask_array, mask_bits, spread, to_signed
from blasdx.emulator.warp import Path

_LANES = np.arange(WARP)


def members_of(w: Path, members: Value, mask: int) -> int:
    """The participating lanes; all of them have to be here."""
    wanted = lane_value(members, lanes_of(mask)[0]) & w.warp.alive
    if wanted & ~w.mask:
        raise EmulationError(
            f"{w.warp.name}: lanes {wanted & ~w.mask:#010x} of the member mask are not here "
            f"(running lanes: {w.mask:#010x}); lanes that wait for each other across branches are not supported"
        )
    return int(wanted)


def elect(w: Path, members: Value, mask: int) -> tuple[Value, Value]:
    """elect.sync: the lowest running member."""
    chosen = lane_value(members, lanes_of(mask)[0]) & mask
    if not chosen:
        raise EmulationError(f"elect.sync with member mask {members:#x} that none of the running lanes is in")
    leader = (chosen & -chosen).bit_length() - 1
    if not w.mask & (w.mask - 1):
        return leader, True
    return leader, leader == _LANES


def shuffle(w: Path, mode: str, a: Value, b: Value, c: Value, members: Value, mask: int) -> tuple[Value, Value]:
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
    running = mask_array(mask)
    if not running[source[running] & 31].all():
        raise EmulationError(f"{w.warp.name}: shfl.sync reads from a lane that does not take part")
    result = values[source & 31]
    if not w.mask & (w.mask - 1):
        only = w.mask.bit_length() - 1
        return lane_value(result, only), bool(inside[only])
    if mode == "idx" and b.__class__ is int and (segment == 0).all():
        only = lanes_of(mask)[0]
        if inside[only]:
            return lane_value(result, only), True
    return result, inside


def vote(w: Path, mode: str, predicate: Value, members: Value, mask: int) -> Value:
    """vote.sync."""
    wanted = members_of(w, members, mask)
    true = mask_bits(predicate) & wanted
    if mode == "ballot":
        return true
    if mode == "all":
        return true == wanted
    if mode == "any":
        return true != 0
    return true in (0, wanted)


def match(w: Path, mode: str, value: Value, members: Value, mask: int) -> tuple[Value, Value]:
    """match.any / match.all."""
    wanted = members_of(w, members, mask)
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


def reduce(w: Path, name: str, kind: str, value: Value, members: Value, mask: int) -> Value:
    """redux.sync."""
    wanted = members_of(w, members, mask)
    found = [int(lane_value(value, lane)) for lane in lanes_of(wanted)]
    if kind.endswith("f32"):
        function = floats.extreme("f32", name == "max", "NaN" in kind)
        if "abs" in kind:
            found = [v & 0x7FFFFFFF for v in found]
        return _fold(found, function)
    if name in ("min", "max") and kind == "s32":
        signed = [to_signed(v, 32) for v in found]
        return (min(signed) if name == "min" else max(signed)) & FULL
    functions: dict[str, Callable[[int, int], int]] = {
        "add": lambda x, y: (x + y) & FULL,
        "min": min,
        "max": max,
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
    }
    return _fold(found, functions[name])


def _fold(values: list[int], function: Callable[..., Any]) -> int:
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result
