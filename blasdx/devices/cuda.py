"""CUDA: CuPy owns arrays and streams, cuda.bindings encodes tensor maps and launches.

CuPy launches through cuLaunchKernel, which knows no cluster, and cuda.core has no public names for TMA swizzles; hence
the driver's own calls here. Nothing synchronises, and no stream is used but the caller's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from blasdx.devices.protocol import Launch, StructArgument, TensorMapArgument
from blasdx.elements import Element
from blasdx.errors import LaunchError, MissingPackageError, NoDriverError
from blasdx.operands import Operand, reject

if TYPE_CHECKING:
    from blasdx.compiler import CompiledKernel

NEEDS_DRIVER = (
    "Gemm and gemm() on a CUDA device need one; check, suggest_pipeline, render, compile and sass do not, and neither "
    "does the emulator (device='emulator')"
)


def require_driver() -> None:
    """Find the CUDA driver before any library looks for it: a second failing look-up hangs in cuda-core 1.2.

    Raises
    ------
    NoDriverError
        There is none.
    """
    from cuda import pathfinder

    try:
        pathfinder.load_nvidia_dynamic_lib("cuda")
    except RuntimeError as error:
        raise NoDriverError(f"this machine has no CUDA driver (libcuda.so.1 is not found): {NEEDS_DRIVER}") from error


def current_sm() -> int | None:
    """The SM number of the thread's current CUDA device, else of device 0; None without a driver or a device."""
    from cuda.bindings import driver

    if not gpus():
        return None
    context = call(driver.cuCtxGetCurrent())
    return sm_of(int(call(driver.cuCtxGetDevice())) if int(context) else 0)


def gpus() -> tuple[tuple[str, int], ...]:
    """Name and SM number of each CUDA device; none without a driver."""
    from cuda.bindings import driver

    if driver_version() is None:
        return ()
    try:
        call(driver.cuInit(0))
    except LaunchError:  # a driver without a device
        return ()
    count = call(driver.cuDeviceGetCount())
    names = (call(driver.cuDeviceGetName(128, call(driver.cuDeviceGet(index)))) for index in range(count))
    return tuple((name.split(b"\0")[0].decode(), sm_of(index)) for index, name in enumerate(names))


def driver_version() -> tuple[int, int] | None:
    """The CUDA version that the driver supports; None without a driver."""
    from cuda.bindings import driver

    try:
        require_driver()
    except NoDriverError:
        return None
    version = int(call(driver.cuDriverGetVersion()))
    return version // 1000, version % 1000 // 10


