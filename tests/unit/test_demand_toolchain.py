"""Machines as they are: stale variables, several toolkits or none, old compilers, forks, an empty PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx import compiler
from blasdx.devices.emulated import EmulatedDevice
from blasdx.devices.protocol import Launch

COMPILE = """
import blasdx as dx
from tiles import tile
kernel = dx.compile(dx.render(dx.suggest_pipeline(tile((64, 8, 64)), depth=1)), cache=False)
print(kernel.prove())
"""


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new process, from the folder above the tests."""
    root = Path(__file__).parents[2]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA", "CONDA"))}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**kept, "PYTHONPATH": os.pathsep.join((str(root), str(root / "tools"))), **environment},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


# ---- compilers


@pytest.mark.parametrize("sm", [900, 1000])
def test_a_rendered_kernel_needs_no_headers(sm: int) -> None:
    text = dx.render(dx.suggest_pipeline(tile(sm=sm), depth=2)).text
    assert "#include" not in text
    assert "std::" not in text


def test_stale_variables_an_empty_path_and_no_toolkit_change_nothing(tmp_path: Path) -> None:
    """NVRTC and nvdisasm come with wheels; nothing is looked for where a toolkit once was."""
    gone = str(tmp_path / "gone")
    result = python(COMPILE, PATH="", CUDA_PATH=gone, CUDA_HOME=gone, CONDA_PREFIX=gone, TMPDIR=str(tmp_path))
    assert (result.returncode, result.stdout.strip()) == (0, "4"), result.stderr


@pytest.mark.parametrize("version", [(12, 0), (12, 8), (12, 9)])
@pytest.mark.parametrize("sm", [900, 1000])
def test_compilers_before_13_are_refused_with_both_versions(
    version: tuple[int, int], sm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12.8 and 12.9 miscompile tcgen05 and wgmma kernels in rare cases."""
    monkeypatch.setattr(compiler, "nvrtc_version", lambda: version)
    monkeypatch.setattr(compiler, "_run_nvrtc", lambda source: pytest.fail("compiled all the same"))
    source = dx.render(dx.suggest_pipeline(tile(sm=sm), depth=2))
    told = rf"needs NVRTC 13\.0 or newer; this environment has {version[0]}\.{version[1]}: pip install"
    for cache in (True, False):
        with pytest.raises(dx.UnsupportedToolkitError, match=told) as caught:
            dx.compile(source, cache=cache)
        assert (caught.value.found, caught.value.needed) == (version, (13, 0))


@pytest.mark.parametrize("sm", [900, 1000])
def test_a_kernel_is_found_by_a_name_that_no_compiler_mangles(sm: int) -> None:
    """By name and not by looking for the only symbol: a device assert would bring a second one."""
    source = dx.render(dx.suggest_pipeline(tile((64, 8, 64), sm=sm), depth=1))
    kernel = dx.compile(source)
    assert 'extern "C" __global__ void __launch_bounds__' in source.text.replace("\n", " ")
    assert f".entry {kernel.entry}(" in kernel.ptx
    assert f".text.{kernel.entry}\0".encode() in kernel.cubin


def test_a_kernel_is_machine_code_for_its_chip_that_no_driver_has_to_compile() -> None:
    kernel = dx.compile(dx.render(dx.suggest_pipeline(tile((64, 8, 64)), depth=1)))
    assert kernel.cubin[:4] == b"\x7fELF"
    assert int.from_bytes(kernel.cubin[18:20], "little") == 190, "EM_CUDA"


# ---- processes


IMPORT = """
import sys
import blasdx
loaded = open("/proc/self/maps").read()
print(*[name for name in ("libcuda.so", "libnvrtc", "libcudart") if name in loaded])
print(*[name for name in ("cupy", "torch", "jax", "blasdx.emulator") if name in sys.modules])
"""


@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="looks at the libraries of a process where Linux lists them"
)
def test_importing_loads_no_driver_no_compiler_and_no_array_library() -> None:
    result = python(IMPORT)
    assert (result.returncode, result.stdout) == (0, "\n\n"), result.stderr + result.stdout


FORK = """
import os
import blasdx as dx
import numpy as np
from tiles import tile
child = os.fork()
if not child:
    a, b = (np.ones(shape, dx.bf16.numpy_dtype) for shape in ((3, 16), (5, 16)))
    right = (dx.gemm(tile((64, 8, 64)), a, b.T, depth=1, device="emulator") == 16).all()
    os._exit(0 if right else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_that_is_forked_after_the_import_can_do_everything() -> None:
    result = python(FORK)
    assert result.stdout.strip() == "0", result.stderr


# ---- one kernel, every size


class Counting(EmulatedDevice):
    """Launches nothing."""

    def launch(self, kernel: Any, launch: Launch, *, stream: object) -> None:
        launch.writes.array[...] = 0


def test_forty_sizes_are_one_compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLASDX_CACHE_DIR", str(tmp_path))
    runs: list[str] = []
    compiled = b"\x7fELF", "// PTX", "log"
    monkeypatch.setattr(compiler, "_run_nvrtc", lambda source: runs.append(source.text) or compiled)
    for m in range(1, 41):
        a, b = np.zeros((m, 8 * m), ml_dtypes.bfloat16), np.zeros((200 - m, 8 * m), ml_dtypes.bfloat16).T
        assert dx.gemm(tile(), a, b, depth=2, device=Counting()).shape == (m, 200 - m)
    assert len(runs) == 1
    assert len([path for path in (tmp_path / "entries").rglob("*") if path.is_file()]) == 4
