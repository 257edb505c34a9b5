"""The CUDA driver: whether there is one, which devices it has, and what its refusals mean."""

from __future__ import annotations

from typing import Any

from blasdx.errors import LaunchError, NoDriverError

NEEDS_DRIVER = (
    "Gemm and gemm() on a CUDA device need one; check, suggest_pipeline, render, compile and sass do not, and neither "
    "does the emulator (device='emulator')"
)

STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS",
        "LAUNCH_FAILED",
        "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "HARDWARE_STACK_ERROR",
        "ASSERT",
        "LAUNCH_TIMEOUT",
        "ECC_UNCORRECTABLE",
        "EXTERNAL_DEVICE",
        "CONTAINED",
        "TENSOR_MEMORY_LEAK",
    )
)
"""States that a failed kernel leaves a process in: every later call returns them (CUDA driver API, CUresult)."""

BEFORE = (
    "an earlier kernel of this process failed and left its CUDA context unusable; this call launched nothing. Run the "
    "calls before it under compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1, to find the one"
)
FORKED = (
    "CUDA cannot be used in a process that was forked after its first use; start children with the spawn method "
    "(multiprocessing.set_start_method('spawn')), or use CUDA only after the fork"
)
ADVICE = {
    "CUDA_ERROR_NOT_INITIALIZED": FORKED,
    "CUDA_ERROR_INVALID_HANDLE": "the stream may be destroyed, or belong to another device than the operands",
    "CUDA_ERROR_INVALID_CONTEXT": "the stream may belong to another device than the operands",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "the capture was broken by an earlier call; end it and begin another",
}


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


def call(result: tuple[Any, ...]) -> Any:
    """What a call of cuda.bindings returned, without its status.

    Raises
    ------
    LaunchError
        The status is not success.
    """
    status, *values = result
    if status:
        raise refusal(status)
    return values[0] if len(values) == 1 else tuple(values)


def refusal(status: Any) -> LaunchError:
    """What to raise for a status of the driver."""
    from cuda.bindings import driver

    name = status.name
    _, text = driver.cuGetErrorString(status)
    said = f"{name}: {text.decode() if text else 'no description'}"
    advice = BEFORE if name in STICKY else ADVICE.get(name)
    return LaunchError(f"{said}: {advice}" if advice else said, status=name, earlier=name in STICKY)


def current_sm() -> int | None:
    """The SM number of the thread's current CUDA device, else of device 0; None without a driver or a device."""
    from cuda.bindings import driver

    if not gpus():
        return None
    context = call(driver.cuCtxGetCurrent())
    return sm_of(int(call(driver.cuCtxGetDevice())) if int(context) else 0)


def gpus() -> tuple[tuple[str, int], ...]:
    """Name and SM number of each CUDA device; none without a driver.

    Raises
    ------
    LaunchError
        This process was forked from one that used CUDA.
    """
    from cuda.bindings import driver

    if driver_version() is None:
        return ()
    try:
        call(driver.cuInit(0))
    except LaunchError as error:
        if error.status == "CUDA_ERROR_NOT_INITIALIZED":
            raise
        return ()  # a driver without a device
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
    attribute = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_"
    return attribute_of(index, f"{attribute}MAJOR") * 100 + attribute_of(index, f"{attribute}MINOR") * 10


def attribute_of(index: int, name: str) -> int:
    """A device attribute by its name in the driver API."""
    from cuda.bindings import driver

    attribute = getattr(driver.CUdevice_attribute, name)
    return int(call(driver.cuDeviceGetAttribute(attribute, call(driver.cuDeviceGet(index)))))
