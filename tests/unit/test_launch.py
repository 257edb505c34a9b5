"""What reaches the driver: seen by a driver that records, on arrays where there is no memory."""

from __future__ import annotations

import re
import struct
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tiles import tile

import blasdx as dx

cuda = pytest.importorskip("tests.fake_cuda", reason="CuPy is not installed")
M, N, K = 5, 7, 24
A, B, C, OUT = 1 << 20, 2 << 20, 3 << 20, 4 << 20


@pytest.fixture
def fake() -> Iterator[Any]:
    with cuda.fake_cuda(sm=1000, sizes=(128, 128, 80)) as found:
        yield found


def kernel(depth: int = 2) -> dx.CompiledKernel:
    source = dx.render(dx.suggest_pipeline(tile((64, 16, 64)), depth=depth))
    return dx.CompiledKernel(source=source, cubin=b"%d" % depth, ptx="", log="")


def operands(fake: Any, *batches: int, m: int = M, shift: int = 0, device: int = 0) -> tuple[Any, Any, Any]:
    return (
        fake.array((*batches, m, K), at=A + shift, device=device),
        fake.array((*batches, K, N), at=B + shift, device=device, order="col"),
        fake.array((*batches, m, N), "f4", at=OUT + shift, device=device),
    )


def addresses(launch: Any) -> tuple[int, int, int, int]:
    """a, b, out and c of a launch."""
    a_map, b_map, problem = launch.parameters
    return (*(struct.unpack_from("<Q", one)[0] for one in (a_map, b_map)), *struct.unpack_from("<2Q", problem))


# ---- calls that are alike


