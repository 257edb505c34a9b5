"""Integer arithmetic (PTX ISA 9.7.1 and 9.7.2)."""

from __future__ import annotations

from blasdx.emulator import integers as rt
from blasdx.emulator.ir import TYPE_BITS, Instruction, Operand
from blasdx.emulator.translate import Emitter, Writer

_INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def integer_type(w: Writer, name: str) -> tuple[int, bool]:
    """Width and signedness of an integer type."""
    if name not in _INTEGERS:
        raise w.refuse(f".{name} is not an integer type of this instruction")
    return TYPE_BITS[name], name[0] == "s"


def _add_sub(w: Writer, i: Instruction) -> None:
    """add and sub, with .sat, .cc and packed 16-bit halves."""
    d, a, b = w.operands(3)
    kind = i.mods[-1]
    if kind in ("u16x2", "s16x2"):
        if i.base != "add":
            raise w.refuse()
        w.write(d, w.call(rt.packed16("add", kind[0] == "s"), w.read(a, 32), w.read(b, 32)), 32)
        return
    bits, _ = integer_type(w, kind)
    x, y = w.read(a, bits), w.read(b, bits)
    rest = set(i.mods[:-1])
    if rest == {"sat"} and kind == "s32":
        w.write(d, w.call(rt.saturating(32, i.base == "sub"), x, y), 32)
    elif rest == {"cc"}:
        _with_carry(w, i, carry_in=False, carry_out=True)
    elif rest:
        raise w.refuse()
    else:
        w.write_wrapped(d, f"{x} {'+' if i.base == 'add' else '-'} {y}", bits)


def _with_carry(w: Writer, i: Instruction, *, carry_in: bool, carry_out: bool) -> None:
    """add.cc, addc, sub.cc, subc."""
    d, a, b = w.operands(3)
    bits, _ = integer_type(w, i.mods[-1])
    _sum_with_carry(
        w, d, w.read(a, bits), w.read(b, bits), bits, carry_in, carry_out, subtract=i.base.startswith("sub")
    )


def _sum_with_carry(
    w: Writer, d: Operand, a: str, b: str, bits: int, carry_in: bool, carry_out: bool, *, subtract: bool
) -> None:
    """The carry lives with the running lanes."""
    if w.ins.guard is not None:
        raise w.refuse("guarded carry arithmetic")
    result = w.temp(w.call(rt.carry(bits, subtract), a, b, "w.carry" if carry_in else "0"))
    w.write(d, f"{result}[0]", bits)
    if carry_out:
        w.line(f"w.carry = {result}[1]")


def _carry(w: Writer, i: Instruction) -> None:
    rest = set(i.mods[:-1])
    if rest - {"cc"}:
        raise w.refuse()
    _with_carry(w, i, carry_in=True, carry_out="cc" in rest)


def _mul(w: Writer, i: Instruction) -> None:
    d, a, b = w.operands(3)
    bits, signed = integer_type(w, i.mods[-1])
    x, y = w.read(a, bits), w.read(b, bits)
    match i.mods[:-1]:
        case ("lo",):
            w.write_wrapped(d, f"{x} * {y}", bits)
        case ("hi",):
            w.write(d, w.call(rt.multiply_high(bits, signed), x, y), bits)
        case ("wide",) if bits < 64:
            w.write(d, w.call(rt.multiply_wide(bits, signed), x, y), 2 * bits)
        case _:
            raise w.refuse()


def _mad_with_carry(w: Writer, i: Instruction) -> None:
    """mad.cc and madc: the product's upper or lower half is added like by add.cc and addc."""
    d, a, b, c = w.operands(4)
    bits, signed = integer_type(w, i.mods[-1])
    if i.mods[:-1] not in (("lo",), ("hi",), ("lo", "cc"), ("hi", "cc")) or bits < 32:
        raise w.refuse()
    x, y = w.read(a, bits), w.read(b, bits)
    if i.mods[0] == "hi":
        product = w.temp(w.call(rt.multiply_high(bits, signed), x, y))
    else:
        product = w.wrapped(f"{x} * {y}", bits)
    _sum_with_carry(w, d, product, w.read(c, bits), bits, i.base == "madc", "cc" in i.mods, subtract=False)


def _mad(w: Writer, i: Instruction) -> None:
    if "cc" in i.mods:
        _mad_with_carry(w, i)
        return
    d, a, b, c = w.operands(4)
    bits, signed = integer_type(w, i.mods[-1])
    x, y = w.read(a, bits), w.read(b, bits)
    match i.mods[:-1]:
        case ("lo",):
            product = w.wrapped(f"{x} * {y}", bits)
            w.write_wrapped(d, f"{product} + {w.read(c, bits)}", bits)
        case ("hi",):
            w.write_wrapped(d, f"{w.call(rt.multiply_high(bits, signed), x, y)} + {w.read(c, bits)}", bits)
        case ("wide",) if bits < 64:
            product = w.call(rt.multiply_wide(bits, signed), x, y)
            w.write_wrapped(d, f"{product} + {w.read(c, 2 * bits)}", 2 * bits)
        case ("hi", "sat") if i.mods[-1] == "s32":
            high = w.call(rt.multiply_high(bits, signed), x, y)
            w.write(d, w.call(rt.saturating(32, False), high, w.read(c, 32)), 32)
        case _:
            raise w.refuse()


