"""What a machine says about itself: the state of a hang, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from blasdx.emulator.names import warps
from blasdx.emulator.trace import Stats

if TYPE_CHECKING:
    from blasdx.emulator.machine import Machine
    from blasdx.emulator.resident import Cta
    from blasdx.emulator.scheduler import Scheduler


def state(machine: Scheduler) -> str:
    """What each warp waits for, then every barrier of the CTAs that have not exited."""
    lines = list(_warps(machine))
    for cluster in machine.clusters:
        for cta in cluster.ctas:
            if not cta.done:
                lines += _exited(cta)
                lines += _barriers(cta)
    if machine.active and machine.config.grid != machine.config.cluster:
        lines.append(f"{machine.active} cluster(s) resident (sms={machine.config.sms})")
    return "\n".join(f"  {line}" for line in lines)


def _warps(machine: Scheduler) -> Iterator[str]:
    """One line for all warps of a CTA that do the same."""
    same: dict[tuple[str, int, str], list[int]] = {}
    for path in machine.waiting:
        if path.wait is not None:
            text = f"waiting for {path.wait.text()} (PTX line {path.wait.line})"
            lanes = "" if path.whole else f" lanes {path.mask:#010x}"
            same.setdefault((path.cta.name, path.mask if lanes else -1, f"{lanes}: {text}"), []).append(path.warp.index)
    for path in [*machine.ready, *machine.polling]:
        text = f": running near PTX line {path.program.blocks[path.pc].line}"
        lanes = "" if path.whole else f" lanes {path.mask:#010x}"
        same.setdefault((path.cta.name, path.mask if lanes else -1, lanes + text), []).append(path.warp.index)
    for (cta, _, text), numbers in same.items():
        yield f"CTA {cta} {warps(numbers)}{text}"


def _exited(cta: Cta) -> Iterator[str]:
    gone = [warp.index for warp in cta.warps if not warp.alive]
    if gone:
        yield f"CTA {cta.name} {warps(gone)}: exited"
    for warp in cta.warps:
        if (missing := warp.born & ~warp.alive) and warp.alive:
            yield f"CTA {cta.name} warp {warp.index} lanes {missing:#010x}: exited"


def _barriers(cta: Cta) -> Iterator[str]:
    for number, barrier in cta.named.items():
        if barrier.arrived:
            expected = cta.alive if barrier.expected is None else barrier.expected
            there = warps(barrier.here)
            yield (
                f"barrier {number} of CTA {cta.name}: {barrier.arrived} of {expected} threads, "
                f"{expected - barrier.arrived} are missing; {there} came"
            )
    yield from map(str, cta.barriers.values())


def conclude(machine: Machine) -> None:
    """Report what is looked for at the end: races in global memory, and registers that nothing wrote."""
    monitor = machine.monitor
    if monitor is None:
        return
    if machine.races is not None:
        machine.races.settle()
    for number, reads in machine.program.undefined.items():
        if machine.counts[number]:
            for line, name in reads:
                text = f"{name} is read at PTX line {line}, but nothing before it can have written it"
                monitor.report("warning", "register-read-undefined", text, (line,))


def stats(machine: Machine, seconds: float) -> Stats:
    """Counts so far."""
    opcodes: Counter[str] = Counter()
    for block, count in zip(machine.program.blocks, machine.counts, strict=True):
        if count:
            for instruction in block.body:
                opcodes[instruction.opcode] += count
            if block.ending is not None:
                opcodes[block.ending.opcode] += count
    return Stats(machine.executed, dict(opcodes), dict(machine.queue.counts), machine.ctas_started, seconds)
