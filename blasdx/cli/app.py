"""The commands: each turns its text into values, calls one function of the library and prints what that returns."""

from __future__ import annotations

import json
import re
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError
from rich.console import Console

import blasdx
from blasdx.cli.arrays import NotAnArrayError, load, save
from blasdx.cli.text import descriptor_from_text
from blasdx.codegen import render
from blasdx.compiler import CompiledKernel, compile
from blasdx.descriptor import Descriptor
from blasdx.devices import Device
from blasdx.errors import BlasdxError, DescriptorError
from blasdx.gemm import Gemm
from blasdx.operands import padded
from blasdx.paths import check
from blasdx.pipeline import suggest_pipeline

TILE = (
    "Size(128,256,64) + Precision(bf16,bf16,f32) + Type(real) + Function(MM) + Arrangement(row,col,row) + Block() "
    "+ BlockDim(128) + MaxAlignment() + WithPipeline() + EnableInputStreaming() + SM(1000,arch_specific)"
)
ILLEGAL, REFUSED = 2, 1

Required = Literal["utcmma", "wgmma", "supermma", "fma"]  # every path but "unsupported", on which nothing runs
DeviceName = Literal["cuda", "emulator"]
Schedule = Literal["eager", "lazy", "adversarial", "random"]
Numerics = Literal["exact", "hardware"]

