"""Integer arithmetic, logic, bit fields and comparisons (PTX ISA 9.7.1, 9.7.2, 9.7.6, 9.7.8)."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.families import Case, check, corner_words

LANES = 128
A, B, C = (corner_words(32, LANES, seed) for seed in (1, 2, 3))
LONG_A, LONG_B, LONG_C = (corner_words(64, LANES, seed) for seed in (4, 5, 6))
SHORT_A, SHORT_B, SHORT_C = (corner_words(16, LANES, seed) for seed in (7, 8, 9))
OPERANDS = {32: (A, B, C), 64: (LONG_A, LONG_B, LONG_C), 16: (SHORT_A, SHORT_B, SHORT_C)}


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def each(
    function: Callable[..., int], bits: int, *operands: np.ndarray, sign: bool = False, out: int = 0
) -> np.ndarray:
    """`function` of Python integers, lane by lane, as words of `out` bits."""
    out = out or bits
    read = (lambda v: signed(v, bits)) if sign else (lambda v: v)
    results = [function(*(read(int(v)) for v in lane)) & ((1 << out) - 1) for lane in zip(*operands, strict=True)]
    return np.array(results, f"u{out // 8}")


def inputs(bits: int) -> dict[str, np.ndarray]:
    return dict(zip("abc", OPERANDS[bits], strict=True))


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def quotient(a: int, b: int) -> int:
    """Towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize(("bits", "sign"), [(b, s) for b in (16, 32, 64) for s in (False, True)])
def test_arithmetic(bits: int, sign: bool) -> None:
    a, b, c = OPERANDS[bits]
    kind = f"{'s' if sign else 'u'}{bits}"
    b1 = b | np.array(1, b.dtype)

    def two(function: Callable[[int, int], int], right: np.ndarray = b) -> np.ndarray:
        return each(function, bits, a, right, sign=sign)

    cases = [
        Case(f"add.{kind} %d, %a, %b;", two(operator.add)),
        Case(f"sub.{kind} %d, %a, %b;", two(operator.sub)),
        Case(f"mul.lo.{kind} %d, %a, %b;", two(operator.mul)),
        Case(f"mul.hi.{kind} %d, %a, %b;", two(lambda x, y: x * y >> bits)),
        Case(f"mad.lo.{kind} %d, %a, %b, %c;", each(lambda x, y, z: x * y + z, bits, a, b, c, sign=sign)),
        Case(f"mad.hi.{kind} %d, %a, %b, %c;", each(lambda x, y, z: (x * y >> bits) + z, bits, a, b, c, sign=sign)),
        Case(f"div.{kind} %d, %a, %e;", two(quotient, b1)),
        Case(f"rem.{kind} %d, %a, %e;", two(lambda x, y: x - y * quotient(x, y), b1)),
        Case(f"min.{kind} %d, %a, %b;", two(min)),
        Case(f"max.{kind} %d, %a, %b;", two(max)),
        Case(f"sad.{kind} %d, %a, %b, %c;", each(lambda x, y, z: abs(x - y) + z, bits, a, b, c, sign=sign)),
    ]
    if bits < 64:
        wide = each(operator.mul, bits, a, b, sign=sign, out=2 * bits)
        cases.append(Case(f"mul.wide.{kind} %d, %a, %b;", wide))
    if sign:
        cases += [
            Case(f"abs.{kind} %d, %a;", each(abs, bits, a, sign=True)),
            Case(f"neg.{kind} %d, %a;", each(operator.neg, bits, a, sign=True)),
        ]
    if kind == "s32":
        low, high = -(1 << 31), (1 << 31) - 1
        cases += [
            Case("add.sat.s32 %d, %a, %b;", two(lambda x, y: clamp(x + y, low, high))),
            Case("sub.sat.s32 %d, %a, %b;", two(lambda x, y: clamp(x - y, low, high))),
            Case("mad.hi.sat.s32 %d, %a, %b, %c;",
                 each(lambda x, y, z: clamp((x * y >> 32) + z, low, high), 32, a, b, c, sign=True)),
        ]  # fmt: skip
    check({**inputs(bits), "e": b1}, cases)


