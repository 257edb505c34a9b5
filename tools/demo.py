"""The whole way on a machine without a GPU: descriptor, gates, plan, kernel, machine code, product, proof.

make demo
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import blasdx as dx
from blasdx.compiler import nvrtc_version
from blasdx.devices.emulated import EmulatedDevice

M = N = K = 512
Matrix = np.ndarray[Any, Any]
FRESH_PROCESSES = 5


def descriptor(sm: int = 1000) -> dx.Descriptor:
    return (
        dx.Size(128, 256, 64)
        + dx.Precision("bf16", "bf16", "f32")
        + dx.Type("real")
        + dx.Function("MM")
        + dx.Arrangement("row", "col", "row")
        + dx.Block()
        + dx.BlockDim(128)
        + dx.MaxAlignment()
        + dx.WithPipeline()
        + dx.EnableInputStreaming()
        + dx.SM(sm, "arch_specific")
    )


def main() -> None:
    tile = descriptor()
    title("1. Compose a descriptor")
    print("\n  + ".join(repr(operator) for operator in tile.operators))

    title("2. Which path it lands on, and why")
    print(dx.check(tile, require="utcmma"))

    title("3. The plan")
    plan = dx.suggest_pipeline(tile)
    print(plan)

    title("4. Render one include-free CUDA C++ translation unit")
    source = dx.render(plan)
    print(f"{source.entry}: {len(source.text.splitlines())} lines, fingerprint {source.fingerprint}")

    title("5. Compile it with NVRTC: no driver, no GPU, no CUDA toolkit")
    kernel = dx.compile(source)
    print(kernel)
    print(f"compile() alone, median of {FRESH_PROCESSES} fresh processes, NVRTC {'.'.join(map(str, nvrtc_version()))}:")
    for sm in (1000, 1030, 1070, 1100):
        print(f"  {compile_times(sm)}")

    title("6. Prove the instruction from the machine code")
    found = kernel.prove()
    print(f"{plan.mma.mnemonic}: {found} in the SASS, {plan.mma.count} in the plan, and no other MMA")
    beside = {opcode: kernel.sass.opcodes[opcode] for opcode in ("UTMALDG", "UTCBAR", "LDTM", "HMMA")}
    print("beside them: " + ", ".join(f"{count} {opcode}" for opcode, count in beside.items()))

    title(f"7. Run that very PTX in the emulator: {M} x {N} x {K}")
    random = np.random.default_rng(0)
    multiply("small integers", kernel, random.integers(-8, 9, (M, K)), random.integers(-8, 9, (K, N)))
    multiply("normal numbers", kernel, random.standard_normal((M, K)), random.standard_normal((K, N)))


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}\n{'-' * len(text)}", flush=True)


def multiply(what: str, kernel: dx.CompiledKernel, a: Matrix, b: Matrix) -> None:
    """Multiply, compare with float64, and stop when the result is outside the bound."""
    device = EmulatedDevice(schedule="random", seed=0, check=True)
    gemm = dx.Gemm(kernel, device)
    a = a.astype(ml_dtypes.bfloat16)
    b = np.asfortranarray(b.astype(ml_dtypes.bfloat16))
    start = time.perf_counter()
    result = gemm(a, b).astype(np.float64)
    seconds = time.perf_counter() - start
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(result - wide_a @ wide_b)
    bound = K * 2.0**-23 * (np.abs(wide_a) @ np.abs(wide_b))
    print(
        f"{what}: {seconds:.2f} s on the {gemm.device.name}\n"
        f"  {int((error != 0).sum()):,} of {error.size:,} elements differ from float64, at most by {error.max():.1e}: "
        f"{(error / bound).max():.2%} of the bound K * 2^-23 * sum|a||b|",
        flush=True,
    )
    assert device.last is not None
    launch = device.last
    print(f"  {launch.stats.instructions:,} warp-instructions, {len(launch.hazards)} hazards")
    if (error > bound).any() or (what == "small integers" and error.any()):
        sys.exit("the product is wrong")
    if launch.hazards:
        sys.exit("the emulator reports hazards:\n" + "\n".join(map(str, launch.hazards)))


def compile_times(sm: int) -> str:
    """Seconds of compile() in fresh processes: with an empty cache, and with what those left in it."""
    target = descriptor(sm).sm.target
    code = (
        "import sys, time; sys.path.insert(0, 'tools'); import blasdx as dx; from demo import descriptor\n"
        f"source = dx.render(dx.suggest_pipeline(descriptor({sm})))\n"
        "start = time.perf_counter(); kernel = dx.compile(source); print(time.perf_counter() - start)"
    )
    cold: list[float] = []
    cached: list[float] = []
    for _ in range(FRESH_PROCESSES):
        with tempfile.TemporaryDirectory() as cache:
            for times in (cold, cached):
                run = subprocess.run(
                    [sys.executable, "-c", code],
                    cwd=Path(__file__).parents[1],
                    env=os.environ | {"BLASDX_CACHE_DIR": cache},
                    capture_output=True,
                    text=True,
                )
                if run.returncode:
                    sys.exit(f"{target}: {run.stderr.strip().splitlines()[-1]}")
                times.append(float(run.stdout))
    return f"{target}: cold {statistics.median(cold) * 1000:4.0f} ms, cached {statistics.median(cached) * 1000:.1f} ms"


if __name__ == "__main__":
    main()
