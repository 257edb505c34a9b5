"""From a plan to the text of a kernel.

Jinja decides what exists, ``constexpr`` how big it is. Templates see only the fields of a context model, and an
undefined name is an error. Device functions are plain CUDA in ``templates/device``; a kernel carries only those
that it calls.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path

import jinja2
from pydantic import BaseModel, ConfigDict

from blasdx.errors import RenderError
from blasdx.paths.context import KernelContext
from blasdx.paths.utcmma import context as utcmma
from blasdx.paths.wgmma import context as wgmma
from blasdx.plan import PipelinePlan


class _Text(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: PipelinePlan
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


class KernelSource(_Text):
    """One include-free CUDA C++ translation unit with the kernel ``entry``, and the plan it was rendered from."""

    entry: str


class HeaderSource(_Text):
    """The pipeline of a plan as a header, for kernels of one's own."""


_CONTEXTS: dict[str, Callable[[PipelinePlan], KernelContext]] = {
    "utcmma": utcmma.context,
    "wgmma": wgmma.context,
}


def render(plan: PipelinePlan, *, kernel_source: str | None = None, entry: str | None = None) -> KernelSource:
    """Render the default GEMM kernel of a plan, or a kernel of one's own on the same pipeline.

    Parameters
    ----------
    plan
    kernel_source
        CUDA C++ with an ``extern "C" __global__`` function that takes the default kernel's parameters. It stands
        behind the pipeline's header, whose names are in the namespace ``blasdx``.
    entry
        Which function is the kernel, where ``kernel_source`` has several.

    Raises
    ------
    RenderError
        When ``kernel_source`` has no kernel of the name, or several and no name is given, or the plan has two sets of
        threads, which only the default kernel knows; and when a template names
        something the plan does not provide, a fault of the library.
    """
    context = _CONTEXTS[plan.path](plan)
    if kernel_source is not None:
        text = _header(plan, kernel_source, "blasdx").text + "\n" + kernel_source
        return KernelSource(plan=plan, entry=_entry(kernel_source, entry), text=text)
    return KernelSource(plan=plan, entry=context.entry, text="\n".join(_text(plan, context)))


def render_header(plan: PipelinePlan, *, namespace: str = "blasdx") -> HeaderSource:
    """Render the pipeline of a plan as a self-contained header, for nvcc or NVRTC.

    Parameters
    ----------
    plan
    namespace
        Where its names are: two pipelines in one translation unit need two.

    Raises
    ------
    RenderError
        When ``namespace`` is no C++ identifier, or the plan has two sets of threads, which only the default kernel
        knows.
    """
    if not namespace.isidentifier():
        raise RenderError(f"namespace = {namespace!r} is no C++ identifier")
    return _header(plan, "", namespace)


def _header(plan: PipelinePlan, uses: str, namespace: str) -> HeaderSource:
    """The header with what the device library has for ``uses`` besides what it calls itself."""
    if plan.sets > 1:
        raise RenderError("pingpong is of the default kernel: one of your own is written for one set of threads a tile")
    context = _CONTEXTS[plan.path](plan).model_copy(update={"library": True, "empty_sums": True})
    banner, body = _text(plan, context, uses=uses)
    text = f"{banner}\n#pragma once\n\nnamespace {namespace} {{\n\n{body}\n}}  // namespace {namespace}\n"
    return HeaderSource(plan=plan, text=text)


_ATTRIBUTE = re.compile(r"__(?!global__)\w+__\s*\((?:[^()]|\([^()]*\))*\)")
_KERNEL = re.compile(r'extern\s+"C"[\w\s]*?\b__global__\b[\w\s]*?\b(\w+)\s*\(')


def _entry(source: str, name: str | None) -> str:
    """The name of the kernel in a source of one's own."""
    kernels: list[str] = _KERNEL.findall(_ATTRIBUTE.sub("", source))
    found = ", ".join(kernels) or "none"
    if name is None and len(kernels) == 1:
        return kernels[0]
    if name is not None and name in kernels:
        return name
    wanted = f"entry = {name!r}" if name else "no entry is named"
    raise RenderError(f'{wanted}, and kernel_source has these extern "C" __global__ functions: {found}')


def _text(plan: PipelinePlan, context: KernelContext, uses: str = "") -> tuple[str, str]:
    """Banner and pipeline."""
    try:
        banner = _template("pipeline/banner", context)
        configuration = _template(f"{plan.path}/configuration", context)
        names = context.pipeline if context.library else (*context.pipeline, *context.kernel)
        body = "".join(_template(name, context) for name in names).lstrip()
    except jinja2.TemplateError as error:
        raise RenderError(f"the {plan.path} template does not render: {error}") from error
    types, functions = device_library(body + uses)
    return banner, "\n".join((types, configuration, functions, body))


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


def _template(name: str, context: KernelContext) -> str:
    # The models themselves, not their dump: templates read computed properties such as barrier.count.
    fields = {field: getattr(context, field) for field in type(context).model_fields}
    return _environment().get_template(f"{name}.cu.jinja").render(fields)


def _symbol(name: str) -> str:
    """``acc_full`` as it is spelled inside a constant: ``AccFull``."""
    return "".join(part.capitalize() for part in name.split("_"))


# ---- device library ------------------------------------------------------------------------------------------------

_CALL = re.compile(r"\b(\w+)[(<]")
_FUNCTION_FILES = (
    "convert",
    "activation",
    "fetch",
    "warp",
    "mbarrier",
    "cluster",
    "tma",
    "wgmma",
    "tcgen05",
    "tcgen05_pair",
    "tmem_load",
)
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
    called = set(_CALL.findall(kernel))
    for name, block in reversed(_functions()):
        if name in called:
            chosen.append(block)
            called.update(_CALL.findall(block))
    heading = "// ---- PTX: one instruction, one function ".ljust(120, "-")
    return _device_file("types"), "\n\n".join((heading, *reversed(chosen))) + "\n"
