"""Arrays of several libraries, and several GPUs: what is taken as it is, and where the product runs."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blasdx as dx
from tests.gpu.test_demand_launches import python
from tests.gpu.test_wgmma import kernel

bf16 = ml_dtypes.bfloat16


def integers(rows: int, columns: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(bf16)


def expected(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64).T


@pytest.fixture(scope="module")
def torch(hopper: Any) -> Any:
    return pytest.importorskip("torch")


def test_bf16_of_pytorch_and_of_cupy_are_one(hopper: Any, torch: Any) -> None:
    a, b = integers(70, 72, 1), integers(33, 72, 2)
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    as_torch = [torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16) for x in (a, b)]
    out = torch.full((70, 33), float("nan"), device="cuda")
    assert gemm(as_torch[0], as_torch[1].T, out=out) is out
    np.testing.assert_array_equal(out.cpu().numpy(), expected(a, b))
    np.testing.assert_array_equal(hopper.asnumpy(gemm(hopper.asarray(a), hopper.asarray(b).T)), expected(a, b))


def test_fp8_of_pytorch_and_bytes_of_cupy_are_one(hopper: Any, torch: Any) -> None:
    numbers = np.random.default_rng(1).integers(-4, 5, (70, 80)).astype(ml_dtypes.float8_e4m3fn)
    gemm = dx.Gemm(kernel((64, 64, 64), 128, precision=("e4m3", "e4m3", "f32")), "cuda")
    as_torch = torch.from_numpy(numbers.view(np.uint8)).cuda().view(torch.float8_e4m3fn)
    as_bytes = hopper.asarray(numbers.view(np.uint8))
    for array in (as_torch, as_bytes):
        np.testing.assert_array_equal(hopper.asnumpy(gemm(array, array.T)), expected(numbers, numbers))


def test_pytorchs_stream_is_the_one_of_its_tensors(torch: Any) -> None:
    """What the tensors' stream still writes is waited for, though CuPy's current stream is another."""
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    a, b = (
        torch.zeros(64, 64, dtype=torch.bfloat16, device="cuda"),
        torch.ones(64, 64, dtype=torch.bfloat16, device="cuda"),
    )
    out = torch.zeros(64, 64, device="cuda")
    gemm(a, b.T, out=out)
    busy = torch.ones(4096, 4096, device="cuda")
    torch.mm(busy, busy)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        for _ in range(50):
            torch.mm(busy, busy)
        a.fill_(1)
        gemm(a, b.T, out=out)
        torch.cuda.current_stream().synchronize()
    assert (out == 64).all()


JAX = """
import cupy
import jax.numpy as jnp
import numpy as np
import blasdx as dx
from tests.gpu.test_demand_arrays import expected, integers
from tests.gpu.test_wgmma import kernel

a, b = integers(70, 72, 1), integers(40, 72, 2)
gemm = dx.Gemm(kernel((64, 64, 64), 128, ("row", "row", "row")), "cuda")
for round in range(20):  # what JAX still computes is waited for
    doubled = jnp.asarray(a) * 2
    result = gemm(doubled, jnp.asarray(b).T)
    assert type(result) is cupy.ndarray
    np.testing.assert_array_equal(cupy.asnumpy(result), 2 * expected(a, b))
try:
    gemm(doubled, jnp.asarray(b).T, out=jnp.zeros((70, 40), jnp.float32))
except dx.OperandError as error:
    assert "out" in str(error), error
else:
    raise AssertionError("an array of JAX was written")
print("equal")
"""


def test_arrays_of_jax_are_operands(hopper: Any) -> None:
    pytest.importorskip("jax")
    # Otherwise JAX takes most of the GPU's memory for itself, in the other processes' place.
    result = python(JAX, XLA_PYTHON_CLIENT_PREALLOCATE="false", JAX_PLATFORMS="cuda")
    if "Unable to initialize backend" in result.stderr:
        pytest.skip("this JAX has no CUDA backend")
    assert (result.returncode, result.stdout) == (0, "equal\n"), result.stderr


def test_arrays_of_numba_are_operands_and_results(hopper: Any) -> None:
    numba = pytest.importorskip("numba.cuda")
    a, b = (integers(rows, 72, rows).astype(np.float16) for rows in (70, 40))
    device_a, device_b = numba.to_device(a), numba.to_device(np.ascontiguousarray(b.T))
    out = numba.to_device(np.full((70, 40), np.nan, np.float32))
    numba.synchronize()
    gemm = dx.Gemm(kernel((64, 64, 64), 128, ("row", "row", "row"), precision="f16"), "cuda")
    assert gemm(device_a, device_b, out=out) is out
    hopper.cuda.Device().synchronize()
    np.testing.assert_array_equal(out.copy_to_host(), expected(a, b))


def test_an_array_in_host_memory_is_refused_with_the_copy_to_make(hopper: Any) -> None:
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    a = integers(5, 64)
    with pytest.raises(dx.OperandError, match=r"a: numpy.ndarray.*(?s:.)*cupy.asarray\(a\)"):
        gemm(a, hopper.asarray(a).T)


def test_threads_share_a_gemm(hopper: Any) -> None:
    """Each on a stream of its own, with operands of its own, through one object."""
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    wrong: list[int] = []

    def work(number: int) -> None:
        a, b = integers(60 + number, 72, number), integers(33, 72, 100 + number)
        with hopper.cuda.Stream(non_blocking=True) as stream:
            device_a, device_b = hopper.asarray(a), hopper.asarray(b)
            for _ in range(50):
                result = gemm(device_a, device_b.T)
            stream.synchronize()
            if not np.array_equal(hopper.asnumpy(result), expected(a, b)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number % 4,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.fixture
def two_gpus(hopper: Any) -> Any:
    if hopper.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU only")
    return hopper


def test_a_product_runs_where_its_operands_are_and_leaves_the_current_device(two_gpus: Any) -> None:
    a, b = integers(70, 72, 1), integers(33, 72, 2)
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    for index in (1, 0, 1):
        with two_gpus.cuda.Device(index):
            device_a, device_b = two_gpus.asarray(a), two_gpus.asarray(b)
        result = gemm(device_a, device_b.T)
        assert result.device.id == index
        assert two_gpus.cuda.runtime.getDevice() == 0
        with two_gpus.cuda.Device(index):
            np.testing.assert_array_equal(two_gpus.asnumpy(result), expected(a, b))


def test_operands_on_two_devices_are_refused(two_gpus: Any) -> None:
    a = two_gpus.asarray(integers(70, 72, 1))
    with two_gpus.cuda.Device(1):
        b = two_gpus.asarray(integers(33, 72, 2))
    with pytest.raises(dx.OperandError, match="b: an array on CUDA device 1; needs one on CUDA device 0"):
        dx.Gemm(kernel((64, 64, 64), 128), "cuda")(a, b.T)
