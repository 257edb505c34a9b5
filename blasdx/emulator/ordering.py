"""Who knows what is over: the vector clocks behind the hazard monitor.

A clock is a dictionary ``component -> epoch``: "everything of this component up to this epoch happened before". Absent
components are at 0. Components are

- a warp (its own accesses), and four fence levels of it, see `Warp`,
- a stream of asynchronous operations that run in order; its epochs are the intervals between commits, because nobody
  can learn about less,
- a slot for one asynchronous operation that completes by itself. A slot is used again when no record of the operation
  is left, so that clocks do not grow with the length of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blasdx.emulator.records import Memory, Record

Clock = dict[int, int]

# Fence levels, as offsets from a warp's component: up to which epoch of the warp ...
WRITER_FENCE = 1  # ... it ran fence.proxy.async itself
CONSUMER_FENCE = 2  # ... somebody who knew of it ran fence.proxy.async
BEFORE_FENCE = 3  # ... it ran tcgen05.fence::before_thread_sync (or a commit, which implies it)
INIT_FENCE = 4  # ... it ran fence.mbarrier_init
LEVELS = 5


def join(clock: Clock, other: Clock) -> None:
    """Add everything that `other` knows to `clock`."""
    get = clock.get
    for component, epoch in other.items():
        if get(component, 0) < epoch:
            clock[component] = epoch


class Components:
    """Hands out component numbers."""

    def __init__(self) -> None:
        self._next = count(0, LEVELS)

    def new(self) -> int:
        """Return a number of which the following four are free as well."""
        return next(self._next)


class Warp:
    """A warp as an agent. Its clock is copied on write, so that operations can keep the one they started with."""

    __slots__ = ("_clock", "_shared", "after", "component", "copies", "cta", "name", "tensor_loads", "tensor_stores")

    def __init__(self, component: int, cta: int, name: str, streams: Sequence[Stream]) -> None:
        self.component = component
        self.cta = cta
        self.name = name
        self._clock: Clock = {component: 1}
        self._shared = False
        # What it knew at its last tcgen05.fence::after_thread_sync.
        self.after: Clock = {}
        self.tensor_loads, self.tensor_stores, self.copies = streams

    @property
    def clock(self) -> Clock:
        """For reading."""
        return self._clock

    @property
    def epoch(self) -> int:
        """The warp's own epoch."""
        return self._clock[self.component]

    def snapshot(self) -> Clock:
        """What the warp knows now; never changes afterwards."""
        self._shared = True
        return self._clock

    def writable(self) -> Clock:
        """Clock that may be changed."""
        if self._shared:
            self._clock = self._clock.copy()
            self._shared = False
        return self._clock

    def step(self) -> None:
        """What follows is not part of what was just published or fenced."""
        self.writable()[self.component] += 1

    def learn(self, other: Clock) -> None:
        """Join `other` into the warp's clock."""
        join(self.writable(), other)


class Stream:
    """Asynchronous operations that are carried out in issue order."""

    __slots__ = ("component", "epoch", "open")

    def __init__(self, component: int) -> None:
        self.component = component
        self.epoch = 1
        self.open: list[int] = []  # operations of the current interval

    def close(self) -> int:
        """End the interval between two commits and return its epoch."""
        if self.open:
            self.epoch += 1
            self.open.clear()
        return self.epoch - 1


class Operation:
    """An asynchronous operation as an agent.

    `component` is what says that its writes are over, `reads` that its reads are.
    """

    __slots__ = (
        "component",
        "copied",
        "engine",
        "epoch",
        "finished",
        "issued",
        "keys",
        "line",
        "number",
        "reads",
        "records",
        "slot",
        "start",
        "warp",
    )

    def __init__(self, warp: Warp, engine: str, line: int, component: int, reads: int, epoch: int, slot: bool) -> None:
        self.warp = warp
        self.engine = engine
        self.line = line
        self.component = component
        self.reads = reads
        self.epoch = epoch
        self.slot = slot
        self.issued = warp.epoch
        self.start = warp.snapshot()
        self.records = 0
        self.finished = False
        self.copied: list[tuple[Memory, Record]] = []  # of a cp.async
        self.number = 0
        self.keys: list[tuple[object, ...]] = []

    def over(self, reads_only: bool) -> Clock:
        """What an observer of its completion knows besides `start`."""
        if reads_only:
            return {self.reads: self.epoch}
        return {self.component: self.epoch, self.reads: self.epoch}
