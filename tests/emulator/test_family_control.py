"""Control flow and what the lanes of a warp tell each other (PTX ISA 9.7.9.6, 9.7.12, 9.7.13)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest

from tests.emulator.families import Case, check, kernel, launch

LANES = 64


def words(seed: int, count: int = LANES) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)


def warps(x: np.ndarray, function: Callable[[np.ndarray], Any]) -> np.ndarray:
    """`function` of each warp's 32 values, for all its lanes."""
    return np.concatenate([np.broadcast_to(np.asarray(function(w)), 32) for w in x.reshape(-1, 32)])


def run(body: str, block: int = LANES, *, module: str = "", declarations: str = "", **options: Any) -> np.ndarray:
    """Run `body`, which leaves its result in %r0, once a lane."""
    store = "mad.wide.u32 %d0, %t, 4, %p0; st.global.u32 [%d0], %r0;"
    out = np.zeros(block, np.uint32)
    launch(kernel(f"{body}\n{store}", module=module, declarations=declarations), out, block=block, **options)
    return out


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 8])
def test_shuffles(mode: str, width: int) -> None:
    a = words(1)
    offset = {"up": 3, "down": 5, "bfly": 6, "idx": 2}[mode]
    segment = 32 - width
    clamp = segment << 8 | (0 if mode == "up" else 31)
    want, inside = np.zeros(LANES, np.uint32), np.zeros(LANES, np.uint32)
    for t in range(LANES):
        lane, first = t % 32, t % 32 & segment
        j = {"up": lane - offset, "down": lane + offset, "bfly": lane ^ offset, "idx": first | offset & ~segment & 31}[
            mode
        ]
        last = first | (31 & ~segment)
        valid = j >= first if mode == "up" else j <= last
        want[t], inside[t] = a[t - lane + (j if valid else lane)], valid
    text = f"shfl.sync.{mode}.b32 %u|%p, %a, {offset}, {clamp}, 0xffffffff;"
    check({"a": a}, [Case(f"{text} mov.b32 %d, %u;", want), Case(f"{text} selp.u32 %d, 1, 0, %p;", inside)])


def test_votes() -> None:
    a = words(2) % 3
    a[32:] = 1
    yes = a > 0
    bits = 1 << np.arange(32, dtype=np.uint64)

    def ballot(w: np.ndarray) -> np.ndarray:
        return (bits * w).sum().astype(np.uint32)

    setup = "setp.gt.u32 %q, %a, 0;"
    check({"a": a}, [
        Case(f"{setup} vote.sync.ballot.b32 %d, %q, 0xffffffff;", warps(yes, ballot)),
        *(Case(f"{setup} vote.sync.{name}.pred %p, %q, 0xffffffff; selp.u32 %d, 1, 0, %p;",
               warps(yes, lambda w, f=f: np.uint32(f(w))))
          for name, f in (("all", np.all), ("any", np.any), ("uni", lambda w: w.all() or not w.any()))),
    ])  # fmt: skip


def test_reductions_over_a_warp() -> None:
    a = words(3)
    s = a.view(np.int32)
    cases = []
    for name, function in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        cases.append(Case(f"redux.sync.{name}.b32 %d, %a, 0xffffffff;", warps(a, lambda w, f=function: reduce(f, w))))
    for name, f in (("add", lambda w: w.sum(dtype=w.dtype)), ("min", np.min), ("max", np.max)):
        cases.append(Case(f"redux.sync.{name}.u32 %d, %a, 0xffffffff;", warps(a, f)))
        cases.append(Case(f"redux.sync.{name}.s32 %d, %a, 0xffffffff;", warps(s, f)))
    check({"a": a}, cases)


def test_reductions_of_floats_over_a_warp() -> None:
    x = np.random.default_rng(4).standard_normal(LANES).astype(np.float32)
    check({"a": x}, [
        Case("redux.sync.min.f32 %d, %a, 0xffffffff;", warps(x, np.min)),
        Case("redux.sync.max.f32 %d, %a, 0xffffffff;", warps(x, np.max)),
        Case("redux.sync.max.abs.f32 %d, %a, 0xffffffff;", warps(np.abs(x), np.max)),
    ])  # fmt: skip


