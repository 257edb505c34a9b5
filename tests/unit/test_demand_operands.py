"""Arrays and numbers as people pass them: what is taken as it is, and where following a refusal leads."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import tile

import blasdx
import blasdx as dx
from blasdx.operands import Operand, Product, bind

bf16 = ml_dtypes.bfloat16
M, N, K = 13, 21, 37


def see(name: str, array: Any) -> Operand:
    return Operand(name, array.shape, array.strides, array.dtype, array.ctypes.data, array.flags.writeable, array)


def call(descriptor: dx.Descriptor | None = None, **arrays: Any) -> Product:
    descriptor = descriptor or tile()
    named = {
        "a": dx.padded(np.zeros((M, K), bf16), str(descriptor.arrangement.a)),
        "b": dx.padded(np.zeros((K, N), bf16), str(descriptor.arrangement.b)),
    }
    scalars = {name: arrays.pop(name) for name in ("alpha", "beta", "output") if name in arrays}
    named |= arrays
    return bind(descriptor, **{name: see(name, array) for name, array in named.items()}, **scalars)  # type: ignore[arg-type]


def misses(descriptor: dx.Descriptor | None = None, **arrays: Any) -> tuple[Any, ...]:
    with pytest.raises(dx.OperandError) as caught:
        call(descriptor, **arrays)
    return caught.value.misses


# ---- following the advice


def followed(miss: Any, array: Any) -> Any:
    """What the fix makes of an array: its first alternative that is an expression, evaluated."""
    parts = re.split(" of bits, |, or | or |: ", miss.fix)
    text = next(part for part in parts if part.startswith(("blasdx.", f"{miss.operand}.")))
    return eval(text, {"blasdx": blasdx, miss.operand: array})  # noqa: S307


def offset(array: Any, by: int) -> Any:
    """The same matrix, its first element `by` bytes past an aligned address."""
    raw = np.zeros(array.nbytes + 256, np.uint8)
    first = -raw.ctypes.data % 128 + by
    view = raw[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def numbered(rows: int, columns: int) -> Any:
    return np.arange(rows * columns).reshape(rows, columns).astype(bf16)


WRONG = {
    "reversed rows": lambda x: x[::-1],
    "reversed columns": lambda x: x[:, ::-1],
    "both reversed": lambda x: x[::-1, ::-1],
    "every other column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "every other row and column": lambda x: np.repeat(np.repeat(x, 2, axis=1), 2, axis=0)[::2, ::2],
    "one row for all": lambda x: np.broadcast_to(x[:1], x.shape),
    "one column for all": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "tight rows of odd length": lambda x: np.ascontiguousarray(x),
    "tight columns of odd length": lambda x: np.asfortranarray(x),
    "a window over one line": lambda x: np.lib.stride_tricks.sliding_window_view(
        np.arange(99).astype(bf16), x.shape[1]
    )[: x.shape[0]],
    "two bytes off": lambda x: offset(np.pad(x, ((0, 0), (0, -x.shape[1] % 8))), 2)[:, : x.shape[1]],
    "f32 instead": lambda x: x.astype(np.float32),
    "the other byte order": lambda x: x.astype(np.float16).astype(">f2"),
    "bits as integers": lambda x: np.ascontiguousarray(x).view(np.uint16),
}


@pytest.mark.parametrize("alignment", [16, 64])
@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("wrong", WRONG)
def test_the_fix_of_every_refusal_leads_to_a_call_that_is_taken(
    wrong: str, order: str, name: str, alignment: int
) -> None:
    """The advice is Python: evaluated until nothing is refused, which takes a type first and a place in memory next."""
    descriptor = tile(a=order, b=order).with_(dx.Alignment(alignment, alignment, 16))
    shape = {"a": (M, K), "b": (K, N)}[name]
    array = WRONG[wrong](numbered(*shape))
    true = (array.view(bf16) if array.dtype == np.uint16 else array).astype(np.float64)
    operands = {
        "a": dx.padded(numbered(M, K), order, alignment=alignment),
        "b": dx.padded(numbered(K, N), order, alignment=alignment),
    }
    for _ in range(3):
        try:
            call(descriptor, **{**operands, name: array})
            break
        except dx.OperandError as error:
            array = followed(error.misses[0], array)
    product = call(descriptor, **{**operands, name: array})
    assert product.m == M
    np.testing.assert_array_equal(array.astype(np.float64), true)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["row", "col"]), st.sampled_from([16, 32, 128]))
@settings(max_examples=40)
def test_a_padded_copy_is_always_taken(rows: int, columns: int, order: str, alignment: int) -> None:
    descriptor = tile(a=order).with_(dx.Alignment(alignment, 16, 16))
    copy = dx.padded(numbered(rows, columns)[::-1], order, alignment=alignment)
    np.testing.assert_array_equal(copy, numbered(rows, columns)[::-1])
    call(descriptor, a=copy, b=dx.padded(np.zeros((columns, 3), bf16), "col"))


@pytest.mark.parametrize(
    ("out", "rule"),
    [
        (np.zeros((M, 2 * N), np.float32)[:, ::2], "contiguity"),
        (np.zeros((M, N), np.float32)[::-1], "negative-stride"),
        (np.zeros((N, M), np.float32).T, "arrangement"),
        (np.zeros((1, N), np.float32), "shape"),
        (np.zeros((M, N), np.float16), "element-type"),
        (np.lib.stride_tricks.as_strided(np.zeros(99, np.float32), (M, N), (4, 4)), "leading-dimension"),
        (np.zeros(4 * M * N + 8, np.uint8)[1:-7].view(np.float32).reshape(M, N), "pointer-alignment"),
    ],
)
def test_an_out_that_cannot_be_written_in_place_is_refused_and_no_copy_of_it_proposed(out: Any, rule: str) -> None:
    (miss, *_) = misses(out=out)
    assert (miss.operand, miss.rule) == ("out", rule)
    assert "padded" not in miss.fix


def test_c_between_two_elements_is_refused() -> None:
    """An f32 at an odd address faults on a GPU, whatever the leading dimension is."""
    c = np.zeros(4 * M * N + 8, np.uint8)[2:-6].view(np.float32).reshape(M, N)
    (miss,) = misses(c=c, beta=1.0)
    assert (miss.operand, miss.rule) == ("c", "pointer-alignment")
    np.testing.assert_array_equal(followed(miss, c), c)


# ---- views that are taken as they are


def test_a_row_of_511_elements_says_its_bytes_and_where_the_next_may_begin() -> None:
    buffer = np.zeros((M, 511), bf16)
    (miss,) = misses(a=buffer[:, :K])
    assert "1022 B from one row to the next (511 elements of 2 B)" in miss.got
    assert "a multiple of 16 B" in miss.need
    assert "pad the leading dimension to 40 elements" in miss.fix
    assert call(a=np.zeros((M, 512), bf16)[:, :K]).a.ld == 512


@pytest.mark.parametrize(
    ("parent", "cut", "ld"),
    [
        ((M, 256), np.s_[:, :K], 256),
        ((2 * M, 128), np.s_[::2, :K], 256),
        ((M, 96), np.s_[:, 8 : 8 + K], 96),
        ((3 * M, 64), np.s_[M : 2 * M, 16 : 16 + K], 64),
    ],
)
def test_slices_keep_the_stride_of_what_they_were_cut_from(parent: tuple[int, int], cut: Any, ld: int) -> None:
    whole = dx.padded(np.zeros(parent, bf16))
    view = whole[cut]
    product = call(a=view)
    assert product.a.ld == ld
    assert product.a.operand.array is view, "no copy"


def test_a_transposed_view_is_the_other_order_and_no_copy() -> None:
    b = dx.padded(numbered(N, K))
    product = call(b=b.T)
    assert product.b.operand.address == b.ctypes.data
    assert (product.b.inner, product.b.outer, product.b.ld) == (K, N, 40)


@pytest.mark.parametrize("stride", [0, 2, 3, -2, 1 << 45])
def test_one_row_cut_out_of_many_needs_no_stride(stride: int) -> None:
    a = np.lib.stride_tricks.as_strided(dx.padded(numbered(1, K)), (1, K), (stride, 2))
    assert call(a=a).a.stride == 80


# ---- bytes that could be anything

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


@pytest.mark.parametrize(
    ("precision", "a", "b", "wrong"),
    [
        (("e4m3", "e5m2", "f32"), E4M3, E5M2, ()),
        (("e4m3", "e5m2", "f32"), np.uint8, np.uint8, ()),
        (("e4m3", "e4m3", "f32"), E5M2, E4M3, ("a",)),
        (("e4m3", "e4m3", "f32"), np.int8, np.float16, ("a", "b")),
        (("s8", "u8", "s32"), np.int8, np.uint8, ()),
        (("s8", "s8", "s32"), np.uint8, np.int8, ("a",)),
        (("bf16", "bf16", "f32"), np.uint8, np.float16, ("a", "b")),
        (("f16", "f16", "f32"), np.float16, bf16, ("b",)),
        (("tf32", "tf32", "f32"), np.float32, np.float64, ("b",)),
    ],
    ids=str,
)
def test_what_bytes_mean_is_the_descriptors_word_and_no_array_contradicts_it(
    precision: tuple[str, str, str], a: Any, b: Any, wrong: tuple[str, ...]
) -> None:
    """Bytes without a type of their own are fp8 where the descriptor says so, and nothing else is."""
    descriptor = tile(sm=900).with_(dx.Precision(*precision))
    arrays = {"a": dx.padded(np.zeros((M, K), a)), "b": dx.padded(np.zeros((K, N), b), "col")}
    if not wrong:
        assert call(descriptor, **arrays).k == K
        return
    found = misses(descriptor, **arrays)
    assert [(miss.operand, miss.rule) for miss in found] == [(name, "element-type") for name in wrong]


def test_a_result_of_another_type_than_the_kernel_stores_is_refused() -> None:
    half, single = np.zeros((M, N), np.float16), np.zeros((M, N), np.float32)
    assert call(out=half, output=dx.f16).result.operand.dtype == np.float16
    for output, out in ((dx.f16, single), (dx.f32, half), (dx.bf16, half)):
        (miss,) = misses(out=out, output=output)
        assert (miss.operand, miss.rule) == ("out", "element-type")


# ---- numbers


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (1, 1.0),
        (True, 1.0),
        (-0.0, 0.0),
        (np.float64(0.1), np.float32(0.1)),
        (np.int8(-3), -3.0),
        (bf16(1.5), 1.5),
        (Fraction(1, 3), np.float32(1 / 3)),
        (2**24 + 1, 2.0**24),
        (1e-45, np.float32(1e-45)),
        (math.inf, math.inf),
        (np.float16("-inf"), -math.inf),
    ],
    ids=repr,
)
def test_real_numbers_of_any_kind_are_rounded_to_f32(given: Any, value: Any) -> None:
    product = call(alpha=given)
    assert type(product.alpha) is np.float32
    assert product.alpha == value


def test_nan_is_a_number() -> None:
    c = np.zeros((M, N), np.float32)
    product = call(alpha=math.nan, beta=np.float32("nan"), c=c)
    assert np.isnan([product.alpha, product.beta]).all()
    assert product.c is not None


@pytest.mark.parametrize(
    "given",
    ["2", b"2", np.str_("2"), np.bytes_(b"2"), None, 1j, np.complex64(1), np.array(2.0), [2.0], np.datetime64(2, "s")],
    ids=repr,
)
def test_what_only_looks_like_a_number_is_refused(given: Any) -> None:
    (miss,) = misses(alpha=given)
    assert (miss.operand, miss.rule, miss.need) == ("alpha", "scalar", "a real number in host memory")


@pytest.mark.parametrize(
    "given",
    [1e39, -1e300, 10**400, pytest.param(10**5000, id="10**5000"), 1e-46, -1e-300, np.longdouble("1e-60")],
)
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_number_that_f32_turns_into_infinity_or_zero_is_refused(name: str, given: Any) -> None:
    (miss,) = misses(**{name: given, "c": np.zeros((M, N), np.float32)} | ({"beta": 1.0} if name == "alpha" else {}))
    assert (miss.operand, miss.need) == (name, "a number that f32 holds")
    assert "from 1.4e-45 to 3.4e+38" in miss.why
    assert len(miss.got) < 60


# ---- what padded and Gemm are not ------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["rowe", "r", "column", None, 0])
def test_an_order_that_is_none(order: Any) -> None:
    with pytest.raises(ValueError, match="is none: row, col, row_major, col_major"):
        dx.padded(np.zeros((3, 4), bf16), order)


@pytest.mark.parametrize("array", [[[1.0, 2.0]], 3, np.zeros(4), np.float32(1)])
def test_a_copy_of_what_is_no_matrix(array: Any) -> None:
    with pytest.raises(TypeError, match="padded copies"):
        dx.padded(array)


def test_a_gemm_of_what_is_no_kernel_or_no_device() -> None:
    with pytest.raises(TypeError, match="not PipelinePlan"):
        dx.Gemm(dx.suggest_pipeline(tile()))  # type: ignore[arg-type]
    kernel = dx.CompiledKernel(source=dx.render(dx.suggest_pipeline(tile())), cubin=b"", ptx="", log="")
    with pytest.raises(TypeError, match="device = 3 is no device"):
        dx.Gemm(kernel, 3)  # type: ignore[arg-type]


def test_a_result_of_another_type_names_no_temporary() -> None:
    with pytest.raises(dx.OperandError) as caught:
        call(out=np.zeros((M, N), np.float64))
    (miss,) = caught.value.misses
    assert miss.fix == "out=None, or an array of float32"
