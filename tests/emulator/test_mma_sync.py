"""mma.sync and the matrix loads, stores and moves: every type and shape against products computed here."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from blasdx.emulator import GlobalMemory, Module, UnsupportedInstruction
from tests.emulator.families import assemble

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "f64": 64}
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "f64": np.float64, "f32": np.float32, "s32": np.int32,
}  # fmt: skip
FORMS = [
    (16, 8, "f16", "f16", "f32"), (16, 16, "f16", "f16", "f32"), (16, 8, "f16", "f16", "f16"),
    (16, 16, "f16", "f16", "f16"), (16, 8, "bf16", "bf16", "f32"), (16, 16, "bf16", "bf16", "f32"),
    (16, 4, "tf32", "tf32", "f32"), (16, 8, "tf32", "tf32", "f32"),
    (16, 32, "e4m3", "e5m2", "f32"), (16, 32, "e5m2", "e4m3", "f16"), (16, 16, "e4m3", "e4m3", "f32"),
    (8, 16, "s8", "u8", "s32"), (16, 16, "u8", "s8", "s32"), (16, 32, "s8", "s8", "s32"), (16, 32, "u8", "u8", "s32"),
    (8, 32, "s4", "u4", "s32"), (16, 32, "u4", "s4", "s32"), (16, 64, "s4", "s4", "s32"),
    (8, 128, "b1", "b1", "s32"), (16, 128, "b1", "b1", "s32"), (16, 256, "b1", "b1", "s32"),
    (8, 4, "f64", "f64", "f64"), (16, 4, "f64", "f64", "f64"), (16, 8, "f64", "f64", "f64"),
    (16, 16, "f64", "f64", "f64"),
]  # fmt: skip


def draw(rng: np.random.Generator, rows: int, depth: int, element: str) -> NDArray[np.int64]:
    low, high = {"u8": (0, 255), "u4": (0, 15), "s4": (-8, 7), "s8": (-128, 127), "b1": (0, 1)}.get(element, (-4, 4))
    return rng.integers(low, high + 1, (rows, depth))


def codes(values: NDArray[np.int64], element: str) -> NDArray[np.uint64]:
    """Bits of each element."""
    if element in DTYPES:
        typed = values.astype(DTYPES[element])
        return typed.view(np.dtype(f"u{typed.dtype.itemsize}")).astype(np.uint64)
    return values.astype(np.uint64) & np.uint64((1 << BITS[element]) - 1)


def pack(matrix: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """(32, registers) of A (or of B, given as (N, K)): PTX ISA 9.7.14.5, lane by lane."""
    rows, depth = matrix.shape
    each = max(1, 32 // bits)
    halves = rows // 8
    out = np.zeros((32, rows * depth * bits // (32 * max(32, bits))), np.uint64)
    for lane in range(32):
        for r in range(out.shape[1]):
            row = lane // 4 + 8 * (r % halves)
            first = each * (lane % 4) + 4 * each * (r // halves)
            for e in range(each):
                out[lane, r] |= matrix[row, first + e] << np.uint64(e * bits)
    return out


def place(matrix: NDArray[Any]) -> NDArray[Any]:
    """(32, elements) of C or D."""
    count = len(matrix) // 4
    return np.array([
        [matrix[lane // 4 + 8 * (i >> 1), 2 * (lane % 4) + (i & 1)] for i in range(count)] for lane in range(32)
    ])  # fmt: skip


def kernel(opcode: str, a: int, b: int, d: int, wide: bool, arch: str) -> str:
    """One mma on operands that each lane loads from its rows of three arrays."""
    bits, size = (64, 8) if wide else (32, 4)
    kind = "f64" if wide else "b32"

    def names(letter: str, count: int) -> str:
        return "{" + ", ".join(f"%{letter}{k}" for k in range(count)) + "}"

    lines = []
    for letter, parameter, count in (("a", 0, a), ("b", 1, b), ("c", 2, d)):
        lines.append(f"ld.param.u64 %p, [p{parameter}]; mad.wide.u32 %p, %t, {size * count}, %p;")
        lines += [f"ld.global.b{bits} %{letter}{k}, [%p + {size * k}];" for k in range(count)]
    lines.append(f"{opcode} {names('d', d)}, {names('a', a)}, {names('b', b)}, {names('c', d)};")
    lines.append(f"ld.param.u64 %p, [p3]; mad.wide.u32 %p, %t, {size * d}, %p;")
    lines += [f"st.global.b{bits} [%p + {size * k}], %d{k};" for k in range(d)]
    text = "\n".join(lines)
    return assemble(
        f".version 9.0\n.target {arch}\n.address_size 64\n"
        ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)\n"
        f"{{ .reg .{kind} %a<9>, %b<9>, %c<9>, %d<9>; .reg .b64 %p; .reg .b32 %t;\n"
        f"mov.u32 %t, %tid.x;\n{text}\nret; }}\n",
        arch,
    )


def run(form: tuple[int, int, str, str, str], seed: int = 0, suffix: str = "", c: Any = None, **options: Any) -> Any:
    m, k, a_type, b_type, d_type = form
    rng = np.random.default_rng(seed)
    a, b = draw(rng, m, k, a_type), draw(rng, 8, k, b_type)
    c = rng.integers(-50, 50, (m, 8)).astype(DTYPES[d_type]) if c is None else c
    bits = BITS[a_type]
    wide = bits == 64
    word = np.uint64 if wide else np.uint32
    fa, fb = (pack(codes(x, t), bits).astype(word) for x, t in ((a, a_type), (b, b_type)))
    fc = np.ascontiguousarray(place(c)).view(np.uint64 if wide else np.uint32)
    memory = GlobalMemory()
    out = memory.upload(np.zeros_like(fc))
    opcode = f"mma.sync.aligned.m{m}n8k{k}.row.col{suffix}.{d_type}.{a_type}.{b_type}.{d_type}"
    if a_type == "b1":
        opcode += ".and.popc" if seed else ".xor.popc"
    text = kernel(opcode, fa.shape[1], fb.shape[1], fc.shape[1], wide, "sm_90a" if a_type == "f64" else "sm_100a")
    Module.from_ptx(text).get_function("k").launch(
        grid=(1,), block=(32,), memory=memory, args=[*(memory.upload(x) for x in (fa, fb, fc)), out], **options
    )
    return a, b, c, out.read().view(DTYPES[d_type])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("numerics", ["exact", "hardware"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_products(form: tuple[int, int, str, str, str], numerics: str, seed: int) -> None:
    a, b, c, got = run(form, seed, numerics=numerics)
    bitwise = np.bitwise_and if seed else np.bitwise_xor
    product = bitwise(a[:, None, :], b[None, :, :]).sum(axis=2) if form[2] == "b1" else a @ b.T
    np.testing.assert_array_equal(got, place((product + c).astype(c.dtype)))


@pytest.mark.parametrize("saturates", [False, True])
def test_integers_wrap_or_saturate(saturates: bool) -> None:
    c = np.where(np.arange(128).reshape(16, 8) % 2, 2**31 - 9, 9 - 2**31).astype(np.int32)
    a, b, _, got = run((16, 32, "s8", "s8", "s32"), suffix=".satfinite" * saturates, c=c)
    exact = a @ b.T + c
    low, high = -(2**31), 2**31 - 1
    want = np.clip(exact, low, high) if saturates else (exact - low) % 2**32 + low
    assert (want != exact).any()
    np.testing.assert_array_equal(got, place(want))


def test_the_hardware_model_truncates_where_the_exact_one_rounds() -> None:
    form = (16, 16, "bf16", "bf16", "f32")
    c = np.full((16, 8), 2.0**27, np.float32)
    a, b, _, got = run(form, c=c, numerics="hardware")
    # 25 fraction bits below 2**27 end at 4, the f32 result at 16.
    kept = (np.trunc(a[:, None, :] * b[None, :, :] / 4) * 4).sum(axis=2) + c.astype(np.float64)
    want = np.where(kept >= 2.0**27, np.floor(kept / 16) * 16, np.floor(kept / 8) * 8)
    np.testing.assert_array_equal(got, place(want))
    exact = (a @ b.T + c.astype(np.float64)).astype(np.float32)
    assert (want != exact).any()
    np.testing.assert_array_equal(run(form, c=c)[3], place(exact))


@pytest.mark.parametrize("opcode", [
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
])  # fmt: skip
def test_other_forms_are_refused_by_name(opcode: str) -> None:
    text = (
        ".version 9.0\n.target sm_120a\n.address_size 64\n.visible .entry k()\n{ .reg .b32 %r<4>;\n"
        f"{opcode} {{%r0}}, {{%r0}}, {{%r0}}, {{%r0}};\nret; }}\n"
    )
    with pytest.raises(UnsupportedInstruction) as caught:
        Module.from_ptx(text).get_function("k").launch(grid=(1,), block=(32,), memory=GlobalMemory(), args=[])
    assert caught.value.opcode == opcode
    assert caught.value.line == 6


# ------------------------------------------------------------------------------------------------ matrices


def matrices(opcode: str, registers: int, image: NDArray[np.uint8], rows: NDArray[np.uint32], arch: str) -> Any:
    """What ldmatrix puts into (32, registers), lane t pointing at byte ``rows[t]`` of the image."""
    values = ", ".join(f"%a{k}" for k in range(registers))
    text = assemble(
        f".version 9.0\n.target {arch}\n.address_size 64\n"
        ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)\n"
        "{ .reg .b64 %p, %q, %v; .reg .b32 %a<4>, %t, %s, %x; .shared .align 16 .b8 box[1024]; mov.u32 %t, %tid.x;\n"
        "ld.param.u64 %p, [p0]; mov.u32 %s, box;\n"
        + "".join(
            f"mad.wide.u32 %q, %t, 4, %p; ld.global.b32 %x, [%q + {128 * n}]; mad.lo.u32 %s, %t, 4, box; "
            f"st.shared.b32 [%s + {128 * n}], %x;\n"
            for n in range(8)
        ).replace("mad.lo.u32 %s, %t, 4, box;", "mov.u32 %s, box; mad.lo.u32 %s, %t, 4, %s;")
        + "bar.sync 0; ld.param.u64 %p, [p1]; mad.wide.u32 %q, %t, 4, %p; ld.global.b32 %x, [%q];\n"
        f"mov.u32 %s, box; add.u32 %s, %s, %x; {opcode} {{{values}}}, [%s];\n"
        f"ld.param.u64 %p, [p2]; mad.wide.u32 %q, %t, {4 * registers}, %p;\n"
        + "\n".join(f"st.global.b32 [%q + {4 * k}], %a{k};" for k in range(registers))
        + "\nret; }\n",
        arch,
    )
    memory = GlobalMemory()
    out = memory.upload(np.zeros((32, registers), np.uint32))
    Module.from_ptx(text).get_function("k").launch(
        grid=(1,), block=(32,), memory=memory, args=[memory.upload(image), memory.upload(rows), out]
    )
    return out.read()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_of_16_bit_elements(count: int, transpose: bool) -> None:
    rng = np.random.default_rng(count)
    image = rng.integers(0, 256, 1024, np.uint8)
    rows = (rng.permutation(32) * 16).astype(np.uint32)
    got = matrices(
        f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' * transpose}.shared.b16", count, image, rows, "sm_90a"
    )
    for k in range(count):
        matrix = np.stack([image[r : r + 16].view(np.uint16) for r in rows[8 * k : 8 * k + 8]])
        matrix = matrix.T if transpose else matrix
        for t in range(32):
            low, high = matrix[t // 4, 2 * (t % 4)], matrix[t // 4, 2 * (t % 4) + 1]
            assert got[t, k] == int(low) | int(high) << 16


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("bits", [8, 6, 4])
def test_ldmatrix_of_transposed_bytes(count: int, bits: int) -> None:
    rng = np.random.default_rng(bits)
    image = rng.integers(0, 256, 1024, np.uint8)
    rows = (rng.permutation(32) * 16).astype(np.uint32)
    kind = {8: "b8", 6: "b8x16.b6x16_p32", 4: "b8x16.b4x16_p64"}[bits]
    got = matrices(f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{kind}", 2 * count, image, rows, "sm_100a")
    for k in range(count):
        elements = [[element(image, int(r), c, bits) for c in range(16)] for r in rows[16 * k : 16 * k + 16]]
        for t in range(32):
            for r in range(2):
                for e in range(4):
                    byte = int(got[t, 2 * k + r]) >> 8 * e & 255
                    assert byte == elements[4 * (t % 4) + 2 * r + (e & 1)][t // 4 + 8 * (e >> 1)]


def element(image: NDArray[np.uint8], row: int, index: int, bits: int) -> int:
    """Element `index` of the 16 that begin at byte `row`."""
    return int.from_bytes(image[row : row + 16].tobytes(), "little") >> bits * index & ((1 << bits) - 1)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("bits", [6, 4])
def test_ldmatrix_expands_small_elements_in_order(count: int, bits: int) -> None:
    image = np.random.default_rng(bits).integers(0, 256, 1024, np.uint8)
    rows = (np.arange(32) * 16).astype(np.uint32)
    kind = {6: "b8x16.b6x16_p32", 4: "b8x16.b4x16_p64"}[bits]
    got = matrices(f"ldmatrix.sync.aligned.m8n16.x{count}.shared.{kind}", count, image, rows, "sm_100a")
    for k in range(count):
        for t in range(32):
            for e in range(4):
                expected = element(image, 16 * (8 * k + t // 4), 4 * (t % 4) + e, bits)
                assert int(got[t, k]) >> 8 * e & 255 == expected


@pytest.mark.parametrize(("shape", "kind", "trans"), [("m8n8", "b16", ""), ("m8n8", "b16", ".trans"),
                                                      ("m16n8", "b8", ".trans")])  # fmt: skip
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix(count: int, shape: str, kind: str, trans: str) -> None:
    values = np.random.default_rng(count).integers(0, 1 << 32, (32, count), np.uint32)
    registers = ", ".join(f"%a{k}" for k in range(count))
    text = assemble(
        ".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 p0, .param .u64 p1)\n"
        "{ .reg .b64 %p, %q; .reg .b32 %a<4>, %t, %s, %x; .shared .align 16 .b8 box[512]; mov.u32 %t, %tid.x;\n"
        f"ld.param.u64 %p, [p0]; mad.wide.u32 %q, %t, {4 * count}, %p;\n"
        + "\n".join(f"ld.global.b32 %a{k}, [%q + {4 * k}];" for k in range(count))
        + f"\nmov.u32 %s, box; mad.lo.u32 %x, %t, 16, %s; stmatrix.sync.aligned.{shape}.x{count}{trans}.shared.{kind} "
        f"[%x], {{{registers}}};\nbar.warp.sync 0xffffffff; ld.param.u64 %p, [p1]; mad.wide.u32 %q, %t, 4, %p;\n"
        "mad.lo.u32 %s, %t, 4, %s;\n"
        + "\n".join(f"ld.shared.b32 %x, [%s + {128 * k}]; st.global.b32 [%q + {128 * k}], %x;" for k in range(count))
        + "\nret; }\n"
    )
    memory = GlobalMemory()
    out = memory.upload(np.zeros(128 * count, np.uint8))
    Module.from_ptx(text).get_function("k").launch(
        grid=(1,), block=(32,), memory=memory, args=[memory.upload(values), out]
    )
    want = np.zeros((count, 8, 16), np.uint8)
    for t in range(32):
        for k in range(count):
            data = values[t, k : k + 1].view(np.uint8)
            for e in range(4):
                if kind == "b8":
                    want[k, 2 * (t % 4) + (e & 1), t // 4 + 8 * (e >> 1)] = data[e]
                elif trans:
                    want[k, 2 * (t % 4) + e // 2, 2 * (t // 4) + e % 2] = data[e]
                else:
                    want[k, t // 4, 4 * (t % 4) + e] = data[e]
    np.testing.assert_array_equal(out.read(), want.reshape(-1))


def test_movmatrix_transposes() -> None:
    values = np.random.default_rng(3).integers(0, 1 << 32, 32, np.uint32)
    text = assemble(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p0)\n"
        "{ .reg .b64 %p; .reg .b32 %a, %t; mov.u32 %t, %tid.x; ld.param.u64 %p, [p0]; mad.wide.u32 %p, %t, 4, %p;\n"
        "ld.global.b32 %a, [%p]; movmatrix.sync.aligned.m8n8.trans.b16 %a, %a; st.global.b32 [%p], %a; ret; }\n",
        "sm_90a",
    )
    memory = GlobalMemory()
    buffer = memory.upload(values)
    Module.from_ptx(text).get_function("k").launch(grid=(1,), block=(32,), memory=memory, args=[buffer])
    got, before = (x.view(np.uint16).reshape(8, 8) for x in (buffer.read(), values))
    np.testing.assert_array_equal(got, before.T)
