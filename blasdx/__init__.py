"""Tensor-core matrix multiplication from descriptors.

A descriptor, a sum of operators, goes in at the top, and each step turns it into one more printable value::

    Descriptor -> check() -> suggest_pipeline() -> render() -> compile() -> Gemm(...)(a, b)

Everything up to the compiled kernel runs without a driver and without a GPU.
"""

from typing import TYPE_CHECKING

from blasdx.codegen import HeaderSource, KernelSource, render, render_header
from blasdx.compiler import CompiledKernel, compile, precompile
from blasdx.descriptor import Descriptor
from blasdx.devices import Device
from blasdx.elements import Element, bf16, e4m3, e5m2, f16, f32, f64, s8, s16, s32, s64, tf32, u8, u16, u32, u64
from blasdx.epilogue import Epilogue
from blasdx.errors import (
    ArchMismatchError,
    BlasdxError,
    CompileError,
    DescriptorError,
    EpilogueError,
    GateError,
    LaunchError,
    NoDriverError,
    OperandError,
    PlanError,
    SassError,
    UnsupportedToolkitError,
)
from blasdx.gemm import Gemm, gemm
from blasdx.layout.storage import shared_storage
from blasdx.operands import padded
from blasdx.operators import (
    MM,
    SM,
    Alignment,
    Arrangement,
    Block,
    BlockDim,
    BlocksPerCluster,
    EnableInputStreaming,
    Function,
    LeadingDimension,
    MaxAlignment,
    Precision,
    RequiredMantissaBits,
    Size,
    StaticBlockDim,
    Type,
    WithPipeline,
    arch_specific,
    col_major,
    family_specific,
    generic,
    real,
    row_major,
)
from blasdx.paths import OperandSpec, PathReport, check
from blasdx.pipeline import suggest_pipeline
from blasdx.plan import PipelinePlan
from blasdx.prepared import PreparedGemm
from blasdx.schedule import Raster

__all__ = [
    # the steps, and the value that each makes
    "Descriptor",
    "check",
    "PathReport",
    "OperandSpec",
    "Epilogue",
    "Raster",
    "suggest_pipeline",
    "PipelinePlan",
    "render",
    "KernelSource",
    "render_header",
    "HeaderSource",
    "compile",
    "precompile",
    "CompiledKernel",
    "Gemm",
    "PreparedGemm",
    "gemm",
    "padded",
    "shared_storage",
    "Device",
    # operators and their tags
    "Size",
    "Precision",
    "Type",
    "real",
    "Function",
    "MM",
    "Arrangement",
    "row_major",
    "col_major",
    "LeadingDimension",
    "Alignment",
    "MaxAlignment",
    "Block",
    "BlockDim",
    "StaticBlockDim",
    "WithPipeline",
    "EnableInputStreaming",
    "BlocksPerCluster",
    "RequiredMantissaBits",
    "SM",
    "generic",
    "arch_specific",
    "family_specific",
    # element types
    "Element",
    "f16",
    "bf16",
    "tf32",
    "f32",
    "f64",
    "e4m3",
    "e5m2",
    "s8",
    "u8",
    "s16",
    "u16",
    "s32",
    "u32",
    "s64",
    "u64",
    # errors
    "BlasdxError",
    "DescriptorError",
    "EpilogueError",
    "GateError",
    "PlanError",
    "CompileError",
    "UnsupportedToolkitError",
    "SassError",
    "OperandError",
    "NoDriverError",
    "ArchMismatchError",
    "LaunchError",
]

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name):
        """``__version__`` when somebody asks: looking into the installation takes longer than it is often needed."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import metadata

        try:
            return metadata.version("blasdx")
        except metadata.PackageNotFoundError:
            return "unknown"
