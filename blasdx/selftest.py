"""A small set of products on whatever is present, against float64, as one JSON report.

On a GPU the report is the only thing that can contradict the emulator; on the emulator it says what a GPU should find.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from blasdx import arch
from blasdx.codegen import render
from blasdx.compiler import compile
from blasdx.descriptor import Descriptor
from blasdx.devices import Device, select
from blasdx.devices.driver import current_sm
from blasdx.environment import environment
from blasdx.gemm import Gemm
from blasdx.operands import padded
from blasdx.operators import (
    MM,
    SM,
    Arrangement,
    Block,
    BlockDim,
    EnableInputStreaming,
    Function,
    MaxAlignment,
    Precision,
    Size,
    Type,
    WithPipeline,
    arch_specific,
    real,
)
from blasdx.pipeline import suggest_pipeline


class Case(BaseModel):
    """One product: a tile, a problem size, and the scalars."""

    model_config = ConfigDict(frozen=True)

    descriptor: Descriptor
    m: int
    n: int
    k: int
    alpha: float = 1.0
    beta: float = 0.0


class Outcome(BaseModel):
    """What became of a case.

    Attributes
    ----------
    exact_errors : int
        Elements that differ from the true result for inputs that are small integers, where f32 sums are exact.
    worst : float
        Largest error for random inputs, as a fraction of the bound K * 2^-23 * sum |a| |b| (scaled by alpha, plus the
        rounding of the final sum). At most 1 is right.
    seconds : float
        Wall time of both products, transfers and the emulator included.
    error : str
        What was raised instead of a result.
    """

    model_config = ConfigDict(frozen=True)

    case: Case
    kernel: str = ""
    exact_errors: int | None = None
    worst: float | None = None
    seconds: float = 0.0
    error: str = ""

    @property
    def passed(self) -> bool:
        """Exact on integers and within the bound on random inputs."""
        return not self.error and self.exact_errors == 0 and self.worst is not None and self.worst <= 1

    def __str__(self) -> str:
        case, tile = self.case, self.case.descriptor
        order = "".join(letter.value[0] for letter in (tile.arrangement.a, tile.arrangement.b, tile.arrangement.c))
        return (
            f"{'ok  ' if self.passed else 'FAIL'} {case.m:4} x {case.n:4} x {case.k:4}  {tile.precision.a} {order} "
            f"tile {tile.m} x {tile.n} x {tile.k}, alpha {case.alpha}, beta {case.beta}: "
            + (self.error or f"{self.exact_errors} wrong, {self.worst:.3f} of the bound, {self.seconds:.2f} s")
        )


class Report(BaseModel):
    """Where the cases ran, and what became of them."""

    model_config = ConfigDict(frozen=True)

    device: str
    sm: int
    seed: int
    environment: dict[str, str]
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Every case did."""
        return bool(self.outcomes) and all(outcome.passed for outcome in self.outcomes)

    def __str__(self) -> str:
        good = sum(outcome.passed for outcome in self.outcomes)
        return "\n".join([*map(str, self.outcomes), f"{good} of {len(self.outcomes)} passed on {self.device}"])


def cases(sm: int, processors: int) -> Iterator[Case]:
    """Both input types, all majornesses, every block shape, ragged sizes, alpha and beta, CTAs with several tiles."""

    def tile(size: Size, element: str, a: str, b: str, c: str) -> Descriptor:
        return (
            size
            + Precision(element, element, "f32")
            + Type(real)
            + Function(MM)
            + Arrangement(a, b, c)
            + Block()
            + block_dim(sm, size.m)
            + MaxAlignment()
            + WithPipeline()
            + EnableInputStreaming()
            + SM(sm, arch_specific)
        )

    def case(size: Size, element: str, orders: str, mnk: tuple[int, int, int], alpha: float, beta: float) -> Case:
        m, n, k = mnk
        return Case(descriptor=tile(size, element, *orders.split()), m=m, n=n, k=k, alpha=alpha, beta=beta)

    yield case(Size(128, 256, 64), "bf16", "row col row", (256, 512, 192), 1, 0)
    yield case(Size(128, 256, 64), "bf16", "row col row", (201, 301, 99), -1.5, 0.5)
    yield case(Size(64, 128, 64), "f16", "col col col", (77, 131, 65), 2, 0)
    yield case(Size(192, 64, 64), "f16", "row row row", (193, 70, 130), 1, 1)
    yield case(Size(256, 128, 64), "bf16", "col row col", (300, 140, 70), 0.25, -2)
    # Two tiles for most CTAs and a third for one: their epilogues overlap the MMAs of the next tile.
    yield case(Size(128, 64, 64), "f16", "row col row", (99, (2 * processors + 1) * 64 - 3, 200), 1, 0)


