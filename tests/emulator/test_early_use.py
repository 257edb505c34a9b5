"""Registers of tcgen05.ld before their wait, and stores over live barriers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.families import kernel, launch

LOAD = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2}, [%r9];"
WAIT = "tcgen05.wait::ld.sync.aligned;"


def hazards(body: str, declarations: str = "") -> set[tuple[str, str]]:
    text = kernel(
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [box], 32; ld.shared.b32 %r9, [box];\n"
        "tcgen05.st.sync.aligned.32x32b.x2.b32 [%r9], {%t, %t}; tcgen05.wait::st.sync.aligned;\n"
        "mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 2; mad.wide.u32 %d1, %t, 4, %p0;\n"
        f"{body}\nst.global.b32 [%d1], %r3;\ntcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 32;",
        declarations=".shared .align 16 .b32 box;" + declarations,
    )
    result = launch(text, np.zeros(32, np.uint32), check="collect")
    return {(h.severity, h.kind) for h in result.hazards}


EARLY = {("warning", "tensor-load-registers-used-early")}


@pytest.mark.parametrize(("body", "found"), [
    (f"{LOAD} {WAIT} add.u32 %r3, %r1, %r2;", False),
    (f"{LOAD} add.u32 %r3, %r1, %r2; {WAIT}", True),
    (f"{LOAD} mov.u32 %r1, 5; add.u32 %r3, %r1, 1; {WAIT}", False),  # written anew
    (f"{LOAD} bra NEXT; NEXT: add.u32 %r3, %r2, 1; {WAIT}", True),  # in another block
    (f"{LOAD} setp.eq.u32 %q0, %r4, 2; @%q0 bra SKIP; {WAIT} SKIP: add.u32 %r3, %r2, 1; {WAIT}", True),
    (f"{LOAD} setp.eq.u32 %q0, %r4, 3; @%q0 bra SKIP; {WAIT} SKIP: add.u32 %r3, %r2, 1; {WAIT}", False),  # went round
    (f"setp.eq.u32 %q0, %r4, 3; {LOAD} {WAIT} {LOAD} @!%q0 add.u32 %r3, %r2, 1; {WAIT}", True),
    (f"LOOP: add.u32 %r3, %r1, %r3; {LOAD} {WAIT} sub.u32 %r4, %r4, 1; setp.ne.u32 %q0, %r4, 0; @%q0 bra LOOP;", False),
    (f"LOOP: add.u32 %r3, %r1, %r3; {LOAD} sub.u32 %r4, %r4, 1; setp.ne.u32 %q0, %r4, 0; @%q0 bra LOOP; {WAIT}", True),
])  # fmt: skip
def test_loaded_registers_are_used_after_the_wait(body: str, found: bool) -> None:
    assert hazards(body) == (EARLY if found else set())


@pytest.mark.parametrize(("body", "found"), [
    ("st.shared.b32 [signal + 4], %t;", True),
    ("st.shared.b32 [signal + 8], %t;", False),
    ("st.shared.v4.b32 [signal], {%t, %t, %t, %t};", True),
    ("mbarrier.inval.shared::cta.b64 [signal]; st.shared.b32 [signal + 4], %t;", False),
    ("mov.u32 %r5, signal; cp.async.ca.shared.global [%r5], [%p0], 16; cp.async.wait_all;", False),
])  # fmt: skip
def test_barriers_are_not_written_over(body: str, found: bool) -> None:
    setup = "mbarrier.init.shared::cta.b64 [signal], 1;"
    kinds = hazards(f"{setup} {body}", ".shared .align 16 .b64 signal[4];")
    assert (("error", "mbarrier-overwritten") in kinds) == found


def test_copies_do_not_land_on_barriers() -> None:
    kinds = hazards(
        "mbarrier.init.shared::cta.b64 [signal], 1; mbarrier.init.shared::cta.b64 [signal + 16], 1;\n"
        "mov.u32 %r5, signal; setp.ne.u32 %q1, %t, 0; @%q1 bra DONE; "
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [signal], 16; add.u32 %r6, %r5, 16;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%p0], 16, [%r5];\n"
        "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q2, [signal], 0; @!%q2 bra WAIT; DONE:",
        ".shared .align 16 .b64 signal[4];",
    )
    assert ("error", "mbarrier-overwritten") in kinds
