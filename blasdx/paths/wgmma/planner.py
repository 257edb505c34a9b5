"""The wgmma pipeline's plan: warpgroups that multiply and store, one more that loads."""

from __future__ import annotations

from blasdx import arch
from blasdx.descriptor import Descriptor
from blasdx.elements import Element, e4m3, e5m2, f32
from blasdx.layout.operand import MMA_K_BYTES, OperandTile
from blasdx.layout.registers import ROWS, WarpgroupTile
from blasdx.layout.staging import StagingTile
from blasdx.layout.swizzle import Swizzle
from blasdx.operators import row_major
from blasdx.paths.wgmma.gates import WARPGROUPS
from blasdx.plan import Arrival, Barrier, MmaLoop, PipelinePlan, Promotion, RegisterSplit, Role, operand_majors, regions

STAGING_BUFFERS = 2
"""Chunks of C a warpgroup has in shared memory: one is filled while TMA still reads the other."""

WARPS = 4
"""Warps of a warpgroup."""

REGISTER_FILE = 65536
"""32-bit registers of an SM (CUDA C++ Programming Guide, technical specifications)."""

LOAD_REGISTERS = 40
"""What a loading thread keeps; with 24 the loop over many boxes spills."""

MAX_THREADS = 1024
"""Threads of a block (CUDA C++ Programming Guide, technical specifications)."""

MAX_CLAIM = 240
"""What a warpgroup claims at most: setmaxnreg takes multiples of 8 up to 256, of which ptxas keeps some back."""

PROMOTION_K = 128
"""K over which fp8 sums stay in the tensor core, which keeps 13 fraction bits of them on Hopper (arXiv 2511.10909)."""

_SASS_MNEMONIC = {"f16": "HGMMA", "bf16": "HGMMA", "tf32": "HGMMA", "e4m3": "QGMMA", "e5m2": "QGMMA"}


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
    """Lay out the pipeline of a descriptor that passes the wgmma gates, whether or not it fits in shared memory.

    ``staged`` changes nothing here: fragments always leave through shared memory.

    Raises
    ------
    PlanError
        When C cannot be stored as ``output``.
    """
    precision = descriptor.precision
    groups_m, groups_n = WARPGROUPS[descriptor.block_threads or 0]
    promotion = _promotion(descriptor) if promote and _loses_bits(descriptor) else None
    groups = groups_m * groups_n
    fixed_blocksize = fixed_blocksize or groups * 128 + 128 > MAX_THREADS
    sets = 2 if pingpong else 1
    split = None if fixed_blocksize else _registers(sets * groups)
    available = (split.math if split else _launched(groups)) - _working_registers(
        descriptor, groups, loads=fixed_blocksize
    )
    whole = WarpgroupTile(m=descriptor.m, n=descriptor.n, groups_m=groups_m, groups_n=groups_n, element=precision.c)
    passes = _passes(descriptor, whole, output, available=available, copies=2 if promotion else 1)
    m, n = descriptor.m // passes[0], descriptor.n // passes[1]
    accumulator = whole.model_copy(update={"m": m, "n": n})
    cluster = descriptor.blocks_per_cluster
    a_major, b_major = operand_majors(descriptor)
    a = OperandTile.of(
        "A",
        precision.a,
        a_major,
        rows=m,
        k=descriptor.k,
        block_rows=ROWS,
        sharers=cluster[1],
    )
    b = OperandTile.of(
        "B",
        precision.b,
        b_major,
        rows=n,
        k=descriptor.k,
        block_rows=accumulator.mma_n,
        sharers=cluster[0],
    )
    c_row_major = descriptor.arrangement.c is row_major
    staging = StagingTile.of(output, rows=ROWS, divides=accumulator.mma_n, row_major=c_row_major)
    roles = _roles(groups, sets, fixed_blocksize)
    barriers = _barriers(depth, roles, sets=sets, loaders=cluster[0] + cluster[1] - 1)
    return PipelinePlan(
        descriptor=descriptor,
        path="wgmma",
        target=arch.of(descriptor.sm.arch).target(descriptor.sm.modifier),
        depth=depth,
        scratch=scratch,
        a=a,
        b=b,
        accumulator=accumulator,
        output=output,
        staging=staging,
        register_split=split,
        fixed_blocksize=fixed_blocksize,
        sets=sets,
        promotion=promotion,
        cluster=cluster,
        passes=passes,
        mma=_mma(descriptor, accumulator, promotion),
        roles=roles,
        barriers=barriers,
        regions=regions(
            ("staging", Swizzle.B128.period, sets * groups * STAGING_BUFFERS * staging.bytes),
            ("a", a.swizzle.period, depth * a.bytes),
            ("b", b.swizzle.period, depth * b.bytes),
            *((barrier.name, 8, barrier.size) for barrier in barriers),
        ),
        buffer_alignment=Swizzle.B128.period,
        smem_limit=arch.of(descriptor.sm.arch).smem_oversized,
        smem_budget=arch.of(descriptor.sm.arch).smem_optin,
    )


