"""Every example runs as it stands, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path) -> None:
    run = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout


def test_the_guide_shows_the_kernel_that_runs() -> None:
    root = Path(__file__).parents[2]
    (kernel,) = re.findall(r'KERNEL = r"""\n(.*?)"""', (root / "examples" / "own_kernel.py").read_text(), re.DOTALL)
    assert f"```cpp\n{kernel}```" in (root / "docs" / "device-library.md").read_text(encoding="utf-8")


def test_there_are_examples() -> None:
    assert EXAMPLES


def test_the_readme_does_what_it_says() -> None:
    """Its Python, with operands from NumPy, on the emulator."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    block, more = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = f"""
import ml_dtypes, numpy as np
a = np.ones((5, 64), ml_dtypes.bfloat16)
b = np.ones((7, 64), ml_dtypes.bfloat16).T
{block}
assert plan.block_dim == 192 and plan.smem_total == 196_708 and plan.accumulator_stages == 2
assert gemm.device.to_host(c).tolist() == [[128.0] * 7] * 5
bias = np.arange(7).astype(ml_dtypes.bfloat16)
{more}
assert gemm.device.to_host(c).astype(float).tolist() == [[128.0 + n for n in range(7)]] * 5
"""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
