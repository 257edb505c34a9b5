"""Tensor memory: 128 lanes x 512 columns of 32 bits, who owns which columns, and where matrices lie in it.

PTX ISA 9.7.16.1 (allocation), 9.7.16.8 (load and store) and 9.7.16.10.5 (layouts of D); every layout and every
load/store map was checked element by element against CuTe's. Addresses are ``lane << 16 | column``.

Functions work on a (128, 512) uint32 array. A bit mask of an access has bit ``lane // 16 * 512 + column``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blasdx.emulator.errors import DecodeError

LANES = 128
COLUMNS = 512

Words = NDArray[np.uint32]


def split(address: int) -> tuple[int, int]:
    """Lane and column of a tensor-memory address."""
    return address >> 16 & 0xFFFF, address & 0xFFFF


def mask_of(lane_groups: int, column: int, columns: int) -> int:
    """Access mask of `columns` columns in the 16-lane groups whose bits are set in `lane_groups` (0 to 255)."""
    row = ((1 << columns) - 1) << column
    return sum(row << group * COLUMNS for group in range(8) if lane_groups >> group & 1)


def _check_columns(what: str, column: int, columns: int) -> None:
    if column + columns > COLUMNS:
        raise DecodeError(f"{what} takes columns {column} to {column + columns - 1}, tensor memory has {COLUMNS}")


# ---------------------------------------------------------------------------------------------------- allocation


@dataclass
class Allocator:
    """Columns of one SM's tensor memory, shared by the CTAs that run on it."""

    _owner: list[object] = field(default_factory=lambda: [None] * (COLUMNS // 32))
    _runs: dict[int, tuple[object, int]] = field(default_factory=dict)
    _smallest: dict[object, int] = field(default_factory=dict)
    _relinquished: set[object] = field(default_factory=set)

    def allocate(self, cta: object, columns: int) -> int | None:
        """Columns for `cta`: the first one, or None when the allocation has to wait.

        Raises
        ------
        DecodeError
            For a size that is not a power of two from 32 to 512, one larger than the CTA's last, or after the CTA
            relinquished its permit.
        """
        if columns not in (32, 64, 128, 256, 512):
            raise DecodeError(f"tcgen05.alloc of {columns} columns: needs a power of two from 32 to 512")
        if cta in self._relinquished:
            raise DecodeError("tcgen05.alloc after tcgen05.relinquish_alloc_permit in the same CTA")
        if columns > self._smallest.get(cta, COLUMNS):
            raise DecodeError(
                f"tcgen05.alloc of {columns} columns after one of {self._smallest[cta]}: sizes must not grow in a CTA"
            )
        slots = columns // 32
        for first in range(len(self._owner) - slots + 1):
            if all(owner is None for owner in self._owner[first : first + slots]):
                self._owner[first : first + slots] = [cta] * slots
                self._runs[first * 32] = (cta, columns)
                self._smallest[cta] = columns
                return first * 32
        return None

    def deallocate(self, cta: object, address: int, columns: int) -> None:
        """Give back what `allocate` returned.

        Raises
        ------
        DecodeError
            When address and size are not those of one of the CTA's allocations.
        """
        lane, column = split(address)
        if lane or self._runs.get(column) != (cta, columns):
            held = ", ".join(f"{size} columns at {start}" for start, (who, size) in self._runs.items() if who == cta)
            raise DecodeError(f"tcgen05.dealloc of {columns} columns at {address:#x}: the CTA holds {held or 'none'}")
        del self._runs[column]
        self._owner[column // 32 : (column + columns) // 32] = [None] * (columns // 32)

    def relinquish(self, cta: object) -> None:
        """No allocation by `cta` any more."""
        self._relinquished.add(cta)

    def held(self, cta: object) -> int:
        """Columns that `cta` holds."""
        return sum(size for who, size in self._runs.values() if who == cta)

    def owns(self, cta: object, column: int, columns: int) -> bool:
        """Whether all of these columns belong to `cta`."""
        slots = self._owner[column // 32 : (column + columns - 1) // 32 + 1]
        return column + columns <= COLUMNS and all(owner == cta for owner in slots)


# ---------------------------------------------------------------------------------------------------- accumulators


class Part(NamedTuple):
    """All rows of some columns of D, in one set of lanes."""

    lanes: slice | NDArray[np.intp]
    first: int  # column of D
    last: int


class Layout(NamedTuple):
    """Where one CTA's rows of D lie."""

    name: str  # the letter of PTX ISA 9.7.16.10.5
    rows: int
    columns: int  # of D, as given; tensor memory takes `width` columns
    width: int
    parts: tuple[Part, ...]
    lane_groups: int

    def mask(self, column: int, width: int | None = None) -> int:
        """Access mask at tensor-memory column `column`."""
        return mask_of(self.lane_groups, column, self.width if width is None else width)


@lru_cache(maxsize=256)
def layout(m: int, n: int, cta_group: int, *, ws: bool = False, sparse: bool = False, lane: int = 0) -> Layout:
    """Layout of an `m` x `n` accumulator (whole pair for cta_group 2) whose address has lane `lane`.

    Raises
    ------
    DecodeError
        For a shape without a layout, or a base lane that the layout does not allow.
    """
    name = {
        (128, 1, False): "D",
        (64, 1, False): "F",
        (256, 2, False): "A",
        (128, 2, False): "C" if sparse else "B",
        (128, 1, True): "D",
        (64, 1, True): "E",
        (32, 1, True): "G",
    }.get((m, cta_group, ws))
    if name is None:
        raise DecodeError(f"no layout of D for M = {m}, cta_group::{cta_group}{', .ws' if ws else ''}")
    if lane and (lane != 16 or name not in "FC"):
        raise DecodeError(f"D of layout {name} at lane {lane}: needs lane 0{' or 16' if name in 'FC' else ''}")
    if name in "FC":
        rows = np.arange(64)
        lanes = rows // 16 * 32 + rows % 16 + lane
        return Layout(name, 64, n, n, (Part(lanes, 0, n),), 0b10101010 if lane else 0b01010101)
    split_into = {"B": 2, "E": 2, "G": 4}.get(name, 1)
    rows_here, width = LANES // split_into, n // split_into
    parts = tuple(
        Part(slice(i * rows_here, (i + 1) * rows_here), i * width, (i + 1) * width) for i in range(split_into)
    )
    return Layout(name, rows_here, n, width, parts, 0xFF)


def read_d(memory: Words, where: Layout, column: int) -> Words:
    """D (rows, N) as 32-bit words; a new array."""
    _check_columns("D", column, where.width)
    columns = slice(column, column + where.width)
    if len(where.parts) == 1:
        return memory[where.parts[0].lanes, columns].copy()
    return np.concatenate([memory[part.lanes, columns] for part in where.parts], axis=1)


def write_d(memory: Words, where: Layout, column: int, d: NDArray[Any], disabled: int = 0) -> None:
    """Write D (rows, N), 32-bit words; bit i of `disabled` keeps lane i as it is."""
    _check_columns("D", column, where.width)
    columns = slice(column, column + where.width)
    for part in where.parts:
        block = d[:, part.first : part.last]
        if disabled:
            lanes = np.arange(LANES)[part.lanes]
            keep = np.array([not disabled >> int(lane) & 1 for lane in lanes], np.bool_)
            memory[lanes[keep], columns] = block[keep]
        else:
            memory[part.lanes, columns] = block


def read_a(memory: Words, where: Layout, column: int, depth: int, bits: int) -> NDArray[Any]:
    """Codes (rows, `depth`) of an A operand of `bits`-bit elements, K-major and packed, in the lanes of D.

    Layouts that split N over lanes multiply every lane group with the A rows in its own lanes, so A must be there
    as often as D has parts.

    Raises
    ------
    DecodeError
        When the copies differ.
    """
    width = depth * bits // 32
    _check_columns("A", column, width)
    copies = [memory[part.lanes, column : column + width] for part in where.parts]
    for i, copy in enumerate(copies[1:], 1):
        if not np.array_equal(copies[0], copy):
            raise DecodeError(
                f"A in tensor memory for layout {where.name} must be present in {len(copies)} lane groups; "
                f"group {i} differs from group 0"
            )
    return np.ascontiguousarray(copies[0]).view(np.dtype(f"u{bits // 8}"))


def read_scales(memory: Words, address: int, count: int, first: int, per_row: int) -> NDArray[np.uint8]:
    """Block scales (count, per_row) of `count` rows of A or B: lane mn % 32, column mn / 32, bytes first and on.

    `first` is the scale-factor id of the instruction descriptor, `per_row` N of ``.scale_vec::NX``.

    Raises
    ------
    DecodeError
        When the scales are not replicated to all four lane quarters.
    """
    lane, column = split(address)
    width = -(-count // 32)
    _check_columns("a scale-factor table", column, width)
    if lane % 32 or first + per_row > 4:
        raise DecodeError(f"scale factors at lane {lane}, bytes {first} to {first + per_row - 1} of a column")
    quarters = np.ascontiguousarray(memory[:, column : column + width]).reshape(4, 32, width)
    if not (quarters == quarters[0]).all():
        raise DecodeError(f"scale factors at {address:#x} are not the same in all four lane quarters")
    table = quarters[0].view(np.uint8).reshape(32, width, 4)
    return np.ascontiguousarray(table.transpose(1, 0, 2).reshape(width * 32, 4)[:count, first : first + per_row])


# ---------------------------------------------------------------------------------------------------- load and store

_MOST = {"32x32b": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32, "16x32bx2": 128}
_REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}


class RegisterMap(NamedTuple):
    """Which word each thread's register holds, relative to the warp's lanes and the address's column."""

    lanes: NDArray[np.intp]  # (registers, 32 threads)
    columns: NDArray[np.intp]
    rows: int  # 16 or 32 lanes


@lru_cache(maxsize=256)
def register_map(shape: str, num: int, *, packed: bool = False, second_half: int = 0) -> RegisterMap:
    """Map of ``tcgen05.ld/st.SHAPE.xNUM``; with `packed` the columns are those of the low halves.

    `second_half` is the immediate of 16x32bx2: the column offset of threads 16 to 31.

    Raises
    ------
    DecodeError
        For an unknown shape or count.
    """
    if shape not in _MOST or num not in (1, 2, 4, 8, 16, 32, 64, 128) or num > _MOST[shape]:
        raise DecodeError(f"tcgen05.ld/st shape {shape}.x{num} does not exist")
    t = np.arange(32, dtype=np.intp)[None, :]
    j = np.arange(num * _REGISTERS[shape], dtype=np.intp)[:, None]
    lanes = {
        "32x32b": t + 0 * j,
        "16x64b": t // 4 + 8 * (t & 1) + 0 * j,
        "16x128b": t // 4 + 8 * (j & 1),
        "16x256b": t // 4 + 8 * (j >> 1 & 1),
        "16x32bx2": t % 16 + 0 * j,
    }[shape]
    columns = {
        "32x32b": j + 0 * t,
        "16x64b": 2 * j + (t >> 1 & 1),
        "16x128b": 4 * (j >> 1) + (t & 3),
        "16x256b": 8 * (j >> 2) + 2 * (t & 3) + (j & 1),
        "16x32bx2": j + 0 * t,
    }[shape]
    columns = columns * (2 if packed else 1) + (second_half * (t >= 16) if shape == "16x32bx2" else 0)
    return RegisterMap(lanes, columns, 32 if shape == "32x32b" else 16)


def warp_lane(address: int, warp: int, rows: int) -> int:
    """First lane that a load or store of warp `warp` (its number in the CTA) touches.

    Warp w reaches lanes 32 (w % 4) to 32 (w % 4) + 31. Some compilers leave the lane field at 0 and rely on that.

    Raises
    ------
    DecodeError
        When a non-zero lane field names another warp's quarter, or the access would leave the quarter.
    """
    lane, _ = split(address)
    if lane // 32 and lane // 32 != warp % 4:
        raise DecodeError(
            f"warp {warp} reaches lanes {32 * (warp % 4)} to {32 * (warp % 4) + 31} of tensor memory, "
            f"the address {address:#x} names lane {lane}"
        )
    if lane % 32 not in ((0, 16) if rows == 16 else (0,)):
        raise DecodeError(f"an access of {rows} lanes cannot start at lane {lane} (address {address:#x})")
    return 32 * (warp % 4) + lane % 32


def load(memory: Words, where: RegisterMap, lane: int, column: int, *, packed: bool = False) -> Words:
    """Registers (registers, 32) of a tcgen05.ld."""
    _check_columns("tcgen05.ld", column, int(where.columns.max()) + 1 + packed)
    if where.rows == 32 and not packed:
        return memory[lane : lane + 32, column : column + len(where.columns)].T.copy()
    words = memory[where.lanes + lane, where.columns + column]
    if packed:
        high = memory[where.lanes + lane, where.columns + (column + 1)]
        words = (words & np.uint32(0xFFFF)) | high << np.uint32(16)
    return words


def store(memory: Words, where: RegisterMap, lane: int, column: int, registers: Words, *, packed: bool = False) -> None:
    """Write the registers (registers, 32) of a tcgen05.st; unpacked halves go to the low half of a column each."""
    _check_columns("tcgen05.st", column, int(where.columns.max()) + 1 + packed)
    if where.rows == 32 and not packed:
        memory[lane : lane + 32, column : column + len(where.columns)] = registers.T
        return
    memory[where.lanes + lane, where.columns + column] = registers & 0xFFFF if packed else registers
    if packed:
        memory[where.lanes + lane, where.columns + (column + 1)] = registers >> 16


@lru_cache(maxsize=1024)
def access_mask(shape: str, num: int, lane: int, column: int, *, packed: bool = False, second_half: int = 0) -> int:
    """Access mask of a load or store that starts at `lane` and `column`."""
    found = register_map(shape, num, packed=packed, second_half=second_half)
    columns = {int(c) + half for c in np.unique(found.columns) for half in range(1 + packed)}
    row = sum(1 << column + c for c in columns)
    groups = (3 if found.rows == 32 else 1) << lane // 16
    return sum(row << group * COLUMNS for group in range(8) if groups >> group & 1)


# ---------------------------------------------------------------------------------------------------- copy

_COPIES: dict[str, tuple[int, int, tuple[tuple[slice, slice], ...]]] = {
    # shape: rows, bytes a row, (source rows, lanes) ...
    "128x256b": (128, 32, ((slice(0, 128), slice(0, 128)),)),
    "128x128b": (128, 16, ((slice(0, 128), slice(0, 128)),)),
    "64x128b.warpx2::02_13": (64, 16, ((slice(0, 64), slice(0, 64)), (slice(0, 64), slice(64, 128)))),
    "64x128b.warpx2::01_23": (
        64,
        16,
        (
            (slice(0, 32), slice(0, 32)),
            (slice(0, 32), slice(32, 64)),
            (slice(32, 64), slice(64, 96)),
            (slice(32, 64), slice(96, 128)),
        ),
    ),
    "32x128b.warpx4": (32, 16, tuple((slice(0, 32), slice(q * 32, q * 32 + 32)) for q in range(4))),
    # One row for each quarter: what tcgen05.shift leaves to be filled.
    "4x256b": (4, 32, ((slice(0, 4), slice(0, 128, 32)),)),
}


def copy_shape(shape: str) -> tuple[int, int]:
    """Rows and bytes a row that ``tcgen05.cp.SHAPE`` reads from shared memory.

    Raises
    ------
    DecodeError
        For an unknown shape.
    """
    if shape not in _COPIES:
        raise DecodeError(f"tcgen05.cp shape {shape!r} is not emulated; known: {', '.join(_COPIES)}")
    rows, size, _ = _COPIES[shape]
    return rows, size


def check_copy_lane(shape: str, lane: int) -> None:
    """Refuse a lane in the address of a copy that has no meaning for its shape.

    Raises
    ------
    DecodeError
        4x256b may start at any lane of the first quarter, every other shape at lane 0.
    """
    most = 31 if shape == "4x256b" else 0
    if lane > most:
        raise DecodeError(f"tcgen05.cp.{shape} to lane {lane}; {'0 to 31 are' if most else '0 is'} legal")


def copy(memory: Words, shape: str, to: tuple[int, int], rows: NDArray[np.uint8]) -> None:
    """Write (rows, bytes) of shared memory to the lanes and columns of ``tcgen05.cp.SHAPE``; `to` is (lane, column)."""
    lane, column = to
    _, size, moves = _COPIES[shape]
    _check_columns("tcgen05.cp", column, size // 4)
    words = np.ascontiguousarray(rows).view(np.uint32)
    for source, lanes in moves:
        memory[lane:][lanes, column : column + size // 4] = words[source]
