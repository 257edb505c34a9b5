"""cvt and float arithmetic (PTX ISA 9.7.3 - 9.7.5, 9.7.9.21), against rational numbers rounded by hand."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.families import Case, check, corner_words

LANES = 128


class Format(NamedTuple):
    """Exponent bits, fraction bits, bias; whether the largest exponent holds infinity and NaN."""

    exponent: int
    fraction: int
    bias: int
    ieee: bool
    dtype: type

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction


FORMATS = {
    "f32": Format(8, 23, 127, True, np.float32),
    "f16": Format(5, 10, 15, True, np.float16),
    "bf16": Format(8, 7, 127, True, ml_dtypes.bfloat16),
    "e4m3": Format(4, 3, 7, False, ml_dtypes.float8_e4m3fn),
    "e5m2": Format(5, 2, 15, True, ml_dtypes.float8_e5m2),
    "e2m3": Format(2, 3, 1, False, ml_dtypes.float6_e2m3fn),
    "e3m2": Format(3, 2, 3, False, ml_dtypes.float6_e3m2fn),
    "e2m1": Format(2, 1, 1, False, ml_dtypes.float4_e2m1fn),
}


def largest(name: str) -> Fraction:
    form = FORMATS[name]
    top = (1 << form.exponent) - 1 - form.ieee - form.bias
    fraction = (1 << form.fraction) - 1 - (name == "e4m3")  # S.1111.111 is NaN
    return Fraction(2) ** top * (1 + Fraction(fraction, 1 << form.fraction))


def rounded(x: Fraction, name: str, mode: str) -> Fraction | float:
    """`x` in a format; infinity when it is beyond the largest number, for rn away from half an ulp beyond it."""
    form = FORMATS[name]
    if not x:
        return x
    exponent = max(math.floor(math.log2(abs(x))) if abs(x) > 0 else 0, 1 - form.bias)
    while Fraction(2) ** (exponent + 1) <= abs(x):
        exponent += 1
    while Fraction(2) ** exponent > abs(x) and exponent > 1 - form.bias:
        exponent -= 1
    ulp = Fraction(2) ** (exponent - form.fraction)
    below = math.floor(x / ulp)
    rest = x / ulp - below
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1),
        "rz": x < 0 and rest > 0, "rm": False, "rp": rest > 0,
        "rna": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and x > 0),
    }[mode]  # fmt: skip
    result = (below + up) * ulp
    if abs(result) > largest(name):
        inwards = mode == "rz" or (mode == "rm" and x > 0) or (mode == "rp" and x < 0)
        return largest(name) * (1 if x > 0 else -1) if inwards else math.inf * (1 if x > 0 else -1)
    return result


def values(seed: int, dtype: type = np.float32, spread: int = 12) -> np.ndarray:
    """Numbers of all sizes, ties, subnormals, zeros, infinities and NaN among them."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(LANES) * 2.0 ** rng.integers(-spread, spread, LANES)).astype(np.float32)
    x[::7] = np.round(x[::7] * 16) / 16
    x[:14] = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 448, 464, 465, 57344, 61440, 2.0**-9]
    x[14:20] = [2.0**-17, 3.4e38, -3.4e38, 1e-40, 65504, 65520]
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def convert(x: np.ndarray, name: str, mode: str, *, satfinite: bool = False, relu: bool = False) -> np.ndarray:
    """Each number in the format, as its dtype."""
    out = []
    for v in x.astype(np.float64):
        if math.isnan(v):
            out.append(math.nan)
            continue
        if relu and v < 0:
            v = 0.0
        if math.isinf(v):
            r: float = v
        else:
            exact = rounded(Fraction(float(v)), name, mode)
            r = math.copysign(float(exact), v) if not exact and not relu else float(exact)
        if math.isinf(r) and (satfinite or not FORMATS[name].ieee):
            r = math.copysign(float(largest(name)), r)
        out.append(r)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(out).astype(FORMATS[name].dtype)


