"""The device functions of epilogues: against float64, to the errors that their comments promise."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest

from blasdx.codegen import device_library
from blasdx.epilogue import Epilogue
from tests.emulator.families import launch
from tests.emulator.toolchain import ptx

UNARY = (
    "relu", "absolute", "sigmoid", "silu", "gelu", "gelu_tanh", "gelu_rough", "gelu_tanh_rough", "tanh_rough",
    "round_to_bf16", "round_to_f16", "round_to_e4m3", "round_to_e5m2", "round_to_s8", "round_to_u8",
)  # fmt: skip
INFINITY = float("inf")
SPECIAL = np.array(
    [0.0, -0.0, np.nan, INFINITY, -INFINITY, 1e-40, -1e-40, 3.4e38, -3.4e38, 0.5, 1.5, 2.5, -0.5, -2.5], np.float32
)


def _sample() -> np.ndarray:
    random = np.random.default_rng(5)
    dense = np.linspace(-9, 9, 1500)
    wide = random.standard_normal(500) * 10.0 ** random.uniform(-6, 4, 500)
    ties = np.arange(-150, 150) / 2
    return np.concatenate([dense, wide, ties]).astype(np.float32)


X = np.concatenate([_sample(), SPECIAL])


def run(kind: str, functions: tuple[str, ...], x: np.ndarray, y: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """What each function makes of x (of x and y)."""
    size = -(-len(x) // 32) * 32
    padded = [np.pad(one, (0, size - len(one))) for one in (x, x if y is None else y)]
    arguments = "x[i]" if y is None else "x[i], y[i]"
    lines = "\n".join(f"  out[{at * size} + i] = {name}({arguments});" for at, name in enumerate(functions))
    signature = f"const {kind}* x, const {kind}* y, {kind}* out"
    kernel = (
        f'extern "C" __global__ void k({signature}) {{\n  const u32 i = blockIdx.x * 32 + threadIdx.x;\n{lines}\n}}\n'
    )
    out = np.zeros(size * len(functions), x.dtype)
    launch(ptx("\n".join((*device_library(kernel), kernel)), arch="sm_90a"), *padded, out, grid=size // 32, sms=8)
    return dict(zip(functions, out.reshape(len(functions), size)[:, : len(x)], strict=True))


@cache
def results() -> dict[str, np.ndarray]:
    return run("float", UNARY, X)


def exact(expression: str, x: np.ndarray) -> np.ndarray:
    """In float64, by the language's own reference."""
    return Epilogue(expression).reference(x, output="f64")


@pytest.mark.parametrize("name", ["relu", "absolute", *(name for name in UNARY if name.startswith("round_to"))])
def test_what_rounds_or_chooses_is_exact_to_the_bit(name):
    function = {"absolute": "abs"}.get(name, name.removeprefix("round_to_"))
    expected = exact(f"{function}(acc)", X).astype(np.float32)
    got = results()[name]
    np.testing.assert_array_equal(got, expected)
    if name != "round_to_s8" and name != "round_to_u8":
        assert np.isnan(got[np.isnan(X)]).all(), "NaN stays NaN"


@pytest.mark.parametrize(
    ("name", "expression", "low", "relative", "absolute"),
    [
        ("sigmoid", "sigmoid(acc)", -80, lambda x: (8 + np.abs(x)) * 2.0**-23, 2.0**-126),
        ("silu", "silu(acc)", -80, lambda x: (8 + np.abs(x)) * 2.0**-23, 2.0**-126),
        ("gelu", "gelu(acc)", -1e38, lambda x: 0 * x, lambda x: 2.0**-22 * np.abs(x)),
        ("gelu_tanh", "gelu_tanh(acc)", -1e38, lambda x: 0 * x, lambda x: 2.0**-22 * np.abs(x)),
        ("gelu_rough", "gelu(acc)", -5.5, lambda x: 0 * x + 2.0**-11, 0),
        ("gelu_rough", "gelu(acc)", -1e38, lambda x: 0 * x + 2.0**-11, 2.0**-20),
        ("gelu_tanh_rough", "gelu_tanh(acc)", -1e38, lambda x: 0 * x, lambda x: 2.0**-12 * np.abs(x)),
        ("tanh_rough", "tanh(acc)", -1e38, lambda x: 0 * x + 2.0**-11, 2.0**-126),
    ],
)  # fmt: skip
def test_an_activation_keeps_the_error_that_it_states(name, expression, low, relative, absolute):
    inside = (low <= X) & np.isfinite(X) & (np.abs(X) < 1e30)
    x = X[inside].astype(np.float64)
    expected, got = exact(expression, x), results()[name][inside]
    bound = relative(x) * np.abs(expected) + (absolute(x) if callable(absolute) else absolute)
    wrong = np.abs(got - expected) > bound + 2.0**-149
    assert not wrong.any(), (x[wrong][:5], got[wrong][:5], expected[wrong][:5])


@pytest.mark.parametrize(("name", "above", "below"), [
    ("sigmoid", 1, 0), ("gelu", INFINITY, None), ("gelu_tanh", INFINITY, None), ("gelu_rough", INFINITY, 0),
    ("gelu_tanh_rough", INFINITY, None), ("silu", INFINITY, None), ("tanh_rough", 1, -1),
])  # fmt: skip
def test_nan_and_infinities(name, above, below):
    got = results()[name]
    assert np.isnan(got[np.isnan(X)]).all()
    assert got[INFINITY == X] == above
    if below is not None:
        np.testing.assert_allclose(got[-INFINITY == X], below, atol=2.0**-20)


def test_the_larger_and_the_smaller_of_two_are_nan_where_one_is():
    x, y = np.meshgrid(SPECIAL, SPECIAL)
    for kind, dtype in (("float", np.float32), ("double", np.float64)):
        left, right = x.ravel().astype(dtype), y.ravel().astype(dtype)
        got = run(kind, ("minimum", "maximum"), left, right)
        np.testing.assert_array_equal(got["minimum"], np.minimum(left, right))
        np.testing.assert_array_equal(got["maximum"], np.maximum(left, right))


def test_doubles_of_integer_sums():
    x = np.concatenate([np.arange(-600, 600) / 4, [2.0**31 - 1, -(2.0**31), 1e300, -1e300]])
    got = run("double", ("relu", "absolute", "round_to_s8", "round_to_u8"), x)
    np.testing.assert_array_equal(got["relu"], np.maximum(x, 0))
    np.testing.assert_array_equal(got["absolute"], np.abs(x))
    np.testing.assert_array_equal(got["round_to_s8"], np.clip(np.rint(x), -128, 127))
    np.testing.assert_array_equal(got["round_to_u8"], np.clip(np.rint(x), 0, 255))


@pytest.mark.parametrize(("element", "dtype"), [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)])
def test_every_byte_of_an_eight_bit_float_is_read_right(element, dtype):
    codes = np.arange(256, dtype=np.uint8)
    out = np.zeros(256, np.float32)
    kernel = (
        f'extern "C" __global__ void k(const u8* x, float* out) {{ const u32 i = blockIdx.x * 32 + threadIdx.x; '
        f"out[i] = unpack_{element}(x[i]); }}\n"
    )
    launch(ptx("\n".join((*device_library(kernel), kernel)), arch="sm_90a"), codes, out, grid=8, sms=8)
    np.testing.assert_array_equal(out, codes.view(dtype).astype(np.float32))
