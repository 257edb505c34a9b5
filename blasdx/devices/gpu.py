"""One GPU of this process: its context, the kernels loaded there, and launches in the form the driver takes.

CuPy launches through cuLaunchKernel, which knows no cluster, and cuda.core has no public names for TMA swizzles; hence
the driver's own calls here. Nothing synchronises.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from blasdx.devices.driver import attribute_of, call, refusal, sm_of
from blasdx.devices.protocol import Addresses, Arrays, Launch, TensorMapArgument
from blasdx.errors import LaunchError
from blasdx.operands import TMA_ALIGNMENT

if TYPE_CHECKING:
    from blasdx.compiler import CompiledKernel
    from blasdx.plan import PipelinePlan

MAP_BYTES, MAP_ALIGNMENT = 128, 64
"""Of a tensor map in host memory (CUDA driver API, CUtensorMap)."""

PORTABLE_CLUSTER = 8
"""CTAs of a cluster that every device takes (CUDA driver API, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)."""


class Gpu:
    """A device by its number; `gpu` makes one a process."""

    def __init__(self, index: int) -> None:
        call(driver.cuInit(0))
        self.index = index
        self.sm = sm_of(index)
        self.processors = attribute_of(index, "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT")
        self.product = call(driver.cuDeviceGetName(128, call(driver.cuDeviceGet(index)))).split(b"\0")[0].decode()
        # The one that CuPy, PyTorch and the runtime API use.
        self._context = call(driver.cuDevicePrimaryCtxRetain(call(driver.cuDeviceGet(index))))
        self._context_address = int(self._context)
        self._functions: dict[str, Any] = {}
        self._loading = threading.Lock()

    @contextmanager
    def current(self) -> Iterator[None]:
        """This device as the thread's current one; whichever was before is so again afterwards."""
        if self.is_current():
            yield
            return
        call(driver.cuCtxPushCurrent(self._context))
        try:
            yield
        finally:
            driver.cuCtxPopCurrent()

    def is_current(self) -> bool:
        """Whether it is the thread's current device."""
        status, context = driver.cuCtxGetCurrent()
        if status:
            raise refusal(status)
        return int(context) == self._context_address

    def function(self, kernel: CompiledKernel, stream: int) -> Any:
        """The kernel's function, loaded once a process, with its shared memory opted into.

        Raises
        ------
        LaunchError
            It is not loaded yet, and the stream is being captured, which loading would break.
        """
        key = kernel.source.fingerprint
        with self._loading:
            if key not in self._functions:
                if self.captures(stream):
                    text = (
                        f"{kernel.source.entry} is not loaded yet, and cannot be while its stream is being captured "
                        "into a graph; nothing was launched, and the capture goes on. Call Gemm.prepare(...), or the "
                        "Gemm itself, once before the capture begins"
                    )
                    raise LaunchError(text, status="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
                with self.current(), unrecorded():
                    self._functions[key] = self._load(kernel)
            return self._functions[key]

    def captures(self, stream: int) -> bool:
        """Whether what is enqueued on the stream goes into a graph."""
        with self.current():
            status, capture = driver.cuStreamIsCapturing(stream)
        if status == driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
            return True  # the legacy stream, while another one is captured
        if status:
            raise refusal(status)
        return bool(capture != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)

    def _load(self, kernel: CompiledKernel) -> Any:
        plan, attribute = kernel.source.plan, driver.CUfunction_attribute
        library = call(driver.cuLibraryLoadData(kernel.cubin, [], [], 0, [], [], 0))
        loaded = call(driver.cuLibraryGetKernel(library, kernel.source.entry.encode()))
        device = call(driver.cuDeviceGet(self.index))
        call(driver.cuKernelSetAttribute(*self._shared_memory(plan), loaded, device))
        if getattr(plan, "cluster_size", 1) > PORTABLE_CLUSTER:
            allowed = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            call(driver.cuKernelSetAttribute(allowed, 1, loaded, device))
        return call(driver.cuKernelGetFunction(loaded))

    def _shared_memory(self, plan: PipelinePlan) -> tuple[Any, int]:
        """The attribute of a kernel that lets it have its shared memory, and the value.

        In the oversized mode the driver does not look at the dynamic size's attribute (cuBLASDx 0.8 Blackwell card).

        Raises
        ------
        LaunchError
            The device has less oversized shared memory than the plan takes.
        """
        attribute = driver.CUfunction_attribute
        if not plan.oversized:
            return attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, plan.smem_total
        has = attribute_of(self.index, "CU_DEVICE_ATTRIBUTE_MAX_OVERSIZED_SHARED_MEMORY_PER_BLOCK")
        if plan.smem_total > has:
            text = (
                f"the plan takes {plan.smem_total:,} B of oversized shared memory, and a block of CUDA device "
                f"{self.index} has at most {has:,} B; plan a smaller depth"
            )
            raise LaunchError(text, status="CUDA_ERROR_INVALID_VALUE")
        mode = driver.CUsharedMemoryMode.CU_SHARED_MEMORY_MODE_ALLOW_OVERSIZED_SHARED_MEMORY
        return attribute.CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE, int(mode)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Calls that no graph records: those that another stream is being captured into are left as they are."""
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call(driver.cuThreadExchangeStreamCaptureMode(relaxed))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


_making = threading.Lock()


@functools.cache
def _made(index: int) -> Gpu:
    return Gpu(index)


def gpu(index: int) -> Gpu:
    """The GPU of this number: one object a process, so that a kernel is loaded once."""
    with _making:
        return _made(index)


class EncodedLaunch:
    """A launch whose parameters lie where the driver reads them, with addresses that can be replaced.

    Parameters are copied by the driver when it launches, so that one set serves any number of launches.
    """

    def __init__(self, device: Gpu, function: Any, launch: Launch, *, block_dim: int, shared_bytes: int) -> None:
        self._gpu = device
        self._function = function
        with device.current():  # a thread that has not used CUDA yet has no context, and encoding needs one
            self._parameters = [
                _Map(one, launch.names) if isinstance(one, TensorMapArgument) else _Struct(one, launch.names)
                for one in launch.arguments
            ]
        self._pointers = (ctypes.c_void_p * len(self._parameters))(*(one.pointer for one in self._parameters))
        self._pointer = ctypes.addressof(self._pointers)
        self._config = _config(launch, block_dim, shared_bytes)
        if launch.cluster > 1:
            self._require_room(launch.cluster, shared_bytes)
        self._addresses: Addresses | None = None
        self._stream: int | None = None
        self._using = threading.Lock()

    def _require_room(self, cluster: int, shared_bytes: int) -> None:
        """Raise where the device has nowhere to put one cluster: the launch would fail without a reason."""
        with self._gpu.current():
            status, clusters = driver.cuOccupancyMaxActiveClusters(self._function, self._config)
        if not status and clusters == 0:
            text = (
                f"no cluster of {cluster} CTAs with {shared_bytes:,} B of shared memory each fits on CUDA device "
                f"{self._gpu.index}: its CTAs share one GPC; plan a smaller BlocksPerCluster"
            )
            raise LaunchError(text, status="CUDA_ERROR_INVALID_CLUSTER_SIZE")

    def __call__(self, addresses: Addresses, arrays: Arrays, queue: int) -> None:
        """Launch, with operands at these addresses."""
        if self._gpu.is_current():
            self._launch(addresses, queue)
        else:
            with self._gpu.current():
                self._launch(addresses, queue)

    def _launch(self, addresses: Addresses, stream: int) -> None:
        with self._using:  # from the first replaced address until the driver has copied all
            if addresses != self._addresses:
                self._addresses = None
                for one in self._parameters:
                    one.move(addresses)
                self._addresses = addresses
            if stream != self._stream:
                self._config.hStream = self._stream = stream
            (status,) = driver.cuLaunchKernelEx(self._config, self._function, self._pointer, 0)
        if status:
            raise refusal(status)


def _config(launch: Launch, block_dim: int, shared_bytes: int) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = block_dim, 1, 1
    config.sharedMemBytes = shared_bytes
    if launch.cluster > 1:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimensions = attribute.value.clusterDim
        dimensions.x, dimensions.y, dimensions.z = launch.cluster, 1, 1
        config.attrs = [attribute]
        config.numAttrs = 1
    return config


class _Map:
    """A tensor map as a parameter."""

    def __init__(self, argument: TensorMapArgument, names: tuple[str, ...]) -> None:
        self._slot = names.index(argument.operand.name)
        self._memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        start = ctypes.addressof(self._memory)
        self.pointer = start + -start % MAP_ALIGNMENT
        ctypes.memmove(self.pointer, encode_tensor_map(argument), MAP_BYTES)
        self._map = driver.CUtensorMap(self.pointer)

    def move(self, addresses: Addresses) -> None:
        address = addresses[self._slot]
        if address % TMA_ALIGNMENT:
            return  # the kernel sees the same address and does not look at the map
        (status,) = driver.cuTensorMapReplaceAddress(self._map, address)
        if status:
            raise refusal(status)


class _Struct:
    """A struct as a parameter."""

    def __init__(self, argument: Any, names: tuple[str, ...]) -> None:
        self._slots = [None if one is None else names.index(one.name) for one in argument.operands]
        self._pack: Callable[..., bytes] = argument.pack
        packed = argument.bytes(lambda operand: operand.address)
        self._bytes = ctypes.create_string_buffer(packed, len(packed))
        self.pointer = ctypes.addressof(self._bytes)

    def move(self, addresses: Addresses) -> None:
        if self._slots:
            self._bytes.raw = self._pack(*[0 if slot is None else addresses[slot] for slot in self._slots])


def encode_tensor_map(argument: TensorMapArgument) -> bytes:
    """The 128 bytes of a tensor map, made by the driver. Coordinates outside the array read as zero."""
    spec = argument.spec
    rank = len(spec.dims)
    encoded = call(
        driver.cuTensorMapEncodeTiled(
            getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_DATA_TYPES[spec.element.name]}"),
            rank,
            argument.operand.address // TMA_ALIGNMENT * TMA_ALIGNMENT,
            [driver.cuuint64_t(extent) for extent in spec.dims],
            [driver.cuuint64_t(stride) for stride in spec.strides_bytes],
            [driver.cuuint32_t(extent) for extent in spec.box],
            [driver.cuuint32_t(1)] * rank,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{spec.swizzle.upper()}"),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    return ctypes.string_at(int(encoded.getPtr()), MAP_BYTES)


# tf32 travels as f32: the tensor-map type of that name would round on the way. 8-bit floats are bytes to TMA.
_DATA_TYPES = {
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "tf32": "FLOAT32",
    "f64": "FLOAT64",
    "s32": "INT32",
    "e4m3": "UINT8",
    "e5m2": "UINT8",
    "u8": "UINT8",
    "s8": "UINT8",
}