def _mul24(w: Writer, i: Instruction) -> None:
    bits, signed = integer_type(w, i.mods[-1])
    if bits != 32 or i.mods[:-1] not in (("lo",), ("hi",)):
        raise w.refuse()
    d, a, b, *c = w.operands(3 if i.base == "mul24" else 4)
    if signed:
        shifted = (w.wrapped(f"{w.read(o, 32)} << 8", 32) for o in (a, b))
        x, y = (w.call(rt.shift_right(32, True), v, "8") for v in shifted)
    else:
        x, y = (f"({w.read(o, 32)} & 0xFFFFFF)" for o in (a, b))
    product = w.temp(w.call(rt.multiply_wide(32, signed), x, y))
    shift = 16 if i.mods[0] == "hi" else 0
    part = w.temp(f"zero_extend({product} >> {shift}, 32, 32)")
    w.write_wrapped(d, f"{part} + {w.read(c[0], 32)}" if c else part, 32)


def _divide(w: Writer, i: Instruction) -> None:
    d, a, b = w.operands(3)
    bits, signed = integer_type(w, i.mods[-1])
    if len(i.mods) != 1:
        raise w.refuse()
    function = rt.divide if i.base == "div" else rt.remainder
    w.write(d, w.call(function(bits, signed), w.read(a, bits), w.read(b, bits)), bits)


def _min_max(w: Writer, i: Instruction) -> None:
    d, a, b = w.operands(3)
    kind = i.mods[-1]
    if kind in ("u16x2", "s16x2") and i.mods[:-1] in ((), ("relu",)):
        result = w.call(rt.packed16(i.base, kind[0] == "s"), w.read(a, 32), w.read(b, 32))
        if i.mods[:-1]:
            if kind != "s16x2":
                raise w.refuse()
            result = w.call(rt.packed16("max", True), result, "0")
        w.write(d, result, 32)
        return
    bits, signed = integer_type(w, kind)
    if i.mods[:-1] not in ((), ("relu",)) or (i.mods[:-1] and kind != "s32"):
        raise w.refuse()
    result = w.call(rt.extreme(bits, signed, i.base == "max"), w.read(a, bits), w.read(b, bits))
    if i.mods[:-1]:
        result = w.call(rt.extreme(32, True, True), result, "0")
    w.write(d, result, bits)


def _neg_abs(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    bits, signed = integer_type(w, i.mods[-1])
    if not signed or len(i.mods) != 1:
        raise w.refuse()
    if i.base == "neg":
        w.write_wrapped(d, f"0 - {w.read(a, bits)}", bits)
    else:
        w.write(d, w.call(rt.absolute(bits), w.read(a, bits)), bits)


def _sad(w: Writer, i: Instruction) -> None:
    d, a, b, c = w.operands(4)
    bits, signed = integer_type(w, i.mods[-1])
    w.write(d, w.call(rt.sum_of_absolute_differences(bits, signed), *(w.read(o, bits) for o in (a, b, c))), bits)


def _dot(w: Writer, i: Instruction) -> None:
    d, a, b, c = w.operands(4)
    values = [w.read(o, 32) for o in (a, b, c)]
    match i.base, i.mods:
        case "dp4a", (("u32" | "s32") as x, ("u32" | "s32") as y):
            function = rt.dot4(x[0] == "s", y[0] == "s")
        case "dp2a", (("lo" | "hi") as half, ("u32" | "s32") as x, ("u32" | "s32") as y):
            function = rt.dot2(x[0] == "s", y[0] == "s", half == "hi")
        case _:
            raise w.refuse()
    w.write(d, w.call(function, *values), 32)


# Opcodes that exist for floats too; `arithmetic` chooses by type.
SHARED: dict[str, Emitter] = {
    "add": _add_sub,
    "sub": _add_sub,
    "mul": _mul,
    "mad": _mad,
    "div": _divide,
    "min": _min_max,
    "max": _min_max,
    "neg": _neg_abs,
    "abs": _neg_abs,
}

EMITTERS: dict[str, Emitter] = {
    "addc": _carry,
    "subc": _carry,
    "madc": _mad_with_carry,
    "mad24": _mul24,
    "mul24": _mul24,
    "rem": _divide,
    "sad": _sad,
    "dp4a": _dot,
    "dp2a": _dot,
}
