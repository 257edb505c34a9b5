"""What an H200 really did, against the emulator's units: encodings, copies, operand layouts, arithmetic.

``measured/h200.json`` and ``.npz`` hold arguments and results recorded on one (driver 580.159.04): maps encoded by
cuTensorMapEncodeTiled, boxes loaded and reduced by TMA, and wgmma products of 64 x 128, of which some rows and columns
are kept. No tcgen05 hardware is behind any of it, but both generations share these definitions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from blasdx.emulator.boxes import combine
from blasdx.emulator.errors import DecodeError
from blasdx.emulator.matrix import decode_shared, operand, read
from blasdx.emulator.numerics import EXACT, WGMMA, WGMMA_FP8, Factor, multiply
from blasdx.emulator.tensormap import TensorMap

FOLDER = Path(__file__).parent / "measured"
FACTS: dict[str, Any] = json.loads((FOLDER / "h200.json").read_text())
BASE = 0x10000000
# Swizzles with 32- and 64-byte atoms and 4- and 6-bit elements do not exist on this device.
LATER = ("ATOM", "16u")


@pytest.fixture(scope="module")
def arrays() -> dict[str, NDArray[Any]]:
    with np.load(FOLDER / "h200.npz") as file:
        return dict(file)


def test_tensor_maps_are_the_drivers_bit_for_bit() -> None:
    for fact in FACTS["maps"]:
        arguments = fact["arguments"]
        if any(word in arguments["swizzle"] + arguments["dtype"] for word in LATER):
            assert fact["bytes"] is None
            continue
        if fact["bytes"] is None:
            with pytest.raises(DecodeError):
                TensorMap(**arguments)
            continue
        tensor_map = TensorMap(**arguments)
        assert tensor_map.to_bytes().hex() == fact["bytes"], arguments
        assert TensorMap.from_bytes(bytes.fromhex(fact["bytes"])) == tensor_map
    assert sum(fact["bytes"] is not None for fact in FACTS["maps"]) > 80


@pytest.mark.parametrize("fact", FACTS["loads"], ids=lambda fact: fact["name"])
def test_loads_put_every_byte_where_the_device_put_it(fact: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    source = arrays[fact["name"] + "_src"] if fact["own_source"] else arrays["source16"]
    keys = ("dtype", "dims", "strides_bytes", "box", "element_strides", "swizzle")
    tensor_map = TensorMap(BASE, **{key: fact[key] for key in keys})

    def view(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[np.uint8]:
        return np.lib.stride_tricks.as_strided(source[address - BASE :], shape, strides)

    expected = arrays[fact["name"]]
    shared = np.full(0x800 + len(expected), 0xEE, np.uint8)
    tile = tensor_map.load(fact["coordinates"], view)
    shared.view(np.complex128)[tensor_map.units(0x800)] = tile.view(np.complex128)
    assert np.array_equal(shared[0x800:], expected)


@pytest.mark.parametrize("fact", FACTS["reductions"], ids=lambda fact: f"{fact['op']}-{fact['dtype']}")
def test_reductions(fact: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    name = fact["name"]
    new = np.zeros(1024, np.uint8) if name is None else arrays[name + "_new"]
    old = np.zeros(3 * 1024, np.uint8) if name is None else arrays[name + "_old"].copy()
    rows = 12 if name is None else len(old) // fact["row_bytes"]
    row = 64 if name is None else fact["row_bytes"]
    size = 8 * row // 16 // 8 if name is None else row // 16
    tensor_map = TensorMap(BASE, fact["dtype"], [row // size, rows], [row], [row // size, 10])

    def view(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[np.uint8]:
        return np.lib.stride_tricks.as_strided(old[address - BASE :], shape, strides)

    if name is None:  # an illegal instruction there
        with pytest.raises(DecodeError, match="does not exist"):
            tensor_map.reduce([0, 2], new, view, fact["op"])
        return
    tensor_map.reduce([0, 2], new, view, fact["op"])
    assert np.array_equal(old, arrays[name])


@pytest.mark.parametrize("fact", FACTS["layouts"], ids=lambda fact: f"{fact['a']}-{fact['b']}-{fact['a_mn_major']:d}")
def test_operand_layouts_and_base_offsets(fact: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    shared = np.zeros(1 << 17, np.uint8)
    shared[: len(arrays["image"])] = arrays["image"]

    def codes(bits: str, mn_major: bool, rows: int) -> NDArray[Any]:
        where = operand(decode_shared(int(bits, 16), "sm_90a"), mn_major, rows, 16, 16)
        return read(shared.view(np.complex128), where)

    a = Factor(codes(fact["a"], fact["a_mn_major"], 64), "bf16")
    b = Factor(codes(fact["b"], fact["b_mn_major"], 128)[FACTS["columns"]], "bf16")
    assert np.array_equal(multiply(a, b, None, "f32").view(np.float32), arrays[fact["d"]])
    assert arrays[fact["d"]].any()


@pytest.mark.parametrize("fact", FACTS["products"], ids=lambda fact: f"{fact['element']}-{fact['d']}-{fact['name']}")
def test_the_hardware_model_gives_every_bit(fact: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    a, b, c, d = (arrays[f"{fact['name']}_{letter}"] for letter in "abcd")
    element = fact["element"]
    model = WGMMA_FP8 if element in ("e4m3", "e5m2") else WGMMA
    got = multiply(Factor(a, element), Factor(b, element), c, fact["d"], model, saturate=fact["saturate"])
    assert np.array_equal(got, d)


def test_the_recorded_products_tell_the_models_apart(arrays: dict[str, NDArray[Any]]) -> None:
    for fact in FACTS["products"]:
        if fact["d"] != "f32" or fact["name"] in [p["name"] for p in FACTS["products"][-2:]]:
            continue
        a, b, c, d = (arrays[f"{fact['name']}_{letter}"] for letter in "abcd")
        assert (multiply(Factor(a, fact["element"]), Factor(b, fact["element"]), c, "f32", EXACT) != d).any()


def test_combine_keeps_what_it_is_given() -> None:
    old, new = np.arange(16, dtype=np.uint8), np.full(16, 255, np.uint8)
    assert np.array_equal(combine(old, new, "u32", "and"), old)
