"""Every kind of hazard: a small kernel with that fault, under every schedule, and its mended twin without it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from blasdx.emulator import EmulationError, Hazard
from tests.emulator.families import kernel, launch

SCHEDULES = ("eager", "lazy", "adversarial", "random")
ROOT = Path(__file__).resolve().parents[2]
DECLARATIONS = (
    ".shared .align 1024 .b8 box[16384]; .shared .align 8 .b64 bar; .shared .align 8 .b64 bar2; .shared .b32 slot;"
)

# Fragments. %r20 is the box, %r21 and %r22 are mbarriers, %q0 is true in thread 0, %q1 in warp 0, %q2 in warp 1.
START = (
    "mov.u32 %r20, box; mov.u32 %r21, bar; mov.u32 %r22, bar2; setp.eq.u32 %q0, %t, 0; setp.eq.u32 %q1, %w, 0;\n"
    "setp.eq.u32 %q2, %w, 1; mad.lo.u32 %r10, %l, 16, %r20;"
)
INIT = "@%q0 mbarrier.init.shared::cta.b64 [%r21], 1; @%q0 mbarrier.init.shared::cta.b64 [%r22], 1;"
INIT_FENCE = "@%q0 fence.mbarrier_init.release.cluster;"
SYNC = "bar.sync 0;"
EXPECT = "@%q0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 512;"
LOAD = "@%q0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%p0], 512, [%r21];"
READ = "ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%r10];"
WRITE = "st.shared.v4.u32 [%r10], {%t, %t, %t, %t};"
FENCE = "fence.proxy.async.shared::cta;"
STORE = "@%q0 cp.async.bulk.global.shared::cta.bulk_group [%p0], [%r20], 512; @%q0 cp.async.bulk.commit_group;"
STORE_READ = "@%q0 cp.async.bulk.wait_group.read 0;"


def wait(bar: str = "%r21", parity: int = 0, label: str = "W") -> str:
    return f"{label}: mbarrier.try_wait.parity.shared::cta.b64 %q9, [{bar}], {parity}; @!%q9 bra {label};"


def only(warp: int, text: str) -> str:
    """For one of the two warps."""
    return text.replace("ld.shared", f"@%q{1 + warp} ld.shared").replace("st.shared", f"@%q{1 + warp} st.shared")


READY = [INIT, INIT_FENCE, SYNC]
LOADED = [*READY, EXPECT, LOAD, wait()]

# Kind: severity, and the fragments; those in a tuple are what the mended twin has and the faulty one lacks, those in a
# list with one element are what the faulty one has instead.
COPIES: dict[str, tuple[str, list[object]]] = {
    "shared-read-before-load-complete": ("error", [*READY, EXPECT, LOAD, (wait(),), READ, [wait()]]),
    "shared-overwritten-before-load-complete": ("error", [*READY, EXPECT, LOAD, (wait(),), WRITE, [wait()]]),
    "shared-read-before-write-published": (
        "error", [*READY, only(1, WRITE), FENCE, (SYNC,), STORE, STORE_READ, [SYNC]]),
    "shared-overwritten-before-write-published": (
        "error", [*READY, only(1, WRITE), FENCE, (SYNC,), EXPECT, LOAD, [SYNC], wait()]),
    "shared-overwritten-while-read": (
        "error", [*LOADED, only(1, READ), (SYNC,), EXPECT, LOAD, wait(parity=1, label="V")]),
    "shared-overwritten-while-store-reads": (
        "error", [*READY, WRITE, FENCE, SYNC, STORE, (STORE_READ,), only(0, WRITE), [STORE_READ]]),
    "shared-read-before-written": ("error", [*READY, (WRITE,), FENCE, SYNC, STORE, STORE_READ]),
    "missing-proxy-fence": ("error", [*READY, WRITE, (FENCE,), SYNC, STORE, STORE_READ]),
    "proxy-fence-by-reader-only": ("warning", [*READY, only(1, WRITE), (FENCE,), SYNC, [FENCE], STORE, STORE_READ]),
    "barrier-used-before-init": ("error", [INIT, INIT_FENCE, (SYNC,), "setp.eq.u32 %q3, %t, 32;",
                                           "@%q3 mbarrier.arrive.shared::cta.b64 _, [%r21];"]),
    "missing-mbarrier-init-fence": ("warning", [INIT, (INIT_FENCE,), SYNC,
                                                "@%q2 mbarrier.test_wait.parity.shared::cta.b64 %q9, [%r21], 1;"]),
    "mbarrier-overwritten": ("error", [*READY, ("@%q0 mbarrier.inval.shared::cta.b64 [%r21];",),
                                       "@%q0 st.shared.u32 [%r21], 7;"]),
    "mbarrier-initialised-twice": ("warning", [*READY, ("@%q0 mbarrier.inval.shared::cta.b64 [%r21];",),
                                               "@%q0 mbarrier.init.shared::cta.b64 [%r21], 3;"]),
    "expect-tx-unbalanced": ("error", [*READY, ["@%q0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r21], 16;"]]),
    "exit-before-write-complete": ("error", [*READY, EXPECT, LOAD, (wait(),)]),
    "exit-before-read-complete": ("warning", [*READY, WRITE, FENCE, SYNC, STORE, (STORE_READ,)]),
    "mbarrier-parity-undefined": ("warning", [
        *READY, "mov.u32 %r41, -1;", (wait(parity=1),), [wait(parity=1).replace("], 1", "], %r41")]]),
    "register-read-undefined": ("warning", [*READY, ("mov.u32 %r50, 1;",), "add.u32 %r51, %r50, 1;"]),
}  # fmt: skip

ALLOC = "@!%q1 bra HAVE; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;\nHAVE:"
HANDLE = (
    "ld.shared.u32 %r30, [slot]; shl.b32 %r31, %w, 21; add.u32 %r31, %r31, %r30; add.u32 %r32, %r30, 32;\n"
    "mov.u32 %r33, %r31; add.u32 %r34, %r31, 32;"
)
FREE = "@!%q1 bra FREED; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r30, 64;\nFREED:"
BEFORE, AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
# 128 x 16 x 16 bf16 from zeros in shared memory: 8 KiB of rows of 32 bytes, swizzled by 32 bytes.
ZERO = (
    "mov.u32 %r5, 0; mad.lo.u32 %r4, %t, 64, %r20; st.shared.v4.u32 [%r4], {%r5, %r5, %r5, %r5};\n"
    "st.shared.v4.u32 [%r4 + 16], {%r5, %r5, %r5, %r5}; st.shared.v4.u32 [%r4 + 32], {%r5, %r5, %r5, %r5};\n"
    "st.shared.v4.u32 [%r4 + 48], {%r5, %r5, %r5, %r5};"
)
IDESC = (
    f"mov.u32 %r40, {1 << 4 | 1 << 7 | 1 << 10 | 2 << 17 | 8 << 24:#x}; shr.u32 %r6, %r20, 4; cvt.u64.u32 %d1, %r6;\n"
    f"or.b64 %d1, %d1, {256 >> 4 << 32 | 1 << 46 | 6 << 61:#x};\n"
    "setp.ne.u32 %q5, %t, %t; setp.eq.u32 %q6, %t, %t;"
)
MMA = "@%q0 tcgen05.mma.cta_group::1.kind::f16 [%r30], %d1, %d1, %r40, %q5;"
ADD = MMA.replace("%q5", "%q6")
MMA_A = "@%q0 tcgen05.mma.cta_group::1.kind::f16 [%r30], [%r32], %d1, %r40, %q5;"
COMMIT = "@%q0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r21];"
COMMIT2 = COMMIT.replace("%r21", "%r22")
LD = f"tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{', '.join(f'%r{k}' for k in range(60, 76))}}}, [%r31];"
LD_WAIT = "tcgen05.wait::ld.sync.aligned;"
USE = "add.u32 %r80, %r60, %r61;"
ST = "tcgen05.st.sync.aligned.32x32b.x4.b32 [%r31], {%t, %t, %t, %t};"
ST_A = "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r34], {%t, %t, %t, %t, %t, %t, %t, %t};"
ST_WAIT = "tcgen05.wait::st.sync.aligned;"
HANDOVER = [BEFORE, SYNC, AFTER]
TENSOR = [INIT, INIT_FENCE, ALLOC, ZERO, FENCE, BEFORE, SYNC, AFTER, HANDLE, IDESC]
PRODUCT = [*TENSOR, MMA, COMMIT, wait(), AFTER]
END = [LD, LD_WAIT, BEFORE, SYNC, FREE]
AGAIN = [MMA, COMMIT2, wait("%r22", label="V"), AFTER]

ACCUMULATORS: dict[str, tuple[str, list[object]]] = {
    "shared-overwritten-while-mma-reads": ("error", [*TENSOR, MMA, COMMIT, (wait(),), AFTER, ZERO, [wait()], *END]),
    "tensor-read-before-commit": ("error", [*TENSOR, MMA, COMMIT, (wait(),), AFTER, LD, LD_WAIT, [wait()], *END]),
    "tensor-overwritten-before-commit": (
        "error", [*TENSOR, MMA, COMMIT, (wait(),), AFTER, (LD, LD_WAIT), ST, ST_WAIT, [wait()], *END]),
    "tensor-overwritten-while-load-reads": (
        "error", [*PRODUCT, LD, LD_WAIT, (BEFORE,), (SYNC,), (AFTER,), *AGAIN, *END]),
    "tensor-overwritten-while-mma-reads": (
        "error", [*TENSOR, ST_A, ST_WAIT, *HANDOVER, MMA_A, COMMIT, (wait(),), AFTER, ST_A, ST_WAIT, [wait()], *END]),
    "tensor-read-before-store-complete": (
        "error", [*TENSOR, ST_A, (ST_WAIT,), *HANDOVER, MMA_A, COMMIT, wait(), AFTER, [ST_WAIT], *END]),
    "tensor-overwritten-before-store-complete": (
        "error", [*TENSOR, ST, (ST_WAIT,), *HANDOVER, MMA, COMMIT, wait(), AFTER, [ST_WAIT], *END]),
    "tensor-read-before-written": ("error", [*TENSOR, (MMA,), [ADD], COMMIT, wait(), AFTER, *END]),
    "tensor-load-not-waited": ("warning", [*PRODUCT, LD, (LD_WAIT,), *HANDOVER, *AGAIN, [LD_WAIT], *END]),
    "tensor-store-not-waited": ("warning", [*PRODUCT, LD, LD_WAIT, ST, (ST_WAIT,), LD, LD_WAIT, [ST_WAIT], *END]),
    "tensor-load-registers-used-early": ("warning", [*PRODUCT, LD, (LD_WAIT,), USE, [LD_WAIT], *END]),
    "missing-tcgen05-fence-after": ("warning", [*TENSOR, MMA, COMMIT, wait(), (AFTER,), LD, LD_WAIT, *END]),
    "missing-tcgen05-fence-before": ("warning", [*PRODUCT, LD, LD_WAIT, (BEFORE,), SYNC, AFTER, *AGAIN, *END]),
    "tensor-not-allocated": ("error", [*TENSOR, ST_A, ST_WAIT, *HANDOVER, ["add.u32 %r32, %r32, 32;"], MMA_A,
                                       COMMIT, wait(), AFTER, *END]),
    "tensor-used-after-free": ("warning", [*PRODUCT, [BEFORE], [SYNC], [FREE], [AFTER], LD, LD_WAIT,
                                           (BEFORE,), (SYNC,), (FREE,)]),
    "tensor-freed-while-used": ("warning", [*PRODUCT, LD, LD_WAIT, (BEFORE,), (SYNC,), FREE]),
    "tensor-result-never-read": ("warning", [
        *PRODUCT, ["setp.eq.u32 %q7, %w, 3; @%q7 bra GONE;"], LD, LD_WAIT, ["GONE:"], BEFORE, SYNC, FREE]),
    "tensor-memory-not-freed": ("error", [*PRODUCT, LD, LD_WAIT, BEFORE, SYNC, (FREE,)]),
}  # fmt: skip
CASES = {kind: (severity, 64, parts) for kind, (severity, parts) in COPIES.items()}
CASES |= {kind: (severity, 128, parts) for kind, (severity, parts) in ACCUMULATORS.items()}

# Without order between two warps, the schedule decides which of them comes first; the other order has another name.
OTHER_ORDER = {
    "shared-read-before-write-published": {"shared-overwritten-while-store-reads", "shared-read-before-written"},
    "shared-overwritten-before-write-published": {"shared-overwritten-before-load-complete"},
    "shared-overwritten-while-read": {"shared-read-before-load-complete"},
    "barrier-used-before-init": {"no mbarrier was initialised"},
    "tensor-overwritten-while-load-reads": {"tensor-read-before-commit"},
    "tensor-freed-while-used": {"tensor-used-after-free"},
}

# Kinds that need other machinery, and where they are tested in the same way.
ELSEWHERE = {
    "wgmma-fence-missing": "test_wgmma.py", "wgmma-register-used-early": "test_wgmma.py",
    "wgmma-operand-overwritten": "test_wgmma.py", "missing-tensormap-fence": "test_remote.py",
    "global-read-without-order": "test_global_races.py", "global-overwritten-without-order": "test_global_races.py",
}  # fmt: skip


def text(parts: list[object], *, mended: bool) -> str:
    lines = [START]
    for part in parts:
        if isinstance(part, str):
            lines.append(part)
        elif isinstance(part, tuple) == mended:
            lines += list(part)  # type: ignore[call-overload]
    return kernel("\n".join(lines), declarations=DECLARATIONS)


def found(kind: str, schedule: str, *, mended: bool) -> tuple[Hazard, ...]:
    _, block, parts = CASES[kind]
    data = np.zeros(4096, np.uint8)
    return launch(text(parts, mended=mended), data, block=block, schedule=schedule, check="collect").hazards


def said_of(kind: str, schedule: str) -> dict[str, str]:
    """Kinds and severities of what is said about the faulty kernel, or what its launch failed with."""
    try:
        return {h.kind: h.severity for h in found(kind, schedule, mended=False)}
    except EmulationError as error:
        return {part: "error" for part in OTHER_ORDER.get(kind, ()) if part in str(error)}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", CASES)
def test_a_fault_is_found_and_its_cure_is_one(kind: str, schedule: str) -> None:
    said = said_of(kind, schedule)
    assert ({kind} | OTHER_ORDER.get(kind, set())) & set(said), list(said)
    assert said.get(kind, CASES[kind][0]) == CASES[kind][0]
    assert [str(h) for h in found(kind, schedule, mended=True)] == []


@pytest.mark.parametrize("kind", OTHER_ORDER)
def test_some_schedule_shows_each_order(kind: str) -> None:
    """The kind itself is found under one schedule at least."""
    assert any(kind in said_of(kind, schedule) for schedule in SCHEDULES)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("again", "does"), [(AGAIN, "mma of CTA"), ([ST, ST_WAIT], "tcgen05.st of CTA")])
def test_a_product_that_the_next_one_takes_the_place_of(again: list[object], does: str, schedule: str) -> None:
    parts = [*PRODUCT, "setp.eq.u32 %q7, %w, 3; @%q7 bra GONE;", LD, LD_WAIT, "GONE:", *HANDOVER, *again, *END]
    hazards = launch(text(parts, mended=False), np.zeros(512, np.uint8), block=128, schedule=schedule,
                     check="collect").hazards  # fmt: skip
    found = {h.kind: h.message for h in hazards}["tensor-result-never-read"]
    assert does in found
    assert "lanes 96 to 127" in found


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_handle_of_tensor_memory_on_an_mbarrier(schedule: str) -> None:
    """A word of shared memory for the handle that is one of an mbarrier: nothing waits for it ever again."""
    parts = [*READY, ALLOC.replace("[slot]", "[bar + 4]"), BEFORE, SYNC, AFTER, "ld.shared.u32 %r30, [bar + 4];", FREE]
    hazards = launch(text(parts, mended=False), np.zeros(512, np.uint8), block=64, schedule=schedule,
                     check="collect").hazards  # fmt: skip
    assert [h.kind for h in hazards] == ["mbarrier-overwritten"]
    assert "warp 0 writes over the mbarrier at 0x" in hazards[0].message


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_second_initialisation_in_the_middle_of_a_phase(schedule: str) -> None:
    """The bytes that were expected are forgotten; the copy of them is one too many for the new phase."""
    again = "@%q0 mbarrier.init.shared::cta.b64 [%r21], 1;"
    expect = "@%q0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r21], 16;"
    hazards = launch(text([*READY, expect, again], mended=False), np.zeros(512, np.uint8), block=64, schedule=schedule,
                     check="collect").hazards  # fmt: skip
    assert [(h.severity, h.kind) for h in hazards] == [("error", "mbarrier-initialised-twice")]


def test_every_kind_has_its_case_and_its_line_in_the_documentation() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "blasdx/emulator").glob("*.py"))
    prefixes = "shared|tensor|missing|mbarrier|barrier|expect|exit|wgmma|proxy|register|global"
    named = set(re.findall(rf'"((?:{prefixes})-[a-z0-9]+(?:-[a-z0-9]+)+)"', source))
    known = set(CASES) | set(ELSEWHERE)
    assert named <= known, named - known
    for kind, file in ELSEWHERE.items():
        assert kind in (ROOT / "tests/emulator" / file).read_text()
    documented = (ROOT / "docs/emulator.md").read_text()
    assert [kind for kind in known if kind not in documented] == []
