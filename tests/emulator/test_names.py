"""Roles and barriers by their names: in hangs, hazards and the time line of rendered kernels."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.emulator import DeadlockError, EmulationError, HazardError, Names
from blasdx.emulator.names import spans, warps
from tests.emulator.families import kernel, launch
from tests.emulator.test_family_copies import SCHEDULES, SHARED, setup

NAMES = Names(((0, "math"), (1, "math"), (1, "load"), (4, "store")), ((0x440, "full[1]"),), (("a", 0x400, 0x100),))


@pytest.mark.parametrize(("text", "named"), [
    ("CTA (0,0,0) warp 0 (PTX line 3)", "CTA (0,0,0) warp 0 (math) (PTX line 3)"),
    ("tma-load of CTA (0,0,0) warp 4, and", "tma-load of CTA (0,0,0) warp 4 (store), and"),
    ("warps 0-1: waiting", "warps 0-1 (math, load): waiting"),
    ("warps 5-7, warp 12", "warps 5-7, warp 12"),
    ("a wait for phase 3 of the mbarrier at 0x440 is", "a wait for phase 3 of full[1] (mbarrier 0x440) is"),
    ("mbarrier 0x448 of CTA 0", "mbarrier 0x448 of CTA 0"),
    ("writes shared memory 0x4f0 to 0x50f, which", "writes shared memory 0x4f0 to 0x50f (a), which"),
    ("shared memory 0x500 to 0x5ff", "shared memory 0x500 to 0x5ff"),
])  # fmt: skip
def test_names_are_put_into_texts(text: str, named: str) -> None:
    assert NAMES.annotate(text) == named
    assert Names().annotate(text) == text


def test_numbers_are_put_together() -> None:
    assert spans([5, 0, 1, 2, 8, 9]) == "0-2, 5, 8-9"
    assert warps([3, 0, 1]) == "warps 0-1, warp 3"
    assert warps([]) == ""


def test_names_from_a_document() -> None:
    assert Names.from_text({"warp 4": "mma", "mbarrier 0x400": "full[0]"}) == Names(
        ((4, "mma"),), ((0x400, "full[0]"),)
    )
    with pytest.raises(ValueError, match="a name for 'lane 3'; 'warp 4' or 'mbarrier 0x400' is needed"):
        Names.from_text({"lane 3": "x"})


# ------------------------------------------------------------------------------------------------- rendered kernels

BROKEN = {
    ("utcmma", "a thread does not give the accumulator back"): (
        "mbarrier_arrive(tile.storage.acc_empty(tile.results.stage));",
        "if (threadIdx.x != 77) mbarrier_arrive(tile.storage.acc_empty(tile.results.stage));",
        r"warp 4 \(mma_issue\): waiting for acc_empty\[\d\] \(mbarrier 0x\w+\), phase \d .*lacks 1 of 128",
    ),
    ("utcmma", "the accumulator is never handed over"): (
        "tcgen05_commit(storage.acc_full(acc.stage));",
        "",
        r"warps 0-3 \(epilogue\): waiting for acc_full\[0\] \(mbarrier 0x\w+\), phase 0 \(parity 0\), which lacks",
    ),
    ("utcmma", "stages are not waited for"): (
        "mbarrier_wait(storage.full(ring.stage), ring.phase);",
        "",
        r"mma of CTA \(0,0,0\) warp 4 \(mma_issue\) .* reads shared memory \w+ to \w+ \(a\)",
    ),
}


@cache
def plan(path: str) -> dx.PipelinePlan:
    return dx.suggest_pipeline(tile((128, 64, 64)) if path == "utcmma" else tile((128, 64, 64), sm=900), depth=2)


@cache
def compiled(path: str, text: str) -> dx.CompiledKernel:
    return dx.compile(dx.render(plan(path)).model_copy(update={"text": text}))


def multiply(text: str, path: str, schedule: str) -> EmulatedDevice:
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, (rows, 320)).astype(ml_dtypes.bfloat16) for rows in (130, 520))
    device: Any = EmulatedDevice(schedule=schedule, processors=1)  # type: ignore[arg-type]
    dx.Gemm(compiled(path, text), device)(a, b.T)
    return device


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_is_said_in_the_plans_words(what: tuple[str, str], schedule: str) -> None:
    line, wrong, says = BROKEN[what]
    text = dx.render(plan(what[0])).text
    assert text.count(line) == 1, f"the kernel no longer has the line {line!r}"
    with pytest.raises(EmulationError) as caught:
        multiply(text.replace(line, wrong), what[0], schedule)
    assert re.search(says, str(caught.value)), str(caught.value)


def test_the_time_line_has_every_barrier_of_the_plan() -> None:
    device = multiply(dx.render(plan("utcmma")).text, "utcmma", "lazy")
    assert device.last is not None
    tracks = {event.track for event in device.last.trace}
    phases = [event for event in device.last.trace if "mbarrier" in event.track]
    assert len({t for t in tracks if "mbarrier" in t}) == sum(ring.stages for ring in plan("utcmma").barriers)
    assert any(t.startswith("cta 0 barrier") for t in tracks)
    first = [e for e in phases if e.track == phases[0].track]
    assert [e.name for e in first] == [f"phase {k}" for k in range(len(first))]
    assert all(a.stop == b.start for a, b in pairwise(first))


# ------------------------------------------------------------------------------------------------------ named barriers


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_barrier_says_who_came_and_who_did_not(schedule: str) -> None:
    text = kernel("setp.ge.u32 %q0, %w, 2; @%q0 bra SPIN; bar.sync 0;\nSPIN: @!%q0 bra END; bar.sync 1, 128;\nEND:", 0)
    with pytest.raises(DeadlockError) as caught:
        launch(text, block=128, schedule=schedule, names=Names(((2, "mma"), (3, "mma"))))
    said = str(caught.value)
    assert "barrier 0 of CTA (0,0,0): 64 of 128 threads, 64 are missing; warps 0-1 came" in said
    assert "barrier 1 of CTA (0,0,0): 64 of 128 threads, 64 are missing; warps 2-3 (mma) came" in said
    assert "warps 2-3 (mma): waiting for barrier 1 (PTX line" in said


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_threads_that_left_are_named(schedule: str) -> None:
    """A thread that returns early does not arrive on the mbarrier that counts all of them."""
    text = kernel(
        setup(64) + "setp.eq.u32 %q0, %t, 37; @%q0 exit; mbarrier.arrive.shared::cta.b64 %d0, [%r21];\n"
        "W: mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r21], 0; @!%q1 bra W;",
        0,
        declarations=SHARED,
    )
    with pytest.raises(DeadlockError, match=r"CTA \(0,0,0\) warp 1 lanes 0x00000020: exited"):
        launch(text, block=64, schedule=schedule)


# ------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(("option", "message"), [
    ({"schedule": "zzz"}, "schedule is 'zzz'; legal are 'eager', 'lazy', 'adversarial', 'random'"),
    ({"check": "no"}, "check is 'no'; legal are True, False, 'collect'"),
    ({"check": 1}, "check is 1; legal"),
    ({"numerics": "fast"}, "numerics is 'fast'; legal are 'exact', 'hardware'"),
    ({"seed": 1.5}, "seed is 1.5; an integer"),
    ({"sms": 0}, "sms is 0; the number of CTAs"),
    ({"sms": True}, "sms is True"),
])  # fmt: skip
def test_options_without_a_meaning_are_refused_early(option: dict[str, Any], message: str) -> None:
    with pytest.raises(EmulationError, match=re.escape(message)):
        launch(kernel("", 0), **option)
    if "sms" in option:
        option = {"processors": option["sms"]}
    with pytest.raises(EmulationError, match=re.escape(message)):
        EmulatedDevice(**option)


def test_hazards_that_are_collected_are_named_too() -> None:
    text = kernel("mov.u32 %r20, bar; mbarrier.init.shared::cta.b64 [%r20], 1; st.shared.u32 [%r20], 1;", 0,
                  declarations=".shared .align 8 .b64 bar;")  # fmt: skip
    names = Names(((0, "setup"),), ((0x400, "full[0]"),))
    (hazard,) = launch(text, block=1, check="collect", names=names).hazards
    assert (
        hazard.message
        == "CTA (0,0,0) warp 0 (setup) writes over full[0] (mbarrier 0x400); mbarrier.inval is needed before"
    )
    with pytest.raises(HazardError, match=r"warp 0 \(setup\) writes over full\[0\]"):
        launch(text, block=1, names=names)
