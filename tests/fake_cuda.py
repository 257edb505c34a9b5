"""A CUDA driver that launches nothing and records what it was asked, for machines without one.

Only what decides about a launch is played: current contexts, captures, loaded kernels, tensor maps, statuses. Arrays
are CuPy's own, at addresses where there is no memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import cupy
import ml_dtypes
import numpy as np
from cuda.bindings import driver

from blasdx.devices import cuda, gpu
from blasdx.devices import driver as ours

SUCCESS = driver.CUresult.CUDA_SUCCESS
NONE, ACTIVE = (driver.CUstreamCaptureStatus(value) for value in (0, 1))


@dataclass
class Recorded:
    """One launch as the driver got it: parameters are their bytes, a map's begin with the address."""

    stream: int
    context: int
    grid: int
    cluster: int
    parameters: list[bytes]


@dataclass
class FakeCuda:
    """What a process with this driver did."""

    sm: int = 900
    devices: int = 2
    launches: list[Recorded] = field(default_factory=list)
    loaded: list[bytes] = field(default_factory=list)
    encoded: int = 0
    replaced: int = 0
    contexts: list[int] = field(default_factory=lambda: [100])
    capturing: set[int] = field(default_factory=set)
    status: Any = SUCCESS
    room: int = 66
    """Clusters that fit at once."""
    streams: dict[int, int] = field(default_factory=dict)
    sizes: tuple[int, ...] = (128, 128, 128, 80)
    """Bytes of the parameters of the kernels that are launched."""

    # ---- the driver's functions

    def cuInit(self, flags: int) -> Any:  # noqa: N802
        return (SUCCESS,)

    def cuDriverGetVersion(self) -> Any:  # noqa: N802
        return SUCCESS, 13000

    def cuDeviceGetCount(self) -> Any:  # noqa: N802
        return SUCCESS, self.devices

    def cuDeviceGet(self, index: int) -> Any:  # noqa: N802
        return SUCCESS, index

    def cuCtxGetDevice(self) -> Any:  # noqa: N802
        return SUCCESS, self.current_device()

    def cuDeviceGetName(self, length: int, device: int) -> Any:  # noqa: N802
        return SUCCESS, b"Fake GPU\0\0"

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> Any:  # noqa: N802
        values = {"MAJOR": self.sm // 100, "MINOR": self.sm // 10 % 10, "COUNT": 132}
        return SUCCESS, values[attribute.name.rpartition("_")[2]]

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:  # noqa: N802
        return SUCCESS, driver.CUcontext(100 + device)

    def cuCtxGetCurrent(self) -> Any:  # noqa: N802
        return SUCCESS, driver.CUcontext(self.contexts[-1])

    def cuCtxPushCurrent(self, context: Any) -> Any:  # noqa: N802
        self.contexts.append(int(context))
        return (SUCCESS,)

    def cuCtxPopCurrent(self) -> Any:  # noqa: N802
        return SUCCESS, driver.CUcontext(self.contexts.pop())

    def cuStreamIsCapturing(self, stream: int) -> Any:  # noqa: N802
        return SUCCESS, ACTIVE if int(stream) in self.capturing else NONE

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:  # noqa: N802
        return SUCCESS, mode

    def cuLibraryLoadData(self, code: bytes, *options: Any) -> Any:  # noqa: N802
        self.loaded.append(code)
        return SUCCESS, len(self.loaded)

    def cuLibraryGetKernel(self, library: int, name: bytes) -> Any:  # noqa: N802
        return SUCCESS, library

    def cuKernelSetAttribute(self, attribute: Any, value: int, kernel: Any, device: int) -> Any:  # noqa: N802
        return (SUCCESS,)

    def cuKernelGetFunction(self, kernel: Any) -> Any:  # noqa: N802
        return SUCCESS, driver.CUfunction(kernel)

    def cuOccupancyMaxActiveClusters(self, function: Any, config: Any) -> Any:  # noqa: N802
        return SUCCESS, self.room

    def cuGetErrorString(self, status: Any) -> Any:  # noqa: N802
        return SUCCESS, b"what the driver says"

    def cuTensorMapEncodeTiled(self, kind: Any, rank: int, address: int, *rest: Any) -> Any:  # noqa: N802
        self.encoded += 1
        encoded = driver.CUtensorMap()
        ctypes.memset(int(encoded.getPtr()), 0, 128)
        ctypes.c_uint64.from_address(int(encoded.getPtr())).value = address
        return SUCCESS, encoded

    def cuTensorMapReplaceAddress(self, encoded: Any, address: int) -> Any:  # noqa: N802
        self.replaced += 1
        ctypes.c_uint64.from_address(int(encoded.getPtr())).value = address
        return (SUCCESS,)

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: int, extra: int) -> Any:  # noqa: N802
        if self.status:
            return (self.status,)
        pointers = (ctypes.c_void_p * len(self.sizes)).from_address(parameters)
        self.launches.append(
            Recorded(
                stream=int(config.hStream),
                context=self.contexts[-1],
                grid=config.gridDimX,
                cluster=config.attrs[0].value.clusterDim.x if config.numAttrs else 1,
                parameters=[ctypes.string_at(at, size) for at, size in zip(pointers, self.sizes, strict=True)],
            )
        )
        return (SUCCESS,)

    # ---- CuPy

    def current_device(self) -> int:
        return self.contexts[-1] - 100

    def current_stream(self, device: int = 0) -> Any:
        return SimpleNamespace(ptr=self.streams.get(device, 0))

    def array(
        self, shape: tuple[int, ...], dtype: Any = ml_dtypes.bfloat16, *, at: int, device: int = 0, order: str = "row"
    ) -> Any:
        """A CuPy array at an address, tight, whose last two dimensions are in row or column order."""
        *batches, rows, columns = shape
        tall = (*batches, rows, columns) if order == "row" else (*batches, columns, rows)
        memory = cupy.cuda.UnownedMemory(at, int(np.prod(shape)) * np.dtype(dtype).itemsize, self, device)
        array = cupy.ndarray(tall, dtype, cupy.cuda.MemoryPointer(memory, 0))
        return array if order == "row" else array.swapaxes(-1, -2)


