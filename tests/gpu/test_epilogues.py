"""Epilogues, conversions and K in parts on a Hopper GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx

M, N, K = 300, 264, 1040


def gemm(**options: Any) -> dx.Gemm:
    order = options.pop("c", "row")
    return dx.Gemm(
        dx.compile(dx.render(dx.suggest_pipeline(tile((128, 128, 64), c=order, threads=256, sm=900), **options))),
        "cuda",
    )


@pytest.fixture(scope="module")
def operands(hopper: Any) -> dict[str, Any]:
    random = np.random.default_rng(0)
    a = (random.standard_normal((M, K)) / 8).astype(ml_dtypes.bfloat16)
    b = random.standard_normal((N, K)).astype(ml_dtypes.bfloat16)
    bias, scale = (random.standard_normal(extent).astype(np.float32) for extent in (N, M))
    residual = random.standard_normal((M, N)).astype(np.float32)
    true = a.astype(np.float64) @ b.astype(np.float64).T
    on = {"a": a, "b": b, "bias": bias, "scale": scale, "residual": residual}
    return {**{name: hopper.asarray(array) for name, array in on.items()}, "host": on, "true": true}


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("output", ["f32", "bf16"])
def test_vectors_matrices_and_functions(hopper: Any, operands: dict[str, Any], output: str, order: str) -> None:
    from math import erf

    epilogue = dx.Epilogue(
        "gelu(alpha * acc + bias[n]) * scale[m] + residual[m, n]", bias="f32", scale="f32", residual="f32"
    )
    found = gemm(epilogue=epilogue, output=output, c=order)
    held = operands["residual"] if order == "row" else hopper.asfortranarray(operands["residual"])
    got = found(
        operands["a"], operands["b"].T, alpha=0.5, bias=operands["bias"], scale=operands["scale"], residual=held
    )
    host = operands["host"]
    x = 0.5 * operands["true"] + host["bias"]
    true = x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))) * host["scale"][:, None] + host["residual"]
    error = np.abs(hopper.asnumpy(got).astype(np.float64) - true)
    assert (error < 2e-3 + np.abs(true) * (0 if output == "f32" else 2**-8)).all()


@pytest.mark.parametrize("output", ["e4m3", "s8", "f16"])
def test_conversions_saturate(hopper: Any, operands: dict[str, Any], output: str) -> None:
    found = gemm(output=output)
    got = hopper.asnumpy(found(operands["a"], operands["b"].T, alpha=64.0))
    true = (64 * operands["true"]).astype(np.float32)
    if output == "s8":
        want = np.clip(np.rint(true), -128, 127)
        assert np.abs(got.astype(np.float64) - want).max() <= 1  # sums that lie halfway between two integers
    elif output == "e4m3":
        want = np.clip(true, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
        given = got.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        assert np.abs(given - want).max() <= 32  # one step between numbers at 448
        assert np.abs(given).max() == 448
    else:
        assert np.abs(got.astype(np.float64) - true).max() < 1


def test_parts_of_k_are_added_the_same_way_each_time(hopper: Any, operands: dict[str, Any]) -> None:
    found = gemm(split_k=6)
    plan = found.kernel.source.plan
    assert plan.parts(M, N, K, found.device.processors).count == 6
    first = hopper.asnumpy(found(operands["a"], operands["b"].T))
    assert np.abs(first - operands["true"]).max() < 1e-3
    for _ in range(50):
        np.testing.assert_array_equal(hopper.asnumpy(found(operands["a"], operands["b"].T)), first)


def test_parts_of_k_in_two_streams_and_in_a_graph(hopper: Any, operands: dict[str, Any]) -> None:
    found = gemm(split_k=6)
    a, b = operands["a"], operands["b"].T
    wanted = hopper.asnumpy(found(a, b))
    streams = [hopper.cuda.Stream(non_blocking=True) for _ in range(2)]
    outs = [hopper.empty((M, N), np.float32) for _ in range(8)]
    hopper.cuda.Device().synchronize()
    for turn, out in enumerate(outs):
        with streams[turn % 2]:
            found(a, b, out=out)
    hopper.cuda.Device().synchronize()
    for out in outs:
        np.testing.assert_array_equal(hopper.asnumpy(out), wanted)
    prepared = found.prepare(a, b, out=outs[0])
    outs[0].fill(0)
    with streams[0]:
        streams[0].begin_capture()
        prepared()
        graph = streams[0].end_capture()
    for _ in range(3):
        graph.launch(streams[0])
    streams[0].synchronize()
    np.testing.assert_array_equal(hopper.asnumpy(outs[0]), wanted)
