"""Tests on a real GPU; they skip with the reason elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from blasdx.devices.cuda import CudaDevice
from blasdx.devices.driver import gpus
from blasdx.errors import MissingPackageError


@pytest.fixture(scope="session")
def device() -> CudaDevice:
    """The current CUDA device, Hopper or newer."""
    found = gpus()
    if not found:
        pytest.skip("no CUDA driver, or no device")
    if found[0][1] < 900:
        pytest.skip(f"{found[0][0]} is SM {found[0][1]}: TMA begins with SM 900")
    try:
        return CudaDevice()
    except MissingPackageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def hopper(device: CudaDevice) -> Any:
    """CuPy on a Hopper GPU."""
    if device.sm != 900:
        pytest.skip(f"these kernels are for SM 900; this is {device.name}")
    return device.namespace
