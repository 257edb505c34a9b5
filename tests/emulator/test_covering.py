"""Gate <=> kernel on sm_100a, two choices at a time; tools/cover_utcmma.py covers three, on every chip."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import blasdx as dx

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from cover_utcmma import descriptor, fingerprint, is_current, name, verdict
from covering import covering

CHOICES: dict[str, tuple[Any, ...]] = {
    "precision": tuple(
        dx.Precision(*types)
        for types in (
            ("f16", "f16", "f16"),
            ("bf16", "bf16", "f32"),
            ("tf32", "tf32", "f32"),
            ("e4m3", "e5m2", "f32"),
            ("e5m2", "e5m2", "f16"),
            ("s8", "u8", "s32"),
        )
    ),
    "a": ("row", "col"),
    "b": ("col", "row"),
    "c": ("row", "col"),
    "output": (None, "bf16", "s8"),
    "m": (64, 128, 192, 256),
    "n": (8, 48, 128, 168, 256),
    "k_steps": (1, 3, 4),
    "sm": (1000,),
    "depth": (1, None),
    "scaling": (None, (2.0, -1.0)),
    "cluster": ((1, 1), (2, 1), (1, 2)),
    "fixed_blocksize": (False, True),
}
POINTS = covering(CHOICES, strength=2, seed=1)


def test_no_more_points_than_ci_has_time_for() -> None:
    assert 30 <= len(POINTS) <= 60
    assert sum(dx.check(descriptor(point)).path == "utcmma" for point in POINTS) >= 25


@pytest.mark.parametrize("point", POINTS, ids=[name(point).partition(" + Type")[0] for point in POINTS])
def test_gate_and_kernel(point: dict[str, Any]) -> None:
    assert verdict(point) in ("ok", "misses a gate", "does not fit")


def test_a_verdict_is_kept_for_the_same_kernel_alone() -> None:
    point = next(point for point in POINTS if fingerprint(point))
    missing = next(point for point in POINTS if dx.check(descriptor(point)).path != "utcmma")
    assert is_current({"verdict": "ok", "kernel": fingerprint(point)}, point)
    assert not is_current({"verdict": "ok", "kernel": "0123456789abcdef"}, point)
    assert not is_current({"verdict": "WRONG: 3 elements differ", "kernel": fingerprint(point)}, point)
    assert is_current({"verdict": "misses a gate", "kernel": None}, missing)
    assert not is_current({"verdict": "misses a gate", "kernel": None}, point)


def test_a_covering_array_covers() -> None:
    choices = {"x": (1, 2, 3), "y": "ab", "z": (True, False)}
    points = covering(choices, strength=2, seed=0)
    assert {(p["x"], p["y"]) for p in points} == {(x, y) for x in (1, 2, 3) for y in "ab"}
    assert {(p["y"], p["z"]) for p in points} == {(y, z) for y in "ab" for z in (True, False)}
    assert len(points) < 12
    assert points == covering(choices, strength=2, seed=0)
    assert len(covering(choices, strength=3, seed=0, minimum=20)) == 20
