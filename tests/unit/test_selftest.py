"""The self test passes on the emulator, and fails where the device is wrong."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from blasdx.devices.emulated import EmulatedDevice
from blasdx.pipeline import suggest_pipeline
from blasdx.selftest import Report, cases, run, selftest


@pytest.fixture(scope="module")
def report() -> Report:
    return selftest("emulator")


def test_every_case_passes_on_the_emulator(report: Report) -> None:
    assert report.passed, str(report)
    assert "emulator" in report.device


def test_the_report_is_one_json_value(report: Report) -> None:
    text = report.model_dump_json(indent=2)
    assert Report.model_validate_json(text) == report
    fields = json.loads(text)
    assert fields["environment"]["nvrtc in use"]
    assert {outcome["exact_errors"] for outcome in fields["outcomes"]} == {0}


def test_the_cases_cover_types_orders_and_block_shapes() -> None:
    found = [case.descriptor for case in cases(1000, 2)]
    assert {tile.precision.a.name for tile in found} == {"f16", "bf16"}
    assert {tile.m for tile in found} == {64, 128, 192, 256}
    assert len({(tile.arrangement.a, tile.arrangement.b) for tile in found}) == 4
    assert len({tile.arrangement.c for tile in found}) == 2


@pytest.mark.parametrize("sm", [900, 1000, 1030, 1100])
def test_every_case_has_a_kernel_on_every_architecture(sm: int) -> None:
    for case in cases(sm, 132):
        assert suggest_pipeline(case.descriptor).path == ("wgmma" if sm == 900 else "utcmma")


class OffByOneUlp(EmulatedDevice):
    def launch(self, kernel: Any, launch: Any, *, stream: object) -> None:
        super().launch(kernel, launch, stream=stream)
        last = launch.writes.array[-1:, -1:]
        last[...] = np.nextafter(last, np.float32(np.inf))


class Broken(EmulatedDevice):
    def launch(self, kernel: Any, launch: Any, *, stream: object) -> None:
        raise RuntimeError("no such luck")


def test_one_wrong_bit_fails_a_case() -> None:
    outcome = run(next(cases(1000, 2)), OffByOneUlp())
    assert outcome.exact_errors == 1
    assert not outcome.passed
    assert "FAIL" in str(outcome)


def test_whatever_is_raised_is_in_the_report() -> None:
    outcome = run(next(cases(1000, 2)), Broken())
    assert not outcome.passed
    assert outcome.error == "RuntimeError: no such luck"
