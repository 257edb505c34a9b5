"""Rendered kernels are code under review: a change shows as a diff of the files here."""

from __future__ import annotations

import pytest

from tests.golden.cases import CASES, FOLDER, rendered


@pytest.mark.parametrize("name", CASES)
def test_rendered_kernel_is_the_reviewed_one(name):
    reviewed = (FOLDER / f"{name}.cu").read_text(encoding="utf-8")
    assert rendered(name) == reviewed, "after reviewing the difference: python tools/update_golden.py"


def test_no_file_is_left_behind():
    assert {path.stem for path in FOLDER.glob("*.cu")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_carries_no_preprocessor_no_template_and_no_unused_function(name):
    text = rendered(name)
    assert not [line for line in text.splitlines() if line.lstrip().startswith("#") and "#pragma unroll" not in line]
    assert "// {%" not in text
    assert "{{" not in text
    definitions = [line for line in text.splitlines() if line.startswith("__device__") and "::" not in line]
    for definition in definitions:
        function = definition.split("(")[0].split()[-1]
        uses = text.count(f"{function}(") + text.count(f"{function}<")
        assert uses > 1, f"{function} is never called"
    assert max(map(len, text.splitlines())) <= 160
