"""Float operations on lane values that are kept as bits.

f32 arithmetic is correctly rounded: sums and products are formed in float64 together with their rounding error, and
the float64 is made odd when it is inexact, so that the second rounding cannot go wrong (Boldo and Melquiond,
"Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd").
Subnormals are kept unless `.ftz` is written.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

from blasdx.emulator.lanes import DTYPES, Array, Value, lanewise

Operation = Callable[..., Value]
FLOAT_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "tf32": 32}
_CANONICAL_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "tf32": 0x7FFFFFFF}
_ONE32 = np.array([0x7FFFFFFF], np.uint32)
_EXPONENT_AND_SIGN: dict[str, tuple[Any, Any]] = {
    "f16": (np.uint16(0x7C00), np.uint16(0x8000)),
    "bf16": (np.uint16(0x7F80), np.uint16(0x8000)),
    "f32": (np.uint32(0x7F800000), np.uint32(0x80000000)),
    "tf32": (np.uint32(0x7F800000), np.uint32(0x80000000)),
    "f64": (np.uint64(0x7FF0000000000000), np.uint64(0x8000000000000000)),
}


def widen(bits: Array, kind: str) -> Array:
    """Bits of a format as exact float64."""
    if kind == "f32":
        return bits.view(np.float32).astype(np.float64)
    if kind == "f64":
        return bits.view(np.float64)
    if kind == "f16":
        return bits.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    raise AssertionError(kind)


def round_odd(value: Array, error: Array) -> Array:
    """The float64 `value` made odd where `error` (the exact result minus `value`) is not zero."""
    bits = value.view(np.int64)
    inexact = (error != 0) & (bits & 1 == 0) & np.isfinite(value)
    if not inexact.any():
        return value
    step = np.where((error > 0) == (value > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(np.float64)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Sum and its exact rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def narrow(value: Array, kind: str, mode: str) -> Array:
    """Round float64 to the bits of a format. `mode` is rn, rz, rm, rp or rna (ties away)."""
    if kind == "f64":
        return value.view(np.uint64)
    if kind == "f32":
        result = value.astype(np.float32)
        if mode != "rn":
            result = _directed(value, result, mode)
        return _canonical(result.view(np.uint32), value, kind)
    if kind == "f16":
        half = value.astype(np.float16)
        if mode != "rn":
            half = _directed(value, half, mode)
        return _canonical(half.view(np.uint16), value, kind)
    drop = {"bf16": 16, "tf32": 13}[kind]
    odd = _to_odd_f32(value)
    bits = _drop_bits(odd, drop, mode)
    if kind == "bf16":
        return _canonical((bits >> np.uint32(16)).astype(np.uint16), value, kind)
    return _canonical(bits, value, kind)


def _canonical(bits: Array, value: Array, kind: str) -> Array:
    nan = np.isnan(value)
    return np.where(nan, bits.dtype.type(_CANONICAL_NAN[kind]), bits) if nan.any() else bits


def _directed(value: Array, nearest: Array, mode: str) -> Array:
    back = nearest.astype(np.float64)
    zero, down, up = nearest.dtype.type(0), nearest.dtype.type(-np.inf), nearest.dtype.type(np.inf)
    if mode == "rz":
        wrong = (np.abs(back) > np.abs(value)) & ~np.isinf(value)
        return np.where(wrong, np.nextafter(nearest, zero), nearest)
    if mode == "rm":
        return np.where((back > value) & ~np.isinf(value), np.nextafter(nearest, down), nearest)
    if mode == "rp":
        return np.where((back < value) & ~np.isinf(value), np.nextafter(nearest, up), nearest)
    raise AssertionError(mode)


def _to_odd_f32(value: Array) -> Array:
    """float64 to float32 bits, truncated and made odd when inexact; overflow saturates and stays odd."""
    nearest = value.astype(np.float32)
    toward = _directed(value, nearest, "rz")
    inexact = toward.astype(np.float64) != value
    bits = toward.view(np.uint32)
    return np.where(inexact & ~np.isnan(value), bits | np.uint32(1), bits)


def _drop_bits(bits: Array, drop: int, mode: str) -> Array:
    """Round float32 bits to fewer mantissa bits; the bits below stay zero."""
    low = np.uint32((1 << drop) - 1)
    half = np.uint32(1 << (drop - 1))
    special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    negative = bits >> np.uint32(31) != 0
    if mode == "rn":
        rounded = bits + (half - np.uint32(1)) + ((bits >> np.uint32(drop)) & np.uint32(1))
    elif mode == "rna":
        rounded = bits + half
    elif mode == "rz":
        rounded = bits
    else:
        away = negative if mode == "rm" else ~negative
        rounded = np.where(away, bits + low, bits)
    return np.where(special, bits, rounded).astype(np.uint32) & ~low


def flush(bits: Array, kind: str) -> Array:
    """Subnormals to zero of the same sign (`.ftz`)."""
    exponent, sign = _EXPONENT_AND_SIGN[kind]
    return np.where((bits & exponent) == 0, bits & sign, bits)


def _saturate(value: Array) -> Array:
    return np.where(np.isnan(value), 0.0, np.clip(value, 0.0, 1.0))


def _finish(kind: str, mode: str, ftz: bool, sat: bool, relu: bool) -> Callable[[Array], Array]:
    def finish(value: Array) -> Array:
        if sat:
            value = _saturate(value)
        if relu:
            value = np.where(np.isnan(value), value, np.maximum(value, 0.0))
        bits = narrow(value, kind, mode)
        return flush(bits, kind) if ftz else bits

    return finish


def _inputs(kind: str, ftz: bool) -> Callable[[Array], Array]:
    def read(bits: Array) -> Array:
        return widen(flush(bits, kind) if ftz else bits, kind)

    return read


@lru_cache(maxsize=1024)
def _scalar32(bits: int) -> Any:
    return np.array(bits, np.uint32).view(np.float32)[()]


def _plain32(function: Callable[[Array, Array], Array]) -> Operation:
    """An f32 operation that NumPy rounds as PTX does; most float code of a GEMM is this, so it is kept short."""

    def operation(a: Value, b: Value) -> Value:
        x = a.view(np.float32) if a.__class__ is np.ndarray else _scalar32(a)
        y = b.view(np.float32) if b.__class__ is np.ndarray else _scalar32(b)
        value = function(x, y)
        if value.__class__ is not np.ndarray:
            return int(value.view(np.uint32)) if value == value else _CANONICAL_NAN["f32"]
        # A NaN anywhere makes the sum of squares one; nothing else does.
        total = value.dot(value)
        bits = value.view(np.uint32)
        return bits if total == total else np.where(np.isnan(value), _ONE32, bits)

    return operation


@cache
def add(kind: str, mode: str = "rn", ftz: bool = False, sat: bool = False, subtract: bool = False) -> Operation:
    """add and sub."""
    bits = FLOAT_BITS[kind]
    read, finish = _inputs(kind, ftz), _finish(kind, mode, ftz, sat, False)
    if kind == "f32" and mode == "rn" and not ftz and not sat:
        return _plain32(np.subtract if subtract else np.add)

    @lanewise(bits)
    def operation(a: Array, b: Array) -> Array:
        if kind == "f64":
            x, y = a.view(np.float64), b.view(np.float64)
            return (x - y if subtract else x + y).view(np.uint64)
        y = read(b)
        return finish(round_odd(*two_sum(read(a), -y if subtract else y)))

    return operation


@cache
def multiply(kind: str, mode: str = "rn", ftz: bool = False, sat: bool = False) -> Operation:
    """mul."""
    read, finish = _inputs(kind, ftz), _finish(kind, mode, ftz, sat, False)
    if kind == "f32" and mode == "rn" and not ftz and not sat:
        return _plain32(np.multiply)

    @lanewise(FLOAT_BITS[kind])
    def operation(a: Array, b: Array) -> Array:
        if kind == "f64":
            return (a.view(np.float64) * b.view(np.float64)).view(np.uint64)
        return finish(read(a) * read(b))

    return operation


@cache
def fused_multiply_add(
    kind: str, mode: str = "rn", ftz: bool = False, sat: bool = False, relu: bool = False
) -> Operation:
    """fma: the exact sum, rounded once."""
    read, finish = _inputs(kind, ftz), _finish(kind, mode, ftz, sat, relu)

    @lanewise(FLOAT_BITS[kind])
    def operation(a: Array, b: Array, c: Array) -> Array:
        if kind == "f64":
            return _fma64(a, b, c)
        return finish(round_odd(*two_sum(read(a) * read(b), read(c))))

    return operation


def _fma64(a: Array, b: Array, c: Array) -> Array:
    x, y, z = np.broadcast_arrays(a.view(np.float64), b.view(np.float64), c.view(np.float64))
    result = x * y + z
    for i in np.flatnonzero(np.isfinite(x) & np.isfinite(y) & np.isfinite(z)):
        exact = Fraction(float(x[i])) * Fraction(float(y[i])) + Fraction(float(z[i]))
        if exact:
            try:
                result[i] = float(exact)
            except OverflowError:
                result[i] = np.inf if exact > 0 else -np.inf
    return result.view(np.uint64)


@cache
def divide(kind: str, mode: str = "rn", ftz: bool = False) -> Operation:
    """Division; float64 has more than twice the digits of f32, so rounding twice is rounding once."""
    read, finish = _inputs(kind, ftz), _finish(kind, mode, ftz, False, False)

    @lanewise(FLOAT_BITS[kind])
    def operation(a: Array, b: Array) -> Array:
        x, y = read(a), read(b)
        quotient = x / y
        if mode != "rn":  # the residual says on which side of the exact quotient the float64 lies
            residual = np.where(np.isfinite(quotient) & (y != 0), x - quotient * y, 0.0) * np.sign(y)
            quotient = round_odd(quotient, residual)
        return finish(quotient)

    return operation


_UNARY: dict[str, Callable[[Array], Array]] = {
    "sqrt": np.sqrt,
    "rcp": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


@cache
def gross(name: str) -> Operation:
    """rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64: from the upper 32 bits of the operand to those of the result."""
    upper = np.uint64(0xFFFFFFFF00000000)

    @lanewise(64)
    def operation(a: Array) -> Array:
        value = np.asarray(_UNARY[name](flush(a & upper, "f64").view(np.float64)))
        return flush(value.view(np.uint64) & upper, "f64")

    return operation


@cache
def unary(name: str, kind: str, mode: str = "rn", ftz: bool = False) -> Operation:
    """Functions of one argument, evaluated in float64 and rounded: within the bounds PTX gives for `.approx`."""
    read, finish = _inputs(kind, ftz), _finish(kind, mode, ftz, False, False)
    function = _UNARY[name]

    @lanewise(FLOAT_BITS[kind])
    def operation(a: Array) -> Array:
        return finish(np.asarray(function(read(a))))

    return operation


@cache
def extreme(kind: str, largest: bool, nan: bool = False, xorsign: bool = False, ftz: bool = False) -> Operation:
    """min / max: a NaN loses against a number unless `.NaN` is written; -0 is less than +0."""
    bits = FLOAT_BITS[kind]
    sign = DTYPES[bits](1 << (bits - 1))

    @lanewise(bits)
    def operation(left: Array, right: Array) -> Array:
        both: tuple[Array, ...] = np.broadcast_arrays(left, right)
        a, b = both
        if ftz:
            a, b = flush(a, kind), flush(b, kind)
        flip = (a ^ b) & sign
        if xorsign:
            a, b = a & ~sign, b & ~sign
        x, y = widen(np.ascontiguousarray(a), kind), widen(np.ascontiguousarray(b), kind)
        less = (x < y) | ((x == y) & (a & sign > b & sign))
        x_nan, y_nan = np.isnan(x), np.isnan(y)
        chosen: Array = np.where(x_nan, b, np.where(y_nan, a, np.where(less == largest, b, a)))
        quiet = (x_nan | y_nan) if nan else (x_nan & y_nan)
        chosen = np.where(quiet, _canonical_bits(kind), chosen).astype(DTYPES[bits])
        return (chosen | flip) if xorsign else chosen

    return operation


def _canonical_bits(kind: str) -> int:
    return _CANONICAL_NAN.get(kind, 0x7FFFFFFFFFFFFFFF)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


@cache
def compare(kind: str, relation: str, ftz: bool = False) -> Operation:
    """setp on floats; a relation with trailing u also holds when an operand is NaN."""
    read = _inputs(kind, ftz)

    @lanewise(FLOAT_BITS[kind])
    def operation(a: Array, b: Array) -> Array:
        x, y = read(a), read(b)
        unordered = np.isnan(x) | np.isnan(y)
        if relation == "num":
            return ~unordered
        if relation == "nan":
            return unordered
        if relation.endswith("u"):
            return unordered | _COMPARE[relation[:-1]](x, y)
        return ~unordered & _COMPARE[relation](x, y)

    return operation


@cache
def sign_operation(name: str, kind: str, ftz: bool = False) -> Operation:
    """neg and abs are changes of the sign bit; copysign(a, b) gives b the sign of a."""
    bits = FLOAT_BITS[kind]
    sign = 1 << (bits - 1)
    if ftz:

        @lanewise(bits)
        def flushed(a: Array) -> Array:
            return plain(flush(a, kind))

        plain = sign_operation(name, kind)
        return flushed

    def operation(a: Value, b: Value = 0) -> Value:
        if name == "neg":
            return a ^ sign
        if name == "abs":
            return a & (sign - 1)
        return (b & (sign - 1)) | (a & sign)

    return operation


@cache
def test_property(kind: str, name: str) -> Operation:
    """testp."""
    smallest = {"f32": 2.0**-126, "f64": 2.0**-1022}[kind]
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= smallest),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < smallest),
    }

    @lanewise(FLOAT_BITS[kind])
    def operation(a: Array) -> Array:
        return tests[name](widen(a, kind))

    return operation


@cache
def packed(function: Operation, kind: str) -> Operation:
    """Apply an operation to both halves of an f16x2, bf16x2 or f32x2 register."""
    half = FLOAT_BITS[kind]
    low_mask = (1 << half) - 1

    def halves(value: Value) -> tuple[Value, Value]:
        if value.__class__ is not np.ndarray:
            return value & low_mask, value >> half
        both = np.ascontiguousarray(value).view(DTYPES[half])
        return both[0::2], both[1::2]

    def join(low: Value, high: Value) -> Value:
        if low.__class__ is not np.ndarray and high.__class__ is not np.ndarray:
            if low.__class__ is bool:
                return low, high
            return low | high << half
        if (low if low.__class__ is np.ndarray else high).dtype == np.bool_:
            return low, high
        out = np.empty((32, 2), DTYPES[half])
        out[:, 0], out[:, 1] = low, high
        return out.view(DTYPES[2 * half])[:, 0]

    def operation(*arguments: Value) -> Value:
        split = [halves(a) for a in arguments]
        return join(function(*(s[0] for s in split)), function(*(s[1] for s in split)))

    return operation