def codes(x: np.ndarray, nan: int) -> np.ndarray:
    """The codes of numbers of 8 or fewer bits, with the instruction's own NaN."""
    words = x.view(np.uint8).copy()
    words[np.isnan(x.astype(np.float32))] = nan
    return words


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_f32_to_16_bits_alone_and_in_pairs(name: str, mode: str) -> None:
    a, b = values(1), values(2)[::-1].copy()
    low, high = convert(a, name, mode), convert(b, name, mode)
    ok = ~(np.isnan(a) | np.isnan(b))
    a, b = np.where(ok, a, 1).astype(np.float32), np.where(ok, b, 1).astype(np.float32)
    low, high = convert(a, name, mode), convert(b, name, mode)
    pair = low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(np.uint32) << 16
    kept = [convert(v, name, mode, relu=True).view(np.uint16).astype(np.uint32) for v in (a, b)]
    check({"a": values(1)}, [Case(f"cvt.{mode}.{name}.f32 %d, %a;", convert(values(1), name, mode))])
    check({"a": a, "b": b}, [
        Case(f"cvt.{mode}.{name}x2.f32 %d, %b, %a;", pair),
        Case(f"cvt.{mode}.relu.{name}x2.f32 %d, %b, %a;", kept[0] | kept[1] << 16),
    ])  # fmt: skip


def test_between_float_widths() -> None:
    half, brain, single = values(3, np.float16), values(4, ml_dtypes.bfloat16), values(5)
    unit = np.where(np.isnan(single), np.float32(0), np.clip(single, 0, 1) + np.float32(0))
    double = np.random.default_rng(6).standard_normal(LANES)
    double[:3] = 1 + 2.0**-24, 1 + 2.0**-25, 1e39
    with np.errstate(invalid="ignore"):
        flushed = np.trunc(np.where(np.abs(single) < 2.0**-126, np.copysign(np.float32(0), single), single))
    check({"h": half, "e": brain, "s": single, "x": double}, [
        Case("cvt.f32.f16 %d, %h;", half.astype(np.float32)),
        Case("cvt.f32.bf16 %d, %e;", brain.astype(np.float32)),
        Case("cvt.f64.f32 %d, %s;", single.astype(np.float64)),
        *(Case(f"cvt.{mode}.f32.f64 %d, %x;", np.array([float(rounded(Fraction(v), "f32", mode)) for v in double],
                                                       np.float32)) for mode in ("rn", "rz", "rm", "rp")),
        Case("cvt.rni.f32.f32 %d, %s;", np.rint(single)),
        Case("cvt.rzi.f32.f32 %d, %s;", np.trunc(single)),
        Case("cvt.rmi.f32.f32 %d, %s;", np.floor(single)),
        Case("cvt.rpi.f32.f32 %d, %s;", np.ceil(single)),
        Case("cvt.sat.f32.f32 %d, %s; abs.f32 %d, %d;", unit),
        Case("cvt.rzi.ftz.f32.f32 %d, %s;", flushed),
    ])  # fmt: skip


def test_tf32_rounds_away_from_zero_on_ties() -> None:
    words = corner_words(32, LANES, 9)
    words = np.where((words >> 23 & 0xFF) == 0xFF, np.uint32(0x3F801000), words)
    words[:4] = 0x3F801000, 0x3F800FFF, 0xBF801000, 0x3F803000
    want = words + np.uint32(0x1000) & np.uint32(0xFFFFE000)
    inf = (want >> 23 & 0xFF) == 0xFF
    check({"a": words[~inf][:96]}, [Case("cvt.rna.tf32.f32 %d, %a;", want[~inf][:96])])


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_pairs_of_8_bit_floats(name: str) -> None:
    a, b = values(11), values(12)
    low, high = (codes(convert(v, name, "rn", satfinite=True), 0x7F).astype(np.uint16) for v in (a, b))
    check({"a": a, "b": b}, [Case(f"cvt.rn.satfinite.{name}x2.f32 %d, %b, %a;", low | high << 8)])
    ordinary = np.where(np.isnan(a), np.float32(1), a)
    kept = codes(convert(ordinary, name, "rn", satfinite=True, relu=True), 0x7F).astype(np.uint16)
    check({"a": ordinary}, [Case(f"cvt.rn.satfinite.relu.{name}x2.f32 %d, %a, %a;", kept | kept << 8)])
    pairs = np.arange(256, dtype=np.uint16) | np.arange(256, dtype=np.uint16)[::-1] << 8
    back = pairs.view(np.uint8).view(FORMATS[name].dtype).astype(np.float16)
    fine = ~np.isnan(back.reshape(-1, 2)).any(axis=1)
    want = back.reshape(-1, 2)[fine].reshape(-1).view(np.uint32)
    count = len(want) // 32 * 32
    check({"a": pairs[fine][:count]}, [Case(f"cvt.rn.f16x2.{name}x2 %d, %a;", want[:count])])


