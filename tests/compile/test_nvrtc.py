"""The option ``--nvrtc`` really changes the compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda.bindings import nvrtc


def test_the_chosen_nvrtc_is_the_one_in_use(request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--nvrtc")
    if not folder:
        pytest.skip("without --nvrtc the environment's own NVRTC is in use")
    _, *version = nvrtc.nvrtcVersion()
    (builtins,) = sorted(Path(folder).rglob("libnvrtc-builtins.so.*"))
    assert builtins.name == "libnvrtc-builtins.so." + ".".join(map(str, version))
