"""Choosing the NVRTC of a process."""

from __future__ import annotations

import ctypes
from pathlib import Path


def preload(folder: Path) -> tuple[int, int]:
    """Load the NVRTC under `folder` and return its version; from then on the process compiles with it.

    cuda.bindings opens the library through cuda.pathfinder, which first asks the dynamic loader whether
    ``libnvrtc.so.13`` is loaded already. The builtins library beside it is loaded too, because NVRTC opens that
    one by its bare name.
    """
    (library,) = sorted(folder.rglob("libnvrtc.so.13"))
    for builtins in sorted(library.parent.glob("libnvrtc-builtins.so.13.*")):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    major, minor = ctypes.c_int(), ctypes.c_int()
    loaded.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))

    from cuda.bindings import nvrtc

    _, *used = nvrtc.nvrtcVersion()
    wanted = (major.value, minor.value)
    if tuple(used) != wanted:
        raise RuntimeError(f"NVRTC {wanted} was loaded from {library}, but cuda.bindings uses {tuple(used)}")
    return wanted
