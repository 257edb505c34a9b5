"""The device that a kernel gets when none is named."""

from __future__ import annotations

from blasdx.devices.cuda import CudaDevice
from blasdx.devices.driver import current_sm
from blasdx.devices.protocol import Device
from blasdx.errors import ArchMismatchError


def select(sm: int, device: Device | str | None = None) -> Device:
    """Find the device for kernels of one SM number.

    Parameters
    ----------
    sm : int
        The descriptor's SM number, 1000 for a B200.
    device : Device or {"cuda", "emulator"}, optional
        Left out: CUDA where the current device's architecture is the kernel's, otherwise the emulator.

    Raises
    ------
    NoDriverError
        "cuda" was asked for on a machine without a driver.
    ArchMismatchError
        The device does not run kernels for this SM.
    ValueError
        No device has this name.
    TypeError
        ``device`` is no device.
    """
    if device is None:
        device = "cuda" if current_sm() == sm else "emulator"
    if device == "cuda":
        device = CudaDevice()
    elif device == "emulator":
        from blasdx.devices.emulated import EmulatedDevice  # translates PTX to Python: not needed beside a GPU

        device = EmulatedDevice()
    elif isinstance(device, str):
        raise ValueError(f"no device is called {device!r}: 'cuda' or 'emulator'")
    if not hasattr(device, "look"):
        raise TypeError(f"device = {device!r} is no device: 'cuda', 'emulator', CudaDevice(...) or EmulatedDevice(...)")
    if device.sm not in (None, sm):
        text = (
            f"{device.name} does not run this kernel: code compiled for SM {sm} arch_specific runs on SM {sm} alone; "
            f"change the descriptor's SM, or pass device='emulator'"
        )
        raise ArchMismatchError(text, device=device.name, sm=sm)
    return device
