"""Timing on a GPU: graphs of back-to-back launches that take turns, in one process.

What the benchmarks have in common. Needs torch, for its graphs and events, and a CUDA GPU.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

WARM_UP = 2
"""Rounds that do not count: clocks and caches get warm."""

UNDER_LOAD_S = 0.25
"""How long the GPU has worked when its clock is read."""


@dataclass(frozen=True)
class Contestant:
    """``call(i)`` enqueues a product on the i-th set of operands, in the current stream."""

    name: str
    call: Callable[[int], Any]


class Turns:
    """Contestants, each with its graph of ``repeats`` launches that go round ``sets`` sets of operands."""

    def __init__(self, repeats: int, sets: int) -> None:
        self.repeats, self.sets = repeats, sets
        self.stream = torch.cuda.Stream()
        self.contestants: list[Contestant] = []
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def enter(self, contestant: Contestant, out: torch.Tensor, reference: torch.Tensor, tolerance: float) -> None:
        """Check the contestant's result on the first set, which it leaves in ``out``, and capture its graph.

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
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                for repeat in range(self.repeats):
                    contestant.call(repeat % self.sets)
        self.contestants.append(contestant)
        self._graphs.append(graph)

    def times(self, rounds: int) -> list[list[float]]:
        """Milliseconds of a launch, of every contestant in every round."""
        times: list[list[float]] = [[] for _ in self._graphs]
        for turn in range(rounds + WARM_UP):
            for graph, taken in zip(self._graphs, times, strict=True):
                milliseconds = _replayed(graph)
                if turn >= WARM_UP:
                    taken.append(milliseconds / self.repeats)
        return times

    def clock(self, index: int) -> int | None:
        """The SM clock in MHz while a contestant has been at work for a quarter of a second, if nvidia-smi tells it."""
        graph = self._graphs[index]
        replays = max(1, int(2 * UNDER_LOAD_S * 1e3 / _replayed(graph)))
        half = torch.cuda.Event()
        for replay in range(replays):
            graph.replay()
            if replay == replays // 2:
                half.record()
        half.synchronize()  # as many replays are still waiting
        clock = _sm_clock()
        torch.cuda.synchronize()
        return clock


def median_ratio(base: list[float], times: list[float]) -> float:
    """The median over rounds of ``base`` over ``times``."""
    return statistics.median(b / t for b, t in zip(base, times, strict=True))


def refuse_zeros(*operands: torch.Tensor) -> None:
    """A tensor core that multiplies zeros draws less power, and runs a tenth faster than with anything else."""
    for operand in operands:
        if not operand.any():
            raise SystemExit("operands of zeros only are not timed: they run at a clock that nothing else reaches")


def _replayed(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    milliseconds: float = start.elapsed_time(end)
    return milliseconds


def _sm_clock() -> int | None:
    index = torch.cuda.current_device()
    query = ["nvidia-smi", f"--id={index}", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=10)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
