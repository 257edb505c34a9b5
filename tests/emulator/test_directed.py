"""Directed rounding of f64, roots and reciprocals; lop3 with a predicate; mixed spaces in one access; calls."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from blasdx.emulator import GlobalMemory, Module, UnsupportedInstruction
from tests.emulator.families import Case, check, kernel, launch

LANES = 96


def rounded(exact: Fraction, mode: str, kind: type) -> Any:
    """The value of `kind` next to `exact` on the side of `mode`."""
    near = kind(float(exact)) if kind is np.float64 else kind(np.float64(float(exact)))
    down = max((c for c in _around(near) if Fraction(float(c)) <= exact), default=kind(-np.inf))
    up = min((c for c in _around(near) if Fraction(float(c)) >= exact), default=kind(np.inf))
    return {"rm": down, "rp": up, "rz": down if exact > 0 else up}[mode]


def _around(near: Any) -> list[Any]:
    kind = type(near)
    below, above = np.nextafter(near, kind(-np.inf)), np.nextafter(near, kind(np.inf))
    return [v for v in (below, near, above) if np.isfinite(v)]


def doubles(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.uniform(-2, 2, LANES), rng.integers(-30, 30, LANES))


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_f64_arithmetic(mode: str) -> None:
    a, b, c = doubles(1), doubles(2), doubles(3)
    x, y, z = ([Fraction(float(v)) for v in values] for values in (a, b, c))

    def want(values: list[Fraction]) -> np.ndarray:
        return np.array([rounded(v, mode, np.float64) for v in values]).view(np.uint64)

    check({"a": a, "b": b, "c": c}, [
        Case(f"add.{mode}.f64 %d, %a, %b;", want([p + q for p, q in zip(x, y, strict=True)])),
        Case(f"sub.{mode}.f64 %d, %a, %b;", want([p - q for p, q in zip(x, y, strict=True)])),
        Case(f"mul.{mode}.f64 %d, %a, %b;", want([p * q for p, q in zip(x, y, strict=True)])),
        Case(f"div.{mode}.f64 %d, %a, %b;", want([p / q for p, q in zip(x, y, strict=True)])),
        Case(f"fma.{mode}.f64 %d, %a, %b, %c;", want([p * q + r for p, q, r in zip(x, y, z, strict=True)])),
        Case(f"rcp.{mode}.f64 %d, %a;", want([1 / p for p in x])),
    ])  # fmt: skip


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_f32_reciprocals_and_roots(mode: str) -> None:
    a = np.abs(doubles(4)).astype(np.float32)
    exact = [Fraction(float(v)) for v in a]
    roots = np.sqrt(a.astype(np.float64)).astype(np.float32)
    want = []
    for root, x in zip(roots, exact, strict=True):
        below = max(v for v in _around(root) if Fraction(float(v)) ** 2 <= x)
        above = min(v for v in _around(root) if Fraction(float(v)) ** 2 >= x)
        want.append(above if mode == "rp" else below)
    check({"a": a}, [
        Case(f"sqrt.{mode}.f32 %d, %a;", np.array(want).view(np.uint32)),
        Case(f"rcp.{mode}.f32 %d, %a;", np.array([rounded(1 / x, mode, np.float32) for x in exact]).view(np.uint32)),
    ])  # fmt: skip


def test_lop3_joins_a_predicate() -> None:
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(0, 1 << 32, LANES).astype(np.uint32) for _ in range(3))
    a[::3] = 0
    both = a & b & c
    odd = np.arange(LANES) & 1
    setup = "and.b32 %r9, %t, 1; setp.eq.u32 %q9, %r9, 1;"
    body = f"{setup} lop3.{{op}}.b32 %d|%p, %a, %b, %c, 0x80, %q9; selp.b32 %d, 1, 0, %p;"
    check({"a": a, "b": b, "c": c}, [
        Case(body.format(op="or"), ((both != 0) | (odd == 1)).astype(np.uint32)),
        Case(body.format(op="and"), ((both != 0) & (odd == 1)).astype(np.uint32)),
    ])  # fmt: skip


def test_lanes_of_one_generic_access_in_different_spaces() -> None:
    text = kernel(
        "mov.u64 %d1, box; cvta.shared.u64 %d1, %d1; mov.u64 %d2, mine; cvta.local.u64 %d2, %d2;\n"
        "mad.wide.u32 %d1, %t, 8, %d1; mad.wide.u32 %d3, %t, 8, %p0;\n"
        "rem.u32 %r1, %t, 3; setp.eq.u32 %q1, %r1, 0; setp.eq.u32 %q2, %r1, 1;\n"
        "selp.b64 %d4, %d1, %d2, %q1; selp.b64 %d4, %d3, %d4, %q2;\n"
        "add.u32 %r2, %t, 100; add.u32 %r3, %t, 200; st.v2.b32 [%d4], {%r2, %r3}; atom.add.u32 %r4, [%d4], 1000;\n"
        "ld.v2.b32 {%r5, %r6}, [%d4]; mad.wide.u32 %d5, %t, 12, %p1;\n"
        "st.global.b32 [%d5], %r4; st.global.b32 [%d5 + 4], %r5; st.global.b32 [%d5 + 8], %r6;",
        2,
        declarations=".shared .align 8 .b8 box[256]; .local .align 8 .b8 mine[8];",
    )
    scratch, out = np.zeros((32, 2), np.uint32), np.zeros((32, 3), np.uint32)
    launch(text, scratch, out)
    t = np.arange(32)
    np.testing.assert_array_equal(out, np.stack([t + 100, t + 1100, t + 200], axis=1))
    np.testing.assert_array_equal(scratch[1::3, 0], t[1::3] + 1100)
    assert not scratch[0::3].any()


MODULE = """
.func (.param .b64 sum) pair(.param .align 8 .b8 both[16])
{
.reg .b64 %a, %b, %c; mov.b64 %c, both; ld.param.b64 %a, [both]; ld.param.b64 %b, [%c + 8];
add.s64 %a, %a, %b; st.param.b64 [sum], %a; ret;
}
.func (.param .b64 out) twice(.param .b64 x)
{
.reg .b64 %x, %y; .reg .pred %p; ld.param.b64 %x, [x]; setp.gt.u64 %p, %x, 40; st.param.b64 [out], %x; @%p ret;
{ .param .align 8 .b8 s[16]; .param .b64 r; st.param.b64 [s], %x; st.param.b64 [s + 8], %x; call (r), pair, (s);
ld.param.b64 %y, [r]; }
st.param.b64 [out], %y; ret;
}
.func endless() { call.uni endless; ret; }
"""


def test_calls_nest_and_lanes_leave_at_different_places() -> None:
    text = kernel(
        "cvt.u64.u32 %d0, %t; add.u64 %d0, %d0, 20;\n"
        "{ .param .b64 a; .param .b64 r; st.param.b64 [a], %d0; call (r), twice, (a); ld.param.b64 %d1, [r]; }\n"
        "{ .param .b64 a; .param .b64 r; st.param.b64 [a], %d1; call (r), twice, (a); ld.param.b64 %d1, [r]; }\n"
        "mad.wide.u32 %d2, %t, 8, %p0; st.global.b64 [%d2], %d1;",
        module=MODULE,
    )
    out = np.zeros(32, np.uint64)
    launch(text, out)

    def twice(x: int) -> int:
        return x if x > 40 else 2 * x

    assert out.tolist() == [twice(twice(20 + t)) for t in range(32)]


def test_recursion_is_refused_only_where_it_is_reached() -> None:
    body = "setp.eq.u32 %q0, %t, {lane}; @%q0 call endless;"
    text = kernel(body.format(lane=77), 0, module=MODULE)
    Module.from_ptx(text).get_function("k").launch(grid=(1,), block=(32,), memory=GlobalMemory(), args=[])
    with pytest.raises(UnsupportedInstruction, match="non-recursive"):
        launch(kernel(body.format(lane=7), 0, module=MODULE))
