"""What is shipped works: sdist -> wheel -> a folder of its own -> a rendered kernel."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python(*arguments: str, cwd: Path, **environment: str) -> str:
    run = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment or None, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def build(target: str, source: Path, into: Path) -> Path:
    """Build with the back end itself, as pip would without its isolated environment."""
    code = f"import sys, hatchling.build; print(hatchling.build.build_{target}(sys.argv[1]))"
    return into / python("-c", code, str(into), cwd=source).split()[-1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """blasdx as a user gets it: from a wheel that was built from the sdist, without its dependencies."""
    work = tmp_path_factory.mktemp("packaging")
    with tarfile.open(build("sdist", ROOT, work)) as archive:
        archive.extractall(work / "source", filter="data")
    (source,) = (work / "source").iterdir()
    wheel = build("wheel", source, work)
    site = work / "site"
    quietly = ("--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    python("-m", "pip", "install", *quietly, "--target", str(site), str(wheel), cwd=work)
    return site


def files_under(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def test_wheel_holds_package_templates_and_licence(installed: Path) -> None:
    assert (installed / "blasdx" / "py.typed").is_file()
    assert files_under(ROOT / "templates")
    assert files_under(installed / "blasdx" / "templates") == files_under(ROOT / "templates")
    assert list(installed.glob("blasdx-*.dist-info/licenses/LICENSE"))


def test_a_kernel_renders_from_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    code = f"""
import pathlib
import blasdx as dx
assert pathlib.Path(dx.__file__).is_relative_to({str(installed)!r}), dx.__file__
tile = (
    dx.Size(128, 64, 64) + dx.Precision("bf16", "bf16", "f32") + dx.Type("real") + dx.Function("MM")
    + dx.Arrangement("row", "col", "row") + dx.Block() + dx.BlockDim(128) + dx.MaxAlignment() + dx.WithPipeline()
    + dx.EnableInputStreaming() + dx.SM(1000, "arch_specific")
)
print(dx.render(dx.suggest_pipeline(tile, depth=2)).text)
"""
    text = python("-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert "tcgen05.mma" in text
    assert "#include" not in text
