"""What check() and its fixes promise for every descriptor."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from blasdx.descriptor import Descriptor
from blasdx.errors import GateError
from blasdx.operators import SM, BlockDim, Precision, Size, arch_specific
from blasdx.paths import CATALOGUE, PATHS, OperandSpec, PathReport, check
from blasdx.paths.rules import GUARDED, Query
from blasdx.paths.utcmma.limits import CARD, PRECISIONS
from tests.property.strategies import descriptors, extents, near_misses
from tests.unit.pasting import pasted

SUBSETS = [frozenset(subset) for size in range(4) for subset in combinations(GUARDED, size)]
TYPES = ("f16", "bf16", "float32", "tf32", "e4m3", "s8", "u8", "uint16", "bool", "complex64")
specs = st.none() | st.sampled_from(TYPES).map(lambda name: OperandSpec((512, 256), None, name))


@settings(max_examples=100)
@given(descriptors, specs, specs)
def test_check_never_raises_and_lists_every_gate(descriptor: Descriptor, a: Any, b: Any) -> None:
    report = check(descriptor, a, b)
    query = Query(descriptor, a, b)
    for path, gates in CATALOGUE.items():
        listed = [(finding.gate, finding.met) for finding in report.gates_of(path)]
        assert listed == [
            (gate.id, gate.judge(query).met) for gate in gates if gate.applies(query) and not gate.advisory
        ]
    for finding in (*report.gates, *report.notes):
        assert finding.got
        assert finding.need
        assert finding.why
        assert finding.met or finding.hint, "a miss says what could be done"


@settings(max_examples=60)
@given(descriptors)
def test_the_path_is_the_first_without_a_miss(descriptor: Descriptor) -> None:
    report = check(descriptor)
    free = [path for path in PATHS if not report.misses(path)]
    assert report.path == free[0]
    assert (report.path == "unsupported") == any(not finding.met for finding in report.gates_of("any"))
    assert str(report).startswith(report.path)
    assert PathReport.model_validate_json(report.model_dump_json()) == report


@settings(max_examples=60)
@given(descriptors, st.sampled_from(PATHS[:-1]))
def test_a_required_path_is_reached_or_every_miss_is_listed(descriptor: Descriptor, required: Any) -> None:
    report = check(descriptor)
    if PATHS.index(report.path) <= PATHS.index(required):
        assert check(descriptor, require=required) == report
        return
    with pytest.raises(GateError) as caught:
        check(descriptor, require=required)
    assert caught.value.misses == report.misses(required)
    for miss in caught.value.misses:
        assert f"\n  {miss.gate} " in str(caught.value)


def may_be_met(report: PathReport, path: str, allow: frozenset[str]) -> bool:
    """Whether every missed gate can be met by what may change."""
    return all(not miss.guarded or allow & set(miss.guarded) for miss in report.misses(path))


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(descriptors, st.sampled_from(["utcmma", "wgmma"]), st.sampled_from(SUBSETS))
def test_fixed_lands_there_or_a_gate_may_not_be_touched(
    descriptor: Descriptor, path: str, allow: frozenset[Any]
) -> None:
    report = check(descriptor)
    fixed = report.fixed(path, allow=allow)
    assert (fixed is not None) == may_be_met(report, path, allow)
    if fixed is None:
        return
    assert check(fixed).path == path
    assert "precision" in allow or fixed.precision == descriptor.precision
    assert "type" in allow or fixed.type == descriptor.type
    assert "sm" in allow or fixed.get(SM) == descriptor.get(SM)
    assert fixed.arrangement.c == descriptor.arrangement.c
    kept = {type(operator) for operator in descriptor.operators}
    assert kept <= {type(operator) for operator in fixed.operators}
    assert check(fixed).fixed(path) == fixed, "nothing is left to fix"


@settings(max_examples=25)
@given(near_misses().filter(lambda descriptor: descriptor.get(Size) is not None), st.sampled_from(["f16", "bf16"]))
def test_fixed_with_operands_takes_their_types(descriptor: Descriptor, name: str) -> None:
    a = OperandSpec((512, 512), None, name)
    fixed = check(descriptor, a, a).fixed("utcmma", allow=set(GUARDED))
    assert fixed is not None
    assert fixed.precision in (Precision(name, name, "f32"), Precision("f16"))
    assert check(fixed, a, a).path == "utcmma"


@settings(max_examples=60)
@given(
    st.integers(1, 330),
    st.integers(1, 330),
    st.integers(1, 330),
    st.sampled_from(PRECISIONS),
    st.sampled_from(["row", "col"]),
)
def test_no_legal_tile_is_nearer_than_the_fix(m: int, n: int, k: int, precision: Precision, order: str) -> None:
    from blasdx.operators import Arrangement

    asked = CARD.with_(Size(m, n, k), precision, Arrangement(order, order, "row"))
    fixed = check(asked).fixed("utcmma")
    assert fixed is not None

    def far(new: Size) -> Fraction:
        pairs = ((m, new.m), (n, new.n), (k, new.k))
        total = Fraction(1)
        for one, other in pairs:
            total *= Fraction(max(one, other), min(one, other))
        return total

    nearest = far(fixed.size)
    # Every legal tile is on this grid; those nearer than the fix must all miss a gate.
    for new_m in range(64, 257, 64):
        for new_n in range(8, 257, 8):
            new_k = fixed.k
            if far(Size(new_m, new_n, new_k)) < nearest:
                assert check(fixed.with_(Size(new_m, new_n, new_k))).path != "utcmma"
    for new_k in range(8, 257, 8):
        if far(Size(fixed.m, fixed.n, new_k)) < nearest:
            assert check(fixed.with_(Size(fixed.m, fixed.n, new_k))).path != "utcmma"


@settings(max_examples=60)
@given(descriptors)
def test_every_printed_fix_meets_its_gate(descriptor: Descriptor) -> None:
    report = check(descriptor)
    catalogue = {(path, gate.id): gate for path, gates in CATALOGUE.items() for gate in gates}
    for finding in (*report.gates, *report.notes):
        for fix in finding.fixes:
            changed = Query(descriptor.with_(pasted(fix)))
            assert catalogue[finding.path, finding.gate].judge(changed).met, (finding.gate, fix)


@given(extents, extents, extents)
def test_the_card_in_integers(m: int, n: int, k: int) -> None:
    """The three extent rules of the card for bf16, written once more from its words."""
    blocks = m // 128 if m % 128 == 0 else m // 64
    legal = m % 64 == 0 and m <= 256 and n % 8 == 0 and n <= 256 and k % 16 == 0 and k <= 256 and blocks * n <= 512
    assert (check(CARD.with_(Size(m, n, k))).path == "utcmma") == legal


@given(extents, extents, extents, st.sampled_from([128, 256, 512, 1024]))
def test_the_hopper_rules_in_integers(m: int, n: int, k: int, threads: int) -> None:
    """The three extent rules observed on SM 900 for bf16."""
    rows, columns = {128: (64, 8), 256: (128, 8), 512: (128, 16), 1024: (256, 16)}[threads]
    descriptor = CARD.with_(SM(900, arch_specific), BlockDim(threads), Size(m, n, k))
    legal = m % rows == 0 and n % columns == 0 and k % 16 == 0
    assert (check(descriptor).path == "wgmma") == legal


@settings(max_examples=60)
@given(descriptors)
def test_legality_comes_before_every_path(descriptor: Descriptor) -> None:
    report = check(descriptor)
    assume(report.path == "unsupported")
    broken = {finding for finding in report.gates_of("any") if not finding.met}
    for path in PATHS[:-1]:
        assert broken <= set(report.misses(path))