@pytest.mark.parametrize("name", ["e2m3", "e3m2"])
def test_pairs_of_6_bit_floats(name: str) -> None:
    a, b = (np.where(np.isnan(values(s)), np.float32(1), values(s)) for s in (13, 14))
    low, high = (codes(convert(v, name, "rn", satfinite=True), 0).astype(np.uint16) for v in (a, b))
    check({"a": a, "b": b}, [Case(f"cvt.rn.satfinite.{name}x2.f32 %d, %b, %a;", low | high << 8)])
    pairs = np.arange(64, dtype=np.uint16) | np.arange(64, dtype=np.uint16)[::-1] << 8
    back = pairs.view(np.uint8).view(FORMATS[name].dtype).astype(np.float16).view(np.uint32)
    check({"a": pairs}, [Case(f"cvt.rn.f16x2.{name}x2 %d, %a;", back)])


def test_pairs_of_4_bit_floats_fill_a_byte() -> None:
    a, b = (np.where(np.isnan(values(s)), np.float32(1), values(s)) for s in (15, 16))
    low, high = (codes(convert(v, "e2m1", "rn", satfinite=True), 0).astype(np.uint16) for v in (a, b))
    byte = ".reg .b8 %z; cvt.rn.satfinite.e2m1x2.f32 %z, %b, %a; cvt.u16.u8 %d, %z;"
    check({"a": a, "b": b}, [Case(byte, low | high << 4)])
    packed = np.arange(256, dtype=np.uint16)
    table = np.arange(16, dtype=np.uint8).view(FORMATS["e2m1"].dtype).astype(np.float16)
    want = np.stack([table[packed & 15], table[packed >> 4]], -1).reshape(-1).view(np.uint32)
    check({"a": packed}, [Case(".reg .b8 %z; cvt.u8.u16 %z, %a; cvt.rn.f16x2.e2m1x2 %d, %z;", want)])


def test_scale_factors_are_powers_of_two() -> None:
    exponents = np.random.default_rng(17).integers(-120, 120, LANES)
    a = np.ldexp(np.float32(1.25), exponents).astype(np.float32)
    up, down = (exponents + 128).astype(np.uint16), (exponents + 127).astype(np.uint16)
    check({"a": a}, [
        Case("cvt.rp.satfinite.ue8m0x2.f32 %d, %a, %a;", up | up << 8),
        Case("cvt.rz.satfinite.ue8m0x2.f32 %d, %a, %a;", down | down << 8),
    ])  # fmt: skip
    back = np.ldexp(1.0, exponents).astype(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16).astype(np.uint32)
    check({"a": down | down << 8}, [Case("cvt.rn.bf16x2.ue8m0x2 %d, %a;", back | back << 16)])


