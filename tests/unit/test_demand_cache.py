"""The cache of compiled kernels: many processes and threads, damage, full and foreign disks."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tiles import tile

import blasdx as dx
from blasdx import cache, compiler

pytestmark = pytest.mark.filterwarnings("ignore:.* is multi-threaded, use of fork:DeprecationWarning")

PROCESSES = 32
CUBIN, PTX, LOG = b"\x7fELF" + bytes(range(256)) * 400, "// PTX\n" * 9000, "ptxas info    : Used 96 registers"


@pytest.fixture(scope="module")
def source() -> dx.KernelSource:
    return dx.render(dx.suggest_pipeline(tile((64, 8, 64)), depth=1))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BLASDX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were really compiled, by a compiler that takes no time."""
    runs: list[str] = []
    monkeypatch.setattr(compiler, "_run_nvrtc", lambda source: runs.append(source.entry) or (CUBIN, PTX, LOG))
    return runs


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "entries").rglob("*") if path.is_file())


def temporary(folder: Path) -> list[Path]:
    return [path for path in (folder / "tmp").rglob("*") if path.is_file()]


# ---- many at once


def _start_together(gate: Any, answers: Any, source: dx.KernelSource) -> None:
    gate.wait()
    kernel = dx.compile(source)
    answers.put((kernel.cubin == CUBIN, kernel.ptx == PTX, kernel.log == LOG))


