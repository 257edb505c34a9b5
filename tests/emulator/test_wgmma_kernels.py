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
    "promoted-in-a-loop": {"size": (256, 8, 544), "threads": 128, "element": "e4m3", "depth": 1},
    "eight-warpgroups": {"size": (256, 64, 64), "threads": 1024},
    "turns": {"size": (128, 48, 32), "threads": 128, "output": "bf16", "pingpong": True},
    "turns-promoted": {
        "size": (64, 64, 64),
        "threads": 128,
        "precision": ("e4m3", "e4m3", "f32"),
        "order": ("row", "col", "col"),
        "pingpong": True,
    },
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
    options = {key: case[key] for key in ("output", "fixed_blocksize", "pingpong") if key in case}
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


@pytest.mark.parametrize(
    ("processors", "cluster", "schedule"),
    [*((1, (1, 1), s) for s in MOST), (3, (1, 1), "lazy"), (2, (2, 1), "adversarial"), (4, (2, 2), "random")],
)
def test_two_sets_take_turns(processors: int, cluster: tuple[int, int], schedule: str) -> None:
    """Over odd numbers of tiles, of more K blocks than stages, and of fewer."""
    compiled = kernel("turns", cluster)
    assert compiled.source.plan.block_dim == 3 * 128
    for k in (24, 168):
        product(compiled, 269, 163, k, EmulatedDevice(schedule=schedule, processors=processors))


def test_a_set_that_does_not_wait_for_its_turn_takes_one_phase_for_another() -> None:
    source = kernel("turns").source
    wait = "  mbarrier_wait(storage.turn(now.stage),"
    assert wait in source.text
    broken = dx.compile(source.model_copy(update={"text": source.text.replace(wait, "  // " + wait)}))
    with pytest.raises(dx.emulator.EmulationError, match="shared-read-before-load-complete"):
        product(broken, 269, 163, 168, EmulatedDevice(schedule="adversarial", processors=1))


def test_turns_over_tiles_without_a_product() -> None:
    descriptor = kernel("turns").source.plan.descriptor
    epilogue = dx.Epilogue("acc + bias[n] * scale[m]", bias="bf16", scale="f32")
    compiled = dx.compile(dx.render(dx.suggest_pipeline(descriptor, epilogue=epilogue, pingpong=True)))
    device = EmulatedDevice(processors=1)
    bias, scale = np.arange(100).astype(dx.Element.of("bf16").numpy_dtype), np.arange(269, dtype=np.float32)
    for k in (0, 40):
        a = padded(np.ones((269, k), bias.dtype))
        b = padded(np.ones((k, 100), bias.dtype), "col")
        result = dx.Gemm(compiled, device)(a, b, bias=bias, scale=scale)
        np.testing.assert_array_equal(result, k + np.outer(scale, bias.astype(np.float32)))
        assert [h for h in device.last.hazards if h.severity == "error"] == []


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
