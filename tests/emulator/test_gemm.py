"""A warp-specialised tcgen05 GEMM of the tests' own: right under every schedule, and wrong in every way on purpose."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from blasdx.emulator import DeadlockError, EmulationError, GlobalMemory, HazardError, LaunchResult, Module, TensorMap
from tests.emulator.toolchain import ptx, source

SCHEDULES = ("eager", "lazy", "adversarial", "random")


def launch(
    m: int, n: int, k: int, *defines: str, swizzle: str = "128B", exact: bool = True, ctas: int = 2, **options: Any
) -> tuple[np.ndarray, np.ndarray, LaunchResult]:
    """Run kernels/gemm.cu; the result, what it should be, and the launch's report."""
    values = dict(d.split("=") for d in defines if "=" in d)
    tile_n, stages = int(values.get("TILE_N", 256)), int(values.get("STAGES", 3))
    dtype = np.float16 if values.get("A_TYPE") == "0" else ml_dtypes.bfloat16
    rng = np.random.default_rng(m + 7 * n + 31 * k)
    draw = (lambda *s: rng.integers(-3, 4, s)) if exact else (lambda *s: rng.standard_normal(s))
    a, b = draw(m, k).astype(dtype), draw(n, k).astype(dtype)
    pitch = -(-k // 8) * 8
    memory = GlobalMemory()
    maps = []
    for matrix, rows in ((a, 128), (b, tile_n)):
        padded = np.full((len(matrix), pitch), 7, dtype)
        padded[:, :k] = matrix
        maps.append(
            TensorMap(
                memory.upload(padded), dtype="f16" if dtype is np.float16 else "bf16", dims=[k, len(matrix)],
                strides_bytes=[2 * pitch], box=[64, rows], swizzle=swizzle,
            )
        )  # fmt: skip
    c = memory.upload(np.full((m, n + 3), np.nan, np.float32))
    function = Module.from_ptx(ptx(source("gemm.cu"), *defines)).get_function("gemm")
    result = function.launch(
        grid=(ctas, 1, 1), block=(192, 1, 1), dynamic_smem=stages * (128 + tile_n) * 128, memory=memory,
        args=[*maps, c, np.int32(m), np.int32(n), np.int32(k), np.int32(n + 3), np.float32(2)], **options,
    )  # fmt: skip
    got = c.read()
    assert np.isnan(got[:, n:]).all(), "stores outside the matrix"
    return got[:, :n], 2 * (a.astype(np.float64) @ b.astype(np.float64).T), result


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("m", "n", "k", "defines"), [
    (128, 256, 64, ()),
    (200, 300, 200, ("STAGES=2",)),
    (391, 77, 129, ("TILE_N=64", "A_TYPE=0", "STAGES=4")),
])  # fmt: skip
def test_products_are_exact_on_small_integers(m: int, n: int, k: int, defines: tuple[str, ...], schedule: str) -> None:
    got, want, result = launch(m, n, k, *defines, schedule=schedule, seed=5)
    np.testing.assert_array_equal(got, want)
    assert result.hazards == ()
    assert result.stats.operations["mma"] == 4 * -(-k // 64) * -(-m // 128) * -(
        -n // (64 if defines[:1] == ("TILE_N=64",) else 256)
    )


@pytest.mark.parametrize("numerics", ["exact", "hardware"])
def test_random_values_are_within_the_error_bound(numerics: str) -> None:
    m, n, k = 129, 70, 192
    got, want, _ = launch(m, n, k, "TILE_N=128", exact=False, numerics=numerics)
    assert np.abs(got - want).max() <= k * 2.0**-23 * 2 * k * 16


def test_seeds_change_the_order_but_not_the_result() -> None:
    runs = [launch(256, 256, 320, schedule="random", seed=seed) for seed in range(4)]
    for got, want, _ in runs:
        np.testing.assert_array_equal(got, want)
    assert len({tuple(e.name for e in r.trace) for _, _, r in runs}) > 1


# Every way to break the kernel, and what has to be said about it, whatever the schedule did. A producer that runs
# ahead also arrives too often, which an mbarrier cannot count.
BROKEN = {
    "BREAK_FULL_WAIT": "shared-read-before|shared-overwritten",
    "BREAK_PHASE": "shared-read-before|shared-overwritten",
    "BREAK_EMPTY_WAIT": "shared-overwritten|surplus-arrival",
    "BREAK_ACC_WAIT": "tensor-read-before",
    "BREAK_FREE": "tensor-memory-not-freed",
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("what", BROKEN)
def test_races_and_leaks_are_errors_under_every_schedule(what: str, schedule: str) -> None:
    with pytest.raises(EmulationError) as caught:
        launch(300, 64, 448, what, "STAGES=2", "TILE_N=64", schedule=schedule, ctas=1)
    kinds = {h.kind for h in caught.value.hazards if h.severity == "error"}
    if "arrival(s) on the mbarrier" in str(caught.value):
        kinds.add("surplus-arrival")
    elif not isinstance(caught.value, DeadlockError):
        assert isinstance(caught.value, HazardError)
    assert any(re.search(BROKEN[what], kind) for kind in kinds), (kinds, str(caught.value)[:300])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_handing_tensor_memory_over_before_the_load_is_over_is_a_warning(schedule: str) -> None:
    _, _, result = launch(300, 64, 448, "BREAK_LOAD_WAIT", "STAGES=2", "TILE_N=64", schedule=schedule, ctas=1)
    assert "tensor-load-not-waited" in {h.kind for h in result.hazards}
    assert {h.severity for h in result.hazards} == {"warning"}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("what", ["BREAK_EMPTY_COMMIT", "BREAK_ACC_COMMIT", "BREAK_EXPECT"])
def test_hangs_are_deadlocks_that_name_the_barrier(what: str, schedule: str) -> None:
    with pytest.raises(DeadlockError) as caught:
        launch(300, 64, 448, what, "STAGES=2", "TILE_N=64", schedule=schedule, ctas=1)
    text = str(caught.value)
    assert "warp 5" in text or "warp 4" in text
    assert re.search(r"waiting for mbarrier 0x\w+, phase \d+ \(parity [01]\), which lacks", text)
    assert "PTX line" in text
    if what == "BREAK_EXPECT":
        assert "16 bytes" in text


def test_a_wrong_swizzle_in_the_map_gives_wrong_numbers_or_an_error() -> None:
    try:
        got, want, _ = launch(128, 256, 64, swizzle="none")
    except EmulationError:
        return
    assert (got != want).any()
