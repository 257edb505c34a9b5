"""What an epilogue costs on this machine's Hopper GPU: the same product with and without it, taking turns.

    python tools/bench_epilogue.py [4096x4096x4096]

Method as in tools/bench.py: random normal inputs, graph replay, medians of per-round ratios, results checked first.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cupy
import torch
from bench import compiled, median_ratio, rounds_of

import blasdx as dx

EPILOGUES = {
    "acc + bias[n]": lambda x, bias: x + bias,
    "relu(acc + bias[n])": lambda x, bias: torch.relu(x + bias),
    "gelu(acc + bias[n])": lambda x, bias: torch.nn.functional.gelu(x + bias),
    "gelu_tanh(acc + bias[n])": lambda x, bias: torch.nn.functional.gelu(x + bias, approximate="tanh"),
    "silu(acc + bias[n])": lambda x, bias: torch.nn.functional.silu(x + bias),
}
TILES = [((128, 256, 64), 256, (1, 1)), ((256, 128, 64), 256, (1, 1))]
ROUNDS, SETS = 15, 6


def main() -> None:
    m, n, k = map(int, (sys.argv[1] if len(sys.argv) > 1 else "4096x4096x4096").split("x"))
    repeats = max(4, int(6e-3 / (2 * m * n * k / 600e12)))
    a, b = ([torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)] for rows in (m, n))
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    out = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
    stream = torch.cuda.Stream()
    for tile in TILES:
        graphs = []
        for epilogue in ("acc", *EPILOGUES):
            gemm = dx.Gemm(compiled(*tile, epilogue=epilogue), "cuda")
            extra = {} if epilogue == "acc" else {"bias": cupy.from_dlpack(bias)}
            views = [tuple(map(cupy.from_dlpack, each)) for each in zip(a, b, out, strict=True)]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                gemm(views[0][0], views[0][1].T, out=views[0][2], stream=stream, **extra)
                stream.synchronize()
                true = a[0].float() @ b[0].float().mT
                true = EPILOGUES[epilogue](true, bias.float()) if epilogue in EPILOGUES else true
                error = ((out[0].float() - true).norm() / true.norm()).item()
                if not error < 1e-2:
                    raise SystemExit(f"{epilogue}: wrong result, relative error {error}")
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream):
                    for repeat in range(repeats):
                        x, y, z = views[repeat % SETS]
                        gemm(x, y.T, out=z, stream=stream, **extra)
            graphs.append(graph)
        times = rounds_of(graphs, repeats, ROUNDS)
        print(f"{m} x {n} x {k}, tile {tile[0]}: plain {statistics.median(times[0]) * 1e3:.1f} us")
        for epilogue, taken in zip(EPILOGUES, times[1:], strict=True):
            cost = 1 / median_ratio(times[0], taken) - 1
            print(f"    {epilogue:<28} {statistics.median(taken) * 1e3:7.1f} us, {cost:+.1%}")


if __name__ == "__main__":
    main()
