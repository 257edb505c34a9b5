"""Loads, stores, atomics and state spaces (PTX ISA 5, 9.7.9, 9.7.13.12, 9.7.13.13)."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from blasdx.emulator import EmulationError
from tests.emulator.families import kernel, launch

LANES = 64


VECTORS = [("b8", 1), ("b16", 1), ("b32", 1), ("b64", 1), ("u8", 4), ("b16", 2), ("b32", 2), ("b32", 4), ("b64", 2),
           ("b128", 1), ("b32", 8), ("b64", 4)]  # fmt: skip


# 256-bit accesses exist for global memory only.
PLACES = [(k, n, s) for k, n in VECTORS for s in ("global", "shared", "local", "generic")
          if int(k[1:]) * n < 256 or s == "global"]  # fmt: skip


@pytest.mark.parametrize(("kind", "count", "space"), PLACES)
def test_vectors_of_every_width(kind: str, count: int, space: str) -> None:
    size = int(kind[1:]) // 8
    width = size * count
    register = {1: "%h", 2: "%h", 4: "%r", 8: "%d", 16: "%x"}[size]
    items = ", ".join(f"{register}{k + 10 if size != 16 else k}" for k in range(count))
    items = f"{{{items}}}" if count > 1 else items
    dot = (f".v{count}" if count > 1 else "") + f".{kind}"
    through = {
        "global": "",
        "shared": f"mov.u32 %r1, box; mad.lo.u32 %r1, %t, {width}, %r1; st.shared{dot} [%r1], {items};"
        f" bar.sync 0; ld.shared{dot} {items}, [%r1];",
        "local": f"st.local{dot} [mine + 32], {items}; ld.local{dot} {items}, [mine + 32];",
        "generic": f"mov.u32 %r1, box; mad.lo.u32 %r1, %t, {width}, %r1; cvt.u64.u32 %d3, %r1;"
        " cvta.shared.u64 %d3, %d3;"
        f" st{dot} [%d3], {items}; bar.sync 0; ld{dot} {items}, [%d3];",
    }[space]
    text = kernel(
        f"mad.wide.u32 %d0, %t, {width}, %p0; mad.wide.u32 %d1, %t, {width}, %p1;\n"
        f"ld.global{dot} {items}, [%d0];\n{through}\nst.global{dot} [%d1], {items};",
        2,
        declarations=f".shared .align 16 .b8 box[{LANES * width}]; .local .align 16 .b8 mine[64];",
    )
    x = np.random.default_rng(1).integers(0, 256, LANES * width).astype(np.uint8)
    out = np.zeros_like(x)
    launch(text, x, out, block=LANES)
    np.testing.assert_array_equal(out, x)


def test_narrow_loads_extend_and_narrow_stores_cut() -> None:
    x = np.array([-1, 5, -128, 127] * 16, np.int8)
    out = np.zeros((4, LANES), np.int32)
    text = kernel(
        "mul.wide.u32 %d2, %t, 4; add.u64 %d1, %p1, %d2; cvt.u64.u32 %d3, %t; add.u64 %d0, %p0, %d3;\n"
        "ld.global.s8 %r0, [%d0]; st.global.u32 [%d1], %r0;\n"
        f"ld.global.u8 %r1, [%d0]; st.global.u32 [%d1 + {4 * LANES}], %r1;\n"
        f"mov.u32 %r2, 0x12345678; st.global.u8 [%d1 + {8 * LANES}], %r2; st.global.u16 [%d1 + {12 * LANES}], %r2;",
        2,
    )
    launch(text, x, out, block=LANES)
    np.testing.assert_array_equal(out[0], x)
    np.testing.assert_array_equal(out[1], x.view(np.uint8))
    np.testing.assert_array_equal(out[2], 0x78)
    np.testing.assert_array_equal(out[3], 0x5678)


def test_module_variables_are_initialised_and_keep_addresses() -> None:
    module = (
        ".const .align 4 .b32 table[4] = {10, 20, 30, 0x28};\n.global .align 8 .f64 half = 0d3FE0000000000000;\n"
        ".global .align 4 .u8 bytes[] = {1, 2, 3, 255};\n.global .align 4 .b32 table2[2] = {7, 9};\n"
        ".global .align 8 .u64 where[2] = {table2, table2 + 4};\n"
    )
    out = np.zeros(5, np.float64)
    body = (
        "ld.const.u32 %r0, [table + 12]; cvt.rn.f64.u32 %d1, %r0; st.global.b64 [%p0], %d1;\n"
        "ld.global.b64 %d1, [half]; st.global.b64 [%p0 + 8], %d1;\n"
        "mov.u64 %d2, bytes; ld.global.u8 %r0, [%d2 + 3]; cvt.rn.f64.u32 %d1, %r0; st.global.b64 [%p0 + 16], %d1;\n"
        "ld.global.u64 %d3, [where + 8]; ld.u32 %r0, [%d3]; cvt.rn.f64.u32 %d1, %r0; st.global.b64 [%p0 + 24], %d1;\n"
        "mov.u64 %d5, table; cvta.const.u64 %d4, %d5; ld.u32 %r0, [%d4 + 4];\n"
        "cvt.rn.f64.u32 %d1, %r0; st.global.b64 [%p0 + 32], %d1;"
    )
    launch(kernel(body, module=module), out)
    np.testing.assert_array_equal(out, [40, 0.5, 255, 9, 20])


INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": lambda o, b: o + b, "min": min, "max": max, "and": lambda o, b: o & b, "or": lambda o, b: o | b,
    "xor": lambda o, b: o ^ b, "exch": lambda o, b: b, "inc": lambda o, b: 0 if o >= b else o + 1,
    "dec": lambda o, b: b if o == 0 or o > b else o - 1,
}  # fmt: skip


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("name", "kind"), [
    *((n, "u32") for n in ("add", "min", "max", "inc", "dec")), *((n, "s32") for n in ("add", "min", "max")),
    *((n, "b32") for n in ("and", "or", "xor", "exch")), *((n, "u64") for n in ("add", "min", "max")),
    *((n, "b64") for n in ("and", "or", "xor", "exch")), *((n, "s64") for n in ("min", "max")),
])  # fmt: skip
def test_atomics_return_the_old_value_and_lanes_take_turns(name: str, kind: str, space: str) -> None:
    bits = int(kind[1:])
    register, size = ("%r", 4) if bits == 32 else ("%d", 8)
    rng = np.random.default_rng(bits)
    x = rng.integers(0, 1 << bits, LANES, dtype=np.uint64).astype(f"u{size}")
    if name in ("inc", "dec"):
        x[:] = 5
    cells = x[:4] ^ 1 if name == "exch" else x[:4].copy()  # values by which a turn is known
    target, back = "%d21", ""
    if space == "shared":
        target, back = "%r3", f"ld.shared.b{bits} {register}7, [%r3]; st.global.b{bits} [%d21], {register}7;"
    text = kernel(
        f"mad.wide.u32 %d20, %t, {size}, %p1; ld.global.b{bits} {register}5, [%d20]; and.b32 %r1, %t, 3;\n"
        f"mad.wide.u32 %d21, %r1, {size}, %p0; mov.u32 %r2, box; mad.lo.u32 %r3, %r1, {size}, %r2;\n"
        f"ld.global.b{bits} {register}7, [%d21]; st.shared.b{bits} [%r3], {register}7; bar.sync 0;\n"
        f"atom.{space}.{name}.{kind} {register}6, [{target}], {register}5;\n"
        f"mad.wide.u32 %d22, %t, {size}, %p2; st.global.b{bits} [%d22], {register}6; bar.sync 0;\n{back}",
        3,
        declarations=".shared .align 8 .b8 box[32];",
    )
    got, old = cells.copy(), np.zeros(LANES, x.dtype)
    launch(text, got, x, old, block=LANES)

    def read(v: int) -> int:
        return int(v) - (1 << bits) if kind[0] == "s" and int(v) >> bits - 1 else int(v)

    for cell in range(4):
        lanes = list(range(cell, LANES, 4))
        # Some order of the lanes explains every old value: follow the values from one to the next.
        value, left = int(cells[cell]), lanes
        while left:
            # Of those that may come next, one that changes nothing can only be first.
            after = {
                lane: INTEGER[name](read(value), read(x[lane])) & (1 << bits) - 1
                for lane in left
                if int(old[lane]) == value
            }
            lane = min(after, key=lambda lane: after[lane] != value)
            value = after[lane]
            left = [other for other in left if other != lane]
        assert int(got[cell]) == value


def test_compare_and_swap_in_three_widths() -> None:
    out = np.array([3, 7], np.uint64)
    seen = np.zeros(LANES, np.uint32)
    text = kernel(
        "atom.global.cas.b32 %r0, [%p0], 3, 11; mad.wide.u32 %d0, %t, 4, %p1; st.global.u32 [%d0], %r0;"
        " atom.global.cas.b64 %d1, [%p0 + 8], 7, 13;",
        2,
    )
    launch(text, out, seen, block=LANES)
    np.testing.assert_array_equal(out, [11, 13])
    assert sorted(seen) == [3] + [11] * (LANES - 1)


@pytest.mark.parametrize(("kind", "dtype", "suffix"), [
    ("f32", np.float32, ""), ("f64", np.float64, ""), ("f16x2", np.float16, ".noftz"),
    ("bf16x2", ml_dtypes.bfloat16, ".noftz"),
])  # fmt: skip
def test_reductions_of_floats(kind: str, dtype: type, suffix: str) -> None:
    per = 2 if kind.endswith("x2") else 1
    x = np.random.default_rng(2).integers(-8, 9, (LANES, per)).astype(dtype)
    size = x.dtype.itemsize * per
    register = "%r" if size == 4 else "%d"
    text = kernel(
        f"mad.wide.u32 %d20, %t, {size}, %p1; ld.global.b{8 * size} {register}5, [%d20];"
        f" red.global.add{suffix}.{kind} [%p0], {register}5;",
        2,
    )
    out = np.ones(per, dtype)
    launch(text, out, x, block=LANES)
    np.testing.assert_array_equal(out.astype(float), 1 + x.astype(float).sum(axis=0))


@pytest.mark.parametrize("count", [2, 4])
def test_vector_reductions(count: int) -> None:
    x = np.random.default_rng(3).integers(-9, 9, (LANES, count)).astype(np.float32)
    items = ", ".join(f"%r{k}" for k in range(count))
    text = kernel(
        f"mad.wide.u32 %d0, %t, {4 * count}, %p1; ld.global.v{count}.b32 {{{items}}}, [%d0];"
        f" red.global.add.v{count}.f32 [%p0], {{{items}}};",
        2,
    )
    out = np.zeros(count, np.float32)
    launch(text, out, x, block=LANES)
    np.testing.assert_array_equal(out, x.sum(axis=0))


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrix_loads_and_stores(count: int, trans: str) -> None:
    x = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)
    items = "{" + ", ".join(f"%r{10 + k}" for k in range(count)) + "}"
    text = kernel(
        f"mov.u32 %r0, box; mad.lo.u32 %r1, %t, 16, %r0; setp.lt.u32 %q0, %t, {8 * count};\n"
        "mad.wide.u32 %d0, %t, 16, %p0;\n"
        "@%q0 ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%d0]; @%q0 st.shared.v4.b32 [%r1], {%r2, %r3, %r4, %r5};\n"
        f"bar.sync 0; and.b32 %r6, %t, {8 * count - 1}; mad.lo.u32 %r1, %r6, 16, %r0;\n"
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {items}, [%r1];\n"
        f"mad.wide.u32 %d1, %t, {4 * count}, %p1;\n"
        + "".join(f"st.global.b32 [%d1 + {4 * k}], %r{10 + k};\n" for k in range(count))
        + f"bar.sync 0; add.u32 %r1, %r1, {count * 128};\n"
        f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r1], {items};\nbar.sync 0;\n"
        f"mad.lo.u32 %r1, %t, 16, %r0; add.u32 %r1, %r1, {count * 128}; mad.wide.u32 %d2, %t, 16, %p2;\n"
        "@%q0 ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r1]; @%q0 st.global.v4.b32 [%d2], {%r2, %r3, %r4, %r5};",
        3, declarations=f".shared .align 16 .b8 box[{256 * count}];",
    )  # fmt: skip
    fragments, back = np.zeros((32, count, 2), np.uint16), np.zeros_like(x)
    launch(text, x, fragments, back)
    for lane in range(32):
        row, column = lane // 4, 2 * (lane % 4)
        for k in range(count):
            want = x[k, [column, column + 1], row] if trans else x[k, row, [column, column + 1]]
            np.testing.assert_array_equal(fragments[lane, k], want)
    np.testing.assert_array_equal(back, x)  # what was read transposed is written transposed


def test_128_bit_registers_are_packed_and_unpacked() -> None:
    out = np.zeros((LANES, 2), np.uint64)
    text = kernel(
        "mul.wide.u32 %d0, %t, 3; mul.wide.u32 %d1, %t, 5; mov.b128 %x0, {%d0, %d1}; mov.b128 {%d2, %d3}, %x0;\n"
        "mad.wide.u32 %d4, %t, 16, %p0; st.global.v2.b64 [%d4], {%d3, %d2};"
    )
    launch(text, out, block=LANES)
    np.testing.assert_array_equal(out, np.outer(np.arange(LANES), [5, 3]))


def test_spaces_of_generic_addresses() -> None:
    out = np.zeros(3, np.uint32)
    body = "mov.u32 %r9, box; cvt.u64.u32 %d1, %r9; cvta.shared.u64 %d1, %d1;\n"
    for k, space in enumerate(("global", "shared", "local")):
        body += f"isspacep.{space} %q0, %d1; selp.u32 %r0, 1, 0, %q0; st.global.u32 [%p0 + {4 * k}], %r0;\n"
    launch(kernel(body, declarations=".shared .b32 box;"), out)
    np.testing.assert_array_equal(out, [0, 1, 0])


@pytest.mark.parametrize(("body", "message"), [
    ("ld.global.u32 %r0, [%p0 + 8];", "outside|no buffer"),
    ("ld.global.u32 %r0, [%p0 + 2];", "not aligned"),
    ("st.shared.u32 [box + 64], 1;", "outside shared memory"),
    ("mov.u64 %d0, 0; ld.u32 %r0, [%d0];", "no buffer"),
    ("st.local.u32 [mine + 4096], 1;", "local address 0x1000 is outside the 64 bytes"),
])  # fmt: skip
def test_stray_addresses_are_errors(body: str, message: str) -> None:
    text = kernel(body, declarations=".shared .b32 box; .local .b32 mine;")
    with pytest.raises(EmulationError, match=message) as caught:
        launch(text, np.zeros(2, np.uint32), block=1)
    assert caught.value.line is not None
