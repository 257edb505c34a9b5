"""st.async and red.async: writes to shared memory, often another CTA's, that complete on an mbarrier beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blasdx.emulator import access, memory
from blasdx.emulator.bulk import completed
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import Value, lane_value, lanes_of
from blasdx.emulator.mbarrier import Barrier
from blasdx.emulator.synchronisation import barrier_at
from blasdx.emulator.warp import Path


def _targets(w: Path, address: Value, barrier: Value, width: int, mask: int) -> list[tuple[int, int, Barrier]]:
    """Lane, address and barrier; both have to be in one CTA."""
    found = []
    for lane in lanes_of(mask):
        at, signal = int(lane_value(address, lane)), int(lane_value(barrier, lane))
        if at >> 24 != signal >> 24:
            raise EmulationError(
                f"the mbarrier (cluster rank {signal >> 24}) has to be in the CTA that is written (rank {at >> 24})"
            )
        w.cta.region(at).check(at, width)
        found.append((lane, at, barrier_at(w, signal)))
    return found


def _submit(
    w: Path,
    kind: str,
    targets: list[tuple[int, int, Barrier]],
    width: int,
    write: Callable[[int, int], None],
    line: int,
) -> None:
    """One operation for each lane: they may arrive in any order.

    To the hazard monitor all are atomic: its granules of 16 bytes are too coarse to tell the lanes' places apart.
    """
    monitor = w.monitor
    for lane, at, barrier in targets:
        agent = 0
        if monitor is not None:
            agent = monitor.issue(w.warp.agent, kind, line)
            monitor.use_barrier(w.warp.agent, barrier.cta, barrier.offset, line)
            touched = access.granules(at, 1 << lane, width)
            monitor.access(agent, "shared", barrier.cta, touched, write=True, proxy="async", line=line, mode="atomic")

        def action(lane: int = lane, at: int = at, barrier: Barrier = barrier, agent: int = agent) -> None:
            write(lane, at)
            completed(w, barrier, width, agent)

        w.machine.submit(kind, action, f"cta {w.cta.number} remote", line)


def store(w: Path, address: Value, size: int, values: Sequence[Value], barrier: Value, mask: int, line: int) -> None:
    """st.async."""
    region = w.cta.region

    def write(lane: int, at: int) -> None:
        memory.store(at, 1 << lane, size, [lane_value(v, lane) for v in values], region)

    targets = _targets(w, address, barrier, size * len(values), mask)
    _submit(w, "st.async", targets, size * len(values), write, line)


def reduce(
    w: Path, address: Value, size: int, value: Value, function: Callable[..., Value], barrier: Value, mask: int,
    line: int,
) -> None:  # fmt: skip
    """red.async."""
    region = w.cta.region

    def write(lane: int, at: int) -> None:
        old = memory.load(at, 1 << lane, size, 1, region)
        memory.store(at, 1 << lane, size, [function(old, lane_value(value, lane))], region)

    _submit(w, "red.async", _targets(w, address, barrier, size, mask), size, write, line)
