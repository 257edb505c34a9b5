"""Launching on a Hopper GPU: prepared products, streams, devices, graphs, other libraries' arrays, raw modules.

Run all of ``tests/gpu`` on a machine with the GPU: ``python -m pytest tests/gpu``.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blasdx as dx
from blasdx.call import launch_of
from blasdx.devices import StructArgument
from blasdx.devices.cuda import CudaDevice
from blasdx.devices.gpu import encode_tensor_map
from blasdx.operands import bind, walk
from tests.gpu.test_wgmma import kernel

bf16 = ml_dtypes.bfloat16
M, N, K = 75, 53, 72


def integers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(bf16)


def product(a: Any, b: Any) -> Any:
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64)


class Operands:
    """A and B, integers on the GPU, what they make, and a place for it."""

    def __init__(self, cupy: Any, *batches: int, seed: int = 0, m: int = M) -> None:
        a, b = integers(*batches, m, K, seed=seed), integers(*batches, N, K, seed=seed + 100).swapaxes(-1, -2)
        self.a, self.b = cupy.asarray(a), cupy.asarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
        self.out = cupy.full((*batches, m, N), np.nan, np.float32)
        self.true = product(a, b)

    def right(self) -> bool:
        return bool((self.out.get() == self.true).all())


@pytest.fixture(scope="module")
def compiled() -> dx.CompiledKernel:
    return kernel((64, 64, 64), 128)


# ---- prepared


def test_a_prepared_product_is_rebound_again_and_again(hopper: Any, compiled: Any) -> None:
    sets = [Operands(hopper, seed=seed) for seed in range(20)]
    prepared = dx.Gemm(compiled, "cuda").prepare(sets[0].a, sets[0].b, out=sets[0].out)
    for one in sets:
        prepared.rebind(one.a, one.b, out=one.out)()
    assert all(one.right() for one in sets)


def test_alike_calls_do_not_disturb_each_other(hopper: Any, compiled: Any) -> None:
    gemm = dx.Gemm(compiled, "cuda")
    sets = [Operands(hopper, seed=seed, m=M + seed % 3) for seed in range(30)]
    for one in sets:
        gemm(one.a, one.b, out=one.out)
    assert all(one.right() for one in sets)


@pytest.mark.parametrize("output", [None, "bf16"])
def test_results_at_addresses_that_tma_takes_and_that_it_does_not(hopper: Any, output: str | None) -> None:
    """The same launch, whose kernel stores through TMA or by itself as the address is."""
    made = kernel((64, 64, 64), 128, output=output)
    gemm = dx.Gemm(made, "cuda")
    one = Operands(hopper)
    rows = hopper.zeros((M + 2, 64), made.source.plan.output.numpy_dtype)
    for first in (0, 1, 8, 2, 16, 3, 0):
        flat = rows.ravel()[first : first + M * 64].reshape(M, 64)[:, :N]
        flat[...] = 99
        gemm(one.a, one.b, out=flat)
        np.testing.assert_array_equal(flat.get().astype(np.float64), one.true)


def test_scalars_change_between_alike_calls(hopper: Any, compiled: Any) -> None:
    gemm, one = dx.Gemm(compiled, "cuda"), Operands(hopper)
    c = hopper.asarray(integers(M, N, seed=7).astype(np.float32))
    for alpha, beta in ((1.0, 0.0), (2.0, -1.0), (0.0, 3.0), (0.5, 0.0), (1.0, 1.0)):
        gemm(one.a, one.b, c, alpha=alpha, beta=beta, out=one.out)
        np.testing.assert_array_equal(one.out.get(), alpha * one.true + beta * c.get())


# ---- batches


def test_batches_that_do_not_collapse(hopper: Any, compiled: Any) -> None:
    a, b = integers(3, 1, M, K, seed=1), integers(4, N, K, seed=2)
    gemm = dx.Gemm(compiled, "cuda")
    for order in ((0, 1, 2, 3), (1, 0, 2, 3)):
        out = hopper.empty([(3, 4, M, N)[i] for i in order], np.float32).transpose(order)
        gemm(hopper.asarray(a), hopper.asarray(b).swapaxes(-1, -2), out=out)
        np.testing.assert_array_equal(out.get(), product(a, b.swapaxes(-1, -2)))


def test_heads_between_the_rows(hopper: Any, compiled: Any) -> None:
    """(row, batch, column) in memory: a tensor map whose batch step is shorter than its row step."""
    a, b = integers(M, 6, K, seed=1), integers(N, 6, K, seed=2)
    out = hopper.full((M, 6, 56), -1, np.float32)
    dx.Gemm(compiled, "cuda")(
        hopper.asarray(a).transpose(1, 0, 2), hopper.asarray(b).transpose(1, 2, 0), out=out[..., :N].transpose(1, 0, 2)
    )
    true = product(a.transpose(1, 0, 2), b.transpose(1, 2, 0))
    np.testing.assert_array_equal(out[..., :N].transpose(1, 0, 2).get(), true)
    assert bool((out[..., N:] == -1).all())


# ---- streams and devices


def test_nothing_waits(hopper: Any, compiled: Any) -> None:
    gemm, one = dx.Gemm(compiled, "cuda"), Operands(hopper)
    prepared = gemm.prepare(one.a, one.b, out=one.out)
    gemm(one.a, one.b, out=one.out)
    big = hopper.ones((4096, 4096), np.float32)
    hopper.matmul(big, big)
    hopper.cuda.Device().synchronize()
    with hopper.cuda.Stream(non_blocking=True) as stream:
        for _ in range(50):
            hopper.matmul(big, big)
        gemm(one.a, one.b, out=one.out)
        prepared()
        prepared.rebind(out=hopper.empty_like(one.out))()
        gemm(one.a, one.b)
        assert not stream.done, "a call waited for the stream"
        stream.synchronize()
    assert one.right()


def test_threads_with_streams_of_their_own(hopper: Any, compiled: Any) -> None:
    gemm = dx.Gemm(compiled, "cuda")
    sets = [Operands(hopper, seed=seed) for seed in range(8)]
    hopper.cuda.Device().synchronize()
    failed: list[BaseException] = []

    def work(one: Operands) -> None:
        try:
            with hopper.cuda.Stream(non_blocking=True) as stream:
                for _ in range(300):
                    gemm(one.a, one.b, out=one.out)
                stream.synchronize()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert all(one.right() for one in sets)


def test_a_thread_that_never_used_cuda(hopper: Any, compiled: Any) -> None:
    """It has no current context; launching leaves it without one."""
    from cuda.bindings import driver

    gemm, one = dx.Gemm(compiled, "cuda"), Operands(hopper)
    hopper.cuda.Device().synchronize()
    contexts: list[int] = []

    def work() -> None:
        gemm(one.a, one.b, out=one.out, stream=hopper.cuda.Stream.null)
        contexts.append(int(driver.cuCtxGetCurrent()[1]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    hopper.cuda.Device().synchronize()
    assert one.right()
    assert contexts == [0]


def test_the_operands_decide_on_the_device(hopper: Any, compiled: Any) -> None:
    if hopper.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU only")
    gemm = dx.Gemm(compiled, "cuda")
    sets = []
    for index in (1, 0, 1):
        with hopper.cuda.Device(index):
            sets.append(Operands(hopper, seed=index))
            hopper.cuda.Device().synchronize()
    for one in sets:
        gemm(one.a, one.b, out=one.out)
        assert hopper.cuda.runtime.getDevice() == 0
    for one in sets:
        one.out.device.synchronize()
        assert one.right()
    result = gemm(sets[0].a, sets[0].b)
    assert result.device.id == 1
    with pytest.raises(dx.OperandError, match="one on CUDA device 1, where a is"):
        gemm(sets[0].a, sets[1].b)
    with pytest.raises(dx.OperandError, match=r"CudaDevice\(1\)"):
        dx.Gemm(compiled, CudaDevice(0))(sets[0].a, sets[0].b)


# ---- graphs


def test_loading_leaves_a_capture_of_another_stream_alone(hopper: Any) -> None:
    counter = hopper.zeros(1, np.int32)
    counter += 1
    cold, one = kernel((64, 24, 32), 128, depth=2), Operands(hopper)  # no other test loads this one
    side = hopper.cuda.Stream(non_blocking=True)
    hopper.cuda.Device().synchronize()
    with hopper.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        counter += 1
        dx.Gemm(cold, "cuda")(one.a, one.b, out=one.out, stream=side)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    side.synchronize()
    assert int(counter[0]) == 2
    assert one.right()


def test_other_shapes_in_a_capture_of_a_warm_kernel(hopper: Any, compiled: Any) -> None:
    gemm, sets = dx.Gemm(compiled, "cuda"), [Operands(hopper, m=m) for m in (10, 20, 30)]
    gemm(sets[0].a, sets[0].b)
    hopper.cuda.Device().synchronize()
    with hopper.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        for one in sets:
            gemm(one.a, one.b, out=one.out)
        with pytest.raises(dx.LaunchError, match="Pass out="):
            gemm(sets[0].a, sets[0].b)
        graph = stream.end_capture()
    assert not any(one.right() for one in sets)
    graph.launch(stream)
    stream.synchronize()
    assert all(one.right() for one in sets)


# ---- other libraries


class ByInterface:
    """An array of a library that is not known, by ``__cuda_array_interface__`` alone."""

    def __init__(self, array: Any, stream: int | None = None) -> None:
        self.held, self.stream = array, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # Type strings of the interface have no bf16: f16 is what these tests use.
        return {**self.held.__cuda_array_interface__, "stream": self.stream}


class ByDlpack:
    """The same by DLPack alone; it remembers which streams it was handed."""

    def __init__(self, array: Any) -> None:
        self.held, self.streams = array, []

    def __dlpack__(self, *, stream: Any = None, **given: Any) -> Any:
        self.streams.append(stream)
        return self.held.__dlpack__(stream=stream, **given)

    def __dlpack_device__(self) -> Any:
        return self.held.__dlpack_device__()


def test_arrays_of_libraries_that_are_not_known(hopper: Any, compiled: Any) -> None:
    one, gemm = Operands(hopper), dx.Gemm(compiled, "cuda")
    a, b, out = ByDlpack(one.a), ByDlpack(one.b), ByDlpack(one.out)
    assert gemm(a, b, out=out) is out
    assert one.right()
    one.out[...] = 0
    prepared = gemm.prepare(a, b, out=out)
    prepared()
    assert one.right()
    with hopper.cuda.Stream(non_blocking=True) as stream:
        gemm(a, b, out=out)
        stream.synchronize()
    assert a.streams[-1] == stream.ptr, "the producer is told which stream reads"
    result = gemm(a, b)
    assert isinstance(result, hopper.ndarray)
    np.testing.assert_array_equal(result.get(), one.true)


def test_arrays_by_the_interface_alone(hopper: Any) -> None:
    one = Operands(hopper)
    gemm = dx.Gemm(kernel((64, 64, 64), 128, precision="f16"), "cuda")
    a, b = ByInterface(one.a.astype(np.float16)), ByInterface(one.b.astype(np.float16))
    gemm(a, b, out=ByInterface(one.out))
    assert one.right()


def test_the_launch_waits_for_the_stream_that_an_interface_names(hopper: Any) -> None:
    one = Operands(hopper)
    gemm = dx.Gemm(kernel((64, 64, 64), 128, precision="f16"), "cuda")
    right_a, b = one.a.astype(np.float16), one.b.astype(np.float16)
    a = hopper.zeros_like(right_a)
    big = hopper.ones((4096, 4096), np.float32)
    gemm(ByInterface(a), b, out=one.out)
    hopper.matmul(big, big)
    hopper.cuda.Device().synchronize()
    with hopper.cuda.Stream(non_blocking=True) as producer:
        for _ in range(50):
            hopper.matmul(big, big)
        a.data.copy_from_device_async(right_a.data, a.nbytes)
    with hopper.cuda.Stream(non_blocking=True) as consumer:
        gemm(ByInterface(a, producer.ptr), b, out=one.out)
        assert not producer.done, "the host waited"
        consumer.synchronize()
    assert one.right()


def test_borrowed_arrays_live_until_the_stream_has_read_them(hopper: Any, compiled: Any) -> None:
    gemm, one = dx.Gemm(compiled, "cuda"), Operands(hopper)
    big = hopper.ones((4096, 4096), np.float32)
    gemm(ByDlpack(one.a), one.b, out=one.out)
    hopper.matmul(big, big)
    hopper.cuda.Device().synchronize()
    with hopper.cuda.Stream(non_blocking=True) as stream:
        for _ in range(400):  # a second, longer than any pause of this process
            hopper.matmul(big, big)
        lent = ByDlpack(one.a)
        alive = weakref.ref(lent)
        gemm(lent, one.b, out=one.out)
        del lent
        gc.collect()
        assert not stream.done
        assert alive() is not None
        stream.synchronize()
        gemm(ByDlpack(one.a), one.b, out=one.out)  # the next call lets go of it
        assert alive() is None
        stream.synchronize()
    assert one.right()


@pytest.mark.parametrize("k", [0, K])
def test_what_is_left_without_a_product(hopper: Any, compiled: Any, k: int) -> None:
    one = Operands(hopper)
    c = ByDlpack(hopper.asarray(integers(M, N, seed=9).astype(np.float32)))
    dx.Gemm(compiled, "cuda")(one.a[:, :k], one.b[:k], c, alpha=0.0 if k else 1.0, beta=2.0, out=one.out)
    np.testing.assert_array_equal(one.out.get(), 2 * c.held.get())


# ---- raw modules


@pytest.mark.parametrize("output", [None, "bf16"])
def test_a_raw_module_computes_the_same_bits(hopper: Any, output: str | None) -> None:
    made, one = kernel((64, 64, 64), 128, output=output), Operands(hopper)
    plan, gemm = made.source.plan, dx.Gemm(made, "cuda")
    a = hopper.asarray(np.random.default_rng(0).standard_normal((M, K)).astype(bf16))
    true = gemm(a, one.b)
    out = hopper.zeros_like(true)
    operands = [gemm.device.view(name, x) for name, x in (("a", a), ("b", one.b), ("out", out))]
    checked = bind(gemm.descriptor, operands[0], operands[1], out=operands[2], output=plan.output)
    launch = launch_of(plan, checked, walk(checked), gemm.device.processors)
    packed = [
        x.bytes(lambda operand: operand.address) if isinstance(x, StructArgument) else encode_tensor_map(x)
        for x in launch.arguments
    ]
    function = made.as_raw_module().get_function(made.entry)
    function.max_dynamic_shared_size_bytes = plan.smem_total
    # An array of one element travels by value.
    by_value = tuple(np.frombuffer(x, np.dtype([("bytes", np.uint8, len(x))])) for x in packed)
    function((launch.blocks,), (plan.block_dim,), by_value, shared_mem=plan.smem_total)
    bits = np.uint16 if output else np.uint32
    assert bool((out.view(bits) == true.view(bits)).all())
