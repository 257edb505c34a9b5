"""The CUDA device, proven on any GPU with TMA: maps, structs, launch, streams.

The kernel copies tiles through shared memory with the templates' own device functions and undoes the swizzle by hand,
so that what the driver encodes, what the device functions do and what a launch passes are all checked against NumPy.
No Blackwell instruction is in it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda.core import Program, ProgramOptions

from blasdx.arch import of
from blasdx.devices import Launch, StructArgument, TensorMapArgument
from blasdx.devices.cuda import CudaDevice
from blasdx.elements import Element
from blasdx.errors import ArchMismatchError, LaunchError, OperandError
from blasdx.layout.swizzle import Swizzle
from blasdx.layout.tensor_map import TensorMapSpec

DEVICE_FUNCTIONS = Path(__file__).parents[2] / "templates" / "device"
SPAN, ROWS = 64, 40  # one box: 64 elements of 2 bytes, which is the 128-byte span, times 40 rows

KERNEL = """
struct Tile { u16* out; u64 ld; u32 rows, columns; float ignored; };

extern "C" __global__ void copy_tiles(const __grid_constant__ TensorMap map, const __grid_constant__ Tile tile) {
  extern __shared__ __align__(1024) u8 smem[];
  const u32 base = shared_address(smem);
  const u32 barrier = base + 200000;  // far beyond what a launch gets without opting in
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  const u32 tiles_across = (tile.columns + 63) / 64;
  const u32 first_row = blockIdx.x / tiles_across * 40, first_column = blockIdx.x % tiles_across * 64;
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier, 128 * 40);
    tma_load_3d(base, map, first_column, first_row, 0, barrier);
  }
  mbarrier_wait(barrier, 0);
  for (u32 i = threadIdx.x; i < 64 * 40; i += blockDim.x) {
    const u32 byte = i * 2, swizzled = SWIZZLE ? byte ^ (byte >> 7 & 7) << 4 : byte;
    const u32 row = first_row + i / 64, column = first_column + i % 64;
    // Beyond the edge TMA fills with zeros: write those too, the output has room for whole tiles.
    tile.out[row * tile.ld + column] = *reinterpret_cast<const u16*>(smem + swizzled);
  }
}
"""


@pytest.fixture(scope="module")
def copy_kernel(device: CudaDevice) -> Any:
    """What the device needs to know of a compiled kernel, for both swizzles."""
    names = ("types", "warp", "mbarrier", "tma")
    functions = "\n".join((DEVICE_FUNCTIONS / f"{name}.cuh").read_text() for name in names)

    def build(swizzle: str) -> Any:
        swizzled = "true" if swizzle == "128B" else "false"
        text = f"{functions}\nusing u16 = unsigned short;\nconstexpr bool SWIZZLE = {swizzled};\n{KERNEL}"
        options = ProgramOptions(std="c++17", arch=of(device.sm).target("arch_specific"))
        cubin = bytes(Program(text, "c++", options).compile("cubin").code)
        plan = SimpleNamespace(block_dim=96, smem_total=200704, oversized=False)
        return SimpleNamespace(source=SimpleNamespace(entry="copy_tiles", fingerprint=text, plan=plan), cubin=cubin)

    return build


def copy(device: CudaDevice, kernel: Any, array: Any, dtype: str, swizzle: str, stream: Any = None) -> Any:
    """Copy a matrix tile by tile; the result is padded with the zeros of TMA's fill."""
    rows, columns = array.shape
    tall, wide = -(-rows // ROWS), -(-columns // SPAN)
    with stream or device.namespace.cuda.get_current_stream():
        out = device.view("out", device.namespace.empty((tall * ROWS, wide * SPAN), Element.of(dtype).numpy_dtype))
    operand = device.view("a", array)
    spec = TensorMapSpec(
        element=Element.of(dtype),
        dims=(columns, rows, 1),
        strides_bytes=(operand.strides[0], operand.strides[0] * rows),
        box=(SPAN, ROWS, 1),
        swizzle=Swizzle(swizzle),
    )
    tile = StructArgument((out,), lambda address: struct.pack("<QQIIf4x", address, wide * SPAN, rows, columns, 1.5))
    device.launch(kernel, Launch(tall * wide, (TensorMapArgument(operand, spec), tile), writes=out), stream=stream)
    return out.array


@pytest.mark.parametrize("swizzle", ["none", "128B"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("rows", "columns", "ld"), [(40, 64, 64), (83, 131, 136), (1, 8, 8), (200, 65, 200)])
def test_tma_copy(
    device: CudaDevice, copy_kernel: Any, rows: int, columns: int, ld: int, dtype: str, swizzle: str
) -> None:
    import cupy

    numbers = np.random.default_rng(rows).standard_normal((rows, ld)).astype(Element.of(dtype).numpy_dtype)
    copied = device.to_host(copy(device, copy_kernel(swizzle), cupy.asarray(numbers)[:, :columns], dtype, swizzle))
    assert (copied[:rows, :columns] == numbers[:, :columns]).all()
    assert not copied[rows:].any()
    assert not copied[:, columns:].any()


def test_the_launch_is_in_the_order_of_the_callers_stream(device: CudaDevice, copy_kernel: Any) -> None:
    """A stream that is kept busy first: a launch on any other stream would see the old contents."""
    import cupy

    kernel = copy_kernel("128B")
    source, ones = cupy.zeros((40, 64), np.float16), cupy.ones((40, 64), np.float16)
    big, product = cupy.ones((4096, 4096), np.float32), cupy.empty((4096, 4096), np.float32)
    cupy.matmul(big, big, out=product)
    copy(device, kernel, source, "f16", "128B")  # both loaded before: loading takes longer than the work below
    for named in (True, False):
        source[...] = 0
        cupy.cuda.Device().synchronize()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(100):
                cupy.matmul(big, big, out=product)
            source.data.copy_from_device_async(ones.data, ones.nbytes)
            if not named:
                copied = copy(device, kernel, source, "f16", "128B")
        if named:
            copied = copy(device, kernel, source, "f16", "128B", stream=stream)
        assert not stream.done, "the launch waited for the stream"
        stream.synchronize()
        assert (device.to_host(copied) == 1).all()
    assert cupy.cuda.get_current_stream() == cupy.cuda.Stream.null


def test_bf16_arrays_are_seen_as_such(device: CudaDevice) -> None:
    import cupy

    array = cupy.zeros((3, 8), ml_dtypes.bfloat16)
    operand = device.view("a", array)
    assert operand.dtype == Element.of("bf16").numpy_dtype
    assert (operand.shape, operand.strides, operand.address) == ((3, 8), (16, 2), array.data.ptr)


def test_what_is_no_array_of_this_device_is_refused(device: CudaDevice) -> None:
    with pytest.raises(OperandError, match=r"numpy.ndarray; needs an array in the memory of a CUDA device"):
        device.view("a", np.zeros((3, 8)))
    with pytest.raises(OperandError, match="__cuda_stream__"):
        device.look((device.namespace.zeros((3, 8)), None, None, None), 7)


def test_other_architectures_are_refused(device: CudaDevice) -> None:
    from blasdx.devices import select

    other = 1000 if device.sm != 1000 else 1030
    with pytest.raises(ArchMismatchError, match=f"SM {other}"):
        select(other, device)


def test_what_the_driver_refuses_is_an_error(device: CudaDevice, copy_kernel: Any) -> None:
    import cupy

    with pytest.raises(LaunchError, match="CUDA_ERROR_INVALID_VALUE"):
        copy(device, copy_kernel("128B"), cupy.zeros((40, 65), np.float16), "f16", "128B")  # rows of 130 B
