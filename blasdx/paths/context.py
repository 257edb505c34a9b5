"""What a template may name: numbers that only a kernel's text needs; everything else stays in the plan."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from blasdx.arguments import Fields
from blasdx.epilogue.context import EpilogueContext
from blasdx.layout.descriptors import Generation, Major
from blasdx.layout.operand import OperandTile
from blasdx.operators import row_major
from blasdx.plan import Barrier, MmaLoop, PipelinePlan, Region, Role
from blasdx.schedule import Raster


class OperandContext(BaseModel):
    """One operand as the templates see it; ``block_bytes`` is 0 where every MMA takes all its rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tile: OperandTile
    rows: str
    matrix_descriptor: str
    block_bytes: int

    @classmethod
    def of(cls, tile: OperandTile, rows: str, generation: Generation, *, block_rows: int = 0) -> OperandContext:
        """The operand whose MMAs take ``block_rows`` rows each, or all of them."""
        return cls(
            tile=tile,
            rows=rows,
            matrix_descriptor=f"0x{tile.matrix_descriptor(generation):016x}",
            block_bytes=tile.block_bytes(block_rows),
        )

    @property
    def k_major(self) -> bool:
        """Whether the operand is contiguous along K."""
        return self.tile.major is Major.K


class KernelContext(BaseModel):
    """What every path's templates see.

    ``pipeline`` and ``kernel`` are the files of the device library and of the default kernel in reading order;
    ``library`` asks for all of the former, not only for what the default kernel calls; ``empty_sums`` for zeros where K
    is zero, which no kernel is launched for where C is only scaled.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pipeline: ClassVar[tuple[str, ...]]
    kernel: ClassVar[tuple[str, ...]] = ("pipeline/epilogue", "kernels/gemm")

    library: bool = False
    empty_sums: bool
    loads_between_mmas: bool = False
    descriptor: tuple[str, ...]
    fingerprint: str
    target: str
    entry: str
    depth: int
    tile_m: int
    tile_n: int
    tile_k: int
    raster: Raster
    split: bool
    split_counters: int
    threads: int
    sets: int
    smem_total: int
    problem_fields: tuple[Fields, ...]
    problem_bytes: int
    epilogue: EpilogueContext
    output: str
    output_bits: int
    accumulator_element: str
    bulk_stores: bool
    fragment_size: int
    buffer_size: int
    buffer_alignment: int
    c_row_major: bool
    roles: tuple[Role, ...]
    barriers: tuple[Barrier, ...]
    regions: tuple[Region, ...]
    operands: tuple[OperandContext, OperandContext]
    mma: MmaLoop
    cluster: tuple[int, int]
    clustered: bool
    pair: bool
    path: str


def common_fields(plan: PipelinePlan) -> dict[str, object]:
    """The fields of `KernelContext` that follow from any plan; a path adds its operands and its own."""
    d = plan.descriptor
    return {
        "descriptor": _wrapped(repr(d)),
        "fingerprint": d.fingerprint,
        "target": plan.target,
        "entry": entry_name(plan),
        "depth": plan.depth,
        "tile_m": plan.tile_m,
        "tile_n": plan.tile_n,
        "tile_k": d.k,
        "raster": plan.raster,
        "split": plan.split_k > 1,
        "split_counters": plan.split_counters,
        "threads": plan.block_dim,
        "sets": plan.sets,
        "smem_total": plan.smem_total,
        "empty_sums": plan.empty_sums,
        "problem_fields": plan.problem.lines,
        "problem_bytes": plan.problem.size,
        "epilogue": EpilogueContext.of(
            plan.epilogue,
            d.precision.c,
            plan.output,
            c_row_major=d.arrangement.c is row_major,
            holds=plan.path == "wgmma",
        ),
        "output": plan.output.name,
        "output_bits": plan.output.bits,
        "accumulator_element": d.precision.c.name,
        "bulk_stores": plan.bulk_stores,
        "fragment_size": plan.accumulator.elements_per_thread,
        "buffer_size": plan.regions[-1].offset + plan.regions[-1].size,
        "buffer_alignment": plan.buffer_alignment,
        "c_row_major": d.arrangement.c is row_major,
        "roles": plan.roles,
        "barriers": plan.barriers,
        "regions": plan.regions,
        "mma": plan.mma,
        "cluster": plan.cluster,
        "clustered": plan.cluster_size > 1,
        "pair": plan.pair,
        "path": plan.path,
    }


def entry_name(plan: PipelinePlan) -> str:
    """A readable C name for the kernel of a plan, such as ``blasdx_gemm_bf16_bf16_f32_128x256x64_tn_d4_sm_100a``.

    The two letters are the BLAS transposition of A and B (t: contiguous along K for A, n for B), then ``ccol`` where C
    is column-major and the type of C where it is not the accumulator's.
    """
    d = plan.descriptor
    types = "_".join(element.name for element in (d.precision.a, d.precision.b, d.precision.c))
    layout = ("t" if plan.a.major is Major.K else "n") + ("n" if plan.b.major is Major.K else "t")
    cluster = "" if plan.cluster_size == 1 else f"_c{plan.cluster[0]}x{plan.cluster[1]}"
    c = ("" if d.arrangement.c is row_major else "_ccol") + (
        "" if plan.output == d.precision.c else f"_{plan.output.name}"
    )
    turns = "_pingpong" if plan.sets > 1 else ""
    return f"blasdx_gemm_{types}_{d.m}x{d.n}x{d.k}_{layout}{c}{cluster}{turns}_d{plan.depth}_{plan.target}"


def _wrapped(descriptor: str) -> tuple[str, ...]:
    """A sum of operators on lines of at most 112 characters, none broken inside an operator."""
    unbroken = descriptor.replace(", ", ",\0").replace(" + ", " +\0").replace("+\0", "+ ")
    return tuple(line.replace("\0", " ") for line in textwrap.wrap(unbroken, 112))
