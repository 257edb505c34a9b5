"""The catalogue: every gate has an example of either kind, every fix is true, and the documentation is current."""

from __future__ import annotations

import re

import numpy as np
import pytest

import blasdx
from blasdx.elements import bf16, e4m3, f16, f32, f64, s8, s32, tf32, u8, u32
from blasdx.operators import (
    SM,
    Alignment,
    Arrangement,
    Block,
    BlockDim,
    BlocksPerCluster,
    Function,
    LeadingDimension,
    Precision,
    RequiredMantissaBits,
    Size,
    Type,
    WithPipeline,
    arch_specific,
    family_specific,
)
from blasdx.paths import CATALOGUE, Gate, OperandSpec, PathReport, check
from blasdx.paths.rules import Query
from blasdx.paths.utcmma.limits import CARD
from tests.unit.pasting import pasted
from tools import gates_doc

HOPPER = CARD.with_(SM(900, arch_specific))
GATES = [pytest.param(path, gate, id=f"{path}-{gate.id}") for path, gates in CATALOGUE.items() for gate in gates]
EXAMPLES = [
    pytest.param(path, gate, query, met, id=f"{path}-{gate.id}-{'met' if met else 'missed'}-{place}")
    for path, gates in CATALOGUE.items()
    for gate in gates
    for met, queries in ((True, gate.passing), (False, gate.failing))
    for place, query in enumerate(queries)
]


def missed(report: PathReport, path: str) -> list[str]:
    return [finding.gate for finding in report.misses(path)]


@pytest.mark.parametrize(("path", "gate"), GATES)
def test_a_gate_is_complete(path: str, gate: Gate) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", gate.id)
    assert gate.passing, "a passing example"
    assert gate.failing, "a failing example"
    for text in (gate.title, gate.rule, gate.why, gate.source):
        assert text


def test_ids_are_unique_on_a_path() -> None:
    for gates in CATALOGUE.values():
        assert len({gate.id for gate in gates}) == len(gates)


@pytest.mark.parametrize(("path", "gate", "query", "met"), EXAMPLES)
def test_an_example_does_what_it_says(path: str, gate: Gate, query: Query, met: bool) -> None:
    report = check(query.descriptor, query.a, query.b)
    findings = report.notes if gate.advisory else report.gates
    found = [finding for finding in findings if (finding.path, finding.gate) == (path, gate.id)]
    if gate.advisory and met and not found:
        return  # a note about nothing is not made
    assert [finding.met for finding in found] == [met]
    assert found[0].got
    assert found[0].need
    assert found[0].why
    if not gate.advisory and not met:
        assert gate.id in missed(report, "fma" if path == "any" else path)


@pytest.mark.parametrize(("path", "gate", "query", "met"), [case for case in EXAMPLES if not case.values[3]])
def test_every_fix_that_is_printed_is_true(path: str, gate: Gate, query: Query, met: bool) -> None:
    report = check(query.descriptor, query.a, query.b)
    found = next(f for f in (*report.gates, *report.notes) if (f.path, f.gate) == (path, gate.id))
    for fix in found.fixes:
        assert gate.judge(Query(query.descriptor.with_(pasted(fix)), query.a, query.b)).met, fix


def test_the_page_of_gates_is_current() -> None:
    assert gates_doc.TARGET.read_text() == gates_doc.document(), "run python tools/gates_doc.py"


def test_the_page_names_every_gate() -> None:
    page = gates_doc.document()
    for path, gates in CATALOGUE.items():
        for gate in gates:
            assert f"### {'rule' if path == 'any' else path}: {gate.id}\n" in page


# ---- what the card says, clause by clause


def test_the_card_itself_passes_all_eleven() -> None:
    report = check(CARD)
    assert report.path == "utcmma"
    assert [finding.gate for finding in report.gates_of("utcmma")] == [
        "pipeline",
        "input-streaming",
        "sm",
        "type",
        "precision",
        "block-dim",
        "alignment",
        "size-m",
        "size-n",
        "size-k",
        "tensor-memory",
    ]
    assert all(finding.met for finding in report.gates_of("utcmma"))
    assert report.misses("utcmma") == ()


