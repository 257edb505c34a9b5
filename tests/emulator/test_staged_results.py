"""Results of tcgen05 kernels on their way through shared memory: every lane layout, box and type."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice, Schedule
from blasdx.elements import Element

SCHEDULES = get_args(Schedule)
PAIR = dx.BlocksPerCluster(2, 1)
F16 = dx.Precision("f16", "f16", "f16")
INTEGERS = dx.Precision("s8", "s8", "s32")
CASES: dict[str, tuple[dx.Descriptor, str, dict[str, Any]]] = {
    "128 rows, two boxes": (tile((128, 128, 32)), "bf16", {}),
    "twice two boxes": (tile((128, 256, 16)), "f16", {}),
    "three boxes, one at a time": (tile((128, 192, 16)), "bf16", {}),
    "five boxes of 32 bytes": (tile((128, 80, 32)), "f16", {}),
    "two blocks of 128 rows": (tile((256, 64, 32)), "bf16", {}),
    "bytes, one box": (tile((128, 128, 32)), "e4m3", {}),
    "bytes, boxes of 64": (tile((128, 192, 16)), "e5m2", {}),
    "integers": (tile((128, 32, 64)).with_(INTEGERS), "s8", {}),
    "64 rows, two boxes": (tile((64, 128, 32)), "f16", {}),
    "64 rows, boxes of 32 bytes": (tile((64, 16, 32)), "bf16", {}),
    "64 rows of bytes": (tile((64, 96, 32)), "e4m3", {}),
    "three blocks of 64 rows": (tile((192, 64, 32)), "bf16", {}),
    "f16 accumulator": (tile((128, 64, 32), "f16").with_(F16), "f16", {}),
    "a pair": (tile((128, 64, 32)) + PAIR, "bf16", {}),
    "a pair of 64 rows": (tile((64, 128, 32)) + PAIR, "f16", {}),
    "a pair of three blocks, bytes": (tile((192, 64, 32)) + PAIR, "e4m3", {}),
    "a cluster": (tile((64, 64, 32)) + dx.BlocksPerCluster(3, 2), "bf16", {}),
    "no warps of their own": (tile((128, 64, 32)), "bf16", {"fixed_blocksize": True}),
    "K in parts": (tile((64, 64, 32)), "bf16", {"split_k": 4}),
    "an epilogue": (tile((128, 64, 32)), "bf16", {"epilogue": "relu(alpha * acc) + beta * c"}),
}


def plan_of(name: str) -> dx.PipelinePlan:
    descriptor, output, options = CASES[name]
    plan = dx.suggest_pipeline(descriptor, output=output, depth=2, **options)
    assert plan.bulk_stores
    return plan


def multiply(
    plan: dx.PipelinePlan, schedule: str, extra: tuple[int, int], *, batches: tuple[int, ...] = (), offset: int = 0,
    pitch: int = 0, c_offset: int | None = None, alpha: float = 1.0, beta: float = 0.0,
) -> None:  # fmt: skip
    """One tile and ``extra`` rows and columns, in the midst of a larger array whose other elements have to stay.

    Lines of the result are ``pitch`` elements longer than they need be, and begin ``offset`` elements after a line of
    the array does; those of C at ``c_offset``. Values are few and small, so that every type holds every result.
    """
    tile_ = plan.descriptor
    m, n, k = tile_.m + extra[0], tile_.n + extra[1], 2 * tile_.k + 8
    random = np.random.default_rng(m + n)

    def draw(rows: int, columns: int, element: Element, order: object) -> Any:
        values = (random.random((*batches, rows, columns)) < 0.1) * random.choice([-1, 1], (*batches, rows, columns))
        return dx.padded(values.astype(element.numpy_dtype), order)

    def framed(at: int) -> tuple[Any, Any]:
        line = -(-(n + at) // 16) * 16 + pitch
        whole = np.full((*batches, m + 2, line), 5).astype(plan.output.numpy_dtype)
        return whole, whole[..., 1 : 1 + m, at : at + n]

    a = draw(m, k, tile_.precision.a, tile_.arrangement.a)
    b = draw(k, n, tile_.precision.b, tile_.arrangement.b)
    whole, out = framed(offset)
    true = alpha * (a.astype(np.float64) @ b.astype(np.float64))
    operands: dict[str, Any] = {}
    if c_offset is not None:
        _, c = framed(c_offset)
        c[...] = random.integers(-2, 3, c.shape).astype(c.dtype)
        operands = {"c": c, "beta": beta}
        true += beta * c.astype(np.float64)
    if "relu" in str(plan.epilogue):
        true = np.maximum(alpha * (a.astype(np.float64) @ b.astype(np.float64)), 0)
        true += beta * operands["c"].astype(np.float64) if operands else 0
    expected = whole.copy()
    expected[..., 1 : 1 + m, offset : offset + n] = true.astype(whole.dtype)
    device = EmulatedDevice(schedule=schedule, processors=2 * plan.cluster_size * plan.split_k)
    dx.Gemm(dx.compile(dx.render(plan)), device)(a, b, out=out, alpha=alpha, **operands)
    np.testing.assert_array_equal(whole.astype(np.float64), expected.astype(np.float64))
    assert device.last is not None
    assert device.last.hazards == ()


OFTEN = "128 rows, two boxes", "64 rows of bytes", "a pair of 64 rows"


@pytest.mark.parametrize(
    ("name", "schedule"),
    [*((name, "adversarial") for name in CASES), *((name, schedule) for name in OFTEN for schedule in SCHEDULES)],
)
def test_by_tma(name: str, schedule: str) -> None:
    multiply(plan_of(name), schedule, (5, 48), pitch=16)


@pytest.mark.parametrize("name", CASES)
def test_by_tma_with_c(name: str) -> None:
    multiply(plan_of(name), "random", (5, 16), pitch=16, c_offset=16, alpha=2.0, beta=-1.0)


@pytest.mark.parametrize(
    ("offset", "pitch", "columns", "c_offset"),
    [(0, 0, 3, None), (1, 0, 16, None), (16, 1, 16, 0), (0, 0, 16, 3), (0, 16, 8, 16), (3, 5, 1, 1)],
)
@pytest.mark.parametrize("name", ["64 rows of bytes", "a pair of 64 rows", "five boxes of 32 bytes"])
def test_without_tma_where_lines_are_no_whole_units(
    name: str, offset: int, pitch: int, columns: int, c_offset: int | None
) -> None:
    scalars = {"c_offset": c_offset, "alpha": 2.0, "beta": 3.0} if c_offset is not None else {}
    multiply(plan_of(name), "adversarial", (5, columns), offset=offset, pitch=pitch, **scalars)  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [48, 3])
def test_batches(columns: int) -> None:
    multiply(plan_of("64 rows, two boxes"), "adversarial", (1, columns), batches=(3,), c_offset=0, alpha=0.5, beta=1.0)
