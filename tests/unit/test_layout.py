"""Layout integers against the PTX ISA's constants, and the plan's addresses against the canonical layouts element
by element."""

from __future__ import annotations

import pytest

from blasdx.elements import bf16, e4m3, f16, f32, s8, s32, tf32, u8
from blasdx.layout.descriptors import Major, instruction_descriptor, matrix_descriptor
from blasdx.layout.operand import OperandTile
from blasdx.layout.storage import shared_storage
from blasdx.layout.swizzle import Swizzle
from blasdx.layout.tensor_memory import AccumulatorTile

K, MN = Major.K, Major.MN


@pytest.mark.parametrize(
    ("types", "m", "n", "majors", "bits"),
    [
        ((f16, f16, f32), 128, 256, (K, K), 0x08400010),
        ((bf16, bf16, f32), 128, 128, (K, K), 0x08200490),
        ((bf16, bf16, f32), 128, 128, (MN, MN), 0x08218490),
        ((bf16, bf16, f32), 64, 64, (K, K), 0x04100490),
        ((bf16, bf16, f32), 256, 256, (K, K), 0x10400490),
        ((tf32, tf32, f32), 128, 128, (K, K), 0x08200910),
        ((e4m3, e4m3, f32), 128, 128, (K, K), 0x08200010),
        ((s8, s8, s32), 128, 128, (K, K), 0x082004A0),
        ((u8, s8, s32), 128, 128, (K, K), 0x08200420),
    ],
)
def test_instruction_descriptor_constants(types, m, n, majors, bits):
    a, b, c = types
    assert instruction_descriptor(a, b, c, m=m, n=n, a_major=majors[0], b_major=majors[1]) == bits


@pytest.mark.parametrize(("m", "n"), [(0, 64), (8, 64), (272, 64), (128, 4), (128, 264), (128, 0)])
def test_instruction_descriptor_refuses_what_it_cannot_encode(m, n):
    with pytest.raises(ValueError, match="multiple of 16 rows and of 8 columns"):
        instruction_descriptor(bf16, bf16, f32, m=m, n=n, a_major=K, b_major=K)


def test_matrix_descriptor_constant():
    assert matrix_descriptor(Swizzle.B128, leading_bytes=16, stride_bytes=1024, address=0x4400) == 0x4000404000010440


@pytest.mark.parametrize("field", ["leading_bytes", "stride_bytes", "address"])
@pytest.mark.parametrize("value", [8, -16, 1 << 18])
def test_matrix_descriptor_refuses_what_it_cannot_encode(field, value):
    fields = {"leading_bytes": 0, "stride_bytes": 1024, field: value}
    with pytest.raises(ValueError, match=field):
        matrix_descriptor(Swizzle.B128, **fields)


@pytest.mark.parametrize(
    ("swizzle", "address", "physical"),
    [
        (Swizzle.B128, 0x0080, 0x0090),
        (Swizzle.B128, 0x0380, 0x03F0),
        (Swizzle.B128, 0x4470, 0x4470),
        (Swizzle.B64, 0x0180, 0x01B0),
        (Swizzle.B64, 0x0200, 0x0200),
        (Swizzle.B32, 0x0080, 0x0090),
        (Swizzle.B32, 0x0100, 0x0100),
        (Swizzle.NONE, 0x0380, 0x0380),
    ],
)
def test_swizzle_offsets(swizzle, address, physical):
    assert swizzle.physical(address) == physical


@pytest.mark.parametrize("swizzle", list(Swizzle))
def test_swizzle_permutes_every_period(swizzle):
    period = range(swizzle.period)
    assert sorted(map(swizzle.physical, period)) == list(period)


# ---- TMA writes, MMA reads: both rules spelled out here, neither taken from the library ------------------------------


def _written(tile: OperandTile, row: int, k: int) -> int:
    """Byte in the stage where TMA puts an element: boxes in order, inside a box the inner dimension fastest, then
    the XOR."""
    inner, outer = (k, row) if tile.major is K else (row, k)
    box = inner // 64
    linear = box * tile.box_bytes + outer * 128 + (inner % 64) * 2
    return linear ^ (((linear >> 7) & 7) << 4)


