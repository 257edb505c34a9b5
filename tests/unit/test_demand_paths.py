"""No descriptor leaves the fast path without a word: what keeps it away is named, and planning stops there."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings

import blasdx as dx
from blasdx.paths.utcmma.limits import CARD
from tests.property.strategies import near_misses

BLACKWELL, HOPPER = dx.SM(1000, dx.arch_specific), dx.SM(900, dx.arch_specific)
TYPES = {
    "f16": ("f16", "f16", "f32"),
    "bf16": ("bf16", "bf16", "f32"),
    "tf32": ("tf32", "tf32", "f32"),
    "fp8": ("e4m3", "e5m2", "f32"),
    "int8": ("s8", "u8", "s32"),
}
TN, NN, TT, NT = ("row", "col"), ("col", "col"), ("row", "row"), ("col", "row")
"""Arrangements of A and B; T and N as in BLAS, where a column-major operand is not transposed."""


def described(types: str, layout: tuple[str, str], sm: dx.SM) -> dx.Descriptor:
    return CARD.with_(sm, dx.Size(128, 128, 64), dx.Precision(*TYPES[types]), dx.Arrangement(*layout, "row"))


# ---- layouts


@pytest.mark.parametrize(
    ("sm", "types", "layouts"),
    [
        (HOPPER, "f16", {TN, NN, TT, NT}),
        (HOPPER, "bf16", {TN, NN, TT, NT}),
        (HOPPER, "tf32", {TN}),
        (HOPPER, "fp8", {TN}),
        (HOPPER, "int8", {TN}),
        (BLACKWELL, "f16", {TN, NN, TT, NT}),
        (BLACKWELL, "bf16", {TN, NN, TT, NT}),
        (BLACKWELL, "tf32", {TN}),
        (BLACKWELL, "fp8", {TN, NN, TT, NT}),
        (BLACKWELL, "int8", {TN, NN, TT, NT}),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, set) else str(value),  # one order for all test processes
)
def test_which_layouts_the_tensor_core_takes(sm: dx.SM, types: str, layouts: set[tuple[str, str]]) -> None:
    fast = "wgmma" if sm == HOPPER else "utcmma"
    for layout in (TN, NN, TT, NT):
        report = dx.check(described(types, layout, sm))
        assert (report.path == fast) == (layout in layouts), layout
        for miss in report.misses(fast):
            assert "k-major" in miss.gate
            assert "K-major" in miss.why


@pytest.mark.parametrize("types", ["fp8", "int8", "tf32"])
@pytest.mark.parametrize("layout", [NN, TT, NT], ids=["NN", "TT", "NT"])
def test_a_type_that_hopper_does_not_transpose_is_refused_by_layout(types: str, layout: tuple[str, str]) -> None:
    """The fallback to mma.sync that other compilers make here in silence."""
    asked = described(types, layout, HOPPER)
    with pytest.raises(dx.GateError, match="1 of 11 wgmma gates missed") as caught:
        dx.check(asked, require="wgmma")
    (miss,) = caught.value.misses
    assert miss.fixes == ("Arrangement(row_major, col_major, row_major)",)
    assert "transposes 16-bit operands only" in miss.why
    with pytest.raises(dx.GateError, match="k-major"):
        dx.suggest_pipeline(asked)
    assert caught.value.report.fixed("wgmma") == described(types, TN, HOPPER)


# ---- precision


@pytest.mark.parametrize("sm", [HOPPER, BLACKWELL], ids=["Hopper", "Blackwell"])
def test_f32_is_never_rounded_to_tf32_unasked(sm: dx.SM) -> None:
    report = dx.check(CARD.with_(sm, dx.Precision("f32")))
    fast = "wgmma" if sm == HOPPER else "utcmma"
    assert report.path == "fma"
    assert report.fixed(fast) is None
    allowed = report.fixed(fast, allow={"precision"})
    assert allowed is not None
    assert str(allowed.precision) == "Precision(tf32, tf32, f32)"
    with pytest.raises(dx.GateError, match="precision"):
        dx.suggest_pipeline(report.descriptor)


# ---- threads, pipeline, K


@pytest.mark.parametrize("threads", [32, 64, 96, 160, 192, 256, 384, 512, 1024])
def test_threads_that_blackwell_does_not_take_are_a_line_of_the_report(threads: int) -> None:
    asked = CARD.with_(dx.BlockDim(threads))
    report = dx.check(asked)
    (miss,) = report.misses("utcmma")
    assert (miss.gate, miss.got, miss.fixes) == ("block-dim", f"BlockDim({threads})", ("BlockDim(128)",))
    assert f"MISSED  block-dim         BlockDim({threads})" in str(report)
    with pytest.raises(dx.GateError, match="block-dim"):
        dx.suggest_pipeline(asked)


@pytest.mark.parametrize("sm", [HOPPER, BLACKWELL], ids=["Hopper", "Blackwell"])
def test_a_descriptor_one_operator_away_from_the_pipeline_is_told_which(sm: dx.SM) -> None:
    fast = "wgmma" if sm == HOPPER else "utcmma"
    for operator, gate in ((dx.WithPipeline, "pipeline"), (dx.EnableInputStreaming, "input-streaming")):
        report = dx.check(CARD.with_(sm).without(operator))
        assert report.path == "supermma"
        assert [(miss.gate, miss.fixes) for miss in report.misses(fast)] == [(gate, (f"{operator.__name__}()",))]
        assert report.fixed(fast) == CARD.with_(sm)


@pytest.mark.parametrize("sm", [HOPPER, BLACKWELL], ids=["Hopper", "Blackwell"])
@pytest.mark.parametrize(("types", "step"), [("f16", 16), ("bf16", 16), ("tf32", 8), ("fp8", 32), ("int8", 32)])
def test_a_tile_whose_k_the_instruction_would_cut_off_is_refused(types: str, step: int, sm: dx.SM) -> None:
    fast = "wgmma" if sm == HOPPER else "utcmma"
    for k in (1, 4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 80, 96, 255, 256):
        report = dx.check(described(types, TN, sm).with_(dx.Size(64, 64, k)))
        assert (report.path == fast) == (k % step == 0), k
        if k % step:
            (miss,) = report.misses(fast)
            near = {value for value in (k // step * step, k // step * step + step) if 0 < value <= 256}
            assert miss.gate == "size-k"
            assert set(miss.fixes) == {f"Size(64, 64, {value})" for value in near}


@pytest.mark.parametrize("sm", [HOPPER, BLACKWELL], ids=["Hopper", "Blackwell"])
def test_stages_that_do_not_fit_are_counted_in_bytes_before_anything_is_compiled(sm: dx.SM) -> None:
    asked = described("f16", TN, sm).with_(dx.Size(256, 64, 128), dx.BlockDim(256 if sm == HOPPER else 128))
    deepest = dx.suggest_pipeline(asked)
    for depth in range(1, deepest.depth + 1):
        assert dx.suggest_pipeline(asked, depth=depth).smem_total <= 232_448
    told = rf"{deepest.depth + 1} stages x 81,920 B .* more than the 232,448 B .* depth={deepest.depth} fits"
    with pytest.raises(dx.PlanError, match=told) as caught:
        dx.suggest_pipeline(asked, depth=deepest.depth + 1)
    assert caught.value.code == "shared_memory"
    assert caught.value.needed > caught.value.available == 232_448


# ---- chips


@pytest.mark.parametrize(
    ("sm", "types", "why"),
    [
        (dx.SM(890), "fp8", "SM 890 has none"),
        (dx.SM(800), "bf16", "SM 800 has none"),
        (dx.SM(900), "bf16", "generic builds sm_90, where wgmma does not exist: it is in sm_90a"),
        (dx.SM(900, dx.family_specific), "bf16", "family_specific builds sm_90f"),
        (dx.SM(1000), "bf16", "generic builds sm_100, where tcgen05 does not exist"),
        (dx.SM(1030, dx.family_specific), "bf16", "family_specific builds sm_103f"),
        (dx.SM(1030, dx.arch_specific), "int8", "no integer"),
        (dx.SM(1200, dx.arch_specific), "fp8", "SM 1200 has neither tcgen05 nor tensor memory"),
        (dx.SM(1210, dx.arch_specific), "bf16", "SM 1210 has neither tcgen05 nor tensor memory"),
    ],
    ids=str,
)
def test_a_chip_without_the_fast_path_is_said_to_be_one_each_time(sm: dx.SM, types: str, why: str) -> None:
    """The slower kernel is never taken instead: every call says the same, with one reason."""
    asked = described(types, TN, sm)
    texts = []
    for _ in range(2):
        with pytest.raises(dx.GateError) as caught:
            dx.suggest_pipeline(asked)
        texts.append(str(caught.value))
        assert any(why in miss.why for miss in caught.value.misses), caught.value.misses
    assert texts[0] == texts[1]


# ---- a gate that says yes means it


@given(near_misses())
@settings(max_examples=40)
def test_what_is_supported_has_a_plan_or_a_number_that_does_not_fit(descriptor: dx.Descriptor) -> None:
    """Between check and plan nothing is decided anew: no other error, no other path, no more than there is."""
    report = dx.check(descriptor)
    outcome = planned(descriptor)
    if isinstance(outcome, dx.PipelinePlan):
        assert report.supported
        assert outcome.path == report.path
        assert outcome.smem_total <= outcome.smem_limit
    elif isinstance(outcome, dx.GateError):
        assert not report.supported
    else:
        expected = (
            {"shared_memory", "registers", "operand_span", "cluster_parts"} if report.supported else {"no_kernel"}
        )
        assert outcome.code in expected, str(outcome)


def planned(descriptor: dx.Descriptor) -> dx.PipelinePlan | dx.GateError | dx.PlanError:
    try:
        return dx.suggest_pipeline(descriptor)
    except (dx.GateError, dx.PlanError) as error:
        return error


def test_a_tile_at_each_corner_of_the_rules_has_a_plan() -> None:
    """The largest and the smallest of everything, where the rules say yes and one stage fits."""
    for m, n, k in product((64, 128, 192, 256), (64, 128, 192, 256), (64, 128)):
        for layout in (TN, NN, TT, NT):
            asked = described("bf16", layout, BLACKWELL).with_(dx.Size(m, n, k))
            fits = (m + n) * k * 2 + 100 <= 232448
            if dx.check(asked).path == "utcmma" and fits:
                assert dx.suggest_pipeline(asked).depth >= 1, (m, n, k, layout)