def sm_of(index: int) -> int:
    """The SM number of a device by its index: compute capability 10.3 is 1030."""
    from cuda.bindings import driver

    attribute = driver.CUdevice_attribute
    device = call(driver.cuDeviceGet(index))
    major = call(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
    minor = call(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
    return int(major) * 100 + int(minor) * 10


def call(result: tuple[Any, ...]) -> Any:
    """What a call of cuda.bindings returned, without its status.

    Raises
    ------
    LaunchError
        The status is not success.
    """
    from cuda.bindings import driver

    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise LaunchError(f"{status.name}: {text.decode() if text else 'no description'}", status=status.name)
    return values[0] if len(values) == 1 else tuple(values)


class CudaDevice:
    """One CUDA device.

    Parameters
    ----------
    index : int, optional
        The device's number; CuPy's current device when left out.

    Raises
    ------
    NoDriverError
        This machine has no CUDA driver.
    MissingPackageError
        CuPy is not installed.
    """

    def __init__(self, index: int | None = None) -> None:
        require_driver()
        try:
            import cupy
        except ModuleNotFoundError as error:
            text = "arrays on a CUDA device are CuPy's: pip install 'blasdx[cupy]'"
            raise MissingPackageError(text, extra="cupy") from error
        self.index = cupy.cuda.runtime.getDevice() if index is None else index
        self.sm = sm_of(self.index)
        self._cupy = cupy
        self._kernels: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The product name, the index and the SM number."""
        properties = self._cupy.cuda.runtime.getDeviceProperties(self.index)
        return f"{properties['name'].decode()} (CUDA device {self.index}, SM {self.sm})"

    @property
    def processors(self) -> int:
        """Streaming multiprocessors."""
        return int(self._cupy.cuda.Device(self.index).attributes["MultiProcessorCount"])

    @property
    def namespace(self) -> Any:
        """CuPy."""
        return self._cupy

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy in host memory; waits for the current stream."""
        copy: np.ndarray[Any, Any] = self._cupy.asnumpy(array)
        return copy

    def view(self, name: str, array: object) -> Operand:
        """Look at a CuPy array on this device."""
        if not isinstance(array, self._cupy.ndarray):
            reject(
                name,
                "array-library",
                f"{type(array).__module__}.{type(array).__name__}",
                "a CuPy array",
                f"{self.name} computes in its own memory.",
                f"cupy.asarray({name}), which copies only from the host; cupy.from_dlpack({name}) for a device array",
            )
        held: Any = array
        if held.device.id != self.index:
            reject(
                name,
                "device",
                f"an array on CUDA device {held.device.id}",
                f"one on CUDA device {self.index}",
                "A kernel runs on one device.",
                f"copy it there, or Gemm(kernel, device=CudaDevice({held.device.id}))",
            )
        return Operand(name, held.shape, held.strides, held.dtype, held.data.ptr, array=held)

    def empty(self, shape: tuple[int, int], element: Element, *, row_major: bool, stream: object) -> Any:
        """A new CuPy array that the stream may write at once."""
        with self._current(stream):
            return self._cupy.empty(shape, element.numpy_dtype, order="C" if row_major else "F")

    def scale(self, out: Operand, factor: np.float32, c: Operand | None, *, stream: object) -> None:
        """out = factor * c, or zeros without c."""
        with self._current(stream):
            out.array[...] = 0 if c is None else factor * c.array

    def launch(self, kernel: CompiledKernel, launch: Launch, *, stream: object) -> None:
        """Enqueue the kernel on the stream and return."""
        from cuda.bindings import driver

        plan = kernel.source.plan
        values = [self._encode(argument) for argument in launch.arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = plan.block_dim, 1, 1
        config.sharedMemBytes = plan.smem_total
        with self._current(stream) as current:
            config.hStream = current.ptr
            call(driver.cuLaunchKernelEx(config, self._load(kernel), ctypes.addressof(pointers), 0))

    def _load(self, kernel: CompiledKernel) -> Any:
        """The kernel's function on this device, loaded once, with its shared memory opted into."""
        from cuda.bindings import driver

        key = kernel.source.fingerprint
        if key not in self._kernels:
            plan = kernel.source.plan
            library = call(driver.cuLibraryLoadData(kernel.cubin, [], [], 0, [], [], 0))
            loaded = call(driver.cuLibraryGetKernel(library, kernel.source.entry.encode()))
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            device = call(driver.cuDeviceGet(self.index))
            call(driver.cuKernelSetAttribute(limit, plan.smem_total, loaded, device))
            self._kernels[key] = call(driver.cuKernelGetFunction(loaded))
        return self._kernels[key]

    def _encode(self, argument: TensorMapArgument | StructArgument) -> ctypes.Array[ctypes.c_char]:
        packed = (
            argument.bytes(lambda operand: operand.address)
            if isinstance(argument, StructArgument)
            else encode_tensor_map(argument)
        )
        return ctypes.create_string_buffer(packed, len(packed))

    @contextmanager
    def _current(self, stream: object) -> Iterator[Any]:
        """This device and the stream as CuPy's current ones; the caller's are left as they were found."""
        cuda = self._cupy.cuda
        with cuda.Device(self.index):
            if stream is None:
                yield cuda.get_current_stream()
                return
            if not hasattr(stream, "__cuda_stream__"):
                reject(
                    "stream",
                    "stream",
                    f"{type(stream).__module__}.{type(stream).__name__}",
                    "an object with __cuda_stream__",
                    "It is how CuPy, PyTorch, cuda.core and others hand a stream over.",
                    "pass such a stream, or leave it out for CuPy's current one",
                )
            with cuda.Stream.from_external(stream) as current:
                yield current


def encode_tensor_map(argument: TensorMapArgument) -> bytes:
    """The 128 bytes of a tensor map, made by the driver. Coordinates outside the array read as zero."""
    from cuda.bindings import driver

    spec = argument.spec
    rank = len(spec.dims)
    encoded = call(
        driver.cuTensorMapEncodeTiled(
            getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_DATA_TYPES[spec.element.name]}"),
            rank,
            argument.operand.address,
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
    return ctypes.string_at(int(encoded.getPtr()), 128)


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