def _registers(groups: int) -> RegisterSplit:
    """What the loading warpgroup keeps and what each multiplying one claims of the block's registers.

    Both are multiples of 8; together they are no more than the block was launched with, or the claim waits for ever.
    """
    launched = _launched(groups + 1)
    math = min(((groups + 1) * launched - LOAD_REGISTERS) // groups // 8 * 8, MAX_CLAIM)
    return RegisterSplit(launched=launched, load=LOAD_REGISTERS, math=math)


def _launched(groups: int) -> int:
    """Registers a thread of so many warpgroups."""
    return min(REGISTER_FILE // (128 * groups), 255) // 8 * 8


def _working_registers(descriptor: Descriptor, groups: int, *, loads: bool) -> int:
    """What loop and epilogue need besides the accumulator without spilling; found by compiling.

    More where the epilogue computes in doubles or stores element by element, where the warps load as well, and where
    the block's registers are shared out among many threads.
    """
    if groups > 4:
        return 56
    if groups > 2:
        return 72
    if not descriptor.c_value_type.is_float:
        return 80
    return (48 if descriptor.arrangement.c is row_major else 56) + (16 if loads else 0)


def _passes(
    descriptor: Descriptor, tile: WarpgroupTile, output: Element, *, available: int, copies: int
) -> tuple[int, int]:
    """Into how many parts along M and N a tile is cut.

    So many that ``copies`` accumulators fit in ``available`` registers, and that what the epilogue does for a chunk
    is not unrolled too often: where N has no wide divisor chunks are narrow, and ptxas takes seconds and spills.
    The fewest parts; of equals the squarest, which loads the least of A and B.
    """
    c_row_major = descriptor.arrangement.c is row_major

    def part(parts: tuple[int, int]) -> WarpgroupTile:
        return tile.model_copy(update={"m": tile.m // parts[0], "n": tile.n // parts[1]})

    def fits(cut: WarpgroupTile) -> bool:
        held = copies * cut.row_blocks * cut.column_blocks * cut.registers
        chunk = StagingTile.of(output, rows=ROWS, divides=cut.mma_n, row_major=c_row_major)
        few = cut.row_blocks * cut.columns // chunk.columns <= _MAX_CHUNKS
        return held <= available and (few or cut.columns == 8)

    blocks_m, blocks_n = tile.rows // ROWS, tile.columns // 8
    ways = [(m, n) for m in _divisors(blocks_m) for n in _divisors(blocks_n)]
    ways.sort(key=lambda parts: (parts[0] * parts[1], descriptor.m // parts[0] + descriptor.n // parts[1]))
    return next(parts for parts in ways if fits(part(parts)))


def _divisors(number: int) -> list[int]:
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


_MAX_CHUNKS = 24

_MAX_UNROLLED = 64
"""MMAs in a row beyond which ptxas runs out of registers for their descriptors; fewer where many threads share them."""


def _loses_bits(descriptor: Descriptor) -> bool:
    """Whether the tensor core keeps fewer bits of a sum than its type has: fp8 inputs with an f32 accumulator."""
    return descriptor.precision.a in (e4m3, e5m2) and descriptor.precision.c is f32


def _promotion(descriptor: Descriptor) -> Promotion:
    """Every `PROMOTION_K` of K: several K blocks together, one, or parts of one, as the tile has it."""
    step_k = MMA_K_BYTES * 8 // descriptor.precision.a.bits
    if descriptor.k <= PROMOTION_K:
        blocks = PROMOTION_K // descriptor.k
        return Promotion(k=blocks * descriptor.k, steps=descriptor.k // step_k, blocks=blocks)
    return Promotion(k=PROMOTION_K, steps=PROMOTION_K // step_k, blocks=1)


def _roles(groups: int, sets: int, fixed_blocksize: bool) -> tuple[Role, Role]:
    task = "A and B -> shared memory"
    turns = f", {sets} sets of warps in turns" if sets > 1 else ""
    groups *= sets
    return (
        Role(
            name="math",
            first_warp=0,
            warps=WARPS * groups,
            issuers=WARPS * groups,
            task=f"A x B -> registers -> shared memory -> C{turns}",
        ),
        Role(
            name="tma_load",
            first_warp=0 if fixed_blocksize else WARPS * groups,
            warps=1 if fixed_blocksize else WARPS,
            issuers=1,
            task=f"{task}, between MMAs" if fixed_blocksize else f"{task}; three warps only hand their registers back",
        ),
    )


def _barriers(depth: int, roles: tuple[Role, Role], *, sets: int, loaders: int) -> tuple[Barrier, ...]:
    """The rings. ``loaders`` CTAs load into each: as many of them wait for its warps, and it for theirs.

    A stage is read by one of ``sets`` sets of warps. A set may wait for a stage only when the one before has waited for
    all of its own: a wait knows phases by their parity alone.
    """
    math, load = roles
    warps = math.issuers // sets
    turn = Barrier(
        name="turn",
        stages=sets,
        arrivals=(Arrival(role=math.name, count=warps, means="one lane a warp of the other set, its MMAs issued"),),
        waiter="math",
        meaning="the set may multiply",
    )
    from_all = "" if loaders == 1 else f", in {loaders} CTAs"
    return (
        Barrier(
            name="full",
            stages=depth,
            arrivals=(Arrival(role=load.name, count=load.issuers, means="arrive.expect_tx, then the bytes"),),
            waiter="math",
            meaning="the stage holds one K block",
        ),
        Barrier(
            name="empty",
            stages=depth,
            arrivals=(
                Arrival(
                    role=math.name,
                    count=warps * loaders,
                    means=f"one lane a warp{' of a set' if sets > 1 else ''}, after wait_group{from_all}",
                ),
            ),
            waiter="tma_load",
            meaning="the MMAs have read the stage",
        ),
        *((turn,) if sets > 1 else ()),
    )


def _mma(descriptor: Descriptor, accumulator: WarpgroupTile, promotion: Promotion | None) -> MmaLoop:
    element = descriptor.precision.a
    mma_k = MMA_K_BYTES * 8 // element.bits
    steps, blocks = descriptor.k // mma_k, accumulator.row_blocks * accumulator.column_blocks
    # In a rolled loop ptxas would wait for every MMA before a promotion.
    sharing = min(max(accumulator.groups // 2, 1), 2 if promotion else 4)
    return MmaLoop(
        kind=element.name,
        m=ROWS,
        n=accumulator.mma_n,
        k=mma_k,
        blocks=blocks,
        steps=steps,
        unrolled=steps if steps * blocks <= _MAX_UNROLLED // sharing else 1,
        mnemonic=_SASS_MNEMONIC.get(element.name, "IGMMA"),
    )
