"""The Hopper kernels that are shipped, on the emulator: exact on small integers, whatever the schedule.

Some combinations run under two of the schedules only, unless ``BLASDX_ALL_SCHEDULES=1`` is set.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.operands import padded

SCHEDULES = ("eager", "lazy", "adversarial", "random")
MOST = SCHEDULES if os.environ.get("BLASDX_ALL_SCHEDULES") else ("adversarial", "random")
CASES: dict[str, dict[str, Any]] = {
    "bf16": {"size": (128, 64, 64), "threads": 256},
    "f16-mn-major": {"size": (64, 64, 64), "threads": 128, "order": ("col", "row", "row"), "element": "f16"},
    "bf16-to-f16": {"size": (64, 48, 32), "threads": 128, "output": "f16"},
    "f16-in-f16": {"size": (64, 24, 48), "threads": 128, "order": ("row", "row", "col"), "precision": ("f16",) * 3},
    "tf32": {"size": (128, 40, 32), "threads": 256, "element": "tf32"},
    "fp8-promoted": {"size": (64, 64, 128), "threads": 128, "precision": ("e4m3", "e5m2", "f32"), "output": "bf16"},
    "s8": {"size": (64, 40, 96), "threads": 128, "precision": ("s8", "u8", "s32")},
    "several-spans": {"size": (64, 128, 32), "threads": 128, "order": ("col", "row", "row")},
    "single-stage": {"size": (64, 48, 64), "threads": 128, "depth": 1},
    "fixed-blocksize": {"size": (128, 48, 64), "threads": 256, "fixed_blocksize": True},
    "fixed-blocksize-single-stage": {"size": (64, 48, 64), "threads": 128, "depth": 1, "fixed_blocksize": True},
    "fixed-blocksize-promoted": {
        "size": (64, 64, 64),
        "threads": 128,
        "precision": ("e4m3", "e4m3", "f32"),
        "fixed_blocksize": True,
    },
    "eight-warpgroups": {"size": (256, 64, 64), "threads": 1024},
    "four-warpgroups": {"size": (128, 64, 32), "threads": 512},
}


@cache
def kernel(name: str, cluster: tuple[int, int] = (1, 1)) -> dx.CompiledKernel:
    case = CASES[name]
    descriptor = tile(
        case["size"],
        case.get("precision", case.get("element", "bf16")),
        threads=case["threads"],
        cluster=cluster,
        sm=900,
    ).with_(dx.Arrangement(*case.get("order", ("row", "col", "row"))))
    options = {key: case[key] for key in ("output", "fixed_blocksize") if key in case}
    return dx.compile(dx.render(dx.suggest_pipeline(descriptor, depth=case.get("depth", 2), **options)))


def product(compiled: dx.CompiledKernel, m: int, n: int, k: int, device: EmulatedDevice, **scalars: float) -> None:
    """Multiply small integers and compare every bit."""
    descriptor = compiled.source.plan.descriptor
    random = np.random.default_rng(m + n + k)

    def draw(rows: int, columns: int, element: dx.Element, order: object) -> Any:
        low = -4 if element.is_signed else 0
        return padded(random.integers(low, 5, (rows, columns)).astype(element.numpy_dtype), order)

    a = draw(m, k, descriptor.precision.a, descriptor.arrangement.a)
    b = draw(k, n, descriptor.precision.b, descriptor.arrangement.b)
    result = dx.Gemm(compiled, device)(a, b, **scalars)
    true = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(result, (scalars.get("alpha", 1) * true).astype(result.dtype))
    assert [h for h in device.last.hazards if h.severity == "error"] == []


@pytest.mark.parametrize(
    ("name", "schedule"), [(name, s) for name in CASES for s in (SCHEDULES if name in ("bf16", "s8") else MOST)]
)
def test_products_of_several_tiles(name: str, schedule: str) -> None:
    compiled = kernel(name)
    m, n, k = CASES[name]["size"]
    product(compiled, m + 5, n + 3, 2 * k + 16, EmulatedDevice(schedule=schedule, processors=2))


@pytest.mark.parametrize(
    ("cluster", "schedule"), [(c, s) for c in ((2, 1), (1, 2), (2, 2)) for s in (SCHEDULES if c == (2, 1) else MOST)]
)
def test_clusters_share_their_loads(cluster: tuple[int, int], schedule: str) -> None:
    compiled = kernel("bf16", cluster)
    assert ".multicast::cluster" in compiled.ptx
    product(compiled, 261, 130, 200, EmulatedDevice(schedule=schedule, processors=4))


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)])
def test_clusters_with_operands_of_several_spans(cluster: tuple[int, int]) -> None:
    """Their matrix descriptors hold a stride, next to the address that begins with the CTA's rank."""
    product(kernel("several-spans", cluster), 261, 270, 72, EmulatedDevice(processors=4))


@pytest.mark.parametrize(
    ("name", "cluster"),
    [("fixed-blocksize", (2, 1)), ("fixed-blocksize-single-stage", (2, 2)), ("eight-warpgroups", (1, 2))],
)
def test_clusters_load_between_their_multiplications(name: str, cluster: tuple[int, int]) -> None:
    """A warp waits for stages that other CTAs release before it multiplies what they wait for."""
    compiled = kernel(name, cluster)
    m, n, k = CASES[name]["size"]
    assert compiled.source.plan.fixed_blocksize
    processors = cluster[0] * cluster[1]  # of which each has several tiles
    product(compiled, m + 5, 2 * n + 3, 3 * k + 8, EmulatedDevice(schedule="adversarial", processors=processors))


def test_alpha() -> None:
    product(kernel("bf16"), 70, 33, 64, EmulatedDevice(), alpha=-3.0)


def test_the_register_pool_must_hold_what_is_claimed() -> None:
    """One claim more than the generator plans, and the launch hangs; the report says why."""
    compiled = kernel("bf16")
    split = compiled.source.plan.register_split
    text = compiled.ptx.replace(
        f"setmaxnreg.inc.sync.aligned.u32 {split.math}", f"setmaxnreg.inc.sync.aligned.u32 {split.math + 8}"
    )
    assert text != compiled.ptx
    with pytest.raises(dx.emulator.DeadlockError, match=rf"launched with 12 warps x 32 x {split.launched} = "):
        product(compiled.model_copy(update={"ptx": text}), 128, 64, 64, EmulatedDevice())
