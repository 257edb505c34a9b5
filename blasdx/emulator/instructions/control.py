"""Comparison, selection and what the lanes of a warp do together (PTX ISA 9.7.6, 9.7.7, 9.7.13 vote / shfl / ...)."""

from __future__ import annotations

from functools import partial

from blasdx.emulator import collective as rt
from blasdx.emulator import conversions, floats
from blasdx.emulator.ir import TYPE_BITS, Instruction, Operand, Pair, Reg, Sink, Sym
from blasdx.emulator.translate import Emitter, Writer
from blasdx.emulator.windows import GENERIC

_RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
              "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip
_FLOAT_RELATIONS = frozenset(
    ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
)
# What set writes for true; of a pair, both halves.
_TRUE = {"u16": 0xFFFF, "s16": 0xFFFF, "u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "f32": 0x3F800000, "f16": 0x3C00,
         "bf16": 0x3F80, "f16x2": 0x3C003C00, "bf16x2": 0x3F803F80}  # fmt: skip
_BOOLEAN = {"and": "&", "or": "|", "xor": "^"}


def _comparison(w: Writer, relation: str, kind: str, ftz: bool, a: Operand, b: Operand) -> str:
    bits = TYPE_BITS[kind]
    if kind in ("f16", "bf16", "f32", "f64"):
        if relation not in _FLOAT_RELATIONS:
            raise w.refuse()
        return w.call(floats.compare(kind, relation, ftz), w.read(a, bits), w.read(b, bits))
    if relation not in _RELATIONS or (kind[0] == "b" and relation not in ("eq", "ne")):
        raise w.refuse()
    x, y = w.read(a, bits), w.read(b, bits)
    if kind[0] == "s" and relation not in ("eq", "ne"):
        sign = 1 << (bits - 1)
        x, y = (str(int(v) ^ sign) if v.isdigit() else f"({v} ^ {sign})" for v in (x, y))
    return f"({x} {_RELATIONS[relation]} {y})"


def _setp(w: Writer, i: Instruction) -> None:
    relation, *middle, kind = i.mods
    ftz = "ftz" in middle
    boolean = [m for m in middle if m != "ftz"]
    target, a, b, *c = w.operands(3, 4)
    if len(boolean) != len(c) or any(m not in _BOOLEAN for m in boolean) or kind not in TYPE_BITS:
        raise w.refuse()
    if kind in ("f16x2", "bf16x2"):
        if boolean or not isinstance(target, Pair):
            raise w.refuse()
        function = floats.packed(floats.compare(kind.removesuffix("x2"), relation, ftz), kind.removesuffix("x2"))
        both = w.temp(w.call(function, w.read(a, 32), w.read(b, 32)))
        w.write_pair(target, f"{both}[0]", 1, f"{both}[1]", 1)
        return
    result = _comparison(w, relation, kind, ftz, a, b)
    if isinstance(target, Pair):
        result = w.temp(result)
    other = f"({result} ^ True)"
    if boolean:
        extra = w.read(c[0], 1)
        result, other = (f"({r} {_BOOLEAN[boolean[0]]} {extra})" for r in (result, other))
    if isinstance(target, Pair):
        first = w.temp(result)
        second = w.temp(other)
        w.write_pair(target, first, 1, second, 1)
    else:
        w.write(target, result, 1)


def _set(w: Writer, i: Instruction) -> None:
    relation, *middle, target_kind, kind = i.mods
    ftz = "ftz" in middle
    boolean = [m for m in middle if m != "ftz"]
    d, a, b, *c = w.operands(3, 4)
    if len(boolean) != len(c) or any(m not in _BOOLEAN for m in boolean) or target_kind not in _TRUE:
        raise w.refuse()
    extra = f" {_BOOLEAN[boolean[0]]} {w.read(c[0], 1)}" if boolean else ""
    true = _TRUE[target_kind]
    if kind in ("f16x2", "bf16x2"):
        if TYPE_BITS[target_kind] != 32 or target_kind == "f32":
            raise w.refuse()
        function = floats.packed(floats.compare(kind.removesuffix("x2"), relation, ftz), kind.removesuffix("x2"))
        both = w.temp(w.call(function, w.read(a, 32), w.read(b, 32)))
        low, high = (f"select(({both}[{k}]{extra}), {true & 0xFFFF}, 0, 16)" for k in range(2))
        w.write(d, w.call(conversions.pack, low, high, "16"), 32)
        return
    if target_kind.endswith("x2"):
        raise w.refuse()
    bits = TYPE_BITS[target_kind]
    w.write(d, f"select(({_comparison(w, relation, kind, ftz, a, b)}{extra}), {true}, 0, {bits})", bits)