def test_matches() -> None:
    a = words(5) % 4
    a[32:] = 9
    bits = np.uint64(1) << (np.arange(LANES, dtype=np.uint64) % np.uint64(32))
    same = np.array(
        [sum(int(bits[j]) for j in range(i // 32 * 32, i // 32 * 32 + 32) if a[j] == a[i]) for i in range(LANES)]
    )
    everybody = warps(a, lambda w: np.uint32(0xFFFFFFFF if (w == w[0]).all() else 0))
    check({"a": a, "b": a.astype(np.uint64) << 40}, [
        Case("match.any.sync.b32 %d, %a, 0xffffffff;", same.astype(np.uint32)),
        Case("match.any.sync.b64 %d, %b, 0xffffffff;", same.astype(np.uint32)),
        Case("match.all.sync.b32 %d|%p, %a, 0xffffffff;", everybody),
        Case("match.all.sync.b32 %u|%p, %a, 0xffffffff; selp.u32 %d, 1, 0, %p;", everybody & 1),
    ])  # fmt: skip


def test_one_lane_is_elected_and_all_are_told() -> None:
    got = run("elect.sync %r1|%q0, 0xffffffff; selp.u32 %r2, 1, 0, %q0; shl.b32 %r1, %r1, 8; or.b32 %r0, %r1, %r2;")
    chosen = got & 1
    assert (chosen.reshape(-1, 32).sum(axis=1) == 1).all()
    for warp in got.reshape(-1, 32):
        assert (warp >> 8 == int(np.flatnonzero(warp & 1)[0])).all()


def test_the_active_mask_follows_the_branch() -> None:
    got = run("mov.u32 %r0, 7; setp.lt.u32 %q0, %l, 11; @!%q0 bra DONE; activemask.b32 %r0; DONE:")
    np.testing.assert_array_equal(got, np.where(np.arange(LANES) % 32 < 11, (1 << 11) - 1, 7))


def test_an_indexed_branch_takes_each_lane_its_way() -> None:
    got = run(
        "and.b32 %r1, %t, 3;\nways: .branchtargets ZERO, ONE, TWO, THREE;\nbrx.idx %r1, ways;\n"
        "ZERO: mov.u32 %r0, 100; bra DONE;\nONE: mov.u32 %r0, 200; bra DONE;\n"
        "TWO: add.u32 %r0, %t, 300; bra DONE;\nTHREE: mul.lo.u32 %r0, %t, %t;\nDONE:\n"
    )
    t = np.arange(LANES)
    np.testing.assert_array_equal(got, np.choose(t % 4, [np.full(LANES, 100), np.full(LANES, 200), t + 300, t * t]))


def test_calls_pass_values_and_divergent_lanes_return_together() -> None:
    module = (
        ".func (.param .b32 out) power(.param .b32 base, .param .b32 times)\n{\n.reg .b32 %x, %n, %y; .reg .pred %p;\n"
        "ld.param.b32 %x, [base]; ld.param.b32 %n, [times]; mov.u32 %y, 1;\n"
        "again: setp.eq.u32 %p, %n, 0; @%p bra over; mul.lo.u32 %y, %y, %x; sub.u32 %n, %n, 1; bra again;\n"
        "over: st.param.b32 [out], %y; ret;\n}\n"
    )
    call = (
        "and.b32 %r1, %t, 7; { .param .b32 a; .param .b32 b; .param .b32 r; st.param.b32 [a], %t;"
        " st.param.b32 [b], %r1; call.uni (r), power, (a, b); ld.param.b32 %r0, [r]; }"
    )
    got = run(call, module=module)
    want = [pow(t, t % 8, 1 << 32) for t in range(LANES)]
    np.testing.assert_array_equal(got, want)


def test_guards_keep_the_other_lanes_as_they_are() -> None:
    got = run("mov.u32 %r0, %t; setp.ge.u32 %q0, %l, 20; @%q0 add.u32 %r0, %r0, 1000; @!%q0 shl.b32 %r0, %r0, 1;")
    t = np.arange(LANES)
    np.testing.assert_array_equal(got, np.where(t % 32 >= 20, t + 1000, 2 * t))


def test_barrier_reductions_and_split_barriers() -> None:
    got = run(
        "setp.lt.u32 %q0, %t, 37; barrier.cta.red.popc.aligned.u32 %r1, 1, %q0; bar.red.and.pred %q1, 2, %q0;"
        " bar.red.or.pred %q2, 3, %q0; selp.u32 %r2, 100, 0, %q1; selp.u32 %r3, 1000, 0, %q2;"
        " add.u32 %r0, %r1, %r2; add.u32 %r0, %r0, %r3;"
    )
    np.testing.assert_array_equal(got, 37 + 1000)
    handed = run(
        "setp.lt.u32 %q0, %t, 32; mov.u32 %r0, 0; @!%q0 bra READ; st.shared.u32 [box], 77; bar.arrive 4, 64;"
        " bra DONE;\n"
        "READ: bar.sync 4, 64; ld.shared.u32 %r0, [box];\nDONE:",
        declarations=".shared .b32 box;",
    )
    np.testing.assert_array_equal(handed, np.repeat([0, 77], 32))


def test_special_registers() -> None:
    names = {
        "laneid": lambda t: t % 32, "lanemask_eq": lambda t: 1 << t % 32, "lanemask_lt": lambda t: (1 << t % 32) - 1,
        "lanemask_le": lambda t: (2 << t % 32) - 1, "lanemask_gt": lambda t: ~((2 << t % 32) - 1) & 0xFFFFFFFF,
        "lanemask_ge": lambda t: ~((1 << t % 32) - 1) & 0xFFFFFFFF, "ntid.x": lambda t: LANES, "nctaid.x": lambda t: 1,
        "ctaid.x": lambda t: 0, "cluster_nctarank": lambda t: 1,
    }  # fmt: skip
    check({"a": words(0)}, [
        Case(f"mov.u32 %d, %{name};", np.array([f(t) for t in range(LANES)], np.uint32)) for name, f in names.items()
    ])  # fmt: skip


def test_hints_change_nothing() -> None:
    out = np.zeros(1, np.uint32)
    launch(
        kernel(
            "griddepcontrol.wait; griddepcontrol.launch_dependents; nanosleep.u32 20; prefetch.global.L2 [%p0];"
            " st.global.u32 [%p0], 5;"
        ),
        out,
    )
    assert out[0] == 5
