"""Our machine code beside that of other compilers, for the same tile and target. Needs no GPU.

Takes descriptors and PTX files. Without descriptors, kernels of tiles that others publish are compared. Where
BLASDX_REFERENCE_DATA names a folder with kernels of other compilers, those with our target, kind of MMA, CTA group and
tile follow each of ours.

    python tools/sass_report.py                                # the table of docs/performance.md
    python tools/sass_report.py "Size(128,256,64) + ..." --output bf16 other.ptx --json
    python tools/sass_report.py --nvrtc .nvrtc/13.0.88 --ptxas /usr/local/cuda-13.0/bin/ptxas

Others' PTX is assembled by the installed nvJitLink, or by --ptxas. What the columns count, for all kernels alike:

instructions
    All of the kernel and its internal functions, without the padding behind the last one.
loop, MMAs, per MMA, per 4 MMAs
    The smallest loop that holds an MMA, found from the control flow: instructions from its first one to the branch
    back, both included. Where ptxas moved the repetition of a wait out of line it does not count: nothing repeats a
    wait while the pipeline is full.
epilogue
    Instructions that a warp executes per accumulator element of a thread, from the load out of tensor memory to the
    store to global memory (or the TMA store). Where a loop goes over chunks of a tile, that is one round of it;
    otherwise the way from the first load to the last store before the next tile. Of the ways that write every element,
    the one that executes least: that of a tile wholly inside a matrix, which is aligned, and reads no C if it need not.
barriers
    Named ones that the kernel takes, and initialisations of mbarriers in the code.
seconds
    From CUDA C++ for ours, from PTX for the others.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cuda.bindings import nvjitlink
from sass_flow import Code, epilogue, mma_loop

import blasdx as dx
from blasdx.cli.text import descriptor_from_text
from blasdx.sass import Sass

_COMMON = "Type(real) + Function(MM) + Block() + MaxAlignment() + WithPipeline() + EnableInputStreaming()"
_BLACKWELL = f"Arrangement(row, col, row) + BlockDim(128) + SM(1000, arch_specific) + {_COMMON}"
DEFAULT = [  # descriptor, output
    (f"Size(128, 256, 64) + Precision(bf16, bf16, f32) + {_BLACKWELL}", "bf16"),
    (f"Size(128, 256, 64) + Precision(f16, f16, f32) + {_BLACKWELL}", "f32"),
    (f"Size(128, 128, 64) + Precision(f16, f16, f32) + {_BLACKWELL}", "f16"),
    (f"Size(128, 128, 64) + Precision(f16, f16, f32) + {_BLACKWELL}", "f32"),
    (f"Size(64, 64, 64) + Precision(f16, f16, f32) + {_BLACKWELL}", "f32"),
    (f"Size(128, 128, 128) + Precision(e4m3, e4m3, f32) + {_BLACKWELL}", "bf16"),
    (f"Size(128, 128, 128) + Precision(s8, s8, s32) + {_BLACKWELL}", "s32"),
    (f"Size(128, 128, 32) + Precision(tf32, tf32, f32) + {_BLACKWELL}", "f32"),
    (f"Size(128, 128, 64) + Precision(f16, f16, f32) + BlocksPerCluster(2, 1) + {_BLACKWELL}", "f16"),
]


@dataclass(frozen=True)
class Row:
    """One kernel; None where a kernel does not say."""

    kernel: str
    output: str | None
    registers: int
    spills: int  # bytes
    instructions: int
    loop: int | None
    mmas: int | None
    per_mma: float | None
    per_4_mmas: float | None
    epilogue: float | None
    barriers: int
    mbarriers: int
    shared: int | None  # bytes
    depth: int | None
    seconds: float


@dataclass(frozen=True)
class _Assembled:
    cubin: bytes
    log: str
    seconds: float


def _row(name: str, assembled: _Assembled, *, output: str | None, shared: int | None, depth: int | None) -> Row:
    code = Code.parse(Sass.of(assembled.cubin).text)
    loop, out = mma_loop(code), epilogue(code, dx.Element.of(output).itemsize if output else 1)
    log = assembled.log
    registers = [int(number) for number in re.findall(r"[Uu]sed (\d+) registers", log)]
    barriers = [int(number) for number in re.findall(r"used (\d+) barriers", log)]
    spills = [int(a) + int(b) for a, b in re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)]
    return Row(
        kernel=name,
        output=output,
        registers=max(registers),
        spills=max(spills),
        instructions=len(code.at),
        loop=loop.inline if loop else None,
        mmas=loop.mmas if loop else None,
        per_mma=loop.inline / loop.mmas if loop else None,
        per_4_mmas=4 * loop.inline / loop.mmas if loop else None,
        epilogue=out.executed / out.elements if out else None,
        barriers=max(barriers, default=0),
        mbarriers=sum(i.opcode.startswith("SYNCS.EXCH") for i in code.at),
        shared=shared,
        depth=depth,
        seconds=assembled.seconds,
    )


# ---- ours ----------------------------------------------------------------------------------------------------------


def ours(descriptor: dx.Descriptor, output: str | None, depth: int | None) -> tuple[Row, dx.CompiledKernel]:
    """The row of a descriptor's default kernel, and the kernel."""
    plan = dx.suggest_pipeline(descriptor, output=output, depth=depth)
    source = dx.render(plan)
    start = time.perf_counter()
    kernel = dx.compile(source, cache=False)
    assembled = _Assembled(kernel.cubin, kernel.log, time.perf_counter() - start)
    name = kernel.entry.removeprefix("blasdx_gemm_")
    return _row(name, assembled, output=plan.output.name, shared=plan.smem_total, depth=plan.depth), kernel


