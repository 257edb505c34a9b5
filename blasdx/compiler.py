"""From source to machine code: NVRTC without a driver, its log, and a cache on disk.

One NVRTC run makes the cubin that a GPU loads and the PTX that the emulator executes. cuda.core's own PTX route
needs a driver, so NVRTC is called through cuda.bindings.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import warnings
from collections.abc import Iterable
from functools import cached_property
from importlib import metadata
from typing import Any

from cuda.bindings import nvrtc
from pydantic import BaseModel, ConfigDict

from blasdx import arch
from blasdx import cache as disk
from blasdx.codegen import KernelSource, render
from blasdx.descriptor import Descriptor
from blasdx.errors import CompileError, UnsupportedToolkitError
from blasdx.operators import Operator
from blasdx.pipeline import suggest_pipeline
from blasdx.plan import PipelinePlan
from blasdx.sass import Sass

# Lambdas in kernels are device functions, which NVRTC 13.0 takes for granted only when it is told so.
_OPTIONS = ("--std=c++17", "-lineinfo", "--ptxas-options=-v", "--device-as-default-execution-space")
_ARCH_SPECIFIC_PATHS = ("utcmma", "wgmma")

_LOG_LINES = 12  # of the compiler's log in an error's text; the whole log is the error's attribute

_Products = tuple[bytes, str, str]
"""Cubin, PTX and log of one compilation."""


class Resources(BaseModel):
    """What ptxas reports of a kernel: registers a thread, and bytes a thread of stack and of spills."""

    model_config = ConfigDict(frozen=True)

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int


class CompiledKernel(BaseModel):
    """Machine code and PTX of one kernel, and the source they were made from."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    source: KernelSource
    cubin: bytes
    ptx: str
    log: str

    @property
    def entry(self) -> str:
        """Name of the kernel in cubin and PTX."""
        return self.source.entry

    @property
    def resources(self) -> Resources:
        """Registers, stack and spills, read from the compiler's log."""
        registers = re.search(r"Used (\d+) registers", self.log)
        memory = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", self.log)
        if registers is None or memory is None:
            raise CompileError("the compiler's log does not report resources", log=self.log)
        stack, stores, loads = map(int, memory.groups())
        return Resources(registers=int(registers[1]), stack=stack, spill_stores=stores, spill_loads=loads)

    @property
    def complaints(self) -> tuple[str, ...]:
        """What makes the kernel slow: MMAs that wait for each other (C75xx), spills, a large fragment in registers."""
        found = re.findall(r"\(C75\d\d\).*", self.log)
        spills = re.findall(r"[1-9]\d* bytes spill stores.*|0 bytes spill stores, [1-9]\d* bytes spill loads", self.log)
        fragments = re.findall(r'was declared deprecated \("(get_results takes [^"]*)"\)', self.log)
        return (*found, *spills, *fragments[:1])

    @cached_property
    def sass(self) -> Sass:
        """The disassembled machine code.

        Raises
        ------
        SassError
            When nvdisasm is not installed or does not read the cubin.
        """
        return Sass.of(self.cubin)

    def prove(self) -> int:
        """Check that the machine code holds exactly the planned MMAs and no older ones; return their number.

        Raises
        ------
        SassError
            When it does not.
        """
        mma = self.source.plan.mma
        self.sass.forbid(r"[HIQDF]MMA")
        return self.sass.require(mma.mnemonic, count=mma.count)

    def as_raw_module(self) -> Any:
        """The same machine code as a ``cupy.RawModule``, for those who launch it with CuPy themselves.

        Its function is `entry`. The parameters are, by value and in this order: the tensor map of A, that of B, that of
        the result where ``plan.bulk_stores`` (128 bytes each), and the struct that ``plan.problem.pack(...)`` makes.
        Blocks are ``plan.block_dim`` threads, the grid is ``plan.grid(...)``, and
        ``max_dynamic_shared_size_bytes`` has to be ``plan.smem_total`` before the first launch.

        Raises
        ------
        LaunchError
            The kernel runs in clusters, which CuPy does not launch.
        NoDriverError
            This machine has no CUDA driver.
        MissingPackageError
            CuPy is not installed.
        """
        from blasdx.devices.raw_module import as_raw_module

        return as_raw_module(self)

    def __str__(self) -> str:
        r = self.resources
        return (
            f"{self.entry}: {len(self.cubin):,} B cubin, {r.registers} registers, "
            f"{r.spill_stores + r.spill_loads} B spills"
        )


