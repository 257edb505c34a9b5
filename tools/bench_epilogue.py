"""What an epilogue costs on this machine's Hopper GPU: the same product with and without it, taking turns.

    python tools/bench_epilogue.py [4096x4096x4096]

Method as in tools/bench.py: random normal inputs, graph replay, medians of per-round ratios, results checked first;
the SM clock is read while each is at work.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cupy
import torch
from bench import Operands, compiled
from turns import Turns, median_ratio

import blasdx as dx

EPILOGUES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "alpha * acc + beta * c": lambda x, _: x,
    "acc + bias[n]": lambda x, bias: x + bias,
    "relu(acc + bias[n])": lambda x, bias: torch.relu(x + bias),
    "gelu(acc + bias[n])": lambda x, bias: torch.nn.functional.gelu(x + bias),
    "gelu_tanh(acc + bias[n])": lambda x, bias: torch.nn.functional.gelu(x + bias, approximate="tanh"),
    "silu(acc + bias[n])": lambda x, bias: torch.nn.functional.silu(x + bias),
}
TILES: list[tuple[tuple[int, int, int], int, dict[str, Any]]] = [
    ((128, 256, 64), 256, {}),
    ((256, 128, 64), 256, {}),
    ((128, 128, 64), 128, {"pingpong": True}),
    ((128, 160, 64), 128, {"pingpong": True}),
]
ROUNDS = 15


def main() -> None:
    m, n, k = map(int, (sys.argv[1] if len(sys.argv) > 1 else "4096x4096x4096").split("x"))
    operands = Operands((m, n, k))
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    for size, threads, options in TILES:
        turns = Turns(max(4, int(6e-3 / (operands.operations / 600e12))), operands.sets)
        for epilogue in ("acc", *EPILOGUES):
            gemm = dx.Gemm(compiled(size, threads, (1, 1), options, epilogue), "cuda")
            extra = {} if "bias" not in epilogue else {"bias": cupy.from_dlpack(bias)}
            true = operands.reference if epilogue == "acc" else EPILOGUES[epilogue](operands.reference, bias.float())
            turns.enter(operands.ours(gemm, turns.stream, **extra), operands.out[0], true, tolerance=1e-2)
        times = turns.times(ROUNDS)
        print(f"{m} x {n} x {k}, tile {size}{', in turns' if options else ''}")
        for index, (epilogue, taken) in enumerate(zip(("acc", *EPILOGUES), times, strict=True)):
            cost = 1 / median_ratio(times[0], taken) - 1
            print(f"    {epilogue:<28} {statistics.median(taken) * 1e3:7.1f} us, {cost:+.1%}, {turns.clock(index)} MHz")


if __name__ == "__main__":
    main()
