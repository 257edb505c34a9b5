"""The machine of one launch: grid, clusters, the scheduler, deadlock and livelock."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from blasdx.emulator import collective, register_pool, reports, wgmma
from blasdx.emulator.asynchronous import Operation, Queue, Schedule
from blasdx.emulator.errors import DeadlockError, EmulationError, LivelockError
from blasdx.emulator.global_races import GlobalRaces
from blasdx.emulator.mbarrier import Barrier
from blasdx.emulator.memory import GlobalMemory, Region
from blasdx.emulator.resident import Cluster, Cta
from blasdx.emulator.trace import TraceEvent
from blasdx.emulator.warp import Join, Path, Wait, Warp

if TYPE_CHECKING:
    from blasdx.emulator.hazards import Monitor
    from blasdx.emulator.numerics import Model
    from blasdx.emulator.program import Program

QUANTUM = 200  # blocks without a visible event after which others get a turn: a path may spin on plain memory
QUIET = 3_000_000  # warp-instructions without any visible event that pass for a livelock
PATIENCE = 6_000  # warp-instructions without any visible event before waiting lanes may run ahead of their warp
STARVING = 20_000  # warp-instructions after which an operation is carried out although warps could still go on
TRACE_LIMIT = 200_000


@dataclass(frozen=True)
class Config:
    """What stays fixed during a launch."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_smem: int
    schedule: Schedule
    seed: int
    sms: int
    max_instructions: int | None
    registers: int | None = None


