"""Barriers as generated code calls them: bar, barrier.cluster, mbarrier, fences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blasdx.emulator import access
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import FULL, Value, lane_index, lane_value, lanes_of, mask_bits
from blasdx.emulator.mbarrier import Barrier
from blasdx.emulator.resident import Cta, NamedBarrier
from blasdx.emulator.warp import Path, Wait


def one(value: Value, w: Path, what: str) -> int:
    """The value that all running lanes must agree on."""
    if value.__class__ is not np.ndarray:
        return int(value)
    chosen = value if w.mask == FULL else value[lane_index(w.mask)]
    first = chosen[0]
    if not (chosen == first).all():
        raise EmulationError(f"{what} differs between the lanes of {w.warp.name}")
    return int(first)


def shared_address(address: Value, generic: bool, mask: int) -> Value:
    """A barrier's address in shared memory, from a generic or a shared one."""
    if generic:
        space, address = access.generic(address, mask)
        if space != "shared":
            raise EmulationError(
                f"mbarrier address {lane_value(address, lanes_of(mask)[0]):#x} is not in shared memory"
            )
    return address


def barrier_at(w: Path, address: int) -> Barrier:
    """The mbarrier at a shared address, in whichever CTA of the cluster it lies."""
    rank = address >> 24
    cta = w.cta if rank == w.cta.rank else w.cta.peer(rank)
    return cta.barrier(address & 0xFFFFFF)


# ---------------------------------------------------------------------------------------------------- bar


def _named(cta: Cta, number: int) -> NamedBarrier:
    if not 0 <= number < 16:
        raise EmulationError(f"barrier {number} does not exist; there are 0 to 15")
    return cta.named.setdefault(number, NamedBarrier())


def _join_barrier(w: Path, number: int, count: int | None, line: int, true: int = 0) -> NamedBarrier:
    barrier = _named(w.cta, number)
    if count is not None and (count <= 0 or count % 32):
        raise EmulationError(f"barrier {number} with {count} threads; a multiple of 32 is needed")
    if barrier.arrived and barrier.expected != count:
        raise EmulationError(f"barrier {number} is used with {count} threads while {barrier.expected} are expected")
    barrier.expected = count
    # A warp counts as a whole: the hardware adds 32 for a warp that is only partly populated.
    lanes = w.mask.bit_count()
    if count is not None and w.whole:
        lanes = 32
    if not barrier.arrived:
        barrier.since = w.machine.executed
    barrier.arrived += lanes
    barrier.here[w.warp.index] = None
    barrier.votes.append((w.mask.bit_count(), true))
    if w.monitor is not None:
        w.monitor.release(w.warp.agent, ("barrier", w.cta.number, number, barrier.generation), line)
    w.machine.events += 1
    return barrier


def bar_arrive(w: Path, number: Value, count: Value, line: int) -> None:
    """bar.arrive."""
    n = one(number, w, "the barrier number")
    _join_barrier(w, n, one(count, w, "the barrier's thread count"), line)
    w.machine.check_named(w.cta, n)


def bar_sync(w: Path, number: Value, count: Value | None, following: int, line: int) -> int | None:
    """bar.sync."""
    return _bar(w, number, count, following, line)


def _bar(
    w: Path, number: Value, count: Value | None, following: int, line: int, reduce: tuple[str, int, Value] | None = None
) -> int | None:
    n = one(number, w, "the barrier number")
    true = (mask_bits(reduce[2]) & w.mask).bit_count() if reduce else 0
    barrier = _join_barrier(w, n, None if count is None else one(count, w, "the thread count"), line, true)
    generation = barrier.generation

    def ready() -> bool:
        if barrier.generation == generation:
            return False
        if w.monitor is not None:
            w.monitor.acquire(w.warp.agent, ("barrier", w.cta.number, n, generation), line)
        if reduce:
            total, positive = barrier.result[generation]
            name, index, _ = reduce
            w.regs[index] = {"popc": positive, "and": positive == total, "or": positive > 0}[name]
        return True

    def text() -> str:
        return f"barrier {n}"

    w.machine.check_named(w.cta, n)
    result = w.suspend(Wait(text, ready, line, about=f"barrier {n}"), following)
    if result is None:
        barrier.waiting.append(w)
    return result


def bar_reduce(
    w: Path,
    name: str,
    destination: int,
    number: Value,
    count: Value | None,
    predicate: Value,
    following: int,
    line: int,
) -> int | None:
    """bar.red."""
    return _bar(w, number, count, following, line, (name, destination, predicate))


# ---------------------------------------------------------------------------------------------------- cluster


