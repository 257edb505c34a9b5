"""Gate <=> kernel on tcgen05: descriptors pass the gates exactly when their kernel compiles as planned and is right.

Draws descriptors that cover every combination of values of any three of the choices below, boundary values among them.
One that misses a gate must have no plan. Every other one whose stage fits must compile without spill or complaint, hold
the planned number of the right UTC*MMA, and multiply small integers bit-exact in the emulator under two schedules, on a
ragged problem of several tiles, without an error hazard. No GPU is needed; the whole array takes an hour of two cores.

    python tools/cover_utcmma.py --json cover.json                # goes on where it was stopped, kernel by kernel
    python tools/cover_utcmma.py --strength 2 --points 60 --sm 1000
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from covering import Point, covering
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice, Schedule
from blasdx.operands import padded
from blasdx.paths.utcmma.limits import LEGAL_M, NUMBERS, PRECISIONS

CHOICES: dict[str, tuple[Any, ...]] = {
    "precision": PRECISIONS,
    "a": ("row", "col"),
    "b": ("row", "col"),
    "c": ("row", "col"),
    "output": (None, "bf16", "s8"),  # None: the accumulator's type
    "m": LEGAL_M,
    "n": (8, 16, 24, 48, 96, 128, 168, 176, 248, 256),
    "k_steps": (1, 2, 3, 4, 8, None),  # MMA steps a K block; None: as many as K = 256 has
    "sm": NUMBERS,
    "depth": (1, 2, None),
    "scaling": (None, (2.0, -1.0)),
    "cluster": ((1, 1), (2, 1), (1, 2), (4, 1), (3, 2)),
    "fixed_blocksize": (False, True),
}
SCHEDULES: tuple[Schedule, ...] = ("adversarial", "random")
Record = dict[str, str | None]
"""What is kept of a point: its verdict, and the fingerprint of the kernel that it is about."""


def descriptor(point: Point) -> dx.Descriptor:
    step = 256 // point["precision"].a.bits
    k = 256 // step * step if point["k_steps"] is None else step * point["k_steps"]
    return tile(
        (point["m"], point["n"], k),
        point["precision"],
        a=point["a"],
        b=point["b"],
        c=point["c"],
        cluster=point["cluster"],
        sm=point["sm"],
    )


def name(point: Point) -> str:
    return f"{descriptor(point)!r} {point['output']} {point['depth']} {point['scaling']} {point['fixed_blocksize']}"


def source(point: Point) -> dx.KernelSource:
    options = {name: point[name] for name in ("output", "depth", "fixed_blocksize")}
    return dx.render(dx.suggest_pipeline(descriptor(point), **options))


def fingerprint(point: Point) -> str | None:
    """The kernel's, None where there is none: a verdict holds for no other text."""
    try:
        return source(point).fingerprint
    except (dx.GateError, dx.PlanError):
        return None


def verdict(point: Point) -> str:
    """Say "ok", why there is no kernel, or what is wrong with it."""
    chosen = descriptor(point)
    if dx.check(chosen).path != "utcmma":
        try:
            dx.suggest_pipeline(chosen)
        except dx.GateError:
            return "misses a gate"
        return "WRONG: misses a gate and has a plan"
    try:
        text = source(point)
    except dx.PlanError as error:
        return "does not fit" if error.code == "shared_memory" else f"WRONG: {error}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = dx.compile(text)
    found = kernel.resources
    if found.spill_stores or found.spill_loads or kernel.complaints:
        return f"WRONG: spills {found.spill_stores} B, {kernel.complaints}"
    try:
        kernel.prove()
    except dx.SassError as error:
        return f"WRONG: {error}"
    results = {multiply(kernel, point["scaling"], schedule) for schedule in SCHEDULES}
    return results.pop() if len(results) == 1 else f"WRONG: {results}"


