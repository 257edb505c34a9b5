"""wgmma as generated code calls it (PTX ISA 9.7.15): multiplications of a warpgroup, and when their results arrive.

The four warps of a warpgroup issue a multiplication together. It is carried out, as one asynchronous operation, after
the last of them has come. Until a wgmma.wait_group its accumulator registers hold *placeholders*: arrays of ones that
are recognised by identity, so that a copied accumulator still goes on in the next multiplication, and that give NaN
when a program computes with them too early.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blasdx.emulator.conversions import pack_many, unpack_many
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import DTYPES, FULL, Array, Value, spread
from blasdx.emulator.multiplication import Form, Multiplication
from blasdx.emulator.synchronisation import one
from blasdx.emulator.warp import Path, Wait

if TYPE_CHECKING:
    from blasdx.emulator.resident import Cta


class Accumulator:
    """Registers of one warp that a multiplication will write.

    Attributes
    ----------
    placeholders : list
        What the registers hold until then.
    latest : Multiplication
    """

    __slots__ = ("latest", "placeholders")

    def __init__(self, latest: Multiplication) -> None:
        self.latest = latest
        self.placeholders: list[Any] = list(np.full((latest.form.registers, 32), 0xFFFFFFFF, np.uint32))


class Warpgroup:
    """Multiplications that not all four warps have issued yet, by number."""

    def __init__(self) -> None:
        self.gathering: dict[int, Multiplication] = {}


class Issuer:
    """What one warp has issued."""

    def __init__(self) -> None:
        self.count = 0
        self.open: list[Multiplication] = []
        self.groups: list[list[Multiplication]] = []
        self.waited = 0  # multiplications below this number are complete for the warp
        self.pending: dict[int, tuple[Accumulator, int]] = {}  # by identity of the placeholder
        self.halves: dict[int, tuple[Array, ...]] = {}  # of a placeholder that was unpacked, by its identity
        self.fenced: list[Any] | None = None  # the registers at the last wgmma.fence
        self.known: set[int] | None = None
        self.sources: dict[int, int] = {}  # registers of A: the multiplication that reads them


def _issuer(w: Path) -> Issuer:
    if w.mask != FULL:
        raise EmulationError(f"wgmma is .sync.aligned: all 32 lanes of {w.warp.name} have to execute it together")
    if w.warp.wgmma is None:
        first = w.warp.index & ~3
        if len(w.cta.warps) < first + 4:
            raise EmulationError(f"wgmma by {w.warp.name}: warps {first} to {first + 3} have to exist")
        w.warp.wgmma = Issuer()
    found: Issuer = w.warp.wgmma
    return found


def fence(w: Path, following: int, line: int) -> int:
    """wgmma.fence: register accesses before it come before the next multiplications."""
    issuer = _issuer(w)
    if w.monitor is not None:
        issuer.fenced, issuer.known = list(w.regs), None
        w.monitor.fence(w.warp.agent, "wgmma", line)
    return following


def multiply_async(
    w: Path,
    form: Form,
    d: Sequence[Value],
    a: Value | Sequence[Value],
    b: Value,
    accumulate: Value,
    a_registers: tuple[int, ...],
    line: int,
) -> Sequence[Value]:
    """wgmma.mma_async by one warp; what its accumulator registers hold from now on."""
    issuer = _issuer(w)
    index = w.warp.index & 3
    number, issuer.count = issuer.count, issuer.count + 1
    a_bits = 0 if form.a_in_registers else one(a, w, "the descriptor of A")
    b_bits, adds = one(b, w, "the descriptor of B"), bool(one(accumulate, w, "scale-d"))
    group = w.cta.warpgroups.setdefault(w.warp.index >> 2, Warpgroup())
    task = group.gathering.setdefault(number, Multiplication(number, form, a_bits, b_bits, adds))
    if (task.form, task.a, task.b, task.accumulate) != (form, a_bits, b_bits, adds):
        raise EmulationError(
            f"{w.warp.name} issues another wgmma.mma_async than the other warps of its warpgroup: descriptors "
            f"{a_bits:#x} and {b_bits:#x} with scale-d {adds:d}, not {task.a:#x}, {task.b:#x} with {task.accumulate:d}"
        )
    accumulator = _accumulator(w, issuer, d, task, line)
    if form.a_in_registers:
        task.fragments[index] = np.stack([spread(value, 32) for value in a])
        issuer.sources.update(dict.fromkeys(a_registers, number))
        if w.monitor is not None:
            _check_fence(w, issuer, a, line, "warning")
    issuer.open.append(task)
    _announce(w, task, line)
    if len(task.sources) == 4:
        del group.gathering[number]
        _submit(w, task, line)
    return accumulator.placeholders


def _accumulator(w: Path, issuer: Issuer, d: Sequence[Value], task: Multiplication, line: int) -> Accumulator:
    """Remember where the accumulators come from, and prepare the registers for the result."""
    index, pending = w.warp.index & 3, issuer.pending
    first = pending.get(id(d[0]))
    if first is not None:
        before = first[0]
        same = before.latest.form.n == task.form.n and before.latest.form.d == task.form.d
        if same and all(value is held for value, held in zip(d, before.placeholders, strict=True)):
            task.sources[index] = before.latest
            before.latest = task
            return before
    sources: list[Any] = []
    for value in d:
        found = pending.get(id(value))
        sources.append(value if found is None else (found[0].latest, found[1]))
    if w.monitor is not None:
        _check_fence(w, issuer, d, line, "error")
    task.sources[index] = sources
    accumulator = Accumulator(task)
    for register, placeholder in enumerate(accumulator.placeholders):
        pending[id(placeholder)] = (accumulator, register)
    return accumulator


def _check_fence(w: Path, issuer: Issuer, values: Sequence[Value], line: int, severity: Any) -> None:
    """Registers that other instructions wrote after the last wgmma.fence.

    Values are told apart by identity; uniform ones, which have none, are taken to be old.
    """
    monitor = w.monitor
    assert monitor is not None
    if issuer.fenced is None:
        text = f"{w.warp.name} issues a wgmma.mma_async without any wgmma.fence before it"
        monitor.report("error", "wgmma-fence-missing", text, (line,))
        return
    if issuer.known is None:
        issuer.known = {id(value) for value in issuer.fenced}
    known = issuer.known
    if any(v.__class__ is np.ndarray and id(v) not in known and id(v) not in issuer.pending for v in values):
        text = (
            f"{w.warp.name}: registers of a wgmma.mma_async were written after the last wgmma.fence; "
            "wgmma.fence is needed between"
        )
        monitor.report(severity, "wgmma-fence-missing", text, (line,))


def _announce(w: Path, task: Multiplication, line: int) -> None:
    """Each warp starts its share when it comes, whatever the other three are waiting for."""
    monitor = w.monitor
    if monitor is None:
        return
    agent = monitor.issue(w.warp.agent, "wgmma", line)
    for where in task.operands():
        if where is not None:
            monitor.access(agent, "shared", w.cta.number, where.mask, write=False, proxy="async", line=line)
    task.agents.append(agent)


def _submit(w: Path, task: Multiplication, line: int) -> None:
    cta, index = w.cta, w.warp.index >> 2

    def action() -> None:
        task.compute(cta.shared16, w.machine.numerics)

    track = f"cta {cta.number} tensor core {index}"
    w.machine.submit("wgmma", action, track, line, ("wgmma", cta.number, index))


def commit_group(w: Path) -> None:
    """wgmma.commit_group."""
    issuer = _issuer(w)
    issuer.groups.append(issuer.open)
    issuer.open = []


def wait_group(w: Path, newest: int, following: int, line: int) -> int | None:
    """wgmma.wait_group: all but the `newest` last groups are complete, and their results in the registers."""
    issuer = _issuer(w)
    needed = issuer.groups[: max(0, len(issuer.groups) - newest)]
    tasks = [task for group in needed for task in group]

    def ready() -> bool:
        if any(not task.done for task in tasks):
            return False
        if w.monitor is not None:
            for task in tasks:
                for agent in task.agents:
                    w.monitor.join(w.warp.agent, agent)
        del issuer.groups[: len(needed)]
        if tasks:
            issuer.waited = tasks[-1].number + 1
            _deliver(w, issuer, following)
        return True

    def text() -> str:
        late = [task for task in tasks if not task.done]
        missing = sorted({i for task in late for i in range(4) if i not in task.sources})
        warps = ", ".join(str((w.warp.index & ~3) + i) for i in missing)
        return f"{len(late)} wgmma.mma_async" + (f", which warp(s) {warps} have not issued" if missing else "")

    def again() -> None:
        if w.wait is wait:
            w.machine.retry(w)

    wait = Wait(text, ready, line)
    result = w.suspend(wait, following)
    if result is None:
        for task in tasks:
            if not task.done:
                task.watchers.append(again)
    return result


def _deliver(w: Path, issuer: Issuer, following: int) -> None:
    """Put complete results in place of their placeholders."""
    complete = {id(acc): acc for acc, _ in issuer.pending.values() if acc.latest.number < issuer.waited}
    values: dict[int, Value] = {}
    for accumulator in complete.values():
        found = list(accumulator.latest.registers_of(w.warp.index & 3))
        for placeholder, value in zip(accumulator.placeholders, found, strict=True):
            values[id(placeholder)] = value
            halves = issuer.halves.pop(id(placeholder), ())
            if halves:
                parts = unpack_many(value, 32, 32 // len(halves))
                values.update((id(half), part) for half, part in zip(halves, parts, strict=True))
    regs = w.regs
    for index in w.program.blocks[following].live_in:
        value = values.get(id(regs[index]))
        if value is not None:
            regs[index] = value
    for key in values:
        del issuer.pending[key]
    issuer.sources = {r: number for r, number in issuer.sources.items() if number >= issuer.waited}


def unpack(w: Path, value: Value, bits: int, part: int, line: int) -> tuple[Value, ...]:
    """``mov {a, b}, d`` of what may be an accumulator: halves of a placeholder are placeholders too.

    Compilers take f16 accumulators apart before the wait; registers hold both halves, so that nothing moves.
    """
    issuer = w.warp.wgmma
    found = None if issuer is None else issuer.pending.get(id(value))
    if found is None or bits != 32:
        touched(w, (value,), (), line)
        return unpack_many(value, bits, part)
    if id(value) not in issuer.halves:
        halves = tuple(np.full(32, (1 << part) - 1, DTYPES[part]) for _ in range(32 // part))
        issuer.halves[id(value)] = halves
        issuer.pending.update((id(half), found) for half in halves)
    both: tuple[Value, ...] = issuer.halves[id(value)]
    return both


def pack(w: Path, values: tuple[Value, ...], part: int, line: int) -> Value:
    """``mov d, {a, b}``: the halves of one accumulator are that accumulator again."""
    issuer = w.warp.wgmma
    found = None if issuer is None else issuer.pending.get(id(values[0]))
    if found is not None:
        whole = found[0].placeholders[found[1]]
        halves = issuer.halves.get(id(whole), ())
        if len(halves) == len(values) and all(a is b for a, b in zip(halves, values, strict=True)):
            return whole
    touched(w, values, (), line)
    return pack_many(values, part)


def touched(w: Path, values: Sequence[Value], overwritten: Sequence[int], line: int) -> None:
    """Other instructions use accumulators (`values`) or overwrite registers of A before the wait."""
    issuer = w.warp.wgmma
    if issuer is None or w.monitor is None:
        return
    if any(id(value) in issuer.pending for value in values):
        text = f"{w.warp.name} uses an accumulator register of a wgmma.mma_async before wgmma.wait_group"
        w.monitor.report("error", "wgmma-register-used-early", text, (line,))
    if any(register in issuer.sources for register in overwritten):
        text = f"{w.warp.name} overwrites a register of A of a wgmma.mma_async before wgmma.wait_group"
        w.monitor.report("error", "wgmma-operand-overwritten", text, (line,))


def unfinished(cta: Cta) -> str:
    """What the warps of a CTA that is gone have not issued together; "" when nothing is missing."""
    for number, group in cta.warpgroups.items():
        if group.gathering:
            task = next(iter(group.gathering.values()))
            warps = [4 * number + i for i in range(4) if i not in task.sources]
            return f"{len(group.gathering)} wgmma.mma_async of warpgroup {number}, of which warps {warps} issued fewer"
    return ""
