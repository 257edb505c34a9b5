"""Descriptors that land on a path with a kernel, for tests and tools that are about something else."""

from __future__ import annotations

import blasdx as dx


def tile(
    size: tuple[int, int, int] = (128, 64, 64),
    types: str | tuple[str, str, str] | dx.Precision = "bf16",
    *,
    a: str = "row",
    b: str = "col",
    c: str = "row",
    threads: int = 128,
    cluster: tuple[int, int] = (1, 1),
    sm: int = 1000,
) -> dx.Descriptor:
    """All of the pipeline's operators; one type stands for A and B, summed up in f32."""
    if isinstance(types, str):
        types = types, types, "f32"
    descriptor: dx.Descriptor = (
        dx.Size(*size)
        + (types if isinstance(types, dx.Precision) else dx.Precision(*types))
        + dx.Type("real")
        + dx.Function("MM")
        + dx.Arrangement(a, b, c)
        + dx.Block()
        + dx.BlockDim(threads)
        + dx.MaxAlignment()
        + dx.WithPipeline()
        + dx.EnableInputStreaming()
        + dx.SM(sm, "arch_specific")
    )
    return descriptor if cluster == (1, 1) else descriptor + dx.BlocksPerCluster(*cluster)