@pytest.mark.parametrize("source", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_between_integers_and_to_floats(source: str) -> None:
    bits = int(source[1:])
    words = corner_words(max(bits, 16), LANES, bits)
    numbers = [int(w) & (1 << bits) - 1 for w in words]
    if source[0] == "s":
        numbers = [n - (1 << bits) if n >> bits - 1 else n for n in numbers]
    cases = []
    for target in ("s16", "u16", "s32", "u32", "s64", "u64"):
        size = int(target[1:])
        if target == source:
            continue
        want = np.array([n & (1 << size) - 1 for n in numbers], f"u{size // 8}")
        low, high = (-(1 << size - 1), (1 << size - 1) - 1) if target[0] == "s" else (0, (1 << size) - 1)
        clipped = np.array([max(low, min(high, n)) & (1 << size) - 1 for n in numbers], f"u{size // 8}")
        cases.append(Case(f"cvt.{target}.{source} %d, %a;", want))
        if (source[0] == "s" and (target[0] == "u" or size < bits)) or (
            source[0] == "u" and size - (target[0] == "s") < bits
        ):
            cases.append(Case(f"cvt.sat.{target}.{source} %d, %a;", clipped))
    for mode in ("rn", "rz", "rm", "rp"):
        want = np.array([float(rounded(Fraction(n), "f32", mode)) for n in numbers], np.float32)
        cases.append(Case(f"cvt.{mode}.f32.{source} %d, %a;", want))
    half = np.array([float(rounded(Fraction(n), "f16", "rn")) for n in numbers], np.float16)
    cases.append(Case(f"cvt.rn.f16.{source} %d, %a;", half))
    check({"a": words}, cases)


@pytest.mark.parametrize("source", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_integers_to_f64(source: str) -> None:
    bits = int(source[1:])
    words = corner_words(bits, LANES, bits)
    numbers = [int(w) - (1 << bits) if source[0] == "s" and int(w) >> bits - 1 else int(w) for w in words]
    check({"a": words}, [Case(f"cvt.rn.f64.{source} %d, %a;", np.array([float(n) for n in numbers]))])


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_floats_to_integers_clamp_and_nan_is_zero(source: str) -> None:
    dtype = np.float64 if source == "f64" else FORMATS[source].dtype
    x = values(21, dtype, spread=24)
    rounding = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
    cases = []
    for target in ("s16", "u16", "s32", "u32", "s64", "u64"):
        size = int(target[1:])
        low, high = (-(1 << size - 1), (1 << size - 1) - 1) if target[0] == "s" else (0, (1 << size) - 1)
        # PTX leaves NaN to the type: 0, but 2^63 where 64 bits are wanted (of f32 and f64 sources).
        fine = ~np.isnan(x.astype(np.float64))
        for mode, function in rounding.items():
            numbers = function(x.astype(np.float64))
            want = []
            for number, good in zip(numbers, fine, strict=True):
                value = 0 if not good else high if number > high else low if number < low else int(number)
                want.append(value & (1 << size) - 1)
            cases.append((f"cvt.{mode}.{target}.{source} %d, %a;", np.array(want, f"u{size // 8}")))
    clean = np.where(np.isnan(x.astype(np.float64)), np.array(3, dtype), x)
    picked = [Case(text, np.where(np.isnan(x.astype(np.float64)), want.dtype.type(3), want)) for text, want in cases]
    check({"a": clean}, picked)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_sums_and_products_are_rounded_once(name: str) -> None:
    dtype = FORMATS[name].dtype
    rng = np.random.default_rng(31)
    a, b, c = ((rng.standard_normal(LANES) * 2.0 ** rng.integers(-6, 7, LANES)).astype(dtype) for _ in range(3))
    fa, fb, fc = ([Fraction(float(v)) for v in x] for x in (a, b, c))

    def want(numbers: list[Fraction], mode: str = "rn") -> np.ndarray:
        return np.array([float(rounded(n, name, mode)) for n in numbers]).astype(dtype)

    sums = [x + y for x, y in zip(fa, fb, strict=True)]
    products = [x * y for x, y in zip(fa, fb, strict=True)]
    fused = [p + z for p, z in zip(products, fc, strict=True)]
    cases = [
        Case(f"add.rn.{name} %d, %a, %b;", want(sums)),
        Case(f"sub.rn.{name} %d, %a, %b;", want([x - y for x, y in zip(fa, fb, strict=True)])),
        Case(f"mul.rn.{name} %d, %a, %b;", want(products)),
        Case(f"fma.rn.{name} %d, %a, %b, %c;", want(fused)),
        Case(f"min.{name} %d, %a, %b;", np.minimum(a, b)),
        Case(f"max.{name} %d, %a, %b;", np.maximum(a, b)),
        Case(f"abs.{name} %d, %a;", np.abs(a)),
        Case(f"neg.{name} %d, %a;", -a),
    ]
    if name == "f32":
        for mode in ("rz", "rm", "rp"):
            cases += [
                Case(f"add.{mode}.f32 %d, %a, %b;", want(sums, mode)),
                Case(f"mul.{mode}.f32 %d, %a, %b;", want(products, mode)),
                Case(f"fma.{mode}.f32 %d, %a, %b, %c;", want(fused, mode)),
            ]
        quotients = [x / y for x, y in zip(fa, fb, strict=True)]
        cases += [
            Case("div.rn.f32 %d, %a, %b;", want(quotients)),
            Case("add.sat.f32 %d, %a, %b;", np.clip(want(sums), 0, 1) + np.float32(0)),
            Case("rcp.rn.f32 %d, %b;", want([1 / y for y in fb])),
            Case("copysign.f32 %d, %a, %b;", np.copysign(b, a)),
        ]
    else:
        kept = np.where(want(fused).astype(np.float32) < 0, np.array(0, dtype), want(fused))
        cases.append(Case(f"fma.rn.relu.{name} %d, %a, %b, %c;", kept))
    check({"a": a, "b": b, "c": c}, cases)


@pytest.mark.parametrize("name", ["f16x2", "bf16x2", "f32x2"])
def test_packed_arithmetic_is_two_of_the_scalar(name: str) -> None:
    element = name.removesuffix("x2")
    dtype = FORMATS[element].dtype
    rng = np.random.default_rng(32)
    a, b, c = (rng.standard_normal((LANES, 2)).astype(dtype) for _ in range(3))
    word = np.uint32 if element != "f32" else np.uint64

    def want(function: object, *operands: np.ndarray) -> np.ndarray:
        flat = [[Fraction(float(v)) for v in x.reshape(-1)] for x in operands]
        out = [float(rounded(function(*lane), element, "rn")) for lane in zip(*flat, strict=True)]  # type: ignore[operator]
        return np.array(out).astype(dtype).view(word)

    cases = [
        Case(f"add.rn.{name} %d, %a, %b;", want(lambda x, y: x + y, a, b)),
        Case(f"mul.rn.{name} %d, %a, %b;", want(lambda x, y: x * y, a, b)),
        Case(f"fma.rn.{name} %d, %a, %b, %c;", want(lambda x, y, z: x * y + z, a, b, c)),
    ]
    if element != "f32":
        cases += [
            Case(f"max.{name} %d, %a, %b;", np.maximum(a, b).reshape(-1).view(word)),
            Case(f"neg.{name} %d, %a;", (-a).reshape(-1).view(word)),
        ]
    check({n: x.reshape(-1).view(word) for n, x in zip("abc", (a, b, c), strict=True)}, cases)


def test_subnormals_nan_and_signs_of_f32() -> None:
    a, b = values(41), values(42)[::-1].copy()
    a[:4], b[:4] = [1e-40, 1e-40, -0.0, 0.0], [0, 1, 0.0, -0.0]

    def flush(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x)

    with np.errstate(all="ignore"):
        sums = flush((flush(a).astype(np.float64) + flush(b)).astype(np.float32))
        smaller = np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.minimum(a, b)))
        smaller = np.where((a == 0) & (b == 0), np.where(np.signbit(a) | np.signbit(b), np.float32(-0.0), 0), smaller)
    strict = np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), smaller)
    finite = np.isfinite(a)
    properties = {
        "finite": finite, "infinite": np.isinf(a), "number": ~np.isnan(a), "notanumber": np.isnan(a),
        "normal": finite & (np.abs(a) >= 2.0**-126), "subnormal": finite & (np.abs(a) < 2.0**-126) & (a != 0),
    }  # fmt: skip
    cases = [
        Case("add.ftz.f32 %d, %a, %b;", sums),
        Case("min.f32 %d, %a, %b;", smaller.astype(np.float32)),
        Case("min.NaN.f32 %d, %a, %b;", strict.astype(np.float32)),
    ]
    for name, yes in properties.items():
        cases.append(Case(f"testp.{name}.f32 %p, %a; selp.u32 %d, 1, 0, %p;", yes.astype(np.uint32)))
    unordered = np.isnan(a) | np.isnan(b)
    for name, plain in (("eq", a == b), ("ne", (a != b) & ~unordered), ("lt", a < b), ("ge", a >= b)):
        cases.append(Case(f"setp.{name}.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", plain.astype(np.uint32)))
        text = f"setp.{name}u.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;"
        cases.append(Case(text, (plain | unordered).astype(np.uint32)))
    cases.append(Case("setp.nan.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", unordered.astype(np.uint32)))
    cases.append(Case("setp.num.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", (~unordered).astype(np.uint32)))
    check({"a": a, "b": b}, cases)