app = typer.Typer(
    name="blasdx",
    help="Tensor-core matrix multiplication from descriptors.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
error_console = Console(stderr=True, highlight=False, soft_wrap=True)

DescriptorText = Annotated[
    str,
    typer.Argument(metavar="DESCRIPTOR", help="The Python expression, its JSON, or a file with one of the two."),
]
Depth = Annotated[int | None, typer.Option(help="Stages in shared memory; the deepest that fits when left out.")]


@contextmanager
def reported(*also: type[Exception]) -> Iterator[None]:
    """Print what the library refuses as it says it, without a traceback.

    Exit with 2 for input that cannot be read, with 1 for what was understood and refused.
    """
    refusals: tuple[type[Exception], ...] = (BlasdxError, OSError, *also)
    try:
        yield
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            place = ".".join(map(str, problem["loc"]))
            error_console.print(f"{error.title}: {place}{': ' if place else ''}{problem['msg']}", markup=False)
        raise typer.Exit(ILLEGAL) from None
    except (DescriptorError, NotAnArrayError) as error:
        error_console.print(f"{type(error).__name__}: {error}", markup=False)
        raise typer.Exit(ILLEGAL) from None
    except refusals as error:
        error_console.print(f"{type(error).__name__}: {error}", markup=False)
        raise typer.Exit(REFUSED) from None


def example(command: str) -> str:
    """The help's last lines."""
    return f"Example: `blasdx {command}`"


def print_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        typer.echo(f"blasdx {blasdx.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command("check", epilog=example(f'check "{TILE}" --require utcmma'))
def check_command(
    descriptor: DescriptorText,
    require: Annotated[Required | None, typer.Option(help="Exit with 1 when the landing path is slower.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Name the path that a descriptor lands on, and every gate with its reason."""
    with reported():
        report = check(descriptor_from_text(descriptor), require=require)
        typer.echo(report.model_dump_json(indent=2) if as_json else str(report))


@app.command("render", epilog=example(f'render "{TILE}" -o gemm.cu'))
def render_command(
    descriptor: DescriptorText,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write; standard output if left out.")
    ] = None,
    depth: Depth = None,
) -> None:
    """Render the kernel of a descriptor as one CUDA C++ translation unit."""
    with reported():
        source = render(suggest_pipeline(descriptor_from_text(descriptor), depth=depth))
        if output is None:
            typer.echo(source.text, nl=False)
        else:
            typer.echo(f"{source.entry} -> {source.write(output)}")


@app.command("compile", epilog=example(f'compile "{TILE}" -o build'))
def compile_command(
    descriptor: DescriptorText,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the .cu, .ptx and .cubin.")] = None,
    depth: Depth = None,
    cache: Annotated[bool, typer.Option(help="Look into the cache and write to it.")] = True,
) -> None:
    """Compile the kernel of a descriptor; needs no GPU and no driver."""
    with reported():
        kernel, seconds = compiled(descriptor, depth, cache=cache)
        typer.echo(f"{kernel}; {seconds * 1000:.0f} ms")
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            kernel.source.write(output / f"{kernel.entry}.cu")
            (output / f"{kernel.entry}.ptx").write_text(kernel.ptx, encoding="utf-8")
            (output / f"{kernel.entry}.cubin").write_bytes(kernel.cubin)
            typer.echo(f"-> {output / kernel.entry}.cu, .ptx, .cubin")


@app.command("sass", epilog=example(f"sass \"{TILE}\" --require 'UTC[A-Z]*MMA'"))
def sass_command(
    descriptor: DescriptorText,
    require: Annotated[
        str | None, typer.Option(help="Only count the opcodes that match; exit with 1 when there are none.")
    ] = None,
    depth: Depth = None,
) -> None:
    """Disassemble the kernel of a descriptor."""
    if require is not None:
        try:
            re.compile(require)
        except (re.error, RecursionError, OverflowError) as error:
            error_console.print(f"--require {require!r} is no regular expression: {error}", markup=False)
            raise typer.Exit(ILLEGAL) from None
    with reported():
        kernel, _ = compiled(descriptor, depth)
        if require is None:
            typer.echo(kernel.sass.text, nl=False)
        else:
            typer.echo(f"{kernel.sass.require(require)} instructions match {require} in {kernel.entry}")


@app.command("run", epilog=example("run a.npy b.npy -o c.npy"))
def run_command(
    a: Annotated[Path, typer.Argument(help="A, (M, K), as .npy; bfloat16 is what ml_dtypes saves.")],
    b: Annotated[Path, typer.Argument(help="B, (K, N).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the (M, N) result.")],
    c: Annotated[Path | None, typer.Option("-c", help="C, (M, N), for beta.")] = None,
    alpha: Annotated[float, typer.Option()] = 1.0,
    beta: Annotated[float | None, typer.Option(help="0 when there is no C.")] = None,
    descriptor: Annotated[
        str | None,
        typer.Option(
            "-d", "--descriptor", help="The tile; left out, 128 x 256 x 64 of the operands' own type and order."
        ),
    ] = None,
    device: Annotated[DeviceName | None, typer.Option(help="Whichever fits when left out.")] = None,
    depth: Depth = None,
) -> None:
    """Multiply two matrices: out = alpha * A * B + beta * C, on a GPU or else on the emulator."""
    from blasdx.devices.emulated import EmulationError

    with reported(EmulationError):
        host = {"a": load(a), "b": load(b)} | ({} if c is None else {"c": load(c)})
        tile = descriptor_from_text(descriptor) if descriptor else tile_for(host["a"], host["b"], device)
        gemm = Gemm(compile(render(suggest_pipeline(tile, depth=depth))), device)
        operands = {name: on_device(gemm.device, tile, name, matrix) for name, matrix in host.items()}
        start = time.perf_counter()
        result = gemm.device.to_host(gemm(**operands, alpha=alpha, beta=beta))
        seconds = time.perf_counter() - start
        save(output, result)
        m, n = result.shape
        typer.echo(f"{m} x {n} x {host['a'].shape[1]} on {gemm.device.name} in {seconds:.2f} s -> {output}")


@app.command("emulate", epilog=example("emulate gemm.ptx --spec launch.json --schedule adversarial --trace trace.json"))
def emulate_command(
    ptx: Annotated[Path | None, typer.Argument(help="The PTX module.")] = None,
    spec: Annotated[Path | None, typer.Option(help="The launch as JSON; `--schema` prints what may be in it.")] = None,
    schedule: Annotated[Schedule, typer.Option(help="When asynchronous operations take effect.")] = "random",
    seed: Annotated[int, typer.Option(help="Of the random schedule.")] = 0,
    numerics: Annotated[
        Numerics, typer.Option(help="exact: rounded once. hardware: the published model of the tensor cores.")
    ] = "exact",
    check_hazards: Annotated[bool, typer.Option("--check/--no-check", help="Look for races and missing waits.")] = True,
    sms: Annotated[int, typer.Option(min=1, help="CTAs that are resident at once; at least a cluster.")] = 2,
    max_instructions: Annotated[
        int, typer.Option(min=1, help="Warp-instructions after which the launch is given up.")
    ] = 100_000_000,
    trace: Annotated[Path | None, typer.Option(help="Write a time line for Perfetto or chrome://tracing.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of launch documents.")] = False,
) -> None:
    """Run a kernel of any origin without a GPU.

    Exit with 2 when the launch cannot be executed, with 1 when it hangs, has hazards of severity "error" or gives
    other numbers than expected.
    """
    from blasdx.cli.emulation import emulate
    from blasdx.cli.launch_spec import LaunchSpec
    from blasdx.cli.trace import chrome_trace
    from blasdx.emulator import DeadlockError, EmulationError, LivelockError

    if schema:
        typer.echo(json.dumps(LaunchSpec.model_json_schema(), indent=2))
        return
    if ptx is None or spec is None:
        raise typer.BadParameter("the PTX and --spec are needed")
    with reported():
        try:
            text = ptx.read_text(encoding="utf-8")
            launch = LaunchSpec.model_validate_json(spec.read_bytes())
            report = emulate(
                text, launch, spec.parent, schedule=schedule, seed=seed, numerics=numerics, check=check_hazards,
                sms=sms, max_instructions=max_instructions,
            )  # fmt: skip
        except (DeadlockError, LivelockError) as error:
            error_console.print(f"{type(error).__name__}: {error}", markup=False)
            if trace is not None:
                _write_trace(trace, chrome_trace(error.trace, text, launch.names))
            raise typer.Exit(REFUSED) from None
        except ValidationError:
            raise
        except (EmulationError, OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            error_console.print(f"{type(error).__name__}: {error}", markup=False)
            raise typer.Exit(ILLEGAL) from None
        for line in report.lines():
            typer.echo(line)
        if trace is not None:
            _write_trace(trace, chrome_trace(report.result.trace, text, launch.names))
        if not report.passed:
            raise typer.Exit(REFUSED)


def _write_trace(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")
    typer.echo(f"-> {path}")


@app.command("selftest", epilog=example("selftest -o selftest.json"))
def selftest_command(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where to write the JSON report.")] = None,
    device: Annotated[DeviceName | None, typer.Option(help="Whichever fits when left out.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random operands.")] = 0,
) -> None:
    """Run a small set of products on whatever is present, against float64; exit with 1 when one is wrong."""
    from blasdx.selftest import selftest

    with reported():
        report = selftest(device, seed=seed)
        typer.echo(str(report))
        if output is not None:
            output.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
            typer.echo(f"-> {output}")
        if not report.passed:
            raise typer.Exit(REFUSED)


@app.command("env", epilog=example("env"))
def env_command() -> None:
    """Say what this machine and this installation have; paste it into a bug report."""
    from blasdx.environment import environment

    with reported():
        found = environment()
        width = max(map(len, found))
        for name, value in found.items():
            typer.echo(f"{name:{width}}  {value}")


# ---- from text and files to values ----------------------------------------------------------------------------------


def compiled(descriptor: str, depth: int | None, *, cache: bool = True) -> tuple[CompiledKernel, float]:
    """The kernel of a descriptor, and the seconds that compiling it took."""
    source = render(suggest_pipeline(descriptor_from_text(descriptor), depth=depth))
    start = time.perf_counter()
    kernel = compile(source, cache=cache)
    return kernel, time.perf_counter() - start


def tile_for(a: Any, b: Any, device: str | None) -> Descriptor:
    """The default tile, for operands as they are; for the GPU that is present, if it has kernels."""
    from blasdx.operators import Arrangement, Precision
    from blasdx.selftest import block_dim, default_sm

    tile = descriptor_from_text(TILE)
    order_a, order_b = ("row" if matrix.flags.c_contiguous else "col" for matrix in (a, b))
    sm = default_sm(device)
    arrangement = Arrangement(order_a, order_b, "row")
    return tile.with_(Precision(a.dtype, b.dtype, "f32"), arrangement, sm, block_dim(sm.arch, tile.m))


def on_device(device: Device, tile: Descriptor, name: str, matrix: Any) -> Any:
    """A loaded matrix where the device computes, its rows aligned as the kernel needs them."""
    order = getattr(tile.arrangement, name)
    if matrix.ndim != 2:
        return device.namespace.asarray(matrix)  # for the kernel to refuse
    return padded(device.namespace.asarray(matrix), order, namespace=device.namespace)