def _read(tile: OperandTile, block_rows: int, row: int, k: int) -> int:
    """Byte in the stage that an MMA reads for an element: the kernel's step and block offsets, then the canonical
    layout."""
    block, r = divmod(row, block_rows)
    step, kk = divmod(k, 16)
    start = (
        block * tile.block_bytes(block_rows)
        + step // tile.steps_per_box * tile.box_bytes
        + step % tile.steps_per_box * tile.step_bytes
    )
    leading = ((tile.matrix_descriptor >> 16) & 0x3FFF) * 16
    stride = ((tile.matrix_descriptor >> 32) & 0x3FFF) * 16
    if tile.major is K:
        offset = kk * 2 + r % 8 * 128 + r // 8 * stride
    else:
        offset = r * 2 % 128 + r * 2 // 128 * leading + kk % 8 * 128 + kk // 8 * stride
    linear = start + offset
    return linear ^ (((linear >> 7) & 7) << 4)


@pytest.mark.parametrize("major", [K, MN])
@pytest.mark.parametrize(("rows", "k", "block_rows"), [(128, 64, 128), (64, 128, 64), (192, 64, 64), (256, 128, 128)])
def test_the_mma_reads_what_tma_wrote(major, rows, k, block_rows):
    tile = OperandTile.of("A", bf16, major, rows=rows, k=k)
    assert tile is not None
    offsets = [(row, kk) for row in range(0, rows, 3) for kk in range(k)]
    assert [_read(tile, block_rows, *at) for at in offsets] == [_written(tile, *at) for at in offsets]


def test_mn_major_k_needs_no_whole_spans():
    tile = OperandTile.of("B", f16, MN, rows=192, k=16)
    assert tile is not None
    assert (tile.boxes, tile.box, tile.box_bytes, tile.steps_per_box) == (3, (64, 16), 2048, 1)
    for row in range(0, 192, 5):
        for k in range(16):
            assert _read(tile, 192, row, k) == _written(tile, row, k)


@pytest.mark.parametrize(("major", "rows", "k"), [(K, 128, 48), (K, 128, 16), (MN, 8, 64), (MN, 200, 64)])
def test_rows_that_are_no_whole_span_have_no_layout_yet(major, rows, k):
    assert OperandTile.of("A", bf16, major, rows=rows, k=k) is None


# ---- tensor memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "n", "mma_m", "blocks", "columns", "stages", "chunk", "run", "shape"),
    [
        (128, 256, 128, 1, 256, 2, 32, 32, "32x32b"),
        (256, 256, 128, 2, 512, 1, 32, 32, "32x32b"),
        (64, 256, 64, 1, 256, 2, 32, 16, "16x32bx2"),
        (192, 128, 64, 3, 384, 1, 32, 16, "16x32bx2"),
        (64, 8, 64, 1, 8, 16, 8, 4, "16x32bx2"),
        (128, 248, 128, 1, 248, 2, 8, 8, "32x32b"),
        (128, 48, 128, 1, 48, 10, 16, 16, "32x32b"),
    ],
)
def test_accumulator_tile(m, n, mma_m, blocks, columns, stages, chunk, run, shape):
    tile = AccumulatorTile(m=m, n=n)
    assert (tile.mma_m, tile.blocks, tile.columns, tile.stages) == (mma_m, blocks, columns, stages)
    assert (tile.chunk, tile.run, tile.load_shape) == (chunk, run, shape)


@pytest.mark.parametrize(
    ("parts", "total"),
    [(((16, 16), (4, 4), (10, 10)), 30), (((2, 2), (4, 4), (8, 8)), 16), ((), 0), (((1024, 196708), (16, 64)), 196784)],
)
def test_shared_storage_rounds_up_then_adds(parts, total):
    assert shared_storage(*parts) == total
