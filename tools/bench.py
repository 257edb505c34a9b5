"""Products on this machine's Hopper GPU beside cuBLAS and CuPy, measured in one process.

For each shape, a handful of descriptors, torch's cuBLAS and CuPy take turns, round after round, on random normal inputs
that rotate through at least three times the L2 cache. Each figure is the median over rounds of one graph replay, for
CuPy, which cannot be captured, of launches that were all enqueued before the first began: host time does not count.
Ratios are medians of per-round ratios. Every result is checked first, and the SM clock is read while cuBLAS and the
best descriptor are at work.

    python tools/bench.py                       # the table of docs/performance.md
    python tools/bench.py 4096x4096x4096 --json bench.json
    python tools/plot_bench.py bench.json bench.svg

Needs torch (for cuBLAS) and CuPy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any, TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cupy
import torch
from tiles import tile
from turns import Contestant, Turns, median_ratio, refuse_zeros

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
TILES: list[tuple[tuple[int, int, int], int, tuple[int, int], dict[str, Any]]] = [  # (M, N, K), BlockDim, cluster
    ((128, 256, 64), 256, (1, 1), {}),
    ((128, 256, 64), 256, (2, 1), {}),
    ((256, 128, 64), 256, (1, 1), {}),
    ((256, 128, 64), 256, (1, 2), {}),
    ((128, 192, 64), 256, (1, 1), {}),
    ((128, 192, 64), 256, (2, 1), {}),
    ((128, 128, 64), 128, (1, 1), {"pingpong": True}),
    ((128, 128, 64), 128, (2, 1), {"pingpong": True}),
    ((128, 160, 64), 128, (1, 1), {"pingpong": True}),
    ((128, 176, 64), 128, (2, 1), {"pingpong": True}),
    ((64, 256, 64), 128, (1, 1), {}),
    ((128, 128, 64), 128, (1, 1), {}),
    ((64, 128, 128), 128, (1, 1), {}),
    ((64, 64, 128), 128, (1, 1), {}),
    ((64, 128, 128), 128, (1, 1), {"split_k": 4}),
    ((64, 256, 64), 128, (1, 1), {"split_k": 4}),
]


def compiled(
    size: tuple[int, int, int],
    threads: int,
    cluster: tuple[int, int],
    options: dict[str, Any],
    epilogue: str = "alpha * acc + beta * c",
) -> dx.CompiledKernel:
    descriptor = tile(size, threads=threads, cluster=cluster, sm=900)
    finish = dx.Epilogue(epilogue, bias="bf16") if "bias" in epilogue else dx.Epilogue(epilogue)
    return dx.compile(dx.render(dx.suggest_pipeline(descriptor, output="bf16", epilogue=finish, **options)))


class Row(TypedDict):
    """One contestant's figures for one shape; ``ratio`` is cuBLAS's time over its own."""

    name: str
    tflops: int
    ratio: float


class Result(TypedDict):
    """One shape's figures. ``clocks``: of the SMs, in MHz, under cuBLAS and under the best descriptor's kernel."""

    shape: tuple[int, ...]
    cublas: int
    cupy: Row | None
    ours: list[Row]
    clocks: tuple[int | None, int | None]


class Operands:
    """Sets of random operands for one shape, as torch's and as CuPy's arrays."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        *batches, m, n, k = shape
        count = batches[0] if batches else 1
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.sets = max(2, min(64, -(-3 * l2 // (2 * count * (m * k + n * k + m * n)))))
        self.operations = 2 * count * m * n * k

        def random(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(*batches, rows, columns, device="cuda", dtype=torch.bfloat16)

        self.a = [random(m, k) for _ in range(self.sets)]
        self.b = [random(n, k).mT for _ in range(self.sets)]
        self.out = [torch.empty(*batches, m, n, device="cuda", dtype=torch.bfloat16) for _ in range(self.sets)]
        refuse_zeros(*self.a, *self.b)
        self.reference = self.a[0].float() @ self.b[0].float()
        self.views: list[tuple[Any, Any, Any]] = [
            (cupy.from_dlpack(a), cupy.from_dlpack(b.mT).swapaxes(-1, -2), cupy.from_dlpack(out))
            for a, b, out in zip(self.a, self.b, self.out, strict=True)
        ]

    def cublas(self) -> Contestant:
        """Through torch, which asks cuBLASLt's heuristics."""
        return Contestant("cuBLAS", lambda i: torch.matmul(self.a[i], self.b[i], out=self.out[i]))

    def cupy(self, stream: torch.cuda.Stream) -> Contestant:
        """What CuPy makes of the same arrays."""
        external = cupy.cuda.Stream.from_external(stream)

        def call(i: int) -> None:
            a, b, out = self.views[i]
            with external:
                cupy.matmul(a, b, out=out)

        return Contestant("CuPy", call, captured=False)  # it refuses to call cuBLAS in a capture

    def ours(self, gemm: dx.Gemm, stream: torch.cuda.Stream, **extra: Any) -> Contestant:
        """A prepared call for each set of operands."""
        calls = [gemm.prepare(a, b, out=out, stream=stream, **extra) for a, b, out in self.views]
        return Contestant(gemm.kernel.entry, lambda i: calls[i](stream=stream))


def measure(shape: tuple[int, ...], gemms: list[dx.Gemm], rounds: int) -> Result:
    operands = Operands(shape)
    turns = Turns(max(4, min(200, int(4e-3 / (operands.operations / 600e12)))), operands.sets)

    def enter(contestant: Contestant) -> None:
        turns.enter(contestant, operands.out[0], operands.reference, tolerance=1e-2)

    enter(operands.cublas())
    for gemm in gemms:
        enter(operands.ours(gemm, turns.stream))
    with_cupy = len(shape) == 3  # CuPy 14.2 has no batches of bf16: "data type 'E' not understood"
    if with_cupy:
        enter(operands.cupy(turns.stream))
    times = turns.times(rounds)
    rows: list[Row] = [
        {
            "name": contestant.name,
            "tflops": round(operands.operations / statistics.median(taken) / 1e9),
            "ratio": round(median_ratio(times[0], taken), 3),
        }
        for contestant, taken in zip(turns.contestants, times, strict=True)
    ]
    cublas, ours = rows[0], rows[1 : 1 + len(gemms)]
    best = max(range(len(ours)), key=lambda i: ours[i]["ratio"])
    return {
        "shape": shape,
        "cublas": cublas["tflops"],
        "cupy": rows[-1] if with_cupy else None,
        "ours": ours,
        "clocks": (turns.clock(0), turns.clock(1 + best)),
    }


def show(found: Result) -> None:
    best = max(found["ours"], key=lambda row: row["ratio"])
    name = "x".join(map(str, found["shape"]))
    cupys = f"CuPy {found['cupy']['ratio']:.3f}   " if found["cupy"] else ""
    clocks = " and ".join("?" if clock is None else str(clock) for clock in found["clocks"])
    print(f"{name:>18}  cuBLAS {found['cublas']:4} TFLOP/s   best {best['ratio']:.3f}  {best['name']}")
    print(f"{'':>18}  {cupys}{clocks} MHz under cuBLAS and the best")
    print("    " + ", ".join(f"{row['ratio']:.3f}" for row in found["ours"]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", help="MxNxK or BxMxNxK; the documented table when left out")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    shapes = [tuple(map(int, text.split("x"))) for text in options.shapes] or SHAPES
    gemms = [dx.Gemm(compiled(*chosen), "cuda") for chosen in TILES]
    results = []
    for shape in shapes:
        results.append(measure(shape, gemms, options.rounds))
        show(results[-1])
    if options.json:
        device = torch.cuda.get_device_name()
        options.json.write_text(json.dumps({"device": device, "tiles": TILES, "results": results}, indent=1))


if __name__ == "__main__":
    main()
