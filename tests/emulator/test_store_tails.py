"""What a TMA store does where the tensor's edge cuts a row, and that the kernels do not use it there."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.emulator import GlobalMemory, TensorMap


@pytest.mark.parametrize(("columns", "written"), [(32, 32), (33, 36), (36, 36), (53, 56), (61, 64), (64, 64)])
def test_a_store_writes_whole_units_of_16_bytes(columns: int, written: int) -> None:
    memory = GlobalMemory()
    pitch = 68
    buffer = memory.upload(np.full((4, pitch), -1, np.float32))
    tensor = TensorMap(buffer, "f32", dims=[columns, 4], strides_bytes=[4 * pitch], box=[64, 4])
    tile = np.arange(4 * 64, dtype=np.float32).reshape(4, 64)

    def view(address, shape, strides):
        flat = host.view(np.uint8).reshape(-1)
        start = address - buffer.address
        return np.lib.stride_tricks.as_strided(flat[start:], shape, strides)

    host = np.full((4, pitch), -1, np.float32)
    tensor.store((0, 0), tile.view(np.uint8).reshape(-1), view)
    np.testing.assert_array_equal(host[:, :written], tile[:, :written])
    assert (host[:, written:] == -1).all()


@cache
def kernel(order: str, output: str, size: tuple[int, int, int] = (64, 64, 64), threads: int = 128) -> dx.CompiledKernel:
    precision = ("s8", "s8", "s32") if output in ("s32", "u8") else ("bf16", "bf16", "f32")
    descriptor = tile(size, precision, c=order, threads=threads, sm=900)
    return dx.compile(dx.render(dx.suggest_pipeline(descriptor, output=output)))


def framed(order: str, lines: int, length: int, pitch: int, offset: int, dtype: np.dtype, value: int):
    """Memory full of one number, and a matrix in it whose lines begin ``offset`` elements behind the memory's."""
    memory = np.full((lines + 2, pitch), value).astype(dtype)
    matrix = memory[1:-1, offset : offset + length]
    return memory, matrix if order == "row" else matrix.T


def check(compiled: dx.CompiledKernel, order: str, lines: int, length: int, pitch: int, offset: int, **scalars: float):
    """A product into a matrix in the midst of others' memory: right inside, untouched outside, no hazard."""
    plan = compiled.source.plan
    rng = np.random.default_rng(length)
    m, n, k = (lines, length, 24) if order == "row" else (length, lines, 24)
    element = plan.descriptor.precision.a.numpy_dtype
    a = dx.padded(rng.integers(0, 3, (m, k)).astype(element))
    b = dx.padded(rng.integers(0, 2, (k, n)).astype(element), "col")
    exact = scalars.get("alpha", 1) * (a.astype(np.float64) @ b.astype(np.float64))
    memory, out = framed(order, lines, length, pitch, offset, plan.output.numpy_dtype, 5)
    operands = {}
    if "beta" in scalars:
        _, operands["c"] = framed(order, lines, length, pitch, offset, plan.output.numpy_dtype, 0)
        operands["c"][...] = rng.integers(0, 8, (m, n))
        exact += scalars["beta"] * operands["c"].astype(np.float64)
    device = EmulatedDevice(processors=2)
    dx.Gemm(compiled, device)(a, b, out=out, **operands, **scalars)
    np.testing.assert_array_equal(out.astype(np.float64), exact.astype(plan.output.numpy_dtype).astype(np.float64))
    out[...] = 5
    assert (memory.astype(np.float64) == 5).all(), "written outside the matrix"
    assert [hazard for hazard in device.last.hazards if hazard.severity == "error"] == []
    return device.last


PLACES = {  # length of a line, elements between lines, offset of the first
    "tma": (48, 80, 16),
    "units-with-a-tail": (53, 80, 16),
    "units-alone": (7, 80, 0),
    "odd-pitch": (48, 81, 0),
    "odd-address": (37, 80, 3),
    "two-tiles": (75, 96, 0),
}


@pytest.mark.parametrize("output", ["f32", "bf16", "e4m3", "u8"])
@pytest.mark.parametrize("order", ["row", "col"])
def test_results_lie_anywhere(order: str, output: str) -> None:
    compiled = kernel(order, output)
    for name, place in PLACES.items():
        run = check(compiled, order, 19, *place)
        assert any("bulk.tensor.3d.global" in opcode for opcode in run.stats.opcodes) == (name == "tma")
        check(compiled, order, 19, *place, alpha=2.0, beta=3.0)


@pytest.mark.parametrize(
    ("size", "threads", "output"),
    [
        ((128, 24, 64), 128, "f32"),
        ((128, 80, 32), 256, "bf16"),
        ((128, 48, 32), 512, "e5m2"),
        ((64, 8, 64), 128, "f16"),
    ],
)
@pytest.mark.parametrize("order", ["row", "col"])
def test_chunks_of_any_width(order: str, output: str, size: tuple[int, int, int], threads: int) -> None:
    compiled = kernel(order, output, size, threads)
    for place in ((96, 128, 0), (137, 144, 0), (137, 139, 1)):
        check(compiled, order, 43, *place, beta=2.0)
