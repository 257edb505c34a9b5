"""The descriptors whose rendered kernels are kept as files and reviewed as code."""

from __future__ import annotations

from pathlib import Path

import blasdx as dx

FOLDER = Path(__file__).parent

_PIPELINE = (
    dx.Type(dx.real)
    + dx.Function(dx.MM)
    + dx.Block()
    + dx.BlockDim(128)
    + dx.MaxAlignment()
    + dx.WithPipeline()
    + dx.EnableInputStreaming()
)

CASES = {
    "bf16_128x256x64_tn": (
        dx.Size(128, 256, 64)
        + dx.Precision("bf16", "bf16", "f32")
        + dx.Arrangement("row", "col", "row")
        + dx.SM(1000, dx.arch_specific)
        + _PIPELINE
    ),
    "f16_64x64x128_nt_ccol": (
        dx.Size(64, 64, 128)
        + dx.Precision("f16", "f16", "f32")
        + dx.Arrangement("col", "row", "col")
        + dx.SM(1100, dx.arch_specific)
        + _PIPELINE
    ),
    "bf16_192x128x64_nn": (
        dx.Size(192, 128, 64)
        + dx.Precision("bf16", "bf16", "f32")
        + dx.Arrangement("col", "col", "row")
        + dx.SM(1030, dx.arch_specific)
        + _PIPELINE
    ),
    "f16_128x128x64_tn_narrow": (
        dx.Size(128, 128, 64)
        + dx.Precision("f16", "f16", "f16")
        + dx.Arrangement("row", "col", "row")
        + dx.SM(1000, dx.arch_specific)
        + _PIPELINE
    ),
    "bf16_128x256x64_tn_hopper": (
        dx.Size(128, 256, 64)
        + dx.Precision("bf16", "bf16", "f32")
        + dx.Arrangement("row", "col", "row")
        + dx.SM(900, dx.arch_specific)
        + _PIPELINE.with_(dx.BlockDim(256))
    ),
}
"""File name to descriptor."""


def rendered(name: str) -> str:
    """The kernel of a case as the library renders it now."""
    return dx.render(dx.suggest_pipeline(CASES[name])).text
