"""tcgen05 (PTX ISA 9.7.16): every kind, layout and shape, against float64 products and the layouts' formulas."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from blasdx.emulator import EmulationError
from tests.emulator.families import assemble, launch
from tests.emulator.tensor_kernel import Operand, Tensor, operand

DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
CODES = {
    "f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "u8": 0, "s8": 1,
}  # fmt: skip


def idesc(a: str, b: str, d: str, m: int, n: int, extra: int = 0) -> int:
    return {"f16": 0, "f32": 1, "s32": 2}[d] << 4 | CODES[a] << 7 | CODES[b] << 10 | n >> 3 << 17 | m >> 4 << 24 | extra


def draw(rows: int, depth: int, element: str, seed: int) -> np.ndarray:
    low, high = (0, 5) if element == "u8" else (-2, 3)
    return np.random.default_rng(seed).integers(low, high, (rows, depth)).astype(DTYPES[element])


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64).T


def decoded(words: np.ndarray, d: str) -> np.ndarray:
    """Accumulators as float64."""
    if d == "f16":
        return (words & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64)
    return words.view(np.float32 if d == "f32" else np.int32).astype(np.float64)


def rows_of(tensor: np.ndarray, m: int, n: int, layout: str = "") -> np.ndarray:
    """(M, N) words of an accumulator in one CTA's tensor memory (PTX ISA 9.7.16.10.5, figures of layouts)."""
    r, c = np.indices((m, n))
    if layout == "E":  # .ws, M = 64
        return tensor[r + 64 * (c >= n // 2), c % (n // 2)]
    if layout == "G":  # .ws, M = 32
        return tensor[r + 32 * (c // (n // 4)), c % (n // 4)]
    if m == 64:
        return tensor[r // 16 * 32 + r % 16, c]
    return tensor[r, c]


ONE = ".cta_group::1"


def mma(
    kind: str, steps: int, *, accumulate_first: bool = False, a: str = "%d{0}", tail: str = "", mods: str = ONE
) -> str:
    """A chain over K."""
    return "setp.eq.u32 %q3, %r40, %r40; setp.ne.u32 %q4, %r40, %r40;\n" + "\n".join(
        f"tcgen05.mma{mods}.kind::{kind} [%r30], {a.format(20 + s)}, %d{28 + s}, %r40, "
        f"{'%q3' if s or accumulate_first else '%q4'}{tail};"
        for s in range(steps)
    )


KINDS = [
    ("f16", "f16", "f16", "f32"), ("f16", "bf16", "bf16", "f32"), ("f16", "f16", "f16", "f16"),
    ("tf32", "tf32", "tf32", "f32"), ("f8f6f4", "e4m3", "e5m2", "f32"), ("f8f6f4", "e5m2", "e5m2", "f16"),
    ("i8", "s8", "s8", "s32"), ("i8", "u8", "s8", "s32"),
]  # fmt: skip


@pytest.mark.parametrize(("m", "n"), [(128, 64), (64, 48), (128, 8)])
@pytest.mark.parametrize(("kind", "a", "b", "d"), KINDS)
def test_kinds(kind: str, a: str, b: str, d: str, m: int, n: int) -> None:
    if kind == "i8" and n == 48:
        n = 32
    depth = 128 // np.dtype(DTYPES[a]).itemsize
    x, y = draw(m, depth, a, 1), draw(n, depth, b, 2)
    left, right = operand(x), operand(y)
    got = Tensor((left, right), idesc(a, b, d, m, n)).run(mma(kind, 4), read=64)
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n), d), product(x, y))


@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize(("a_major", "b_major"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("kind", "element"), [("f16", "bf16"), ("i8", "s8")])
def test_canonical_layouts(kind: str, element: str, mode: str, a_major: bool, b_major: bool) -> None:
    m, n = 128, 128
    size = np.dtype(DTYPES[element]).itemsize
    depth = 32 // size if mode in ("none", "32B") else 64 // size
    x, y = draw(m, depth, element, 3), draw(n, depth, element, 4)
    left, right = operand(x, mode, mn_major=a_major), operand(y, mode, mn_major=b_major)
    d = "f32" if kind == "f16" else "s32"
    flags = a_major << 15 | b_major << 16
    got = Tensor((left, right), idesc(element, element, d, m, n, flags)).run(mma(kind, len(left.steps)), read=n)
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n), d), product(x, y))


