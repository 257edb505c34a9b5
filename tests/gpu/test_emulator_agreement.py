"""What the GPU computes and what the emulator computes from the same PTX, bit for bit, on random numbers.

The emulator's hardware numerics add as the tensor core does; TMA, swizzles, mbarriers, clusters, conversions and both
ways of storing are the same code in both. Where they differ, the GPU is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.operands import padded

TN = ("row", "col", "row")
CASES: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16, MN-major, column-major C": {"order": ("col", "row", "col")},
    "bf16, narrow rows": {"size": (128, 40, 16)},
    "bf16, one stage": {"depth": 1},
    "bf16, fixed block size": {"fixed_blocksize": True},
    "bf16, eight warpgroups": {"size": (256, 64, 64), "threads": 1024},
    "bf16, a cluster": {"cluster": (2, 2), "size": (128, 128, 32), "order": ("col", "row", "row")},
    "bf16, stored as f16": {"output": "f16"},
    "f16 in f16": {"types": ("f16", "f16", "f16")},
    "f16 in f32": {"types": ("f16", "f16", "f32"), "size": (128, 24, 48)},
    "tf32": {"types": ("tf32", "tf32", "f32"), "size": (128, 64, 32)},
    "fp8, promoted": {"types": ("e4m3", "e5m2", "f32"), "size": (128, 64, 128), "output": "bf16"},
    "fp8, not promoted": {"types": ("e4m3", "e4m3", "f32"), "size": (128, 64, 64), "promote": False},
    "fp8 in f16": {"types": ("e5m2", "e4m3", "f16"), "size": (128, 64, 96)},
    "s8": {"types": ("s8", "u8", "s32"), "size": (128, 64, 64)},
}


def kernel(case: dict[str, Any]) -> dx.CompiledKernel:
    descriptor = tile(
        case.get("size", (128, 64, 64)),
        case.get("types", "bf16"),
        threads=case.get("threads", 256),
        cluster=case.get("cluster", (1, 1)),
        sm=900,
    ).with_(dx.Arrangement(*case.get("order", TN)))
    options = {key: case[key] for key in ("depth", "output", "promote", "fixed_blocksize") if key in case}
    return dx.compile(dx.render(dx.suggest_pipeline(descriptor, **options)))


def draw(random: np.random.Generator, rows: int, columns: int, element: dx.Element, order: object) -> Any:
    if element.is_float:
        values = random.standard_normal((rows, columns)).astype(np.float32)
    else:
        values = random.integers(-128 if element.is_signed else 0, 128, (rows, columns))
    values = values.astype(element.numpy_dtype)
    if element.name == "tf32":  # what the tensor core reads of an f32
        values = (values.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return padded(values, order)


@pytest.mark.parametrize("scaled", [False, True], ids=["", "alpha and beta"])
@pytest.mark.parametrize("name", CASES)
def test_bit_for_bit(hopper: Any, name: str, scaled: bool) -> None:
    compiled = kernel(CASES[name])
    plan = compiled.source.plan
    descriptor, order = plan.descriptor, plan.descriptor.arrangement
    m, n, k = descriptor.m + 37, descriptor.n + 13, 3 * descriptor.k + 16
    random = np.random.default_rng(m * n)
    a = draw(random, m, k, descriptor.precision.a, order.a)
    b = draw(random, k, n, descriptor.precision.b, order.b)
    c = draw(random, m, n, plan.output, order.c) if scaled else None
    scalars = {"alpha": 1.25, "beta": -0.75} if scaled else {}
    device = EmulatedDevice(processors=plan.cluster_size, numerics="hardware", schedule="random", seed=3)
    emulated = dx.Gemm(compiled, device)(a, b, c, **scalars)
    real = dx.Gemm(compiled, "cuda")(*(None if x is None else on_gpu(hopper, x) for x in (a, b, c)), **scalars)
    np.testing.assert_array_equal(bits(hopper.asnumpy(real)), bits(emulated))


def bits(array: Any) -> Any:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def on_gpu(cupy: Any, array: Any) -> Any:
    """The array with its strides, fp8 as bytes, which CuPy has no type for."""
    held = array.view(np.uint8) if array.dtype.name.startswith("float8") else array
    row = held.strides[1] == held.itemsize
    lines = held if row else held.T
    pitch = lines.strides[0] // held.itemsize
    memory = cupy.empty((lines.shape[0], pitch), held.dtype)
    view = memory[:, : lines.shape[1]]
    view[...] = cupy.asarray(np.ascontiguousarray(lines))
    return view if row else view.T