def selftest(device: Device | str | None = None, *, seed: int = 0) -> Report:
    """Run every case on a device: the current GPU where there are kernels for it, otherwise the emulator.

    A case that raises is a failed case; the others still run.
    """
    sm = default_sm(device).arch
    where = select(sm, device)
    outcomes = tuple(run(case, where, seed=seed) for case in cases(sm, where.processors))
    return Report(device=where.name, sm=sm, seed=seed, environment=environment(), outcomes=outcomes)


def default_sm(device: Device | str | None = None) -> SM:
    """The GPU's architecture where there are kernels for it, otherwise, and for the emulator, SM 1000."""
    present = current_sm() if device in (None, "cuda") else getattr(device, "sm", None)
    if present is None or present not in arch.NUMBERS or not (arch.of(present).tcgen05 or arch.of(present).wgmma):
        present = 1000
    return SM(present, arch_specific)


def block_dim(sm: int, m: int) -> BlockDim:
    """Computing threads for a tile of m rows: a second warpgroup on Hopper, whose accumulators are in registers."""
    return BlockDim(256 if arch.of(sm).wgmma and m % 128 == 0 else 128)


def run(case: Case, device: Device, *, seed: int = 0) -> Outcome:
    """Run one case on integers and on random numbers."""
    start = time.perf_counter()
    try:
        gemm = Gemm(compile(render(suggest_pipeline(case.descriptor))), device)
        random = np.random.default_rng(seed)
        integers = _product(gemm, case, lambda *shape: random.integers(-4, 5, shape))
        normals = _product(gemm, case, lambda *shape: random.standard_normal(shape))
    except Exception as error:  # whatever it is, the report has to say it
        return Outcome(case=case, error=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - start)
    (got, exact, _), (approximate, true, bound) = integers, normals
    return Outcome(
        case=case,
        kernel=gemm.kernel.entry,
        exact_errors=int((got != exact).sum()),
        worst=float((np.abs(approximate - true) / bound).max()),
        seconds=time.perf_counter() - start,
    )


Matrix = NDArray[np.float64]


def _product(gemm: Gemm, case: Case, draw: Any) -> tuple[Matrix, Matrix, Matrix]:
    """The device's result, float64's, and how far they may be apart."""
    tile = case.descriptor
    order, namespace = tile.arrangement, gemm.device.namespace
    host = [
        draw(case.m, case.k).astype(tile.a_value_type.numpy_dtype),
        draw(case.k, case.n).astype(tile.b_value_type.numpy_dtype),
        draw(case.m, case.n).astype(tile.c_value_type.numpy_dtype),
    ]
    a, b, c = (
        padded(namespace.asarray(matrix), lines, namespace=namespace)
        for matrix, lines in zip(host, (order.a, order.b, order.c), strict=True)
    )
    result = gemm(a, b, c, alpha=case.alpha, beta=case.beta)
    got = gemm.device.to_host(result).astype(np.float64)
    wide_a, wide_b, wide_c = (matrix.astype(np.float64) for matrix in host)
    true = case.alpha * (wide_a @ wide_b) + case.beta * wide_c
    bound = abs(case.alpha) * case.k * 2.0**-23 * (np.abs(wide_a) @ np.abs(wide_b))
    if (case.alpha, case.beta) != (1, 0):
        bound += 2.0**-22 * (np.abs(true) + np.abs(case.beta * wide_c))
    return got, true, bound