@pytest.mark.parametrize("sign", [False, True])
def test_24_bit_products(sign: bool) -> None:
    kind = f"{'s' if sign else 'u'}32"
    low24 = (lambda v: signed(v, 24)) if sign else (lambda v: v & 0xFFFFFF)
    check(inputs(32), [
        Case(f"mul24.lo.{kind} %d, %a, %b;", each(lambda x, y: low24(x) * low24(y), 32, A, B)),
        Case(f"mul24.hi.{kind} %d, %a, %b;", each(lambda x, y: low24(x) * low24(y) >> 16, 32, A, B)),
        Case(f"mad24.lo.{kind} %d, %a, %b, %c;", each(lambda x, y, z: low24(x) * low24(y) + z, 32, A, B, C)),
    ])  # fmt: skip


@pytest.mark.parametrize("bits", [32, 64])
def test_carries_travel_through_the_condition_code(bits: int) -> None:
    a, b, c = OPERANDS[bits]
    kind = f"u{bits}"
    carry = each(lambda x, y: x + y >> bits, bits, a, b)
    borrow = each(lambda x, y: int(x < y), bits, a, b)
    scratch = f".reg .b{bits} %s;"
    check(
        inputs(bits),
        [
            Case(f"{scratch} add.cc.{kind} %s, %a, %b; addc.{kind} %d, %c, 0;", c + carry),
            Case(f"{scratch} add.cc.{kind} %s, %a, %b; addc.cc.{kind} %s, %s, %c; addc.{kind} %d, 0, 0;",
                 each(lambda x, y, z: ((x + y & (1 << bits) - 1) + z + (x + y >> bits)) >> bits, bits, a, b, c)),
            Case(f"{scratch} sub.cc.{kind} %s, %a, %b; subc.{kind} %d, %c, 0;", c - borrow),
        ],
    )  # fmt: skip


@pytest.mark.parametrize("bits", [32, 64])
def test_carries_of_products(bits: int) -> None:
    a, b, c = OPERANDS[bits]
    kind = f"u{bits}"
    high = each(lambda x, y: x * y >> bits, bits, a, b)
    carry = each(lambda x, y, z: ((x * y & (1 << bits) - 1) + z) >> bits, bits, a, b, c)
    text = f".reg .b{bits} %s; mad.lo.cc.{kind} %s, %a, %b, %c; madc.hi.{kind} %d, %a, %b, 0;"
    check(inputs(bits), [Case(text, high + carry)])


def test_dot_products_of_bytes_and_halves() -> None:
    def parts(word: int, bits: int, sign: bool) -> list[int]:
        found = [word >> at & (1 << bits) - 1 for at in range(0, 32, bits)]
        return [signed(v, bits) for v in found] if sign else found

    cases = []
    for x, y in itertools.product("us", "us"):

        def dot(p: int, q: int, r: int, x: str = x, y: str = y) -> int:
            return r + sum(i * j for i, j in zip(parts(p, 8, x == "s"), parts(q, 8, y == "s"), strict=True))

        four = each(dot, 32, A, B, C)
        cases.append(Case(f"dp4a.{x}32.{y}32 %d, %a, %b, %c;", four))
        for half, first in (("lo", 0), ("hi", 2)):
            two = each(
                lambda p, q, r, x=x, y=y, f=first: r
                + sum(
                    i * j
                    for i, j in zip(parts(p, 16, x == "s"), parts(q, 8, y == "s")[f : f + 2], strict=True)
                ),
                32, A, B, C,
            )  # fmt: skip
            cases.append(Case(f"dp2a.{half}.{x}32.{y}32 %d, %a, %b, %c;", two))
    check(inputs(32), cases)