@contextmanager
def fake_cuda(**given: Any) -> Iterator[FakeCuda]:
    """Let the process have this driver."""
    fake = FakeCuda(**given)
    gpu._made.cache_clear()
    with ExitStack() as stack:
        for name in dir(FakeCuda):
            if name.startswith("cu") and name[2].isupper():
                stack.enter_context(mock.patch.object(driver, name, getattr(fake, name)))
        for module in (ours, cuda):
            stack.enter_context(mock.patch.object(module, "require_driver"))
        stack.enter_context(mock.patch.object(cupy.cuda.runtime, "getDevice", fake.current_device))
        stack.enter_context(mock.patch.object(cupy.cuda, "get_current_stream", fake.current_stream))
        yield fake
    gpu._made.cache_clear()


class FakeTensor:
    """As much of a torch.Tensor as is looked at."""

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, at: int, device: int | None = 0
    ) -> None:
        self.shape, self._strides, self.dtype, self._at = shape, strides, f"torch.{dtype}", at
        self.is_cuda = device is not None
        self.device = SimpleNamespace(index=device)
        self.requires_grad = False

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def data_ptr(self) -> int:
        return self._at


@contextmanager
def fake_torch(stream: int = 0, *, grad: bool = True) -> Iterator[None]:
    """A torch module that somebody has imported."""
    torch = SimpleNamespace(
        Tensor=FakeTensor,
        is_grad_enabled=lambda: grad,
        cuda=SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=stream + device)),
    )
    with mock.patch.dict(sys.modules, {"torch": torch}):
        yield
