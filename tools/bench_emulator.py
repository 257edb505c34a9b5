"""How fast the emulator is: GEMMs of this project's own kernel, and kernels of other compilers where they are at hand.

    python tools/bench_emulator.py              512^3 with and without hazard checks, 2048^3
    python tools/bench_emulator.py --small      only 512^3

BLASDX_REFERENCE_DATA names the folder whose kernels are timed as well. Times are wall time on the host; run it on an
idle machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.emulator import GlobalMemory, Module, TensorMap

TILE = tile((128, 256, 64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="only 512^3")
    small = parser.parse_args().small
    kernel = dx.compile(dx.render(dx.suggest_pipeline(TILE)))
    product(kernel, 128, check=False)  # translation of the PTX is paid once
    print(f"{'what':44} {'seconds':>8} {'warp-instructions/s':>20}")
    for check in (False, True):
        report(f"512^3 bf16, 128x256x64, check={check}", *product(kernel, 512, check=check))
    if not small:
        report("2048^3 bf16, 128x256x64, check=False", *product(kernel, 2048, check=False))
    folder = os.environ.get("BLASDX_REFERENCE_DATA")
    if folder and (Path(folder) / "kernels").is_dir():
        foreign(Path(folder) / "kernels")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


def report(what: str, seconds: float, instructions: int) -> None:
    print(f"{what:44} {seconds:8.2f} {instructions / seconds:20,.0f}", flush=True)


def product(kernel: dx.CompiledKernel, size: int, *, check: bool) -> tuple[float, int]:
    """Seconds and warp-instructions of one product, whose numbers are verified."""
    device = EmulatedDevice(schedule="random", check=check)
    rng = np.random.default_rng(size)
    a, b = (rng.integers(-3, 4, (size, size)).astype(ml_dtypes.bfloat16) for _ in range(2))
    gemm = dx.Gemm(kernel, device)
    start = time.perf_counter()
    c = gemm(a, np.asfortranarray(b))
    seconds = time.perf_counter() - start
    if (c != a.astype(np.float32) @ b.astype(np.float32)).any():
        raise SystemExit(f"the {size}^3 product is wrong")
    assert device.last is not None
    return seconds, device.last.stats.instructions


def foreign(folder: Path) -> None:
    """All kernels of the folder, once under each schedule."""
    spec = importlib.util.spec_from_file_location("refdata", folder / "refdata.py")
    assert spec is not None
    assert spec.loader is not None
    refdata = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(refdata)
    for schedule in ("eager", "lazy", "adversarial", "random"):
        seconds, instructions, count = 0.0, 0, 0
        for path in sorted(folder.glob("*.json")):
            took, executed = foreign_kernel(refdata, folder, json.loads(path.read_text()), schedule)
            seconds, instructions, count = seconds + took, instructions + executed, count + 1
        report(f"{count} kernels of other compilers, {schedule}", seconds, instructions)


def foreign_kernel(refdata: Any, folder: Path, job: dict[str, Any], schedule: Any) -> tuple[float, int]:
    """Seconds, parsing included, and warp-instructions of one kernel, whose numbers are verified."""
    memory = GlobalMemory()
    buffers = {n: memory.upload(np.frombuffer(bytes(d), np.uint8), n) for n, d in refdata.make_buffers(job).items()}

    def tensor_map(t: dict[str, Any]) -> bytes:
        return TensorMap(
            buffers[t["buffer"]], t["dtype"], t["global_dim"], t["global_strides_bytes"], t["box_dim"],
            t["element_strides"], t["swizzle"], t["interleave"], t["oob_fill"], t["base_offset"],
        ).to_bytes()  # fmt: skip

    block = refdata.param_block(job, lambda n: buffers[n].address, tensor_map)
    start = time.perf_counter()
    function = Module.from_ptx((folder / job["ptx"]).read_text()).get_function(job["entry"])
    result = function.launch(
        grid=job["grid"], block=job["block"], cluster=job["cluster"], dynamic_smem=job["dynamic_smem_bytes"],
        memory=memory, args=[block[p["offset"] : p["offset"] + p["size"]] for p in job["params"]], schedule=schedule,
        check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    right, message = refdata.check(job, {n: b.read().tobytes() for n, b in buffers.items()})
    if not right:
        raise SystemExit(f"{job['name']}: {message}")
    return seconds, result.stats.instructions


if __name__ == "__main__":
    main()
