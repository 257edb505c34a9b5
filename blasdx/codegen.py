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


_CONTEXTS: dict[str, Callable[[PipelinePlan], KernelContext]] = {
    "utcmma": utcmma.context,
    "wgmma": wgmma.context,
}


def render(plan: PipelinePlan) -> KernelSource:
    """Render the default GEMM kernel of a plan.

    Raises
    ------
    RenderError
        When a template names something the plan does not provide: a fault of the library, never of the caller.
    """
    context = _CONTEXTS[plan.path](plan)
    try:
        banner = _template("pipeline/banner", context)
        configuration = _template(f"{plan.path}/configuration", context)
        kernel = "".join(_template(section, context) for section in context.sections).lstrip()
    except jinja2.TemplateError as error:
        raise RenderError(f"the {plan.path} template does not render: {error}") from error
    types, functions = device_library(kernel)
    text = "\n".join((banner, types, configuration, functions, kernel))
    return KernelSource(plan=plan, entry=context.entry, text=text)


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

_FUNCTION_FILES = ("convert", "warp", "mbarrier", "cluster", "tma", "wgmma", "tcgen05", "tmem_load")
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
        if re.search(rf"\b{name}[(<]", text):
            chosen.append(block)
            text += block
    heading = "// ---- PTX: one instruction, one function ".ljust(120, "-")
    return _device_file("types"), "\n\n".join((heading, *reversed(chosen))) + "\n"
