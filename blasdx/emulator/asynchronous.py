"""Asynchronous operations and when they are carried out.

An operation is queued when an instruction issues it, and carried out when the schedule says so: the hardware promises
nothing but the order inside a stream and what the program waits for.

- ``eager``: at once,
- ``lazy``: when no warp can go on, oldest first,
- ``adversarial``: when no warp can go on, newest first. Missing waits in a main loop survive every other schedule,
- ``random``: at random moments, in random order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Literal

Schedule = Literal["eager", "lazy", "adversarial", "random"]
SCHEDULES: tuple[Schedule, ...] = ("eager", "lazy", "adversarial", "random")


class Operation:
    """A queued operation. Operations of one stream are carried out in issue order."""

    __slots__ = ("action", "done", "issued", "kind", "line", "previous", "track", "watchers")

    def __init__(self, kind: str, action: Callable[[], None], track: str, line: int, issued: int) -> None:
        self.kind = kind
        self.action = action
        self.track = track
        self.line = line
        self.issued = issued
        self.done = False
        self.previous: Operation | None = None
        self.watchers: list[Callable[[], None]] = []


class Queue:
    """All pending operations of a launch."""

    def __init__(self, schedule: Schedule, rng: random.Random) -> None:
        self.schedule = schedule
        self.rng = rng
        self.pending: dict[Operation, None] = {}
        self.last: dict[Hashable, Operation] = {}
        self.counts: Counter[str] = Counter()

    def submit(self, operation: Operation, stream: Hashable | None = None) -> None:
        """Queue an operation, behind the others of its stream."""
        self.counts[operation.kind] += 1
        if self.schedule == "eager":
            self._carry_out(operation)
            return
        if stream is not None:
            previous = self.last.get(stream)
            if previous is not None and not previous.done:
                operation.previous = previous
            self.last[stream] = operation
        self.pending[operation] = None

    def step(self) -> Operation:
        """Carry out one pending operation, chosen by the schedule."""
        if self.schedule == "adversarial":
            operation = next(reversed(self.pending))
        elif self.schedule == "random":
            operation = self.rng.choice(list(self.pending))
        else:
            operation = next(iter(self.pending))
        while operation.previous is not None and not operation.previous.done:
            operation = operation.previous
        del self.pending[operation]
        self._carry_out(operation)
        return operation

    def _carry_out(self, operation: Operation) -> None:
        operation.action()
        operation.done = True
        operation.previous = None
        for watcher in operation.watchers:
            watcher()
        operation.watchers.clear()
