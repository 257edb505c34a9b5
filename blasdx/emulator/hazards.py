"""Races and broken contracts, decided by happens-before.

The machine tells a :class:`Monitor` what is accessed by whom and which synchronisation took place; the monitor keeps
vector clocks and reports a :class:`Hazard` for every pair of conflicting accesses that nothing orders. It decides on
order alone, never on what a schedule happened to do, so the same hazards come out under every schedule.

Agents are integers handed out by the monitor: one per warp (:meth:`Monitor.add_warp`) and one per asynchronous
operation (:meth:`Monitor.issue`). An asynchronous operation starts after everything its issuer did before it, and is
over for an observer only when the observer has acquired a key to which the operation was released.

Keys are hashable tuples naming one synchronisation *event*, for example ``("mbarrier", cta, offset, phase)``,
``("barrier", cta, number, generation)``, ``("cluster", cluster, generation)``, ``("group", cta, warp, number)`` or
``("global", address)``. ``release`` publishes an agent's clock under a key, ``acquire`` joins what was published.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
Space = Literal["shared", "tensor"]
Proxy = Literal["generic", "async", "tensor"]
Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class Hazard:
    """One finding.

    Attributes
    ----------
    severity : "error" or "warning"
        "error": can change a result or hang. "warning": a broken contract that known production kernels break too.
    kind : str
        Stable kebab-case id, for example ``"shared-read-before-load-complete"``.
    message : str
        CTA, warp or role, barrier, PTX lines (CUDA source lines where known), and what was expected.
    lines : tuple[int, ...]
        PTX lines involved.
    count : int
        How often the same kind occurred on the same lines.
    """

    severity: Severity
    kind: str
    message: str
    lines: tuple[int, ...]
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.severity}: {self.kind}: {self.message}{times}"


class Monitor:
    """Happens-before bookkeeping of one launch.

    Parameters
    ----------
    describe_line : callable
        Turns a PTX line number into text for messages: ``"PTX line 120 (gemm.cu:34)"``.
    """

    def __init__(self, describe_line: Callable[[int], str]) -> None:
        raise NotImplementedError

    # agents

    def add_warp(self, cta: int, warp: int, name: str) -> int:
        """Register a warp and return its agent. `cta` is unique in the launch; `name` is used in messages."""
        raise NotImplementedError

    def add_cta(self, cta: int, name: str) -> None:
        """Register a CTA before its warps. Its shared memory is fresh: nothing recorded conflicts with it."""
        raise NotImplementedError

    def end_cta(self, cta: int, name: str, tensor_columns: int, unbalanced: list[tuple[int, int, int]]) -> None:
        """The CTA has exited; its records may be dropped.

        `tensor_columns` is the number of tensor-memory columns still allocated; `unbalanced` lists
        ``(barrier offset, phase, pending bytes)`` of barriers whose transaction count is not zero.
        """
        raise NotImplementedError

    # accesses

    def access(
        self, agent: int, space: Space, cta: int, mask: int, *, write: bool, proxy: Proxy, line: int, mode: str = ""
    ) -> None:
        """Record an access by a warp (it is over at once) or by an asynchronous operation (over when acquired).

        `mask` has one bit per 16-byte granule of the CTA's shared memory (bit = offset >> 4); for tensor memory bit
        ``(lane // 16) * 512 + column``. `cta` owns the memory, and need not be the agent's own. `mode` may be
        "accumulate" for a tensor-memory write that adds to what an earlier operation of the same stream wrote,
        and "atomic" for atomic updates, which do not conflict with each other. Accesses of generic proxy on both
        sides are not compared with each other: 16-byte granules are too coarse for them.
        """
        raise NotImplementedError

    # asynchronous operations

    def issue(self, agent: int, engine: str, line: int, *, stream: Key | None = None) -> int:
        """Start an asynchronous operation after everything `agent` did so far, and return it as an agent.

        `engine` is "tma-load", "tma-store", "bulk-copy", "cp.async", "mma", "cp", "shift", "tcgen05.ld", "tcgen05.st"
        or "wgmma". Operations of one `stream` (the tcgen05 pipeline of an issuing warp) run in issue order.
        """
        raise NotImplementedError

    def commit(self, agent: int, line: int, *, stream: Key) -> int:
        """tcgen05.commit: an agent that stands for the completion of all earlier operations of `stream`."""
        raise NotImplementedError

    def finish(self, operation: int, key: Key, *, reads_only: bool = False) -> None:
        """The operation is over (`reads_only`: has read its sources) for whoever acquires `key`."""
        raise NotImplementedError

    def join(self, agent: int, operation: int) -> None:
        """The operation is over for `agent` itself (tcgen05.wait::ld, cp.async.wait_group of own copies)."""
        raise NotImplementedError

    # synchronisation

    def release(self, agent: int, key: Key, line: int) -> None:
        """`agent` publishes what it did so far under `key` (mbarrier arrive, bar.sync arrival, release store)."""
        raise NotImplementedError

    def acquire(self, agent: int, key: Key, line: int) -> None:
        """`agent` is ordered after everything released or finished under `key`."""
        raise NotImplementedError

    def forget(self, key: Key) -> None:
        """Nobody can acquire `key` any more; its clock may be dropped."""
        raise NotImplementedError

    def fence(self, agent: int, kind: str, line: int) -> None:
        """A fence. `kind`: "proxy.async", "mbarrier_init", "tcgen05.before", "tcgen05.after", "wgmma"."""
        raise NotImplementedError

    def init_barrier(self, agent: int, cta: int, offset: int, line: int) -> None:
        """mbarrier.init by `agent`; using it from elsewhere wants fence.mbarrier_init and a thread sync between."""
        raise NotImplementedError

    def use_barrier(self, agent: int, cta: int, offset: int, line: int) -> None:
        """An mbarrier is used (arrive, expect_tx, wait, or handed to an asynchronous operation) by `agent`."""
        raise NotImplementedError

    # tensor memory

    def allocate(self, agent: int, cta: int, column: int, columns: int, line: int) -> None:
        """tcgen05.alloc gave `columns` columns from `column` on."""
        raise NotImplementedError

    def deallocate(self, agent: int, cta: int, column: int, columns: int, line: int) -> None:
        """tcgen05.dealloc: warn when an access to the columns is not ordered before."""
        raise NotImplementedError

    def registers_used_early(self, agent: int, load_line: int, line: int) -> None:
        """A register loaded by tcgen05.ld is used before tcgen05.wait::ld (warning)."""
        raise NotImplementedError

    # other findings of the machine

    def report(self, severity: Severity, kind: str, message: str, lines: tuple[int, ...]) -> None:
        """Add a finding that the machine made itself; deduplicated by kind and lines like all others."""
        raise NotImplementedError

    def hazards(self) -> tuple[Hazard, ...]:
        """Everything found so far, errors first, each (kind, lines) once with its count."""
        raise NotImplementedError
