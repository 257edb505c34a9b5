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

from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import Literal

from blasdx.emulator import wording
from blasdx.emulator.contracts import Contracts, Cta
from blasdx.emulator.findings import Hazard, Severity
from blasdx.emulator.ordering import (
    BEFORE_FENCE,
    CONSUMER_FENCE,
    INIT_FENCE,
    WRITER_FENCE,
    Clock,
    Components,
    Operation,
    Stream,
    Warp,
    join,
)
from blasdx.emulator.records import CONFLICTS, Record, Side
from blasdx.emulator.verdicts import verdicts

__all__ = ["Hazard", "Monitor", "Severity"]

Space = Literal["shared", "tensor"]
Proxy = Literal["generic", "async", "tensor"]
Key = tuple[Hashable, ...]

# Keys that name something of one CTA, as second entry.
_CTA_KEYS = ("mbarrier", "barrier", "group")
# Engines whose operations a warp waits for in order, whatever the instruction: attribute of the warp.
_OWN_STREAMS = {"tcgen05.ld": "tensor_loads", "tcgen05.st": "tensor_stores", "cp.async": "copies"}
_AT_EXIT: dict[Side, tuple[Severity, str]] = {"async reads": ("warning", "read"), "async writes": ("error", "write")}
_SIDES: dict[tuple[bool, bool], Side] = {
    (True, False): "generic reads",
    (True, True): "generic writes",
    (False, False): "async reads",
    (False, True): "async writes",
}


