"""Every observed landing of cuBLASDx 0.8.0 against check()."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pydantic
import pytest

from blasdx.descriptor import Descriptor
from blasdx.operators import (
    MM,
    SM,
    Alignment,
    Arrangement,
    Block,
    BlockDim,
    EnableInputStreaming,
    Function,
    Precision,
    Size,
    Type,
    WithPipeline,
)
from blasdx.paths import check

TRAITS = "the traits that were read tell mma.sync and fma apart no more than the threads do"
DIFFERENCES = {
    ("f32", "f32", "f32"): f"no mma.sync multiplies f32, so that it is fma here; {TRAITS}",
    ("f16", "f32", "f32"): f"no mma.sync multiplies f32, so that it is fma here; {TRAITS}",
    ("e4m3", "e4m3", "f32", 800): f"mma.sync takes fp8 from SM 890 on, so that it is fma here; {TRAITS}",
}
"""Rows observed as supermma that land on fma here, by precision (and SM), each with its reason."""


def descriptor(row: dict[str, Any]) -> Descriptor:
    whole = (
        Size(row["m"], row["n"], row["k"])
        + Precision(*row["precision"])
        + Type(row["type"])
        + Function(MM)
        + Arrangement(*row["arrangement"])
        + Block()
        + BlockDim(row["block_dim"])
        + Alignment(*row["alignment"])
        + SM(row["sm"], row["sm_modifier"])
    )
    if row["with_pipeline"]:
        whole = whole + WithPipeline()
    return whole + EnableInputStreaming() if row["input_streaming"] else whole


def landing(row: dict[str, Any]) -> str:
    try:
        path: str = check(descriptor(row)).path
    except pydantic.ValidationError:
        return "rejected"
    return "rejected" if path == "unsupported" else path


def excused(row: dict[str, Any], path: str) -> bool:
    types = tuple(row["precision"])
    listed = types in DIFFERENCES or (*types, row["sm"]) in DIFFERENCES
    return listed and (row["observed_path"], path) == ("supermma", "fma")


@pytest.mark.parametrize(("name", "rows"), [("path_grid.jsonl", 161), ("path_grid_hopper.jsonl", 227)])
def test_every_observed_row(reference_data: Path, name: str, rows: int) -> None:
    grid = [json.loads(line) for line in (reference_data / name).read_text().splitlines() if line.strip()]
    assert len(grid) >= rows
    landings = [(row, landing(row)) for row in grid]
    wrong = [(path, row) for row, path in landings if path != row["observed_path"] and not excused(row, path)]
    assert not wrong, "\n".join(f"{path} instead of {row['observed_path']}: {row}" for path, row in wrong)
    assert len(Counter(path for _, path in landings)) >= 4, "the grid has every kind of landing"


def test_no_listed_difference_is_idle(reference_data: Path) -> None:
    seen = set()
    for name in ("path_grid.jsonl", "path_grid_hopper.jsonl"):
        for row in map(json.loads, (reference_data / name).read_text().splitlines()):
            if excused(row, landing(row)):
                types = tuple(row["precision"])
                seen.add(types if types in DIFFERENCES else (*types, row["sm"]))
    assert seen == set(DIFFERENCES)