@pytest.mark.parametrize("kind", ["s16", "u16", "s8", "u8"])
def test_packing_with_saturation(kind: str) -> None:
    a, b, c = (corner_words(32, LANES, seed).view(np.int32) for seed in (51, 52, 53))
    a[::3] %= 300
    b[::3] %= 300
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    top, bottom = (np.clip(v, low, high).astype(np.int64) & (1 << bits) - 1 for v in (a, b))
    if bits == 16:
        case = Case(f"cvt.pack.sat.{kind}.s32 %d, %a, %b;", (top << 16 | bottom).astype(np.uint32))
    else:
        kept = c.astype(np.int64) << 16 & 0xFFFFFFFF
        case = Case(f"cvt.pack.sat.{kind}.s32.b32 %d, %a, %b, %c;", (kept | top << 8 | bottom).astype(np.uint32))
    check({"a": a, "b": b, "c": c}, [case])


def dithered(x: np.ndarray, name: str, random: np.ndarray, bits: int, *, satfinite: bool = False) -> np.ndarray:
    """Away from zero where the fraction that is cut off and the random one make a whole."""
    form, out = FORMATS[name], []
    for v, r in zip(x.astype(np.float64), random.tolist(), strict=True):
        size = abs(Fraction(float(v)))
        exponent = 1 - form.bias
        while Fraction(2) ** (exponent + 1) <= size:
            exponent += 1
        ulp = Fraction(2) ** (exponent - form.fraction)
        result = math.floor(size / ulp + Fraction(r % (1 << bits), 1 << bits)) * ulp
        if result > largest(name):
            result = largest(name) if satfinite else math.inf
        out.append(math.copysign(float(result), v))
    with np.errstate(over="ignore"):
        return np.array(out).astype(FORMATS[name].dtype)


