"""Forms around 16-bit floats that compilers emit for epilogues: mixed widths, .ftz, set, vector atomics."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.families import Case, check, kernel, launch
from tests.emulator.test_family_conversion import rounded

LANES = 128
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def numbers(seed: int, dtype: type) -> np.ndarray:
    """Ordinary numbers, some of them subnormal in f16."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-999, 999, LANES) * 2.0 ** rng.integers(-12, 4, LANES)
    x[::9] = rng.integers(-7, 7, len(x[::9])) * 2.0**-24
    return x.astype(dtype)


def once(values: list[Fraction], mode: str) -> np.ndarray:
    return np.array([float(rounded(v, "f32", mode)) for v in values], np.float32)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_f32_arithmetic_takes_operands_of_16_bits(name: str) -> None:
    a, b, c = numbers(1, DTYPES[name]), numbers(2, DTYPES[name]), (numbers(3, np.float32) / 3).astype(np.float32)
    x, y, z = ([Fraction(float(v)) for v in array] for array in (a, b, c))
    total, rest = [p + r for p, r in zip(x, z, strict=True)], [p - r for p, r in zip(x, z, strict=True)]
    fused = [p * q + r for p, q, r in zip(x, y, z, strict=True)]
    check({"a": a, "b": b, "c": c}, [
        *(Case(f"add.{mode}.f32.{name} %d, %a, %c;", once(total, mode)) for mode in ("rn", "rz", "rm", "rp")),
        Case(f"sub.f32.{name} %d, %a, %c;", once(rest, "rn")),
        Case(f"fma.rz.f32.{name} %d, %a, %b, %c;", once(fused, "rz")),
        Case(f"fma.rn.sat.f32.{name} %d, %a, %b, %c;", np.clip(once(fused, "rn"), 0, 1) + np.float32(0)),
    ])  # fmt: skip


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x.astype(np.float64)) < 2.0**-14, np.copysign(np.float16(0), x), x).astype(np.float16)


def test_ftz_flushes_subnormal_f16_operands_and_results() -> None:
    a, b = numbers(4, np.float16), numbers(5, np.float16)
    a[:4], b[:4] = [2.0**-15, 2.0**-14, -(2.0**-24), 3 * 2.0**-14], [1, 0.5, 1, 2.0**-3]
    x, y = flushed(a), flushed(b)
    with np.errstate(all="ignore"):
        check({"a": a, "b": b}, [
            Case("add.ftz.f16 %d, %a, %b;", flushed(x + y)),
            Case("mul.ftz.f16 %d, %a, %b;", flushed(x * y)),
            Case("max.ftz.f16 %d, %a, %b;", np.where((x == 0) & (y == 0), x + y, np.maximum(x, y))),
            Case("neg.ftz.f16 %d, %a;", -x),
            Case("abs.ftz.f16 %d, %a;", np.abs(x)),
            Case("setp.lt.ftz.f16 %p, %a, %b; selp.u16 %d, 1, 0, %p;", (x < y).astype(np.uint16)),
        ])  # fmt: skip