@pytest.mark.usefixtures("compilations")
def test_32_processes_that_start_at_once_all_get_the_kernel(source: dx.KernelSource, folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    gate, answers = context.Barrier(PROCESSES), context.Queue()
    children = [context.Process(target=_start_together, args=(gate, answers, source)) for _ in range(PROCESSES)]
    for child in children:
        child.start()
    got = [answers.get(timeout=60) for _ in children]
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * PROCESSES
    assert got == [(True, True, True)] * PROCESSES
    assert len(entries(folder)) == 4, "cubin, PTX, log and digest, once"
    assert temporary(folder) == []


def _die_in_mid_write(source: dx.KernelSource) -> None:
    os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    dx.compile(source)


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_to_trip_over(
    source: dx.KernelSource, folder: Path, compilations: list[str]
) -> None:
    child = multiprocessing.get_context("fork").Process(target=_die_in_mid_write, args=(source,))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert temporary(folder), "the child died with a file half way"
    assert entries(folder) == []
    assert dx.compile(source).cubin == CUBIN
    assert len(compilations) == 1
    assert dx.compile(source).cubin == CUBIN
    assert len(compilations) == 1


def test_threads_that_ask_for_one_kernel_share_one_compilation(
    folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [dx.render(dx.suggest_pipeline(tile((64, n, 64)), depth=1)) for n in (8, 16, 24, 32)]
    run = compiler._run_nvrtc
    arrived = threading.Barrier(len(sources))

    def together(source: dx.KernelSource) -> Any:
        arrived.wait(60)  # different kernels do compile at the same time, or this would never end
        return run(source)

    monkeypatch.setattr(compiler, "_run_nvrtc", together)
    gate, kernels = threading.Barrier(PROCESSES), {}

    def ask(number: int) -> None:
        gate.wait()
        kernels[number] = dx.compile(sources[number % len(sources)])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(PROCESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter(compilations) == {source.entry: 1 for source in sources}
    assert all(kernels[number].source == sources[number % len(sources)] for number in range(PROCESSES))


def test_a_forked_child_does_not_wait_for_its_parents_threads(source: dx.KernelSource, folder: Path) -> None:
    """A lock that another thread holds at the fork is never released in the child."""
    compiling, done = threading.Event(), threading.Event()

    def slow() -> None:
        with cache.one_at_a_time("key"):
            compiling.set()
            done.wait(60)

    thread = threading.Thread(target=slow)
    thread.start()
    compiling.wait(60)
    child = multiprocessing.get_context("fork").Process(target=cache.one_at_a_time("key").__enter__)
    child.start()
    child.join(60)
    done.set()
    thread.join(60)
    assert child.exitcode == 0


# ---- another process, another place


LOAD = """
import sys, time
import blasdx as dx
from blasdx import compiler
compiler._run_nvrtc = lambda source: sys.exit("NVRTC ran")
source = dx.KernelSource.model_validate_json(sys.stdin.read())
begin = time.perf_counter()
kernel = dx.compile(source)
print(time.perf_counter() - begin, len(kernel.cubin))
"""


def test_another_process_loads_what_one_compiled_even_from_a_copy_of_the_folder(
    source: dx.KernelSource, folder: Path, tmp_path: Path, compilations: list[str]
) -> None:
    dx.compile(source)
    copy = tmp_path / "carried elsewhere"
    shutil.copytree(folder, copy)
    shutil.rmtree(folder)
    result = subprocess.run(
        [sys.executable, "-c", LOAD],
        input=source.model_dump_json(),
        env={**os.environ, "BLASDX_CACHE_DIR": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    seconds, size = result.stdout.split()
    assert int(size) == len(CUBIN)
    assert float(seconds) < 0.5, "no compiler and no driver: some milliseconds"


def test_what_is_precompiled_is_found_in_the_order_that_was_asked_for(folder: Path, compilations: list[str]) -> None:
    sizes = [(64, 16, 64), (64, 8, 64), (64, 16, 64)]
    descriptor, plan, source = (
        tile(sizes[0]),
        dx.suggest_pipeline(tile(sizes[1])),
        dx.render(dx.suggest_pipeline(tile(sizes[2]))),
    )
    kernels = dx.precompile([descriptor, plan, source])
    assert [kernel.source.plan.descriptor.n for kernel in kernels] == [16, 8, 16]
    assert len(compilations) == 2, "the first and the last are one kernel"
    assert dx.compile(dx.render(dx.suggest_pipeline(descriptor))) == kernels[0]
    assert len(compilations) == 2


def test_nothing_is_compiled_where_one_of_many_has_no_kernel(folder: Path, compilations: list[str]) -> None:
    with pytest.raises(dx.GateError, match="block-dim"):
        dx.precompile([tile(), tile().with_(dx.BlockDim(256))])
    assert compilations == []
    assert dx.precompile([]) == ()


@pytest.mark.parametrize("name", ["with blanks", "été-日本", "x" * 200])
def test_any_name_of_a_folder(
    source: dx.KernelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, compilations: list[str]
) -> None:
    monkeypatch.setenv("BLASDX_CACHE_DIR", str(tmp_path / name / "deeper"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    for _ in range(2):
        assert dx.compile(source).cubin == CUBIN
    assert len(compilations) == 1


def test_without_home_and_without_the_variable_there_is_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("BLASDX_CACHE_DIR", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert cache.cache_folder().name == "blasdx"


# ---- damage


@pytest.mark.parametrize("content", [CUBIN, PTX.encode(), LOG.encode()], ids=["cubin", "ptx", "log"])
@pytest.mark.parametrize(
    "damage",
    [lambda whole: whole[: len(whole) // 2], lambda whole: whole[:-1] + b"?", lambda whole: b"", None],
    ids=["half", "one-byte", "empty", "gone"],
)
def test_an_entry_that_is_not_what_was_written_is_compiled_anew(
    source: dx.KernelSource, folder: Path, compilations: list[str], content: bytes, damage: Any
) -> None:
    dx.compile(source)
    (entry,) = (path for path in entries(folder) if path.read_bytes() == content)
    if damage is None:
        entry.unlink()
    else:
        entry.write_bytes(damage(content))
    for _ in range(2):
        kernel = dx.compile(source)
        assert (kernel.cubin, kernel.ptx, kernel.log) == (CUBIN, PTX, LOG)
    assert len(compilations) == 2, "once more, and then it is whole again"


# ---- disks that fail


def _failing(monkeypatch: pytest.MonkeyPatch, number: int, times: float = float("inf")) -> list[int]:
    """Let os.replace fail; the failures so far."""
    failures: list[int] = []
    replace = os.replace

    def fail(*names: Any) -> None:
        if len(failures) < times:
            failures.append(number)
            raise OSError(number, os.strerror(number))
        replace(*names)

    monkeypatch.setattr(os, "replace", fail)
    return failures


@pytest.mark.parametrize("name", ["EEXIST", "ESTALE", "EXDEV", "EACCES", "EROFS", "ENOSPC", "EDQUOT", "EIO"])
def test_a_disk_that_takes_nothing_costs_one_warning_and_memory_serves(
    source: dx.KernelSource, folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    number = getattr(errno, name)
    _failing(monkeypatch, number)
    other = dx.render(dx.suggest_pipeline(tile((64, 16, 64)), depth=1))
    with pytest.warns(UserWarning, match=rf"could not write.*{os.strerror(number)}.*BLASDX_CACHE_DIR") as told:
        kernels = [dx.compile(one) for one in (source, source, other, source)]
    assert len(told) == 1
    assert {kernel.cubin for kernel in kernels} == {CUBIN}
    assert len(compilations) == 2, "one for each kernel"


def test_a_stale_handle_is_tried_again(
    source: dx.KernelSource, folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _failing(monkeypatch, errno.ESTALE, times=cache.ATTEMPTS - 1) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dx.compile(source)
    assert len(entries(folder)) == 4


def test_a_folder_that_may_only_be_read_still_serves_what_is_in_it(
    source: dx.KernelSource, folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dx.compile(source)
    _failing(monkeypatch, errno.EROFS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dx.compile(source).cubin == CUBIN
    assert len(compilations) == 1


def test_reading_that_fails_means_compiling(
    source: dx.KernelSource, folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dx.compile(source)

    def broken(*_: Any) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(cache.FileStreamProgramCache, "get", broken)
    assert dx.compile(source).cubin == CUBIN
    assert len(compilations) == 2


def test_a_file_in_the_way_costs_one_warning_and_memory_serves(
    source: dx.KernelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    occupied = tmp_path / "occupied"
    occupied.write_text("a file")
    monkeypatch.setenv("BLASDX_CACHE_DIR", str(occupied))
    with pytest.warns(UserWarning, match="without a cache.*occupied.*kept in memory") as told:
        assert len({dx.compile(source).cubin for _ in range(3)}) == 1
    assert (len(told), len(compilations)) == (1, 1)


# ---- what the compiler says of a kernel


def test_a_kernel_that_the_compiler_made_slow_says_so(
    source: dx.KernelSource, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Serialised MMAs and spills: in the call that compiled, in one that found the kernel in the cache, and on it."""
    log = (
        "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
        "ptxas         .     8 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads"
    )
    monkeypatch.setattr(compiler, "_run_nvrtc", lambda source: (CUBIN, PTX, log))
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"right but slow: \(C7511\).*serialized; 8 bytes spill stores, 16"):
            kernel = dx.compile(source)
    assert len(kernel.complaints) == 2


def test_serialised_wgmma_is_noticed_in_a_real_compilation() -> None:
    """An accumulator that is read between two MMAs makes ptxas wait for each of them."""
    whole = dx.render(dx.suggest_pipeline(tile((64, 64, 64), sm=900), depth=2))
    read, changed = re.subn(r"(\bwgmma\((acc\.block[^,]*),.*;)", r"\1 ++\2[0];", whole.text)
    assert changed == 1
    with pytest.warns(UserWarning, match="wgmma.mma_async instructions are serialized"):
        dx.compile(whole.model_copy(update={"text": read}), cache=False)
    assert dx.compile(whole).complaints == ()


def test_a_folder_may_begin_with_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BLASDX_CACHE_DIR", "~/kernels")
    assert cache.cache_folder() == tmp_path / "kernels"