def test_maps_are_encoded_once_and_moved_afterwards(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    for shift in (0, 4096, 8192, 4096):
        a, b, out = operands(fake, shift=shift)
        assert gemm(a, b, out=out) is out
    assert [addresses(one) for one in fake.launches] == [
        (A + shift, B + shift, OUT + shift, 0) for shift in (0, 4096, 8192, 4096)
    ]
    assert (fake.encoded, len(fake.loaded)) == (2, 1)
    a, b, out = operands(fake, shift=4096)
    moved = fake.replaced
    gemm(a, b, out=out)
    assert fake.replaced == moved, "nothing moves where the arrays are the same"


def test_other_shapes_strides_scalars_and_types_of_scalars_are_other_calls(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    a, b, out = operands(fake)
    gemm(a, b, out=out)
    gemm(a, b, out=out, alpha=2.0)
    assert struct.unpack("<6Q6I2f", fake.launches[-1].parameters[2])[-2:] == (2, 0)
    gemm(a[:3], b, out=out[:3])
    assert struct.unpack("<6Q6I2f", fake.launches[-1].parameters[2])[6] == 3
    for wrong in (1 + 0j, np.ones(1), [1]):
        with pytest.raises(dx.OperandError, match="a real number"):
            gemm(a, b, out=out, alpha=wrong)
    assert len(fake.launches) == 3


def test_addresses_are_checked_though_shapes_are_known(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    a, b, out = operands(fake)
    gemm(a, b, out=out)
    with pytest.raises(dx.OperandError, match="8 B past a multiple of 16"):
        gemm(fake.array((M, K), at=A + 8), b, out=out)
    with pytest.raises(dx.OperandError, match="2 B past a multiple of 4"):
        gemm(a, b, out=fake.array((M, N), "f4", at=OUT + 2))
    for place in (A, A + 16, A + M * K * 2 - 4, A - M * N * 4 + 4):
        with pytest.raises(dx.OperandError, match="memory shared with a"):
            gemm(a, b, out=fake.array((M, N), "f4", at=place))
    gemm(a, b, out=fake.array((M, N), "f4", at=A + M * K * 2))
    assert len(fake.launches) == 2


def test_c_may_be_out_and_lie_nowhere_else_in_it(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    a, b, out = operands(fake)
    c = fake.array((M, N), "f4", at=C)
    gemm(a, b, c, beta=1.0, out=out)
    gemm(a, b, out, beta=1.0, out=out)
    with pytest.raises(dx.OperandError, match="memory shared with c"):
        gemm(a, b, fake.array((M, N), "f4", at=OUT + 4), beta=1.0, out=out)
    assert [addresses(one)[2:] for one in fake.launches] == [(OUT, C), (OUT, OUT)]


def test_what_a_gemm_keeps_is_bounded(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    for m in range(1, 200):
        a, b, out = operands(fake, m=m)
        gemm(a, b, out=out)
    assert len(gemm._calls) <= 64
    assert len(fake.launches) == 199


# ---- batches


def test_70000_batches_are_one_launch(fake: Any) -> None:
    a, b, out = operands(fake, 70_000)
    out = fake.array((70_000, M, N), "f4", at=1 << 40)
    b = fake.array((70_000, K, N), at=1 << 41, order="col")
    dx.Gemm(kernel(), "cuda")(a, b, out=out)
    (launch,) = fake.launches
    fields = struct.unpack("<6Q6I2f", launch.parameters[2])
    assert fields[4:12] == (M * N, 0, M, N, K, 70_000, 1, 1)
    assert launch.grid == 132


def test_batches_that_do_not_collapse_are_a_launch_each_with_maps_that_move(fake: Any) -> None:
    a = fake.array((2, 1, M, K), at=A)
    b = fake.array((3, K, N), at=B, order="col")
    out = fake.array((2, 3, M, N), "f4", at=OUT)
    dx.Gemm(kernel(), "cuda")(a, b, out=out)
    assert [addresses(one)[:3] for one in fake.launches] == [(A, B, OUT), (A + M * K * 2, B, OUT + 3 * M * N * 4)]
    assert fake.encoded == 2
    assert struct.unpack("<6Q6I2f", fake.launches[0].parameters[2])[9:12] == (3, 0, 1)


# ---- prepared


def test_a_prepared_product_launches_and_is_rebound(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    a, b, out = operands(fake)
    prepared = gemm.prepare(a, b, out=out)
    assert (len(fake.loaded), len(fake.launches)) == (1, 0)
    assert prepared() is out
    new_a, _, new_out = operands(fake, shift=4096)
    assert prepared.rebind(new_a) is prepared
    prepared()
    assert prepared.rebind(out=new_out)() is new_out
    assert prepared.out is new_out
    assert [addresses(one)[:3] for one in fake.launches] == [
        (A, B, OUT),
        (A + 4096, B, OUT),
        (A + 4096, B, OUT + 4096),
    ]


def test_what_cannot_be_rebound_leaves_everything_as_it_was(fake: Any) -> None:
    a, b, out = operands(fake)
    prepared = dx.Gemm(kernel(), "cuda").prepare(a, b, out=out)
    other, _, _ = operands(fake, m=M + 1)
    with pytest.raises(dx.OperandError, match=r"a: cupy bfloat16 \(6, 24\).*needs cupy bfloat16 \(5, 24\)") as caught:
        prepared.rebind(other)
    assert caught.value.misses[0].rule == "prepared"
    with pytest.raises(dx.OperandError, match="memory shared with b"):
        prepared.rebind(out=fake.array((M, N), "f4", at=B))
    prepared()
    assert addresses(fake.launches[-1])[:3] == (A, B, OUT)


def test_prepared_products_do_not_disturb_each_other(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    first, second = (gemm.prepare(a, b, out=out) for a, b, out in (operands(fake), operands(fake, shift=1 << 12)))
    for prepared in (first, second, first):
        prepared()
    assert [addresses(one)[0] for one in fake.launches] == [A, A + 4096, A]


# ---- streams, devices


class Stream:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def test_the_current_stream_of_the_library_or_the_one_that_is_named(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    a, b, out = operands(fake)
    prepared = gemm.prepare(a, b, out=out)
    for handle in (0x10, 0x20):
        fake.streams[0] = handle
        gemm(a, b, out=out)
        prepared()
    gemm(a, b, out=out, stream=Stream(0x30))
    prepared(stream=Stream(0x40))
    assert [one.stream for one in fake.launches] == [0x10, 0x10, 0x20, 0x20, 0x30, 0x40]
    with pytest.raises(dx.OperandError, match="an object with __cuda_stream__"):
        gemm(a, b, out=out, stream=0x30)


def test_the_operands_decide_on_the_device_and_the_current_one_stays(fake: Any) -> None:
    fake.streams = {0: 0x10, 1: 0x11}
    gemm = dx.Gemm(kernel(), "cuda")
    for device in (1, 0, 1):
        a, b, out = operands(fake, device=device)
        gemm(a, b, out=out)
        assert fake.contexts == [100]
    assert [(one.context, one.stream) for one in fake.launches] == [(101, 0x11), (100, 0x10), (101, 0x11)]
    assert len(fake.loaded) == 2, "once a device"


def test_mixed_devices_and_devices_that_were_not_named_are_refused(fake: Any) -> None:
    from blasdx.devices.cuda import CudaDevice

    a, b, out = operands(fake)
    elsewhere = fake.array((M, N), "f4", at=OUT, device=1)
    with pytest.raises(
        dx.OperandError, match=r"out: an array on CUDA device 1; needs one on CUDA device 0, where a is"
    ):
        dx.Gemm(kernel(), "cuda")(a, b, out=elsewhere)
    with pytest.raises(dx.OperandError, match=r"CudaDevice\(0\)"):
        dx.Gemm(kernel(), CudaDevice(1))(a, b, out=out)
    assert fake.launches == []
    assert fake.contexts == [100]


# ---- other libraries


def tensors(**given: Any) -> tuple[Any, Any, Any]:
    tensor = cuda.FakeTensor
    return (
        tensor((M, K), (K, 1), "bfloat16", A, **given),
        tensor((K, N), (1, K), "bfloat16", B, **given),
        tensor((M, N), (N, 1), "float32", OUT, **given),
    )


def test_torch_tensors_on_torchs_stream(fake: Any) -> None:
    fake.streams = {0: 0x10, 1: 0x11}
    gemm = dx.Gemm(kernel(), "cuda")
    with cuda.fake_torch(stream=0x70):
        for device in (0, 1):
            a, b, out = tensors(device=device)
            assert gemm(a, b, out=out) is out
    assert [(addresses(one), one.stream) for one in fake.launches] == [((A, B, OUT, 0), 0x70), ((A, B, OUT, 0), 0x71)]


def test_two_libraries_need_one_stream(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    out = operands(fake)[2]
    fake.streams[0] = 0x10
    with cuda.fake_torch(stream=0x70):
        a, b, _ = tensors()
        with pytest.raises(dx.OperandError, match=r"cupy's current stream 0x10 and torch's current stream 0x70"):
            gemm(a, b, out=out)
        gemm(a, b, out=out, stream=Stream(0x99))
        fake.streams[0] = 0x70
        gemm(a, b, out=out)
    assert [one.stream for one in fake.launches] == [0x99, 0x70]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"dtype": "torch.float16"}, "dtype float16; needs bfloat16"),
        ({"dtype": "torch.quint8"}, "dtype torch.quint8"),
        ({"is_cuda": False}, "an array in the memory of a CUDA device"),
        ({"requires_grad": True}, r"a\.detach\(\)"),
    ],
)
def test_tensors_that_are_refused(fake: Any, changed: dict[str, Any], text: str) -> None:
    with cuda.fake_torch():
        a, b, out = tensors()
        for name, value in changed.items():
            setattr(a, name, value)
        with pytest.raises(dx.OperandError, match=text):
            dx.Gemm(kernel(), "cuda")(a, b, out=out)


def test_parameters_are_taken_where_nothing_is_recorded(fake: Any) -> None:
    with cuda.fake_torch(grad=False):
        a, b, out = tensors()
        a.requires_grad = True
        dx.Gemm(kernel(), "cuda")(a, b, out=out)
    assert len(fake.launches) == 1


@pytest.mark.parametrize("array", [np.zeros((M, K), np.float16), [[1.0]], 3, "a"])
def test_what_is_in_host_memory_is_refused(fake: Any, array: Any) -> None:
    _, b, out = operands(fake)
    with pytest.raises(dx.OperandError, match=r"a: .*; needs an array in the memory of a CUDA device"):
        dx.Gemm(kernel(), "cuda")(array, b, out=out)


class Foreign:
    """An array of a library that only exports."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self) -> None: ...


class Jax(Foreign):
    __module__ = "jaxlib.xla_extension"


@pytest.fixture
def borrowed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The streams that exporting libraries were told, in the place of cuda.core's view, which needs a driver."""
    from cuda.core import utils

    from blasdx.devices.cuda import CudaDevice

    told: list[int] = []

    def view(foreign: Foreign, *, stream_ptr: int) -> Any:
        told.append(stream_ptr)
        array = foreign.array
        tight = array.flags.c_contiguous
        return SimpleNamespace(
            ptr=array.data.ptr,
            shape=array.shape,
            strides=None if tight else tuple(stride // array.itemsize for stride in array.strides),
            dtype=array.dtype,
            device_id=array.data.device_id,
            readonly=False,
            is_device_accessible=True,
        )

    monkeypatch.setattr(utils, "StridedMemoryView", SimpleNamespace(from_any_interface=view))
    monkeypatch.setattr(CudaDevice, "enqueued", lambda self, look: told.append(-len(look.borrowed)))
    return told


def test_libraries_that_export_are_told_the_stream_and_lend_until_it_has_passed(fake: Any, borrowed: list[int]) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    a, b, out = operands(fake)
    fake.streams[0] = 0x10
    gemm(Foreign(a), Foreign(b), out=out)
    prepared = gemm.prepare(Foreign(a), b, out=out)
    prepared(stream=Stream(0x20))
    fake.streams[0] = 0
    gemm(a, b, out=Foreign(out))
    assert borrowed == [0x10, 0x10, -2, 0x10, 0x20, -1, 1, -1], "the legacy stream is 1 where 0 could be another"
    assert [(one.stream, addresses(one)) for one in fake.launches] == [(s, (A, B, OUT, 0)) for s in (0x10, 0x20, 0)]


def test_the_stream_is_that_of_the_device_that_borrowed_arrays_are_on(fake: Any, borrowed: list[int]) -> None:
    fake.streams = {0: 0x10, 1: 0x11}
    dx.Gemm(kernel(), "cuda")(*map(Foreign, operands(fake, device=1)[:2]), out=Foreign(operands(fake, device=1)[2]))
    assert [(one.context, one.stream) for one in fake.launches] == [(101, 0x11)]
    assert borrowed[-2:] == [0x11, -3]


@pytest.mark.usefixtures("borrowed")
def test_arrays_that_never_change_are_operands_and_no_results(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    a, b, out = operands(fake)
    gemm(Jax(a), Jax(b), out=out)
    with pytest.raises(dx.OperandError, match="out: a read-only array"):
        gemm(a, b, out=Jax(out))
    assert len(fake.launches) == 1


def test_no_operand_at_all(fake: Any) -> None:
    a, b, out = operands(fake)
    for arrays, name in (((None, b), "a"), ((a, None), "b"), ((None, None), "a")):
        with pytest.raises(dx.OperandError, match=f"{name}: None; needs an array"):
            dx.Gemm(kernel(), "cuda")(*arrays, out=out)
        with pytest.raises(dx.OperandError, match=f"{name}: None; needs an array"):
            dx.Gemm(kernel(), "cuda")(*arrays)
        with pytest.raises(dx.OperandError, match=f"{name}: None; needs an array"):
            dx.Gemm(kernel(), "emulator")(*(None if x is None else np.zeros((3, 3)) for x in arrays))


# ---- graphs, failures


def test_a_cold_kernel_is_refused_before_the_capture_sees_anything(fake: Any) -> None:
    gemm = dx.Gemm(kernel(), "cuda")
    a, b, out = operands(fake)
    fake.capturing.add(0)
    for cold in (lambda: gemm(a, b, out=out), lambda: gemm.prepare(a, b, out=out)):
        with pytest.raises(dx.LaunchError, match=r"not loaded yet.*the capture goes on.*Gemm\.prepare"):
            cold()
    assert (fake.loaded, fake.launches) == ([], [])
    fake.capturing.clear()
    prepared = gemm.prepare(a, b, out=out)
    fake.capturing.add(0)
    prepared()
    gemm(*operands(fake, shift=4096)[:2], out=out)
    assert len(fake.launches) == 2


def test_a_result_is_not_allocated_in_a_capture(fake: Any) -> None:
    a, b, out = operands(fake)
    gemm = dx.Gemm(kernel(), "cuda")
    gemm(a, b, out=out)
    fake.capturing.add(0)
    with pytest.raises(dx.LaunchError, match=r"cannot be allocated.*Pass out="):
        gemm(a, b)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("ILLEGAL_ADDRESS", "an earlier kernel of this process failed.*this call launched nothing"),
        ("LAUNCH_FAILED", "an earlier kernel of this process failed.*this call launched nothing"),
        ("NOT_INITIALIZED", "forked after its first use; start children with the spawn method"),
        ("INVALID_HANDLE", "the stream may be destroyed, or belong to another device"),
        ("OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY: what the driver says$"),
    ],
)
def test_a_refusal_of_the_driver_says_what_it_means(fake: Any, status: str, text: str) -> None:
    from cuda.bindings import driver

    a, b, out = operands(fake)
    gemm = dx.Gemm(kernel(), "cuda")
    gemm(a, b, out=out)
    fake.status = getattr(driver.CUresult, f"CUDA_ERROR_{status}")
    with pytest.raises(dx.LaunchError, match=text) as caught:
        gemm(a, b, out=out)
    assert caught.value.status == f"CUDA_ERROR_{status}"
    assert caught.value.earlier == ("earlier" in text)
    fake.status = cuda.SUCCESS
    gemm(a, b, out=out)
    assert len(fake.launches) == 2


def test_threads_load_a_kernel_once_and_get_their_own_addresses(fake: Any) -> None:
    compiled, threads, each = kernel(), 16, 50
    shared, gate = dx.Gemm(compiled, "cuda"), threading.Barrier(threads)
    seen: list[Any] = []

    def work(number: int) -> None:
        own = dx.Gemm(compiled, "cuda")
        a, b, out = operands(fake, shift=number << 12)
        gate.wait()
        for _ in range(each):
            shared(a, b, out=out, stream=Stream(number + 1))
            own(a, b, out=out, stream=Stream(number + 1))

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(old)
    assert len(fake.loaded) == 1
    seen = [(one.stream - 1, *addresses(one)[:3]) for one in fake.launches]
    assert len(seen) == threads * each * 2
    assert set(seen) == {(i, A + (i << 12), B + (i << 12), OUT + (i << 12)) for i in range(threads)}


def test_clusters_go_to_the_driver_as_a_launch_attribute() -> None:
    descriptor = tile((64, 64, 64), sm=900).with_(dx.BlocksPerCluster(2, 1))
    plan = dx.suggest_pipeline(descriptor, depth=2)
    compiled = dx.CompiledKernel(source=dx.render(plan), cubin=b"clustered", ptx="", log="")
    with cuda.fake_cuda() as fake:
        a, b, out = operands(fake, m=65)
        dx.Gemm(compiled, "cuda")(a, b, out=out)
        (launch,) = fake.launches
        assert (launch.cluster, launch.grid) == (2, 2)
        with pytest.raises(dx.LaunchError, match="clusters of 2 x 1 CTAs, and CuPy launches with cuLaunchKernel"):
            compiled.as_raw_module()


def test_a_cluster_that_fits_nowhere_is_said_before_the_launch() -> None:
    descriptor = tile((64, 64, 64), sm=900).with_(dx.BlocksPerCluster(16, 1))
    plan = dx.suggest_pipeline(descriptor, depth=2)
    compiled = dx.CompiledKernel(source=dx.render(plan), cubin=b"clustered", ptx="", log="")
    with cuda.fake_cuda(room=0) as fake:
        a, b, out = operands(fake, m=65)
        with pytest.raises(dx.LaunchError, match=r"no cluster of 16 CTAs .* fits on CUDA device 0"):
            dx.Gemm(compiled, "cuda")(a, b, out=out)
        assert fake.launches == []


def test_a_raw_module_has_no_oversized_shared_memory() -> None:
    plan = dx.suggest_pipeline(tile((256, 256, 256), sm=1070))
    compiled = dx.CompiledKernel(source=dx.render(plan), cubin=b"oversized", ptx="", log="")
    with pytest.raises(dx.LaunchError, match=r"takes 262,\d\d\d B .* more than the 232,448 B that CuPy can ask for"):
        compiled.as_raw_module()


def test_a_raw_module_is_the_same_machine_code(fake: Any) -> None:
    from pathlib import Path
    from unittest import mock

    with mock.patch("blasdx.devices.raw_module.require_driver"):
        module = kernel().as_raw_module()
    assert Path(module.file_path).read_bytes() == kernel().cubin
    assert re.search(r"by value and in this order", dx.CompiledKernel.as_raw_module.__doc__ or "")