@pytest.mark.parametrize("element", ["e2m3", "e3m2", "e2m1"])
def test_small_floats_lie_in_padded_rows(element: str) -> None:
    """16 elements of 6 (4) bits in the first 12 (8) of 16 bytes."""
    m, n, depth = 128, 32, 32
    x, y = draw(m, depth, element, 5), draw(n, depth, "e4m3", 6)
    bits = 4 if element == "e2m1" else 6
    codes = x.view(np.uint8).reshape(m, depth // 16, 16).astype(object)
    packed = np.zeros((m, depth // 16, 16), np.uint8)
    for unit in np.ndindex(m, depth // 16):
        word = sum(int(code) << bits * k for k, code in enumerate(codes[unit]))
        packed[unit] = np.frombuffer(word.to_bytes(16, "little"), np.uint8)
    left, right = operand(packed.reshape(m, depth), "32B"), operand(y, "32B")
    got = Tensor((left, right), idesc(element, "e4m3", "f32", m, n)).run(mma("f8f6f4", 1))
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n), "f32"), product(x, y))


def test_mn_major_tf32_lies_in_atoms_of_32_bytes() -> None:
    m, n, depth = 128, 64, 8

    def atoms(codes: np.ndarray) -> Operand:
        rows = len(codes)
        r, k = np.indices(codes.shape)
        leading, stride = 128 * depth, 512
        offset = r * 4 % 128 + r * 4 // 128 * leading + k % 4 * 128 + k // 4 * stride
        place = offset ^ (offset >> 7 & 3) << 5
        image = np.zeros(rows * depth, np.float32)
        image[place // 4] = codes
        descriptor = leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | 1 << 61
        return Operand(image.view(np.uint8), descriptor, (0,))

    x, y = draw(m, depth, "tf32", 21), draw(n, depth, "tf32", 22)
    got = Tensor((atoms(x), atoms(y)), idesc("tf32", "tf32", "f32", m, n, 3 << 15)).run(mma("tf32", 1))
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n), "f32"), product(x, y))


