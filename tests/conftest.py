"""What every suite shares: a cache of its own, the reference data, and the choice of NVRTC."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

from tests.nvrtc import preload

hypothesis.settings.register_profile("blasdx", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("blasdx")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nvrtc",
        metavar="FOLDER",
        help="compile with the NVRTC found under FOLDER (as left by pip install --target) instead of the environment's",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the NVRTC of ``--nvrtc`` first: cuda.pathfinder takes the one that the process already holds."""
    if folder := config.getoption("--nvrtc"):
        preload(Path(folder))


def pytest_report_header() -> str:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    data = os.environ.get("BLASDX_REFERENCE_DATA", "not set: tests against it skip")
    return f"blasdx: NVRTC {major}.{minor}; BLASDX_REFERENCE_DATA {data}"


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One kernel cache for a run and its workers, so that no result rests on what an earlier run left behind."""
    root = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        root = root.parent
    os.environ["BLASDX_CACHE_DIR"] = str(root / "blasdx-cache")
    return root / "blasdx-cache"


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """The folder with cuBLASDx's observed paths and the kernels of other compilers."""
    folder = os.environ.get("BLASDX_REFERENCE_DATA")
    if not folder:
        pytest.skip("BLASDX_REFERENCE_DATA is not set: it names the folder with cuBLASDx's observed paths")
    path = Path(folder)
    assert path.is_dir(), f"BLASDX_REFERENCE_DATA={folder} is no folder"
    return path