def cluster_arrive(w: Path, line: int) -> None:
    """barrier.cluster.arrive."""
    cluster = w.cta.cluster
    cluster.arrived += w.mask.bit_count()
    w.warp.cluster_target = cluster.phase + 1
    if w.monitor is not None:
        w.monitor.release(w.warp.agent, ("cluster", cluster.number, cluster.phase), line)
    w.machine.events += 1
    w.machine.check_cluster(cluster)


def cluster_wait(w: Path, following: int, line: int) -> int | None:
    """barrier.cluster.wait."""
    cluster = w.cta.cluster
    target = w.warp.cluster_target

    def ready() -> bool:
        if cluster.phase < target:
            return False
        if w.monitor is not None:
            w.monitor.acquire(w.warp.agent, ("cluster", cluster.number, target - 1), line)
        return True

    result = w.suspend(Wait(lambda: "the cluster barrier", ready, line), following)
    if result is None:
        cluster.waiting.append(w)
    return result


# ---------------------------------------------------------------------------------------------------- mbarrier


def _each(w: Path, address: Value, mask: int) -> Iterator[tuple[int, int]]:
    """(address, number of lanes) pairs; almost always one."""
    if address.__class__ is not np.ndarray:
        yield address, mask.bit_count()
        return
    counts: dict[int, int] = {}
    for lane in lanes_of(mask):
        at = int(address[lane])
        counts[at] = counts.get(at, 0) + 1
    yield from counts.items()


def init(w: Path, address: Value, generic: bool, count: Value, mask: int, line: int) -> None:
    """mbarrier.init."""
    address = shared_address(address, generic, mask)
    for lane in lanes_of(mask) if address.__class__ is np.ndarray else lanes_of(mask)[:1]:
        at = int(lane_value(address, lane))
        if at >> 24 != w.cta.rank:
            raise EmulationError("mbarrier.init of a barrier in another CTA")
        offset = at & 0xFFFFFF
        w.cta.shared.check(at, 8)
        old = w.cta.barriers.get(offset)
        if old is not None and old.waiters:
            raise EmulationError(f"mbarrier.init of {old}, which warps are waiting for")
        if old is not None and w.monitor is not None:
            w.monitor.init_again(w.warp.agent, offset, old.idle, (old.line, line))
        w.cta.barriers[offset] = barrier = Barrier(w.cta.number, offset, int(lane_value(count, lane)), line)
        barrier.since = w.machine.executed
        if w.monitor is not None:
            w.monitor.init_barrier(w.warp.agent, w.cta.number, offset, line)
    w.machine.events += 1


def invalidate(w: Path, address: Value, generic: bool, mask: int, line: int) -> None:
    """mbarrier.inval: the place is ordinary memory again."""
    del line
    address = shared_address(address, generic, mask)
    for at, _ in _each(w, address, mask):
        barrier = barrier_at(w, at)
        if barrier.waiters:
            raise EmulationError(f"mbarrier.inval of {barrier}, which warps are waiting for")
        del w.cta.barriers[barrier.offset]
        if w.monitor is not None:
            w.monitor.drop_barrier(barrier.cta, barrier.offset)


def expect(w: Path, address: Value, generic: bool, count: Value, mask: int, line: int) -> None:
    """mbarrier.expect_tx."""
    address = shared_address(address, generic, mask)
    for lane in lanes_of(mask):
        barrier = barrier_at(w, int(lane_value(address, lane)))
        _used(w, barrier, line)
        # expect_tx alone cannot complete a phase: pending arrivals are at least one.
        if barrier.transfer(int(lane_value(count, lane))):
            w.machine.flipped(barrier)


def complete(w: Path, address: Value, generic: bool, count: Value, mask: int, line: int) -> None:
    """mbarrier.complete_tx."""
    address = shared_address(address, generic, mask)
    for lane in lanes_of(mask):
        barrier = barrier_at(w, int(lane_value(address, lane)))
        _used(w, barrier, line)
        if barrier.transfer(-int(lane_value(count, lane))):
            w.machine.flipped(barrier)


def _used(w: Path, barrier: Barrier, line: int) -> None:
    if w.monitor is not None:
        w.monitor.use_barrier(w.warp.agent, barrier.cta, barrier.offset, line)


def arrive(w: Path, address: Value, generic: bool, count: Value, tx: Value, drop: bool, mask: int, line: int) -> Value:
    """mbarrier.arrive{.expect_tx}, arrive_drop; returns the state token."""
    address = shared_address(address, generic, mask)
    state = 0
    uniform = all(v.__class__ is not np.ndarray for v in (address, count, tx))
    if uniform:
        barrier = barrier_at(w, address)
        state = barrier.state
        lanes = mask.bit_count()
        _arrive(w, barrier, count * lanes, tx * lanes, drop, line)
        return state
    for lane in lanes_of(mask):
        barrier = barrier_at(w, int(lane_value(address, lane)))
        state = barrier.state
        _arrive(w, barrier, int(lane_value(count, lane)), int(lane_value(tx, lane)), drop, line)
    return state


