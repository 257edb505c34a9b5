"""The tcgen05 pipeline's plan: three roles, four barrier rings, tensor memory staged (the Blackwell pipeline card)."""

from __future__ import annotations

from blasdx import arch
from blasdx.descriptor import Descriptor
from blasdx.elements import Element
from blasdx.layout.descriptors import instruction_descriptor, mma_kind
from blasdx.layout.operand import MMA_K_BYTES, WIDEST_FIRST, OperandTile
from blasdx.layout.staging import StagingTile
from blasdx.layout.swizzle import Swizzle
from blasdx.layout.tensor_memory import AccumulatorTile
from blasdx.operators import row_major
from blasdx.paths.utcmma.limits import pair_step
from blasdx.plan import Arrival, Barrier, MmaLoop, PipelinePlan, Role, operand_majors, regions

EPILOGUE_WARPS = 4
HANDLE_BYTES = 4

STAGED_COLUMNS = 128
"""Columns that a warp stages at a time at most: 32 KiB of 16-bit elements for four warps."""

_SASS_MNEMONIC = {"f16": "UTCHMMA", "tf32": "UTCHMMA", "f8f6f4": "UTCQMMA", "i8": "UTCIMMA"}


def plan(
    descriptor: Descriptor,
    *,
    depth: int,
    scratch: int,
    output: Element,
    promote: bool,
    fixed_blocksize: bool,
    pingpong: bool,
    staged: bool,
) -> PipelinePlan:
    """Lay out the pipeline of a descriptor that passes the utcmma gates, whether or not it fits in shared memory.

    ``promote`` changes nothing here: tcgen05 keeps 25 fraction bits of every sum. With ``staged`` C leaves through
    shared memory where that helps.
    """
    precision = descriptor.precision
    cluster = descriptor.blocks_per_cluster
    pair = takes_pair(descriptor)
    accumulator = AccumulatorTile(m=descriptor.m, n=descriptor.n, pair=pair)
    a_major, b_major = operand_majors(descriptor)
    a = OperandTile.of(
        "A",
        precision.a,
        a_major,
        rows=descriptor.m,
        k=descriptor.k,
        block_rows=accumulator.block_rows,
        sharers=cluster[1],
    )
    b = OperandTile.of(
        "B",
        precision.b,
        b_major,
        rows=descriptor.n // 2 if pair else descriptor.n,
        k=descriptor.k,
        sharers=cluster[0] // 2 if pair else cluster[0],
    )
    staging = _staging(descriptor, accumulator, output) if staged else None
    roles = _roles(fixed_blocksize)
    barriers = _barriers(depth, accumulator.stages, roles, cluster, pair=pair)
    return PipelinePlan(
        descriptor=descriptor,
        path="utcmma",
        target=arch.of(descriptor.sm.arch).target(descriptor.sm.modifier),
        depth=depth,
        scratch=scratch,
        a=a,
        b=b,
        accumulator=accumulator,
        output=output,
        staging=staging,
        mma=_mma(descriptor, a, b, accumulator),
        fixed_blocksize=fixed_blocksize,
        cluster=cluster,
        pair=pair,
        roles=roles,
        barriers=barriers,
        regions=regions(
            *([("staging", Swizzle.B128.period, EPILOGUE_WARPS * staging.bytes)] if staging else []),
            ("a", a.swizzle.period, depth * a.bytes),
            ("b", b.swizzle.period, depth * b.bytes),
            *((barrier.name, 8, barrier.size) for barrier in barriers),
            ("tmem_handle", HANDLE_BYTES, HANDLE_BYTES),
        ),
        buffer_alignment=Swizzle.B128.period,
        smem_limit=arch.of(descriptor.sm.arch).smem_oversized,
        smem_budget=arch.of(descriptor.sm.arch).smem_optin,
    )


def takes_pair(descriptor: Descriptor) -> bool:
    """Whether pairs of CTAs multiply together: an even cluster asks for it, and the shape has to allow it."""
    return descriptor.blocks_per_cluster[0] % 2 == 0 and descriptor.n % pair_step(descriptor) == 0