@pytest.mark.parametrize(
    ("change", "gates"),
    [
        ((SM(1030, arch_specific),), []),
        ((SM(1070, arch_specific),), []),
        ((SM(1100, arch_specific),), []),
        ((SM(1000),), ["sm"]),
        ((SM(1000, family_specific),), ["sm"]),
        ((SM(1200, arch_specific),), ["sm"]),
        ((SM(1210, arch_specific),), ["sm"]),
        ((BlockDim(256),), ["block-dim"]),
        ((Alignment(16, 16, 8),), ["alignment"]),
        ((Alignment(32, 32, 32),), []),
        ((Precision(f16),), []),
        ((Precision(bf16, bf16, f16),), ["precision"]),
        ((Precision(f64),), ["precision"]),
        ((Type("complex"),), ["type"]),
        ((Precision(s8, u8, s32),), []),
        ((Precision(u8, u8, u32),), ["precision"]),
        ((Precision(s8, s8, s32), SM(1030, arch_specific)), ["precision"]),
        ((Precision(s8, s8, s32), SM(1070, arch_specific)), ["precision"]),
        ((Precision(s8, s8, s32), SM(1100, arch_specific)), []),
        ((Size(96, 64, 64),), ["size-m"]),
        ((Size(320, 64, 64),), ["size-m"]),
        ((Size(128, 264, 64),), ["size-n"]),
        ((Size(128, 4, 64),), ["size-n"]),
        ((Size(128, 64, 8),), ["size-k"]),
        ((Size(128, 64, 272),), ["size-k"]),
        ((Size(64, 8, 256),), []),
        ((Precision(tf32, tf32, f32), Size(64, 8, 24)), []),
        ((Precision(tf32, tf32, f32), Arrangement("row", "row", "row")), ["tf32-k-major"]),
        ((Precision(e4m3, e4m3, f32), Size(192, 24, 32)), []),
        ((Precision(e4m3, e4m3, f32), Size(192, 24, 32), Arrangement("col", "row", "col")), ["size-n"]),
        ((Precision(s8, s8, s32), Size(128, 8, 32)), []),
        ((Precision(s8, s8, s32), Size(128, 8, 32), Arrangement("row", "row", "row")), ["size-n"]),
        ((Precision(s8, s8, s32), Size(128, 24, 32)), ["size-n"]),
        ((Size(256, 256, 64),), []),
        ((Size(192, 128, 64),), []),
        ((Size(192, 256, 64),), ["tensor-memory"]),
        ((Size(192, 168, 16), Precision(f16)), []),
        ((Size(192, 176, 16), Precision(f16)), ["tensor-memory"]),
        ((Size(64, 256, 64), Arrangement("col", "row", "col")), []),
    ],
    ids=str,
)
def test_each_clause_of_the_card(change: tuple[blasdx.operators.Operator, ...], gates: list[str]) -> None:
    report = check(CARD.with_(*change))
    assert missed(report, "utcmma") == gates
    assert (report.path == "utcmma") == (not gates)


def test_family_specific_is_refused_by_name() -> None:
    (miss,) = check(CARD.with_(SM(1000, family_specific))).misses("utcmma")
    assert "family_specific builds sm_100f" in miss.why
    assert miss.fixes == ("SM(1000, arch_specific)",)


def test_a_path_does_not_depend_on_what_fits() -> None:
    huge = CARD.with_(Size(256, 256, 256))
    assert 2 * 256 * 256 * 2 > 232448, "two tiles of 16-bit elements exceed shared memory"
    assert check(huge).path == "utcmma"


def test_a_tile_of_which_neither_side_fits_is_told_both() -> None:
    tall = check(CARD.with_(Size(2**32 - 1, 1000, 64)))
    (miss,) = (finding for finding in tall.misses("utcmma") if finding.gate == "tensor-memory")
    assert miss.fixes == ("Size(256, 256, 64)",)


# ---- operands


def test_operands_of_exactly_the_types_are_taken() -> None:
    a = np.zeros((512, 64), np.float16)
    half = CARD.with_(Precision(f16, f16, f32))
    assert check(half, a, a.T).path == "utcmma"
    assert check(half, OperandSpec((512, 64), None, "f16")).gates_of("utcmma")[-1].gate == "element-type"