@pytest.mark.parametrize("sign", [False, True])
def test_packed_halves(sign: bool) -> None:
    kind = f"{'s' if sign else 'u'}16x2"

    def halves(function: Callable[[int, int], int]) -> np.ndarray:
        def word(x: int, y: int) -> int:
            read = (lambda v: signed(v, 16)) if sign else (lambda v: v & 0xFFFF)
            return sum((function(read(x >> at), read(y >> at)) & 0xFFFF) << at for at in (0, 16))

        return each(word, 32, A, B)

    check(inputs(32), [
        Case(f"add.{kind} %d, %a, %b;", halves(operator.add)),
        Case(f"min.{kind} %d, %a, %b;", halves(min)),
        Case(f"max.{kind} %d, %a, %b;", halves(max)),
    ])  # fmt: skip


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic_and_shifts(bits: int) -> None:
    a, b, _ = OPERANDS[bits]
    full = (1 << bits) - 1
    shifts = np.random.default_rng(0).integers(0, bits + 9, LANES).astype(np.uint32)
    shifts[:3] = 0, bits, 0xFFFFFFFF
    n = [min(int(s), bits) for s in shifts]
    left = np.array([int(v) << k & full for v, k in zip(a, n, strict=True)], a.dtype)
    right = np.array([int(v) >> k for v, k in zip(a, n, strict=True)], a.dtype)
    arithmetic = np.array([signed(int(v), bits) >> k & full for v, k in zip(a, n, strict=True)], a.dtype)
    check({**inputs(bits), "n": shifts}, [
        Case(f"and.b{bits} %d, %a, %b;", a & b),
        Case(f"or.b{bits} %d, %a, %b;", a | b),
        Case(f"xor.b{bits} %d, %a, %b;", a ^ b),
        Case(f"not.b{bits} %d, %a;", ~a),
        Case(f"cnot.b{bits} %d, %a;", (a == 0).astype(a.dtype)),
        Case(f"shl.b{bits} %d, %a, %n;", left),
        Case(f"shr.u{bits} %d, %a, %n;", right),
        Case(f"shr.s{bits} %d, %a, %n;", arithmetic),
        Case(f"shl.b{bits} %d, %a, 5;", each(lambda v: v << 5, bits, a)),
        Case(f"shr.s{bits} %d, %a, 7;", each(lambda v: v >> 7, bits, a, sign=True)),
    ])  # fmt: skip


@pytest.mark.parametrize("table", [0x00, 0x96, 0xE8, 0xCA, 0x1B, 0xFF])
def test_lop3_looks_every_bit_up(table: int) -> None:
    def word(x: int, y: int, z: int) -> int:
        return sum((table >> ((x >> k & 1) << 2 | (y >> k & 1) << 1 | z >> k & 1) & 1) << k for k in range(32))

    check(inputs(32), [Case(f"lop3.b32 %d, %a, %b, %c, {table:#x};", each(word, 32, A, B, C))])


def test_funnel_shifts() -> None:
    n = np.random.default_rng(5).integers(0, 70, LANES).astype(np.uint32)

    def shift(side: str, mode: str) -> Callable[[int, int, int], int]:
        def word(low: int, high: int, count: int) -> int:
            count = min(count, 32) if mode == "clamp" else count & 31
            both = high << 32 | low
            return both << count >> 32 if side == "l" else both >> count

        return word

    check({"a": A, "b": B, "n": n}, [
        Case(f"shf.{side}.{mode}.b32 %d, %a, %b, %n;", each(shift(side, mode), 32, A, B, n))
        for side in "lr" for mode in ("clamp", "wrap")
    ])  # fmt: skip