def _selp(w: Writer, i: Instruction) -> None:
    d, a, b, p = w.operands(4)
    bits = TYPE_BITS.get(i.mods[-1], 0)
    if len(i.mods) != 1 or bits < 16:
        raise w.refuse()
    w.write(d, f"select({w.read(p, 1)}, {w.read(a, bits)}, {w.read(b, bits)}, {bits})", bits)


def _slct(w: Writer, i: Instruction) -> None:
    d, a, b, c = w.operands(4)
    kind, by = i.mods[-2:]
    bits = TYPE_BITS.get(kind, 0)
    if by == "s32":
        condition = f"({w.read(c, 32)} < {1 << 31})"
    elif by == "f32":
        condition = w.call(floats.compare("f32", "ge", "ftz" in i.mods), w.read(c, 32), "0")
    else:
        raise w.refuse()
    w.write(d, f"select({condition}, {w.read(a, bits)}, {w.read(b, bits)}, {bits})", bits)


def _elect(w: Writer, i: Instruction) -> None:
    if i.mods != ("sync",):
        raise w.refuse()
    target, members = w.operands(2)
    both = w.loaded(w.call(rt.elect, "w", w.read(members, 32), "$m"), 2)
    if isinstance(target, Pair):
        w.write_pair(target, f"{both}[0]", 32, f"{both}[1]", 1)
    else:
        raise w.refuse()


def meet(
    w: Writer,
    i: Instruction,
    compute: rt.Compute,
    values: tuple[tuple[Operand, int], ...],
    members: Operand,
    targets: tuple[tuple[Operand, int], ...],
) -> None:
    """A ``.sync`` instruction: operands and destinations with their widths. It ends its block."""
    indices: list[int | None] = []
    for target, bits in targets:
        if isinstance(target, Sink):
            indices.append(None)
        elif isinstance(target, Reg) and target.bits == bits:
            indices.append(target.index)
        else:
            raise w.malformed(f"a destination of {bits} bit(s) is needed")
    texts = "".join(w.read(operand, bits) + ", " for operand, bits in values)
    widths = tuple(bits for _, bits in values)
    w.line(w.call(rt.meet, "w", w.bind(compute), f"({texts})", repr(widths), w.read(members, 32),
                  repr(tuple(indices)), "$next", str(i.line)))  # fmt: skip


def _pair(target: Operand) -> tuple[tuple[Operand, int], ...]:
    """``d|p`` or ``d``."""
    if isinstance(target, Pair):
        return ((target.first, 32), (target.second, 1))
    return ((target, 32), (Sink(), 1))


def _shfl(w: Writer, i: Instruction) -> None:
    match i.mods:
        case ("sync", ("up" | "down" | "bfly" | "idx") as mode, "b32"):
            target, a, b, c, members = w.operands(5)
        case _:
            raise w.refuse("only shfl.sync exists on these targets")
    meet(w, i, partial(rt.shuffle, mode), ((a, 32), (b, 32), (c, 32)), members, _pair(target))


def _vote(w: Writer, i: Instruction) -> None:
    d, p, members = w.operands(3)
    match i.mods:
        case ("sync", ("all" | "any" | "uni"), "pred"):
            bits = 1
        case ("sync", "ballot", "b32"):
            bits = 32
        case _:
            raise w.refuse()
    meet(w, i, partial(rt.vote, i.mods[1]), ((p, 1),), members, ((d, bits),))


def _match(w: Writer, i: Instruction) -> None:
    target, a, members = w.operands(3)
    match i.mods:
        case (("any" | "all") as mode, "sync", ("b32" | "b64") as kind):
            bits = TYPE_BITS[kind]
        case _:
            raise w.refuse()
    meet(w, i, partial(rt.match, mode), ((a, bits),), members, _pair(target))


