"""Tensor maps: the 128 bytes, the limits, and every byte of a copy against an element-by-element derivation."""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from blasdx.emulator.boxes import REDUCTIONS
from blasdx.emulator.errors import DecodeError
from blasdx.emulator.tensormap import TensorMap

BASE = 0x7F00_0000_0000
SIZES = {"u8": 1, "u16": 2, "f16": 2, "bf16": 2, "f32": 4, "s32": 4, "f64": 8}


class Memory:
    """One allocation of global memory."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)

    def view(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[np.uint8]:
        first = address - BASE
        last = first + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        assert 0 <= first <= last < len(self.data)
        return np.lib.stride_tricks.as_strided(self.data[first:], shape, strides)


def words(m: TensorMap) -> list[int]:
    return list(struct.unpack("<32I", m.to_bytes()))


def a_map(**changes: object) -> TensorMap:
    arguments: dict[str, object] = {
        "tensor": BASE, "dtype": "f16", "dims": [256, 512], "strides_bytes": [512], "box": [64, 128], "swizzle": "128B",
    } | changes  # fmt: skip
    return TensorMap(**arguments)  # type: ignore[arg-type]


def test_bytes_are_those_measured_on_an_h200() -> None:
    w = words(a_map())
    assert w[0] == BASE & 0xFFFFFFFF
    assert w[1] == BASE >> 32
    assert w[2] == 1 << 4 | 6 << 7 | 3 << 13
    assert (w[3], w[7]) == (512 >> 4, 0)
    assert w[8:13] == [255, 511, 0, 0, 0]
    assert (w[13], w[14]) == (63 << 24, 127)
    assert (w[16], w[18]) == (0x4000, 0x400)
    assert sum(w[15:]) == 0x4000 + 0x400


@pytest.mark.parametrize(
    ("change", "word", "mask", "value"),
    [
        ({"l2_promotion": "256B"}, 2, 3 << 17, 3 << 17),
        ({"oob_fill": "nan"}, 2, 1 << 15, 1 << 15),
        ({"dtype": "bf16"}, 2, 15 << 7, 10 << 7),
        ({"dtype": "e4m3"}, 2, 15 << 7, 0),
        ({"dtype": "tf32", "box": [32, 128]}, 2, 15 << 7 | 1 << 16, 7 << 7 | 1 << 16),
        ({"dtype": "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ", "box": [32, 128]}, 2, 15 << 7 | 1 << 16, 8 << 7 | 1 << 16),
        ({"dtype": "FLOAT64", "box": [16, 128]}, 2, 15 << 7, 9 << 7),
        ({"swizzle": "none"}, 18, -1, 0x10),
        ({"swizzle": "128B_ATOM_32B"}, 2, 3 << 13 | 3 << 19, 3 << 13 | 1 << 19),
        ({"element_strides": [1, 8]}, 13, 0x7FFF, 7 << 3),
        ({"strides_bytes": [(1 << 40) - 16]}, 7, -1, 15),
        ({"dims": [1 << 32, 1]}, 8, -1, 0xFFFFFFFF),
        ({"dims": [64, 8, 4], "strides_bytes": [128, 1024], "box": [64, 128, 2]}, 16, -1, 0x8000),
        ({"dims": [64, 8, 4], "strides_bytes": [128, 1024], "box": [64, 128, 2]}, 2, 7 << 4, 2 << 4),
    ],
)
def test_each_field_lies_in_its_word(change: dict[str, object], word: int, mask: int, value: int) -> None:
    m = a_map(**change)
    assert words(m)[word] & mask & 0xFFFFFFFF == value
    assert TensorMap.from_bytes(m.to_bytes()) == m


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"dtype": "f17"}, "f17"),
        ({"tensor": BASE + 8}, "multiple of 16"),
        ({"offset": 8}, "multiple of 16"),
        ({"dims": []}, "1 to 5"),
        ({"dims": [0, 512]}, "2\\^32"),
        ({"strides_bytes": [520]}, "multiples of 16"),
        ({"strides_bytes": [1 << 40]}, "2\\^40"),
        ({"strides_bytes": [512, 512]}, "1 \\(all but"),
        ({"box": [64, 257]}, "1 to 256"),
        ({"box": [64]}, "2 extents"),
        ({"box": [128, 64]}, "span of 128"),
        ({"box": [64, 64], "swizzle": "64B"}, "span of 64"),
        ({"box": [4, 64]}, "multiple of 16"),
        ({"element_strides": [1, 9]}, "1 to 8"),
        ({"swizzle": "256B"}, "one of none"),
        ({"interleave": "16B"}, "at least 3"),
        ({"dtype": "u16", "oob_fill": "nan"}, "floating-point"),
        ({"dtype": "16u4_align16b", "box": [64, 8]}, "extent of 128"),
    ],
)
def test_driver_limits_are_named(change: dict[str, object], names: str) -> None:
    with pytest.raises(DecodeError, match=names):
        a_map(**change)


@pytest.mark.parametrize(
    ("word", "bits", "names"),
    [
        (2, 1, "reserved"),
        (2, 1 << 21, "reserved"),
        (2, 1 << 22, "96-byte"),
        (2, 6 << 4, "rank"),
        (2, 8 << 7, "element code"),
        (2, 3 << 11, "interleave"),
        (2, 1 << 16, "element code"),
        (9, 0, "word 16"),
        (12, 1, "beyond the rank"),
        (15, 1, "im2col"),
        (16, 0x10000, "bytes of one box"),
        (18, 1, "period"),
        (31, 1, "zero"),
    ],
)
def test_inconsistent_bits_trap(word: int, bits: int, names: str) -> None:
    w = words(a_map())
    w[word] ^= bits
    if bits == 0:
        w[14] ^= 1
    with pytest.raises(DecodeError, match=names):
        TensorMap.from_bytes(struct.pack("<32I", *w))


def test_a_map_built_in_a_kernel_leaves_the_drivers_words_at_zero() -> None:
    w = words(a_map())
    w[16] = w[18] = 0
    assert TensorMap.from_bytes(struct.pack("<32I", *w)) == a_map()
    with pytest.raises(DecodeError, match="128 bytes"):
        TensorMap.from_bytes(b"\0" * 64)


def test_a_map_is_a_value() -> None:
    assert a_map() == a_map()
    assert hash(a_map()) == hash(a_map())


@st.composite
def maps(draw: st.DrawFn) -> TensorMap:
    dtype = draw(st.sampled_from(sorted(SIZES)))
    size = SIZES[dtype]
    rank = draw(st.integers(1, 5))
    swizzle = draw(st.sampled_from(["none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_64B"]))
    row = 16 * draw(st.integers(1, {"none": 4, "32B": 2, "64B": 4}.get(swizzle, 8)))
    dims = [draw(st.integers(1, 140))] + [draw(st.integers(1, 5)) for _ in range(rank - 1)]
    strides, pitch = [], -(-dims[0] * size // 16) * 16
    for extent in dims[1:]:
        strides.append(pitch + 16 * draw(st.integers(0, 2)))
        pitch = strides[-1] * extent
    return TensorMap(
        BASE, dtype, dims, strides, [row // size] + [draw(st.integers(1, 4)) for _ in range(rank - 1)],
        [1] + [draw(st.integers(1, 3)) for _ in range(rank - 1)], swizzle=swizzle,
    )  # fmt: skip


def swizzled(address: int, swizzle: str) -> int:
    """The published tables, as bit arithmetic on one address."""
    line = address // 128
    return {
        "none": address,
        "32B": address ^ (line % 2) * 16,
        "64B": address ^ (line % 4) * 16,
        "128B": address ^ (line % 8) * 16,
        "128B_ATOM_32B": address ^ (line % 4) * 32,
        "128B_ATOM_64B": address ^ (line % 2) * 64,
    }[swizzle]


def elements(m: TensorMap, coordinates: list[int]) -> list[tuple[int, int | None]]:
    """(byte offset in the box, global address or None when outside) of every element, in nested-loop order."""
    size = SIZES[m.dtype]
    steps = [1, *m.element_strides[1:]]
    counts = [-(-b // s) for b, s in zip(m.box, steps, strict=True)]
    found = []
    for linear in range(prod(counts)):
        rest, address, inside = linear, m.address, True
        for d, count in enumerate(counts):
            at = coordinates[d] + rest % count * steps[d]
            rest //= count
            inside &= 0 <= at < m.dims[d]
            address += at * (size if d == 0 else m.strides_bytes[d - 1])
        found.append((linear * size, address if inside else None))
    return found


def behind_the_edge(m: TensorMap, coordinates: list[int]) -> list[int]:
    """Addresses of bytes that a store writes though they lie outside: what is left of a row's last 16 bytes."""
    size, found = SIZES[m.dtype], []
    for offset, address in elements(m, coordinates):
        column = offset // size % m.box[0]
        if address is not None and coordinates[0] + column == m.dims[0] - 1:
            end = address + size
            found += range(end, min(end + -end % 16, end + (m.box[0] - 1 - column) * size))
    return found


