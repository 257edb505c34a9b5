"""tcgen05 forms that leave lanes, columns or rows out, or move them (PTX ISA 9.7.16.4.3, 9.7.16.9, 9.7.16.10)."""

from __future__ import annotations

import numpy as np
import pytest

from blasdx.emulator import EmulationError
from tests.emulator.tensor_kernel import Tensor, operand
from tests.emulator.test_family_tcgen05 import decoded, draw, idesc, mma, product, rows_of

# Masks as the instruction set's own examples print them, column 0 on the right.
EXAMPLES = {
    128: ({}, ["1110000"]),
    64: ({"first": (1, 0)}, ["0000111", "1110000"]),
    32: ({"start": (0, 1, 2, 1), "first": (1, 1, 0, 0)}, ["0000111", "1000011", "0011100", "0111000"]),
}


def descriptor(
    start: tuple[int, ...] = (), first: tuple[int, ...] = (), *, skip: int = 2, use: int = 3, shift: int = 0
) -> int:
    """Fields of the 64 bits; a mask is to be generated."""
    bits = 1 << 39 | skip << 40 | use << 48 | shift << 56
    for k, value in enumerate(start):
        bits |= value << 8 * k
    for k, value in enumerate(first):
        bits |= value << 32 + k
    return bits


def mask(patterns: list[str], n: int) -> np.ndarray:
    """Each pattern again and again from its right end on, side by side."""
    size = n // len(patterns)
    return np.array([p[::-1][c % len(p)] == "1" for p in patterns for c in range(size)])


def weight_stationary(bits: int) -> str:
    text = mma("f16", 1, mods=".ws.cta_group::1").replace("%q4;", "%q4, %d40;")
    return f"mov.u64 %d40, {bits:#x};\n{text}"


LAYOUTS = {128: "", 64: "E", 32: "G"}


@pytest.mark.parametrize("m", [128, 64, 32])
def test_columns_of_the_mask_count_as_zeros(m: int) -> None:
    fields, patterns = EXAMPLES[m]
    n = 128
    x, y = draw(m, 16, "bf16", 1), draw(n, 16, "bf16", 2)
    y[:, 0] = np.where(mask(patterns, n), np.inf, y[:, 0].astype(np.float32))  # never looked at
    tensor = Tensor((operand(x, "32B"), operand(y, "32B")), idesc("bf16", "bf16", "f32", m, n))
    got = tensor.run(weight_stationary(descriptor(**fields)), read=n)
    want = product(x, np.where(mask(patterns, n)[:, None], 0, y.astype(np.float64)))
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n, LAYOUTS[m]), "f32"), want)


@pytest.mark.parametrize("mn_major", [False, True])
@pytest.mark.parametrize(("m", "code", "shift"), [(32, 2, 2), (64, 3, 32), (128, 1, 5)])
def test_b_begins_at_a_later_column(m: int, code: int, shift: int, mn_major: bool) -> None:
    n = 64
    x, y = draw(m, 16, "bf16", 3), draw(n + 32, 16, "bf16", 4)
    bits = idesc("bf16", "bf16", "f32", m, n, code << 30 | mn_major << 16)
    tensor = Tensor((operand(x, "32B"), operand(y, "32B", mn_major=mn_major)), bits)
    got = tensor.run(weight_stationary(shift << 56))
    want = product(x, y[shift : shift + n])
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n, LAYOUTS[m]), "f32"), want)


@pytest.mark.parametrize(("bits", "message"), [
    (descriptor(shift=1), "column shift is 1, needs at most 0"),
    (descriptor((4,)), "start count 0 is 4"),
    (descriptor() | 1 << 37, "reserved"),
])  # fmt: skip
def test_masks_without_a_meaning_are_errors(bits: int, message: str) -> None:
    x, y = draw(128, 16, "bf16", 5), draw(64, 16, "bf16", 6)
    tensor = Tensor((operand(x, "32B"), operand(y, "32B")), idesc("bf16", "bf16", "f32", 128, 64))
    with pytest.raises(EmulationError, match=message) as caught:
        tensor.run(weight_stationary(bits))
    assert caught.value.line is not None


