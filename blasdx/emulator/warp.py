"""Warps, and the sets of their lanes that run together.

A warp starts as one :class:`Path`. Where its lanes part, the path splits in two that are scheduled independently, so
that a lane spinning on a barrier cannot starve the lane that would release it. They meet again at the immediate post-
dominator of the branch (:class:`Join`), unless those on their way turn out to need the ones that wait. Every path has
its own registers; "uniform" therefore means uniform in the lanes of the path, and a path of one elected lane computes
with plain integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import LANES, WARP, Value, lane_value, lanes_of, mask_array, mask_bits, spread
from blasdx.emulator.memory import Region

if TYPE_CHECKING:
    from blasdx.emulator.groups import CopyGroups
    from blasdx.emulator.hazards import Monitor
    from blasdx.emulator.machine import Machine
    from blasdx.emulator.program import Program
    from blasdx.emulator.resident import Cta


class Special:
    """Special registers as attributes, ``tid_x`` for ``%tid.x``: integers, or arrays of 32 lanes."""

    def __init__(self, values: dict[str, Value]) -> None:
        self.__dict__.update(values)

    def of_lane(self, lane: int) -> Special:
        """The same for one lane alone."""
        return Special({name: lane_value(value, lane) for name, value in self.__dict__.items()})


class Warp:
    """One warp of a CTA.

    Attributes
    ----------
    born, alive : int
        Masks of the lanes that there were and that have not exited.
    agent : int
        The warp's number for the hazard monitor.
    """

    def __init__(self, cta: Cta, index: int, mask: int, special: Special) -> None:
        self.cta = cta
        self.index = index
        self.born = mask
        self.alive = mask
        self.agent = 0
        self.special = special
        self.narrow: dict[int, Special] = {}
        self.copies: CopyGroups | None = None
        self.bulk: CopyGroups | None = None
        self.cluster_target = 0
        self.loads: list[int] = []
        self.stores: list[int] = []
        self.local: Region | None = None
        self.meetings: dict[tuple[int, int], Any] = {}  # collective.Place, by block and member mask
        self.wgmma: Any = None  # wgmma.Issuer
        self.registers = 0  # a thread, for setmaxnreg

    @property
    def name(self) -> str:
        """For messages."""
        return f"CTA {self.cta.name} warp {self.index}"

    def special_of(self, mask: int) -> Special:
        """Special registers for a path: of the warp, or of the only lane."""
        if mask & (mask - 1):
            return self.special
        if mask not in self.narrow:
            self.narrow[mask] = self.special.of_lane(mask.bit_length() - 1)
        return self.narrow[mask]


class Join:
    """Where lanes that parted meet again.

    Attributes
    ----------
    block : int
    remaining : int
        Lanes still on their way.
    arrived : list
        (mask, registers) of the paths that are here.
    broken : bool
        Nobody waits here any more: the lanes on their way needed something from those that had arrived.
    """

    __slots__ = ("arrived", "block", "broken", "parent", "remaining")

    def __init__(self, block: int, parent: Join | None, remaining: int) -> None:
        self.block = block
        self.parent = parent
        self.remaining = remaining
        self.arrived: list[tuple[int, list[Any]]] = []
        self.broken = False


class Wait:
    """Why a path does not run.

    Attributes
    ----------
    text : callable
        Describes what is waited for, for the deadlock report.
    ready : callable
        Tries to go on: does what has to be done then and returns True, or returns False.
    give_up : callable | None
        What a timeout does (mbarrier.try_wait returns false); None when the wait has no time limit.
    line : int
        PTX line of the waiting instruction.
    about : str
        The barrier, for the time line; "" for everything else.
    """

    __slots__ = ("about", "give_up", "line", "ready", "since", "text")

    def __init__(
        self,
        text: Callable[[], str],
        ready: Callable[[], bool],
        line: int,
        give_up: Callable[[], None] | None = None,
        about: str = "",
    ) -> None:
        self.about = about
        self.text = text
        self.ready = ready
        self.line = line
        self.give_up = give_up
        self.since = 0


class Path:
    """Lanes of one warp that run together; what generated code calls ``w``."""

    __slots__ = (
        "carry", "cta", "join", "machine", "mask", "pc", "program", "rank_bits", "regs", "special", "wait", "warp",
    )  # fmt: skip

    def __init__(self, machine: Machine, program: Program, warp: Warp, mask: int, regs: list[Any]) -> None:
        self.machine = machine
        self.program = program
        self.warp = warp
        self.cta = warp.cta
        self.mask = mask
        self.pc = 0
        self.regs = regs
        self.join: Join | None = None
        self.special = warp.special_of(mask) if mask else warp.special
        self.rank_bits = warp.cta.rank << 24
        self.carry: Value = 0
        self.wait: Wait | None = None

    @property
    def monitor(self) -> Monitor | None:
        """The hazard monitor, when the launch is checked."""
        return self.machine.monitor

    @property
    def whole(self) -> bool:
        """Whether all lanes of the warp that have not exited are here."""
        return self.mask == self.warp.alive

    # control flow

    def split(self, predicate: Value, taken: int, other: int) -> int:
        """Continue with the lanes for which the predicate holds at `taken`; the others become a path of their own."""
        bits = mask_bits(predicate) & self.mask
        if bits == self.mask:
            return taken
        if not bits:
            return other
        self.part([(bits, taken), (self.mask & ~bits, other)])
        return taken

    def branch_indexed(self, index: Value, targets: tuple[int, ...]) -> int:
        """brx.idx."""
        if index.__class__ is not np.ndarray:
            if index >= len(targets):
                raise EmulationError(f"brx.idx index {index} is beyond the {len(targets)} targets")
            return targets[index]
        parts: dict[int, int] = {}
        for lane in lanes_of(self.mask):
            value = int(index[lane])
            if value >= len(targets):
                raise EmulationError(f"brx.idx index {value} is beyond the {len(targets)} targets")
            parts[targets[value]] = parts.get(targets[value], 0) | 1 << lane
        if len(parts) > 1:
            self.part([(mask, target) for target, mask in parts.items()])
        return next(iter(parts))

    def part(self, parts: list[tuple[int, int]]) -> None:
        """Split into (mask, block) paths; this one becomes the first."""
        block = self.program.blocks[self.pc]
        join = self.join
        if block.join != self.program.leave:
            join = Join(block.join, self.join, self.mask)
        for mask, target in parts[1:]:
            child = Path(self.machine, self.program, self.warp, mask, list(self.regs))
            child.pc = target
            child.join = join
            child.carry = self.carry
            child.settle()
            self.machine.ready.append(child)
        self.mask, self.pc = parts[0]
        self.join = join
        self.settle()

    def settle(self) -> None:
        """Adapt special registers and live registers after the mask changed."""
        mask = self.mask
        self.special = self.warp.special_of(mask)
        if mask & (mask - 1):
            return
        lane = mask.bit_length() - 1
        regs = self.regs
        for index in self.program.blocks[self.pc].live_in:
            value = regs[index]
            if value.__class__ is np.ndarray:
                regs[index] = lane_value(value, lane)

    def arrive(self) -> bool:
        """Reach the block of the innermost join; True when this path goes on from there with all lanes."""
        join = self.join
        assert join is not None
        if join.broken:
            self.join = join.parent
            return True
        join.arrived.append((self.mask, self.regs))
        join.remaining &= ~self.mask
        if join.remaining:
            self.machine.joins[join] = self
            return False
        self.machine.joins.pop(join, None)
        self.resume_from(join)
        return True

    def resume_from(self, join: Join) -> None:
        """Become the path of all lanes that arrived at a join."""
        self.regs = _merge(join.arrived, self.program, join.block)
        self.mask = 0
        for mask, _ in join.arrived:
            self.mask |= mask
        self.pc = join.block
        self.join = join.parent
        join.arrived = []
        self.settle()

    def absorb(self, others: list[Path], block: int) -> None:
        """Become one path with others that wait where this one goes on, once the whole warp is there."""
        if not others:
            return
        together = [(path.mask, path.regs) for path in (self, *others)]
        self.regs = _merge(together, self.program, block)
        for path in others:
            self.mask |= path.mask
            self.machine.waiting.pop(path, None)
        self.join = None if self.mask == self.warp.alive else self.join
        self.pc = block
        self.settle()

    def leave(self, exits: bool) -> None:
        """ret or exit of an entry: the lanes are gone."""
        del exits
        warp = self.warp
        warp.alive &= ~self.mask
        join = self.join
        resumed = False
        while join is not None:
            join.remaining &= ~self.mask
            if not join.remaining and join.arrived and not resumed:
                self.machine.joins.pop(join, None)
                self.revive(join)
                resumed = True
            join = join.parent
        self.machine.events += 1
        if warp.meetings:
            self.machine.meet(warp)
        self.cta.lanes_left()

    def revive(self, join: Join) -> None:
        """A path for the lanes that arrived at a join."""
        path = Path(self.machine, self.program, self.warp, 0, [])
        path.resume_from(join)
        self.machine.ready.append(path)

    def trap(self, opcode: str) -> None:
        """trap and brkpt: the program gave up."""
        raise EmulationError(f"{self.warp.name} executed {opcode}")

    def pause(self, following: int) -> None:
        """Let everybody else go first."""
        self.pc = following
        self.machine.polling.append(self)

    def suspend(self, wait: Wait, following: int) -> int | None:
        """Go on at `following` at once when the wait is over already, else wait."""
        if wait.ready():
            return following
        self.pc = following
        wait.since = self.machine.executed
        self.wait = wait
        self.machine.waiting[self] = None
        return None

    def used_early(self, load_line: int, line: int) -> None:
        """A register of a tcgen05.ld is used before tcgen05.wait::ld."""
        monitor = self.machine.monitor
        if monitor is not None and self.warp.loads:
            monitor.registers_used_early(self.warp.agent, load_line, line)

    def clock(self, name: str) -> int:
        """%clock, %globaltimer: executed warp-instructions."""
        now = self.machine.executed
        return now >> 32 if name.endswith("_hi") else now & 0xFFFFFFFF if name in ("clock", "globaltimer_lo") else now


def _merge(arrived: list[tuple[int, list[Any]]], program: Program, block: int) -> list[Any]:
    """Registers of several paths as those of one, for what is live at `block`."""
    if len(arrived) == 1:
        return arrived[0][1]
    arrived = sorted(arrived, key=lambda item: -item[0].bit_count())
    regs = list(arrived[0][1])
    registers = program.registers
    for index in program.blocks[block].live_in:
        base = regs[index]
        out = None
        for mask, other in arrived[1:]:
            value = other[index]
            if value is base:
                continue
            if base.__class__ is not np.ndarray and value.__class__ is not np.ndarray and value == base:
                continue
            bits = registers[index].bits
            if not mask & (mask - 1):
                lane = mask.bit_length() - 1
                value = lane_value(value, lane)
                if base.__class__ is np.ndarray and out is None and lane_value(base, lane) == value:
                    continue
                if out is None:
                    out = np.array(spread(base, bits))
                out[lane] = (value & (1 << 64) - 1, value >> 64) if bits == 128 else value
                continue
            if out is None:
                out = np.array(spread(base, bits))
            chosen = mask_array(mask)
            out[chosen] = spread(value, bits)[chosen]
        if out is not None:
            regs[index] = out
    return regs


def special_registers(cta: Cta, index: int, threads: int) -> tuple[int, Special]:
    """Initial mask and special registers of warp `index` of a CTA with `threads` threads."""
    linear = np.arange(index * WARP, index * WARP + WARP)
    count = min(WARP, threads - index * WARP)
    mask = (1 << count) - 1
    bx, by, _ = cta.block
    values: dict[str, Value] = dict(cta.special)
    for name, array in (
        ("tid_x", linear % bx),
        ("tid_y", linear // bx % by),
        ("tid_z", linear // (bx * by)),
    ):
        values[name] = int(array[0]) if (array[:count] == array[0]).all() else array.astype(np.uint32)
    values["laneid"] = LANES
    values["warpid"] = index
    ones = np.uint32(1) << LANES
    values["lanemask_eq"] = ones
    values["lanemask_lt"] = ones - np.uint32(1)
    values["lanemask_le"] = (ones - np.uint32(1)) | ones
    values["lanemask_gt"] = ~values["lanemask_le"]
    values["lanemask_ge"] = ~values["lanemask_lt"]
    return mask, Special(values)
