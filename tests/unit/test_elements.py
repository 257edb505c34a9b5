"""Element types under every name that people and libraries give them."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from blasdx.elements import ELEMENTS, Element, bf16, e4m3, e5m2, f16, f32, f64, s8, s32, s64, tf32, u8, u32, u64


class FrameworkDtype:
    """A dtype object of a framework: only its text says what it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("spelling", "element"),
    [
        ("f16", f16),
        ("half", f16),
        ("__half", f16),
        ("float16", f16),
        (np.float16, f16),
        (np.dtype("float16"), f16),
        ("bfloat16", bf16),
        ("__nv_bfloat16", bf16),
        ("cutlass::bfloat16_t", bf16),
        (ml_dtypes.bfloat16, bf16),
        (np.dtype(ml_dtypes.bfloat16), bf16),
        (FrameworkDtype("torch.bfloat16"), bf16),
        ("tfloat32_t", tf32),
        ("float", f32),
        ("float32", f32),
        (np.float32, f32),
        ("double", f64),
        ("__nv_fp8_e4m3", e4m3),
        (ml_dtypes.float8_e4m3fn, e4m3),
        ("float8_e4m3fn", e4m3),
        (FrameworkDtype("torch.float8_e5m2"), e5m2),
        ("int8_t", s8),
        ("std::uint8_t", u8),
        ("unsigned char", u8),
        (np.intc, s32),
        (np.longlong, s64),
        (np.uint32, u32),
        ("unsigned long long", u64),
    ],
    ids=repr,
)
def test_every_spelling_names_its_element(spelling: object, element: Element) -> None:
    assert Element.of(spelling) is element


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_name_cuda_spelling_and_dtype_lead_back(element: Element) -> None:
    assert Element.of(element) is Element.of(element.name) is Element.of(element.cuda) is element
    assert element.numpy_dtype.itemsize == element.itemsize
    assert Element.of(element.numpy_dtype) is (f32 if element is tf32 else element)
    assert pickle.loads(pickle.dumps(element)) is element
    assert eval(repr(element), {e.name: e for e in ELEMENTS}) is element  # noqa: S307


@pytest.mark.parametrize(
    "spelling",
    [
        float,  # 64 bits in Python, 32 in CUDA
        int,
        np.dtype(">f4"),  # the same name, other bytes
        ml_dtypes.float8_e4m3,  # with infinities, unlike the tensor core's
        np.dtype(bool),
        "f128",
        "",
        None,
        16,
    ],
    ids=repr,
)
def test_what_is_none_of_ours_is_refused_with_the_names(spelling: object) -> None:
    with pytest.raises(ValueError, match="names no element type; known are f16, bf16, tf32"):
        Element.of(spelling)


def test_a_complex_element_is_two_real_ones() -> None:
    pair = f16.as_complex()
    assert (pair.name, pair.bits, pair.is_complex, pair.part) == ("complex<f16>", 32, True, f16)
    assert pair.numpy_dtype.names == ("real", "imag")
    assert f32.as_complex().numpy_dtype == np.complex64
    assert Element.of(np.complex128) is f64.as_complex()
    assert Element.of(repr(pair).split('"')[1]) is pair


def test_signs_and_families() -> None:
    assert {e.name for e in ELEMENTS if not e.is_float} == {"s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"}
    assert {e.name for e in ELEMENTS if not e.is_signed} == {"u8", "u16", "u32", "u64"}


CODES = {"f2": f16, "f4": f32, "f8": f64, "<f4": f32, "=f2": f16, "|i1": s8, "<u4": u32, "<i8": s64}


@pytest.mark.parametrize(("code", "element"), CODES.items())
def test_numpys_codes(code: str, element: Element) -> None:
    assert Element.of(code) is element
    assert element.numpy_dtype == np.dtype(code)


def test_codes_of_integers_without_a_byte_order_count_bits() -> None:
    assert Element.of("u8") is u8, "64 bits to NumPy, and an element type here"


@pytest.mark.parametrize("code", [">f4", "f3", "<f3", "|b1", "<V4", "<U4"])
def test_other_codes_are_refused(code: str) -> None:
    with pytest.raises(ValueError, match="names no element type"):
        Element.of(code)
