"""Products of the very kernels that are shipped, in the emulator, against float64.

Bit-exact on small integers; within K * 2^-23 * sum|a||b| on normal numbers, plus the rounding of alpha and beta.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.operands import padded

SCHEDULES = ("eager", "lazy", "adversarial", "random")
ORDERS = tuple(product(("row", "col"), repeat=2))


@cache
def kernel(size: tuple[int, int, int], element: str, a: str, b: str, c: str, depth: int | None) -> dx.CompiledKernel:
    return dx.compile(dx.render(dx.suggest_pipeline(tile(size, element, a=a, b=b, c=c), depth=depth)))


class Problem:
    """Operands of one kernel, integers or normal numbers, and what float64 makes of them."""

    def __init__(self, compiled: dx.CompiledKernel, m: int, n: int, k: int, *, integers: bool, seed: int = 0) -> None:
        self.kernel, self.integers = compiled, integers
        descriptor = compiled.source.plan.descriptor
        random = np.random.default_rng(seed)

        def draw(rows: int, columns: int, element: dx.Element, order: object) -> Any:
            numbers = random.integers(-8, 9, (rows, columns)) if integers else random.standard_normal((rows, columns))
            return padded(numbers.astype(element.numpy_dtype), order)

        self.a = draw(m, k, descriptor.precision.a, descriptor.arrangement.a)
        self.b = draw(k, n, descriptor.precision.b, descriptor.arrangement.b)
        self.c = draw(m, n, descriptor.precision.c, descriptor.arrangement.c)

    def check(self, result: Any, alpha: float = 1.0, beta: float = 0.0) -> None:
        a, b, c = (matrix.astype(np.float64) for matrix in (self.a, self.b, self.c))
        true = alpha * (a @ b) + (beta * c if beta else 0)
        if self.integers:
            np.testing.assert_array_equal(result, true)
            return
        bound = abs(alpha) * a.shape[1] * 2.0**-23 * (np.abs(a) @ np.abs(b))
        if (alpha, beta) != (1, 0):
            bound += 2.0**-22 * (np.abs(true) + np.abs(beta * c))
        assert (np.abs(result - true) <= bound).all()


def device(schedule: str, processors: int = 2) -> EmulatedDevice:
    return EmulatedDevice(schedule=schedule, processors=processors)  # hazards of severity "error" are raised


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("a", "b"), ORDERS)
@pytest.mark.parametrize("integers", [True, False], ids=["integers", "normals"])
def test_every_majorness_under_every_schedule(a: str, b: str, schedule: str, integers: bool) -> None:
    """Four tiles on two CTAs, so that an epilogue overlaps the next tile's MMAs; three K blocks in two stages."""
    problem = Problem(kernel((128, 64, 64), "bf16", a, b, "row", 2), 131, 75, 139, integers=integers)
    gemm = dx.Gemm(problem.kernel, device(schedule))
    problem.check(gemm(problem.a, problem.b))


@pytest.mark.parametrize("c", ["row", "col"])
@pytest.mark.parametrize(("a", "b"), ORDERS)
@pytest.mark.parametrize("m", [64, 192, 256])
def test_every_block_shape(m: int, a: str, b: str, c: str) -> None:
    compiled = kernel((m, 64, 64), "f16", a, b, c, None)
    problem = Problem(compiled, m + 37, 71, 67, integers=True)
    problem.check(dx.Gemm(compiled, device("random"))(problem.a, problem.b))


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (-1.5, 0.5), (0.25, -2), (3, 0)])
@pytest.mark.parametrize("c", ["row", "col"])
@pytest.mark.parametrize("integers", [True, False], ids=["integers", "normals"])
def test_alpha_and_beta(alpha: float, beta: float, c: str, integers: bool) -> None:
    problem = Problem(kernel((128, 64, 64), "bf16", "row", "col", c, 2), 129, 67, 70, integers=integers)
    gemm = dx.Gemm(problem.kernel, device("random"))
    before = problem.c.copy()
    problem.check(gemm(problem.a, problem.b, problem.c, alpha=alpha, beta=beta), alpha, beta)
    assert (problem.c == before).all()
    result = gemm(problem.a, problem.b, problem.c, alpha=alpha, beta=beta, out=problem.c)
    assert result is problem.c
    problem.c = before
    problem.check(result, alpha, beta)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 130, 65), (257, 1, 3), (128, 64, 64), (5, 7, 200)])
def test_tiny_and_even_sizes(m: int, n: int, k: int) -> None:
    problem = Problem(kernel((128, 64, 64), "bf16", "row", "col", "row", 2), m, n, k, integers=True)
    problem.check(dx.Gemm(problem.kernel, device("random"))(problem.a, problem.b))


@pytest.mark.parametrize("c", ["row", "col"])
@pytest.mark.parametrize("shift", [0, 1])
def test_nothing_outside_the_result_is_written(c: str, shift: int) -> None:
    """A result inside a wider matrix, at an address that allows no vector stores too."""
    problem = Problem(kernel((128, 64, 64), "bf16", "row", "col", c, 2), 131, 75, 64, integers=True)
    wide = np.full((200, 120), -77, np.float32, order="C" if c == "row" else "F")
    out = wide[3 : 3 + 131, 4 + shift : 4 + shift + 75]
    problem.check(dx.Gemm(problem.kernel, device("random"))(problem.a, problem.b, out=out))
    outside = np.ones(wide.shape, bool)
    outside[3 : 3 + 131, 4 + shift : 4 + shift + 75] = False
    assert (wide[outside] == -77).all()


def test_operands_inside_wider_matrices() -> None:
    """What lies beside an operand, NaN here, is not read."""
    problem = Problem(kernel((128, 64, 64), "bf16", "row", "row", "row", 2), 131, 75, 70, integers=True)
    for name in ("a", "b"):
        matrix = getattr(problem, name)
        wide = np.full((matrix.shape[0] + 2, 160), np.nan, matrix.dtype)
        wide[1 : 1 + matrix.shape[0], 8 : 8 + matrix.shape[1]] = matrix
        setattr(problem, name, wide[1 : 1 + matrix.shape[0], 8 : 8 + matrix.shape[1]])
    problem.check(dx.Gemm(problem.kernel, device("random"))(problem.a, problem.b))


def test_gemm_in_one_call() -> None:
    problem = Problem(kernel((128, 64, 64), "bf16", "row", "col", "row", 2), 5, 7, 16, integers=True)
    descriptor = problem.kernel.source.plan.descriptor
    problem.check(dx.gemm(descriptor, problem.a, problem.b, depth=2, device="emulator"))