class Monitor(Contracts):
    """Happens-before bookkeeping of one launch.

    Parameters
    ----------
    describe_line : callable
        Turns a PTX line number into text for messages: ``"PTX line 120 (gemm.cu:34)"``.
    """

    def __init__(self, describe_line: Callable[[int], str]) -> None:
        super().__init__(describe_line)
        self._components = Components()
        self._numbers = count(1)
        self._streams: dict[Key, Stream] = {}
        self._keys: dict[Key, Clock] = {}
        self._clusters: dict[Hashable, list[Cta]] = {}
        self._departed: dict[Hashable, Clock] = {}  # by cluster: what warps of CTAs that are gone knew
        self._writers: set[int] = set()  # components of warps: only they write through the generic proxy

    # agents

    def add_warp(self, cta: int, warp: int, name: str) -> int:
        """Register a warp and return its agent. `cta` is unique in the launch; `name` is used in messages."""
        state = self._ctas[cta]
        added = Warp(self._component(state), cta, name, [Stream(self._component(state)) for _ in range(3)])
        state.warps.append(added)
        self._writers.add(added.component)
        return self._number(added, state)

    def add_cta(self, cta: int, name: str, cluster: Hashable = None) -> None:
        """Register a CTA before its warps. Its shared memory is fresh: nothing recorded conflicts with it.

        Only CTAs of the same `cluster` can reach each other's memory; without one a CTA is a cluster of its own.
        """
        state = Cta(("alone", cta) if cluster is None else cluster, self._dropped)
        self._ctas[cta] = state
        self._clusters.setdefault(state.cluster, []).append(state)

    def end_cta(self, cta: int, name: str, tensor_columns: int, unbalanced: list[tuple[int, int, int]]) -> None:
        """The CTA has exited; its records may be dropped. A second call for the same CTA does nothing.

        `tensor_columns` is the number of tensor-memory columns still allocated; `unbalanced` lists
        ``(barrier offset, phase, pending bytes)`` of barriers whose transaction count is not zero.
        """
        state = self._ctas.get(cta)
        if state is None:
            return
        if tensor_columns:
            text = f"{name} exits with {tensor_columns} tensor-memory columns: every tcgen05.alloc needs its dealloc"
            self.report("error", "tensor-memory-not-freed", text, ())
        for offset, phase, pending in unbalanced:
            text = (
                f"{name} exits while phase {phase} of the mbarrier at {offset:#x} has {pending} bytes pending: "
                f"expect_tx and the bytes of the copies never balanced"
            )
            self.report("error", "expect-tx-unbalanced", text, ())
        # Not where it is freed: some kernels read on after that.
        self._lose(state, -1, f"{name} exits, and with it go", ())
        self._check_exit(state, name)
        self._clusters[state.cluster].remove(state)
        if self._clusters[state.cluster]:
            for warp in state.warps:
                join(self._departed.setdefault(state.cluster, {}), warp.clock)
        else:
            del self._clusters[state.cluster]
            self._departed.pop(state.cluster, None)
            self._keys = {k: v for k, v in self._keys.items() if k[0] != "global" or k[-1] != state.cluster}
        for number in state.agents:
            self._agents.pop(number, None)
        self._keys = {k: v for k, v in self._keys.items() if k[0] not in _CTA_KEYS or k[1] != cta}
        self._streams = {k: v for k, v in self._streams.items() if k[1] != cta}
        self._writers.difference_update(state.components)
        del self._ctas[cta]

    def _check_exit(self, state: Cta, name: str) -> None:
        """Copies that may still use the shared memory of a CTA that is gone.

        Production kernels leave their last stores behind; a load into memory that belongs to somebody else by then
        is another matter.
        """
        clocks = [warp.clock for warp in self._observers(state)]
        clocks.append(self._departed.get(state.cluster, {}))
        memory = state.memories["shared"]
        for side in ("async reads", "async writes"):
            for record in memory.sides[side]:
                agent = record.agent
                if not isinstance(agent, Operation) or not agent.slot or any(record.ordered(c) for c in clocks):
                    continue
                severity, does = _AT_EXIT[side]
                text = (
                    f"{name} exits while {self._who(record)} may still {does} its shared memory; {wording.cure(record)}"
                )
                self.report(severity, f"exit-before-{does}-complete", text, (record.line,))

    def _component(self, state: Cta) -> int:
        component = self._components.new()
        state.components.append(component)
        return component

    def _number(self, agent: Warp | Operation, state: Cta) -> int:
        number = next(self._numbers)
        self._agents[number] = agent
        state.agents.add(number)
        if isinstance(agent, Operation):
            agent.number = number
        return number

    def _retire(self, operation: int, state: Cta) -> None:
        """Nothing will be said about this operation any more."""
        self._agents.pop(operation, None)
        state.agents.discard(operation)

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
        state = self._ctas.get(cta)
        if state is None or not mask:
            return
        who = self._agents[agent]
        new = Record(who, write, mask, line, mode == "atomic")
        clock = who.clock if isinstance(who, Warp) else who.start
        if space == "tensor":
            self._check_allocated(state, new)
            if not write:
                state.products.read(mask)
            elif new.engine != "mma":
                self._lose(state, mask, f"{self._who(new)} overwrites", (line,))
        elif write and mask & state.barrier_mask and proxy == "async" and mode != "atomic":
            text = f"{self._who(new)} writes {wording.place(space, mask & state.barrier_mask)}, where an mbarrier lies"
            self.report("error", "mbarrier-overwritten", text, (line,))
        side = _SIDES[proxy == "generic", write]
        memory = state.memories[space]
        if not mask & memory.written and (side == "async reads" or mode == "accumulate"):
            self._unwritten(space, new)
        if write:
            memory.written |= mask
        for other in CONFLICTS[side]:
            if mask & memory.unions[other]:
                for old in memory.sides[other]:
                    if old.mask & mask and not (old.atomic and new.atomic):
                        self._compare(space, other.endswith("reads"), old, new, clock, write)
        memory.supersede(side, new, clock)
        memory.add(side, new)
        if new.engine == "cp.async" and isinstance(who, Operation):
            who.copied.append((memory, new))
        memory.prune(side, self._observers(state))

    def _unwritten(self, space: Space, new: Record) -> None:
        """A reader that came so early that its writer, which waits for it, is ordered after it: not even a race."""
        text = (
            f"{self._who(new)} reads {wording.place(space, new.mask)}, of which nothing has been written yet; "
            f"the wait before it is missing or waits for the wrong phase"
        )
        self.report("error", f"{space}-read-before-written", text, (new.line,))

    def _observers(self, state: Cta) -> Iterator[Warp]:
        """Warps that may access this CTA's memory later, or issue operations that do."""
        for each in self._clusters[state.cluster]:
            yield from each.warps

    def _compare(self, space: Space, old_reads: bool, old: Record, new: Record, clock: Clock, write: bool) -> None:
        for verdict in verdicts(space, old_reads, old, new, clock, write):

            def text(missing: str = verdict.missing) -> str:
                return (
                    f"{self._who(new)} {'writes' if write else 'reads'} {wording.place(space, old.mask & new.mask)}, "
                    f"which {self._who(old)} {'reads' if old_reads else 'writes'}; {missing}"
                )

            self.report(verdict.severity, verdict.kind, text, (old.line, new.line))
            if verdict.kind == "missing-tcgen05-fence-after":
                new.warp.after = new.warp.snapshot()  # once for each wait that lacks it

    def _dropped(self, record: Record) -> None:
        """Free the slot of an operation without records."""
        agent = record.agent
        if isinstance(agent, Operation):
            agent.records -= 1
            if agent.slot and not agent.records:
                self._free_slot(agent)

    def _free_slot(self, operation: Operation) -> None:
        operation.slot = False
        state = self._ctas.get(operation.warp.cta)
        if state is not None:
            state.slots.append((operation.component, operation.epoch))
            if operation.finished:
                self._retire(operation.number, state)

    # asynchronous operations

    def issue(self, agent: int, engine: str, line: int, *, stream: Key | None = None) -> int:
        """Start an asynchronous operation after everything `agent` did so far, and return it as an agent.

        `engine` is "tma-load", "tma-store", "bulk-copy", "cp.async", "mma", "cp", "shift", "tcgen05.ld", "tcgen05.st"
        or "wgmma". Operations of one `stream` (the tcgen05 pipeline of an issuing warp) run in issue order.
        """
        warp = self._warp(agent)
        state = self._ctas[warp.cta]
        if engine in _OWN_STREAMS:
            queue = getattr(warp, _OWN_STREAMS[engine])
            if engine == "cp.async":
                queue.close()  # wait_group can tell any two of them apart
        elif stream is not None:
            queue = self._stream(stream, state)
        else:
            component, epoch = state.slots.pop() if state.slots else (self._component(state), 0)
            operation = Operation(warp, engine, line, component, component + 1, epoch + 1, True)
            return self._number(operation, state)
        operation = Operation(warp, engine, line, queue.component, queue.component, queue.epoch, False)
        queue.open.append(self._number(operation, state))
        return operation.number

    def _stream(self, key: Key, state: Cta) -> Stream:
        if key not in self._streams:
            self._streams[key] = Stream(self._component(state))
        return self._streams[key]

    def commit(self, agent: int, line: int, *, stream: Key) -> int:
        """tcgen05.commit: an agent that stands for the completion of all earlier operations of `stream`."""
        warp = self._warp(agent)
        state = self._ctas[warp.cta]
        queue = self._stream(stream, state)
        for earlier in queue.open:
            self._retire(earlier, state)
        operation = Operation(warp, "commit", line, queue.component, queue.component, queue.close(), False)
        return self._number(operation, state)

    def finish(self, operation: int, key: Key, *, reads_only: bool = False) -> None:
        """The operation is over (`reads_only`: has read its sources) for whoever acquires `key`."""
        agent = self._agents.get(operation)
        if not isinstance(agent, Operation):
            return  # nothing of it is left to order
        agent.keys.append(key)
        agent.finished |= not reads_only
        self._publish(key, agent.start)
        join(self._keys[key], agent.over(reads_only))
        if agent.slot and agent.finished and not agent.records:
            self._free_slot(agent)

    def join(self, agent: int, operation: int) -> None:
        """The operation is over for `agent` itself (tcgen05.wait::ld, cp.async.wait_group of own copies)."""
        warp, over = self._warp(agent), self._agents.get(operation)
        if not isinstance(over, Operation):
            return
        warp.learn(over.over(False))
        if over.engine not in _OWN_STREAMS:
            over.finished = True
            if over.slot and not over.records:
                self._free_slot(over)
            return
        queue: Stream = getattr(over.warp, _OWN_STREAMS[over.engine])
        if over.epoch == queue.epoch:
            queue.close()
        for memory, record in over.copied:
            if warp is over.warp:
                memory.hand_over(record, warp)
        self._retire(operation, self._ctas[over.warp.cta])

    # synchronisation

    def release(self, agent: int, key: Key, line: int) -> None:
        """`agent` publishes what it did so far under `key` (mbarrier arrive, bar.sync arrival, release store)."""
        warp = self._warp(agent)
        self._publish(self._scoped(key, warp), warp.clock)
        warp.step()

    def _scoped(self, key: Key, warp: Warp) -> Key:
        """Flags in global memory order the CTAs of a cluster only: no other can reach the memory looked at here."""
        return (*key, self._ctas[warp.cta].cluster) if key[0] == "global" else key

    def _publish(self, key: Key, clock: Clock) -> None:
        published = self._keys.get(key)
        if published is not None:
            join(published, clock)
            return
        published = self._keys[key] = clock.copy()
        if key[0] == "mbarrier" and isinstance(key[3], int):
            # Arrivals are read-modify-writes of one object, so a phase carries on what the one before published.
            # Whoever waits can see the two latest phases only.
            before = self._keys.get((*key[:3], key[3] - 1))
            if before is not None:
                join(published, before)
            self._keys.pop((*key[:3], key[3] - 2), None)

    def acquire(self, agent: int, key: Key, line: int) -> None:
        """`agent` is ordered after everything released or finished under `key`.

        Keys ``("mbarrier", cta, offset, phase)`` include the phases before.
        """
        found = self._agents[agent]
        published = self._keys.get(self._scoped(key, self._warp(agent)))
        if published is None:
            return
        if isinstance(found, Operation):
            found.start = found.start.copy()
            join(found.start, published)
        else:
            found.learn(published)

    def forget(self, key: Key) -> None:
        """Nobody can acquire `key` any more; its clock may be dropped."""
        self._keys.pop(key, None)

    def fence(self, agent: int, kind: str, line: int) -> None:
        """A fence. `kind`: "proxy.async", "mbarrier_init", "tcgen05.before", "tcgen05.after", "wgmma"."""
        warp = self._warp(agent)
        if kind == "tcgen05.after":
            warp.after = warp.snapshot()
            return
        clock, own, epoch = warp.writable(), warp.component, warp.epoch
        if kind == "proxy.async":
            clock[own + WRITER_FENCE] = epoch
            for component in self._writers.intersection(clock):
                clock[component + CONSUMER_FENCE] = max(clock[component], clock.get(component + CONSUMER_FENCE, 0))
        elif kind == "mbarrier_init":
            clock[own + INIT_FENCE] = epoch
        elif kind == "tcgen05.before":
            clock[own + BEFORE_FENCE] = epoch
        else:
            return
        warp.step()