def compile(  # noqa: A001
    source: KernelSource | PipelinePlan,
    *,
    kernel_source: str | None = None,
    entry: str | None = None,
    cache: bool = True,
) -> CompiledKernel:
    """Compile a rendered kernel to cubin and PTX, or take both from the cache.

    Needs NVRTC 13.0 or newer and neither a driver nor a CUDA toolkit. The cache lies under ``BLASDX_CACHE_DIR``,
    otherwise in the user's cache folder; a folder that cannot be written costs one warning, and memory. Threads that
    ask for one kernel at the same time get it from one compilation.

    Parameters
    ----------
    source
        What `blasdx.render` made; or a plan, which is rendered here.
    kernel_source, entry
        With a plan: a kernel of one's own on its pipeline, as `blasdx.render` takes it.
    cache
        Look into the cache and write to it.

    Raises
    ------
    CompileError
        For a target without the path's instructions, before the compiler sees it; for an error of the compiler,
        with the rendered lines around it.
    UnsupportedToolkitError
        When the installed NVRTC does not know the target.

    Warns
    -----
    UserWarning
        When ptxas made the kernel slow; `CompiledKernel.complaints` says how. When the cache folder fails.
    """
    if isinstance(source, PipelinePlan):
        source = render(source, kernel_source=kernel_source, entry=entry)
    elif kernel_source is not None or entry is not None:
        raise TypeError("kernel_source and entry go with a plan; this source has been rendered already")
    _refuse_target(source)
    version = nvrtc_version()
    if cache:
        products = _cached(source, version)
    else:
        _refuse_toolkit(source, version)
        products = _run_nvrtc(source)
    cubin, ptx, log = products
    kernel = CompiledKernel(source=source, cubin=cubin, ptx=ptx, log=log)
    if kernel.complaints:
        warnings.warn(f"{kernel.entry} is right but slow: {'; '.join(kernel.complaints)}", stacklevel=2)
    return kernel


def precompile(wanted: Iterable[Descriptor | Operator | PipelinePlan | KernelSource]) -> tuple[CompiledKernel, ...]:
    """Put kernels into the cache, so that what starts later finds them there.

    One after the other: NVRTC gains nothing from threads (measured with 13.5 on two cores); several processes may each
    do a part, they share the cache. Its folder may be copied to other machines: entries depend on the source and on the
    versions of NVRTC and blasdx.

    Parameters
    ----------
    wanted
        Descriptors, plans or rendered kernels. Descriptors are planned at the deepest depth that fits.

    Returns
    -------
    tuple of CompiledKernel
        In the order of ``wanted``.

    Raises
    ------
    GateError, PlanError, RenderError
        For the first that has no kernel, before any is compiled.
    CompileError
        As `compile` does.
    """
    sources = [_rendered(one) for one in wanted]
    return tuple(compile(source) for source in sources)


def _rendered(wanted: Descriptor | Operator | PipelinePlan | KernelSource) -> KernelSource:
    if isinstance(wanted, KernelSource):
        return wanted
    return render(wanted if isinstance(wanted, PipelinePlan) else suggest_pipeline(wanted))


# ---- what the compiler can do --------------------------------------------------------------------------------------


def nvrtc_version() -> tuple[int, int]:
    """Version of the NVRTC this process compiles with.

    Loading NVRTC takes about 20 ms, which a cached kernel has no use for: unless the process has loaded one
    already, the installed wheel says which version would be loaded, because cuda.pathfinder prefers it.
    """
    if not _is_loaded("libnvrtc.so.13"):
        try:
            major, minor, *_ = metadata.version("nvidia-cuda-nvrtc").split(".")
            return int(major), int(minor)
        except metadata.PackageNotFoundError:
            pass
    result, major_version, minor_version = nvrtc.nvrtcVersion()
    _require_success(result, "nvrtcVersion")
    return major_version, minor_version


