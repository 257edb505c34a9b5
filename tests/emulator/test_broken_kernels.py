"""The shipped kernel with one line wrong: the emulator says so, under every schedule."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.devices.protocol import Launch, TensorMapArgument
from blasdx.emulator import EmulationError
from blasdx.layout.swizzle import Swizzle

SCHEDULES = ("eager", "lazy", "adversarial", "random")

FULL = "mbarrier_wait(storage.full(ring.stage), ring.phase);"
EMPTY = "mbarrier_wait(storage.empty(ring.stage), ring.phase ^ 1);"
ACC_FULL = "mbarrier_wait(tile.storage.acc_full(tile.results.stage), tile.results.phase);"
ACC_EMPTY = "mbarrier_wait(storage.acc_empty(acc.stage), acc.phase ^ 1);"
ARRIVE = "mbarrier_arrive(tile.storage.acc_empty(tile.results.stage));"
HANG = "no warp can go on"

# What is wrong: the line, what stands in its place, and what the emulator says. A role that does not wait runs ahead of
# the others, so that a race can end as a hang or as an arrival too many before the launch ends.
BROKEN = {
    "the MMA does not wait for its operands": (FULL, "", "shared-read-before-load-complete"),
    "the MMA waits for the phase before": (
        FULL,
        FULL.replace("ring.phase", "ring.phase ^ 1"),
        f"shared-read-before-load-complete|shared-overwritten-while-mma-reads|{HANG}",
    ),
    "TMA does not wait for an empty stage": (
        EMPTY,
        "",
        r"shared-overwritten-before-load-complete|1 arrival\(s\) on .* expects only 0 more",
    ),
    "TMA waits for the opposite phase": (EMPTY, EMPTY.replace(" ^ 1", ""), HANG),
    "the MMA does not wait for an empty accumulator": (ACC_EMPTY, "", "tensor-overwritten-while-load-reads"),
    "the epilogue does not wait for the accumulator": (ACC_FULL, "", f"tensor-read-before-commit|{HANG}"),
    "no commit gives a stage back": ("tcgen05_commit(storage.empty(ring.stage));", "", HANG),
    "no commit hands the accumulator over": ("tcgen05_commit(storage.acc_full(acc.stage));", "", HANG),
    "one epilogue thread does not arrive": (ARRIVE, f"if (threadIdx.x != 77) {ARRIVE}", HANG),
    "more bytes are announced than come": ("kAStageBytes + kBStageBytes", "kAStageBytes + kBStageBytes + 16", HANG),
    "tensor memory is not freed": ("tmem_dealloc(tmem, kTmemColumns);", "", "tensor-memory-not-freed"),
}

STAGED = {
    "TMA is not told of what threads wrote": (
        "fence_proxy_async();\n    __syncwarp",
        "__syncwarp",
        "missing-proxy-fence",
    ),
    "a warp does not wait until TMA has read": (
        "bulk_wait_group_read<0>();",
        "",
        "shared-overwritten-while-store-reads",
    ),
    "there is nothing that it could wait for": ("bulk_commit_group();", "", "shared-overwritten-while-store-reads"),
}


@cache
def kernel(line: str = "", wrong: str = "", output: str = "f32") -> dx.CompiledKernel:
    """The kernel with `line`, which occurs once, replaced."""
    source = dx.render(dx.suggest_pipeline(tile((128, 256, 64)), depth=2, output=output))
    if line:
        assert source.text.count(line) == 1, f"the kernel no longer has the line {line!r}"
        source = source.model_copy(update={"text": source.text.replace(line, wrong)})
    return dx.compile(source)


def multiply(compiled: dx.CompiledKernel, device: EmulatedDevice) -> tuple[Any, Any]:
    """Four tiles on one CTA with two accumulators, five K blocks in two stages: every ring comes round."""
    random = np.random.default_rng(0)
    a = random.integers(-4, 5, (70, 320)).astype(ml_dtypes.bfloat16)
    b = random.integers(-4, 5, (780, 320)).astype(ml_dtypes.bfloat16).T
    return dx.Gemm(compiled, device)(a, b), a.astype(np.float32) @ b.astype(np.float32)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_kernel_as_it_is(schedule: str) -> None:
    device = EmulatedDevice(schedule=schedule, processors=1)
    result, expected = multiply(kernel(), device)
    assert (result == expected).all()
    assert device.last is not None
    assert device.last.hazards == ()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("what", BROKEN)
def test_one_wrong_line(what: str, schedule: str) -> None:
    line, wrong, says = BROKEN[what]
    compiled = kernel(line, wrong)
    with pytest.raises(EmulationError, match=says):
        multiply(compiled, EmulatedDevice(schedule=schedule, processors=1))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("what", STAGED)
def test_one_wrong_line_on_the_way_through_shared_memory(what: str, schedule: str) -> None:
    line, wrong, says = STAGED[what]
    random = np.random.default_rng(0)
    a, b = (random.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((70, 72), (272, 72)))
    with pytest.raises(EmulationError, match=says):
        dx.Gemm(kernel(line, wrong, "bf16"), EmulatedDevice(schedule=schedule, processors=1))(a, b.T)


class OtherSwizzle(EmulatedDevice):
    """Writes tiles of a into shared memory in another pattern than the MMA reads."""

    def launch(self, kernel: dx.CompiledKernel, launch: Launch, *, stream: object) -> None:
        a_map, *others = launch.arguments
        assert isinstance(a_map, TensorMapArgument)
        spec = a_map.spec.model_copy(update={"swizzle": Swizzle.NONE})
        wrong = replace(launch, arguments=(TensorMapArgument(a_map.operand, spec), *others))
        super().launch(kernel, wrong, stream=stream)


@pytest.mark.parametrize(
    ("compiled", "device"),
    [
        (lambda: kernel(), OtherSwizzle(processors=1)),
        (lambda: kernel("accumulate || step > 0", "true"), EmulatedDevice(processors=1)),
        (lambda: kernel("accumulate || step > 0", "step > 0"), EmulatedDevice(processors=1)),
        (lambda: kernel("kInstruction = 0x", "kInstruction = 0x2000 | 0x"), EmulatedDevice(processors=1)),
    ],
    ids=["another swizzle", "adds to what was there", "forgets the K blocks before", "A negated"],
)
def test_wrong_numbers(compiled: Any, device: EmulatedDevice) -> None:
    """What is no race is at least wrong, or refused."""
    try:
        result, expected = multiply(compiled(), device)
    except EmulationError:
        return
    assert (result != expected).any()
