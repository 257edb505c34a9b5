"""Descriptors typed on a command line are read, never evaluated."""

from __future__ import annotations

from pathlib import Path

import pydantic
import pytest

from blasdx.cli.text import descriptor_from_text
from blasdx.descriptor import Descriptor
from blasdx.errors import DescriptorError, DuplicateOperatorError
from blasdx.operators import (
    SM,
    Arrangement,
    Block,
    BlockDim,
    Function,
    MaxAlignment,
    Precision,
    Size,
    Type,
    WithPipeline,
)

TILE = (
    Size(128, 256, 64)
    + Precision("bf16", "bf16", "f32")
    + Type("real")
    + Function("MM")
    + Arrangement("row", "col", "row")
    + Block()
    + BlockDim(128)
    + MaxAlignment()
    + WithPipeline()
    + SM(1000, "arch_specific")
)


def test_repr_and_json_are_read_back() -> None:
    assert descriptor_from_text(repr(TILE)) == TILE
    assert descriptor_from_text(TILE.model_dump_json()) == TILE
    assert descriptor_from_text(repr(Descriptor(Size(64, 8, 16)))) == Descriptor(Size(64, 8, 16))


def test_the_forms_people_type() -> None:
    text = """
        dx.Size(128, n=256, k=64) + (dx.Precision(bf16, dx.bf16, 'f32') + dx.Type(real)) + Function(MM)
        + Arrangement(row_major, 'col', "row") + Block() + BlockDim(128) + MaxAlignment() + WithPipeline()
        + SM(1000, arch_specific)
    """
    assert descriptor_from_text(text) == TILE
    assert descriptor_from_text("Size(64, 8, 16)") == Descriptor(Size(64, 8, 16))


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "tile.json").write_text(TILE.model_dump_json())
    (tmp_path / "tile.txt").write_text(repr(TILE) + "\n")
    assert descriptor_from_text(str(tmp_path / "tile.json")) == TILE
    assert descriptor_from_text(str(tmp_path / "tile.txt")) == TILE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Size(64, 8, 16",
        "Size",
        "Size(64, 8, 16) - Block()",
        "Size(64, 8, 16) + 1",
        "Size(*[64, 8, 16])",
        "Size(**{'m': 64})",
        "(" * 5000 + "Block()" + ")" * 5000,
        "Size(64, 8, 2 ** 99999999999)",
        "Size(64, 8, open('/etc/passwd'))",
        "__import__('os').system('true')",
        "[Size(64, 8, 16)]",
        "Trsm(64, 8)",
        "lambda: 0",
        "missing.json",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(DescriptorError):
        descriptor_from_text(text)


def test_operators_refuse_for_themselves() -> None:
    with pytest.raises(pydantic.ValidationError, match="Size"):
        descriptor_from_text("Size(-1, 8, 16)")
    with pytest.raises(DuplicateOperatorError):
        descriptor_from_text("Block() + Block()")
