"""Float operations on lane values that are kept as bits.

Everything is correctly rounded but what PTX itself calls an approximation. Subnormals are kept unless `.ftz` is
written.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np

from blasdx.emulator.lanes import DTYPES, Array, Value, lanewise
from blasdx.emulator.rounding import CANONICAL_NAN, FLOAT_BITS, flush, narrow, round_odd, two_sum, widen

Operation = Callable[..., Value]
_ONE32 = np.array([0x7FFFFFFF], np.uint32)


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
            return int(value.view(np.uint32)) if value == value else CANONICAL_NAN["f32"]
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
    return CANONICAL_NAN.get(kind, 0x7FFFFFFFFFFFFFFF)


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
