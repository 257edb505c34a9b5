"""CUDA C++ to PTX for the emulator's own tests: NVRTC assembles too, so the PTX is known to be legal."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cuda.bindings import nvrtc

HERE = Path(__file__).parent


@lru_cache(maxsize=64)
def ptx(source: str, *defines: str, arch: str = "sm_100a", options: tuple[str, ...] = ()) -> str:
    """Compile `source` (CUDA C++) for `arch`.

    The PTX comes from a run that also made a cubin; ptxas therefore accepted it.
    """
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"test.cu", 0, [], [])
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    flags = [f"--gpu-architecture={arch}", "--std=c++17", *options, *(f"-D{d}" for d in defines)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [f.encode() for f in flags])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytes(max(size, 2))  # CPython shares bytes of length 1, and NVRTC writes into what it is given
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    _, cubin = nvrtc.nvrtcGetCUBINSize(program)
    assert cubin > 0
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = bytes(max(size, 2))
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return text.rstrip(b"\0").decode()


def source(name: str) -> str:
    """A CUDA file beside this one."""
    return (HERE / "kernels" / name).read_text()