@pytest.mark.parametrize("mode", ["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])
def test_byte_permutations(mode: str) -> None:
    def word(a: int, b: int, c: int) -> int:
        source = [(b << 32 | a) >> 8 * k & 0xFF for k in range(8)]
        s = c & 3
        if mode == "":
            chosen = []
            for k in range(4):
                nibble = c >> 4 * k & 15
                byte = source[nibble & 7]
                chosen.append((0xFF if byte >> 7 else 0) if nibble >> 3 else byte)
            return sum(byte << 8 * k for k, byte in enumerate(chosen))
        index = {
            "f4e": [s, s + 1, s + 2, s + 3],
            "b4e": [s & 7, s - 1 & 7, s - 2 & 7, s - 3 & 7],
            "rc8": [s] * 4,
            "ecl": [max(s, k) for k in range(4)],
            "ecr": [min(s, k) for k in range(4)],
            "rc16": [0, 1, 0, 1] if s & 1 == 0 else [2, 3, 2, 3],
        }[mode]
        return sum(source[i] << 8 * k for k, i in enumerate(index))

    dot = f".{mode}" if mode else ""
    check(inputs(32), [Case(f"prmt.b32{dot} %d, %a, %b, %c;", each(word, 32, A, B, C))])


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_fields(bits: int) -> None:
    a, b, _ = OPERANDS[bits]
    rng = np.random.default_rng(3)
    p, n = rng.integers(0, bits + 8, LANES).astype(np.uint32), rng.integers(0, bits + 8, LANES).astype(np.uint32)
    p[:4], n[:4] = (0, 0, bits - 1, 255), (0, bits, 1, 255)

    def extract(sign: bool) -> Callable[[int, int, int], int]:
        def word(value: int, position: int, length: int) -> int:
            position, length = position & 255, length & 255
            last = min(position + length - 1, bits - 1)
            filler = value >> last & 1 if sign and length else 0
            field = [(value >> position + k & 1) if k < length and position + k < bits else filler for k in range(bits)]
            return sum(bit << k for k, bit in enumerate(field))

        return word

    def insert(new: int, old: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        for k in range(length):
            if position + k < bits:
                old = old & ~(1 << position + k) | (new >> k & 1) << position + k
        return old

    def leading(value: int, sign: bool, amount: bool) -> int:
        value = ~value & (1 << bits) - 1 if sign and value >> bits - 1 else value
        if not value:
            return 0xFFFFFFFF
        return bits - value.bit_length() if amount else value.bit_length() - 1

    cases = [
        Case(f"bfe.u{bits} %d, %a, %pos, %len;", each(extract(False), bits, a, p, n)),
        Case(f"bfe.s{bits} %d, %a, %pos, %len;", each(extract(True), bits, a, p, n)),
        Case(f"bfe.u{bits} %d, %a, 5, 9;", each(lambda v: v >> 5 & 511, bits, a)),
        Case(f"bfi.b{bits} %d, %a, %b, %pos, %len;", each(insert, bits, a, b, p, n)),
        Case(f"clz.b{bits} %d, %a;", each(lambda v: bits - v.bit_length(), bits, a, out=32)),
        Case(f"popc.b{bits} %d, %a;", each(int.bit_count, bits, a, out=32)),
        Case(f"brev.b{bits} %d, %a;", each(lambda v: int(f"{v:0{bits}b}"[::-1], 2), bits, a)),
    ]
    for sign, amount in itertools.product((False, True), (False, True)):
        text = f"bfind{'.shiftamt' if amount else ''}.{'s' if sign else 'u'}{bits} %d, %a;"
        cases.append(Case(text, each(lambda v, s=sign, m=amount: leading(v, s, m), bits, a, out=32)))
    check({"a": a, "b": b, "pos": p, "len": n}, cases)


def test_masks_and_extensions() -> None:
    rng = np.random.default_rng(8)
    p, n = rng.integers(0, 40, LANES).astype(np.uint32), rng.integers(0, 40, LANES).astype(np.uint32)

    def mask(mode: str) -> Callable[[int, int], int]:
        def word(position: int, length: int) -> int:
            if mode == "wrap":
                position, length = position & 31, length & 31
            return sum(1 << k for k in range(32) if position <= k < position + length)

        return word

    def extend(mode: str, sign: bool) -> Callable[[int, int], int]:
        def word(value: int, width: int) -> int:
            width = min(width, 32) if mode == "clamp" else width & 31
            value &= (1 << width) - 1
            return signed(value, width) if sign and width else value

        return word

    cases = [Case(f"bmsk.{m}.b32 %d, %pos, %len;", each(mask(m), 32, p, n)) for m in ("clamp", "wrap")]
    cases += [
        Case(f"szext.{m}.{'s' if s else 'u'}32 %d, %a, %len;", each(extend(m, s), 32, A, n))
        for m in ("clamp", "wrap") for s in (False, True)
    ]  # fmt: skip
    check({"a": A, "pos": p, "len": n}, cases)


def test_the_nth_set_bit() -> None:
    base = np.random.default_rng(2).integers(0, 32, LANES).astype(np.uint32)
    offsets = np.random.default_rng(3).integers(-5, 6, LANES).astype(np.int32)

    def nth(mask: int, start: int, offset: int) -> int:
        offset = signed(offset, 32)
        if offset == 0:
            return start if mask >> start & 1 else 0xFFFFFFFF
        step = 1 if offset > 0 else -1
        at, left = start, abs(offset)
        while 0 <= at < 32:
            left -= mask >> at & 1
            if not left:
                return at
            at += step
        return 0xFFFFFFFF

    want = each(nth, 32, A, base, offsets.view(np.uint32))
    check({"a": A, "b": base, "o": offsets}, [Case("fns.b32 %d, %a, %b, %o;", want)])


COMPARE = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip


@pytest.mark.parametrize(("bits", "sign"), [(b, s) for b in (16, 32, 64) for s in (False, True)])
def test_comparisons_and_selections(bits: int, sign: bool) -> None:
    a, b, c = OPERANDS[bits]
    b = b.copy()
    b[::5] = a[::5]
    kind = f"{'s' if sign else 'u'}{bits}"
    cases = []
    for name, function in COMPARE.items():
        if sign and name in ("lo", "ls", "hi", "hs"):
            continue
        yes = each(lambda x, y, f=function: int(f(x, y)), bits, a, b, sign=sign).astype(bool)
        cases.append(Case(f"setp.{name}.{kind} %p, %a, %b; selp.b{bits} %d, %a, %c, %p;", np.where(yes, a, c)))
        word = np.where(yes, np.uint32(0xFFFFFFFF), np.uint32(0))
        cases.append(Case(f"set.{name}.u32.{kind} %d, %a, %b;", word))
        number = np.where(yes, np.float32(1), np.float32(0))
        cases.append(Case(f"set.{name}.f32.{kind} %d, %a, %b;", number))
    less = each(lambda x, y: int(x < y), bits, a, b, sign=sign).astype(bool)
    odd = np.arange(LANES) % 2 == 1
    setup = ".reg .b32 %o; and.b32 %o, %t, 1; setp.ne.u32 %q, %o, 0;"
    for name, both in (("and", less & odd), ("or", less | odd), ("xor", less ^ odd)):
        text = f"{setup} setp.lt.{name}.{kind} %p, %a, %b, %q; selp.b{bits} %d, %a, %c, %p;"
        cases.append(Case(text, np.where(both, a, c)))
    pair = f"{setup} setp.lt.and.{kind} %p|%q, %a, %b, !%q; selp.b{bits} %d, %a, %c, %q;"
    cases.append(Case(pair, np.where(~less & ~odd, a, c)))
    if bits > 16:
        cases.append(Case(f"slct.b{bits}.s32 %d, %a, %c, %u;".replace("%u", "%k"), np.where(A < 1 << 31, a, c)))
    check({"a": a, "b": b, "c": c, "k": A}, cases)
