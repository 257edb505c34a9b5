"""CUDA graphs, and processes in which something went wrong before."""

from __future__ import annotations

import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blasdx as dx
from tests.gpu.test_demand_launches import python
from tests.gpu.test_wgmma import kernel

bf16 = ml_dtypes.bfloat16


def integers(cupy: Any, rows: int, columns: int, seed: int = 0) -> Any:
    return cupy.asarray(np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(bf16))


def expected(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64)


def test_a_cold_kernel_in_a_capture_is_an_error_that_leaves_the_capture_usable(hopper: Any) -> None:
    # No other test loads this one.
    cold = dx.Gemm(kernel((64, 16, 48), 128, ("row", "row", "row"), depth=3), "cuda")
    a, b, out = integers(hopper, 5, 48), integers(hopper, 48, 16), hopper.zeros((5, 16), np.float32)
    counter = hopper.zeros(1, np.int32)
    counter += 1  # CuPy's own kernel is loaded before the capture
    stream = hopper.cuda.Stream(non_blocking=True)
    hopper.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        counter += 1
        with pytest.raises(dx.LaunchError, match=r"nothing was launched.*once before the capture begins"):
            cold(a, b, out=out)
        counter += 1
        graph = stream.end_capture()
        graph.launch(stream)
    stream.synchronize()
    assert int(counter[0]) == 3
    cold(a, b, out=out)
    np.testing.assert_array_equal(hopper.asnumpy(out), expected(hopper.asnumpy(a), hopper.asnumpy(b)))


@pytest.mark.parametrize("prepared", [True, False])
def test_a_hundred_replays_read_what_a_holds_at_the_time(hopper: Any, prepared: bool) -> None:
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    a, b, out = integers(hopper, 70, 200, 1), integers(hopper, 90, 200, 2).T, hopper.zeros((70, 90), np.float32)
    launch = gemm.prepare(a, b, out=out) if prepared else lambda: gemm(a, b, out=out)
    launch()
    stream = hopper.cuda.Stream(non_blocking=True)
    hopper.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        gemm.prepare(a, b, out=out, stream=stream)() if prepared else launch()
        graph = stream.end_capture()
        for seed in range(100):
            new = np.random.default_rng(seed).integers(-4, 5, (70, 200)).astype(bf16)
            a.set(new)
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(hopper.asnumpy(out), expected(new, hopper.asnumpy(b)), err_msg=str(seed))


def test_a_graph_outlives_what_it_was_captured_from(hopper: Any) -> None:
    """Tensor maps are parameters, copied into the graph: nothing in it belongs to Python."""
    a, b, out = integers(hopper, 70, 200, 1), integers(hopper, 90, 200, 2).T, hopper.zeros((70, 90), np.float32)
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    gemm(a, b, out=out)
    true = hopper.asnumpy(out)
    stream = hopper.cuda.Stream(non_blocking=True)
    hopper.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        gemm(a, b, out=out)
        graph = stream.end_capture()
    del gemm
    gc.collect()
    junk = [bytearray(b"\xff" * 4096) for _ in range(1000)]
    out[...] = 0
    hopper.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(hopper.asnumpy(out), true)
    assert len(junk) == 1000


# ---- what happened before

FAULT = """
import cupy
import blasdx as dx
from tests.gpu.test_wgmma import kernel
ones = cupy.ones((5, 64), cupy.float16)
gemm = dx.Gemm(kernel((64, 64, 64), 128, precision="f16"), "cuda")
out = gemm(ones, ones.T)
cupy.RawKernel('extern "C" __global__ void fault() { *(int*)16 = 1; }', "fault")((1,), (1,), ())
try:
    cupy.cuda.Device().synchronize()
except cupy.cuda.runtime.CUDARuntimeError:
    pass
try:
    gemm(ones, ones.T, out=out)
except dx.LaunchError as error:
    print(error)
"""


@pytest.mark.usefixtures("hopper")
def test_the_fault_of_an_earlier_kernel_is_not_blamed_on_this_call() -> None:
    result = python(FAULT)
    assert "an earlier kernel of this process failed" in result.stdout, result.stdout + result.stderr


FORK_AFTER_USE = """
import os
import cupy
import blasdx as dx
from tests.gpu.test_wgmma import kernel
compiled = kernel((64, 64, 64), 128, precision="f16")
ones = cupy.ones((5, 64), cupy.float16)
gemm = dx.Gemm(compiled, "cuda")
gemm(ones, ones.T)
cupy.cuda.Device().synchronize()
child = os.fork()
if not child:
    try:
        dx.Gemm(compiled, "cuda")(ones, ones.T)
    except dx.BlasdxError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.usefixtures("hopper")
def test_a_child_that_is_forked_after_cuda_was_used_is_told_so() -> None:
    result = python(FORK_AFTER_USE)
    assert "forked after its first use" in result.stdout, result.stdout + result.stderr