def test_a_layout_identical_type_leaves_the_path() -> None:
    report = check(CARD, OperandSpec((512, 64), None, "uint16"), OperandSpec((64, 256), (2, 128), bf16))
    assert report.path == "supermma"
    (miss,) = report.misses("utcmma")
    assert (miss.gate, miss.got, miss.need) == ("element-type", "a of u16 and b of bf16", "a of bf16 and b of bf16")
    assert miss.hint == "a.astype('bfloat16')"
    assert report.fixed("utcmma") is None, "precision is not to be touched"
    assert report.fixed("utcmma", allow={"precision"}) is None, "nor has tcgen05 a u16"


def test_a_dtype_of_no_kind_of_ours_is_a_miss_and_not_an_error() -> None:
    (miss,) = check(CARD, np.zeros((4, 4), bool)).misses("utcmma")
    assert (miss.gate, miss.got) == ("element-type", "a of bool")


def test_the_fix_for_operands_is_their_precision() -> None:
    a = np.zeros((512, 64), np.float16)
    report = check(CARD, a, a.T)
    assert report.misses("utcmma")[0].fixes == ("Precision(f16, f16, f32)",)
    fixed = report.fixed("utcmma", allow={"precision"})
    assert fixed == CARD.with_(Precision(f16, f16, f32))
    assert check(fixed, a, a.T).path == "utcmma"


def test_float32_arrays_hold_tf32() -> None:
    a = np.zeros((512, 64), np.float32)
    assert check(CARD.with_(Precision(tf32, tf32, f32)), a, a.T).path == "utcmma"
    assert check(CARD.with_(Precision(f16, f16, f32)), a, a.T).path == "supermma"


# ---- clusters, emulation, and what there is no kernel for


def test_the_downgrade_of_a_pair_is_a_note_and_the_path_stays() -> None:
    report = check(CARD.with_(BlocksPerCluster(2, 1), Size(128, 40, 64)))
    assert report.path == "utcmma"
    (note,) = report.notes
    assert (note.gate, note.met) == ("cta-pair", False)
    assert "silently takes the 1-CTA atom" in note.why
    assert note.fixes == ("Size(128, 48, 64)", "Size(128, 32, 64)")
    assert note.hint.startswith(
        "Size(128, 48, 64) or Size(128, 32, 64); a CUTLASS 256 x N pair tile is Size(128, 40, 64)"
    )
    assert "silently" in str(report)


@pytest.mark.parametrize(
    ("change", "met"),
    [
        ((Size(128, 48, 64),), True),
        ((Size(128, 40, 64),), False),
        ((Precision(tf32, tf32, f32), Size(128, 16, 64)), True),
        ((Precision(s8, s8, s32), Size(128, 48, 64)), False),
        ((Precision(s8, s8, s32), Size(128, 64, 64)), True),
        ((Precision(e4m3, e4m3, f32), Size(128, 48, 64)), True),
        ((Precision(e4m3, e4m3, f32), Size(128, 48, 64), Arrangement("row", "row", "row")), False),
        ((Precision(e4m3, e4m3, f32), Size(128, 96, 64), Arrangement("row", "row", "row")), True),
    ],
    ids=str,
)
def test_the_shapes_that_a_pair_can_take(change: tuple[blasdx.operators.Operator, ...], met: bool) -> None:
    report = check(CARD.with_(BlocksPerCluster(4, 1), *change))
    assert [(note.gate, note.met) for note in report.notes] == [("cta-pair", met)]


def test_an_odd_cluster_asks_for_no_pair() -> None:
    assert check(CARD.with_(BlocksPerCluster(1, 2), Size(128, 40, 64))).notes == ()
    assert check(CARD.with_(BlocksPerCluster(3, 1), Size(128, 40, 64))).notes == ()


def test_a_cutlass_pair_tile_is_half_as_tall_here() -> None:
    (note,) = check(CARD.with_(BlocksPerCluster(2, 1), Size(256, 128, 64))).notes
    assert note.met
    assert "a CUTLASS 256 x N pair tile is Size(128, 128, 64) here" in note.hint