@pytest.mark.parametrize("m", [256, 128])
def test_disabled_lanes_of_a_pair(m: int) -> None:
    """Words 0 to 3 are the lanes of the even CTA, 4 to 7 those of the odd one."""
    n = 32
    x, y = draw(m, 16, "bf16", 7), draw(n, 16, "bf16", 8)
    halves = [(operand(x[h * m // 2 : (h + 1) * m // 2], "32B"), operand(y[h * n // 2 : (h + 1) * n // 2], "32B"))
              for h in (0, 1)]  # fmt: skip
    words = np.random.default_rng(9).integers(0, 1 << 32, 8, dtype=np.uint64)
    registers = ", ".join(f"%r{100 + k}" for k in range(8))
    text = "".join(f"mov.u32 %r{100 + k}, {int(word):#x};\n" for k, word in enumerate(words))
    text += mma("f16", 1, mods=".cta_group::2").replace("%r40, %q4", f"%r40, {{{registers}}}, %q4")
    old = np.full((2, 128, n), 99, np.float32).view(np.uint32)
    tensor = Tensor(halves[0], idesc("bf16", "bf16", "f32", m, n), group=2)
    images = [np.concatenate([a.image, b.image]) for a, b in halves]
    got = decoded(tensor.run(text, before=old, images=images, read=n), "f32")
    off = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little").reshape(2, 128).astype(bool)
    want = np.full((2, 128, n), 99.0)
    for cta in (0, 1):
        part = product(x, y)[cta * m // 2 : (cta + 1) * m // 2]
        if m == 128:  # the halves of N lie in the halves of the lanes
            want[cta, :64, : n // 2], want[cta, 64:, : n // 2] = part[:, : n // 2], part[:, n // 2 :]
        else:
            want[cta] = part
    np.testing.assert_array_equal(got, np.where(off[:, :, None], 99.0, want))


@pytest.mark.parametrize("lane", [0, 31])
def test_a_copy_of_four_rows_gives_one_to_each_quarter(lane: int) -> None:
    rows = np.random.default_rng(10).integers(0, 256, (8, 32)).astype(np.uint8)
    before = np.random.default_rng(11).integers(0, 1 << 32, (1, 128, 16), dtype=np.uint64).astype(np.uint32)
    text = f"add.u32 %r41, %r30, {lane << 16 | 4};\ntcgen05.cp.cta_group::1.4x256b [%r41], %d20;"
    got = Tensor((operand(rows, "none"),)).run(text, before=before, read=16)
    want = before[0].copy()
    want[lane::32, 4:12] = rows[:4].view(np.uint32)
    np.testing.assert_array_equal(got[0], want)


def test_a_shift_and_a_copy_move_a_window_through_each_quarter() -> None:
    rows = np.random.default_rng(12).integers(0, 256, (8, 32)).astype(np.uint8)
    before = np.random.default_rng(13).integers(0, 1 << 32, (1, 128, 8), dtype=np.uint64).astype(np.uint32)
    text = (
        "tcgen05.shift.cta_group::1.down [%r30];\n"
        f"add.u32 %r41, %r30, {31 << 16};\ntcgen05.cp.cta_group::1.4x256b [%r41], %d20;"
    )
    got = Tensor((operand(rows, "none"),)).run(text, before=before, read=8)
    quarters = before[0].reshape(4, 32, 8)
    want = np.concatenate([quarters[:, 1:], rows[:4].view(np.uint32)[:, None]], axis=1)
    np.testing.assert_array_equal(got[0].reshape(4, 32, 8), want)


def test_4_bit_floats_unpacked_by_a_copy_are_an_operand_in_tensor_memory() -> None:
    m, n = 128, 32
    x, y = draw(m, 32, "e2m1", 14), draw(n, 32, "e4m3", 15)
    codes = x.view(np.uint8)
    units = np.zeros((m, 2, 16), np.uint8)
    units[:, :, :8] = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(m, 2, 8)
    text = (
        "add.u32 %r41, %r30, 128;\ntcgen05.cp.cta_group::1.128x256b.b8x16.b4x16_p64 [%r41], %d20;\n"
        + mma("f8f6f4", 1, a="[%r41]")
    )  # fmt: skip
    tensor = Tensor((operand(units.reshape(m, 32), "32B"), operand(y, "32B")), idesc("e2m1", "e4m3", "f32", m, n))
    got = tensor.run(text)
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n), "f32"), product(x, y))


@pytest.mark.parametrize("change", [
    ("kind::f16 [%r30], %d20", "kind::f16.ashift [%r30], [%r41]"),
    ("mma.cta_group::1", "mma.sp.cta_group::1"),
])  # fmt: skip
def test_forms_whose_meaning_is_not_established_are_refused_by_name(change: tuple[str, str]) -> None:
    x, y = draw(128, 16, "bf16", 16), draw(16, 16, "bf16", 17)
    text = mma("f16", 1).replace(*change)
    if ".sp" in change[1]:
        text = text.replace("%d28, %r40", "%d28, [%r41], %r40")
    tensor = Tensor((operand(x, "32B"), operand(y, "32B")), idesc("bf16", "bf16", "f32", 128, 16))
    with pytest.raises(EmulationError, match=r"ashift|\.sp") as caught:
        tensor.run("mov.u32 %r41, %r30;\n" + text)
    assert caught.value.line is not None
