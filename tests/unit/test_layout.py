"""Layout integers against the PTX ISA's constants, and the plan's addresses against the canonical layouts element
by element."""

from __future__ import annotations

import pytest

from blasdx.elements import bf16, e4m3, f16, f32, s8, s32, tf32, u8
from blasdx.layout.descriptors import Generation, Major, instruction_descriptor, matrix_descriptor
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
    fields = {"leading_bytes": 16, "stride_bytes": 1024, "address": 0x4400}
    assert matrix_descriptor(Swizzle.B128, Generation.TCGEN05, **fields) == 0x4000404000010440
    assert matrix_descriptor(Swizzle.B128, Generation.WGMMA, **fields) == 0x4000004000010440


@pytest.mark.parametrize("field", ["leading_bytes", "stride_bytes", "address"])
@pytest.mark.parametrize("value", [8, -16, 1 << 18])
def test_matrix_descriptor_refuses_what_it_cannot_encode(field, value):
    fields = {"leading_bytes": 0, "stride_bytes": 1024, field: value}
    with pytest.raises(ValueError, match=field):
        matrix_descriptor(Swizzle.B128, Generation.TCGEN05, **fields)


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

ROW_BITS = {128: 7, 64: 3, 32: 1, 16: 0}  # of the address, XORed into the 16-byte unit, by span


def _swizzled(span: int, linear: int) -> int:
    return linear ^ (((linear >> 7) & ROW_BITS[span]) << 4)


def _written(tile: OperandTile, row: int, k: int) -> int:
    """Byte in the stage where TMA puts an element: spans in order, inside one its lines, then the XOR."""
    span, item = tile.swizzle.span, tile.element.itemsize
    inner, line = (k, row) if tile.major is K else (row, k)
    return _swizzled(span, inner * item // span * tile.span_bytes + line * span + inner * item % span)


def _read(tile: OperandTile, block_rows: int, row: int, k: int) -> int:
    """Byte that an MMA reads for an element: the kernel's step and block offsets, then the canonical layout."""
    span, item = tile.swizzle.span, tile.element.itemsize
    block, r = divmod(row, block_rows)
    step, kk = divmod(k, 32 // item)
    start = (
        block * tile.block_bytes(block_rows)
        + step // tile.steps_per_span * tile.span_bytes
        + step % tile.steps_per_span * tile.step_bytes
    )
    descriptor = tile.matrix_descriptor(Generation.TCGEN05)
    leading = ((descriptor >> 16) & 0x3FFF) * 16
    stride = ((descriptor >> 32) & 0x3FFF) * 16
    if tile.major is K:
        offset = kk * item + r % 8 * span + r // 8 * stride
    elif span == 16:
        offset = r * item % 16 + r * item // 16 * stride + kk % 8 * 16 + kk // 8 * leading
    else:
        offset = r * item % span + r * item // span * leading + kk % 8 * span + kk // 8 * stride
    return _swizzled(span, start + offset)


@pytest.mark.parametrize(
    ("element", "major", "rows", "k", "block_rows", "swizzle", "boxes"),
    [
        (bf16, K, 128, 64, 128, Swizzle.B128, 1),
        (bf16, K, 64, 128, 64, Swizzle.B128, 2),
        (bf16, K, 192, 64, 64, Swizzle.B128, 1),
        (bf16, K, 128, 32, 128, Swizzle.B64, 1),
        (bf16, K, 72, 48, 72, Swizzle.B32, 3),
        (bf16, K, 320, 64, 64, Swizzle.B128, 2),
        (bf16, K, 264, 64, 264, Swizzle.B128, 3),
        (e4m3, K, 64, 96, 64, Swizzle.B32, 3),
        (tf32, K, 64, 8, 64, Swizzle.B32, 1),
        (bf16, MN, 128, 64, 128, Swizzle.B128, 2),
        (bf16, MN, 192, 16, 64, Swizzle.B128, 3),
        (f16, MN, 96, 48, 96, Swizzle.B64, 3),
        (f16, MN, 16, 80, 16, Swizzle.B32, 1),
        (bf16, MN, 24, 32, 24, Swizzle.NONE, 3),
        (bf16, MN, 64, 272, 64, Swizzle.B128, 2),
    ],
)
def test_the_mma_reads_what_tma_wrote(element, major, rows, k, block_rows, swizzle, boxes):
    tile = OperandTile.of("A", element, major, rows=rows, k=k)
    assert (tile.swizzle, tile.boxes) == (swizzle, boxes)
    offsets = [(row, kk) for row in range(0, rows, 3) for kk in range(k)]
    assert [_read(tile, block_rows, *at) for at in offsets] == [_written(tile, *at) for at in offsets]


def test_no_span_straddles_two_blocks():
    whole = OperandTile.of("B", bf16, MN, rows=48, k=32)
    halved = OperandTile.of("B", bf16, MN, rows=48, k=32, block_rows=24)
    assert (whole.swizzle, halved.swizzle) == (Swizzle.B32, Swizzle.NONE)
    offsets = [(row, k) for row in range(48) for k in range(32)]
    assert [_read(halved, 24, *at) for at in offsets] == [_written(halved, *at) for at in offsets]


@pytest.mark.parametrize(("major", "rows", "k"), [(K, 264, 64), (K, 512, 16), (MN, 64, 272), (MN, 24, 512)])
def test_boxes_are_legal_and_start_on_a_swizzle_period(major, rows, k):
    tile = OperandTile.of("B", bf16, major, rows=rows, k=k)
    inner, outer = tile.box
    assert inner * 2 == tile.swizzle.span
    assert outer <= 256
    assert inner * outer * 2 % tile.swizzle.period == 0
    assert tile.boxes * inner * outer == rows * k


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


@pytest.mark.parametrize("part", [(0, 4), (16, -1), (16, 4, -1)])
def test_shared_storage_of_nonsense(part):
    with pytest.raises(ValueError, match="part 2 is"):
        shared_storage((16, 4), part)