def _staging(descriptor: Descriptor, accumulator: AccumulatorTile, output: Element) -> StagingTile | None:
    """What a warp stages at a time of the rows it reads, where that takes fewer instructions than direct stores.

    It does for narrow elements of a row-major C whose rows are whole swizzled spans: as many of them as go into
    `STAGED_COLUMNS` and, a whole number of times, into a block. Threads store 32-bit elements in 8 vectors of 16 bytes
    a chunk anyway, and neighbours in a column-major C next to each other.
    """
    line = accumulator.block_columns * output.itemsize
    swizzle = next(mode for mode in WIDEST_FIRST if line % mode.span == 0 or mode is Swizzle.NONE)
    if descriptor.arrangement.c is not row_major or output.bits > 16 or swizzle is Swizzle.NONE:
        return None
    span = swizzle.span // output.itemsize
    columns = max(
        columns for columns in range(span, STAGED_COLUMNS + 1, span) if accumulator.block_columns % columns == 0
    )
    return StagingTile(element=output, rows=accumulator.warp_rows, columns=columns, row_major=True, swizzle=swizzle)


def _mma(descriptor: Descriptor, a: OperandTile, b: OperandTile, accumulator: AccumulatorTile) -> MmaLoop:
    precision = descriptor.precision
    kind = mma_kind(precision.a)
    mma_k = MMA_K_BYTES * 8 // precision.a.bits
    return MmaLoop(
        kind=kind,
        m=accumulator.mma_m,
        n=descriptor.n,
        k=mma_k,
        blocks=accumulator.blocks,
        steps=descriptor.k // mma_k,
        unrolled=descriptor.k // mma_k,
        instruction_descriptor=instruction_descriptor(
            precision.a,
            precision.b,
            precision.c,
            m=accumulator.mma_m,
            n=descriptor.n,
            a_major=a.major,
            b_major=b.major,
        ),
        mnemonic=_SASS_MNEMONIC[kind],
    )


def _roles(fixed_blocksize: bool) -> tuple[Role, Role, Role]:
    """Warps of their own for the issuing roles; with a fixed block size, threads of the first two epilogue warps."""
    issuing = 0 if fixed_blocksize else EPILOGUE_WARPS
    return (
        Role(
            name="epilogue",
            first_warp=0,
            warps=EPILOGUE_WARPS,
            issuers=EPILOGUE_WARPS * 32,
            task="tensor memory -> registers -> C; warp w reaches lanes 32 w .. 32 w + 31",
        ),
        Role(
            name="mma_issue",
            first_warp=issuing,
            warps=1,
            issuers=1,
            task="A x B -> tensor memory; owns tensor memory",
        ),
        Role(name="tma_load", first_warp=issuing + 1, warps=1, issuers=1, task="A and B -> shared memory"),
    )


def _barriers(
    depth: int, accumulator_stages: int, roles: tuple[Role, ...], cluster: tuple[int, int], *, pair: bool
) -> tuple[Barrier, ...]:
    """The rings.

    A stage is free when everyone that this CTA loads for has read it: the CTAs, or the pairs, of its row and of its
    column. A pair's leader waits for the data and for the epilogues of both.
    """
    issuers = {role.name: role.issuers for role in roles}
    readers = cluster[1] + cluster[0] // (2 if pair else 1) - 1
    of_readers = "" if readers == 1 else f" of {readers} {'pairs' if pair else 'CTAs'}"
    of_both, of_leader = (", in both CTAs", ", for both CTAs") if pair else ("", "")
    return (
        Barrier(
            name="full",
            stages=depth,
            arrivals=(
                Arrival(
                    role="tma_load", count=issuers["tma_load"], means=f"arrive.expect_tx, then the bytes{of_leader}"
                ),
            ),
            waiter="mma_issue",
            meaning="the stage holds one K block",
        ),
        Barrier(
            name="empty",
            stages=depth,
            arrivals=(
                Arrival(role="mma_issue", count=readers * issuers["mma_issue"], means=f"tcgen05.commit{of_readers}"),
            ),
            waiter="tma_load",
            meaning="the MMAs have read the stage",
        ),
        Barrier(
            name="acc_full",
            stages=accumulator_stages,
            arrivals=(Arrival(role="mma_issue", count=issuers["mma_issue"], means="tcgen05.commit"),),
            waiter="epilogue",
            meaning="the accumulator is complete",
        ),
        Barrier(
            name="acc_empty",
            stages=accumulator_stages,
            arrivals=(
                Arrival(
                    role="epilogue",
                    count=issuers["epilogue"] * (2 if pair else 1),
                    means=f"every thread{of_both}, after its last load",
                ),
            ),
            waiter="mma_issue",
            meaning="the accumulator has been read",
        ),
    )
