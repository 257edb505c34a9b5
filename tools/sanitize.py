"""A representative set of Hopper kernels, for compute-sanitizer to watch.

    compute-sanitizer --tool memcheck  --report-api-errors no python tools/sanitize.py
    compute-sanitizer --tool racecheck --report-api-errors no python tools/sanitize.py
    compute-sanitizer --tool synccheck --report-api-errors no python tools/sanitize.py

All types and ways of storing, clusters, one loading warpgroup or none, sets of warps in turns; ragged problems with and
without beta.
`--report-api-errors no`: bindings newer than the driver ask it for functions that it does not have yet, and memcheck
would list every question as an error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cupy
import numpy as np
from tiles import tile

import blasdx as dx

TN = ("row", "col", "row")
KERNELS: list[tuple[tuple[int, int, int], tuple[str, str, str], tuple[str, str, str], int, dict[str, Any]]] = [
    ((128, 256, 64), ("bf16", "bf16", "f32"), TN, 256, {}),
    ((128, 64, 64), ("f16", "f16", "f16"), ("row", "col", "col"), 256, {}),
    ((64, 40, 32), ("tf32", "tf32", "f32"), TN, 128, {}),
    ((128, 64, 128), ("e4m3", "e5m2", "f32"), TN, 256, {"output": "bf16"}),
    ((64, 64, 64), ("s8", "u8", "s32"), ("row", "col", "col"), 128, {}),
    ((128, 128, 32), ("bf16", "bf16", "f32"), ("col", "row", "row"), 256, {"cluster": (2, 2)}),
    ((256, 64, 64), ("bf16", "bf16", "f32"), TN, 1024, {}),
    ((128, 64, 64), ("bf16", "bf16", "f32"), TN, 256, {"fixed_blocksize": True, "depth": 2}),
    ((64, 64, 64), ("bf16", "bf16", "f32"), TN, 128, {"pingpong": True}),
    ((64, 72, 64), ("bf16", "bf16", "f32"), ("row", "col", "col"), 128, {"pingpong": True, "output": "bf16"}),
]


def compiled(
    size: tuple[int, int, int],
    types: tuple[str, str, str],
    order: tuple[str, str, str],
    threads: int,
    options: dict[str, Any],
) -> dx.CompiledKernel:
    cluster = options.get("cluster", (1, 1))
    descriptor = tile(size, types, threads=threads, cluster=cluster, sm=900).with_(dx.Arrangement(*order))
    rest = {key: value for key, value in options.items() if key != "cluster"}
    return dx.compile(dx.render(dx.suggest_pipeline(descriptor, **rest)))


def draw(rows: int, columns: int, order: object, element: dx.Element) -> Any:
    """Small integers whose lines begin at multiples of 16 elements; 8-bit floats as bytes."""
    values = np.random.default_rng(0).integers(0, 4, (rows, columns)).astype(element.numpy_dtype)
    held = values.view(np.uint8) if element.name in ("e4m3", "e5m2") else values
    lines = held if order is dx.row_major else held.T
    padded = cupy.zeros((lines.shape[0], -(-lines.shape[1] // 16) * 16), held.dtype)
    view = padded[:, : lines.shape[1]]
    view[...] = cupy.asarray(np.ascontiguousarray(lines))
    return view if order is dx.row_major else view.T


def main() -> None:
    for case in KERNELS:
        kernel = compiled(*case)
        plan = kernel.source.plan
        types, order = plan.descriptor.precision, plan.descriptor.arrangement
        gemm = dx.Gemm(kernel, "cuda")
        for m, n, k in ((300, 270, 200), (256, 256, 128), (1000, 1032, 72)):  # the last: several tiles a CTA
            a, b = draw(m, k, order.a, types.a), draw(k, n, order.b, types.b)
            gemm(a, b)
            gemm(a, b, draw(m, n, order.c, plan.output), alpha=2.0, beta=1.0)
        cupy.cuda.runtime.deviceSynchronize()
        print(kernel.entry, flush=True)


if __name__ == "__main__":
    main()
