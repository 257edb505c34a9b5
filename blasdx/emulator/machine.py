"""The machine of one launch: its memory, its grid, and the barriers at which warps meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from blasdx.emulator import collective, register_pool, wgmma
from blasdx.emulator.errors import DeadlockError, EmulationError
from blasdx.emulator.global_races import GlobalRaces
from blasdx.emulator.mbarrier import Barrier
from blasdx.emulator.memory import GlobalMemory, Region
from blasdx.emulator.resident import Cluster, Cta
from blasdx.emulator.scheduler import TRACE_LIMIT, Config, Scheduler
from blasdx.emulator.trace import TraceEvent
from blasdx.emulator.warp import Path, Warp

if TYPE_CHECKING:
    from blasdx.emulator.hazards import Monitor
    from blasdx.emulator.numerics import Model
    from blasdx.emulator.program import Program


class Machine(Scheduler):
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
        super().__init__(program, config)
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
        self.ctas_started = 0

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

    # where warps meet

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