def test_two_accumulators_of_64_rows_share_their_columns() -> None:
    m, n = 64, 16
    x, y = draw(m, 16, "bf16", 23), draw(n, 16, "bf16", 24)
    text = "add.u32 %r41, %r30, 0x100000;\n" + mma("f16", 1) + "\n" + mma("f16", 1).replace("[%r30]", "[%r41]")
    bits = idesc("bf16", "bf16", "f32", m, n)
    got = Tensor((operand(x, "32B"), operand(y, "32B")), bits).run(text, read=n)[0]
    for half in (0, 16):
        words = got[np.arange(m) // 16 * 32 + np.arange(m) % 16 + half]
        np.testing.assert_array_equal(decoded(words, "f32"), product(x, y))


def test_input_d_is_taken_or_ignored_and_operands_are_negated() -> None:
    m, n = 128, 16
    x, y = draw(m, 16, "bf16", 7), draw(n, 16, "bf16", 8)
    left, right = operand(x, "32B"), operand(y, "32B")
    old = np.random.default_rng(9).integers(-9, 9, (1, 128, 16)).astype(np.float32)
    plain = idesc("bf16", "bf16", "f32", m, n)

    def run(extra: int, **more: Any) -> np.ndarray:
        tensor = Tensor((left, right), plain | extra)
        return decoded(rows_of(tensor.run(mma("f16", 1, **more), before=old.view(np.uint32))[0], m, n), "f32")

    p = product(x, y)
    np.testing.assert_array_equal(run(0, accumulate_first=True), old[0] + p)
    np.testing.assert_array_equal(run(1 << 13, accumulate_first=True), old[0] - p)
    np.testing.assert_array_equal(run(1 << 13 | 1 << 14, accumulate_first=True), old[0] + p)
    np.testing.assert_array_equal(run(0, accumulate_first=True, tail=", 3"), old[0] / 8 + p)
    old[:] = np.nan
    np.testing.assert_array_equal(run(0), p)


def test_disabled_lanes_keep_what_they_had() -> None:
    m, n = 128, 16
    x, y = draw(m, 16, "bf16", 7), draw(n, 16, "bf16", 8)
    words = [0xFFFF0000, 0, 0x1, 0x80000000]
    old = np.full((1, 128, 16), 99, np.float32)
    text = "mov.u32 %r41, 0xffff0000; mov.u32 %r42, 0; mov.u32 %r43, 1; mov.u32 %r44, 0x80000000;\n" + mma(
        "f16", 1
    ).replace("%r40, %q4", "%r40, {%r41, %r42, %r43, %r44}, %q4")
    got = Tensor((operand(x, "32B"), operand(y, "32B")), idesc("bf16", "bf16", "f32", m, n)).run(
        text, before=old.view(np.uint32)
    )
    off = np.array([words[r // 32] >> r % 32 & 1 for r in range(128)], bool)
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n), "f32"), np.where(off[:, None], 99, product(x, y)))


def test_integers_saturate_on_demand() -> None:
    m, n = 128, 16
    x, y = np.full((m, 32), 127, np.int8), np.full((n, 32), 127, np.int8)
    y[8:] = -128
    old = np.where(np.arange(16) < 8, (1 << 31) - 5, -(1 << 31) + 5).astype(np.int32)
    before = np.broadcast_to(old, (1, 128, 16)).astype(np.int32).view(np.uint32)
    exact = old.astype(np.int64) + product(x, y).astype(np.int64)
    for flag, want in ((0, exact.astype(np.int32)), (8, np.clip(exact, -(1 << 31), (1 << 31) - 1))):
        tensor = Tensor((operand(x, "32B"), operand(y, "32B")), idesc("s8", "s8", "s32", m, n, flag))
        got = tensor.run(mma("i8", 1, accumulate_first=True), before=before)
        np.testing.assert_array_equal(decoded(rows_of(got[0], m, n), "s32"), want)


@pytest.mark.parametrize(
    ("kind", "element", "d"), [("f16", "bf16", "f32"), ("i8", "s8", "s32"), ("tf32", "tf32", "f32")]
)
@pytest.mark.parametrize("m", [64, 128])
def test_a_in_tensor_memory(kind: str, element: str, d: str, m: int) -> None:
    n = 32
    size = np.dtype(DTYPES[element]).itemsize
    x, y = draw(m, 32 // size, element, 10), draw(n, 32 // size, element, 11)
    before = np.zeros((1, 128, 264), np.uint32)
    lanes = np.arange(m) if m == 128 else np.arange(m) // 16 * 32 + np.arange(m) % 16
    before[0, lanes, 256:264] = np.ascontiguousarray(x).view(np.uint32)
    text = "add.u32 %r41, %r30, 256;\n" + mma(kind, 1, a="[%r41]")
    got = Tensor((operand(x, "32B"), operand(y, "32B")), idesc(element, element, d, m, n)).run(text, before=before)
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n), d), product(x, y))


@pytest.mark.parametrize(("m", "n", "layout"), [(32, 64, "G"), (64, 128, "E"), (128, 64, "")])
def test_weight_stationary(m: int, n: int, layout: str) -> None:
    x, y = draw(m, 16, "bf16", 12), draw(n, 16, "bf16", 13)
    left, right = operand(x, "32B"), operand(y, "32B")
    got = Tensor((left, right), idesc("bf16", "bf16", "f32", m, n)).run(mma("f16", 1, mods=".ws.cta_group::1"))
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n, layout), "f32"), product(x, y))


