"""Rarer forms of bulk copies and barriers: byte masks, reductions in the cluster, bulk zeros, pending counts."""

from __future__ import annotations

import numpy as np
import pytest

from blasdx.emulator import EmulationError, HazardError
from tests.emulator.families import kernel, launch
from tests.emulator.test_family_copies import CLUSTER_SYNC, SCHEDULES, SHARED, setup, wait


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stores_with_a_byte_mask(schedule: str) -> None:
    """Bit i of the mask is byte i of every 16."""
    text = kernel(
        "mov.u32 %r20, box; mad.lo.u32 %r3, %t, 4, %r20; mad.lo.u32 %r4, %t, 0x01010101, 0x03020100;\n"
        "st.shared.u32 [%r3], %r4; fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %q0, %t, 0; @%q0 bra END;\n"
        "mov.u16 %h0, 0x8421; cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%p0], [%r20], 128, %h0;\n"
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nEND:",
        declarations=SHARED,
    )
    out = np.full(128, 255, np.uint8)
    launch(text, out, schedule=schedule)
    source = np.arange(32, dtype=np.uint32)[:, None] + np.arange(4, dtype=np.uint32)
    kept = 0x8421 >> (np.arange(128) % 16) & 1
    np.testing.assert_array_equal(out, np.where(kept, source.reshape(-1), 255))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("name", "kind"), [("add", "u32"), ("max", "s32"), ("xor", "b32"), ("inc", "u32"), ("add", "u64")]
)
def test_reductions_into_shared_memory_of_a_peer(name: str, kind: str, schedule: str) -> None:
    size = int(kind[1:]) // 8
    register = "%d4" if size == 8 else "%r4"
    convert = f"cvt.u64.u32 %d4, %r4; st.shared.u64 [%r3], {register};" if size == 8 else "st.shared.u32 [%r3], %r4;"
    # Each CTA holds rank * 100 + t at `box` and adds 7 * t - 20, from behind it, to the other's.
    text = kernel(
        setup(cluster=True) + f"mad.lo.u32 %r3, %t, {size}, %r20; mad.lo.u32 %r4, %rank, 100, %t; {convert}\n"
        f"add.u32 %r3, %r3, 1024; mul.lo.u32 %r4, %t, 7; add.u32 %r4, %r4, 3; {convert}\n"
        f"@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], {32 * size};\n"
        f"fence.proxy.async.shared::cta; {CLUSTER_SYNC}\n"
        "xor.b32 %r8, %rank, 1; mapa.shared::cluster.u32 %r7, %r20, %r8; mapa.shared::cluster.u32 %r6, %r21, %r8;\n"
        "add.u32 %r5, %r20, 1024;\n"
        "@%q30 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes."
        f"{name}.{kind} [%r7], [%r5], {32 * size}, [%r6];\n"
        + wait()
        + f"mad.lo.u32 %r3, %t, {size}, %r20; ld.shared.b{8 * size} {register}, [%r3];\n"
        f"mad.lo.u32 %r2, %rank, 32, %t; mad.wide.u32 %d1, %r2, {size}, %p0; st.global.b{8 * size} [%d1], {register};\n"
        + CLUSTER_SYNC,
        declarations=SHARED,
    )
    out = np.zeros((2, 32), f"u{size}")
    launch(text, out, grid=2, cluster=2, schedule=schedule)
    t = np.arange(32)
    for rank in range(2):
        old, new = rank * 100 + t, 7 * t + 3
        want = {"add": old + new, "max": np.maximum(old, new), "xor": old ^ new,
                "inc": np.where(old >= new, 0, old + 1)}[name]  # fmt: skip
        np.testing.assert_array_equal(out[rank], want)


def test_bulk_zeros_and_what_they_may_not_do() -> None:
    body = (
        "mov.u32 %r20, box; mad.lo.u32 %r3, %t, 4, %r20; st.shared.u32 [%r3], -1; bar.warp.sync -1;\n"
        "setp.ne.u32 %q0, %t, 0; cvta.shared.u64 %d0, 0; cvt.u64.u32 %d1, %r20; add.u64 %d0, %d0, %d1;\n"
        "add.u64 %d0, %d0, {offset}; @!%q0 st.bulk.weak [%d0], 64, 0; bar.warp.sync -1;\n"
        "ld.shared.u32 %r4, [%r3]; mad.wide.u32 %d2, %t, 4, %p0; st.global.u32 [%d2], %r4;"
    ).replace("cvta.shared.u64 %d0, 0;", "mov.u64 %d0, 0; cvta.shared.u64 %d0, %d0;")
    out = np.zeros(32, np.uint32)
    launch(kernel(body.format(offset=8), declarations=SHARED), out)
    np.testing.assert_array_equal(out, np.where((np.arange(32) >= 2) & (np.arange(32) < 18), 0, 0xFFFFFFFF))
    with pytest.raises(EmulationError, match="multiples of 8"):
        launch(kernel(body.format(offset=4), declarations=SHARED), out)


def test_bulk_zeros_over_a_barrier_are_an_error() -> None:
    text = kernel(
        "mov.u32 %r21, bar; mbarrier.init.shared::cta.b64 [%r21], 1; mov.u64 %d0, bar; cvta.shared.u64 %d0, %d0;\n"
        "st.bulk.weak [%d0], 8, 0;".replace("mov.u64 %d0, bar", "cvt.u64.u32 %d0, %r21"),
        0,
        declarations=SHARED,
    )
    with pytest.raises(HazardError) as caught:
        launch(text, block=1)
    assert [h.kind for h in caught.value.hazards] == ["mbarrier-overwritten"]


def test_a_state_knows_how_many_arrivals_were_pending() -> None:
    text = kernel(
        setup(5) + "mbarrier.arrive.shared::cta.b64 %d0, [%r21], 2; mbarrier.pending_count.b64 %r0, %d0;\n"
        "mbarrier.arrive.noComplete.shared::cta.b64 %d1, [%r21], 1; mbarrier.pending_count.b64 %r1, %d1;\n"
        "mbarrier.arrive.shared::cta.b64 %d2, [%r21], 2; mbarrier.arrive.shared::cta.b64 %d3, [%r21], 1;\n"
        "mbarrier.pending_count.b64 %r2, %d3; mbarrier.test_wait.shared::cta.b64 %q0, [%r21], %d2;\n"
        "mbarrier.test_wait.shared::cta.b64 %q1, [%r21], %d3; selp.u32 %r3, 1, 0, %q0; selp.u32 %r4, 1, 0, %q1;\n"
        "st.global.v4.u32 [%p0], {%r0, %r1, %r2, %r3}; st.global.u32 [%p0 + 16], %r4;",
        declarations=SHARED,
    )
    out = np.zeros(5, np.uint32)
    launch(text, out, block=1)
    assert out.tolist() == [5, 3, 5, 1, 0]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_launch_control_through_generic_addresses(schedule: str) -> None:
    text = kernel(
        setup() + "cvt.u64.u32 %d0, %r20; cvta.shared.u64 %d0, %d0; cvt.u64.u32 %d1, %r21; cvta.shared.u64 %d1, %d1;\n"
        "@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 16;\n"
        "@%q30 clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [%d0], [%d1];\n"
        + wait()
        + "ld.shared.b128 %x0, [%r20]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %q0, %x0;\n"
        "selp.u32 %r0, 1, 2, %q0; st.global.u32 [%p0], %r0;",
        declarations=SHARED,
    )
    out = np.zeros(1, np.uint32)
    launch(text, out, schedule=schedule)
    assert out[0] == 2
