"""Streams, repeats, lifetimes and processes on a GPU: what a launch must not depend on."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda.core import Program, ProgramOptions

import blasdx as dx
from blasdx.arch import of
from blasdx.compiler import nvrtc_version
from blasdx.devices import Launch, StructArgument, TensorMapArgument
from blasdx.devices.cuda import CudaDevice
from blasdx.devices.driver import driver_version
from blasdx.devices.gpu import encode_tensor_map
from blasdx.elements import Element
from blasdx.layout.swizzle import Swizzle
from blasdx.layout.tensor_map import TensorMapSpec
from tests.gpu.test_wgmma import kernel

bf16 = ml_dtypes.bfloat16


def normals(cupy: Any, rows: int, columns: int, seed: int) -> Any:
    return cupy.asarray(np.random.default_rng(seed).standard_normal((rows, columns)).astype(bf16))


def bits(array: Any) -> Any:
    return array.view(np.uint32)


# ---- again and again


def test_thousands_of_small_launches_on_four_streams_at_once(hopper: Any) -> None:
    """Every launch finds its barriers as it left them; none waits for another's."""
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    b = normals(hopper, 128, 256, 1)
    operands = [normals(hopper, m, 256, m) for m in range(1, 9)]
    expected = [gemm(a, b.T) for a in operands]
    streams = [hopper.cuda.Stream(non_blocking=True) for _ in range(4)]
    outs = [[hopper.full((len(a), 128), np.nan, np.float32) for a in operands] for _ in streams]
    hopper.cuda.Device().synchronize()
    for _ in range(80):
        for stream, results in zip(streams, outs, strict=True):
            for a, out in zip(operands, results, strict=True):
                gemm(a, b.T, out=out, stream=stream)
    hopper.cuda.Device().synchronize()
    for results in outs:
        for out, true in zip(results, expected, strict=True):
            assert bool((bits(out) == bits(true)).all())


def test_the_same_bits_on_every_stream(hopper: Any) -> None:
    gemm = dx.Gemm(kernel((128, 128, 64), 256), "cuda")
    a, b = normals(hopper, 1000, 800, 1), normals(hopper, 777, 800, 2)
    first = gemm(a, b.T)
    hopper.cuda.Device().synchronize()
    for stream in (hopper.cuda.Stream(non_blocking=True), hopper.cuda.Stream(), hopper.cuda.Stream.ptds):
        with stream:
            again = gemm(a, b.T)
        stream.synchronize()
        assert bool((bits(again) == bits(first)).all())


# ---- lifetimes


def test_a_result_made_on_a_busy_stream_is_that_streams_memory(hopper: Any) -> None:
    """What is dropped before the kernel ran is not handed out to another stream meanwhile."""
    gemm = dx.Gemm(kernel((64, 64, 64), 128), "cuda")
    a, b = (hopper.asarray(np.ones((256, 64), bf16)) for _ in range(2))
    busy = hopper.ones((4096, 4096), np.float32)
    product = hopper.empty_like(busy)
    hopper.matmul(busy, busy, out=product)
    gemm(a, b.T)
    hopper.cuda.Device().synchronize()
    stream = hopper.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(50):
            hopper.matmul(busy, busy, out=product)
        kept = gemm(a, b.T)
        gemm(a, b.T)  # dropped at once
    junk = [hopper.full((256, 256), np.nan, np.float32) for _ in range(8)]
    stream.synchronize()
    assert bool((kept == 64).all())
    assert all(bool(hopper.isnan(array).all()) for array in junk)


# ---- arguments


DUMP = """
struct alignas(64) Map { unsigned char bytes[128]; };
struct Rest { unsigned char* out; unsigned long long magic; unsigned int tail; };

extern "C" __global__ void dump(const __grid_constant__ Map map, const __grid_constant__ Rest rest) {
  rest.out[threadIdx.x] = map.bytes[threadIdx.x];
  if (threadIdx.x < 8) rest.out[128 + threadIdx.x] = reinterpret_cast<const unsigned char*>(&rest.magic)[threadIdx.x];
  if (threadIdx.x < 4) rest.out[136 + threadIdx.x] = reinterpret_cast<const unsigned char*>(&rest.tail)[threadIdx.x];
}
"""


def test_a_kernel_sees_all_bytes_of_a_map_and_those_of_the_argument_behind_it(device: CudaDevice) -> None:
    cupy = device.namespace
    options = ProgramOptions(std="c++17", arch=of(device.sm).target("arch_specific"))
    cubin = bytes(Program(DUMP, "c++", options).compile("cubin").code)
    plan = SimpleNamespace(block_dim=128, smem_total=0, oversized=False)
    compiled: Any = SimpleNamespace(source=SimpleNamespace(entry="dump", fingerprint=DUMP, plan=plan), cubin=cubin)
    seen = device.view("out", cupy.zeros((1, 140), np.uint8))
    array = device.view("a", cupy.zeros((40, 64), np.float16))
    spec = TensorMapSpec(
        element=Element.of("f16"), dims=(64, 40), strides_bytes=(128,), box=(64, 40), swizzle=Swizzle("128B")
    )
    argument = TensorMapArgument(array, spec)
    magic = 0x0123456789ABCDEF
    rest = StructArgument((seen,), lambda address: struct.pack("<QQI4x", address, magic, 0x76543210))
    device.launch(compiled, Launch(1, (argument, rest), writes=seen), stream=None)
    got = device.to_host(seen.array).tobytes()
    assert got[:128] == encode_tensor_map(argument)
    assert got[128:] == struct.pack("<QI", magic, 0x76543210)


# ---- drivers, processes


def test_kernels_run_though_the_driver_is_older_than_the_compiler(hopper: Any) -> None:
    """They are machine code: a driver that had to compile their PTX would refuse it."""
    driver = driver_version()
    assert driver is not None
    if driver >= nvrtc_version():
        pytest.skip(f"driver {driver} is no older than NVRTC {nvrtc_version()}")
    ones = hopper.asarray(np.ones((5, 64), bf16))
    assert bool((dx.Gemm(kernel((64, 64, 64), 128), "cuda")(ones, ones.T) == 64).all())


def python(code: str, **more: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    folders = str(root), str(root / "tools")
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **more, "PYTHONPATH": os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


FORK = """
import os
import blasdx as dx
from tests.gpu.test_wgmma import kernel
child = os.fork()
if not child:
    import cupy
    ones = cupy.ones((5, 64), cupy.float16)
    right = bool((dx.Gemm(kernel((64, 64, 64), 128, precision="f16"), "cuda")(ones, ones.T) == 64).all())
    os._exit(0 if right else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.usefixtures("hopper")
def test_a_child_that_is_forked_after_the_import_can_use_the_gpu() -> None:
    result = python(FORK)
    assert result.stdout.strip() == "0", result.stderr
