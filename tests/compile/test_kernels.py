"""Every kind of kernel compiles without spills and holds exactly the planned MMAs."""

from __future__ import annotations

import pytest
from tiles import tile

import blasdx as dx
from blasdx.compiler import nvrtc_version

OLDEST_FOR_1070 = (13, 4)


def descriptor(size, arrangement, precision="bf16", sm=1000):
    return tile(size, precision, sm=sm).with_(dx.Arrangement(*arrangement))


KERNELS = [
    ((128, 256, 64), ("row", "col", "row"), "bf16"),
    ((128, 248, 64), ("row", "col", "col"), "f16"),
    ((128, 64, 16), ("col", "row", "row"), "bf16"),
    ((64, 8, 128), ("row", "col", "row"), "bf16"),
    ((64, 64, 64), ("col", "row", "col"), "f16"),
    ((192, 128, 64), ("col", "col", "row"), "bf16"),
    ((192, 168, 64), ("row", "col", "row"), "f16"),
    ((256, 256, 64), ("row", "row", "col"), "bf16"),
    ((256, 64, 256), ("row", "col", "row"), "f16"),
]


@pytest.mark.parametrize(("size", "arrangement", "precision"), KERNELS)
def test_kernel_holds_the_planned_mmas_and_does_not_spill(size, arrangement, precision):
    plan = dx.suggest_pipeline(descriptor(size, arrangement, precision), depth=1)
    kernel = dx.compile(dx.render(plan))
    assert kernel.prove() == plan.mma.blocks * plan.mma.steps
    assert kernel.sass.require(r"UTC[A-Z]*MMA") == plan.mma.count
    assert kernel.sass.count("HMMA") == 0
    assert kernel.sass.count("UTMALDG") == plan.a.boxes + plan.b.boxes
    resources = kernel.resources
    assert (resources.stack, resources.spill_stores, resources.spill_loads) == (0, 0, 0)


@pytest.mark.parametrize(("sm", "target"), [(1000, "sm_100a"), (1030, "sm_103a"), (1070, "sm_107a"), (1100, "sm_110a")])
def test_every_blackwell_target(sm, target):
    if sm == 1070 and nvrtc_version() < OLDEST_FOR_1070:
        pytest.skip("SM 1070 needs NVRTC 13.4")
    plan = dx.suggest_pipeline(descriptor((128, 128, 64), ("row", "col", "row"), sm=sm))
    assert plan.target == target
    kernel = dx.compile(dx.render(plan))
    assert f".target {target}" in kernel.ptx
    kernel.prove()


def test_the_ptx_carries_source_lines():
    kernel = dx.compile(dx.render(dx.suggest_pipeline(descriptor((128, 256, 64), ("row", "col", "row")))))
    assert f".visible .entry {kernel.entry}(" in kernel.ptx
    assert ".loc" in kernel.ptx
