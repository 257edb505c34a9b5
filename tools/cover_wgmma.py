"""Gate <=> kernel on Hopper: descriptors that pass the wgmma gates compile as planned and compute the right numbers.

Draws descriptors that cover every pair of values of the choices below, and boundary values of each; for every one that
passes the gates and fits: no spill, no complaint of the compiler, the planned number of MMAs, bit-exact on small
integers for a ragged problem. Run it on a Hopper GPU:

    python tools/cover_wgmma.py [--seed 0] [--points 150] [--json cover.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from covering import covering
from tiles import tile

import blasdx as dx
from blasdx.paths.wgmma.gates import PRECISIONS, WARPGROUPS

CHOICES: dict[str, tuple[Any, ...]] = {
    "precision": PRECISIONS,
    "majors": (("row", "col"), ("row", "row"), ("col", "col"), ("col", "row")),
    "c": ("row", "col"),
    "threads": tuple(WARPGROUPS),
    "mode": ("plain", "fixed_blocksize", "pingpong"),
    "m_blocks": (1, 2, 3, 4, 6),
    "n_blocks": (1, 2, 3, 5, 8, 12, 16, 25, 32, 33),
    "k_steps": (1, 2, 3, 4, 6, 8, 17),
    "depth": (1, 2, None),
    "scaling": (None, (2.0, -1.0)),
}


def descriptor(point: dict[str, Any]) -> dx.Descriptor:
    precision: dx.Precision = point["precision"]
    a, b = point["majors"] if precision.a.bits == 16 else ("row", "col")
    groups_m, groups_n = WARPGROUPS[point["threads"]]
    size = (
        64 * groups_m * point["m_blocks"],
        8 * groups_n * point["n_blocks"],
        256 // precision.a.bits * point["k_steps"],
    )
    return tile(size, precision, a=a, b=b, c=point["c"], threads=point["threads"], sm=900)


def verdict(point: dict[str, Any], gemm: dx.Gemm) -> str:
    """Run a ragged problem; "ok" or what is wrong."""
    import cupy

    plan = gemm.kernel.source.plan
    tile = plan.descriptor
    m, n, k = tile.m + 37, tile.n + 13, 2 * tile.k + 8
    if plan.sets > 1:  # three tiles an SM
        m, n = 24 * plan.tile_m - 27, 17 * plan.tile_n - 3
    rng = np.random.default_rng(1)

    def draw(rows: int, columns: int, order: object, element: dx.Element) -> tuple[Any, Any]:
        low = 0 if not element.is_signed else -3
        values = rng.integers(low, 4, (rows, columns)).astype(element.numpy_dtype)
        lines = values if order is dx.row_major else values.T
        item = element.itemsize
        padded = np.zeros((lines.shape[0], -(-lines.shape[1] * item // 16) * 16 // item), values.dtype)
        padded[:, : lines.shape[1]] = lines
        held = padded.view(np.uint8) if element.name in ("e4m3", "e5m2") else padded
        view = cupy.asarray(held)[:, : lines.shape[1]]
        return values.astype(np.float64), view if order is dx.row_major else view.T

    wide_a, a = draw(m, k, tile.arrangement.a, tile.precision.a)
    wide_b, b = draw(k, n, tile.arrangement.b, tile.precision.b)
    expected = wide_a @ wide_b
    if point["scaling"] is None:
        got = gemm(a, b)
    else:
        alpha, beta = point["scaling"]
        c = rng.integers(-5, 6, (m, n)).astype(plan.output.numpy_dtype)
        expected = alpha * expected + beta * c.astype(np.float64)
        held = c if tile.arrangement.c is dx.row_major else np.asfortranarray(c)
        got = gemm(a, b, cupy.asarray(held), alpha=alpha, beta=beta)
    wrong = cupy.asnumpy(got).astype(np.float64) != expected.astype(plan.output.numpy_dtype).astype(np.float64)
    return "ok" if not wrong.any() else f"{wrong.sum()} of {wrong.size} elements differ"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=14)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    points = covering(CHOICES, strength=2, seed=options.seed, minimum=options.points)

    def build(point: dict[str, Any]) -> tuple[str, dx.CompiledKernel | None]:
        chosen = descriptor(point)
        if dx.check(chosen).path != "wgmma":
            return "misses a gate", None
        try:
            mode = point["mode"]
            plan = dx.suggest_pipeline(
                chosen,
                depth=point["depth"],
                fixed_blocksize=mode == "fixed_blocksize",
                pingpong=mode == "pingpong",
            )
        except dx.PlanError as error:
            return f"no plan: {error.code}", None
        kernel = dx.compile(dx.render(plan))
        found = kernel.resources
        if found.spill_stores or found.spill_loads or kernel.complaints:
            return f"spills {found.spill_stores} B, {kernel.complaints}", None
        return "compiled", kernel

    with ThreadPoolExecutor(options.threads) as pool:
        built = list(pool.map(build, points))
    rows = []
    for point, (outcome, kernel) in zip(points, built, strict=True):
        result = outcome if kernel is None else verdict(point, dx.Gemm(kernel, "cuda"))
        rows.append({"descriptor": repr(descriptor(point)), "depth": point["depth"], "result": result})
        if result != "ok" and not result.startswith(("no plan: shared_memory", "no plan: pingpong")):
            print(result, rows[-1]["descriptor"], point["depth"], flush=True)
    print(dict(Counter(row["result"] for row in rows)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
