"""Choosing a device, on a machine that may have none."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from blasdx.devices import StructArgument, select
from blasdx.devices.cuda import CudaDevice
from blasdx.devices.driver import driver_version, gpus
from blasdx.devices.emulated import EmulatedDevice
from blasdx.errors import NoDriverError, OperandError
from blasdx.operands import Operand

without_driver = pytest.mark.skipif(driver_version() is not None, reason="this machine has a CUDA driver")


@without_driver
def test_without_a_driver_the_emulator_runs_and_cuda_says_why_it_cannot() -> None:
    assert gpus() == ()
    assert isinstance(select(1000), EmulatedDevice)
    for _ in range(2):  # the second look-up must not hang
        with pytest.raises(NoDriverError, match=r"libcuda\.so\.1 is not found") as caught:
            CudaDevice()
    assert "render, compile and sass do not" in str(caught.value)
    with pytest.raises(NoDriverError):
        select(1000, "cuda")


def test_a_device_is_taken_as_it_is() -> None:
    device = EmulatedDevice(schedule="lazy", seed=3, processors=5)
    assert select(1000, device) is device
    assert select(1030, device) is device
    assert "lazy" in device.name
    with pytest.raises(ValueError, match="no device is called 'gpu'"):
        select(1000, "gpu")


def test_structs_are_packed_with_the_addresses_of_one_device() -> None:
    out = Operand("out", (1, 1), (4, 4), np.dtype(np.float32), 0)
    argument = StructArgument((out, None), lambda *addresses: struct.pack("<QQ", *addresses))
    assert argument.bytes(lambda operand: 77 if operand is out else 0) == struct.pack("<QQ", 77, 0)


@pytest.mark.parametrize("array", [[[1.0]], None, 3, "a"])
def test_the_emulator_takes_numpy_arrays_only(array: Any) -> None:
    with pytest.raises(OperandError, match="needs a NumPy array"):
        EmulatedDevice().view("a", array)
