"""From a plan to the text of a kernel.

Jinja decides what exists, ``constexpr`` how big it is. Templates see only the fields of a context model, and an
undefined name is an error. Device functions are plain CUDA in ``templates/device``; a kernel carries only those
that it calls.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from functools import cache
from importlib.resources import files
from pathlib import Path

import jinja2
from pydantic import BaseModel, ConfigDict

from blasdx.arguments import PROBLEM_BYTES
from blasdx.errors import RenderError
from blasdx.layout.descriptors import Major
from blasdx.layout.operand import OperandTile
from blasdx.layout.tensor_memory import COLUMNS
from blasdx.operators import row_major
from blasdx.plan import Barrier, PipelinePlan, Region, Role


class KernelSource(BaseModel):
    """One include-free CUDA C++ translation unit and the plan it was rendered from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: PipelinePlan
    entry: str
    text: str

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def write(self, path: str | Path) -> Path:
        """Write the text to a file and return its path."""
        target = Path(path)
        target.write_text(self.text, encoding="utf-8")
        return target

    def __str__(self) -> str:
        return self.text


def render(plan: PipelinePlan) -> KernelSource:
    """Render the default GEMM kernel of a plan.

    Raises
    ------
    RenderError
        When a template names something the plan does not provide: a fault of the library, never of the caller.
    """
    context = _context(plan)
    try:
        banner = _template("kernels/banner.cu.jinja", context)
        configuration = _template(f"{plan.path}/configuration.cu.jinja", context)
        kernel = _template("kernels/gemm.cu.jinja", context)
    except jinja2.TemplateError as error:
        raise RenderError(f"the {plan.path} template does not render: {error}") from error
    types, functions = device_library(kernel)
    text = "\n".join((banner, types, configuration, functions, kernel))
    return KernelSource(plan=plan, entry=context.entry, text=text)


def entry_name(plan: PipelinePlan) -> str:
    """A readable C name for the kernel of a plan, such as ``blasdx_gemm_bf16_bf16_f32_128x256x64_tn_d4_sm_100a``.

    The two letters are the BLAS transposition of A and B (t: contiguous along K for A, n for B), then ``c`` where C is
    column-major.
    """
    d = plan.descriptor
    types = "_".join(element.name for element in (d.precision.a, d.precision.b, d.precision.c))
    layout = ("t" if d.arrangement.a is row_major else "n") + ("t" if d.arrangement.b is row_major else "n")
    c = "" if d.arrangement.c is row_major else "_ccol"
    return f"blasdx_gemm_{types}_{d.m}x{d.n}x{d.k}_{layout}{c}_d{plan.depth}_{plan.target}"


# ---- context -------------------------------------------------------------------------------------------------------


