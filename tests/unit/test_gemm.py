"""What a call hands to its device: seen by a device that records, and multiplies with NumPy instead."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.devices.protocol import Launch, StructArgument, TensorMapArgument

bf16 = ml_dtypes.bfloat16


class Recorder(EmulatedDevice):
    """The emulator's view of arrays without the emulator."""

    def __init__(self) -> None:
        super().__init__(processors=3)
        self.launches: list[Launch] = []
        self.scaled = 0

    def launch(self, kernel: dx.CompiledKernel, launch: Launch, *, stream: object) -> None:
        self.launches.append(launch)
        launch.writes.array[...] = 7

    def scale(self, *arguments: Any, **named: Any) -> None:
        self.scaled += 1
        super().scale(*arguments, **named)


def gemm(a: str = "row", b: str = "col", c: str = "row") -> dx.Gemm:
    source = dx.render(dx.suggest_pipeline(tile(a=a, b=b, c=c), depth=2))
    return dx.Gemm(dx.CompiledKernel(source=source, cubin=b"", ptx="", log=""), Recorder())


def operands(m: int, n: int, k: int) -> tuple[Any, Any]:
    return np.zeros((m, k), bf16), np.zeros((n, k), bf16).T


def recorded(product: dx.Gemm) -> Launch:
    (launch,) = product.device.launches
    return launch


def test_a_call_is_two_maps_and_a_struct() -> None:
    product = gemm()
    a, b = np.zeros((200, 80), bf16)[:, :72], np.zeros((130, 72), bf16).T
    c, out = np.zeros((200, 130), np.float32), np.zeros((200, 133), np.float32)[:, :130]
    assert product(a, b, c, alpha=1.5, beta=-2, out=out) is out
    launch = recorded(product)
    a_map, b_map, problem = launch.arguments
    assert isinstance(a_map, TensorMapArgument)
    assert isinstance(b_map, TensorMapArgument)
    assert isinstance(problem, StructArgument)
    assert (a_map.operand.array is a, b_map.operand.array is b) == (True, True)
    assert (a_map.spec.dims, a_map.spec.strides_bytes, a_map.spec.box) == ((72, 200, 1), (160, 32000), (64, 128, 1))
    assert (b_map.spec.dims, b_map.spec.strides_bytes, b_map.spec.box) == ((72, 130, 1), (144, 18720), (64, 64, 1))
    packed = problem.bytes(lambda operand: {"out": 4096, "c": 8192}[operand.name])
    addresses_and_strides, extents, batches = (4096, 8192, 133, 130, 0, 0), (200, 130, 72), (1, 0, 0)
    assert struct.unpack("<6Q6I2f", packed) == (*addresses_and_strides, *extents, *batches, 1.5, -2)
    assert launch.writes.array is out


def test_mn_major_operands_and_a_column_major_result() -> None:
    product = gemm("col", "row", "col")
    a, b = np.zeros((72, 200), bf16).T, np.zeros((72, 136), bf16)
    result = product(a, b)
    a_map, b_map, problem = recorded(product).arguments
    assert isinstance(a_map, TensorMapArgument)
    assert isinstance(b_map, TensorMapArgument)
    assert isinstance(problem, StructArgument)
    assert (a_map.spec.dims, a_map.spec.strides_bytes, a_map.spec.box) == ((200, 72, 1), (400, 28800), (64, 64, 1))
    assert (b_map.spec.dims, b_map.spec.strides_bytes, b_map.spec.box) == ((136, 72, 1), (272, 19584), (64, 64, 1))
    packed = problem.bytes(lambda operand: 16)
    assert struct.unpack("<6Q6I2f", packed) == (16, 0, 200, 0, 0, 0, 200, 136, 72, 1, 0, 0, 1, 0)
    assert result.flags.f_contiguous
    assert (result.shape, result.dtype) == ((200, 136), np.float32)
    assert (result == 7).all()


@pytest.mark.parametrize(("m", "n", "blocks"), [(1, 1, 1), (128, 64, 1), (129, 64, 2), (129, 65, 3), (1000, 1000, 3)])
def test_no_more_blocks_than_tiles_or_processors(m: int, n: int, blocks: int) -> None:
    product = gemm()
    product(*operands(m, n, 8))
    assert recorded(product).blocks == blocks


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 8), (5, 0, 8), (0, 0, 0)])
def test_an_empty_result_launches_nothing(m: int, n: int, k: int) -> None:
    product = gemm()
    assert product(*operands(m, n, k)).shape == (m, n)
    assert product.device.launches == []