def _is_loaded(library: str) -> bool:
    if not hasattr(os, "RTLD_NOLOAD"):
        return True
    try:
        ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _refuse_target(source: KernelSource) -> None:
    plan = source.plan
    if plan.path in _ARCH_SPECIFIC_PATHS and not plan.target.endswith("a"):
        raise CompileError(
            f"{plan.target} has no {plan.path} instructions: they exist only on architecture-specific targets, and "
            f"ptxas refuses them on any other; build for {plan.target.rstrip('f')}a, which "
            f"SM({plan.descriptor.sm.arch}, arch_specific) asks for",
            source=source.text,
        )


def _refuse_toolkit(source: KernelSource, version: tuple[int, int]) -> None:
    needed = arch.of(source.plan.descriptor.sm.arch).oldest_nvrtc
    if version < needed:
        raise UnsupportedToolkitError(
            f"{source.plan.target} needs NVRTC {needed[0]}.{needed[1]} or newer; this environment has "
            f"{version[0]}.{version[1]}: pip install 'nvidia-cuda-nvrtc>={needed[0]}.{needed[1]}'",
            found=version,
            needed=needed,
        )


# ---- NVRTC ---------------------------------------------------------------------------------------------------------


def _run_nvrtc(source: KernelSource) -> _Products:
    options = [option.encode() for option in (f"--gpu-architecture={source.plan.target}", *_OPTIONS)]
    result, program = nvrtc.nvrtcCreateProgram(source.text.encode(), f"{source.entry}.cu".encode(), 0, [], [])
    _require_success(result, "nvrtcCreateProgram")
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _fetch(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(_failure(source, log), log=log, source=source.text)
        cubin = _fetch(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        ptx = _fetch(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).rstrip(b"\0").decode()
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    # How long ptxas took is no property of the kernel: two compilations of one source are equal.
    return cubin, ptx, re.sub(r"^.*Compile time = .*$\n?", "", log.rstrip("\0"), flags=re.MULTILINE).strip()


def _fetch(program: nvrtc.nvrtcProgram, size_of: object, get: object) -> bytes:
    result, size = size_of(program)  # type: ignore[operator]
    _require_success(result, "size")
    buffer = bytes(size)
    (result,) = get(program, buffer)  # type: ignore[operator]
    _require_success(result, "get")
    return buffer


def _require_success(result: nvrtc.nvrtcResult, call: str) -> None:
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC: {call} failed: {result.name}")


def _failure(source: KernelSource, log: str) -> str:
    """The compiler's first error with the rendered lines around it."""
    lines = log.rstrip("\0\n ").splitlines()
    first = next((i for i, line in enumerate(lines) if re.search(r"\berror\b|\bfatal\b", line)), 0)  # behind warnings
    said = "\n".join(lines[first : first + _LOG_LINES])
    text = f"NVRTC does not compile {source.entry} for {source.plan.target}:\n\n{said}"
    position = re.search(r"\.cu\((\d+)\): (?:catastrophic )?error", log)
    if position is None:
        return text
    lines = source.text.splitlines()
    number = int(position[1])
    window = range(max(1, number - 3), min(len(lines), number + 3) + 1)
    excerpt = "\n".join(f"{'>' if n == number else ' '} {n:4} | {lines[n - 1]}" for n in window)
    return f"{text}\n\n{excerpt}"


# ---- cache ---------------------------------------------------------------------------------------------------------

_ENDINGS = ("cubin", "ptx", "log")


def _cached(source: KernelSource, version: tuple[int, int]) -> _Products:
    key = _key(source, version)
    with disk.one_at_a_time(key):
        entry = disk.read(key, _ENDINGS)
        if entry is not None:
            return entry["cubin"], entry["ptx"].decode(), entry["log"].decode()
        _refuse_toolkit(source, version)
        cubin, ptx, log = products = _run_nvrtc(source)
        disk.write(key, {"cubin": cubin, "ptx": ptx.encode(), "log": log.encode()})
    return products


def _key(source: KernelSource, version: tuple[int, int]) -> str:
    parts = (source.text, source.entry, source.plan.target, repr(version), *_OPTIONS, _library_version())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _library_version() -> str:
    try:
        return metadata.version("blasdx")
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "checkout"
