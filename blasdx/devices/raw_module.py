"""A compiled kernel as a module of CuPy's."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blasdx.devices.driver import require_driver
from blasdx.errors import LaunchError, MissingPackageError

if TYPE_CHECKING:
    from blasdx.compiler import CompiledKernel


def as_raw_module(kernel: CompiledKernel) -> Any:
    """What `CompiledKernel.as_raw_module` returns."""
    plan = kernel.source.plan
    cluster = plan.cluster
    if plan.oversized:
        text = (
            f"{kernel.entry} takes {plan.smem_total:,} B of shared memory, more than the {plan.smem_budget:,} B that "
            "CuPy can ask for: the rest takes the oversized mode; call it through Gemm, or plan fewer stages or a "
            "smaller tile"
        )
        raise LaunchError(text)
    if cluster != (1, 1):
        text = (
            f"{kernel.entry} runs in clusters of {cluster[0]} x {cluster[1]} CTAs, and CuPy launches with "
            "cuLaunchKernel, which knows no clusters: call it through Gemm, or plan without BlocksPerCluster"
        )
        raise LaunchError(text)
    require_driver()
    try:
        import cupy
    except ModuleNotFoundError as error:
        raise MissingPackageError("a RawModule is CuPy's: pip install 'blasdx[cupy]'", extra="cupy") from error
    # CuPy reads machine code from a file, once for each device that uses it and not before.
    path = Path(_folder().name) / f"{kernel.source.fingerprint}.cubin"
    path.write_bytes(kernel.cubin)
    return cupy.RawModule(path=str(path))


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes with the process."""
    return tempfile.TemporaryDirectory(prefix="blasdx-")
