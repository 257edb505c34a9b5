"""Epilogues in whole kernels, on both paths: ragged rectangular problems against the language's own reference."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.epilogue import OUTPUTS
from blasdx.epilogue.value import is_rough

M, N, K = 77, 50, 72
INPUTS = {"f32": "bf16", "f16": "f16", "s32": "s8"}
RNG = np.random.default_rng(11)


@cache
def product(epilogue: dx.Epilogue, sm: int, accumulator: str, output: str, c: str) -> dx.Gemm:
    types = INPUTS[accumulator], INPUTS[accumulator], accumulator
    descriptor = tile((64, 32, 64), types, c=c, sm=sm)
    plan = dx.suggest_pipeline(descriptor, epilogue=epilogue, output=output)
    kernel = dx.compile(dx.render(plan))
    assert kernel.resources.spill_stores == 0
    return dx.Gemm(kernel, EmulatedDevice())


def factors(accumulator: str = "f32", batches: tuple[int, ...] = (), k: int = K) -> tuple[Any, Any, Any]:
    """A and B of small integers, and their exact product."""
    dtype = dx.Element.of(INPUTS[accumulator]).numpy_dtype
    a = dx.padded(RNG.integers(-3, 4, (*batches, M, k)).astype(dtype))
    b = dx.padded(RNG.integers(-3, 4, (*batches, k, N)).astype(dtype), "col")
    return a, b, a.astype(np.float64) @ b.astype(np.float64)


def ordered(array: Any, c: str) -> Any:
    return array if c == "row" else np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def check(
    epilogue: dx.Epilogue, *, sm: int = 1000, accumulator: str = "f32", output: str = "f32", c_order: str = "row",
    batches: tuple[int, ...] = (), c: Any = None, **operands: Any,
) -> Any:  # fmt: skip
    """Run it on padded results, and compare: what it computes, and that nothing else was written."""
    a, b, acc = factors(accumulator, batches)
    element = dx.Element.of(output)
    pitch = (N if c_order == "row" else M) + 3
    lines = np.full((*batches, M if c_order == "row" else N, pitch), 7).astype(element.numpy_dtype)
    out = lines[..., :N] if c_order == "row" else lines[..., :M].swapaxes(-1, -2)
    if c is not None:
        operands["c"] = ordered(c, c_order)
    gemm = product(epilogue, sm, accumulator, output, c_order)
    got = gemm(a, b, out=out, **operands)
    assert (lines[..., -3:].astype(np.float32) == 7).all(), "stores outside the matrix"
    with np.errstate(all="ignore"):
        want = epilogue.reference(acc, output="f64", **operands)
        rounded = epilogue.reference(acc, output=output, **operands).astype(np.float64)
        error = np.abs(got.astype(np.float64) - rounded)
    # Where f32 lands on the other side of a tie than float64, one unit of the output parts them.
    unit = {"f32": 2.0**-21, "f16": 2.0**-10, "bf16": 2.0**-7, "e4m3": 2.0**-3, "e5m2": 2.0**-2}.get(output, 0)
    rough = 2.0**-11 if is_rough(element) and element.is_float else 0
    step = 0 if element.is_float else any(name in str(epilogue) for name in ("gelu", "silu", "sigmoid", "tanh"))
    least = {"e4m3": 2.0**-9, "e5m2": 2.0**-16}.get(output, 2.0**-19)
    bound = (unit + rough) * np.nan_to_num(np.abs(want)) + step + least
    assert np.array_equal(np.isnan(got.astype(np.float64)), np.isnan(rounded))
    bad = ~(error <= bound) & ~(got.astype(np.float64) == rounded) & ~np.isnan(rounded)
    assert not bad.any(), (got[bad][:4], rounded[bad][:4])
    return got


def vector(extent: int, element: str = "f32", *batches: int) -> Any:
    return RNG.standard_normal((*batches, extent)).astype(dx.Element.of(element).numpy_dtype)


def matrix(element: str = "f32", *batches: int) -> Any:
    return RNG.standard_normal((*batches, M, N)).astype(dx.Element.of(element).numpy_dtype)


# ---- the language, construct by construct ----------------------------------------------------------------------------

FUNCTIONS = (
    "relu(x * acc)", "gelu(x * acc)", "gelu_tanh(x * acc)", "silu(x * acc)", "sigmoid(x * acc)", "tanh(x * acc)",
    "clamp(acc, -x, 2.5)", "min(acc, x)", "max(acc, x)", "abs(acc) - x", "-acc / (x + 1)",
)  # fmt: skip


@pytest.mark.parametrize("text", FUNCTIONS)
def test_every_function(text):
    if FUNCTIONS.index(text) % 2:
        check(dx.Epilogue(text), sm=1000, x=0.0625)
    else:
        check(dx.Epilogue(text), sm=900, output="bf16", c_order="col", x=0.0625)


def test_all_functions_together():
    text = "gelu(max(x * acc, v[m])) + gelu_tanh(x * acc) - silu(abs(acc) * x) * sigmoid(acc) + tanh(relu(v[m])) / 2"
    check(dx.Epilogue(text, v="f16"), x=0.25, v=vector(M, "f16"))


@pytest.mark.parametrize("sm", [900, 1000])
def test_every_cast(sm):
    casts = "f16(x * acc) + bf16(x * acc) + e4m3(x * acc) + e5m2(x * acc) + s8(4 * acc) + u8(4 * acc)"
    check(dx.Epilogue(casts), sm=sm, x=0.37)


@pytest.mark.parametrize("c_order", ["row", "col"])
@pytest.mark.parametrize("sm", [900, 1000])
def test_vectors_matrices_and_numbers(sm, c_order):
    text = "relu(alpha * acc + beta * c + bias[n]) * scale[m] + rest[m, n] * x - one[0]"
    epilogue = dx.Epilogue(text, bias="bf16", scale="f32", rest="f16", one="f32")
    given = {"bias": vector(N, "bf16"), "scale": vector(M), "one": np.float32([3.5]), "x": -1.5, "alpha": 0.5}
    rest, c = ordered(matrix("f16"), c_order), matrix()
    check(epilogue, sm=sm, c_order=c_order, rest=rest, beta=2.0, c=c, **given)
    check(epilogue, sm=sm, c_order=c_order, rest=rest, beta=0.0, c=np.full_like(c, np.nan), **given)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "s32"])
def test_every_element_type_in_memory(element):
    dtype = dx.Element.of(element).numpy_dtype
    w, r = (RNG.integers(0, 9, shape).astype(dtype) for shape in ((N,), (M, N)))
    sm = 900 if element in ("f32", "bf16", "e5m2", "u8") else 1000
    check(dx.Epilogue("acc + w[n] - r[m, n]", w=element, r=element), sm=sm, w=w, r=r)


def test_arrays_at_any_address_and_step():
    epilogue = dx.Epilogue("acc + w[n] * v[m] + r[m, n]", w="f16", v="f32", r="bf16")
    given = {
        "w": vector(3 * N + 2, "f16")[1:-1:3][:N],
        "v": vector(2 * M)[::2],
        "r": RNG.standard_normal((M, N + 5)).astype(ml_dtypes.bfloat16)[:, 1 : N + 1],
    }
    for sm in (900, 1000):
        check(epilogue, sm=sm, **given)
    every = np.broadcast_to(np.float16(2), (N,))
    check(epilogue, **{**given, "w": every})


@pytest.mark.parametrize("sm", [900, 1000])
def test_batches(sm):
    epilogue = dx.Epilogue("acc * s[0] + w[n] + v[m] + r[m, n]", s="f32", w="f32", v="f32", r="f32")
    shared = {"s": np.array(2, np.float32), "w": vector(N), "v": vector(M), "r": matrix()}
    own = {"s": vector(3), "w": vector(N, "f32", 3), "v": vector(M, "f32", 3), "r": matrix("f32", 3)}
    check(epilogue, sm=sm, batches=(3,), **shared)
    check(epilogue, sm=sm, batches=(3,), **own)
    check(epilogue, sm=sm, batches=(3,), **{**own, "w": vector(N), "s": np.float32([[4]])[0]})
    if sm == 1000:  # dimensions that no step walks over are a launch each
        mixed = {**shared, "w": vector(N, "f32", 2, 1), "s": vector(3)}
        check(epilogue, sm=sm, batches=(2, 3), **mixed)


# ---- results ---------------------------------------------------------------------------------------------------------

PAIRS = [(accumulator, output) for accumulator in OUTPUTS for output in OUTPUTS[accumulator]]


@pytest.mark.parametrize(("accumulator", "output"), PAIRS)
def test_every_output_of_every_accumulator(accumulator, output):
    sm = (900, 1000)[PAIRS.index((accumulator, output)) % 2]
    scale = 37.0 if output in ("e4m3", "e5m2", "s8", "u8") else 0.375  # far enough to saturate
    element = dx.Element.of(output)
    c = RNG.integers(0, 5, (M, N)).astype(element.numpy_dtype)
    epilogue = dx.Epilogue("alpha * acc + beta * c")
    got = check(epilogue, sm=sm, accumulator=accumulator, output=output, alpha=scale, beta=0.5, c=c)
    if output in ("s8", "u8"):
        assert {got.min(), got.max()} == {np.iinfo(got.dtype).min, np.iinfo(got.dtype).max}


def test_nan_and_infinity_reach_the_result():
    scale = np.ones(M, np.float32)
    scale[[3, 40, 76]] = np.nan, np.inf, -np.inf
    for output in ("f32", "e4m3", "s8"):
        check(dx.Epilogue("relu(acc + 100) * scale[m]", scale="f32"), output=output, scale=scale)


def test_nan_of_an_integer_sum_is_the_lower_end():
    scale = np.ones(M, np.float32)
    scale[7] = np.nan
    a, b, _ = factors("s32")
    for output, low in (("s32", -(2**31)), ("s8", -128), ("u8", 0)):
        got = product(dx.Epilogue("acc * scale[m]", scale="f32"), 1000, "s32", output, "row")(a, b, scale=scale)
        assert (got[7] == low).all()


# ---- C and the factors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sm", [900, 1000])
def test_c_of_another_type(sm):
    epilogue = dx.Epilogue("alpha * acc + beta * c", c="e4m3")
    c_order = {900: "row", 1000: "col"}[sm]
    check(epilogue, sm=sm, output="bf16", c_order=c_order, c=matrix("e4m3"), alpha=0.5, beta=2.0)
    nan = np.full((M, N), np.nan).astype(ml_dtypes.float8_e4m3fn)
    check(epilogue, sm=sm, output="bf16", c_order=c_order, c=nan, alpha=0.5, beta=0.0)


@pytest.mark.parametrize("sm", [900, 1000])
def test_c_that_no_beta_scales_is_always_read(sm):
    check(dx.Epilogue("alpha * acc + c"), sm=sm, c=matrix(), alpha=0.5)


def test_a_term_that_beta_leaves_out_leaves_no_nan():
    epilogue = dx.Epilogue("acc + beta * (1 / c) + scale[m] * beta * c", scale="f32")
    check(epilogue, c=np.zeros((M, N), np.float32), beta=0.0, scale=np.full(M, np.inf, np.float32))


@pytest.mark.parametrize("sm", [900, 1000])
def test_the_result_may_be_c(sm):
    a, b, acc = factors()
    epilogue = dx.Epilogue("relu(alpha * acc + beta * c + bias[n])", bias="f32")
    c, bias = matrix(), vector(N)
    want = epilogue.reference(acc, c, alpha=0.5, beta=1.0, bias=bias)
    product(epilogue, sm, "f32", "f32", "row")(a, b, c, out=c, alpha=0.5, beta=1.0, bias=bias)
    np.testing.assert_allclose(c, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("sm", "output"), [(900, "s8"), (1000, "f32")])
def test_where_nothing_is_multiplied_the_epilogue_remains(sm, output):
    epilogue = dx.Epilogue("gelu(alpha * acc + beta * c + bias[n])", bias="f32")
    gemm, c, bias = product(epilogue, sm, "f32", output, "row"), matrix(), 9 * vector(N)
    c = c.astype(dx.Element.of(output).numpy_dtype)
    zero = np.zeros((M, N))
    want = epilogue.reference(zero, c, output=output, alpha=1.0, beta=2.0, bias=bias)
    empty = gemm(np.zeros((M, 0), ml_dtypes.bfloat16), np.zeros((0, N), ml_dtypes.bfloat16), c, beta=2.0, bias=bias)
    a, b, _ = factors()
    a[...] = np.nan
    unread = gemm(a, b, c, alpha=0.0, beta=2.0, bias=bias)
    for got in (empty, unread):
        np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=1e-5, atol=1e-5)


def test_integers_of_the_default_epilogue_saturate_where_nothing_is_multiplied():
    for output in ("s8", "s32"):
        gemm = product(dx.Epilogue("alpha * acc + beta * c"), 1000, "s32", output, "row")
        c = np.full((M, N), 100, dx.Element.of(output).numpy_dtype)
        got = gemm(np.zeros((M, 0), np.int8), np.zeros((0, N), np.int8), c, beta=1.28)
        assert (got == (127 if output == "s8" else 128)).all()


# ---- calls -----------------------------------------------------------------------------------------------------------


def test_a_prepared_product_takes_other_vectors():
    epilogue = dx.Epilogue("acc * x + bias[n]", bias="f32")
    gemm = product(epilogue, 1000, "f32", "f32", "row")
    a, b, acc = factors()
    first, second = vector(N), vector(N)
    call = gemm.prepare(a, b, bias=first, x=2.0)
    np.testing.assert_allclose(call(), 2 * acc + first, rtol=1e-6)
    np.testing.assert_allclose(call.rebind(bias=second)(), 2 * acc + second, rtol=1e-6)
    with pytest.raises(dx.OperandError, match="packed when the product was prepared"):
        call.rebind(x=3.0)
    with pytest.raises(dx.OperandError, match="only addresses are replaced"):
        call.rebind(bias=vector(2 * N)[::2])
    with pytest.raises(dx.OperandError, match="memory shared with bias"):
        call.rebind(bias=call.out[3])


def test_numbers_belong_to_a_call():
    gemm = product(dx.Epilogue("acc * x + bias[n]", bias="f32"), 1000, "f32", "f32", "row")
    a, b, acc = factors()
    bias = vector(N)
    for x in (1.0, 2.0, 1.0):
        np.testing.assert_allclose(gemm(a, b, bias=bias, x=x), x * acc + bias, rtol=1e-6)


def test_everything_that_is_wrong_with_an_epilogues_operands_is_said_at_once():
    epilogue = dx.Epilogue("acc * x + bias[n] + scale[m] + rest[m, n]", bias="f32", scale="f32", rest="bf16")
    gemm = product(epilogue, 1000, "f32", "f32", "row")
    a, b, _ = factors()
    out = np.full((M, N), 5, np.float32)
    wrong = {"bias": vector(M), "scale": vector(M, "f16"), "rest": ordered(matrix("bf16"), "col"), "typo": 1}
    with pytest.raises(dx.OperandError) as caught:
        gemm(a, b, out=out, alpha=2.0, **wrong)
    found = {(miss.operand, miss.rule) for miss in caught.value.misses}
    assert found == {
        ("bias", "shape"), ("scale", "element-type"), ("rest", "arrangement"), ("x", "missing"), ("typo", "unused"),
        ("alpha", "unused"),
    }  # fmt: skip
    assert (out == 5).all()
    with pytest.raises(dx.OperandError) as caught:
        gemm(a, b, np.zeros((M, N), np.float32), beta=1.0, out=out, bias=out[0], scale=vector(M)[::-1], x="two")
    found = {(miss.operand, miss.rule) for miss in caught.value.misses}
    assert found == {
        ("c", "unused"), ("beta", "unused"), ("out", "overlap"), ("scale", "negative-stride"), ("rest", "missing"),
        ("x", "scalar"),
    }  # fmt: skip


def test_one_call_does_it_all():
    a, b, acc = factors()
    bias = vector(N, "bf16")
    epilogue = dx.Epilogue("relu(acc + bias[n])", bias="bf16")
    got = dx.gemm(tile((64, 32, 64)), a, b, device="emulator", epilogue=epilogue, output="bf16", bias=bias)
    np.testing.assert_array_equal(got, epilogue.reference(acc, output="bf16", bias=bias))


def test_the_page_on_epilogues_does_what_it_says():
    text = (Path(__file__).parents[2] / "docs" / "epilogues.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    a, b, acc = factors()
    bias, scale = vector(N, "bf16"), vector(M)
    names: dict[str, Any] = {"dx": dx, "tile": tile((64, 32, 64)), "a": a, "b": b, "bias": bias, "scale": scale}
    exec(block.replace("plan))", "plan)), 'emulator'"), names)  # noqa: S102
    want = names["epilogue"].reference(acc, output="bf16", alpha=0.5, bias=bias, scale=scale)
    np.testing.assert_array_equal(names["out"], want)
    example = dx.Epilogue("gelu(alpha * acc + bias[n]) + rest[m, n]", bias="bf16", rest="bf16")
    assert example.describe("f32", "bf16") in text
