"""Kernels that other compilers and libraries made, with the results their authors intended.

The kernels are not part of the project: BLASDX_REFERENCE_DATA names the folder that has them. By default only
the schedule that finds most runs; ``BLASDX_ALL_SCHEDULES=1`` runs all four, with three seeds.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blasdx.emulator import GlobalMemory, LaunchResult, Module, TensorMap

DATA = os.environ.get("BLASDX_REFERENCE_DATA")
KERNELS = Path(DATA) / "kernels" if DATA else None
SCHEDULES = [("adversarial", 0)]
if os.environ.get("BLASDX_ALL_SCHEDULES"):
    SCHEDULES += [("eager", 0), ("lazy", 0), ("random", 0), ("random", 1), ("random", 2)]

# Races in kernels that are right about everything else: no proxy fence at all between st.shared and tcgen05.mma.
KNOWN_ERRORS = {"cute_tut01_mma": {"missing-proxy-fence"}}


def reference() -> Any:
    assert KERNELS is not None
    spec = importlib.util.spec_from_file_location("refdata", KERNELS / "refdata.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names() -> list[str]:
    return sorted(p.stem for p in KERNELS.glob("*.json")) if KERNELS is not None and KERNELS.is_dir() else []


def launch(name: str, schedule: str, seed: int) -> tuple[dict[str, bytes], LaunchResult, Any]:
    refdata = reference()
    assert KERNELS is not None
    job = json.loads((KERNELS / f"{name}.json").read_text())
    memory = GlobalMemory()
    buffers = {
        n: memory.upload(np.frombuffer(bytes(data), np.uint8), n) for n, data in refdata.make_buffers(job).items()
    }

    def tensor_map(t: dict[str, Any]) -> bytes:
        return TensorMap(
            buffers[t["buffer"]], dtype=t["dtype"], dims=t["global_dim"], strides_bytes=t["global_strides_bytes"],
            box=t["box_dim"], element_strides=t["element_strides"], swizzle=t["swizzle"], interleave=t["interleave"],
            oob_fill=t["oob_fill"], offset=t["base_offset"],
        ).to_bytes()  # fmt: skip

    block = refdata.param_block(job, lambda n: buffers[n].address, tensor_map)
    function = Module.from_ptx((KERNELS / job["ptx"]).read_text()).get_function(job["entry"])
    result = function.launch(
        grid=job["grid"], block=job["block"], cluster=job["cluster"], dynamic_smem=job["dynamic_smem_bytes"],
        memory=memory, args=[block[p["offset"] : p["offset"] + p["size"]] for p in job["params"]],
        schedule=schedule, seed=seed, check="collect",
    )  # fmt: skip
    return {n: b.read().tobytes() for n, b in buffers.items()}, result, (refdata, job)


@pytest.mark.skipif(not names(), reason="BLASDX_REFERENCE_DATA is not set, or has no kernels folder")
@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("name", names() or ["none"])
def test_foreign_kernels_give_exactly_the_expected_result(name: str, schedule: str, seed: int) -> None:
    after, result, (refdata, job) = launch(name, schedule, seed)
    right, message = refdata.check(job, after)
    assert right, message
    got = refdata.read(job["buffers"][job["expected"]["out"]], after[job["expected"]["out"]])
    np.testing.assert_array_equal(got.astype(np.float64), refdata.expected(job).astype(np.float64))
    errors = {h.kind for h in result.hazards if h.severity == "error"}
    assert errors == KNOWN_ERRORS.get(name, set()), [str(h) for h in result.hazards if h.severity == "error"][:3]