def finite(seed: int, spread: int = 12) -> np.ndarray:
    x = values(seed, spread=spread)
    return np.where(np.isfinite(x), x, np.float32(1.7))


@pytest.mark.parametrize(("name", "bits"), [("f16", 13), ("bf16", 16)])
def test_stochastic_rounding_of_pairs_takes_half_of_the_random_word_each(name: str, bits: int) -> None:
    a, b, r = finite(40), finite(41), corner_words(32, LANES, 42)
    low, high = (dithered(v, name, r >> s, bits).view(np.uint16).astype(np.uint32) for v, s in ((a, 0), (b, 16)))
    kept = dithered(np.maximum(a, 0), name, r, bits, satfinite=True).view(np.uint16).astype(np.uint32)
    check({"a": a, "b": b, "r": r}, [
        Case(f"cvt.rs.{name}x2.f32 %d, %b, %a, %r;", low | high << 16),
        Case(f"cvt.rs.relu.satfinite.{name}x2.f32 %d, %a, %a, %r; and.b32 %d, %d, 0xffff;", kept),
    ])  # fmt: skip


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m3", "e3m2"])
def test_stochastic_rounding_of_fours_reverses_every_second_byte(name: str) -> None:
    x = [finite(43 + k, spread=9) for k in range(4)]
    r = corner_words(32, LANES, 47)
    turned = np.array([int(f"{v:032b}"[::-1], 2) for v in r.tolist()], np.uint32)  # bytes change places too
    random = [turned >> 8, r >> 24, turned >> 24, r >> 8]
    want = np.zeros(LANES, np.uint32)
    for k in range(4):  # the first operand is the highest byte
        code = dithered(x[k], name, random[k] & 0xFF, 8, satfinite=True).view(np.uint8)
        want |= code.astype(np.uint32) << 8 * (3 - k)
    operands = dict(zip("abef", x, strict=True)) | {"r": r}
    check(operands, [Case(f"cvt.rs.satfinite.{name}x4.f32 %d, {{%a, %b, %e, %f}}, %r;", want)])