@settings(max_examples=40)
@given(st.data(), maps())
def test_load_and_store_agree_with_one_element_at_a_time(data: st.DataObject, m: TensorMap) -> None:
    assert TensorMap.from_bytes(m.to_bytes()) == m
    coordinates = [data.draw(st.integers(-5, d + 3)) for d in m.dims]
    size = SIZES[m.dtype]
    memory = Memory(sum((d - 1) * s for d, s in zip(m.dims, [size, *m.strides_bytes], strict=True)) + size + 15)
    destination = 128 * data.draw(st.integers(8, 24))
    shared = np.full(16384, 0xEE, np.uint8)
    units = shared.view(np.complex128)
    units[m.units(destination)] = m.load(coordinates, memory.view).view(np.complex128)
    expected = np.full(16384, 0xEE, np.uint8)
    row, span = m.box[0] * size, {"none": m.box[0] * size, "32B": 32, "64B": 64}.get(m.swizzle, 128)
    offsets = [offset // row * span + offset % row for offset, _ in elements(m, coordinates)]
    for offset, (_, address) in zip(offsets, elements(m, coordinates), strict=True):
        for byte in range(size):
            where = swizzled(destination + offset + byte, m.swizzle)
            expected[where] = 0 if address is None else memory.data[address - BASE + byte]
    assert np.array_equal(shared, expected)
    touched = {i // 16 for i in np.flatnonzero(np.arange(16384) >= 0) if m.granules(destination) >> int(i) // 16 & 1}
    assert touched == {swizzled(destination + offset, m.swizzle) // 16 for offset in offsets}

    target = Memory(len(memory.data), seed=1)
    wanted = target.data.copy()
    for _, address in elements(m, coordinates):
        if address is not None:
            wanted[address - BASE : address - BASE + size] = memory.data[address - BASE : address - BASE + size]
    for address in behind_the_edge(m, coordinates):
        wanted[address - BASE] = 0  # what the load filled the box with there
    m.store(coordinates, units[m.units(destination)].view(np.uint8), target.view)
    assert np.array_equal(target.data, wanted)


def test_nan_fill_and_box_fully_outside() -> None:
    memory = Memory(512 * 512)
    tile = a_map(oob_fill="nan").load([-1, 510], memory.view).view(np.uint16).reshape(128, 64)
    assert (tile[:, 0] == 0x7FFF).all()
    assert (tile[2:] == 0x7FFF).all()
    assert np.array_equal(tile[:2, 1:], memory.data.view(np.uint16).reshape(512, 256)[510:, :63])
    assert not a_map().load([256, 0], memory.view).any()
    assert not a_map().load([0, -128], memory.view).any()


def test_gather4_takes_four_rows() -> None:
    memory = Memory(512 * 512)
    m = a_map(box=[64, 1])
    tile = m.load([192, 7, 600, -3, 7], memory.view, gather=True).view(np.uint16).reshape(4, 64)
    source = memory.data.view(np.uint16).reshape(512, 256)
    assert np.array_equal(tile[0], source[7, 192:])
    assert np.array_equal(tile[3], tile[0])
    assert not tile[1:3].any()
    assert len(np.arange(65536)[m.units(0x800, gather=True)]) == 4 * 128 // 16
    with pytest.raises(DecodeError, match="one row"):
        a_map().load([0, 1, 2, 3, 4], memory.view, gather=True)


def test_padded_four_and_six_bit_elements() -> None:
    memory = Memory(128 * 16)
    four = TensorMap(BASE, "b4x16_p64", [256, 4], [128], [128, 2], swizzle="128B")
    assert four.box_bytes == 256
    tile = four.load([128, 1], memory.view).reshape(2, 8, 16)
    assert np.array_equal(tile[1, :, :8].reshape(-1), memory.data[128 * 2 + 64 : 128 * 3])
    assert not tile[:, :, 8:].any()
    six = TensorMap(BASE, "16U6_ALIGN16B", [128, 4], [96], [128, 1], swizzle="none")
    tile = six.load([0, 3], memory.view).reshape(8, 16)
    assert np.array_equal(tile[:, :12].reshape(-1), memory.data[96 * 3 : 96 * 4])
    with pytest.raises(DecodeError, match="only loads"):
        four.store([0, 0], np.zeros(256, np.uint8), memory.view)


def test_what_is_not_emulated_is_refused_by_name() -> None:
    memory = Memory(4096)
    with pytest.raises(DecodeError, match="coordinates"):
        a_map().load([0], memory.view)
    with pytest.raises(DecodeError, match="interleave"):
        TensorMap(BASE, "f16", [8, 8, 8], [128, 1024], [8, 8, 1], interleave="16B").load([0, 0, 0], memory.view)
    with pytest.raises(DecodeError, match="FLIP_8B"):
        a_map(swizzle="128B_ATOM_32B_FLIP_8B").units(0x400)
    with pytest.raises(DecodeError, match="128-byte aligned"):
        a_map().units(0x410)


REDUCERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "inc": lambda a, b: 0 if a >= b else a + 1,
    "dec": lambda a, b: b if a == 0 or a > b else a - 1,
}


@pytest.mark.parametrize(
    ("dtype", "op"),
    [(d, op) for op in REDUCERS for d in REDUCTIONS[op] if d[0] in "us"],
)
def test_integer_reductions_inside_the_tensor(dtype: str, op: str) -> None:
    size = int(dtype[1:]) // 8
    kind = np.dtype(f"{'i' if dtype[0] == 's' else 'u'}{size}")
    memory = Memory(64 * 6)
    source = memory.data.copy().view(kind).reshape(6, -1)
    m = TensorMap(BASE, dtype, [64 // size - 1, 6], [64], [16 // size * 2, 4])
    tile = np.random.default_rng(2).integers(0, 256, m.box_bytes, dtype=np.uint8)
    columns = 32 // size
    first = 64 // size - 3
    m.reduce([first, 4], tile, memory.view, op)
    got = memory.data.view(kind).reshape(6, -1)
    new = tile.view(kind).reshape(4, columns)
    for r in range(6):
        for c in range(64 // size):
            inside = r >= 4 and first <= c < 64 // size - 1
            want = int(source[r, c])
            if inside:
                want = REDUCERS[op](want, int(new[r - 4, c - first]))
            assert int(got[r, c]) % (1 << 8 * size) == want % (1 << 8 * size)


@pytest.mark.parametrize(("dtype", "code"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("f32", np.float32)])
def test_float_reductions(dtype: str, code: type) -> None:
    rng = np.random.default_rng(3)
    old, new = (rng.normal(size=(2, 8)).astype(code) for _ in range(2))
    for op, wanted in (("add", old + new), ("min", np.minimum(old, new)), ("max", np.maximum(old, new))):
        memory = Memory(old.nbytes)
        memory.data[:] = old.reshape(-1).view(np.uint8)
        m = TensorMap(BASE, dtype, [8, 2], [old.nbytes // 2], [8, 2])
        if (dtype, op) in (("f32", "min"), ("f32", "max")):
            with pytest.raises(DecodeError, match=f"reduction .{op} of a f32"):
                m.reduce([0, 0], new.reshape(-1).view(np.uint8), memory.view, op)
            continue
        m.reduce([0, 0], new.reshape(-1).view(np.uint8), memory.view, op)
        assert np.array_equal(memory.data.view(code).reshape(2, 8), wanted)
