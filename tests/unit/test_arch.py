"""What each architecture has."""

from __future__ import annotations

import pytest

from blasdx import arch


def test_targets_carry_the_modifier() -> None:
    assert arch.of(1000).target("arch_specific") == "sm_100a"
    assert arch.of(1030).target("family_specific") == "sm_103f"
    assert arch.of(1210).target() == "sm_121"
    with pytest.raises(ValueError, match="SM 890 has no arch_specific target"):
        arch.of(890).target("arch_specific")


def test_blackwell_data_center_parts_have_tensor_memory_and_the_opt_in_limit_of_the_card() -> None:
    parts = [a for a in arch.ARCHS if a.tcgen05]
    assert [a.number for a in parts] == [1000, 1030, 1070, 1100]
    assert {a.smem_optin for a in parts} == {232448}
    assert [a.number for a in parts if a.tcgen05_integer] == [1000, 1100]
    assert [a.number for a in parts if a.smem_oversized > a.smem_optin] == [1070]
    assert arch.of(1070).oldest_nvrtc == (13, 4)


def test_an_unknown_number_is_refused_with_what_was_meant() -> None:
    with pytest.raises(ValueError, match=r"there is no SM 1010.*renamed 1010.*to 1100"):
        arch.of(1010)
    with pytest.raises(ValueError, match=r"there is no SM 100.*sm_100 is 1000"):
        arch.of(100)
