"""`suggest_pipeline`: the landing path's planner, the choice of depth, and the refusals."""

from __future__ import annotations

from functools import partial
from numbers import Integral
from typing import Any, NoReturn, Protocol

from blasdx.descriptor import Descriptor
from blasdx.elements import Element
from blasdx.epilogue import DEFAULT, Epilogue
from blasdx.errors import PlanError
from blasdx.operators import Operator, row_major
from blasdx.paths import OperandSpec, PathName, PathReport, check
from blasdx.paths.utcmma import planner as utcmma
from blasdx.paths.utcmma.limits import pair_step
from blasdx.paths.wgmma import planner as wgmma
from blasdx.plan import PipelinePlan
from blasdx.schedule import MAX_PARTS, Raster

MAX_DEPTH = 16
"""The most stages in shared memory a pipeline takes (cuBLASDx)."""


class Planner(Protocol):
    """What a path offers: the plan of a descriptor at one depth, whether or not it fits in shared memory."""

    def __call__(
        self,
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
        """Lay the pipeline out; raise `PlanError` where there is no kernel."""


class DepthPlanner(Protocol):
    """A planner that only wants to know how deep, and whether C may leave through shared memory if it need not."""

    def __call__(self, *, depth: int, staged: bool) -> PipelinePlan:
        """The plan at this depth."""


_PLANNERS: dict[PathName, Planner] = {"utcmma": utcmma.plan, "wgmma": wgmma.plan}


def suggest_pipeline(
    descriptor: Descriptor | Operator,
    a: Any = None,
    b: Any = None,
    *,
    depth: int | None = None,
    scratch: int = 0,
    output: object = None,
    epilogue: Epilogue | str = DEFAULT,
    promote: bool = True,
    fixed_blocksize: bool = False,
    pingpong: bool = False,
    require_pair: bool = False,
    split_k: int = 1,
    raster: Raster | None = None,
    strict: bool = False,
) -> PipelinePlan:
    """Plan the kernel of a descriptor.

    Parameters
    ----------
    descriptor
        A complete descriptor that lands on a path with a kernel.
    a, b
        The operands (arrays, or `OperandSpec`), (M, K) and (K, N), when they are known. Their element types are
        part of the landing path; with them, an inner dimension that differs is always refused.
    depth
        Stages in shared memory, 1 to 16; the deepest that fits when left out. Where results of 16 or 8 bits can leave
        through shared memory, at most 32 KiB go to that if the depth stays or four stages remain.
    scratch
        Bytes of shared memory the kernel itself wants behind the pipeline's buffer.
    output
        Element type of the result in memory where it is not the accumulator's: f32, f16, bf16, e4m3, e5m2 and s8 for a
        floating-point accumulator, s32, s8, u8, f32, f16 and bf16 for an integer one.
    epilogue
        What becomes of the sums before they are stored; ``alpha * acc + beta * c`` when left out.
    promote
        Whether fp8 partial sums leave the tensor core every 128 of K where it keeps fewer bits than f32 (wgmma).
    fixed_blocksize
        Launch exactly BlockDim threads: loads, and on utcmma the MMAs, are issued by warps that do other work as well.
        The slower configuration; on wgmma the only one of BlockDim(1024).
    pingpong
        Two sets of BlockDim(128) threads take turns, each with tiles of its own: one stores while the other multiplies
        (wgmma). Epilogues then cost next to nothing, where a GPU's SMs have several tiles each.
    require_pair
        Refuse a descriptor whose CTAs do not multiply in pairs, which cuBLASDx does not say (utcmma).
    split_k
        Into how many parts K may be cut at most, 1 to 64, where a problem has fewer tiles than the GPU has SMs. The
        parts meet in memory that the call allocates; they are added in a fixed order, so that results are the same
        each time, on GPUs with equally many SMs.
    raster
        In which order tiles are visited; bands of 16 along M when left out.
    strict
        Refuse as cuBLASDx does what the default clips: problems that are no multiple of the tile, fewer K blocks
        than stages, operands that break their declared alignment, grids that are no whole clusters. Needs ``a`` and
        ``b``.

    Raises
    ------
    GateError
        When the descriptor lands on a path without a kernel; it lists what keeps it from tcgen05.
    EpilogueError
        When the epilogue cannot be read, or the accumulator not be stored as ``output``.
    PlanError
        When no pipeline fits, with the bytes; or for a refusal, with cuBLASDx's name for it in ``code``.
    """
    _check_arguments(depth, scratch, strict, a, b)
    _check_schedule(split_k, raster)
    report = check(descriptor, a, b)
    complete = report.descriptor
    if not report.supported:
        _refuse(report)
    if a is not None and b is not None:
        problem = _Problem(complete, OperandSpec.of(a), OperandSpec.of(b))
        problem.require_one_k()
        problem.require_arrangement()
        if strict:
            problem.require_whole_tiles()
            problem.require_alignment()
    element = complete.c_value_type if output is None else Element.of(output)
    finish = epilogue if isinstance(epilogue, Epilogue) else Epilogue(epilogue)
    finish.require_output(complete.precision.c, element)
    planner = partial(
        _PLANNERS[report.path],
        complete,
        scratch=int(scratch),
        output=element,
        promote=promote,
        fixed_blocksize=fixed_blocksize,
        pingpong=pingpong,
    )
    if pingpong:
        _require_turns(report, split_k, fixed_blocksize)
    plan = _deepest(planner) if depth is None else _at(planner, int(depth))
    if require_pair and not plan.pair:
        _refuse_single(report)
    if strict:
        problem.require_stages(plan.depth, chosen=depth is not None)
    more = {"epilogue": finish, "split_k": int(split_k), "raster": raster or Raster()}
    return plan.model_copy(update=more)


def _refuse(report: PathReport) -> NoReturn:
    """Raise for a descriptor that no kernel is there for: list the missed gates of the path its GPU is bought for."""
    best: PathName = "wgmma" if "SM" not in report.descriptor.missing and report.descriptor.sm.arch == 900 else "utcmma"
    check(report.descriptor, report.a, report.b, require=best)
    raise PlanError(f"no kernel yet for {report.descriptor!r}: {'; '.join(report.gaps)}", code="no_kernel")


def _refuse_single(report: PathReport) -> NoReturn:
    """Raise for a descriptor whose CTAs multiply one by one."""
    complete = report.descriptor
    if report.path != "utcmma":
        why = f"it lands on {report.path}, and only tcgen05 has pairs"
    elif complete.blocks_per_cluster[0] % 2:
        why = "pairs are asked for by BlocksPerCluster with an even number along M"
    else:
        why = f"N = {complete.n} is no multiple of {pair_step(complete)}"
    raise PlanError(f"no pair of CTAs multiplies together for {complete!r}: {why}", code="cta_pair")


def _require_turns(report: PathReport, split_k: int, fixed_blocksize: bool) -> None:
    """Raise where two sets of threads cannot take turns."""
    threads = report.descriptor.block_threads
    if report.path != "wgmma":
        why = f"{report.path} overlaps them with the next product already, by accumulators in tensor memory"
    elif threads != 128:
        why = f"two sets of {threads} threads do not have the registers; take BlockDim(128) and half the tile"
    elif fixed_blocksize:
        why = "fixed_blocksize launches exactly BlockDim threads, which are one set"
    elif split_k > 1:
        why = "split_k is for problems with fewer tiles than SMs, where a set would have no turn"
    else:
        return
    raise PlanError(f"pingpong = True overlaps epilogues on wgmma with BlockDim(128) only: {why}", code="pingpong")


def _check_arguments(depth: object, scratch: object, strict: bool, a: object, b: object) -> None:
    if depth is not None and (not _is_int(depth) or not 1 <= depth <= MAX_DEPTH):  # type: ignore[operator]
        raise PlanError(f"depth = {depth!r}: a pipeline has 1 to {MAX_DEPTH} stages in shared memory", code="depth")
    if not _is_int(scratch) or scratch < 0:  # type: ignore[operator]
        raise PlanError(f"scratch = {scratch!r}: the kernel's own shared memory is a number of bytes, zero or more")
    if (a is None) != (b is None):
        raise PlanError("operands are given together: pass both a and b, or neither")
    if strict and a is None:
        raise PlanError("strict=True compares the operands with the tile: pass a and b")


def _check_schedule(split_k: object, raster: object) -> None:
    if not _is_int(split_k) or not 1 <= split_k <= MAX_PARTS:  # type: ignore[operator]
        raise PlanError(f"split_k = {split_k!r}: K is cut into 1 to {MAX_PARTS} parts at most", code="split_k")
    if raster is not None and not isinstance(raster, Raster):
        raise PlanError(f"raster = {raster!r}: tiles are visited as a dx.Raster says", code="raster")


def _is_int(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


# ---- depth ---------------------------------------------------------------------------------------------------------


STAGES_ENOUGH = 4
"""Stages in shared memory with which a pipeline gives others up for C to leave through shared memory."""


def _deepest(planner: DepthPlanner) -> PipelinePlan:
    """The deepest plan; with C staged in shared memory where that costs no stage or leaves enough of them."""

    def fitting(*, staged: bool) -> PipelinePlan | None:
        plans = (planner(depth=depth, staged=staged) for depth in range(MAX_DEPTH, 0, -1))
        return next((plan for plan in plans if plan.smem_total <= plan.smem_budget), None)

    direct, staged = fitting(staged=False), fitting(staged=True)
    if direct is None:
        return _at(planner, 1)
    return staged if staged and staged.depth >= min(direct.depth, STAGES_ENOUGH) else direct


def _at(planner: DepthPlanner, depth: int) -> PipelinePlan:
    """The plan of this depth; with C staged in shared memory where there is room left."""
    plan, staged = (planner(depth=depth, staged=staged) for staged in (False, True))
    if staged.smem_total <= (plan.smem_limit if plan.oversized else plan.smem_budget):
        return staged
    if plan.smem_total > plan.smem_limit:
        stages = f"{depth} stage{'s' * (depth > 1)} x {plan.stage_bytes:,} B"
        rest = plan.smem_total - depth * plan.stage_bytes
        raise PlanError(
            f"no pipeline fits: {stages} + {rest:,} B of barriers, handle and scratch = {plan.smem_total:,} B of "
            f"shared memory, {plan.smem_total - plan.smem_limit:,} B more than the {plan.smem_limit:,} B a block may "
            f"have on SM {plan.descriptor.sm.arch}; {_advice(planner, depth, plan.scratch)}",
            code="shared_memory",
            needed=plan.smem_total,
            available=plan.smem_limit,
        )
    return plan


def _advice(planner: DepthPlanner, depth: int, scratch: int) -> str:
    for shallower in range(depth - 1, 0, -1):
        if (plan := planner(depth=shallower, staged=False)).smem_total <= plan.smem_limit:
            return f"depth={shallower} fits"
    return "choose a smaller tile" + (" or less scratch" if scratch else "")


# ---- operands ------------------------------------------------------------------------------------------------------


class _Problem:
    """A problem beside its tile, and cuBLASDx's refusals of it."""

    def __init__(self, descriptor: Descriptor, a: OperandSpec, b: OperandSpec) -> None:
        for name, operand in (("a", a), ("b", b)):
            if len(operand.shape) < 2:
                raise PlanError(
                    f"{name} has the shape {operand.shape}: an operand has two dimensions, or batches of two"
                )
        self.descriptor = descriptor
        self.operands = {"a": a, "b": b}
        (self.m, self.k), (self.b_k, self.n) = a.shape[-2:], b.shape[-2:]

    def require_one_k(self) -> None:
        if self.k != self.b_k:
            raise PlanError(
                f"A is {self.m} x {self.k} and B is {self.b_k} x {self.n}: K differs, {self.k} against {self.b_k}",
                code="incompatible_k_dimensions",
            )

    def require_arrangement(self) -> None:
        """Raise for an operand whose elements are not adjacent along what the descriptor says they are."""
        arrangement = self.descriptor.arrangement
        for (name, operand), order in zip(self.operands.items(), (arrangement.a, arrangement.b), strict=True):
            inner = -1 if order is row_major else -2
            item = operand.dtype.itemsize if isinstance(operand.dtype, Element) else 1
            if operand.shape[inner] > 1 and operand.strides[inner] != item:
                raise PlanError(
                    f"{name} has the strides {operand.strides} B, but the descriptor arranges it {order}: "
                    f"the step along its {'columns' if inner == -1 else 'rows'} has to be {item} B",
                    code="arrangement",
                )

    def require_whole_tiles(self) -> None:
        tile = self.descriptor
        extents = (("M", self.m, tile.m), ("N", self.n, tile.n), ("K", self.k, tile.k))
        ragged = [
            f"{name} = {extent} = {extent // size} x {size} + {extent % size}"
            for name, extent, size in extents
            if extent % size
        ]
        if ragged:
            raise PlanError(
                f"the problem is no multiple of the tile: {'; '.join(ragged)}; strict=False clips the tails",
                code="tile_divisibility",
            )
        clusters = (
            ("M", self.m // tile.m, tile.blocks_per_cluster[0]),
            ("N", self.n // tile.n, tile.blocks_per_cluster[1]),
        )
        broken = [f"{tiles} tiles along {name} in clusters of {size}" for name, tiles, size in clusters if tiles % size]
        if broken:
            raise PlanError(
                f"the grid is no whole number of clusters: {'; '.join(broken)}", code="cluster_grid_divisibility"
            )

    def require_alignment(self) -> None:
        alignment = {"a": self.descriptor.alignment.a, "b": self.descriptor.alignment.b}
        for name, operand in self.operands.items():
            for what, value in _aligned_quantities(operand):
                if value % alignment[name]:
                    raise PlanError(
                        f"{name}: {what} {value:,} B is no multiple of the {alignment[name]} B that Alignment declares",
                        code="alignment_unfulfilled",
                    )

    def require_stages(self, depth: int, *, chosen: bool) -> None:
        blocks = self.k // self.descriptor.k
        if blocks < depth:
            how = "depth" if chosen else "the deepest that fits"
            raise PlanError(
                f"K = {self.k} is {blocks} block{'s' * (blocks != 1)} of {self.descriptor.k}, fewer than the "
                f"{depth} stages ({how}); pass depth={max(blocks, 1)} or less",
                code="insufficient_stages",
                needed=depth,
                available=blocks,
            )


def _aligned_quantities(operand: OperandSpec) -> list[tuple[str, int]]:
    """What an alignment promises something about: the address, where known, and the strides between lines, bytes."""
    address = [] if operand.address is None else [("its address", operand.address)]
    between_lines = sorted(operand.strides)[1:]
    return [*address, *(("a stride of", stride) for stride in between_lines)]