def test_an_empty_sum_is_beta_times_c() -> None:
    product = gemm()
    c = np.arange(15, dtype=np.float32).reshape(3, 5)
    a, b = operands(3, 5, 0)
    assert (product(a, b) == 0).all()
    assert (product(a, b, c, beta=-0.5) == -0.5 * c).all()
    assert product.device.launches == []


def test_alpha_zero_does_not_read_a_and_b() -> None:
    product = gemm()
    a, b = (np.full(shape, np.nan, bf16) for shape in ((3, 8), (5, 8)))
    c = np.ones((3, 5), np.float32)
    assert (product(a, b.T, c, alpha=0, beta=3, out=c) == 3).all()
    assert (c == 3).all()
    assert product.device.launches == []


def test_beta_zero_does_not_read_c() -> None:
    product = gemm()
    a, b = operands(3, 5, 0)
    assert (product(a, b, np.full((3, 5), np.nan, np.float32), beta=0) == 0).all()
    product(*operands(3, 5, 8), np.full((3, 5), np.nan, np.float32), beta=0)
    problem = recorded(product).arguments[2]
    assert isinstance(problem, StructArgument)
    assert problem.operands[1] is None


def test_nothing_is_touched_when_a_call_is_refused() -> None:
    product = gemm()
    a, b = operands(3, 5, 8)
    out = np.full((3, 5), 9, np.float32)
    for wrong in (
        lambda: product(a.astype(np.float16), b, out=out),
        lambda: product(a, b, out=out.T),
        lambda: product(a, b, out, beta=1.0, out=out[::-1]),
        lambda: product(a, b, out=out, alpha=None),
        lambda: product(a.tolist(), b, out=out),
    ):
        with pytest.raises(dx.OperandError):
            wrong()
    assert (out == 9).all()
    assert product.device.launches == []
    assert product.device.scaled == 0


def test_an_empty_sum_times_infinity_warns_of_nothing() -> None:
    gemm = dx.Gemm(dx.compile(dx.render(dx.suggest_pipeline(tile()))), EmulatedDevice())
    c = np.array([[0.0, 1.0, -2.0]], np.float32)
    got = gemm(np.zeros((1, 0), ml_dtypes.bfloat16), np.zeros((0, 3), ml_dtypes.bfloat16), c, beta=float("inf"))
    np.testing.assert_array_equal(got, np.array([[np.nan, np.inf, -np.inf]], np.float32))


class Parted(Recorder):
    """Counts the memory in which parts of K meet; one of its queues is being captured."""

    def __init__(self) -> None:
        super().__init__()
        self.allocated: list[Any] = []

    def zeros(self, size: int, *, queue: object) -> tuple[int, Any]:
        self.allocated.append(queue)
        return super().zeros(size, queue=queue)

    def captures(self, queue: object) -> bool:
        return queue == "captured"


@pytest.fixture
def parted() -> dx.Gemm:
    source = dx.render(dx.suggest_pipeline(tile(), depth=2, split_k=3))
    return dx.Gemm(dx.CompiledKernel(source=source, cubin=b"", ptx="", log=""), Parted())


def test_parts_of_k_meet_in_memory_of_their_queue(parted: dx.Gemm) -> None:
    a, b = operands(5, 3, 640)
    for queue in [*"abab", *range(20), *range(12, 20), "a"]:
        parted(a, b, stream=queue)
    assert parted.device.allocated == ["a", "b", *range(20), "a"]  # the last 8 are remembered
    counters = [
        operand.address
        for launch in parted.device.launches
        for operand in launch.arguments[-1].operands
        if operand is not None and operand.name == "counters"
    ]
    assert counters[0] == counters[2] != counters[1] == counters[3]


def test_parts_of_k_in_a_graph_need_memory_of_their_own(parted: dx.Gemm) -> None:
    a, b = operands(5, 3, 640)
    prepared = parted.prepare(a, b, stream="a")
    assert parted.device.allocated == ["a"]
    prepared(stream="captured")
    parted(a, b, stream="b")
    count = len(parted.device.launches)
    with pytest.raises(dx.LaunchError, match=r"nothing was launched.*Gemm\.prepare"):
        parted(a, b, stream="captured")
    with pytest.raises(dx.LaunchError, match=r"nothing was launched.*Gemm\.prepare"):
        parted.prepare(a, b, stream="captured")
    assert len(parted.device.launches) == count
