"""Descriptors that land on tcgen05, for tests that are about something else."""

from __future__ import annotations

import blasdx as dx


def tile(
    size: tuple[int, int, int] = (128, 64, 64),
    element: str = "bf16",
    *,
    a: str = "row",
    b: str = "col",
    c: str = "row",
    sm: int = 1000,
) -> dx.Descriptor:
    return (
        dx.Size(*size)
        + dx.Precision(element, element, "f32")
        + dx.Type("real")
        + dx.Function("MM")
        + dx.Arrangement(a, b, c)
        + dx.Block()
        + dx.BlockDim(128)
        + dx.MaxAlignment()
        + dx.WithPipeline()
        + dx.EnableInputStreaming()
        + dx.SM(sm, "arch_specific")
    )