class _Context(BaseModel):
    """What a template may name. Numbers only the kernel's text needs; everything else stays in the plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    descriptor: tuple[str, ...]
    fingerprint: str
    target: str
    path: str
    entry: str
    depth: int
    tile_m: int
    tile_n: int
    tile_k: int
    threads: int
    smem_total: int
    problem_bytes: int
    c_row_major: bool
    roles: tuple[Role, ...]
    barriers: tuple[Barrier, ...]
    regions: tuple[Region, ...]
    operands: tuple[_Operand, _Operand]
    mma_m: int
    mma_k: int
    mma_blocks: int
    mma_steps: int
    instruction: str
    instruction_text: str
    tmem_columns: int
    acc_stages: int
    acc_columns: int
    chunk: int
    run: int
    load: str


class _Operand(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    rows: str
    tile: OperandTile
    k_major: bool
    matrix_descriptor: str
    block_bytes: int


def _context(plan: PipelinePlan) -> _Context:
    d, mma, acc = plan.descriptor, plan.mma, plan.accumulator
    return _Context(
        descriptor=_wrapped(repr(d)),
        fingerprint=d.fingerprint,
        target=plan.target,
        path=plan.path,
        entry=entry_name(plan),
        depth=plan.depth,
        tile_m=d.m,
        tile_n=d.n,
        tile_k=d.k,
        threads=plan.block_dim,
        smem_total=plan.smem_total,
        problem_bytes=PROBLEM_BYTES,
        c_row_major=d.arrangement.c is row_major,
        roles=plan.roles,
        barriers=plan.barriers,
        regions=plan.regions,
        operands=(_operand(plan.a, "row", mma.m), _operand(plan.b, "column", mma.n)),
        mma_m=mma.m,
        mma_k=mma.k,
        mma_blocks=mma.blocks,
        mma_steps=mma.steps,
        instruction=f"0x{mma.instruction_descriptor:08x}",
        instruction_text=f"{d.precision.a.name} x {d.precision.b.name} -> {d.precision.c.name}, {mma.m} x {mma.n}, "
        f"A {plan.a.major}, B {plan.b.major}",
        tmem_columns=COLUMNS,
        acc_stages=acc.stages,
        acc_columns=acc.columns,
        chunk=acc.chunk,
        run=acc.run,
        load=f"tmem_load_{acc.load_shape}_x{acc.run}",
    )


def _wrapped(descriptor: str) -> tuple[str, ...]:
    """A sum of operators on lines of at most 112 characters, none broken inside an operator."""
    unbroken = descriptor.replace(", ", ",\0").replace(" + ", " +\0").replace("+\0", "+ ")
    return tuple(line.replace("\0", " ") for line in textwrap.wrap(unbroken, 112))


def _operand(tile: OperandTile, rows: str, block_rows: int) -> _Operand:
    return _Operand(
        name=tile.name,
        rows=rows,
        tile=tile,
        k_major=tile.major is Major.K,
        matrix_descriptor=f"0x{tile.matrix_descriptor:016x}",
        block_bytes=tile.block_bytes(block_rows),
    )


# ---- templates -----------------------------------------------------------------------------------------------------


def templates_root() -> Path:
    """The folder of templates: inside the installed package, or at the top of a checkout."""
    installed = Path(str(files("blasdx"))) / "templates"
    return installed if installed.is_dir() else Path(str(files("blasdx"))).parent / "templates"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_root()),
        undefined=jinja2.StrictUndefined,
        block_start_string="// {%",
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["symbol"] = _symbol
    return environment


def _template(name: str, context: _Context) -> str:
    # The models themselves, not their dump: templates read computed properties such as barrier.count.
    return _environment().get_template(name).render({field: getattr(context, field) for field in _Context.model_fields})


def _symbol(name: str) -> str:
    """``acc_full`` as it is spelled inside a constant: ``AccFull``."""
    return "".join(part.capitalize() for part in name.split("_"))


# ---- device library ------------------------------------------------------------------------------------------------

_FUNCTION_FILES = ("warp", "mbarrier", "tma", "tcgen05", "tmem_load")
_FUNCTION = re.compile(r"^__device__ __forceinline__ .*?(\w+)\(", re.MULTILINE)


def _device_file(name: str) -> str:
    return (templates_root() / "device" / f"{name}.cuh").read_text(encoding="utf-8")


@cache
def _functions() -> tuple[tuple[str, str], ...]:
    """Name and text of every function of the device library, each behind those that it calls."""
    found = []
    for name in _FUNCTION_FILES:
        for block in _device_file(name).strip().split("\n\n"):
            (function,) = _FUNCTION.findall(block)
            found.append((function, block))
    return tuple(found)


def device_library(kernel: str) -> tuple[str, str]:
    """The types, and those functions that ``kernel`` calls directly or through each other."""
    chosen: list[str] = []
    text = kernel
    for name, block in reversed(_functions()):
        if re.search(rf"\b{name}\(", text):
            chosen.append(block)
            text += block
    heading = "// ---- PTX: one instruction, one function ".ljust(120, "-")
    return _device_file("types"), "\n\n".join((heading, *reversed(chosen))) + "\n"
