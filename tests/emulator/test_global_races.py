"""Races in global memory between the CTAs of a launch, and what orders them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.emulator import HazardError
from tests.emulator.families import kernel, launch

SCHEDULES = ("eager", "lazy", "adversarial", "random")
READ, OVERWRITTEN = "global-read-without-order", "global-overwritten-without-order"
# %r0 is the CTA, %d1 a word of p0 for each thread of it, %d2 the word of the same thread of the CTA before it, %q0 true
# in thread 0, %q1 in the first CTA, %q2 in the last of three.
START = """
mov.u32 %r0, %ctaid.x; setp.eq.u32 %q0, %t, 0; setp.eq.u32 %q1, %r0, 0; setp.eq.u32 %q2, %r0, 2;
mad.lo.u32 %r1, %r0, 32, %t; mad.wide.u32 %d1, %r1, 4, %p0; mad.wide.u32 %d3, %t, 4, %p0;
add.u32 %r2, %r0, 2; rem.u32 %r2, %r2, 3; mad.lo.u32 %r2, %r2, 32, %t; mad.wide.u32 %d2, %r2, 4, %p0;
"""
OWN = "st.global.u32 [%d1], %r1;"
BEFORE = "ld.global.u32 %r3, [%d2];"
SHARED = "st.global.u32 [%d3], %r0;"
LAST = "@!%q0 bra ALL; {}\nALL: shfl.sync.idx.b32 %r4, %r4, 0, 31, -1; setp.ne.u32 %q3, %r4, 2; @%q3 exit;"
COUNT = LAST.format("atom.global.add.u32 %r4, [%p1], 1;")
COUNT_ORDERED = LAST.format("atom.global.acq_rel.gpu.add.u32 %r4, [%p1], 1;")
SUM = "\n".join(f"ld.global.u32 %r3, [%d3 + {128 * n}];" for n in range(3)) + "st.global.u32 [%d3], %r3;"
AWAIT = "F: ld.{}.gpu.global.u32 %r4, [%p1]; setp.eq.u32 %q3, %r4, 0; @%q3 bra F;\n"
STRIPE = "mad.wide.u32 %d4, %t, 12, %p0; mad.wide.u32 %d4, %r0, 4, %d4; st.global.u32 [%d4], %r0;"
BYTES = "mad.lo.u32 %r5, %t, 3, %r0; cvt.u64.u32 %d4, %r5; add.u64 %d4, %d4, %p0; st.global.u8 [%d4], %r0;"
WIDE = "mad.wide.u32 %d4, %r1, 8, %p0; st.global.v4.u32 [%p0], {%r0, %r0, %r0, %r0};"
BULK = "@%q0 cp.async.bulk.global.shared::cta.bulk_group [%p0], [%r9], 128; @%q0 cp.async.bulk.commit_group;"
BULK_WAIT = "@%q0 cp.async.bulk.wait_group 0;"
FILL = "mov.u32 %r9, box; mad.lo.u32 %r8, %t, 4, %r9; st.shared.u32 [%r8], %t; fence.proxy.async; bar.sync 0;"


def flag(publish: str, wait: str, read: str = "ld.global") -> str:
    """The first CTA writes and raises a flag, which the others wait for."""
    return (
        f"@!%q1 bra TAKE; {SHARED} bar.sync 0; {publish} bra DONE;\n"
        f"TAKE: {wait}\n bar.sync 0; {read}.u32 %r3, [%d3];\nDONE:"
    )


RAISED = "@%q0 st.release.gpu.global.u32 [%p1], 1;"
RELAXED = "@%q0 st.relaxed.gpu.global.u32 [%p1], 1;"
WAITED, WAITED_RELAXED = AWAIT.format("acquire"), AWAIT.format("relaxed")

RACES = {
    "all CTAs write the same words": (SHARED, {OVERWRITTEN}),
    "bytes inside a word that another CTA writes": (SHARED + BYTES, {OVERWRITTEN}),
    "wide stores over words": (OWN + WIDE, {OVERWRITTEN}),
    "a read of what the CTA before writes": (OWN + "bar.sync 0;" + BEFORE, {READ, OVERWRITTEN}),
    "a read with an order that nobody publishes": (
        OWN + "bar.sync 0;" + BEFORE.replace("ld", "ld.relaxed.gpu"),
        {READ},
    ),
    "the last one adds up without a fence": (OWN + "bar.sync 0;" + COUNT + SUM, {READ, OVERWRITTEN}),
    "a fence for the CTA alone": (OWN + "bar.sync 0; membar.cta;" + COUNT + SUM, {READ, OVERWRITTEN}),
    "a flag without a release": (flag(RELAXED, WAITED), {READ}),
    "another word than the flag": (flag(RAISED, WAITED.replace("[%p1]", "[%p1 + 4]")), {READ, OVERWRITTEN}),
    "bulk stores to the same place": (FILL + BULK + BULK_WAIT, {OVERWRITTEN}),
}
RACES["bytes that were words when the CTA before read them"] = (
    BEFORE + "bar.sync 0;" + BYTES + STRIPE.replace("12", "4"),
    {READ, OVERWRITTEN},
)
ORDERED = {
    "every CTA its own words": OWN,
    "alternating words": STRIPE,
    "alternating bytes": BYTES,
    "everybody reads": BEFORE,
    "atomic updates of the same words": "red.global.add.u32 [%d3], 1;",
    "in place": "ld.global.u32 %r3, [%d1]; add.u32 %r3, %r3, 1; st.global.u32 [%d1], %r3;",
    "the last one adds up": OWN + "bar.sync 0; membar.gl;" + COUNT + SUM,
    "every thread has its fence": OWN + "fence.acq_rel.gpu; bar.sync 0;" + COUNT + SUM,
    "an update that publishes": OWN + "bar.sync 0;" + COUNT_ORDERED + SUM,
    "a flag": flag(RAISED, WAITED),
    "a flag behind a fence": flag("membar.gl;" + RELAXED, WAITED_RELAXED),
}


def hazards(body: str, schedule: str, sms: int) -> dict[str, str]:
    text = kernel(START + body, 2, declarations=".shared .align 128 .b8 box[128];")
    # The word behind the counter is a flag that is up from the start.
    arrays = np.zeros(1024, np.uint32), np.array([0, 1], np.uint32)
    result = launch(text, *arrays, grid=3, sms=sms, schedule=schedule, check="collect")
    return {h.kind: h.message for h in result.hazards}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sms", [1, 3])
@pytest.mark.parametrize("what", RACES)
def test_races_are_found_whoever_comes_first(what: str, sms: int, schedule: str) -> None:
    body, kinds = RACES[what]
    found = hazards(body, schedule, sms)
    assert found
    assert set(found) <= kinds


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sms", [1, 3])
@pytest.mark.parametrize("what", ORDERED)
def test_what_is_in_order_is_no_race(what: str, sms: int, schedule: str) -> None:
    assert hazards(ORDERED[what], schedule, sms) == {}


def test_the_message_names_both_and_the_buffer() -> None:
    message = hazards(SHARED, "eager", 1)[OVERWRITTEN]
    assert message.startswith("CTA (1,0,0) warp 0 (PTX line ")
    assert "writes bytes of p0 that CTA (0,0,0) warp 0 (PTX line " in message
    assert "nothing orders the two" in message
    with pytest.raises(HazardError, match=OVERWRITTEN):
        launch(kernel(START + SHARED, 2), np.zeros(99, np.uint32), np.zeros(2, np.uint32), grid=3)


def test_ctas_of_a_cluster_have_barriers_for_that() -> None:
    body = START + SHARED + "barrier.cluster.arrive; barrier.cluster.wait; ld.global.u32 %r3, [%d3];"
    arrays = np.zeros(99, np.uint32), np.zeros(2, np.uint32)
    assert launch(kernel(body, 2), *arrays, grid=2, cluster=2, check="collect").hazards == ()


def test_nobody_looks_without_checks() -> None:
    arrays = np.zeros(99, np.uint32), np.zeros(2, np.uint32)
    assert launch(kernel(START + SHARED, 2), *arrays, grid=3, check=False).hazards == ()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sm", [900, 1000])
def test_parts_of_k_need_the_release_of_their_counter(sm: int, schedule: str) -> None:
    """The pipeline's own split along K, with the memory order of its counter taken away."""
    rendered = dx.render(dx.suggest_pipeline(tile((128, 64, 64), sm=sm), split_k=2, depth=2))
    assert rendered.text.count("atom.add.acq_rel.gpu.u32") == 1
    wrong = rendered.model_copy(update={"text": rendered.text.replace("atom.add.acq_rel", "atom.add.relaxed")})
    device = EmulatedDevice(schedule=schedule, processors=2)  # type: ignore[arg-type]
    a, b = np.ones((128, 256), ml_dtypes.bfloat16), np.ones((64, 256), ml_dtypes.bfloat16).T
    assert (dx.Gemm(dx.compile(rendered), device)(a, b) == 256).all()
    with pytest.raises(HazardError, match=READ):
        dx.Gemm(dx.compile(wrong), device)(a, b)
