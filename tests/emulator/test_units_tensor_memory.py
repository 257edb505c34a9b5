"""Tensor memory: allocation rules, and every layout and register map against per-element definitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from blasdx.emulator import tensor_memory as tm
from blasdx.emulator.errors import DecodeError


@pytest.fixture
def memory() -> tm.Words:
    return np.random.default_rng(0).integers(0, 1 << 32, (128, 512), dtype=np.uint32)


def bit(lane: int, column: int) -> int:
    return 1 << (lane // 16 * 512 + column)


# ---------------------------------------------------------------------------------------------------- allocation


def test_columns_are_given_out_and_come_back() -> None:
    columns = tm.Allocator()
    assert columns.allocate("a", 256) == 0
    assert columns.allocate("b", 128) == 256
    assert columns.allocate("a", 256) is None
    assert columns.allocate("a", 128) == 384
    assert (columns.held("a"), columns.held("b")) == (384, 128)
    assert columns.owns("a", 0, 256)
    assert not columns.owns("a", 200, 64)
    assert not columns.owns("a", 500, 32)
    columns.deallocate("b", 256, 128)
    assert columns.allocate("b", 64) == 256
    columns.deallocate("a", 0, 256)
    assert columns.held("a") == 128


@pytest.mark.parametrize("size", [0, 16, 48, 96, 1024])
def test_sizes_are_powers_of_two(size: int) -> None:
    with pytest.raises(DecodeError, match="power of two"):
        tm.Allocator().allocate("a", size)


def test_rules_of_a_cta() -> None:
    columns = tm.Allocator()
    columns.allocate("a", 32)
    with pytest.raises(DecodeError, match="must not grow"):
        columns.allocate("a", 64)
    with pytest.raises(DecodeError, match="holds 32 columns at 0"):
        columns.deallocate("a", 0, 64)
    with pytest.raises(DecodeError, match="holds none"):
        columns.deallocate("b", 0, 32)
    columns.relinquish("a")
    with pytest.raises(DecodeError, match="relinquish"):
        columns.allocate("a", 32)
    columns.deallocate("a", 0, 32)
    assert columns.allocate("b", 512) == 0


# ---------------------------------------------------------------------------------------------------- accumulators

PLACES: dict[str, Callable[[int, int, int], tuple[int, int]]] = {
    "D": lambda r, n, _: (r, n),
    "A": lambda r, n, _: (r, n),
    "F": lambda r, n, _: (r // 16 * 32 + r % 16, n),
    "B": lambda r, n, size: (r + 64 * (n >= size // 2), n % (size // 2)),
    "E": lambda r, n, size: (r + 64 * (n >= size // 2), n % (size // 2)),
    "C": lambda r, n, _: (r // 16 * 32 + r % 16, n),
    "G": lambda r, n, size: (r + 32 * (n // (size // 4)), n % (size // 4)),
}


@pytest.mark.parametrize(
    ("name", "m", "n", "group", "ws", "sparse", "rows"),
    [
        ("D", 128, 248, 1, False, False, 128),
        ("F", 64, 72, 1, False, False, 64),
        ("A", 256, 96, 2, False, False, 128),
        ("B", 128, 160, 2, False, False, 64),
        ("C", 128, 64, 2, False, True, 64),
        ("D", 128, 64, 1, True, False, 128),
        ("E", 64, 128, 1, True, False, 64),
        ("G", 32, 256, 1, True, False, 32),
    ],
)
def test_layouts_of_d(
    memory: tm.Words, name: str, m: int, n: int, group: int, ws: bool, sparse: bool, rows: int
) -> None:
    where = tm.layout(m, n, group, ws=ws, sparse=sparse)
    assert (where.name, where.rows) == (name, rows)
    before = memory.copy()
    d = tm.read_d(memory, where, 64)
    assert d.shape == (rows, n)
    tm.write_d(memory, where, 64, ~d)
    touched = np.zeros_like(memory, np.bool_)
    mask = 0
    for r in range(rows):
        for column in range(n):
            lane, at = PLACES[name](r, column, n)
            assert d[r, column] == before[lane, 64 + at]
            touched[lane, 64 + at] = True
            mask |= bit(lane, 64 + at)
    assert np.array_equal(memory, np.where(touched, ~before, before))
    assert where.mask(64) == mask


def test_the_second_lane_half_and_disabled_lanes(memory: tm.Words) -> None:
    where = tm.layout(64, 8, 1, lane=16)
    assert np.array_equal(tm.read_d(memory, where, 0)[17], memory[32 + 16 + 1, :8])
    assert where.mask(3, 1) == bit(16, 3) | bit(48, 3) | bit(80, 3) | bit(112, 3)
    before = memory.copy()
    full = tm.layout(128, 8, 1)
    tm.write_d(memory, full, 8, np.zeros((128, 8), np.uint32), disabled=1 << 5 | 1 << 127)
    zero = ~memory[:, 8:16].any(axis=1)
    assert np.flatnonzero(~zero).tolist() == [5, 127]
    assert np.array_equal(memory[[5, 127]], before[[5, 127]])


def test_what_has_no_layout() -> None:
    for m, group, ws in [(32, 1, False), (64, 2, False), (256, 1, False), (256, 2, True)]:
        with pytest.raises(DecodeError, match="no layout"):
            tm.layout(m, 64, group, ws=ws)
    with pytest.raises(DecodeError, match="needs lane 0"):
        tm.layout(128, 64, 1, lane=16)
    with pytest.raises(DecodeError, match="lane 0 or 16"):
        tm.layout(64, 64, 1, lane=32)
    with pytest.raises(DecodeError, match="columns 480 to 543"):
        tm.read_d(np.zeros((128, 512), np.uint32), tm.layout(128, 64, 1), 480)


@pytest.mark.parametrize(("bits", "depth"), [(8, 32), (16, 16), (32, 8)])
def test_a_is_packed_along_k(memory: tm.Words, bits: int, depth: int) -> None:
    for m in (64, 128):
        got = tm.read_a(memory, tm.layout(m, 64, 1), 40, depth, bits)
        for r in range(m):
            for k in range(depth):
                lane = r if m == 128 else r // 16 * 32 + r % 16
                word = int(memory[lane, 40 + k * bits // 32])
                assert int(got[r, k]) == word >> (k * bits % 32) & ((1 << bits) - 1)


def test_a_of_a_split_layout_must_be_there_twice(memory: tm.Words) -> None:
    where = tm.layout(128, 64, 2)
    with pytest.raises(DecodeError, match="2 lane groups"):
        tm.read_a(memory, where, 0, 16, 16)
    memory[64:] = memory[:64]
    assert np.array_equal(tm.read_a(memory, where, 0, 16, 16), memory[:64, :8].copy().view(np.uint16))


@pytest.mark.parametrize(("first", "per_row"), [(0, 1), (3, 1), (2, 2), (0, 4)])
def test_scale_factors(memory: tm.Words, first: int, per_row: int) -> None:
    with pytest.raises(DecodeError, match="not the same"):
        tm.read_scales(memory, 100, 128, first, per_row)
    memory[:, :] = np.tile(memory[:32], (4, 1))
    for count in (128, 48):
        got = tm.read_scales(memory, 100, count, first, per_row)
        assert got.shape == (count, per_row)
        for mn in range(count):
            for k in range(per_row):
                assert got[mn, k] == int(memory[mn % 32, 100 + mn // 32]) >> 8 * (first + k) & 255


# ---------------------------------------------------------------------------------------------------- load and store

REGISTERS: dict[str, tuple[int, Callable[[int, int, int], tuple[int, int]]]] = {
    "32x32b": (1, lambda t, j, _: (t, j)),
    "16x64b": (1, lambda t, j, _: (t // 4 + 8 * (t % 2), 2 * j + t // 2 % 2)),
    "16x128b": (2, lambda t, j, _: (t // 4 + 8 * (j % 2), 4 * (j // 2) + t % 4)),
    "16x256b": (4, lambda t, j, _: (t // 4 + 8 * (j // 2 % 2), 8 * (j // 4) + 2 * (t % 4) + j % 2)),
    "16x32bx2": (1, lambda t, j, imm: (t % 16, j + (imm if t >= 16 else 0))),
}


@pytest.mark.parametrize("shape", sorted(REGISTERS))
@pytest.mark.parametrize("num", [1, 2, 4, 32])
@pytest.mark.parametrize("packed", [False, True])
def test_register_maps(memory: tm.Words, shape: str, num: int, packed: bool) -> None:
    per, place = REGISTERS[shape]
    half = 2 * num if shape == "16x32bx2" else 0
    where = tm.register_map(shape, num, packed=packed, second_half=half)
    lane, column = (96, 0) if shape == "32x32b" else (112, 0)
    got = tm.load(memory, where, lane, column, packed=packed)
    assert got.shape == (num * per, 32)
    target = np.zeros_like(memory)
    tm.store(target, where, lane, column, got, packed=packed)
    expected = np.zeros_like(memory)
    mask = 0
    for t in range(32):
        for j in range(num * per):
            row, at = place(t, j, half)
            if packed:
                base = at - (half if shape == "16x32bx2" and t >= 16 else 0)
                first = column + 2 * base + at - base
                low, high = int(memory[lane + row, first]) & 0xFFFF, int(memory[lane + row, first + 1]) & 0xFFFF
                assert got[j, t] == low | high << 16
                expected[lane + row, first : first + 2] = low, high
                mask |= bit(lane + row, first) | bit(lane + row, first + 1)
            else:
                assert got[j, t] == memory[lane + row, column + at]
                expected[lane + row, column + at] = got[j, t]
                mask |= bit(lane + row, column + at)
    assert np.array_equal(target, expected)
    assert tm.access_mask(shape, num, lane, column, packed=packed, second_half=half) == mask


def test_a_warp_reaches_its_own_quarter() -> None:
    assert tm.warp_lane(0x10, 6, 32) == 64
    assert tm.warp_lane(64 << 16, 6, 32) == 64
    assert tm.warp_lane(80 << 16, 2, 16) == 80
    assert tm.warp_lane(16 << 16, 3, 16) == 112
    with pytest.raises(DecodeError, match="names lane 32"):
        tm.warp_lane(32 << 16, 2, 32)
    with pytest.raises(DecodeError, match="cannot start at lane 16"):
        tm.warp_lane(16 << 16, 0, 32)


def test_shapes_that_do_not_exist(memory: tm.Words) -> None:
    for shape, num in [("16x256b", 64), ("32x32b", 3), ("16x128b", 128), ("8x32b", 1)]:
        with pytest.raises(DecodeError, match="does not exist"):
            tm.register_map(shape, num)
    with pytest.raises(DecodeError, match="columns 500 to 531"):
        tm.load(memory, tm.register_map("32x32b", 32), 0, 500)


# ---------------------------------------------------------------------------------------------------- copy


@pytest.mark.parametrize(
    ("shape", "rows", "size", "lanes_of"),
    [
        ("128x256b", 128, 32, lambda r: [r]),
        ("128x128b", 128, 16, lambda r: [r]),
        ("64x128b.warpx2::02_13", 64, 16, lambda r: [r, r + 64]),
        ("64x128b.warpx2::01_23", 64, 16, lambda r: [r % 32 + 64 * (r // 32), r % 32 + 64 * (r // 32) + 32]),
        ("32x128b.warpx4", 32, 16, lambda r: [r, r + 32, r + 64, r + 96]),
        ("4x256b", 4, 32, lambda r: [32 * r]),
    ],
)
def test_copies(memory: tm.Words, shape: str, rows: int, size: int, lanes_of: Callable[[int], list[int]]) -> None:
    assert tm.copy_shape(shape) == (rows, size)
    data = np.random.default_rng(1).integers(0, 256, (rows, size), dtype=np.uint8)
    expected = memory.copy()
    for r in range(rows):
        for lane in lanes_of(r):
            expected[lane, 20 : 20 + size // 4] = np.frombuffer(data[r].tobytes(), np.uint32)
    tm.copy(memory, shape, (0, 20), data)
    assert np.array_equal(memory, expected)


def test_unknown_copy_shapes_and_lanes_are_refused() -> None:
    with pytest.raises(DecodeError, match="64x128b"):
        tm.copy_shape("64x128b")
    tm.check_copy_lane("4x256b", 31)
    for shape, lane in (("4x256b", 32), ("128x256b", 1)):
        with pytest.raises(DecodeError, match=f"lane {lane}"):
            tm.check_copy_lane(shape, lane)