def test_gross_approximations_keep_the_upper_half() -> None:
    x = np.random.default_rng(6).uniform(0.1, 90, LANES)
    words = x.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)
    for name, exact in (("rcp", 1 / words.view(np.float64)), ("rsqrt", words.view(np.float64) ** -0.5)):
        out = np.zeros(LANES)
        body = f"mad.wide.u32 %d1, %t, 8, %p0; ld.global.b64 %d2, [%d1]; {name}.approx.ftz.f64 %d2, %d2;"
        launch(kernel(body + "mad.wide.u32 %d1, %t, 8, %p1; st.global.b64 [%d1], %d2;", 2), x, out, block=LANES)
        assert not (out.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
        np.testing.assert_allclose(out, exact, rtol=2.0**-19)


@pytest.mark.parametrize(("name", "one"), [("f16", 0x3C00), ("bf16", 0x3F80)])
def test_set_writes_ones_of_the_wanted_type(name: str, one: int) -> None:
    a, b = numbers(7, DTYPES[name]), numbers(8, DTYPES[name])
    b[::5] = a[::5]
    b[1::11] = np.nan
    x, y = a.astype(np.float64), b.astype(np.float64)
    less, not_more = x < y, ~(x > y)
    both = "mov.b32 %u, {%a, %a}; mov.b32 %v, {%b, %b};"
    halves = (x == y) * np.uint32(0xFFFFFFFF)
    check({"a": a, "b": b}, [
        Case(f"set.lt.{name}.{name} %d, %a, %b;", (less * one).astype(np.uint16)),
        Case(f"set.leu.u16.{name} %d, %a, %b;", (not_more * 0xFFFF).astype(np.uint16)),
        Case(f"{both} set.eq.u32.{name}x2 %d, %u, %v;", halves.astype(np.uint32)),
        Case(f"{both} set.lt.{name}x2.{name}x2 %d, %u, %v;", (less * one).astype(np.uint32) * np.uint32(0x10001)),
    ])  # fmt: skip


def test_relu_of_packed_integers() -> None:
    rng = np.random.default_rng(9)
    a, b = (rng.integers(-32768, 32768, (LANES, 2)).astype(np.int16) for _ in range(2))
    words = [np.ascontiguousarray(v).view(np.uint32)[:, 0] for v in (a, b)]
    want = [np.ascontiguousarray(np.maximum(f(a, b), 0)).view(np.uint32)[:, 0] for f in (np.maximum, np.minimum)]
    check({"a": words[0], "b": words[1]}, [
        Case("max.relu.s16x2 %d, %a, %b;", want[0]), Case("min.relu.s16x2 %d, %a, %b;", want[1]),
    ])  # fmt: skip


@pytest.mark.parametrize(("count", "kind", "dtype"), [
    (2, "f16x2", np.float16), (4, "bf16x2", ml_dtypes.bfloat16), (8, "f16", np.float16),
    (4, "bf16", ml_dtypes.bfloat16),
])  # fmt: skip
@pytest.mark.parametrize("opcode", ["red", "atom"])
@pytest.mark.parametrize("name", ["add", "max"])
def test_vectors_of_16_bit_floats_are_updated(opcode: str, name: str, count: int, kind: str, dtype: type) -> None:
    """Every lane has its own vector, and all lanes a common one; in both orders in which qualifiers are written."""
    each = count * (2 if kind.endswith("x2") else 1)
    rng = np.random.default_rng(10)
    own, common = (rng.integers(-8, 8, (n, each)).astype(dtype) for n in (32, 1))
    add = rng.integers(-3, 4, (32, each)).astype(dtype)
    want_own = (own + add if name == "add" else np.maximum(own, add)).astype(dtype)
    total = common[0].astype(np.float64)
    total = total + add.astype(np.float64).sum(0) if name == "add" else np.maximum(total, add.astype(np.float64).max(0))
    size, bits = 2 * each, 32 if kind.endswith("x2") else 16
    regs = [f"%{'r' if bits == 32 else 'h'}{10 + k}" for k in range(count)]
    old = [f"%{'r' if bits == 32 else 'h'}{30 + k}" for k in range(count)]
    items, result = "{" + ", ".join(regs) + "}", "{" + ", ".join(old) + "}, " if opcode == "atom" else ""
    loads = "\n".join(f"ld.global.b{bits} {r}, [%d2+{bits // 8 * k}];" for k, r in enumerate(regs))
    body = (
        f"mad.wide.u32 %d1, %l, {size}, %p0; mad.wide.u32 %d2, %l, {size}, %p1;\n{loads}\n"
        f"{opcode}.global.{name}.noftz.v{count}.{kind} {result}[%d1], {items};\n"
        f"{opcode}.global.v{count}.{kind}.{name}.noftz {result}[%p2], {items};"
    )
    launch(kernel(body, 3), own, add, common)
    np.testing.assert_array_equal(own.astype(np.float64), want_own.astype(np.float64))
    np.testing.assert_array_equal(common[0].astype(np.float64), total)
