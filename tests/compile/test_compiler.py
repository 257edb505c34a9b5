"""The compiler's refusals and its cache."""

from __future__ import annotations

import subprocess
import sys

import pytest

import blasdx as dx
from blasdx import cache, compiler
from blasdx.compiler import CompiledKernel
from blasdx.errors import CompileError, SassError, UnsupportedToolkitError
from tests.golden.cases import CASES


@pytest.fixture(scope="module")
def source():
    return dx.render(dx.suggest_pipeline(CASES["bf16_192x128x64_nn"]))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BLASDX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch):
    """How often NVRTC really ran."""
    runs = []
    run = compiler._run_nvrtc
    monkeypatch.setattr(compiler, "_run_nvrtc", lambda source: runs.append(source.entry) or run(source))
    return runs


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def retarget(source, **plan_fields):
    return source.model_copy(update={"plan": source.plan.model_copy(update=plan_fields)})


def test_a_plain_target_is_refused_before_the_compiler_sees_it(source, compilations):
    with pytest.raises(CompileError, match=r"sm_103 has no utcmma instructions.*architecture-specific.*sm_103a"):
        dx.compile(retarget(source, target="sm_103"))
    with pytest.raises(CompileError, match="sm_103f"):
        dx.compile(retarget(source, target="sm_103f"))
    assert compilations == []


def test_an_old_nvrtc_is_named(monkeypatch, folder, compilations):
    rubin = dx.render(dx.suggest_pipeline(CASES["bf16_128x256x64_tn"].with_(dx.SM(1070, dx.arch_specific))))
    monkeypatch.setattr(compiler, "nvrtc_version", lambda: (13, 2))
    with pytest.raises(
        UnsupportedToolkitError, match=r"sm_107a needs NVRTC 13\.4 or newer; this environment has 13\.2"
    ):
        dx.compile(rubin)
    assert compilations == []


def test_a_compiler_error_shows_the_rendered_lines(source, folder):
    broken = source.model_copy(update={"text": source.text.replace("ring.advance();", "ring.retreat();", 1)})
    with pytest.raises(CompileError, match=r'has no member "retreat"') as caught:
        dx.compile(broken)
    assert "> " in str(caught.value)
    assert "ring.retreat();" in str(caught.value).split("\n\n")[-1]
    assert "retreat" in caught.value.log
    assert files(folder) == []


def test_the_second_compilation_is_a_look_up(source, folder, compilations):
    first = dx.compile(source)
    second = dx.compile(source)
    assert first == second
    assert len(compilations) == 1
    assert sum(path.read_bytes() == first.cubin for path in files(folder)) == 1


def test_without_cache_nothing_is_written(source, folder, compilations):
    dx.compile(source, cache=False)
    assert len(compilations) == 1
    assert not folder.exists()


def test_another_text_another_version_another_target_are_other_entries(source, folder, compilations, monkeypatch):
    dx.compile(source)
    dx.compile(source.model_copy(update={"text": source.text + "\n"}))
    dx.compile(retarget(source, target="sm_100a"))
    monkeypatch.setattr(compiler, "nvrtc_version", lambda: (13, 99))
    dx.compile(source)
    assert len(compilations) == 4


@pytest.mark.parametrize("damage", [b"", b"\x7fEL", b"no machine code at all"])
def test_a_damaged_entry_is_compiled_anew(source, folder, compilations, damage):
    good = dx.compile(source)
    (entry,) = (path for path in files(folder) if path.read_bytes() == good.cubin)
    entry.write_bytes(damage)
    assert dx.compile(source) == good
    assert len(compilations) == 2


def test_a_folder_that_cannot_be_used_costs_a_warning(source, tmp_path, monkeypatch, compilations):
    occupied = tmp_path / "a file"
    occupied.write_text("in the way")
    monkeypatch.setenv("BLASDX_CACHE_DIR", str(occupied))
    with pytest.warns(UserWarning, match="without a cache.*a file"):
        dx.compile(source)
    assert len(compilations) == 1


def test_a_write_that_fails_costs_a_warning(source, folder, monkeypatch, compilations):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.FileStreamProgramCache, "__setitem__", full)
    with pytest.warns(UserWarning, match="No space left"):
        kernel = dx.compile(source)
    kernel.prove()


def test_the_cache_lies_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv("BLASDX_CACHE_DIR", str(tmp_path))
    assert cache.cache_folder() == tmp_path
    monkeypatch.delenv("BLASDX_CACHE_DIR")
    assert cache.cache_folder().name == "blasdx"


def test_the_version_without_loading_is_the_version_after_loading():
    ask = "from blasdx.compiler import nvrtc_version, _is_loaded; print(_is_loaded('libnvrtc.so.13'), nvrtc_version())"
    before = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    load = "from cuda.bindings import nvrtc; nvrtc.nvrtcVersion(); "
    after = subprocess.run([sys.executable, "-c", load + ask], capture_output=True, text=True, check=True).stdout
    assert before.split(maxsplit=1)[0] == "False"
    assert after.split(maxsplit=1)[0] == "True"
    assert before.split(maxsplit=1)[1] == after.split(maxsplit=1)[1]


def test_a_kernel_is_a_value(source):
    kernel = dx.compile(source)
    assert CompiledKernel.model_validate_json(kernel.model_dump_json()) == kernel
    assert kernel.entry in str(kernel)


# ---- machine code --------------------------------------------------------------------------------------------------


def test_require_says_what_is_there_instead(source):
    sass = dx.compile(source).sass
    assert sass.require(r"UTC[A-Z]*MMA", count=12) == 12
    with pytest.raises(SassError, match=r"0 instructions matching UTCQMMA, wanted at least one.*12 x UTCHMMA"):
        sass.require("UTCQMMA")
    with pytest.raises(SassError, match=r"12 instructions .* wanted 4"):
        sass.require(r"UTC[A-Z]*MMA", count=4)
    with pytest.raises(SassError, match="wanted none"):
        sass.forbid("UTCHMMA")
    assert sass.count("HMMA") == 0  # the name of a tcgen05 instruction contains it


def test_a_kernel_with_other_mmas_than_planned_is_not_proven(source):
    kernel = dx.compile(source)
    mma = source.plan.mma.model_copy(update={"unrolled": 5})
    promised = kernel.model_copy(update={"source": retarget(source, mma=mma)})
    with pytest.raises(SassError, match="12 instructions matching UTCHMMA, wanted 15"):
        promised.prove()


def test_bytes_that_are_no_cubin():
    with pytest.raises(SassError, match="does not read the cubin"):
        dx.sass.Sass.of(b"not machine code")
