"""The tcgen05 templates' context."""

from __future__ import annotations

from typing import ClassVar

from blasdx.layout.descriptors import Generation
from blasdx.layout.staging import StagingTile
from blasdx.layout.tensor_memory import COLUMNS, AccumulatorTile
from blasdx.paths.context import KernelContext, OperandContext, common_fields
from blasdx.plan import PipelinePlan


class Context(KernelContext):
    """What only the tcgen05 templates see."""

    pipeline: ClassVar[tuple[str, ...]] = (
        "utcmma/storage",
        "pipeline/tma_load",
        "utcmma/mma_issue",
        "utcmma/tile",
        "pipeline/memory",
        "pipeline/split",
        "utcmma/epilogue",
        "pipeline/handle",
        "pipeline/problem",
    )

    instruction: str
    instruction_text: str
    group: str
    tmem_columns: int
    accumulator: AccumulatorTile
    vector_words: int
    fixed_blocksize: bool
    epilogue_warps: int
    load: str
    staging: StagingTile | None
    shared_suffix: str
    swizzle_rows: int
    wide: int
    wide_load: str


def context(plan: PipelinePlan) -> Context:
    """The context of a tcgen05 plan."""
    precision, mma, accumulator, staging = plan.descriptor.precision, plan.mma, plan.tensor_memory, plan.staging
    # Integers are converted by way of doubles, which take two registers each.
    widths = (64, 32, 16) if precision.c.is_float else (32, 16)
    wide = next(width for width in widths if staging.span % width == 0) if staging else 0
    wide_run = wide * accumulator.run // accumulator.chunk
    return Context(
        **common_fields(plan),
        operands=(
            OperandContext.of(plan.a, "row", Generation.TCGEN05, block_rows=accumulator.block_rows),
            OperandContext.of(plan.b, "column", Generation.TCGEN05),
        ),
        instruction=f"0x{mma.instruction_descriptor:08x}",
        instruction_text=f"{precision.a} x {precision.b} -> {precision.c}, {mma.m} x {mma.n}, "
        f"A {plan.a.major}, B {plan.b.major}",
        group="_pair" if plan.pair else "",
        tmem_columns=COLUMNS,
        accumulator=accumulator,
        fixed_blocksize=plan.fixed_blocksize,
        vector_words=min(16, accumulator.run * plan.output.itemsize) // 4,
        epilogue_warps=plan.role("epilogue").warps,
        load=f"tmem_load_{accumulator.load_shape}_x{accumulator.run}",
        staging=staging,
        shared_suffix={8: "_u8", 16: "_u16", 32: ""}[plan.output.bits],
        swizzle_rows=staging.swizzle.rows if staging else 0,
        wide=wide,
        wide_load=f"tmem_load_{accumulator.load_shape}_x{wide_run}",
    )
