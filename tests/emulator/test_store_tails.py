"""What a TMA store does where the tensor's edge cuts a row, and that the kernels do not use it there."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
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


@pytest.mark.parametrize("output", [None, "bf16"])
@pytest.mark.parametrize("columns", [53, 40, 33, 8, 1])
def test_what_follows_a_row_of_the_result_stays(output: str | None, columns: int) -> None:
    descriptor = tile((64, 64, 64), sm=900)
    gemm = dx.Gemm(dx.compile(dx.render(dx.suggest_pipeline(descriptor, output=output))), "emulator")
    rng = np.random.default_rng(columns)
    a = rng.integers(-3, 4, (70, 72)).astype(ml_dtypes.bfloat16)
    b = np.asfortranarray(rng.integers(-3, 4, (72, columns)).astype(ml_dtypes.bfloat16))
    whole = np.full((70, 80), -77, gemm.kernel.source.plan.output.numpy_dtype)
    gemm(a, b, out=whole[:, :columns])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(whole[:, :columns].astype(np.float64), exact)
    assert (whole[:, columns:].astype(np.float64) == -77).all()
