"""Element types against ml_dtypes and exact fractions; matrix products against rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import floor, log2
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from blasdx.emulator.formats import FLOATS, decode, encode
from blasdx.emulator.numerics import EXACT, TCGEN05, TCGEN05_MXF4, WGMMA_FP8, Arithmetic, Factor, multiply

SMALL = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}


def all_codes(element: str) -> NDArray[Any]:
    bits = 8 if element == "ue8m0" else FLOATS[element].bits
    return np.arange(1 << bits, dtype=np.uint16 if bits == 16 else np.uint8)


# ---------------------------------------------------------------------------------------------------- element types


@pytest.mark.parametrize("element", sorted(SMALL))
def test_every_code_decodes_as_ml_dtypes_has_it_and_encodes_back(element: str) -> None:
    codes = all_codes(element)
    values = decode(codes, element)
    with np.errstate(invalid="ignore"):
        expected = codes.view(SMALL[element]).astype(np.float64)
    assert np.array_equal(values, expected, equal_nan=True)
    back = encode(values, element)
    ordinary = ~np.isnan(values)
    assert np.array_equal(back[ordinary], codes[ordinary])
    assert np.isnan(decode(back[~ordinary], element)).all()


@pytest.mark.parametrize("element", ["f16", "bf16", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_rounding_to_nearest_agrees_with_ml_dtypes(element: str) -> None:
    rng = np.random.default_rng(3)
    values = decode(all_codes(element), element)
    finite = np.sort(values[np.isfinite(values)])
    middles = (finite[1:] + finite[:-1]) / 2
    x = np.concatenate([middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), rng.normal(size=999)])
    # float32 in between would round twice, so only what float32 holds is compared.
    x = x.astype(np.float32).astype(np.float64)
    assert np.array_equal(encode(x, element), x.astype(SMALL[element]).view(all_codes(element).dtype))


def test_examples_of_each_rounding_mode_and_overflow() -> None:
    x = np.array([1 + 2**-11, 1 + 3 * 2**-11, -(1 + 2**-11), 65519.0, 65520.0, 1e9, -1e9, 2.0**-25, np.inf, np.nan])
    expected = {
        ("rn", False): [0x3C00, 0x3C02, 0xBC00, 0x7BFF, 0x7C00, 0x7C00, 0xFC00, 0, 0x7C00, 0x7FFF],
        ("rna", False): [0x3C01, 0x3C02, 0xBC01, 0x7BFF, 0x7C00, 0x7C00, 0xFC00, 1, 0x7C00, 0x7FFF],
        ("rz", False): [0x3C00, 0x3C01, 0xBC00, 0x7BFF, 0x7BFF, 0x7BFF, 0xFBFF, 0, 0x7C00, 0x7FFF],
        ("rp", False): [0x3C01, 0x3C02, 0xBC00, 0x7C00, 0x7C00, 0x7C00, 0xFBFF, 1, 0x7C00, 0x7FFF],
        ("rm", False): [0x3C00, 0x3C01, 0xBC01, 0x7BFF, 0x7BFF, 0x7BFF, 0xFC00, 0, 0x7C00, 0x7FFF],
        ("rn", True): [0x3C00, 0x3C02, 0xBC00, 0x7BFF, 0x7BFF, 0x7BFF, 0xFBFF, 0, 0x7BFF, 0x7FFF],
    }
    for (rounding, saturate), codes in expected.items():
        got = encode(x, "f16", rounding=rounding, saturate=saturate)  # type: ignore[arg-type]
        assert got.tolist() == codes, (rounding, saturate)


def test_types_without_infinity_or_nan() -> None:
    x = np.array([449.0, 464.0, 465.0, np.inf, -np.inf, np.nan, -500.0])
    assert encode(x, "e4m3").tolist() == [0x7E, 0x7E, 0x7F, 0x7F, 0xFF, 0x7F, 0xFF]
    assert encode(x, "e4m3", saturate=True).tolist() == [0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0xFE]
    assert encode(x, "e2m1", saturate=True).tolist() == [7, 7, 7, 7, 15, 7, 15]
    assert encode(np.array([-1.0, 1.0, 1e9]), "ue4m3", saturate=True).tolist() == [0, 0x38, 0x7E]
    assert encode(np.array([1.0, 1.5, 3.0, 0.0]), "ue8m0", rounding="rz").tolist() == [127, 127, 128, 0]
    assert encode(np.array([1.0, 1.5, 3.0]), "ue8m0", rounding="rp").tolist() == [127, 128, 129]


def test_tf32_and_f32_words() -> None:
    assert decode(np.array([0x3F801FFF, 0x3F802000], np.uint32), "tf32").tolist() == [1.0, 1 + 2**-10]
    assert encode(np.array([1 + 2**-11]), "tf32", rounding="rna").tolist() == [0x3F802000]
    assert encode(np.array([1 + 2**-11]), "tf32", rounding="rz").tolist() == [0x3F800000]
    assert encode(np.array([1 + 2**-24, np.nan]), "f32").tolist() == [0x3F800000, 0x7FFFFFFF]
    assert encode(np.array([1 + 2**-24]), "f32", rounding="rp").tolist() == [0x3F800001]
    assert encode(np.array([-2.5]), "f64").tolist() == [0xC004000000000000]


@given(st.integers(-(1 << 40), 1 << 40))
def test_integers_wrap_or_clamp(x: int) -> None:
    for name, bits in (("s8", 8), ("u8", 8), ("s16", 16), ("s32", 32), ("u32", 32)):
        assert int(encode(np.array([x]), name)[0]) == x % (1 << bits)
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)
        assert int(decode(encode(np.array([x]), name, saturate=True), name)[0]) == min(max(x, low), high)


# ---------------------------------------------------------------------------------------------------- products


def random_codes(element: str, shape: tuple[int, int], seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    if element in ("tf32", "f32"):
        return rng.normal(size=shape).astype(np.float32).view(np.uint32)
    if element[0] in "su":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    values = rng.normal(size=shape) * 2.0 ** rng.integers(-6, 7, shape)
    return encode(values, element, saturate=True).astype(np.uint16 if FLOATS[element].bits == 16 else np.uint8)


@pytest.mark.parametrize(
    ("a", "b"),
    [("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32"), ("e4m3", "e5m2"), ("e2m3", "e2m1")],
)
def test_exact_products_are_rounded_once(a: str, b: str) -> None:
    ca, cb = random_codes(a, (5, 16), 1), random_codes(b, (7, 16), 2)
    c = np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32)
    got = multiply(Factor(ca, a), Factor(cb, b, negate=True), c.view(np.uint32), "f32").view(np.float32)
    for m in range(5):
        for n in range(7):
            terms = [-Fraction(float(decode(ca, a)[m, k])) * Fraction(float(decode(cb, b)[n, k])) for k in range(16)]
            assert abs(Fraction(float(got[m, n])) - sum(terms) - Fraction(float(c[m, n]))) <= Fraction(
                2.0**-24 * 1.001 * max(abs(float(got[m, n])), 2.0**-126)
            )


def test_integer_products_wrap_or_clamp_once() -> None:
    a, b = random_codes("s8", (6, 32), 4), random_codes("u8", (9, 32), 5)
    c = np.full((6, 9), 0x7FFFFFF0, np.uint32)
    whole = a.view(np.int8).astype(object) @ b.astype(object).T
    assert np.array_equal(decode(multiply(Factor(a, "s8"), Factor(b, "u8"), None, "s32"), "s32"), whole)
    wrapped = multiply(Factor(a, "s8"), Factor(b, "u8"), c, "s32")
    assert np.array_equal(wrapped, (whole + 0x7FFFFFF0) % (1 << 32))
    clamped = decode(multiply(Factor(a, "s8"), Factor(b, "u8"), c, "s32", saturate=True), "s32")
    assert np.array_equal(clamped, np.minimum(whole + 0x7FFFFFF0, 0x7FFFFFFF))


def model(products: list[tuple[Fraction, int]], c: Fraction, c_least: int, bits: int) -> Fraction:
    """Section "numerics" in rational arithmetic: align to the largest exponent, truncate, add. Not yet rounded."""
    exponents = [e for value, e in products if value]
    if c:
        exponents.append(max(exponent(c), c_least))
    if not exponents:
        return Fraction(0)
    unit = Fraction(2) ** (max(exponents) - bits)
    return sum((toward_zero(value / unit) for value in [*(p for p, _ in products), c]), Fraction(0)) * unit


def exponent(x: Fraction) -> int:
    e = floor(log2(abs(x.numerator)) - log2(x.denominator))
    return next(e + i for i in (-1, 0, 1) if Fraction(2) ** (e + i) <= abs(x) < Fraction(2) ** (e + i + 1))


def toward_zero(x: Fraction) -> int:
    return abs(x.numerator) // x.denominator * (1 if x >= 0 else -1)


def round_f32(x: Fraction, bits: int = 23) -> float:
    if not x:
        return 0.0
    unit = Fraction(2) ** (max(exponent(x), -126) - bits)
    return float(toward_zero(x / unit) * unit)


@pytest.mark.parametrize(
    ("element", "arithmetic", "depth"),
    [("f16", TCGEN05, 16), ("bf16", TCGEN05, 16), ("tf32", TCGEN05, 8), ("e4m3", TCGEN05, 32), ("e5m2", WGMMA_FP8, 32)],
)
def test_hardware_model_against_rational_arithmetic(element: str, arithmetic: Arithmetic, depth: int) -> None:
    ca, cb = random_codes(element, (6, depth), 6), random_codes(element, (5, depth), 7)
    ca[0, :] = 0
    ca[1, ::2] = 1  # subnormal
    c = (np.random.default_rng(8).normal(size=(6, 5)) * 4).astype(np.float32)
    c[2] = 0
    got = multiply(Factor(ca, element), Factor(cb, element), c.view(np.uint32), "f32", arithmetic).view(np.float32)
    least = FLOATS[element].least_exponent
    a, b = decode(ca, element), decode(cb, element)
    differs = 0
    for m in range(6):
        for n in range(5):
            products = []
            for k in range(depth):
                fa, fb = Fraction(float(a[m, k])), Fraction(float(b[n, k]))
                e = (max(exponent(fa), least) if fa else 0) + (max(exponent(fb), least) if fb else 0)
                products.append((fa * fb, e))
            total = model(products, Fraction(float(c[m, n])), -126, arithmetic.fraction_bits)
            assert float(got[m, n]) == round_f32(total, arithmetic.result_bits)
            differs += float(got[m, n]) != float(np.float32(float(a[m] @ b[n] + c[m, n])))
    assert differs, "the inputs must tell the models apart"


def one(a: list[float], b: list[float], c: float, d: str = "f32", arithmetic: Arithmetic = TCGEN05) -> float:
    rows = [encode(np.array([x]), "f16").astype(np.uint16) for x in (a, b)]
    words = multiply(Factor(rows[0], "f16"), Factor(rows[1], "f16"), encode(np.array([[c]]), d), d, arithmetic)
    return float(decode(words, d)[0, 0])


def test_values_that_tell_the_models_apart() -> None:
    # 1 + 2^-24 + 2^-24: the sum is 1 + 2^-23; each term survives 25 fraction bits.
    tiny = [2.0**-12, 2.0**-12]
    assert one([1.0, *tiny], [1.0, *tiny], 0.0) == 1 + 2**-23
    assert one([1.0, *tiny], [1.0, *tiny], 0.0, arithmetic=Arithmetic("hardware", fraction_bits=23)) == 1.0
    # Toward zero against to nearest.
    assert one([1.0, 2.0**-12], [1.0, 1.5 * 2.0**-12], 0.0) == 1.0
    assert one([1.0, 2.0**-12], [1.0, 1.5 * 2.0**-12], 0.0, arithmetic=EXACT) == 1 + 2**-23
    # A cancelling large pair wipes out what lies below its fraction bits.
    assert one([2.0**15, 2.0**15, 1.0], [2.0**15, -(2.0**15), 2.0**-4], 0.0) == 2.0**-4 * 0
    assert one([2.0**15, 2.0**15, 1.0], [2.0**15, -(2.0**15), 2.0**-4], 0.0, arithmetic=EXACT) == 2.0**-4
    # An f16 result is rounded to nearest even.
    assert one([1.0], [1 + 2**-10], 2.0**-11, "f16") == 1 + 2**-9
    assert one([1.0], [1.0], 2.0**-11, "f16") == 1.0


@pytest.mark.parametrize("arithmetic", [EXACT, TCGEN05])
def test_infinities_and_nan(arithmetic: Arithmetic) -> None:
    assert one([np.inf, 1.0], [2.0, 1.0], 5.0, arithmetic=arithmetic) == np.inf
    assert np.isnan(one([np.inf, 1.0], [0.0, 1.0], 5.0, arithmetic=arithmetic))
    assert np.isnan(one([np.inf, np.inf], [1.0, -1.0], 0.0, arithmetic=arithmetic))
    assert one([1.0, 1.0], [1.0, 1.0], -np.inf, arithmetic=arithmetic) == -np.inf
    big = float(np.float32(3.4e38))
    assert one([60000.0], [60000.0], big, arithmetic=arithmetic) == big
    assert one([60000.0] * 2, [60000.0] * 2, 0.0, "f16", arithmetic) == np.inf
    assert one([0.0, 0.0], [1.0, 0.0], 0.0, arithmetic=arithmetic) == 0.0


@pytest.mark.parametrize("arithmetic", [EXACT, TCGEN05])
def test_block_scales_multiply_each_group_of_k(arithmetic: Arithmetic) -> None:
    a, b = random_codes("e4m3", (4, 32), 9), random_codes("e5m2", (3, 32), 10)
    sa, sb = (np.random.default_rng(s).integers(124, 131, (n, 1), dtype=np.uint8) for s, n in ((11, 4), (12, 3)))
    got = multiply(
        Factor(a, "e4m3", scales=sa, scale="ue8m0"),
        Factor(b, "e5m2", scales=sb, scale="ue8m0"),
        None,
        "f32",
        arithmetic,
    ).view(np.float32)
    plain = multiply(Factor(a, "e4m3"), Factor(b, "e5m2"), None, "f32", arithmetic).view(np.float32)
    assert np.array_equal(got, plain * 2.0 ** (sa.astype(int) - 127) * 2.0 ** (sb.astype(int).T - 127))


@pytest.mark.parametrize("arithmetic", [EXACT, TCGEN05_MXF4])
def test_four_bit_products_with_e4m3_scales(arithmetic: Arithmetic) -> None:
    rng = np.random.default_rng(13)
    a, b = rng.integers(0, 16, (4, 64), dtype=np.uint8), rng.integers(0, 16, (3, 64), dtype=np.uint8)
    sa, sb = rng.integers(0x30, 0x40, (4, 4), dtype=np.uint8), rng.integers(0x30, 0x40, (3, 4), dtype=np.uint8)
    got = multiply(
        Factor(a, "e2m1", scales=sa, scale="ue4m3"),
        Factor(b, "e2m1", scales=sb, scale="ue4m3"),
        None,
        "f32",
        arithmetic,
    ).view(np.float32)
    va = decode(a, "e2m1") * np.repeat(decode(sa, "ue4m3"), 16, axis=1)
    vb = decode(b, "e2m1") * np.repeat(decode(sb, "ue4m3"), 16, axis=1)
    assert np.array_equal(got, (va @ vb.T).astype(np.float32))


def test_scale_input_d_and_f16_words() -> None:
    c = encode(np.array([[8.0]]), "f32")
    zero = Factor(np.zeros((1, 16), np.uint16), "f16")
    assert multiply(zero, zero, c, "f32", shift=3).view(np.float32)[0, 0] == 1.0
    dirty = encode(np.array([[8.0]]), "f16") | np.uint32(0xABCD0000)
    assert decode(multiply(zero, zero, dirty, "f16"), "f16")[0, 0] == 8.0


def test_large_products_are_computed_in_chunks_of_columns() -> None:
    rng = np.random.default_rng(21)
    a, b = rng.integers(-8, 9, (128, 64)), rng.integers(-8, 9, (249, 64))
    got = multiply(Factor(a.astype(np.uint8), "s8"), Factor(b.astype(np.uint8), "s8"), None, "s32")
    assert np.array_equal(decode(got, "s32"), a @ b.T)
