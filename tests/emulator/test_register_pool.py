"""setmaxnreg: what warps hand back is what others can claim."""

from __future__ import annotations

import numpy as np
import pytest

from blasdx.emulator import DeadlockError, EmulationError, GlobalMemory, Module
from tests.emulator.toolchain import ptx

SOURCE = """
extern "C" __global__ void __launch_bounds__(THREADS) k(unsigned* out) {
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(INC));
    out[threadIdx.x] = 1;
  } else {
    for (int i = 0; i < 100; ++i) __nanosleep(10);
    out[threadIdx.x] = 2;
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(DEC));
  }
}
"""


def run(threads: int, inc: int, dec: int, **options: int) -> np.ndarray:
    # ptxas refuses pairs that make no sense, so they are put into legal PTX afterwards.
    text = ptx(SOURCE, f"THREADS={threads}", "INC=224", "DEC=96", arch="sm_90a")
    text = text.replace("aligned.u32 224", f"aligned.u32 {inc}").replace("aligned.u32 96", f"aligned.u32 {dec}")
    memory = GlobalMemory()
    out = memory.upload(np.zeros(threads, np.uint32))
    Module.from_ptx(text).get_function("k").launch(grid=(1,), block=(threads,), memory=memory, args=[out], **options)
    return out.read()


def test_a_claim_waits_for_what_others_hand_back() -> None:
    # 512 threads are launched with 128 registers each: 3 x 128 x (128 - 96) are free for 128 x (224 - 128).
    got = run(512, 224, 96)
    assert (got[:128] == 1).all()
    assert (got[128:] == 2).all()


def test_a_claim_beyond_what_comes_back_hangs_and_says_the_arithmetic() -> None:
    with pytest.raises(DeadlockError, match=r"launched with 16 warps x 32 x 128 = 65536, of which its warps hold \d+"):
        run(512, 232, 104)


def test_a_claim_beyond_the_launch_can_never_be_met() -> None:
    with pytest.raises(DeadlockError, match=r"32 x 64 = 16384.*Even if the other 4 warps went down to 24"):
        run(256, 232, 24, registers=64)


def test_directions() -> None:
    with pytest.raises(EmulationError, match=r"setmaxnreg\.dec to 96 by .*, which has 64 a thread"):
        run(256, 64, 96, registers=64)
    with pytest.raises(EmulationError, match=r"setmaxnreg\.inc to 64 by .*, which has 128 a thread"):
        run(256, 64, 96, registers=128)