@pytest.mark.parametrize("schedule", ["eager", "lazy", "adversarial", "random"])
@pytest.mark.parametrize("m", [256, 128])
def test_a_pair_of_ctas(m: int, schedule: str) -> None:
    n, depth = 64, 16
    x, y = draw(m, depth, "bf16", 14), draw(n, depth, "bf16", 15)
    # Each CTA holds its half of the rows of A and of B.
    halves = [(operand(x[h * m // 2 : (h + 1) * m // 2], "32B"), operand(y[h * n // 2 : (h + 1) * n // 2], "32B"))
              for h in (0, 1)]  # fmt: skip
    images = [np.concatenate([a.image, b.image]) for a, b in halves]
    tensor = Tensor(halves[0], idesc("bf16", "bf16", "f32", m, n), group=2)
    got = tensor.run(mma("f16", 1, mods=".cta_group::2"), images=images, schedule=schedule)
    want = product(x, y)
    if m == 256:
        np.testing.assert_array_equal(decoded(got.reshape(256, 64), "f32"), want)
        return
    r, c = np.indices((64, n))
    for cta in (0, 1):
        words = got[cta][r + 64 * (c >= n // 2), c % (n // 2)]
        np.testing.assert_array_equal(decoded(words, "f32"), want[cta * 64 : (cta + 1) * 64])


def scale_words(scales: np.ndarray) -> np.ndarray:
    """(128, columns) words of scale factors: lane mn % 32 of every quarter, column mn / 32, byte k."""
    rows, per = scales.shape
    words = np.zeros((128, 4), np.uint32)
    for r, k in np.ndindex(rows, per):
        words[r % 32 :: 32, r // 32] |= np.uint32(int(scales[r, k]) << 8 * k)
    return words


@pytest.mark.parametrize(("kind", "element", "scale", "vector", "spelling"), [
    ("mxf8f6f4", "e4m3", "ue8m0", 32, ".block_scale.scale_vec::1X"),
    ("mxf8f6f4", "e5m2", "ue8m0", 32, ".block_scale.block32"),
    ("mxf4", "e2m1", "ue8m0", 32, ".block_scale.scale_vec::2X"),
    ("mxf4nvf4", "e2m1", "ue4m3", 16, ".block_scale.scale_vec::4X"),
    ("mxf4nvf4", "e2m1", "ue8m0", 32, ".block_scale.scale_vec::2X"),
    ("mxf4nvf4", "e2m1", "ue4m3", 16, ".block_scale.block16"),
])  # fmt: skip
def test_block_scales(kind: str, element: str, scale: str, vector: int, spelling: str) -> None:
    m, n = 128, 64
    depth = 32 if kind == "mxf8f6f4" else 64
    x, y = draw(m, depth, element, 16), draw(n, depth, element, 17)
    rng = np.random.default_rng(18)
    per = depth // vector
    if scale == "ue8m0":
        sa, sb = (rng.integers(125, 130, (rows, per)) for rows in (m, n))
        va, vb = 2.0 ** (sa - 127), 2.0 ** (sb - 127)
    else:
        va, vb = (rng.choice([0.5, 1.0, 1.5, 2.0, 3.0], (rows, per)) for rows in (m, n))
        sa, sb = (v.astype(ml_dtypes.float8_e4m3fn).view(np.uint8) for v in (va, vb))

    def packed(v: np.ndarray) -> Operand:
        if element != "e2m1":
            return operand(v, "32B")
        codes = v.view(np.uint8)
        return operand(np.ascontiguousarray(codes[:, ::2] | codes[:, 1::2] << 4), "32B")

    before = np.zeros((1, 128, 264), np.uint32)
    before[0, :, 256:260], before[0, :, 260:264] = scale_words(sa), scale_words(sb)
    if kind == "mxf8f6f4":
        bits = CODES[element] << 7 | CODES[element] << 10 | 1 << 23
    else:
        bits = 1 << 7 | 1 << 10 | (scale == "ue8m0") << 23
    bits |= n >> 3 << 17 | m >> 7 << 27
    text = "add.u32 %r41, %r30, 256; add.u32 %r42, %r30, 260;\n" + mma(kind, 1).replace(
        f"kind::{kind}", f"kind::{kind}{spelling}"
    ).replace("%r40, %q4", "%r40, [%r41], [%r42], %q4")
    got = Tensor((packed(x), packed(y)), bits).run(text, before=before)
    want = product(x.astype(np.float64) * np.repeat(va, vector, 1), y.astype(np.float64) * np.repeat(vb, vector, 1))
    np.testing.assert_array_equal(decoded(rows_of(got[0], m, n), "f32"), want)


SHAPES = {
    "128x256b": 128, "128x128b": 128, "64x128b.warpx2::02_13": 64, "64x128b.warpx2::01_23": 64, "32x128b.warpx4": 32,
}  # fmt: skip


@pytest.mark.parametrize("shape", list(SHAPES))
def test_copies_from_shared_to_tensor_memory(shape: str) -> None:
    rows, width = SHAPES[shape], 32 if "256b" in shape else 16
    x = np.random.default_rng(19).integers(0, 256, (rows, width)).astype(np.uint8)
    source = operand(x, "none")
    got = Tensor((source,)).run(f"tcgen05.cp.cta_group::1.{shape} [%r30], %d20;", read=8)
    words = x.view(np.uint32)
    r = np.arange(128)
    row = {"02_13": r % 64, "01_23": r // 64 * 32 + r % 32}.get(shape[-5:], r % rows)
    np.testing.assert_array_equal(got[0][:, : width // 4], words[row])


@pytest.mark.parametrize("bits", [4, 6])
def test_copies_that_unpack_small_floats(bits: int) -> None:
    rows = 128
    codes = np.random.default_rng(20).integers(0, 1 << bits, (rows, 16)).astype(np.uint8)
    packed = np.zeros((rows, 16), np.uint8)
    for r in range(rows):
        word = sum(int(code) << bits * k for k, code in enumerate(codes[r]))
        packed[r] = np.frombuffer(word.to_bytes(16, "little"), np.uint8)
    text = f"tcgen05.cp.cta_group::1.128x128b.b8x16.b{bits}x16_p{'64' if bits == 4 else '32'} [%r30], %d20;"
    got = Tensor((operand(packed, "none"),)).run(text, read=4)
    in_byte = 2 if bits == 4 else 0  # e2m1 lies in bits 2 to 5 of its byte
    np.testing.assert_array_equal(got[0].view(np.uint8).reshape(rows, 16), codes << in_byte)


def register_place(shape: str, lane: int, j: int, num: int) -> tuple[int, int]:
    """(lane, column) of register j of a thread (PTX ISA 9.7.16.2.3.1)."""
    t = lane
    return {
        "32x32b": (t, j), "16x64b": (t // 4 + 8 * (t & 1), 2 * j + (t >> 1 & 1)),
        "16x128b": (t // 4 + 8 * (j & 1), 4 * (j >> 1) + (t & 3)),
        "16x256b": (t // 4 + 8 * (j >> 1 & 1), 8 * (j >> 2) + 2 * (t & 3) + (j & 1)),
        "16x32bx2": (t % 16, j + (num if t >= 16 else 0)),
    }[shape]  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("shape", "num"), [(s, n) for s in ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
                                            for n in (1, 2, 4, 8)])  # fmt: skip
def test_register_shapes(shape: str, num: int, packed: bool) -> None:
    """What `st` puts where the formula says, `ld` of the plain shape finds; and `ld` reads what `st` wrote."""
    count = num * {"16x128b": 2, "16x256b": 4}.get(shape, 1)
    registers = [f"%r{60 + j}" for j in range(count)]
    half = f", {num * (1 + packed)}" if shape == "16x32bx2" else ""
    pack = (".pack::16b", ".unpack::16b") if packed else ("", "")
    items = "{" + ", ".join(registers) + "}"
    text = (
        "ISSUED2: "
        + " ".join(f"mad.lo.u32 %r{60 + j}, %l, 1000, {j};" for j in range(count))
        + f"\ntcgen05.st.sync.aligned.{shape}.x{num}{pack[1]}.b32 [%r31]{half}, {items};\n"
        f"tcgen05.wait::st.sync.aligned; tcgen05.ld.sync.aligned.{shape}.x{num}{pack[0]}.b32 {items}, [%r31]{half};\n"
        "tcgen05.wait::ld.sync.aligned;\n"
        + " ".join(f"mad.lo.u32 %r9, %l, 1000, {j}; setp.ne.u32 %q5, %r9, %r{60 + j}; @%q5 trap;" for j in range(count))
    )
    tensor = Tensor()
    source = tensor.text(filled=128, read=128, fill=True)
    source = source.replace("@!%q28 bra ISSUED;", text + "\n@!%q28 bra ISSUED;")
    before = np.full((1, 128, 128), 0xABABABAB, np.uint32)
    out = np.zeros((1, 128, 128), np.uint32)
    launch(assemble(source), np.zeros(1024, np.uint8), before, out, block=128)
    want = np.full((128, 128), 0xABABABAB, np.uint32)
    for warp in range(4):
        for lane in range(32):
            for j in range(count):
                at, column = register_place(shape, lane, j, num)
                value = lane * 1000 + j
                if packed:
                    want[warp * 32 + at, 2 * column] = value & 0xFFFF
                    want[warp * 32 + at, 2 * column + 1] = value >> 16
                else:
                    want[warp * 32 + at, column] = value
    got = out[0]
    if packed:
        untouched = want == 0xABABABAB
        got, want = np.where(untouched, got, got & 0xFFFF), want
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("numerics", "want"), [("exact", 1.0 + 2.0**-23), ("hardware", 1.0)])
def test_exact_and_hardware_arithmetic_differ_where_terms_are_cut(numerics: Any, want: float) -> None:
    """1 and eight times 2^-26: exactly 1 + 2^-23, but each small term lies below the 25 fraction bits that are kept."""
    x, y = np.zeros((128, 16), np.float16), np.zeros((8, 16), np.float16)
    x[:, :9] = [1] + [2.0**-13] * 8
    y[:, :9] = [1] + [2.0**-13] * 8
    left, right = operand(x, "32B"), operand(y, "32B")
    got = Tensor((left, right), idesc("f16", "f16", "f32", 128, 8)).run(mma("f16", 1), numerics=numerics)
    assert set(decoded(rows_of(got[0], 128, 8), "f32").reshape(-1)) == {want}


@pytest.mark.parametrize(("numerics", "want"), [("exact", 1.0 + 2.0**-22), ("hardware", 1.0 + 2.0**-23)])
def test_exact_and_hardware_arithmetic_round_differently(numerics: Any, want: float) -> None:
    """1 + 2^-23 + 2^-24 is a tie: to even when rounded to nearest, down when truncated."""
    x, y = np.zeros((128, 16), np.float16), np.zeros((8, 16), np.float16)
    x[:, :3], y[:, :3] = [1, 2.0**-12, 2.0**-12], [1, 2.0**-11, 2.0**-12]
    left, right = operand(x, "32B"), operand(y, "32B")
    got = Tensor((left, right), idesc("f16", "f16", "f32", 128, 8)).run(mma("f16", 1), numerics=numerics)
    assert set(decoded(rows_of(got[0], 128, 8), "f32").reshape(-1)) == {want}


@pytest.mark.parametrize(("columns", "message"), [(48, "power|columns"), (16, "power|columns"), (1024, "512|columns")])
def test_allocations_follow_the_rules(columns: int, message: str) -> None:
    text = Tensor().text()
    text = text.replace("[slot], 512;", "[slot], %r50;").replace(
        "setp.ne.u32 %q2", f"mov.u32 %r50, {columns}; setp.ne.u32 %q2"
    )
    with pytest.raises(EmulationError, match=message):
        launch(assemble(text), np.zeros(1024, np.uint8), np.zeros(1024, np.uint32), np.zeros(512, np.uint32), block=128)


@pytest.mark.parametrize(("change", "message"), [
    (("kind::f16", "kind::tf32"), "kind|type|A"), (("%r40, %q4", "%r50, %q4"), "M|N"),
])  # fmt: skip
def test_descriptors_that_contradict_the_instruction_are_errors(change: tuple[str, str], message: str) -> None:
    x, y = draw(128, 16, "bf16", 1), draw(16, 16, "bf16", 2)
    text = "mov.u32 %r50, 0x490;\n" + mma("f16", 1).replace(*change)
    with pytest.raises(EmulationError, match=message) as caught:
        Tensor((operand(x, "32B"), operand(y, "32B")), idesc("bf16", "bf16", "f32", 128, 16)).run(text)
    assert caught.value.line is not None