class Machine:
    """Runs one grid."""

    def __init__(
        self,
        program: Program,
        config: Config,
        memory: GlobalMemory,
        params: bytes,
        symbols: dict[str, int],
        numerics: Model,
        monitor: Monitor | None,
    ) -> None:
        self.program = program
        self.config = config
        self.memory = memory
        self.globals = symbols
        self.numerics = numerics
        threads = config.block[0] * config.block[1] * config.block[2]
        self.registers = register_pool.launched(threads, program.body.directives, config.registers)
        self.monitor = monitor
        self.races = GlobalRaces(memory, monitor, monitor.describe) if monitor is not None else None
        padded = np.zeros(-(-len(params) // 32) * 32 + 64, np.uint8)
        padded[: len(params)] = np.frombuffer(params, np.uint8)
        self.params = Region("the parameters", padded, 0, 0, len(params), read_only=True)
        self.rng = random.Random(config.seed)
        self.queue = Queue(config.schedule, self.rng)
        self.ready: deque[Path] = deque()
        self.polling: list[Path] = []
        self.waiting: dict[Path, None] = {}
        self.joins: dict[Join, Path] = {}  # where lanes wait for others of their warp, with one that does
        self.events = 0
        self.executed = 0
        self.counts = [0] * len(program.blocks)
        self.trace: list[TraceEvent] = []
        self.clusters: list[Cluster] = []
        self.active = 0
        self.ctas_started = 0
        self.patience = PATIENCE
        self.fasting = STARVING
        self._carried = 0
        self._timeouts = (-1, 0)
        self._last_event = (0, 0)

    # the grid

    def run(self) -> None:
        """Run the whole grid."""
        todo = self._cluster_origins()
        room = max(1, self.config.sms // (self.config.cluster[0] * self.config.cluster[1] * self.config.cluster[2]))
        more = True
        while True:
            while more and self.active < room:
                origin = next(todo, None)
                if origin is None:
                    more = False
                else:
                    self._start(origin)
            if not self.active:
                break
            self._until_a_cluster_ends()
        while self.queue.pending:
            self._carry_out()

    def _cluster_origins(self) -> Iterator[tuple[int, int, int]]:
        (gx, gy, gz), (cx, cy, cz) = self.config.grid, self.config.cluster
        for z in range(0, gz, cz):
            for y in range(0, gy, cy):
                for x in range(0, gx, cx):
                    yield x, y, z

    def _start(self, origin: tuple[int, int, int]) -> None:
        """Make a cluster resident."""
        config, program = self.config, self.program
        (gx, gy, gz), (cx, cy, cz) = config.grid, config.cluster
        cluster = Cluster(len(self.clusters))
        self.clusters.append(cluster)
        self.active += 1
        shared_bytes = program.static_shared + config.dynamic_smem
        for rank in range(cx * cy * cz):
            inside = (rank % cx, rank // cx % cy, rank // (cx * cy))
            special: dict[str, Any] = {}
            triples = {
                "ntid": config.block,
                "nctaid": config.grid,
                "ctaid": tuple(o + i for o, i in zip(origin, inside, strict=True)),
                "cluster_nctaid": config.cluster,
                "cluster_ctaid": inside,
                "clusterid": tuple(o // c for o, c in zip(origin, config.cluster, strict=True)),
                "nclusterid": (gx // cx, gy // cy, gz // cz),
            }
            for name, values in triples.items():
                special.update({f"{name}_{axis}": value for axis, value in zip("xyz", values, strict=True)})
            threads = config.block[0] * config.block[1] * config.block[2]
            special |= {
                "cluster_ctarank": rank,
                "cluster_nctarank": cx * cy * cz,
                "is_explicit_cluster": cx * cy * cz > 1,
                "nwarpid": -(-threads // 32),
                "smid": (cluster.number * cx * cy * cz + rank) % max(1, config.sms),
                "nsmid": max(1, config.sms),
                "gridid": 0,
                "total_smem_size": shared_bytes,
                "aggr_smem_size": shared_bytes,
                "dynamic_smem_size": config.dynamic_smem,
            }
            cta = Cta(self, cluster, self.ctas_started, rank, config.block, special, shared_bytes)
            self.ctas_started += 1
            cluster.ctas.append(cta)
        for cta in cluster.ctas:
            self._start_warps(cta)

    def _start_warps(self, cta: Cta) -> None:
        if self.monitor is not None:
            self.monitor.add_cta(cta.number, cta.name, cta.cluster.number)
        for warp in cta.warps:
            if self.monitor is not None:
                warp.agent = self.monitor.add_warp(cta.number, warp.index, warp.name)
            warp.registers = self.registers[0]
            if self.program.local_bytes:
                data = np.zeros(32 * self.program.local_bytes + 64, np.uint8)
                warp.local = Region(f"local memory of {warp.name}", data, 0, 0, 32 * self.program.local_bytes)
            regs: list[Any] = [False if r.bits == 1 else 0 for r in self.program.registers]
            path = Path(self, self.program, warp, warp.alive, regs)
            path.settle()
            self.ready.append(path)

    def cta_exits(self, cta: Cta) -> None:
        """All threads of a CTA have exited."""
        cta.done = True
        if all(c.done for c in cta.cluster.ctas):
            # The next cluster may take the place; whatever is still under way has to be over by then.
            while self.queue.pending:
                self._carry_out()
            if self.monitor is not None:
                for each in cta.cluster.ctas:
                    unbalanced = [(b.offset, b.phase, b.tx) for b in each.barriers.values() if b.tx]
                    self.monitor.end_cta(each.number, each.name, each.allocator.held(each.number), unbalanced)
            for each in cta.cluster.ctas:
                each.barriers.clear()
                if missing := wgmma.unfinished(each):
                    raise DeadlockError(f"CTA {each.name} exits with {missing}")
            self.active -= 1

    # the scheduler

    def _until_a_cluster_ends(self) -> None:
        active = self.active
        ready, queue = self.ready, self.queue
        shuffled = self.config.schedule == "random"
        rng, limit = self.rng, self.config.max_instructions
        while self.active == active:
            if ready:
                if limit is not None and self.executed > limit:
                    self._check_limit(ready[0])
                if shuffled:
                    if queue.pending and rng.random() < 0.3:
                        self._carry_out()
                        continue
                    if len(ready) > 1:
                        ready.rotate(rng.randrange(len(ready)))
                    self._run_path(ready.popleft(), rng.randrange(1, 64))
                elif queue.pending and self._starving():
                    self._carry_out()
                else:
                    self._run_path(ready.popleft(), QUANTUM)
            elif queue.pending:
                self._carry_out()
                self._poll()
            elif self.polling:
                self._part_if_quiet()
                self._poll()
            else:
                self._time_out()

    def _starving(self) -> bool:
        """Whether warps may be spinning, through barriers even, on what only a pending operation can change."""
        if self.executed - self._carried < self.fasting:
            return False
        self.fasting = max(500, self.fasting // 2)
        return True

    def _part_if_quiet(self) -> None:
        """Let lanes that wait for others of their warp go on when nothing has happened for a while.

        Lanes that spin until one that already left the loop releases a lock would spin forever otherwise; the hardware
        guarantees them progress since Volta.
        """
        if self.executed - self._quiet_since(self.executed) > self.patience:
            # A lock is fought for again and again: be quicker next time.
            self.patience = max(200, self.patience // 4)
            self._break_joins()

    def _quiet_since(self, now: int) -> int:
        """When the last event happened, as far as the scheduler noticed."""
        if self.events != self._last_event[0]:
            self._last_event = (self.events, now)
        return self._last_event[1]

    def _break_joins(self) -> bool:
        joins, self.joins = self.joins, {}
        for join, path in joins.items():
            join.broken = True
            path.revive(join)
        return bool(joins)

    def _poll(self) -> None:
        self.ready.extend(self.polling)
        self.polling.clear()

    def _run_path(self, path: Path, budget: int) -> None:
        """Run blocks of a path until it waits, ends, or has had its share."""
        program = path.program
        functions, sizes, counts = program.functions, program.sizes, self.counts
        executed, events = self.executed, self.events
        shuffled = self.config.schedule == "random"
        try:
            while True:
                join = path.join
                if join is not None and path.pc == join.block:
                    if not path.arrive():
                        return
                    continue
                pc = path.pc
                if pc == program.leave:
                    path.leave(True)
                    return
                function = functions[pc]
                if function is None:
                    function = program.translated(pc)
                counts[pc] += 1
                self.executed = executed = executed + sizes[pc]
                following = function(path, path.regs)
                if following is None:
                    return
                path.pc = following
                budget -= 1
                if budget <= 0:
                    self._check_limit(path)
                    if shuffled:
                        self._part_if_quiet()
                        self.ready.append(path)
                        return
                    if self.events == events:  # it may spin: let everybody else go first
                        self.polling.append(path)
                        return
                    events, budget = self.events, QUANTUM
        except EmulationError as error:
            error.locate(self._line(path, error.__traceback__), path.warp.name)
            raise
        except (ValueError, TypeError, IndexError, KeyError, OverflowError, AssertionError) as error:
            wrapped = EmulationError(f"{type(error).__name__}: {error}")
            wrapped.locate(self._line(path, error.__traceback__), path.warp.name)
            raise wrapped from error

    @staticmethod
    def _line(path: Path, trace: TracebackType | None) -> int:
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<ptx>":
                return path.program.line_of(path.pc, trace.tb_lineno)
            trace = trace.tb_next
        return path.program.blocks[path.pc].line

    def _check_limit(self, path: Path) -> None:
        limit = self.config.max_instructions
        quiet = self.executed - self._quiet_since(self.executed)
        if (limit is not None and self.executed > limit) or (limit is None and quiet > QUIET):
            what = f"max_instructions = {limit} passed" if limit is not None else f"{quiet} instructions without effect"
            line = path.program.blocks[path.pc].line
            raise LivelockError(f"{what}; {path.warp.name} runs at PTX line {line}\n{reports.state(self)}")

    # asynchronous operations

    def submit(
        self, kind: str, action: Callable[[], None], track: str, line: int, stream: Hashable | None = None
    ) -> Operation:
        """Queue an asynchronous operation."""
        operation = Operation(kind, action, track, line, self.executed)
        self.events += 1
        self.queue.submit(operation, stream)
        if operation.done:
            self._traced(operation)
        return operation

    def _carry_out(self) -> None:
        self.events += 1
        self._carried = self.executed
        before = next(iter(self.queue.pending))
        operation = before
        try:
            operation = self.queue.step()
        except EmulationError as error:
            error.locate(operation.line)
            raise
        self._traced(operation)

    def _traced(self, operation: Operation) -> None:
        if len(self.trace) < TRACE_LIMIT:
            self.trace.append(
                TraceEvent(operation.kind, operation.track, operation.issued, self.executed, operation.line)
            )

    # waiting

    def retry(self, path: Path) -> bool:
        """Let a waiting path look again whether it can go on."""
        wait = path.wait
        if wait is None or not wait.ready():
            return False
        self._wake(path, wait)
        return True

    def _wake(self, path: Path, wait: Wait) -> None:
        path.wait = None
        del self.waiting[path]
        self.ready.append(path)
        if len(self.trace) < TRACE_LIMIT:
            warp = path.warp
            track = f"cta {warp.cta.number} warp {warp.index}"
            name = f"wait {wait.about}" if wait.about else "wait"
            self.trace.append(TraceEvent(name, track, wait.since, self.executed, wait.line))

    def flipped(self, barrier: Barrier) -> None:
        """A phase of an mbarrier has completed."""
        self.events += 1
        if len(self.trace) < TRACE_LIMIT:
            name, track = f"phase {barrier.phase - 1}", f"cta {barrier.cta} mbarrier {barrier.offset:#x}"
            self.trace.append(TraceEvent(name, track, barrier.since, self.executed, barrier.line))
        barrier.since = self.executed
        waiters, barrier.waiters = barrier.waiters, []
        for path in waiters:
            if path.wait is not None and not self.retry(path):
                barrier.waiters.append(path)

    def meet(self, warp: Warp) -> None:
        """Lanes have exited: others may not have to wait for them any more."""
        collective.check(warp)

    def check_named(self, cta: Cta, number: int) -> None:
        """Release a named barrier when everybody it waits for has arrived or exited."""
        barrier = cta.named[number]
        if not barrier.arrived:
            return
        expected = barrier.expected if barrier.expected is not None else cta.alive
        if barrier.arrived < expected:
            return
        if barrier.arrived > expected:
            raise EmulationError(
                f"{barrier.arrived} threads arrived at barrier {number} of CTA {cta.name}, which takes {expected}"
            )
        barrier.result[barrier.generation] = (
            sum(n for n, _ in barrier.votes),
            sum(t for _, t in barrier.votes),
        )
        if self.monitor is not None and barrier.generation >= 2:
            self.monitor.forget(("barrier", cta.number, number, barrier.generation - 2))
        barrier.result.pop(barrier.generation - 2, None)
        if len(self.trace) < TRACE_LIMIT:
            track = f"cta {cta.number} barrier {number}"
            self.trace.append(TraceEvent(f"round {barrier.generation}", track, barrier.since, self.executed, 0))
        barrier.here.clear()
        barrier.generation += 1
        barrier.arrived = 0
        barrier.expected = None
        barrier.votes = []
        self.events += 1
        waiting, barrier.waiting = barrier.waiting, []
        for path in waiting:
            self.retry(path)

    def check_cluster(self, cluster: Cluster) -> None:
        """Release the cluster barrier when all threads have arrived or exited."""
        if not cluster.arrived or cluster.arrived < cluster.alive:
            return
        cluster.arrived = 0
        cluster.phase += 1
        self.events += 1
        waiting, cluster.waiting = cluster.waiting, []
        for path in waiting:
            if not self.retry(path):
                cluster.waiting.append(path)

    def _time_out(self) -> None:
        """Nothing can go on. mbarrier.try_wait may return false, which a program is free to act on."""
        if self._break_joins():
            return
        events, rounds = self._timeouts
        rounds = rounds + 1 if events == self.events else 0
        self._timeouts = (self.events, rounds)
        timed = [path for path in self.waiting if path.wait is not None and path.wait.give_up is not None]
        if not timed or rounds >= 3:
            raise DeadlockError("no warp can go on\n" + reports.state(self))
        for path in timed:
            wait = path.wait
            if wait is not None and wait.give_up is not None:
                wait.give_up()
                self._wake(path, wait)
        for cluster in self.clusters[-max(1, self.config.sms) :]:
            for cta in cluster.ctas:
                for barrier in cta.barriers.values():
                    barrier.waiters = [p for p in barrier.waiters if p.wait is not None]