def _redux(w: Writer, i: Instruction) -> None:
    d, a, members = w.operands(3)
    match i.mods:
        case ("sync", ("add" | "min" | "max"), ("u32" | "s32")):
            pass
        case ("sync", ("and" | "or" | "xor"), "b32"):
            pass
        case ("sync", ("min" | "max"), *rest, "f32") if set(rest) <= {"abs", "NaN"}:
            pass
        case _:
            raise w.refuse()
    meet(w, i, partial(rt.reduce, i.mods[1], ".".join(i.mods[2:])), ((a, 32),), members, ((d, 32),))


def _activemask(w: Writer, i: Instruction) -> None:
    if i.mods != ("b32",):
        raise w.refuse()
    w.write(w.operands(1)[0], "w.mask", 32)


def _mapa(w: Writer, i: Instruction) -> None:
    d, a, b = w.operands(3)
    match i.mods:
        case ("shared::cluster", "u32") | ("shared::cluster", "u64"):
            bits = TYPE_BITS[i.mods[-1]]
            address = w.read(a, bits)
            mapped = w.wrapped(f"({address} & 0xFFFFFF) + ({w.read(b, 32)} << 24)", 32)
            w.write(d, f"zero_extend({mapped}, 32, {bits})", bits)
        case ("u64",):
            rank = f"zero_extend({w.read(b, 32)}, 32, 64)"
            w.write_wrapped(d, f"({w.read(a, 64)} & {~0xFF000000 & (1 << 64) - 1}) + ({rank} << 24)", 64)
        case _:
            raise w.refuse()


def _getctarank(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    bits = 32 if i.mods == ("shared::cluster", "u32") else 64
    if bits == 64 and i.mods not in (("shared::cluster", "u64"), ("u64",)):
        raise w.refuse()
    w.write(d, f"zero_extend(({w.read(a, bits)} >> 24) & 255, {bits}, 32)", 32)


def _isspacep(w: Writer, i: Instruction) -> None:
    p, a = w.operands(2)
    space = i.mods[0].removesuffix("::cta").removesuffix("::cluster").removesuffix("::entry")
    if len(i.mods) != 1 or space not in GENERIC:
        raise w.refuse()
    value = w.temp(f"{w.read(a, 64)} >> 32")
    if space == "global":
        result = " & ".join(f"({value} != {GENERIC[s] >> 32})" for s in ("shared", "local", "param"))
    elif space == "const":
        raise w.refuse()
    else:
        result = f"({value} == {GENERIC[space] >> 32})"
        if i.mods[0] == "shared::cta":
            result += f" & ((({w.read(a, 64)} >> 24) & 255) == (w.rank_bits >> 24))"
    w.write(p, f"({result})", 1)


def _nothing(w: Writer, i: Instruction) -> None:
    """Hints: no effect on values."""
    del i


def _call(w: Writer, i: Instruction) -> None:
    """What `inline` could not place: the runtime's assertion, and what is not emulated."""
    if any(isinstance(operand, Sym) and operand.name == "__assertfail" for operand in i.operands):
        w.effect("w.trap('__assertfail: an assertion of the program does not hold')")
        return
    raise w.refuse("only direct, non-recursive calls of functions with a body, with .param arguments, are emulated")


def _griddepcontrol(w: Writer, i: Instruction) -> None:
    if i.mods == ("wait",):
        w.line("$next")
    elif i.mods != ("launch_dependents",):
        raise w.refuse()


def _nanosleep(w: Writer, i: Instruction) -> None:
    del i
    w.line("w.pause($next)")


EMITTERS: dict[str, Emitter] = {
    "setp": _setp,
    "set": _set,
    "selp": _selp,
    "slct": _slct,
    "elect": _elect,
    "shfl": _shfl,
    "vote": _vote,
    "match": _match,
    "redux": _redux,
    "activemask": _activemask,
    "mapa": _mapa,
    "getctarank": _getctarank,
    "isspacep": _isspacep,
    "griddepcontrol": _griddepcontrol,
    "call": _call,
    "nanosleep": _nanosleep,
    "pmevent": _nothing,
}