def extents(plan: dx.PipelinePlan, *, by_tma: bool) -> tuple[int, int, int]:
    """M, N and K of a problem with a tail each, which gives every CTA one tile more than it has accumulators.

    It then waits for its own epilogue, too. The tail of N decides whether TMA can store results, where the kernel
    has it do so.
    """
    tile, (across_m, across_n) = plan.descriptor, plan.cluster
    rows = 2 if across_m == 1 else 1
    columns = -(-(plan.accumulator_stages + 1) // rows)
    tail = 16 if by_tma and plan.bulk_stores else 3
    return tile.m + 5, ((columns - 1) * across_n + 1) * tile.n - tail, tile.k + 8


def multiply(kernel: dx.CompiledKernel, scaling: tuple[float, float] | None, schedule: Schedule) -> str:
    plan = kernel.source.plan
    tile = plan.descriptor
    m, n, k = extents(plan, by_tma=schedule == "adversarial")
    rng = np.random.default_rng(1)

    def draw(rows: int, columns: int, order: object, element: dx.Element) -> Any:
        values = rng.integers(-3 if element.is_signed else 0, 4, (rows, columns))
        return padded(values.astype(element.numpy_dtype), order)

    a = draw(m, k, tile.arrangement.a, tile.precision.a)
    b = draw(k, n, tile.arrangement.b, tile.precision.b)
    alpha, beta = scaling or (1.0, None)
    c = None if beta is None else draw(m, n, tile.arrangement.c, plan.output)
    scalars = {"alpha": alpha} if beta is None else {"alpha": alpha, "beta": beta, "c": c}
    expected = plan.epilogue.reference(a.astype(np.float64) @ b.astype(np.float64), output=plan.output.name, **scalars)
    device = EmulatedDevice(schedule=schedule, processors=plan.cluster_size)
    try:
        got = dx.Gemm(kernel, device)(a, b, c, alpha=alpha, beta=beta)
    except dx.BlasdxError as error:
        return f"WRONG: {schedule}: {error}"
    wrong = np.count_nonzero(got.astype(np.float64) != expected.astype(np.float64))
    if wrong:
        return f"WRONG: {schedule}: {wrong} of {got.size} elements differ"
    assert device.last is not None
    errors = [hazard for hazard in device.last.hazards if hazard.severity == "error"]
    return f"WRONG: {schedule}: {errors}" if errors else "ok"


def judged(point: Point) -> tuple[str, Record]:
    try:
        return name(point), {"verdict": verdict(point), "kernel": fingerprint(point)}
    except Exception as error:  # whatever it is, it belongs to this point
        return name(point), {"verdict": f"WRONG: {type(error).__name__}: {error}", "kernel": None}


def is_current(record: Record, point: Point) -> bool:
    """Whether a verdict of an earlier run is about the kernel that is rendered now, and need not be found again."""
    return not str(record["verdict"]).startswith("WRONG") and record["kernel"] == fingerprint(point)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strength", type=int, default=3)
    parser.add_argument("--points", type=int, default=1500, help="at least so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sm", type=int, help="only this one")
    parser.add_argument("--limit", type=int, help="stop after so many points")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="results, and where to go on from")
    options = parser.parse_args()
    choices = {**CHOICES, "sm": (options.sm,)} if options.sm else CHOICES
    points = covering(choices, strength=options.strength, seed=options.seed, minimum=options.points)[: options.limit]
    known: dict[str, Record] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    named = {name(point): point for point in points}
    results = {key: known[key] for key, point in named.items() if key in known and is_current(known[key], point)}
    todo = [point for key, point in named.items() if key not in results]
    print(f"{len(named)} points, {len(todo)} to go", flush=True)
    started = told = time.perf_counter()
    with ProcessPoolExecutor(options.processes) as pool:
        for done, future in enumerate(as_completed([pool.submit(judged, point) for point in todo]), 1):
            which, record = future.result()
            results[which] = record
            if str(record["verdict"]).startswith("WRONG"):
                print(which, record["verdict"], sep="\n    ", flush=True)
            if time.perf_counter() - told > 30:
                told = time.perf_counter()
                left = (told - started) / done * (len(todo) - done)
                print(f"{done} of {len(todo)}, {left / 60:.0f} minutes to go", flush=True)
                keep(results, options.json)
    keep(results, options.json)
    count = Counter(str(record["verdict"]).partition(":")[0] for record in results.values())
    print(f"{dict(count)} in {time.perf_counter() - started:.0f} s")
    sys.exit(1 if count["WRONG"] else 0)


def keep(results: dict[str, Record], path: Path | None) -> None:
    if path:
        path.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
