"""The tcgen05 pipeline's plan: three roles, four barrier rings, tensor memory staged (the Blackwell pipeline card)."""

from __future__ import annotations

from blasdx import arch
from blasdx.descriptor import Descriptor
from blasdx.elements import Element
from blasdx.errors import PlanError
from blasdx.layout.descriptors import instruction_descriptor, mma_kind
from blasdx.layout.operand import MMA_K_BYTES, OperandTile
from blasdx.layout.swizzle import Swizzle
from blasdx.layout.tensor_memory import AccumulatorTile
from blasdx.plan import Arrival, Barrier, MmaLoop, PipelinePlan, Role, operand_majors, regions

EPILOGUE_WARPS = 4
HANDLE_BYTES = 4
_SASS_MNEMONIC = {"f16": "UTCHMMA", "tf32": "UTCHMMA", "f8f6f4": "UTCQMMA", "i8": "UTCIMMA"}


def plan(
    descriptor: Descriptor, *, depth: int, scratch: int, output: Element, promote: bool, fixed_blocksize: bool
) -> PipelinePlan:
    """Lay out the pipeline of a descriptor that passes the utcmma gates, whether or not it fits in shared memory.

    ``promote`` changes nothing here: tcgen05 keeps 25 fraction bits of every sum.

    Raises
    ------
    PlanError
        When the output has no kernel yet.
    """
    if output is not descriptor.c_value_type:
        raise PlanError(f"no kernel yet that stores {output}: C has the accumulator's type", code="no_kernel")
    precision = descriptor.precision
    accumulator = AccumulatorTile(m=descriptor.m, n=descriptor.n)
    a_major, b_major = operand_majors(descriptor)
    a = OperandTile.of("A", precision.a, a_major, rows=descriptor.m, k=descriptor.k, block_rows=accumulator.mma_m)
    b = OperandTile.of("B", precision.b, b_major, rows=descriptor.n, k=descriptor.k)
    roles = _roles(fixed_blocksize)
    barriers = _barriers(depth, accumulator.stages)
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
        mma=_mma(descriptor, a, b, accumulator),
        fixed_blocksize=fixed_blocksize,
        roles=roles,
        barriers=barriers,
        regions=regions(
            ("a", a.swizzle.period, depth * a.bytes),
            ("b", b.swizzle.period, depth * b.bytes),
            *((barrier.name, 8, barrier.size) for barrier in barriers),
            ("tmem_handle", HANDLE_BYTES, HANDLE_BYTES),
        ),
        buffer_alignment=Swizzle.B128.period,
        smem_limit=arch.of(descriptor.sm.arch).smem_optin,
    )


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


def _barriers(depth: int, accumulator_stages: int) -> tuple[Barrier, ...]:
    issuers = {role.name: role.issuers for role in _roles(False)}
    return (
        Barrier(
            name="full",
            stages=depth,
            arrivals=(Arrival(role="tma_load", count=issuers["tma_load"], means="arrive.expect_tx, then the bytes"),),
            waiter="mma_issue",
            meaning="the stage holds one K block",
        ),
        Barrier(
            name="empty",
            stages=depth,
            arrivals=(Arrival(role="mma_issue", count=issuers["mma_issue"], means="tcgen05.commit"),),
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
            arrivals=(Arrival(role="epilogue", count=issuers["epilogue"], means="every thread, after its last load"),),
            waiter="mma_issue",
            meaning="the accumulator has been read",
        ),
    )
