"""What a machine says about itself: the state of a hang, and counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from blasdx.emulator.trace import Stats

if TYPE_CHECKING:
    from blasdx.emulator.machine import Machine


def state(machine: Machine) -> str:
    """Every barrier and what each warp waits for."""
    lines: list[str] = []
    for cluster in machine.clusters:
        for cta in cluster.ctas:
            if cta.done:
                continue
            lines += [f"  {barrier}" for barrier in cta.barriers.values()]
            lines += [
                f"  barrier {n} of CTA {cta.name}: {b.arrived} of "
                f"{cta.alive if b.expected is None else b.expected} threads"
                for n, b in cta.named.items()
                if b.arrived
            ]
    for path in machine.waiting:
        if path.wait is not None:
            lines.append(f"  {path.warp.name} lanes {path.mask:#010x}: {path.wait.text()} (PTX line {path.wait.line})")
    for path in [*machine.ready, *machine.polling]:
        line = path.program.blocks[path.pc].line
        lines.append(f"  {path.warp.name} lanes {path.mask:#010x}: running near PTX line {line}")
    if machine.active and machine.config.grid != machine.config.cluster:
        lines.append(f"  {machine.active} cluster(s) resident (sms={machine.config.sms})")
    return "\n".join(lines)


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