def _arrive(w: Path, barrier: Barrier, count: int, tx: int, drop: bool, line: int) -> None:
    w.machine.events += 1
    monitor = w.monitor
    if monitor is not None:
        monitor.use_barrier(w.warp.agent, barrier.cta, barrier.offset, line)
        monitor.release(w.warp.agent, barrier.key, line)
    if drop:
        barrier.expected -= count
    if tx:
        barrier.tx += tx
        barrier.transfer_check()
    if barrier.arrive(count):
        w.machine.flipped(barrier)


def test_wait(
    w: Path, destination: int, address: Value, generic: bool, wanted: Value, parity: bool, following: int, line: int
) -> int | None:
    """mbarrier.test_wait: answers at once, but lets the others run before the program asks again."""
    result = _done(w, address, generic, wanted, parity, line)
    w.regs[destination] = result
    if result.__class__ is bool and result:
        return following
    w.pause(following)
    return None


def _done(w: Path, address: Value, generic: bool, wanted: Value, parity: bool, line: int) -> Value:
    """Whether the phase is over, for each lane."""
    address = shared_address(address, generic, w.mask)
    if address.__class__ is not np.ndarray and wanted.__class__ is not np.ndarray:
        return _over(w, address, wanted, parity, line)
    lanes = lanes_of(w.mask)
    pairs = {(int(lane_value(address, lane)), int(lane_value(wanted, lane))) for lane in lanes}
    if len(pairs) == 1:
        at, phase = pairs.pop()
        return _over(w, at, phase, parity, line)
    out = np.zeros(32, np.bool_)
    for lane in lanes:
        out[lane] = _over(w, int(lane_value(address, lane)), int(lane_value(wanted, lane)), parity, line)
    return True if out[list(lanes)].all() else out


def _over(w: Path, address: int, wanted: int, parity: bool, line: int) -> bool:
    if address >> 24 != w.cta.rank:
        raise EmulationError("waiting for an mbarrier of another CTA; waits are local (shared::cta)")
    barrier = w.cta.barrier(address & 0xFFFFFF)
    if parity:
        over = barrier.done(wanted & 1)  # ptxas shifts it left by 31: the lowest bit is all that counts
        if over and wanted > 1 and w.monitor is not None:
            w.monitor.odd_parity(w.warp.agent, wanted, line)
    else:
        over = barrier.phase > wanted & 0xFFFFFFFF
    if over and w.monitor is not None:
        w.monitor.use_barrier(w.warp.agent, barrier.cta, barrier.offset, line)
        if barrier.phase:
            w.monitor.acquire(w.warp.agent, ("mbarrier", barrier.cta, barrier.offset, barrier.phase - 1), line)
    return over


def try_wait(
    w: Path, destination: int, address: Value, generic: bool, wanted: Value, parity: bool, following: int, line: int
) -> int | None:
    """mbarrier.try_wait: waits for the phase; may give up and return false when nothing else can run."""

    def ready() -> bool:
        result = _done(w, address, generic, wanted, parity, line)
        if result.__class__ is bool and result:
            w.regs[destination] = True
            return True
        return False

    def give_up() -> None:
        w.regs[destination] = _done(w, address, generic, wanted, parity, line)

    def barriers() -> list[Barrier]:
        found = shared_address(address, generic, w.mask)
        return [barrier_at(w, at) for at, _ in _each(w, found, w.mask)]

    def text() -> str:
        value = int(lane_value(wanted, lanes_of(w.mask)[0]))
        what = f" (parity {value})" if parity else ""
        return ", ".join(f"mbarrier {b.offset:#x}, phase {b.phase}{what}, which lacks {b.missing}" for b in barriers())

    wait = Wait(text, ready, line, give_up)
    result = w.suspend(wait, following)
    if result is None:
        found = barriers()
        for barrier in found:
            barrier.waiters.append(w)
        wait.about = f"mbarrier {found[0].offset:#x}"
    return result


def fence(w: Path, kind: str, line: int) -> None:
    """Fences order nothing in the emulator, whose memory is sequential; the hazard monitor looks for them."""
    if w.monitor is not None:
        w.monitor.fence(w.warp.agent, kind, line)
    if kind == "memory.gpu" and w.machine.races is not None:
        w.machine.races.fence(w)
