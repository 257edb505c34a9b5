"""The hazard monitor by itself: a toy pipeline in random interleavings, and one broken rule at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blasdx.emulator.hazards import Monitor

STAGE = 0xFF  # granules of one stage of the toy
CTA = 0
BARRIERS = 0x10000  # behind all data


def describe(line: int) -> str:
    return f"PTX line {line}"


def kinds(monitor: Monitor, severity: str | None = None) -> set[str]:
    return {h.kind for h in monitor.hazards() if severity in (None, h.severity)}


# ---------------------------------------------------------------------------------------------------- a toy machine


@dataclass
class Barrier:
    number: int
    count: int
    pending: int = 0
    tx: int = 0
    phase: int = 0

    def __post_init__(self) -> None:
        self.pending = self.count

    @property
    def key(self) -> tuple[str, int, int, int]:
        return ("mbarrier", CTA, self.number, self.phase)

    def step(self) -> None:
        if not self.pending and not self.tx:
            self.phase += 1
            self.pending = self.count


@dataclass
class Toy:
    """A warp-specialised pipeline that tells a monitor what it does; `broken` names the rule it breaks."""

    seed: int
    broken: str = ""
    stages: int = 2
    blocks: int = 3
    tiles: int = 4
    monitor: Monitor = field(default_factory=lambda: Monitor(describe))

    def __post_init__(self) -> None:
        m = self.monitor
        m.add_cta(CTA, "CTA 0")
        self.tma, self.mma = m.add_warp(CTA, 5, "warp 5"), m.add_warp(CTA, 4, "warp 4")
        self.epilogue = [m.add_warp(CTA, w, f"warp {w}") for w in range(4)]
        self.full = [Barrier(BARRIERS + 8 * s, 1) for s in range(self.stages)]
        self.empty = [Barrier(BARRIERS + 64 + 8 * s, 1) for s in range(self.stages)]
        self.acc_full = [Barrier(BARRIERS + 128 + 8 * a, 1) for a in range(2)]
        self.acc_empty = [Barrier(BARRIERS + 192 + 8 * a, 4) for a in range(2)]
        self.pending: list[tuple[Callable[[], None], bool]] = []
        self.stored = 0
        self.left = 0
        self.arrived: dict[int, int] = {}

    def run(self) -> Monitor:
        rng, m = random.Random(self.seed), self.monitor
        for barrier in (*self.full, *self.empty, *self.acc_full, *self.acc_empty):
            m.init_barrier(self.mma, CTA, barrier.number, 1)
        if self.broken != "init fence":
            m.fence(self.mma, "mbarrier_init", 2)
        m.allocate(self.mma, CTA, 0, 512, 3)
        warps = [self.mma, self.tma, *self.epilogue]
        if self.broken != "init barrier":
            for warp in warps:
                m.release(warp, ("barrier", CTA, 0, 0), 4)
            for warp in warps:
                m.acquire(warp, ("barrier", CTA, 0, 0), 4)
        roles: list[Iterator[None]] = [self.load_role(), self.mma_role(), *map(self.epilogue_role, range(4))]
        while roles:
            if self.pending and rng.random() < 0.4:
                # Stream operations (True) keep their order among themselves.
                choice = rng.choice(self.pending)
                if choice[1]:
                    choice = next(each for each in self.pending if each[1])
                self.pending.remove(choice)
                choice[0]()
                continue
            role = rng.choice(roles)
            if next(role, "ended") == "ended":
                roles.remove(role)
        for action, _ in self.pending:
            action()
        m.acquire(self.mma, ("barrier", CTA, 2, 0), 89)
        m.deallocate(self.mma, CTA, 0, 512, 90)
        m.end_cta(CTA, "CTA 0", 0, [])
        return m

    def wait(self, warp: int, barrier: Barrier, phase: int, line: int, skip: str = "") -> Iterator[None]:
        """Wait until `phase` phases have completed."""
        while barrier.phase < phase:
            yield
        self.monitor.use_barrier(warp, CTA, barrier.number, line)
        if phase and self.broken != skip:
            self.monitor.acquire(warp, ("mbarrier", CTA, barrier.number, phase - 1), line)
        yield

    def arrive(self, warp: int, barrier: Barrier, line: int, tx: int = 0) -> None:
        self.monitor.release(warp, barrier.key, line)
        barrier.pending -= 1
        barrier.tx += tx
        barrier.step()

    def load_role(self) -> Iterator[None]:
        m = self.monitor
        for i in range(self.tiles * self.blocks):
            s = i % self.stages
            yield from self.wait(self.tma, self.empty[s], i // self.stages, 20, "empty wait")
            self.arrive(self.tma, self.full[s], 21, tx=2)
            for half in range(2):
                operation = m.issue(self.tma, "tma-load", 22 + half)
                mask = (STAGE >> 4 if half else STAGE & 0xF0) << 8 * s
                m.access(operation, "shared", CTA, mask, write=True, proxy="async", line=22 + half)
                self.pending.append((partial(self.loaded, operation, self.full[s]), False))
                yield

    def loaded(self, operation: int, barrier: Barrier) -> None:
        self.monitor.finish(operation, barrier.key)
        barrier.tx -= 1
        barrier.step()

    def mma_role(self) -> Iterator[None]:
        m, stream = self.monitor, ("tcgen05", CTA, 4)
        for tile in range(self.tiles):
            a = tile % 2
            yield from self.wait(self.mma, self.acc_empty[a], tile // 2, 30, "accumulator wait")
            self.fence_after(self.mma)
            for block in range(self.blocks):
                i = tile * self.blocks + block
                s = i % self.stages
                yield from self.wait(self.mma, self.full[s], i // self.stages + 1, 31, "full wait")
                self.fence_after(self.mma)
                for step in range(2):
                    operation = m.issue(self.mma, "mma", 32, stream=stream)
                    m.access(operation, "shared", CTA, STAGE << 8 * s, write=False, proxy="async", line=32)
                    columns = ((1 << 256) - 1) << 256 * a
                    mask = sum(columns << 512 * g for g in range(8))
                    mode = "accumulate" if block or step else ""
                    m.access(operation, "tensor", CTA, mask, write=True, proxy="tensor", line=32, mode=mode)
                    yield
                self.commit(stream, self.empty[s], 33)
            self.commit(stream, self.acc_full[a], 34)
            yield

    def commit(self, stream: tuple[str, int, int], barrier: Barrier, line: int) -> None:
        operation = self.monitor.commit(self.mma, line, stream=stream)

        def fire() -> None:
            self.monitor.finish(operation, barrier.key)
            barrier.pending -= 1
            barrier.step()

        self.pending.append((fire, True))

    def fence_after(self, warp: int) -> None:
        if self.broken != "fence after":
            self.monitor.fence(warp, "tcgen05.after", 40)

    def epilogue_role(self, w: int) -> Iterator[None]:
        m, warp = self.monitor, self.epilogue[w]
        for tile in range(self.tiles):
            a = tile % 2
            yield from self.wait(warp, self.acc_full[a], tile // 2 + 1, 50, "commit wait")
            self.fence_after(warp)
            loads = []
            for chunk in range(2):
                operation = m.issue(warp, "tcgen05.ld", 53)
                columns = ((1 << 128) - 1) << (256 * a + 128 * chunk)
                m.access(operation, "tensor", CTA, columns << 1024 * w, write=False, proxy="tensor", line=53)
                loads.append(operation)
                yield
            if self.broken != "wait::ld":
                for operation in loads:
                    m.join(warp, operation)
            if self.broken != "fence before":
                m.fence(warp, "tcgen05.before", 55)
            self.arrive(warp, self.acc_empty[a], 56)
            yield
            if tile and w == 0:
                while self.stored < tile:
                    yield
                if self.broken != "store wait":
                    m.acquire(warp, ("group", CTA, 0, tile - 1), 51)
            yield from self.everyone(w, 2 * tile, 52)
            m.access(warp, "shared", CTA, 0xFFFF << (64 + 16 * w), write=True, proxy="generic", line=57)
            if self.broken not in ("proxy fence", "writer fence"):
                m.fence(warp, "proxy.async", 58)
            yield from self.everyone(w, 2 * tile + 1, 59)
            if w == 0:
                if self.broken == "writer fence":
                    m.fence(warp, "proxy.async", 60)
                operation = m.issue(warp, "tma-store", 61)
                m.access(operation, "shared", CTA, ((1 << 64) - 1) << 64, write=False, proxy="async", line=61)
                self.pending.append((partial(self.has_read, operation, tile), True))
                yield
        if w == 0:
            while self.stored < self.tiles:
                yield
            m.acquire(warp, ("group", CTA, 0, self.tiles - 1), 63)
        m.release(warp, ("barrier", CTA, 2, 0), 64)
        self.left += 1

    def has_read(self, operation: int, tile: int) -> None:
        self.monitor.finish(operation, ("group", CTA, 0, tile), reads_only=True)
        self.stored += 1

    def everyone(self, w: int, generation: int, line: int) -> Iterator[None]:
        """Named barrier of the epilogue."""
        self.arrived[generation] = self.arrived.get(generation, 0) + 1
        key = ("barrier", CTA, 1, generation)
        self.monitor.release(self.epilogue[w], key, line)
        while self.arrived[generation] < 4:
            yield
        self.monitor.acquire(self.epilogue[w], key, line)


@given(st.integers(0, 1 << 32), st.integers(1, 3), st.integers(1, 4))
def test_a_correct_pipeline_is_silent_in_every_interleaving(seed: int, stages: int, blocks: int) -> None:
    assert Toy(seed, stages=stages, blocks=blocks).run().hazards() == ()


# What each broken rule leads to: exactly these, whatever the interleaving. A missing wait breaks what rests on it too.
BROKEN = {
    "init barrier": {("error", "barrier-used-before-init")},
    "init fence": {("warning", "missing-mbarrier-init-fence")},
    "full wait": {
        ("error", "shared-read-before-load-complete"),
        ("error", "shared-overwritten-before-load-complete"),
        ("error", "exit-before-write-complete"),
    },
    "empty wait": {
        ("error", "shared-overwritten-while-mma-reads"),
        ("error", "shared-overwritten-before-load-complete"),
    },
    "commit wait": {("error", "tensor-read-before-commit"), ("warning", "tensor-freed-while-used")},
    "accumulator wait": {("error", "tensor-overwritten-while-load-reads")},
    "wait::ld": {("warning", "tensor-load-not-waited"), ("warning", "tensor-freed-while-used")},
    "fence after": {("warning", "missing-tcgen05-fence-after")},
    "fence before": {("warning", "missing-tcgen05-fence-before")},
    "proxy fence": {("error", "missing-proxy-fence")},
    "writer fence": {("warning", "proxy-fence-by-reader-only")},
    "store wait": {("error", "shared-overwritten-while-store-reads")},
}


@pytest.mark.parametrize("broken", sorted(BROKEN))
def test_each_broken_rule_is_found_in_every_interleaving(broken: str) -> None:
    for seed in range(8):
        found = Toy(seed, broken).run().hazards()
        assert {(h.severity, h.kind) for h in found} == BROKEN[broken]
        assert all(h.message and h.count >= 1 for h in found)


def test_records_and_agents_stay_few_in_a_long_run() -> None:
    toy = Toy(1, tiles=60, blocks=4)
    sizes: list[int] = []
    step = toy.has_read

    def has_read(operation: int, tile: int) -> None:
        step(operation, tile)
        state = toy.monitor._ctas[CTA]
        sizes.append(
            sum(len(side) for memory in state.memories.values() for side in memory.sides.values()) + len(state.slots)
        )

    toy.has_read = has_read  # type: ignore[method-assign]
    assert toy.run().hazards() == ()
    assert len(sizes) == 60
    assert max(sizes) < 40


# -------------------------------------------------------------------------------------------------- one rule at a time


class Pair:
    """Two warps and helpers for short sequences."""

    def __init__(self) -> None:
        self.monitor = Monitor(describe)
        self.monitor.add_cta(CTA, "CTA 0", "cluster")
        self.a, self.b = (self.monitor.add_warp(CTA, w, f"warp {w}") for w in (0, 1))
        self.events = 0
        # Memory that holds something, known to both.
        self.touch(self.a, 2, write=True, mask=0xFFFF)
        self.monitor.fence(self.a, "proxy.async", 2)
        self.sync(self.a, self.b)

    def sync(self, source: int, target: int) -> None:
        self.events += 1
        self.monitor.release(source, ("barrier", CTA, 0, self.events), 1)
        self.monitor.acquire(target, ("barrier", CTA, 0, self.events), 1)

    def touch(
        self, agent: int, line: int, *, write: bool, proxy: str = "generic", mask: int = 0xF, mode: str = ""
    ) -> None:
        self.monitor.access(agent, "shared", CTA, mask, write=write, proxy=proxy, line=line, mode=mode)  # type: ignore[arg-type]

    def load(self, agent: int, line: int, mask: int = 0xF) -> int:
        operation = self.monitor.issue(agent, "tma-load", line)
        self.touch(operation, line, write=True, proxy="async", mask=mask)
        return operation

    def store(self, agent: int, line: int, mask: int = 0xF) -> int:
        operation = self.monitor.issue(agent, "tma-store", line)
        self.touch(operation, line, write=False, proxy="async", mask=mask)
        return operation

    def tensor(self, agent: int, engine: str, line: int, *, write: bool, column: int = 0, warp: int = 4) -> int:
        stream = ("tcgen05", CTA, warp) if engine in ("mma", "cp", "shift") else None
        operation = self.monitor.issue(agent, engine, line, stream=stream)
        self.monitor.access(operation, "tensor", CTA, 1 << column, write=write, proxy="tensor", line=line)
        return operation

    def found(self) -> list[str]:
        return [h.kind for h in self.monitor.hazards()]


def test_a_finding_names_both_sides_and_what_was_missing() -> None:
    p = Pair()
    operation = p.load(p.a, 10, mask=0xF0)
    p.monitor.finish(operation, ("mbarrier", CTA, 0x410, 3))
    p.touch(p.b, 20, write=False, mask=0x30)
    p.touch(p.b, 20, write=False, mask=0x30)
    (hazard,) = p.monitor.hazards()
    assert (hazard.severity, hazard.kind) == ("error", "shared-read-before-load-complete")
    assert (hazard.lines, hazard.count) == ((10, 20), 2)
    assert hazard.message == (
        "warp 1 (PTX line 20) reads shared memory 0x40 to 0x5f, which tma-load of warp 0 (PTX line 10) writes; "
        "a wait for phase 3 of the mbarrier at 0x410 is needed first"
    )
    assert str(hazard).endswith("(2 times)")


def test_the_wait_is_what_orders() -> None:
    p = Pair()
    operation = p.load(p.a, 10)
    p.monitor.finish(operation, ("mbarrier", CTA, 0, 0))
    p.monitor.acquire(p.b, ("mbarrier", CTA, 0, 0), 11)
    p.touch(p.b, 12, write=False)
    assert p.found() == []
    p.touch(p.a, 13, write=False)  # the issuer has not waited itself
    assert p.found() == ["shared-read-before-load-complete"]
    assert Pair().found() == []


def test_order_passes_through_others_but_not_through_forgotten_keys() -> None:
    p = Pair()
    operation = p.load(p.a, 10)
    p.monitor.finish(operation, ("mbarrier", CTA, 0, 0))
    p.monitor.acquire(p.a, ("mbarrier", CTA, 0, 0), 11)
    p.sync(p.a, p.b)
    p.touch(p.b, 12, write=False)
    assert p.found() == []
    q = Pair()
    operation = q.load(q.a, 10)
    q.monitor.finish(operation, ("mbarrier", CTA, 0, 0))
    q.monitor.forget(("mbarrier", CTA, 0, 0))
    q.monitor.acquire(q.b, ("mbarrier", CTA, 0, 0), 11)
    q.touch(q.b, 12, write=False)
    assert q.found() == ["shared-read-before-load-complete"]


def test_a_phase_carries_on_what_earlier_phases_published() -> None:
    p = Pair()
    operation = p.load(p.a, 10)
    p.monitor.finish(operation, ("mbarrier", CTA, 0, 0))
    for phase in range(1, 5):
        p.monitor.release(p.a, ("mbarrier", CTA, 0, phase), 11)
    p.monitor.acquire(p.b, ("mbarrier", CTA, 0, 4), 12)
    p.touch(p.b, 13, write=False)
    assert p.found() == []


def test_bits_that_do_not_overlap_and_other_ctas_do_not_conflict() -> None:
    p = Pair()
    p.load(p.a, 10, mask=0xF)
    p.touch(p.b, 11, write=True, mask=0xF0)
    p.monitor.add_cta(7, "CTA 7")
    other = p.monitor.add_warp(7, 0, "warp 0 of CTA 7")
    p.monitor.access(other, "shared", 7, 0xF, write=True, proxy="generic", line=12)
    assert p.found() == []
    p.monitor.access(other, "shared", CTA, 0x1, write=True, proxy="generic", line=13)
    assert p.found() == ["shared-overwritten-before-load-complete"]


def test_generic_accesses_and_atomics_are_not_compared() -> None:
    p = Pair()
    p.touch(p.a, 10, write=True)
    p.touch(p.b, 11, write=True)
    p.touch(p.b, 12, write=False)
    operations = [p.monitor.issue(w, "bulk-copy", 13) for w in (p.a, p.b)]
    for operation in operations:
        p.touch(operation, 13, write=True, proxy="async", mask=0xF00, mode="atomic")
    assert p.found() == []


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("generic write", "store", "shared-read-before-write-published"),
        ("generic write", "load", "shared-overwritten-before-write-published"),
        ("generic read", "load", "shared-overwritten-while-read"),
        ("load", "generic write", "shared-overwritten-before-load-complete"),
        ("load", "store", "shared-read-before-load-complete"),
        ("store", "generic write", "shared-overwritten-while-store-reads"),
        ("store", "load", "shared-overwritten-while-store-reads"),
    ],
)
def test_unordered_pairs_of_shared_memory(first: str, second: str, kind: str) -> None:
    def run(order: bool) -> list[str]:
        p = Pair()
        act: dict[str, Callable[[int, int], object]] = {
            "generic write": lambda w, line: p.touch(w, line, write=True),
            "generic read": lambda w, line: p.touch(w, line, write=False),
            "load": p.load,
            "store": p.store,
        }
        operation = act[first](p.a, 10)
        p.monitor.fence(p.a, "proxy.async", 11)
        if isinstance(operation, int):
            p.monitor.finish(operation, ("group", CTA, 0, 0))
            if order:
                p.monitor.acquire(p.a, ("group", CTA, 0, 0), 12)
        if order:
            p.sync(p.a, p.b)
        act[second](p.b, 20)
        return p.found()

    assert run(order=False) == [kind]
    assert run(order=True) == []


def test_a_fence_after_the_barrier_does_not_count_as_the_writers() -> None:
    def run(writer: bool, late: bool, reader: bool) -> list[str]:
        p = Pair()
        p.touch(p.a, 10, write=True)
        if writer:
            p.monitor.fence(p.a, "proxy.async", 11)
        if late:
            p.touch(p.a, 12, write=True, mask=0xF0)
        p.sync(p.a, p.b)
        p.monitor.fence(p.a, "proxy.async", 13)
        if reader:
            p.monitor.fence(p.b, "proxy.async", 14)
        p.store(p.b, 15, mask=0xFF)
        return p.found()

    assert run(writer=True, late=False, reader=False) == []
    assert run(writer=False, late=False, reader=False) == ["missing-proxy-fence"]
    assert run(writer=True, late=True, reader=False) == ["missing-proxy-fence"]
    assert run(writer=False, late=False, reader=True) == ["proxy-fence-by-reader-only"]


def test_another_warps_fenced_store_does_not_hide_an_unfenced_one() -> None:
    p = Pair()
    p.touch(p.a, 10, write=True)
    p.sync(p.a, p.b)
    p.touch(p.b, 11, write=True)
    p.monitor.fence(p.b, "wgmma", 12)
    p.monitor.fence(p.b, "proxy.async", 13)
    p.store(p.b, 14)
    assert p.found() == ["proxy-fence-by-reader-only"]


def test_a_commit_covers_what_was_issued_before_it_only() -> None:
    p = Pair()
    p.monitor.allocate(p.a, CTA, 0, 512, 1)
    stream = ("tcgen05", CTA, 4)
    p.tensor(p.a, "mma", 10, write=True, column=0)
    commit = p.monitor.commit(p.a, 11, stream=stream)
    empty = p.monitor.commit(p.a, 12, stream=stream)
    p.tensor(p.a, "mma", 13, write=True, column=1)
    for each in (commit, empty):
        p.monitor.finish(each, ("mbarrier", CTA, 0, 0))
    p.monitor.acquire(p.b, ("mbarrier", CTA, 0, 0), 14)
    p.monitor.fence(p.b, "tcgen05.after", 15)
    p.monitor.join(p.b, p.tensor(p.b, "tcgen05.ld", 16, write=False, column=0))
    assert p.found() == []
    p.tensor(p.b, "tcgen05.ld", 17, write=False, column=1)
    assert p.found() == ["tensor-read-before-commit"]


def test_one_stream_needs_no_waits_and_two_streams_do() -> None:
    p = Pair()
    p.monitor.allocate(p.a, CTA, 0, 32, 1)
    for engine in ("cp", "mma", "shift", "mma"):
        p.tensor(p.a, engine, 10, write=True)
    assert p.found() == []
    p.tensor(p.b, "mma", 11, write=True, warp=5)
    assert p.found() == ["tensor-overwritten-before-commit"]


def test_tensor_stores_want_their_wait() -> None:
    def run(wait: bool, warp: str, engine: str) -> list[str]:
        p = Pair()
        p.monitor.allocate(p.a, CTA, 0, 32, 1)
        operation = p.tensor(p.a, "tcgen05.st", 10, write=True)
        if wait:
            p.monitor.join(p.a, operation)
        p.monitor.fence(p.a, "tcgen05.before", 11)
        if warp == "b":
            p.sync(p.a, p.b)
            p.monitor.fence(p.b, "tcgen05.after", 12)
        p.tensor(getattr(p, warp), engine, 13, write=False)
        return p.found()

    assert run(True, "b", "mma") == []
    assert run(False, "b", "mma") == ["tensor-read-before-store-complete"]
    assert run(False, "a", "mma") == ["tensor-read-before-store-complete"]
    assert run(False, "a", "tcgen05.ld") == ["tensor-store-not-waited"]
    assert run(True, "a", "tcgen05.ld") == []


def test_allocation() -> None:
    p = Pair()
    p.monitor.allocate(p.a, CTA, 32, 32, 1)
    p.monitor.join(p.a, p.tensor(p.a, "tcgen05.st", 9, write=True, column=40))
    p.monitor.join(p.a, p.tensor(p.a, "tcgen05.ld", 10, write=False, column=40))
    assert p.found() == []
    p.tensor(p.a, "tcgen05.st", 11, write=True, column=31)
    p.monitor.deallocate(p.a, CTA, 32, 32, 12)
    p.tensor(p.a, "tcgen05.ld", 13, write=False, column=40)
    p.monitor.registers_used_early(p.a, 13, 14)
    p.monitor.end_cta(CTA, "CTA 0", 64, [(0x400, 2, 512)])
    p.monitor.end_cta(CTA, "CTA 0", 64, [])
    found = {h.kind: h for h in p.monitor.hazards()}
    assert {k: h.severity for k, h in found.items()} == {
        "tensor-not-allocated": "error",
        "tensor-used-after-free": "warning",
        "tensor-load-registers-used-early": "warning",
        "tensor-memory-not-freed": "error",
        "expect-tx-unbalanced": "error",
    }
    assert "512 bytes pending" in found["expect-tx-unbalanced"].message
    assert found["tensor-memory-not-freed"].count == 1
    assert [h.severity for h in p.monitor.hazards()] == ["error"] * 3 + ["warning"] * 2


def test_a_reader_that_comes_before_its_writer_is_no_race_but_an_error() -> None:
    p = Pair()
    p.store(p.a, 10, mask=0xF0000)
    p.store(p.a, 11, mask=0x18000)  # partly written: may be meant
    p.monitor.allocate(p.a, CTA, 0, 64, 12)
    p.monitor.join(p.a, p.tensor(p.a, "tcgen05.st", 13, write=True, column=3))
    p.monitor.join(p.a, p.tensor(p.a, "tcgen05.ld", 14, write=False, column=3))
    p.monitor.join(p.a, p.tensor(p.a, "tcgen05.ld", 15, write=False, column=4))
    operation = p.monitor.issue(p.a, "mma", 16, stream=("tcgen05", CTA, 0))
    for mode, column in (("", 5), ("accumulate", 5), ("accumulate", 6)):
        p.monitor.access(operation, "tensor", CTA, 1 << column, write=True, proxy="tensor", line=16, mode=mode)
    assert [(h.kind, h.lines, h.count) for h in p.monitor.hazards()] == [
        ("shared-read-before-written", (10,), 1),
        ("tensor-read-before-written", (15,), 1),
        ("tensor-read-before-written", (16,), 1),
    ]
    p.monitor.deallocate(p.a, CTA, 0, 64, 17)
    p.monitor.allocate(p.a, CTA, 0, 64, 18)
    p.monitor.join(p.a, p.tensor(p.a, "tcgen05.ld", 19, write=False, column=3))
    assert p.found().count("tensor-read-before-written") == 3


def test_copies_that_outlive_their_cta() -> None:
    for wait in (False, True):
        p = Pair()
        operation = p.store(p.a, 10)
        p.monitor.finish(operation, ("group", CTA, 0, 0), reads_only=True)
        if wait:
            p.monitor.acquire(p.a, ("group", CTA, 0, 0), 11)
        p.monitor.end_cta(CTA, "CTA 0", 0, [])
        assert p.found() == ([] if wait else ["exit-before-read-complete"])


def test_a_leader_that_waited_for_its_peers_copy_may_exit_first() -> None:
    p = Pair()
    p.monitor.add_cta(1, "CTA 1", "cluster")
    peer = p.monitor.add_warp(1, 0, "warp 0 of CTA 1")
    operation = p.monitor.issue(peer, "tma-load", 10)
    p.monitor.access(operation, "shared", 1, 0xF, write=True, proxy="async", line=10)
    p.monitor.finish(operation, ("mbarrier", CTA, 0, 0))
    p.monitor.acquire(p.a, ("mbarrier", CTA, 0, 0), 11)
    mma = p.monitor.issue(p.a, "mma", 12, stream=("tcgen05", CTA, 0))
    p.monitor.fence(p.a, "tcgen05.after", 12)
    p.monitor.access(mma, "shared", 1, 0xF, write=False, proxy="async", line=12)
    p.monitor.end_cta(CTA, "CTA 0", 0, [])
    p.monitor.end_cta(1, "CTA 1", 0, [])
    assert p.found() == []


def test_barriers_are_initialised_again_after_inval() -> None:
    p = Pair()
    p.monitor.init_barrier(p.a, CTA, 0, 1)
    p.monitor.use_barrier(p.a, CTA, 0, 2)
    p.monitor.fence(p.a, "mbarrier_init", 3)
    p.sync(p.a, p.b)
    p.monitor.use_barrier(p.b, CTA, 0, 4)
    assert p.found() == []
    p.monitor.init_barrier(p.a, CTA, 0, 5)
    p.monitor.use_barrier(p.b, CTA, 0, 6)
    assert p.found() == ["barrier-used-before-init"]


@given(st.integers(0, 1 << 32), st.sampled_from(sorted(BROKEN)))
def test_interleavings_agree(seed: int, broken: str) -> None:
    assert {(h.severity, h.kind) for h in Toy(seed, broken, tiles=3).run().hazards()} <= BROKEN[broken]
