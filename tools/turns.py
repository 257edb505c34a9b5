"""Timing on a GPU: back-to-back launches that take turns, in one process.

What the benchmarks have in common. Needs torch, for its graphs and events, and a CUDA GPU.
"""

from __future__ import annotations

import random
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

WARM_UP = 2
"""Rounds that do not count: clocks and caches get warm."""

ENQUEUED_IN_S = 1e-4
"""A call takes the host less; for so long the GPU is kept from beginning with those that no graph holds."""

UNDER_LOAD_S = 0.25
"""How long the GPU has worked when its clock is read."""


@dataclass(frozen=True)
class Contestant:
    """``call(i)`` enqueues a product on the i-th set of operands, in the current stream."""

    name: str
    call: Callable[[int], Any]
    captured: bool = True
    """Whether it can be, into a graph."""


class Turns:
    """Contestants, each with ``repeats`` launches at a time that go round ``sets`` sets of operands."""

    def __init__(self, repeats: int, sets: int) -> None:
        self.repeats, self.sets = repeats, sets
        self.stream = torch.cuda.Stream()
        self.contestants: list[Contestant] = []
        self._all: list[Callable[[], None]] = []

    def enter(self, contestant: Contestant, out: torch.Tensor, reference: torch.Tensor, tolerance: float) -> None:
        """Check the contestant's result on the first set, which it leaves in ``out``, and capture its launches.

        Raises
        ------
        SystemExit
            For a wrong result: the norm of the error over the norm of the result is not below ``tolerance``.
        """
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            out.fill_(float("nan"))
            contestant.call(0)
            self.stream.synchronize()
            error = ((out.float() - reference).norm() / reference.norm()).item()
            if not error < tolerance:
                raise SystemExit(f"{contestant.name}: wrong result, relative error {error}")
            for i in range(1, self.sets):  # what is allocated or loaded at a first call is there before the capture
                contestant.call(i)
            self.stream.synchronize()
            self._all.append(self._graph(contestant) if contestant.captured else partial(self._enqueue, contestant))
        self.contestants.append(contestant)

    def _enqueue(self, contestant: Contestant) -> None:
        for repeat in range(self.repeats):
            contestant.call(repeat % self.sets)

    def _graph(self, contestant: Contestant) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self._enqueue(contestant)
        return cast("Callable[[], None]", graph.replay)

    def times(self, rounds: int) -> list[list[float]]:
        """Milliseconds of a launch, of every contestant in every round.

        Each round has an order of its own: where power is what limits the clock, it depends on who ran before.
        """
        times: list[list[float]] = [[] for _ in self._all]
        order = list(range(len(times)))
        for turn in range(rounds + WARM_UP):
            random.Random(turn).shuffle(order)
            for index in order:
                milliseconds = self._timed(index)
                if turn >= WARM_UP:
                    times[index].append(milliseconds / self.repeats)
        return times

    def clock(self, index: int) -> int | None:
        """The SM clock in MHz while a contestant has been at work for a quarter of a second, if nvidia-smi tells it."""
        turns = max(1, int(2 * UNDER_LOAD_S * 1e3 / self._timed(index)))
        half = torch.cuda.Event()
        with torch.cuda.stream(self.stream):
            for turn in range(turns):
                self._all[index]()
                if turn == turns // 2:
                    half.record()
        half.synchronize()  # as many are still waiting
        clock = _sm_clock()
        torch.cuda.synchronize()
        return clock

    def _timed(self, index: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self.stream):
            if not self.contestants[index].captured:
                torch.cuda._sleep(int(self.repeats * ENQUEUED_IN_S * 2e9))  # cycles, of at most 2 GHz
            start.record()
            self._all[index]()
            end.record()
        torch.cuda.synchronize()
        milliseconds: float = start.elapsed_time(end)
        return milliseconds


def median_ratio(base: list[float], times: list[float]) -> float:
    """The median over rounds of ``base`` over ``times``."""
    return statistics.median(b / t for b, t in zip(base, times, strict=True))


def refuse_zeros(*operands: torch.Tensor) -> None:
    """A tensor core that multiplies zeros draws less power, and runs a tenth faster than with anything else."""
    for operand in operands:
        if not operand.any():
            raise SystemExit("operands of zeros only are not timed: they run at a clock that nothing else reaches")


def _sm_clock() -> int | None:
    index = torch.cuda.current_device()
    query = ["nvidia-smi", f"--id={index}", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=10)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
