"""Logic, shifts and bit fields (PTX ISA 9.7.1.14-, 9.7.8)."""

from __future__ import annotations

from blasdx.emulator import bits as rt
from blasdx.emulator import integers
from blasdx.emulator.ir import TYPE_BITS, Instruction
from blasdx.emulator.translate import Emitter, Writer

_SYMBOLS = {"and": "&", "or": "|", "xor": "^"}


def _bits(w: Writer, i: Instruction, allowed: tuple[str, ...]) -> int:
    if not i.mods or i.mods[-1] not in allowed:
        raise w.refuse()
    return TYPE_BITS[i.mods[-1]]


def _binary(w: Writer, i: Instruction) -> None:
    d, a, b = w.operands(3)
    bits = _bits(w, i, ("pred", "b16", "b32", "b64"))
    w.write(d, f"{w.read(a, bits)} {_SYMBOLS[i.base]} {w.read(b, bits)}", bits)


def _invert(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    bits = _bits(w, i, ("pred", "b16", "b32", "b64"))
    w.write(d, f"{w.read(a, bits)} ^ {'True' if bits == 1 else (1 << bits) - 1}", bits)


def _cnot(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    bits = _bits(w, i, ("b16", "b32", "b64"))
    w.write(d, f"select({w.read(a, bits)} == 0, 1, 0, {bits})", bits)


def _shift(w: Writer, i: Instruction) -> None:
    d, a, b = w.operands(3)
    if len(i.mods) != 1:
        raise w.refuse()
    bits = _bits(w, i, ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"))
    signed = i.mods[0][0] == "s"
    function = integers.shift_left(bits) if i.base == "shl" else integers.shift_right(bits, signed)
    amount = w.read(b, 32)
    value = w.read(a, bits)
    if amount.isdigit() and int(amount) < bits and not signed:
        if i.base == "shl":
            w.write_wrapped(d, f"{value} << {amount}", bits)
        else:
            w.write(d, f"{value} >> {amount}", bits)
        return
    w.write(d, w.call(function, value, amount), bits)


def _funnel(w: Writer, i: Instruction) -> None:
    d, a, b, c = w.operands(4)
    match i.mods:
        case (("l" | "r") as side, ("clamp" | "wrap") as mode, "b32"):
            function = rt.funnel_shift(side == "l", mode == "clamp")
            w.write(d, w.call(function, *(w.read(o, 32) for o in (a, b, c))), 32)
        case _:
            raise w.refuse()


def _extract(w: Writer, i: Instruction) -> None:
    d, a, b, c = w.operands(4)
    bits = _bits(w, i, ("u32", "s32", "u64", "s64"))
    signed = i.mods[-1][0] == "s"
    value, position, length = w.read(a, bits), w.read(b, 32), w.read(c, 32)
    if not signed and position.isdigit() and length.isdigit() and int(position) + int(length) <= bits:
        w.write(d, f"({value} >> {position}) & {(1 << int(length)) - 1}", bits)
        return
    w.write(d, w.call(rt.bit_field_extract(bits, signed), value, position, length), bits)


def _insert(w: Writer, i: Instruction) -> None:
    f, a, b, c, d = w.operands(5)
    bits = _bits(w, i, ("b32", "b64"))
    arguments = (w.read(a, bits), w.read(b, bits), w.read(c, 32), w.read(d, 32))
    w.write(f, w.call(rt.bit_field_insert(bits), *arguments), bits)


def _find(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    bits = _bits(w, i, ("u32", "s32", "u64", "s64"))
    if i.mods[:-1] not in ((), ("shiftamt",)):
        raise w.refuse()
    w.write(d, w.call(rt.find_leading(bits, i.mods[-1][0] == "s", len(i.mods) == 2), w.read(a, bits)), 32)


def _count(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    bits = _bits(w, i, ("b32", "b64"))
    function = rt.count_leading_zeros(bits) if i.base == "clz" else rt.population_count(bits)
    w.write(d, w.call(function, w.read(a, bits)), 32)


def _reverse(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    bits = _bits(w, i, ("b32", "b64"))
    w.write(d, w.call(rt.reverse_bits(bits), w.read(a, bits)), bits)


def _nth(w: Writer, i: Instruction) -> None:
    d, *sources = w.operands(4)
    w.write(d, w.call(rt.find_nth_set(), *(w.read(o, 32) for o in sources)), 32)


def _permute(w: Writer, i: Instruction) -> None:
    d, a, b, c = w.operands(4)
    if i.mods[0] != "b32" or (len(i.mods) > 1 and i.mods[1] not in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")):
        raise w.refuse()
    function = rt.permute(i.mods[1] if len(i.mods) > 1 else "")
    w.write(d, w.call(function, *(w.read(o, 32) for o in (a, b, c))), 32)


def _logic3(w: Writer, i: Instruction) -> None:
    """lop3, also with ``d|p`` and a predicate that is joined to "any bit is set"."""
    if i.mods == ("b32",):
        d, a, b, c, table = w.operands(5)
        w.write(d, w.call(rt.logic3(w.static(table) & 0xFF), *(w.read(o, 32) for o in (a, b, c))), 32)
        return
    if i.mods not in (("or", "b32"), ("and", "b32")):
        raise w.refuse()
    d, a, b, c, table, q = w.operands(6)
    result = w.temp(w.call(rt.logic3(w.static(table) & 0xFF), *(w.read(o, 32) for o in (a, b, c))))
    joined = w.temp(f"({result} != 0) {_SYMBOLS[i.mods[0]]} {w.read(q, 1)}")
    w.write_pair(d, result, 32, joined, 1)


def _mask(w: Writer, i: Instruction) -> None:
    d, a, b = w.operands(3)
    if i.mods not in (("clamp", "b32"), ("wrap", "b32")):
        raise w.refuse()
    w.write(d, w.call(rt.bit_mask(i.mods[0] == "clamp"), w.read(a, 32), w.read(b, 32)), 32)


def _szext(w: Writer, i: Instruction) -> None:
    d, a, b = w.operands(3)
    if len(i.mods) != 2 or i.mods[0] not in ("clamp", "wrap") or i.mods[1] not in ("u32", "s32"):
        raise w.refuse()
    w.write(d, w.call(rt.extend_from(i.mods[1] == "s32", i.mods[0] == "clamp"), w.read(a, 32), w.read(b, 32)), 32)


EMITTERS: dict[str, Emitter] = {
    "and": _binary,
    "or": _binary,
    "xor": _binary,
    "not": _invert,
    "cnot": _cnot,
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "bfe": _extract,
    "bfi": _insert,
    "bfind": _find,
    "clz": _count,
    "popc": _count,
    "brev": _reverse,
    "fns": _nth,
    "prmt": _permute,
    "lop3": _logic3,
    "bmsk": _mask,
    "szext": _szext,
}
