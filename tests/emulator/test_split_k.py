"""K in parts that meet in memory, and the orders in which tiles are visited."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.operands import padded
from blasdx.schedule import Parts, parts_of

HOPPER = tile((128, 64, 64), sm=900).with_(dx.BlockDim(256))
CASES: dict[str, tuple[dx.Descriptor, dict[str, Any]]] = {
    "utcmma": (tile((64, 64, 64)), {}),
    "utcmma, f16, column-major C": (
        tile((128, 48, 64), "f16", a="col", c="col").with_(dx.Precision("f16", "f16", "f16")),
        {},
    ),
    "utcmma, integers": (tile((64, 64, 64)).with_(dx.Precision("s8", "s8", "s32")), {}),
    "utcmma, a pair": (tile((64, 64, 64)) + dx.BlocksPerCluster(2, 1), {}),
    "utcmma, an epilogue": (tile((64, 64, 64)), {"epilogue": "relu(alpha * acc + beta * c)", "output": "bf16"}),
    "wgmma": (HOPPER, {}),
    "wgmma, f16": (HOPPER.with_(dx.Precision("f16", "f16", "f16")), {}),
    "wgmma, integers, column-major C": (
        HOPPER.with_(dx.Precision("s8", "s8", "s32"), dx.Arrangement("row", "col", "col")),
        {},
    ),
    "wgmma, a cluster": (HOPPER + dx.BlocksPerCluster(1, 2), {}),
}


def product(plan: dx.PipelinePlan, schedule: str, *, m: int, n: int, k: int, processors: int) -> tuple[Any, Any]:
    found = plan.descriptor
    random = np.random.default_rng(0)

    def draw(rows: int, columns: int, element: dx.Element, order: object) -> Any:
        return padded(random.integers(-3, 4, (rows, columns)).astype(element.numpy_dtype), order)

    a = draw(m, k, found.precision.a, found.arrangement.a)
    b = draw(k, n, found.precision.b, found.arrangement.b)
    c = draw(m, n, plan.output, found.arrangement.c)
    device = EmulatedDevice(schedule=schedule, processors=processors)
    result = dx.Gemm(dx.compile(dx.render(plan)), device)(a, b, c, alpha=2.0, beta=-1.0)
    assert device.last is not None
    assert device.last.hazards == ()
    return result, 2 * (a.astype(np.float64) @ b.astype(np.float64)) - c.astype(np.float64)


@pytest.mark.parametrize("schedule", ["adversarial", "random"])
@pytest.mark.parametrize("name", CASES)
def test_parts_add_up(name: str, schedule: str) -> None:
    descriptor, options = CASES[name]
    plan = dx.suggest_pipeline(descriptor, split_k=4, depth=2, **options)
    assert plan.parts(100, 130, 600, 24) == Parts(4 if descriptor.k == 64 else 5, 3)
    result, true = product(plan, schedule, m=100, n=130, k=600, processors=24)
    if "epilogue" in options:
        true = np.maximum(true, 0)
    np.testing.assert_array_equal(result, true.astype(result.dtype))


def test_batches_in_parts() -> None:
    plan = dx.suggest_pipeline(tile((64, 64, 64)), split_k=3, depth=2)
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, (2, 70, 320)).astype("bfloat16") for _ in range(2))
    result = dx.Gemm(dx.compile(dx.render(plan)), EmulatedDevice(processors=40))(a, b.swapaxes(1, 2))
    np.testing.assert_array_equal(result, a.astype(np.float32) @ b.astype(np.float32).swapaxes(1, 2))


def test_who_is_last_changes_nothing() -> None:
    """Random numbers, whose sums depend on the order: the parts are added in theirs under every schedule."""
    plan = dx.suggest_pipeline(tile((64, 64, 64)), split_k=4, depth=2)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((64, 512)).astype("bfloat16") for _ in range(2))
    kernel = dx.compile(dx.render(plan))
    results = [
        dx.Gemm(kernel, EmulatedDevice(schedule="random", seed=seed, processors=4))(a, b.T).tobytes()
        for seed in range(6)
    ]
    assert len(set(results)) == 1


def test_parts_only_where_processors_would_idle() -> None:
    assert parts_of(10, 1, most=4, processors=132) == Parts(4, 3)
    assert parts_of(10, 100, most=4, processors=132) == Parts(1, 10)
    assert parts_of(10, 50, most=8, processors=132) == Parts(2, 5)
    assert parts_of(3, 1, most=8, processors=132) == Parts(3, 1)
    assert parts_of(9, 1, most=8, processors=132) == Parts(5, 2)  # none is empty
    assert parts_of(0, 1, most=8, processors=132) == Parts(1, 0)


@pytest.mark.parametrize("parts", [0, 65, 1.5, True])
def test_how_many_parts_there_can_be(parts: Any) -> None:
    with pytest.raises(dx.PlanError, match="1 to 64 parts"):
        dx.suggest_pipeline(tile(), split_k=parts)


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1)])
@pytest.mark.parametrize(
    "raster", [dx.Raster(along="m", band=1), dx.Raster(along="n", band=2), dx.Raster(along="n")], ids=str
)
def test_every_tile_is_visited_once(raster: dx.Raster, cluster: tuple[int, int]) -> None:
    plan = dx.suggest_pipeline(tile((64, 64, 64)) + dx.BlocksPerCluster(*cluster), raster=raster, depth=2)
    assert str(raster) in str(plan)
    result, true = product(plan, "random", m=300, n=330, k=72, processors=4)
    np.testing.assert_array_equal(result, true)
