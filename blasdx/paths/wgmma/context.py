"""The wgmma templates' context."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from blasdx.epilogue import DEFAULT
from blasdx.layout.descriptors import Generation, Major
from blasdx.layout.registers import WarpgroupTile
from blasdx.layout.staging import StagingTile
from blasdx.paths.context import KernelContext, OperandContext, common_fields
from blasdx.paths.wgmma.planner import STAGING_BUFFERS
from blasdx.plan import PipelinePlan, Promotion, RegisterSplit

_SWIZZLE_ROW_BYTES = 128


class Context(KernelContext):
    """What only the wgmma templates see."""

    pipeline: ClassVar[tuple[str, ...]] = (
        "wgmma/storage",
        "pipeline/tma_load",
        "wgmma/multiply",
        "wgmma/tile",
        "pipeline/memory",
        "pipeline/split",
        "wgmma/epilogue",
        "pipeline/handle",
        "pipeline/problem",
    )

    accumulator: WarpgroupTile
    instruction: str
    register_lines: tuple[str, ...]
    register_operands: str
    tail: str
    staging: StagingTile
    staging_buffers: int
    swizzle_rows: int
    lines_per_row: int
    keeps_sums: bool
    promotion: Promotion | None
    releases_late: bool
    math_warps: int
    fixed_blocksize: bool
    register_split: RegisterSplit | None


def context(plan: PipelinePlan) -> Context:
    """The context of a wgmma plan."""
    accumulator, mma, staging = plan.registers, plan.mma, plan.staging
    assert staging is not None
    precision = plan.descriptor.precision
    return Context(
        **common_fields(plan),
        operands=(
            OperandContext.of(plan.a, "row", Generation.WGMMA, block_rows=mma.m),
            OperandContext.of(plan.b, "column", Generation.WGMMA, block_rows=mma.n),
        ),
        accumulator=accumulator,
        instruction=f"m64n{mma.n}k{mma.k}.{precision.c}.{precision.a}.{precision.b}",
        register_lines=_register_lines(accumulator.registers),
        register_operands=_register_operands(accumulator.registers),
        tail=_tail(plan),
        staging=staging,
        staging_buffers=STAGING_BUFFERS,
        swizzle_rows=staging.swizzle.rows,
        lines_per_row=_SWIZZLE_ROW_BYTES // staging.swizzle.span,
        keeps_sums=_keeps_sums(plan),
        promotion=plan.promotion,
        # One K block's MMAs run while the next one's are issued; with a single stage there is no next one.
        releases_late=plan.promotion is None and plan.depth > 1,
        math_warps=plan.role("math").warps,
        fixed_blocksize=plan.fixed_blocksize,
        loads_between_mmas=plan.fixed_blocksize,
        register_split=plan.register_split,
    )


_SHORTCUT_REGISTERS = 96
"""What a thread needs besides its accumulator for a way around the arithmetic of each run; with fewer it spills."""


def _keeps_sums(plan: PipelinePlan) -> bool:
    """Whether the kernel has a way around alpha and beta where they change nothing."""
    tile, split = plan.registers, plan.register_split
    held = tile.row_blocks * tile.column_blocks * tile.registers * (2 if plan.promotion else 1)
    return plan.epilogue == DEFAULT and split is not None and held + _SHORTCUT_REGISTERS <= split.math


def _register_lines(count: int) -> tuple[str, ...]:
    names = ", ".join(f"%{i}" for i in range(count))
    return tuple(textwrap.wrap("{" + names + "},", 100))


def _register_operands(count: int) -> str:
    return (
        (",\n" + " " * 8).join(textwrap.wrap(", ".join(f'"+r"(d[{i}])' for i in range(count)), 100)).replace(",,", ",")
    )


def _tail(plan: PipelinePlan) -> str:
    """What follows the descriptors: scale-d, the signs of A and B, and for 16-bit types their transposition."""
    if not plan.descriptor.precision.a.is_float:
        return "p"
    if plan.descriptor.precision.a.bits != 16:
        return "p, 1, 1"
    return f"p, 1, 1, {int(plan.a.major is Major.MN)}, {int(plan.b.major is Major.MN)}"
