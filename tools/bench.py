"""Products on this machine's Hopper GPU beside cuBLAS, measured in one process.

For each shape, a handful of descriptors and torch's cuBLAS take turns, round after round, on random normal inputs that
rotate through at least three times the L2 cache. Each figure is the median over rounds of one graph replay, so that
host time does not count; ratios are medians of per-round ratios. Every result is checked first.

    python tools/bench.py                       # the table of docs/performance.md
    python tools/bench.py 4096x4096x4096 --json bench.json

Needs torch (for cuBLAS) and CuPy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cupy
import torch
from tiles import tile

import blasdx as dx

SHAPES: list[tuple[int, ...]] = [
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (2048, 2048, 2048),
    (4096, 4096, 14336),
    (4096, 2112, 7168),
    (16384, 1024, 1024),
    (128, 4096, 7168),
    (64, 7168, 2048),
    (256, 256, 256, 256),  # batches, M, N, K
]
TILES: list[
    tuple[tuple[int, int, int], int, tuple[int, int], int]
] = [  # (M, N, K), BlockDim, BlocksPerCluster, split_k
    ((128, 256, 64), 256, (1, 1), 1),
    ((128, 256, 64), 256, (2, 1), 1),
    ((256, 128, 64), 256, (1, 1), 1),
    ((256, 128, 64), 256, (1, 2), 1),
    ((128, 192, 64), 256, (1, 1), 1),
    ((128, 192, 64), 256, (2, 1), 1),
    ((64, 256, 64), 128, (1, 1), 1),
    ((128, 128, 64), 128, (1, 1), 1),
    ((64, 128, 128), 128, (1, 1), 1),
    ((64, 64, 128), 128, (1, 1), 1),
    ((64, 128, 128), 128, (1, 1), 4),
    ((64, 256, 64), 128, (1, 1), 4),
]


def compiled(
    size: tuple[int, int, int], threads: int, cluster: tuple[int, int], split_k: int = 1, epilogue: str | None = None
) -> dx.CompiledKernel:
    descriptor = tile(size, threads=threads, cluster=cluster, sm=900)
    expression = epilogue or "alpha * acc + beta * c"
    finish = dx.Epilogue(expression, bias="bf16") if "bias" in expression else dx.Epilogue(expression)
    return dx.compile(dx.render(dx.suggest_pipeline(descriptor, output="bf16", split_k=split_k, epilogue=finish)))


class Row(TypedDict):
    """One kernel's figures for one shape; ``ratio`` is cuBLAS's time over its own."""

    kernel: str
    tflops: int
    ratio: float


class Result(TypedDict):
    """One shape's figures."""

    shape: tuple[int, ...]
    cublas: int
    ours: list[Row]


def median_ratio(base: list[float], times: list[float]) -> float:
    return statistics.median(b / t for b, t in zip(base, times, strict=True))


def rounds_of(graphs: list[torch.cuda.CUDAGraph], repeats: int, rounds: int) -> list[list[float]]:
    """Milliseconds of one of the ``repeats`` launches in each graph, which take turns round after round."""
    times: list[list[float]] = [[] for _ in graphs]
    for turn in range(rounds + 2):
        for graph, taken in zip(graphs, times, strict=True):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            if turn >= 2:  # clocks and caches warm
                taken.append(start.elapsed_time(end) / repeats)
    return times


def measure(shape: tuple[int, ...], gemms: list[dx.Gemm], rounds: int) -> Result:
    *batches, m, n, k = shape
    count = batches[0] if batches else 1
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    sets = max(2, min(64, -(-3 * l2 // (2 * count * (m * k + n * k + m * n)))))

    def random(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(*batches, rows, columns, device="cuda", dtype=torch.bfloat16)

    a = [random(m, k) for _ in range(sets)]
    b = [random(n, k) for _ in range(sets)]
    out = [torch.full((*batches, m, n), float("nan"), device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    views = [tuple(map(cupy.from_dlpack, operands)) for operands in zip(a, b, out, strict=True)]
    reference = a[0].float() @ b[0].float().mT
    operations = 2 * count * m * n * k
    repeats = max(4, min(200, int(4e-3 / (operations / 600e12))))
    stream = torch.cuda.Stream()

    def library(i: int) -> None:
        torch.matmul(a[i], b[i].mT, out=out[i])

    def ours(gemm: dx.Gemm) -> Callable[[int], None]:
        def call(i: int) -> None:
            gemm(views[i][0], views[i][1].swapaxes(-1, -2), out=views[i][2], stream=stream)

        return call

    calls = [library, *(ours(gemm) for gemm in gemms)]
    graphs = []
    for call in calls:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            out[0].fill_(float("nan"))
            call(0)
            stream.synchronize()
            error = ((out[0].float() - reference).norm() / reference.norm()).item()
            if not error < 1e-2:
                raise SystemExit(f"{shape}: wrong result, relative error {error}")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for repeat in range(repeats):
                    call(repeat % sets)
        graphs.append(graph)
    times = rounds_of(graphs, repeats, rounds)
    tflops = [operations / statistics.median(taken) / 1e9 for taken in times]
    return {
        "shape": shape,
        "cublas": round(tflops[0]),
        "ours": [
            {"kernel": gemm.kernel.entry, "tflops": round(speed), "ratio": round(median_ratio(times[0], taken), 3)}
            for gemm, speed, taken in zip(gemms, tflops[1:], times[1:], strict=True)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", help="MxNxK or BxMxNxK; the documented table when left out")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    shapes = [tuple(map(int, text.split("x"))) for text in options.shapes] or SHAPES
    gemms = [dx.Gemm(compiled(*tile), "cuda") for tile in TILES]
    results = []
    for shape in shapes:
        found = measure(shape, gemms, options.rounds)
        results.append(found)
        name = "x".join(map(str, shape))
        best = max(found["ours"], key=lambda row: row["ratio"])
        print(f"{name:>18}  cuBLAS {found['cublas']:4} TFLOP/s   best {best['ratio']:.3f}  {best['kernel']}")
        print("    " + ", ".join(f"{row['ratio']:.3f}" for row in found["ours"]), flush=True)
    if options.json:
        device = torch.cuda.get_device_name()
        options.json.write_text(json.dumps({"device": device, "tiles": TILES, "results": results}, indent=1))


if __name__ == "__main__":
    main()