def test_what_has_no_kernel_is_unsupported_so_far_and_keeps_its_path() -> None:
    report = check(CARD.with_(RequiredMantissaBits(23)))
    assert report.path == "utcmma"
    assert not report.supported
    text = str(report)
    assert "unsupported so far: RequiredMantissaBits(23) has no kernel; it emulates f32 and f64 products" in text
    assert check(CARD).supported
    assert check(CARD.with_(Precision(f64), RequiredMantissaBits(52))).gaps[-1].endswith("has no kernel")
    assert "an f32 has 23 mantissa bits" in check(CARD.with_(Precision(f32), RequiredMantissaBits(52))).gaps[-1]


# ---- illegal in company


@pytest.mark.parametrize(
    ("change", "gate"),
    [
        ((Precision(s8, s8, f32),), "one-family"),
        ((Precision(f16, s8, f32),), "one-family"),
        ((Precision(s32),), "narrow-integers"),
        ((Precision(u8, u8, u32), Type("complex")), "real-integers"),
        ((Alignment(1, 2, 4),), "whole-elements"),
        ((Alignment(16, 16, 16), Precision(f64), Type("complex")), ""),
        ((Alignment(16, 8, 16), Precision(f64), Type("complex")), "whole-elements"),
        ((LeadingDimension(64, 63, 256),), "leading-dimension"),
        ((LeadingDimension(64, 64, 256),), ""),
        ((BlocksPerCluster(2, 1), SM(890)), "cluster"),
    ],
    ids=str,
)
def test_a_combination_that_cublasdx_refuses_is_unsupported(
    change: tuple[blasdx.operators.Operator, ...], gate: str
) -> None:
    report = check(CARD.with_(*change))
    rules = [finding.gate for finding in report.gates_of("any") if not finding.met]
    assert rules == ([gate] if gate else [])
    assert (report.path == "unsupported") == bool(gate)
    assert all(finding in report.misses("fma") for finding in report.gates_of("any") if not finding.met)


def test_a_half_built_sum_is_unsupported_for_what_it_lacks() -> None:
    report = check(Size(128, 256, 64))
    assert report.path == "unsupported"
    assert "sm-given" in missed(report, "fma")
    assert missed(check(CARD.without(Size)), "utcmma")[0] == "size-given"


def test_function_and_block_are_assumed_and_said_to_be() -> None:
    for absent in ((Function,), (Block,), (Function, Block)):
        report = check(CARD.without(*absent))
        assert report.path == "utcmma"
        assert [note.gate for note in report.notes] == ["implied-operators"]
    assert check(CARD).notes == ()


# ---- the other landings


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ((SM(900, arch_specific),), "wgmma"),
        ((SM(900),), "supermma"),
        ((SM(900, arch_specific), BlockDim(512), Size(128, 16, 16)), "wgmma"),
        ((SM(900, arch_specific), BlockDim(256), Size(192, 64, 64)), "supermma"),
        ((SM(900, arch_specific), Size(64, 512, 1024)), "wgmma"),
        ((SM(900, arch_specific), Precision(e4m3, e4m3, f16), Arrangement("row", "row", "row")), "supermma"),
        ((SM(900, arch_specific), Arrangement("col", "row", "col")), "wgmma"),
        ((SM(800),), "supermma"),
        ((SM(750),), "fma"),
        ((SM(750), Precision(f16)), "supermma"),
        ((SM(800), Precision(e4m3, e4m3, f32)), "fma"),
        ((SM(890), Precision(e4m3, e4m3, f32)), "supermma"),
        ((Precision(f32),), "fma"),
        ((Precision(f64), SM(1200)), "supermma"),
        ((Precision(f16, f16, f64),), "fma"),
        ((Precision(f64), Type("complex")), "supermma"),
    ],
    ids=str,
)
def test_where_the_rest_lands(change: tuple[blasdx.operators.Operator, ...], path: str) -> None:
    assert check(CARD.with_(*change)).path == path


def test_wide_integers_without_a_pipeline_run_on_the_ordinary_cores() -> None:
    assert check(CARD.with_(Precision(s32)).without(WithPipeline)).path == "fma"
