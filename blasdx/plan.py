"""PipelinePlan: everything a kernel needs to know, as one printable value.

A plan holds every integer that the rendered kernel names, and the reasons for those that are easily wrong: a
barrier's arrival count is the sum of its arrivals by role, a region's offset the sum of the regions before it.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from blasdx.arguments import ProblemStruct
from blasdx.descriptor import Descriptor
from blasdx.elements import Element
from blasdx.epilogue import DEFAULT, Epilogue
from blasdx.layout.descriptors import Major
from blasdx.layout.operand import OperandTile
from blasdx.layout.registers import WarpgroupTile
from blasdx.layout.staging import StagingTile
from blasdx.layout.storage import round_up, shared_storage
from blasdx.layout.tensor_memory import AccumulatorTile
from blasdx.operators import row_major
from blasdx.schedule import Parts, Raster, Workspace, parts_of

WARP = 32
BARRIER_BYTES = 8
SCRATCH_ALIGNMENT = 16


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Role(_Value):
    """A group of consecutive warps with one task; ``issuers`` of its threads do the work (one elected, or all).

    With a fixed block size roles overlap: one thread of a warp that has another role as well.
    """

    name: str
    first_warp: int
    warps: int
    issuers: int
    task: str

    @property
    def threads(self) -> int:
        """Threads of the role."""
        return self.warps * WARP


class Arrival(_Value):
    """``count`` arrivals of ``role`` on a barrier in each phase, made by ``means``."""

    role: str
    count: int
    means: str


class Barrier(_Value):
    """A ring of mbarriers, one a stage: who arrives in each phase and who waits for it."""

    name: str
    stages: int
    arrivals: tuple[Arrival, ...]
    waiter: str
    meaning: str

    @property
    def count(self) -> int:
        """Arrivals that complete a phase: what the mbarrier is initialised with."""
        return sum(arrival.count for arrival in self.arrivals)

    @property
    def size(self) -> int:
        """Bytes in shared memory."""
        return self.stages * BARRIER_BYTES


class Region(_Value):
    """``size`` bytes of shared memory at ``offset`` from the start of the buffer."""

    name: str
    offset: int
    size: int


class MmaLoop(_Value):
    """The MMAs of one K block: ``blocks`` along M and N for each of ``steps`` along K, each ``m`` x ``n`` x ``k``.

    The machine code holds those of ``unrolled`` steps and runs through them as often as it takes.
    """

    kind: str
    m: int
    n: int
    k: int
    blocks: int
    steps: int
    unrolled: int
    mnemonic: str
    instruction_descriptor: int | None = None

    @property
    def count(self) -> int:
        """Instructions in the machine code."""
        return self.blocks * self.unrolled


class Promotion(_Value):
    """Partial sums over ``k`` of K leave the tensor core.

    They do so every ``steps`` MMA steps of a K block, and where a block is shorter every ``blocks`` blocks.
    """

    k: int
    steps: int
    blocks: int


class RegisterSplit(_Value):
    """Registers a thread: what the block is launched with, what the loading warps keep, what the others claim."""

    launched: int
    load: int
    math: int


class PipelinePlan(_Value):
    """How one descriptor becomes one kernel.

    ``depth`` counts stages in shared memory, ``accumulator.stages`` accumulators in tensor memory; sizes are bytes. A
    block has at most ``smem_limit``, of which an automatic depth takes no more than ``smem_budget``. Each of ``sets``
    sets of BlockDim threads multiplies and stores tiles of its own; they take turns.
    """

    descriptor: Descriptor
    path: str
    target: str
    depth: int
    scratch: int
    a: OperandTile
    b: OperandTile
    accumulator: AccumulatorTile | WarpgroupTile
    output: Element
    staging: StagingTile | None = None
    register_split: RegisterSplit | None = None
    promotion: Promotion | None = None
    fixed_blocksize: bool = False
    sets: int = 1
    cluster: tuple[int, int] = (1, 1)
    pair: bool = False
    raster: Raster = Raster()
    split_k: int = 1
    passes: tuple[int, int] = (1, 1)
    mma: MmaLoop
    roles: tuple[Role, ...]
    barriers: tuple[Barrier, ...]
    regions: tuple[Region, ...]
    buffer_alignment: int
    smem_limit: int
    smem_budget: int
    epilogue: Epilogue = DEFAULT

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage: one A tile and one B tile."""
        return self.a.bytes + self.b.bytes

    @property
    def buffer_size(self) -> int:
        """Bytes of shared memory the pipeline itself uses: stages, barriers and the tensor-memory handle.

        Not the staging buffers of C, which are the kernel's own.
        """
        return self._regions_end - (self.region("staging").size if self.staging else 0)

    @property
    def _regions_end(self) -> int:
        last = self.regions[-1]
        return last.offset + last.size

    @property
    def smem_total(self) -> int:
        """Dynamic shared memory of a launch in bytes: the storage calculator's sum of buffer and scratch."""
        return smem_total(self.buffer_alignment, self._regions_end, self.scratch)

    @property
    def empty_sums(self) -> bool:
        """Whether the kernel runs where nothing is multiplied; elsewhere scaling C is left to the arrays' library."""
        return self.epilogue != DEFAULT or self.output.bits == 8

    @property
    def problem(self) -> ProblemStruct:
        """The struct that the kernel takes by value."""
        c_row_major = self.descriptor.arrangement.c is row_major
        return ProblemStruct.of(self.epilogue, self.output, c_row_major=c_row_major, split=self.split_k > 1)

    @property
    def oversized(self) -> bool:
        """Whether a launch needs the device's mode for oversized shared memory (SM 1070).

        The kernel's attribute is then ``CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE``, with the mode that allows oversized
        shared memory, and not ``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`` (cuBLASDx 0.8 Blackwell card).
        """
        return self.smem_total > self.smem_budget

    @property
    def block_dim(self) -> int:
        """Threads of the launched block, which are more than the descriptor's BlockDim unless its size is fixed."""
        return WARP * max(role.first_warp + role.warps for role in self.roles)

    @property
    def tensor_memory(self) -> AccumulatorTile:
        """The accumulator of a path that keeps it in tensor memory.

        Raises
        ------
        TypeError
            On a path that keeps it in registers.
        """
        if isinstance(self.accumulator, AccumulatorTile):
            return self.accumulator
        raise TypeError(f"a {self.path} plan keeps its accumulator in registers")

    @property
    def registers(self) -> WarpgroupTile:
        """The accumulator of a path that keeps it in registers.

        Raises
        ------
        TypeError
            On a path that keeps it in tensor memory.
        """
        if isinstance(self.accumulator, WarpgroupTile):
            return self.accumulator
        raise TypeError(f"a {self.path} plan keeps its accumulator in tensor memory")

    @property
    def accumulator_stages(self) -> int:
        """Accumulators there are room for at once: one in registers, more in tensor memory."""
        return self.accumulator.stages

    @property
    def bulk_stores(self) -> bool:
        """Whether the kernel stores C with TMA where C's address, strides and rows allow it."""
        return self.staging is not None and self.staging.is_bulk_storable

    @property
    def tile_m(self) -> int:
        """Rows a CTA computes at a time: the descriptor's, or a part of them where they take several passes."""
        return self.descriptor.m // self.passes[0]

    @property
    def tile_n(self) -> int:
        """Columns a CTA computes at a time."""
        return self.descriptor.n // self.passes[1]

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1]

    def tiles(self, m: int, n: int, batches: int = 1) -> int:
        """Output tiles of ``batches`` m x n problems, ragged ones and those that fill up a cluster included."""
        rows = -(-m // (self.tile_m * self.cluster[0]))
        columns = -(-n // (self.tile_n * self.cluster[1]))
        return rows * columns * batches * self.cluster_size

    def grid(self, m: int, n: int, sms: int, batches: int = 1, parts: int = 1) -> int:
        """CTAs of a launch: one an SM in whole clusters, fewer where there are fewer tiles."""
        whole = max(sms // self.cluster_size, 1) * self.cluster_size
        return min(self.tiles(m, n, batches) * parts, whole)

    def parts(self, m: int, n: int, k: int, sms: int, batches: int = 1) -> Parts:
        """The parts that K is cut into: more than one only where `split_k` allows it and SMs would idle otherwise."""
        tiles = self.tiles(m, n, batches)
        return parts_of(-(-k // self.descriptor.k), tiles, most=self.split_k, processors=sms)

    def workspace(self, m: int, n: int, parts: int, batches: int = 1) -> Workspace:
        """The memory in which the parts of a launch meet."""
        tiles = self.tiles(m, n, batches)
        return Workspace.of(tiles, parts, counters=self.split_counters, elements=self.tile_m * self.tile_n)

    @property
    def split_counters(self) -> int:
        """Counters of one tile, one for threads that store together: a warp on utcmma, a warpgroup on wgmma."""
        return self.role("epilogue").warps if self.path == "utcmma" else self.registers.groups

    def role(self, name: str) -> Role:
        """The role of this name."""
        return next(role for role in self.roles if role.name == name)

    def barrier(self, name: str) -> Barrier:
        """The barrier ring of this name."""
        return next(barrier for barrier in self.barriers if barrier.name == name)

    def region(self, name: str) -> Region:
        """The shared-memory region of this name."""
        return next(region for region in self.regions if region.name == name)

    def __str__(self) -> str:
        d, mma, acc = self.descriptor, self.mma, self.accumulator
        threads = _threads_text(self)
        staging = self.region("staging").size if self.staging else 0
        overhead = f"{self.buffer_size - self.depth * self.stage_bytes:,} B of barriers"
        overhead += " and handle" if self.path == "utcmma" else ""
        overhead += f" + {staging:,} B of staging for C" if staging else ""
        scratch = f" + {self.scratch:,} B of scratch" if self.scratch else ""
        rows = {
            "threads": f"{self.block_dim} = {threads}",
            "shared memory": f"{self.smem_total:,} B of {self.smem_limit:,} B = "
            f"{self.depth} x {self.stage_bytes:,} B a stage + {overhead}{scratch}"
            + ("; oversized, by CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE" if self.oversized else ""),
            acc.place: acc.text,
            **({"passes": _passes_text(self)} if self.passes != (1, 1) else {}),
            **(
                {"cluster": f"{self.cluster[0]} x {self.cluster[1]} tiles" + _pair_text(self)}
                if self.cluster_size > 1
                else {}
            ),
            "A": _tile_text(self.a),
            "B": _tile_text(self.b),
            **({"C": _staging_text(self.staging)} if self.staging else {}),
            "MMAs": f"{mma.blocks * mma.steps} a K block = {mma.blocks} x {mma.steps} of {mma.m} x {mma.n} x {mma.k}, "
            f"kind::{mma.kind}",
        }
        if self.epilogue != DEFAULT:
            rows["epilogue"] = str(self.epilogue)
        if self.sets > 1:
            rows["turns"] = (
                f"{self.sets} sets of math warps, each with tiles of its own: one stores, the other multiplies"
            )
        if self.split_k > 1:
            rows["split K"] = f"at most {self.split_k} parts, where there are fewer tiles than SMs"
        if self.raster != Raster():
            rows["raster"] = str(self.raster)
        if self.promotion:
            rows["promotion"] = f"fp8 partial sums leave the tensor core every {self.promotion.k} of K"
        for barrier in self.barriers:
            by = ", ".join(f"{arrival.role}: {arrival.means}" for arrival in barrier.arrivals)
            rows[barrier.name] = f"{barrier.stages} x {barrier.count} arrival{_s(barrier.count)}, {by}"
        title = f"{self.path} plan for {self.target}: {d.m} x {d.n} x {d.k} tile, depth {self.depth}"
        return "\n".join([title, *(f"  {name:<14} {text}" for name, text in rows.items())])


def _pair_text(plan: PipelinePlan) -> str:
    if plan.pair:
        return ", pairs of CTAs multiply together"
    if plan.path == "utcmma" and plan.cluster[0] % 2 == 0:
        return f"; no pair multiplies together, which takes another N than {plan.tile_n}"
    return ""


def _threads_text(plan: PipelinePlan) -> str:
    if not plan.fixed_blocksize:
        return " + ".join(f"{role.threads} {role.name}" for role in plan.roles)
    first, *others = plan.roles
    also = ", ".join(f"{role.issuers} is also {role.name}" for role in others)
    return f"{first.threads} {first.name}, of which {also}"


def _passes_text(plan: PipelinePlan) -> str:
    along_m, along_n = plan.passes
    return f"{along_m} x {along_n} of {plan.tile_m} x {plan.tile_n}: the whole tile fits in no registers"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _tile_text(tile: OperandTile) -> str:
    inner, outer = tile.box
    return f"{tile.major}, {tile.boxes} box{'es' * (tile.boxes > 1)} of {inner} x {outer}, {tile.swizzle} swizzle"


def _staging_text(tile: StagingTile) -> str:
    by = "TMA stores" if tile.is_bulk_storable else "stores"
    lines = tile.rows if tile.row_major else tile.columns
    return f"{tile.element}, {by} of {tile.span} x {lines} from shared memory, {tile.swizzle} swizzle"


def operand_majors(descriptor: Descriptor) -> tuple[Major, Major]:
    """Row-major A and column-major B are contiguous along K."""
    arrangement = descriptor.arrangement
    return (
        Major.K if arrangement.a is row_major else Major.MN,
        Major.MN if arrangement.b is row_major else Major.K,
    )


def smem_total(alignment: int, buffer_size: int, scratch: int) -> int:
    """Bytes of a buffer and a kernel's own scratch behind it."""
    parts = [(alignment, buffer_size)] + ([(SCRATCH_ALIGNMENT, scratch)] if scratch else [])
    return shared_storage(*parts)


def regions(*parts: tuple[str, int, int]) -> tuple[Region, ...]:
    """Lay out ``(name, alignment, bytes)`` one behind the other.

    Raises
    ------
    AssertionError
        When a region would need padding: the plan's order is meant to make every offset aligned by itself.
    """
    placed: list[Region] = []
    offset = 0
    for name, alignment, size in parts:
        assert round_up(offset, alignment) == offset, f"{name} at {offset} is not aligned to {alignment}"
        placed.append(Region(name=name, offset=offset, size=size))
        offset += size
    return tuple(placed)
