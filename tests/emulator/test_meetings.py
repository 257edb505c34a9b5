"""``.sync`` instructions whose members are on different paths of a warp."""

from __future__ import annotations

import numpy as np
import pytest

from blasdx.emulator import DeadlockError
from tests.emulator.families import kernel, launch

T = np.arange(32)


def run(body: str, **options: str) -> np.ndarray:
    text = kernel(f"{body}\nmad.wide.u32 %d1, %t, 4, %p0; st.global.b32 [%d1], %r0;", **options)
    out = np.zeros(32, np.uint32)
    launch(text, out)
    return out


# The lanes part at an indexed branch and meet again only at the end, but pass through one common instruction.
PART = (
    "and.b32 %r1, %t, 3; mov.u32 %r2, 0; mad.lo.u32 %r5, %t, 7, 1;\n"
    "setp.eq.u32 %q1, %r1, 1; @%q1 bra LATE; setp.eq.u32 %q2, %r1, 2; @%q2 bra LATER;\nCOMMON: {common}\n"
    "add.u32 %r0, %r0, %r2; setp.ne.u32 %q3, %r2, 0; @%q3 bra ONCE; bra END;\nONCE: bra END;\n"
    "LATE: mov.u32 %r2, 1000; add.u32 %r3, %r1, 1; bra COMMON;\n"
    "LATER: mov.u32 %r2, 2000; mov.u32 %r4, 0; TURN: add.u32 %r4, %r4, 1; setp.lt.u32 %q4, %r4, 50; @%q4 bra TURN;\n"
    "bra COMMON;\nEND:"
)
EXTRA = np.choose(T % 4, [0, 1000, 2000, 0])


@pytest.mark.parametrize(("common", "want"), [
    ("shfl.sync.bfly.b32 %r0, %r5, 1, 31, 0xffffffff;", (T ^ 1) * 7 + 1),
    ("shfl.sync.idx.b32 %r0, %r5, 9, 31, 0xffffffff;", np.full(32, 64)),
    ("setp.gt.u32 %q5, %r5, 50; vote.sync.ballot.b32 %r0, %q5, 0xffffffff;",
     np.full(32, sum(1 << t for t in range(32) if 7 * t + 1 > 50))),
    ("redux.sync.add.u32 %r0, %r5, 0xffffffff;", np.full(32, (T * 7 + 1).sum())),
    ("match.any.sync.b32 %r0, %r1, 0xffffffff;", 0x11111111 << (T % 4)),
])  # fmt: skip
def test_values_of_lanes_on_other_paths(common: str, want: np.ndarray) -> None:
    np.testing.assert_array_equal(run(PART.format(common=common)), ((want + EXTRA) & 0xFFFFFFFF).astype(np.uint32))


def test_a_warp_barrier_orders_lanes_on_different_sides_of_a_branch() -> None:
    got = run(
        "mov.u32 %r1, box; mad.lo.u32 %r2, %t, 4, %r1; xor.b32 %r3, %t, 16; mad.lo.u32 %r3, %r3, 4, %r1;\n"
        "mov.u32 %r5, 0; st.shared.b32 [%r2], %r5; setp.lt.u32 %q0, %t, 16; @%q0 bra LOW;\n"
        "mov.u32 %r4, 0; TURN: add.u32 %r4, %r4, 1; setp.lt.u32 %q1, %r4, 900; @%q1 bra TURN;\n"
        "mad.lo.u32 %r5, %t, 3, 1; st.shared.b32 [%r2], %r5; bar.warp.sync 0xffffffff; ld.shared.b32 %r0, [%r3];\n"
        "bra END;\n"
        "LOW: mad.lo.u32 %r5, %t, 5, 2; st.shared.b32 [%r2], %r5; bar.warp.sync 0xffffffff; ld.shared.b32 %r0, [%r3];\n"
        "END:",
        declarations=".shared .b32 box[32];",
    )
    np.testing.assert_array_equal(got, np.where(T < 16, (T ^ 16) * 3 + 1, (T ^ 16) * 5 + 2))


def test_lanes_that_exit_are_not_waited_for() -> None:
    text = kernel(
        "setp.ge.u32 %q0, %t, 24; @!%q0 bra STAY;\n"
        "mov.u32 %r4, 0; TURN: add.u32 %r4, %r4, 1; setp.lt.u32 %q1, %r4, 900; @%q1 bra TURN; exit;\n"
        "STAY: redux.sync.add.u32 %r0, %t, 0xffffffff; mad.wide.u32 %d1, %t, 4, %p0; st.global.b32 [%d1], %r0;"
    )
    out = np.zeros(32, np.uint32)
    launch(text, out)
    np.testing.assert_array_equal(out, np.where(T < 24, 276, 0))


def test_members_that_never_come_are_named() -> None:
    text = kernel(
        "setp.lt.u32 %q0, %t, 8; @%q0 bra WAIT; redux.sync.add.u32 %r0, %t, 0xffffffff; bra END;\n"
        "WAIT: bar.sync 1, 64; END:"
    )
    with pytest.raises(DeadlockError, match=r"lanes 0x000000ff, which a \.sync instruction names"):
        launch(text, np.zeros(32, np.uint32))


def test_a_whole_warp_is_together_behind_a_warp_barrier() -> None:
    """What is .aligned needs all lanes at once, and has them, although each side of a branch may leave the loop."""
    zero = "".join(f"mov.u32 %r{n}, 0; " for n in range(10, 20))
    product = (
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%r10, %r11, %r12, %r13}, {%r14, %r15, %r16, %r17}, {%r18, %r19}, {%r10, %r11, %r12, %r13};"
    )
    turn = "add.u32 %r2, %r2, 1; setp.lt.u32 %q1, %r2, 5; @%q1 bra LOOP; bra DONE;"
    got = run(
        f"{zero} mov.u32 %r0, 0; mov.u32 %r2, 0; and.b32 %r1, %t, 1; setp.eq.u32 %q0, %r1, 0;\n"
        f"LOOP: bar.warp.sync 0xffffffff; {product} @%q0 bra EVEN; add.u32 %r0, %r0, %t; {turn}\n"
        f"EVEN: add.u32 %r0, %r0, 100; {turn}\nDONE: add.u32 %r0, %r0, %r10;"
    )
    np.testing.assert_array_equal(got, np.where(T % 2 == 0, 500, 5 * T))
