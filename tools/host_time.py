"""Time what the host does for a product: nothing waits for the GPU, whose part takes less time.

    python tools/host_time.py    # on the GPU; without one against a driver that does nothing, which is not counted then

Prints medians of microseconds a call: of a product that was prepared, the same after it was given other arrays, and of
`gemm(a, b, out=out)` with all its checks, on the same arrays and on others each time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tiles import tile

import blasdx as dx
from blasdx.devices.driver import current_sm, gpus

M, N, K = 64, 64, 64
SETS = 16
CALLS = 256
"""A round; fewer than a stream takes before the host has to wait."""


def kernel(sm: int) -> dx.CompiledKernel:
    descriptor = tile((M, N, K), sm=sm)
    return dx.compile(dx.render(dx.suggest_pipeline(descriptor)))


@contextmanager
def machine() -> Iterator[tuple[str, int, list[Any], Callable[[], None]]]:
    """What it is, its SM, sets of operands, and what waits for the GPU."""
    import cupy
    import ml_dtypes

    if gpus():
        sets = []
        for _ in range(SETS):
            a, b = (cupy.zeros((extent, K), ml_dtypes.bfloat16) for extent in (M, N))
            sets.append((a, b.T, cupy.zeros((M, N), "f4")))
        yield gpus()[0][0], current_sm() or 0, sets, cupy.cuda.Device().synchronize
        return

    from cuda.bindings import driver

    from tests.fake_cuda import fake_cuda

    def nothing(*_: object) -> tuple[Any]:
        return (driver.CUresult.CUDA_SUCCESS,)

    with (
        fake_cuda() as fake,
        mock.patch.object(driver, "cuLaunchKernelEx", nothing),
        mock.patch.object(driver, "cuTensorMapReplaceAddress", nothing),
    ):
        sets = [
            (
                fake.array((M, K), at=at),
                fake.array((K, N), at=at + (1 << 16), order="col"),
                fake.array((M, N), "f4", at=at + (2 << 16)),
            )
            for at in range(1 << 20, (1 << 20) + SETS * (3 << 16), 3 << 16)
        ]
        yield "no GPU, and a driver that does nothing", fake.sm, sets, lambda: None


def microseconds(call: Callable[[], object], wait: Callable[[], None], rounds: int) -> float:
    taken = []
    for turn in range(rounds + 3):
        wait()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        if turn >= 3:
            taken.append((time.perf_counter() - start) / CALLS * 1e6)
    wait()
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=51)
    rounds = parser.parse_args().rounds
    with machine() as (name, sm, sets, wait):
        gemm = dx.Gemm(kernel(sm), "cuda")
        a, b, out = sets[0]
        prepared = gemm.prepare(a, b, out=out)
        turn = cycle(sets)

        def rebound() -> None:
            a, b, out = next(turn)
            prepared.rebind(a, b, out=out)()

        def others() -> None:
            a, b, out = next(turn)
            gemm(a, b, out=out)

        print(name)
        calls: dict[str, Callable[[], object]] = {
            "prepared call": prepared,
            "prepared call, rebound to other arrays": rebound,
            "gemm(a, b, out=out)": lambda: gemm(a, b, out=out),
            "gemm(a, b, out=out), other arrays": others,
        }
        for text, call in calls.items():
            print(f"{microseconds(call, wait, rounds):7.2f} us  {text}")


if __name__ == "__main__":
    main()
