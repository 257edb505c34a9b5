"""Descriptor bits and operand layouts: published constants, and formulas re-derived one element at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from blasdx.emulator.errors import DecodeError
from blasdx.emulator.instruction import InstructionDescriptor, check_operand, decode_instruction
from blasdx.emulator.matrix import (
    SharedDescriptor,
    decode_shared,
    operand,
    read,
    unpack_dense,
    unpack_padded,
)
from tests.emulator.test_units_tensormap import swizzled

# -------------------------------------------------------------------------------------------------- shared descriptors


def test_the_published_descriptor_in_both_encodings() -> None:
    expected = SharedDescriptor(start=0x4400, leading=16, stride=1024, swizzle="128B")
    assert decode_shared(0x4000404000010440, "sm_100a") == expected
    assert decode_shared(0x4000004000010440, "sm_90a") == expected
    assert not SharedDescriptor(0x4400, 16, 1024, "64B").start % 1024
    assert expected.anchored
    assert not SharedDescriptor(0x4480, 16, 1024, "128B").anchored
    assert SharedDescriptor(0x4420, 16, 1024, "128B").anchored


@pytest.mark.parametrize(("code", "name"), [(0, "none"), (1, "128B_ATOM_32B"), (2, "128B"), (4, "64B"), (6, "32B")])
def test_swizzle_codes(code: int, name: str) -> None:
    assert decode_shared(1 << 46 | code << 61, "sm_103a").swizzle == name


@pytest.mark.parametrize(
    ("bits", "target", "names"),
    [
        (0x4000404000010440 | 1 << 14, "sm_100a", "carried"),
        (0x4000404000010440 | 1 << 31, "sm_100a", "carried"),
        (0x4000404000010440 | 1 << 52, "sm_103a", "K = 96"),
        (0x4000404000010440 | 1 << 53, "sm_107a", "53-60"),
        (0x4000404000010440 ^ 1 << 46, "sm_100a", "version"),
        (0x4000404000010440, "sm_90a", "46-48"),
        (0x6000404000010440, "sm_100a", "swizzle"),
        (0x2000004000010440, "sm_90a", "52-61"),
    ],
)
def test_reserved_bits_trap(bits: int, target: str, names: str) -> None:
    with pytest.raises(DecodeError, match=names):
        decode_shared(bits, target)


def test_the_base_offset_moves_the_pattern() -> None:
    desc = decode_shared(0x4000404000010440 | 3 << 49, "sm_100a")
    assert desc.base == 3
    assert not desc.anchored
    shared = np.random.default_rng(5).integers(0, 256, 32768, dtype=np.uint8)
    got = read(shared.view(np.complex128), operand(desc, False, 24, 16, 16))
    for r in range(24):
        for k in range(16):
            linear = 0x4400 + r % 8 * 128 + r // 8 * 1024 + 2 * k
            address = linear ^ ((linear // 128 - 3) % 8) * 16
            assert int(got[r, k]) == int(shared[address]) | int(shared[address + 1]) << 8


def test_sm_107_widens_both_address_fields() -> None:
    desc = decode_shared(0x4000404000010440 | 1 << 14 | 1 << 30, "sm_107a")
    assert (desc.start, desc.leading) == (0x4400 + (1 << 18), 16 + (1 << 18))


# ---------------------------------------------------------------------------------------------------- operand layouts


def k_none(r: int, kb: int, lbo: int, sbo: int) -> int:
    return kb % 16 + kb // 16 * lbo + r % 8 * 16 + r // 8 * sbo


def k_swizzled(span: int) -> Callable[[int, int, int, int], int]:
    return lambda r, kb, lbo, sbo: kb % span + r % 8 * span + r // 8 * sbo


def mn_none(mb: int, k: int, lbo: int, sbo: int) -> int:
    return mb % 16 + mb // 16 * sbo + k % 8 * 16 + k // 8 * lbo


def mn_swizzled(span: int, group: int) -> Callable[[int, int, int, int], int]:
    return lambda mb, k, lbo, sbo: mb % span + mb // span * lbo + k % group * span + k // group * sbo


# name, swizzle, mn_major, element bytes, rows, K, leading, stride, start offset, formula
LAYOUTS = [
    ("K none 16-bit", "none", False, 2, 128, 16, 16 * 136, 128, 0, k_none),
    ("K none 8-bit", "none", False, 1, 24, 32, 144, 1024, 16, k_none),
    ("K 32B", "32B", False, 2, 40, 16, 16, 256, 0, k_swizzled(32)),
    ("K 64B, second K step", "64B", False, 1, 72, 32, 0, 512, 32, k_swizzled(64)),
    ("K 128B, third K step", "128B", False, 2, 136, 16, 16, 1024, 64, k_swizzled(128)),
    ("K 128B tf32, last K step", "128B", False, 4, 64, 8, 16, 2048, 96, k_swizzled(128)),
    ("MN none 16-bit", "none", True, 2, 64, 16, 1024 + 16, 128, 0, mn_none),
    ("MN 32B", "32B", True, 2, 48, 16, 4096, 256, 0, mn_swizzled(32, 8)),
    ("MN 64B", "64B", True, 1, 192, 32, 4096, 512, 0, mn_swizzled(64, 8)),
    ("MN 128B, second K step", "128B", True, 2, 128, 16, 8192, 1024, 2048, mn_swizzled(128, 8)),
    ("MN 128B 8-bit", "128B", True, 1, 256, 32, 16384, 1024, 4096, mn_swizzled(128, 8)),
    ("MN 128B 32B atom", "128B_ATOM_32B", True, 4, 96, 8, 4096, 512, 1024, mn_swizzled(128, 4)),
]


@pytest.mark.parametrize(
    ("swizzle", "mn_major", "size", "rows", "depth", "leading", "stride", "offset", "formula"),
    [layout[1:] for layout in LAYOUTS],
    ids=[layout[0] for layout in LAYOUTS],
)
@pytest.mark.parametrize("base", [0x4400, 0x1080])
def test_every_element_is_where_the_canonical_layout_puts_it(
    swizzle: str,
    mn_major: bool,
    size: int,
    rows: int,
    depth: int,
    leading: int,
    stride: int,
    offset: int,
    formula: Callable[[int, int, int, int], int],
    base: int,
) -> None:
    shared = np.random.default_rng(rows).integers(0, 256, 1 << 17, dtype=np.uint8)
    desc = SharedDescriptor(base + offset, leading, stride, swizzle)
    where = operand(desc, mn_major, rows, depth, 8 * size)
    got = read(shared.view(np.complex128), where)
    assert got.shape == (rows, depth)
    touched = 0
    for r in range(rows):
        for k in range(depth):
            first = formula(r * size, k, leading, stride) if mn_major else formula(r, k * size, leading, stride)
            address = swizzled(desc.start + first, swizzle)
            assert int(got[r, k]) == int.from_bytes(shared[address : address + size].tobytes(), "little")
            touched |= 1 << address // 16
    assert where.mask == touched


def test_dense_four_bit_elements_and_the_end_of_shared_memory() -> None:
    shared = np.random.default_rng(1).integers(0, 256, 32768, dtype=np.uint8)
    where = operand(SharedDescriptor(0x400, 16, 1024, "128B"), False, 16, 64, 4)
    got = read(shared.view(np.complex128), where)
    for r in range(16):
        for k in range(64):
            byte = shared[swizzled(0x400 + r % 8 * 128 + r // 8 * 1024 + k // 2, "128B")]
            assert got[r, k] == byte >> 4 * (k % 2) & 15
    with pytest.raises(DecodeError, match="shared memory ends at 0x7ff"):
        read(shared[:2048].view(np.complex128), where)
    with pytest.raises(DecodeError, match="whole 16-byte units"):
        operand(SharedDescriptor(0x400, 16, 1024, "128B"), True, 8, 32, 8)


@pytest.mark.parametrize("bits", [4, 6])
def test_padded_and_dense_small_elements(bits: int) -> None:
    rng = np.random.default_rng(bits)
    wanted = rng.integers(0, 1 << bits, (3, 32), dtype=np.uint8)
    padded = np.zeros((3, 32), np.uint8)
    for r in range(3):
        for unit in range(2):
            packed = sum(int(wanted[r, unit * 16 + i]) << bits * i for i in range(16))
            padded[r, unit * 16 : unit * 16 + 2 * bits] = list(packed.to_bytes(2 * bits, "little"))
    assert np.array_equal(unpack_padded(padded, bits), wanted)
    dense = padded.reshape(3, 2, 16)[:, :, : 2 * bits]
    assert np.array_equal(unpack_dense(dense, bits).reshape(3, 32), wanted)


# ---------------------------------------------------------------------------------------------------- instructions


@pytest.mark.parametrize(
    ("bits", "kind", "group", "shape", "types", "mn_major"),
    [
        (0x08400010, "f16", 1, (128, 256, 16), ("f16", "f16", "f32"), (False, False)),
        (0x08200490, "f16", 1, (128, 128, 16), ("bf16", "bf16", "f32"), (False, False)),
        (0x08218490, "f16", 1, (128, 128, 16), ("bf16", "bf16", "f32"), (True, True)),
        (0x04100490, "f16", 1, (64, 64, 16), ("bf16", "bf16", "f32"), (False, False)),
        (0x10400490, "f16", 2, (256, 256, 16), ("bf16", "bf16", "f32"), (False, False)),
        (0x08200910, "tf32", 1, (128, 128, 8), ("tf32", "tf32", "f32"), (False, False)),
        (0x08200010, "f8f6f4", 1, (128, 128, 32), ("e4m3", "e4m3", "f32"), (False, False)),
        (0x082004A0, "i8", 1, (128, 128, 32), ("s8", "s8", "s32"), (False, False)),
        (0x08200420, "i8", 1, (128, 128, 32), ("u8", "s8", "s32"), (False, False)),
    ],
)
def test_published_instruction_descriptors(
    bits: int, kind: str, group: int, shape: tuple[int, ...], types: tuple[str, ...], mn_major: tuple[bool, ...]
) -> None:
    desc = decode_instruction(bits, kind, "sm_100a", cta_group=group)
    assert (desc.m, desc.n, desc.k) == shape
    assert (desc.a, desc.b, desc.d) == types
    assert (desc.a_mn_major, desc.b_mn_major) == mn_major
    assert not (desc.negate_a)
    assert not (desc.negate_b)
    assert not (desc.saturate)
    assert not (desc.scale)


def instruction(m: int = 128, n: int = 128, rest: int = 0x10) -> int:
    return m >> 4 << 24 | n >> 3 << 17 | rest


def test_flags_and_block_scales() -> None:
    assert decode_instruction(0x082004A8, "i8", "sm_110a").saturate
    desc = decode_instruction(instruction(rest=0x10 | 1 << 14), "f16", "sm_100a")
    assert (desc.negate_a, desc.negate_b) == (False, True)
    scaled = instruction(rest=3 << 4 | 5 << 7 | 1 << 10 | 1 << 23 | 2 << 29)
    desc = decode_instruction(scaled, "mxf8f6f4", "sm_100a", scale_vector=1)
    assert (desc.a, desc.b, desc.d, desc.scale) == ("e2m1", "e5m2", "f32", "ue8m0")
    assert (desc.a_scale_id, desc.b_scale_id, desc.shared_bits) == (2, 3, 8)
    four = decode_instruction(instruction(rest=1 << 7 | 1 << 10), "mxf4nvf4", "sm_100a", scale_vector=4)
    assert (four.k, four.scale, four.shared_bits) == (64, "ue4m3", 4)


@pytest.mark.parametrize(
    ("m", "n", "rest", "kind", "group", "b_mn_major", "legal"),
    [
        (64, 8, 0x10, "f16", 1, False, True),
        (128, 248, 0x10, "f16", 1, False, True),
        (256, 64, 0x10, "f16", 1, False, False),
        (256, 24, 0x10, "f16", 2, False, False),
        (256, 48, 0x10, "f16", 2, False, True),
        (64, 64, 0x10, "f16", 2, False, False),
        (128, 0, 0x10, "f16", 1, False, False),
        (128, 24, 0x10, "f8f6f4", 1, False, True),
        (128, 24, 0x10, "f8f6f4", 1, True, False),
        (256, 48, 0x10, "f8f6f4", 2, True, False),
        (128, 24, 0x20, "i8", 1, False, True),
        (128, 40, 0x20, "i8", 1, False, False),
        (128, 8, 0x20, "i8", 1, True, False),
        (256, 48, 0x20, "i8", 2, False, False),
        (256, 96, 0x20, "i8", 2, True, True),
        (64, 128, 1 << 23, "mxf8f6f4", 1, False, False),
    ],
)
def test_shapes(m: int, n: int, rest: int, kind: str, group: int, b_mn_major: bool, legal: bool) -> None:
    bits = instruction(m, n, rest | b_mn_major << 16)
    if legal:
        assert decode_instruction(bits, kind, "sm_100a", cta_group=group).n == n
    else:
        with pytest.raises(DecodeError, match=f"(M is {m}|N is {n})"):
            decode_instruction(bits, kind, "sm_100a", cta_group=group)


@pytest.mark.parametrize(
    ("bits", "kind", "target", "names"),
    [
        (instruction(rest=0x20), "i8", "sm_103a", "sm_100a and sm_110a only"),
        (instruction(rest=0x20), "i8", "sm_100f", "only, not on sm_100f"),
        (instruction(rest=0x14), "f16", "sm_100a", "sparse"),
        (instruction(rest=0x50), "f16", "sm_100a", "bit 6"),
        (instruction(rest=0x18), "f16", "sm_100a", "saturate"),
        (instruction(rest=0x10 | 2 << 7), "f16", "sm_100a", "type of A"),
        (instruction(rest=0x20), "f16", "sm_100a", "type of D"),
        (instruction(rest=1 << 10), "f16", "sm_100a", "f16 accumulator"),
        (instruction(rest=0x10), "tf32", "sm_100a", "type of A"),
        (instruction(rest=0x10 | 2 << 7), "f8f6f4", "sm_100a", "type of A"),
        (instruction(rest=0x20 | 1 << 13), "i8", "sm_100a", "negate"),
        (instruction(rest=0x10 | 1 << 23), "f16", "sm_100a", "bit 23"),
        (instruction(rest=0x10 | 1 << 29), "f8f6f4", "sm_100a", "bit 29"),
        (instruction(rest=0x10 | 1 << 30), "f16", "sm_100a", "shift"),
        (instruction(rest=0x10 | 5 << 7 | 1 << 15), "f8f6f4", "sm_100a", "majorness of A"),
        (instruction(rest=0), "mxf8f6f4", "sm_100a", "scale type"),
        (instruction(rest=1 << 4 | 1 << 7 | 1 << 10 | 1 << 23), "mxf4", "sm_100a", "scale-factor id of B"),
        (instruction(rest=1 << 7 | 1 << 10 | 1 << 23 | 1 << 31), "mxf4", "sm_103a", "K = 96"),
        (instruction(), "f13", "sm_100a", "not known"),
    ],
)
def test_inconsistent_instruction_descriptors_trap(bits: int, kind: str, target: str, names: str) -> None:
    with pytest.raises(DecodeError, match=names):
        decode_instruction(bits, kind, target)


def test_weight_stationary_shapes_and_later_depths() -> None:
    assert decode_instruction(instruction(32, 64), "f16", "sm_100a", ws=True).m == 32
    with pytest.raises(DecodeError, match="N is 32"):
        decode_instruction(instruction(32, 32), "f16", "sm_100a", ws=True)
    assert decode_instruction(instruction(rest=0x10 | 1 << 29), "f8f6f4", "sm_107a").k == 64
    assert decode_instruction(instruction(rest=1 << 23 | 1 << 31), "mxf8f6f4", "sm_107a").k == 64


def test_the_32_byte_atom_belongs_to_mn_major_tf32() -> None:
    def desc(kind: str, rest: int) -> InstructionDescriptor:
        return decode_instruction(instruction(rest=rest), kind, "sm_100a")

    tf32, bf16 = desc("tf32", 0x910), desc("f16", 0x490)
    atom, plain = (SharedDescriptor(0x400, 16, 1024, name) for name in ("128B_ATOM_32B", "128B"))
    check_operand(tf32, atom, mn_major=True, name="A")
    check_operand(tf32, plain, mn_major=False, name="A")
    check_operand(bf16, plain, mn_major=True, name="B")
    with pytest.raises(DecodeError, match=r"MN-major A of \.kind::tf32"):
        check_operand(tf32, plain, mn_major=True, name="A")
    with pytest.raises(DecodeError, match=r"MN-major B of \.kind::f16"):
        check_operand(bf16, atom, mn_major=True, name="B")
