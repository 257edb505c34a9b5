"""The scheduler: which warp runs next, when asynchronous operations are carried out, and when nothing can go on."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from blasdx.emulator import reports
from blasdx.emulator.asynchronous import Operation, Queue, Schedule
from blasdx.emulator.errors import DeadlockError, EmulationError, LivelockError
from blasdx.emulator.trace import TraceEvent
from blasdx.emulator.warp import Join, Path, Wait

if TYPE_CHECKING:
    from blasdx.emulator.program import Program
    from blasdx.emulator.resident import Cluster

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


class Scheduler:
    """Runs the warps of the resident clusters.

    Attributes
    ----------
    ready, polling, waiting, joins
        Warps, or parts of them, that can run; that may be spinning; that wait; that wait for the rest of their warp.
    events, executed : int
        What has happened that others can see, and the warp-instructions so far.
    """

    def __init__(self, program: Program, config: Config) -> None:
        self.program = program
        self.config = config
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
        self.patience = PATIENCE
        self.fasting = STARVING
        self._carried = 0
        self._timeouts = (-1, 0)
        self._last_event = (0, 0)

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
                    # From the front half alone: no warp is passed over for long, as on the hardware. Production kernels
                    # hang where a warp that only waits falls behind by two phases of an mbarrier.
                    index = rng.randrange((len(ready) + 1) // 2)
                    path = ready[index]
                    del ready[index]
                    self._run_path(path, rng.randrange(1, 64))
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
            self.trace.append(self._waited(path, wait))

    def _waited(self, path: Path, wait: Wait) -> TraceEvent:
        track = f"cta {path.cta.number} warp {path.warp.index}"
        name = f"wait {wait.about}" if wait.about else "wait"
        return TraceEvent(name, track, wait.since, self.executed, wait.line)

    def open_waits(self) -> list[TraceEvent]:
        """Waits that are not over, until now."""
        return [self._waited(path, path.wait) for path in self.waiting if path.wait is not None]

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