# ---- others --------------------------------------------------------------------------------------------------------


def foreign(path: Path, ptxas: str | None) -> Row:
    """The row of a PTX file; a JSON file of the same name may say more about it."""
    ptx = path.read_text()
    says = _says(path)
    assembled = _by_ptxas(ptxas, path) if ptxas else _by_nvjitlink(ptx)
    static = [int(number) for number in re.findall(r"(\d+) bytes smem", assembled.log)]
    dynamic = says.get("dynamic_smem_bytes")
    written = [buffer["dtype"] for buffer in says.get("buffers", {}).values() if "out" in buffer["role"]]
    stages = re.search(r"WarpSpecializedILi(\d+)E", ptx)
    depth = int(stages[1]) if stages else (says.get("compile_options") or {}).get("num_stages")
    return _row(
        path.stem,
        assembled,
        output=written[0] if written else None,
        shared=None if dynamic is None else dynamic + max(static, default=0),
        depth=depth,
    )


def _says(path: Path) -> dict[str, Any]:
    beside = path.with_suffix(".json")
    says: dict[str, Any] = json.loads(beside.read_text()) if beside.is_file() else {}
    return says


def _target(ptx: str) -> str:
    found = re.search(r"^\.target\s+(\w+)", ptx, re.MULTILINE)
    if found is None:
        raise SystemExit("a file without .target is no PTX")
    return found[1]


def _by_nvjitlink(ptx: str) -> _Assembled:
    options = [f"-arch={_target(ptx)}", "-verbose"]
    data = ptx.encode()
    handle = nvjitlink.create(len(options), options)
    try:
        start = time.perf_counter()
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "kernel")
        nvjitlink.complete(handle)
        seconds = time.perf_counter() - start
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    finally:
        nvjitlink.destroy(handle)
    return _Assembled(bytes(cubin), log.decode(errors="replace"), seconds)


def _by_ptxas(ptxas: str, path: Path) -> _Assembled:
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        command = [ptxas, f"-arch={_target(path.read_text())}", "-v", str(path), "-o", str(cubin)]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"{path} is not assembled: {done.stderr.strip()}")
        return _Assembled(cubin.read_bytes(), done.stderr + done.stdout, seconds)


_Alike = tuple[object, ...]


def _alike(ptx: str, tile: tuple[int, int] | None) -> _Alike:
    """What kernels that can be compared have in common."""
    kinds = set(re.findall(r"tcgen05\.mma\.(cta_group::\d)\.(kind::\w+)", ptx)) or set(re.findall(r"wgmma\.mma", ptx))
    return _target(ptx), frozenset(kinds), tile


def _tile(path: Path, ptx: str) -> tuple[int, int] | None:
    """M and N, from a generator's parameters beside the file or from the name of CUTLASS's MMA atom."""
    says = _says(path)
    chosen = {**(says.get("compile_options") or {}), **(says.get("constexprs") or {})}
    if "BM" in chosen:
        return int(chosen["BM"]), int(chosen["BN"])
    atom = re.search(r"SM100_MMA_\w*?Li(\d+)ELi(\d+)E", ptx)
    return (int(atom[1]), int(atom[2])) if atom else None


def comparable(kernel: dx.CompiledKernel) -> list[Path]:
    """Kernels of the reference data with the target, the kind of MMA, the CTA group and the tile of ours."""
    folder = os.environ.get("BLASDX_REFERENCE_DATA")
    if not folder:
        return []
    plan = kernel.source.plan
    pair = "cta_group::2" in kernel.ptx
    wanted = _alike(kernel.ptx, (plan.descriptor.m * (1 + pair), plan.descriptor.n))
    texts = {path: path.read_text() for path in sorted((Path(folder) / "kernels").glob("*.ptx"))}
    return [path for path, ptx in texts.items() if _alike(ptx, _tile(path, ptx)) == wanted]


# ---- the table -----------------------------------------------------------------------------------------------------


def table(rows: list[Row]) -> str:
    """The rows as text, one kernel a line."""
    names = [field.name for field in fields(Row)]
    lines = [[name.replace("_", " ") for name in names]]
    lines += [[_text(getattr(row, name)) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    )


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description="Our machine code beside that of other compilers.")
    parser.add_argument("inputs", nargs="*", help="descriptors as the command line takes them, and PTX files")
    parser.add_argument("--output", help="element type that our kernels store")
    parser.add_argument("--depth", type=int, help="stages of our kernels; the deepest that fits when left out")
    parser.add_argument("--nvrtc", type=Path, metavar="FOLDER", help="compile ours with the NVRTC in this folder")
    parser.add_argument("--ptxas", metavar="PATH", help="assemble the others with this ptxas")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if arguments.nvrtc:
        from tests.nvrtc import preload

        preload(arguments.nvrtc)
    paths = [Path(text) for text in arguments.inputs if text.endswith(".ptx")]
    wanted = [(text, arguments.output) for text in arguments.inputs if not text.endswith(".ptx")]
    rows = []
    for text, output in wanted or DEFAULT:
        row, kernel = ours(descriptor_from_text(text), output, arguments.depth)
        rows.append(row)
        rows += [foreign(path, arguments.ptxas) for path in comparable(kernel) if path not in paths]
    rows += [foreign(path, arguments.ptxas) for path in paths]
    rows = list(dict.fromkeys(rows))
    print(json.dumps([asdict(row) for row in rows], indent=2) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
