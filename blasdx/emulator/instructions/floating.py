"""Float arithmetic, also on f16, bf16 and their packed pairs (PTX ISA 9.7.3 - 9.7.5)."""

from __future__ import annotations

from dataclasses import dataclass

from blasdx.emulator import conversions, directed
from blasdx.emulator import floats as rt
from blasdx.emulator.ir import TYPE_BITS, Instruction, Operand
from blasdx.emulator.translate import Emitter, Writer

FLOAT_TYPES = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2")
_MODES = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Form:
    """The qualifiers of a float instruction, sorted out."""

    kind: str
    packed: bool
    bits: int
    mode: str
    ftz: bool
    sat: bool
    relu: bool
    rest: frozenset[str]


def _form(w: Writer, i: Instruction) -> Form:
    kind = i.mods[-1]
    if kind not in FLOAT_TYPES:
        raise w.refuse()
    mods = set(i.mods[:-1])
    mode = next((m for m in _MODES if m in mods), "rn")
    rest = frozenset(mods - set(_MODES) - {"ftz", "sat", "relu"})
    packed = kind.endswith("x2")
    element = kind.removesuffix("x2")
    if element == "f64" and mods & {"ftz", "sat"}:
        raise w.refuse(".ftz or .sat on f64")
    return Form(element, packed, TYPE_BITS[kind], mode, "ftz" in mods, "sat" in mods, "relu" in mods, rest)


def _apply(w: Writer, f: Form, function: rt.Operation, d: Operand, *sources: Operand) -> None:
    if f.packed:
        function = rt.packed(function, f.kind)
    w.write(d, w.call(function, *(w.read(s, f.bits) for s in sources)), f.bits)


def _plain(w: Writer, f: Form, *allowed: str) -> None:
    if f.rest - set(allowed):
        raise w.refuse(f"qualifier .{min(f.rest)}")


def _mixed(w: Writer, i: Instruction) -> None:
    """add, sub and fma of f32 with operands of 16 bits, which are widened first (sm_100 and later)."""
    *mods, _, narrow = i.mods
    f = _form(w, Instruction(i.base, (*mods, "f32"), i.operands, i.guard, i.line, i.source))
    _plain(w, f)
    if f.ftz or f.relu:
        raise w.refuse()
    d, *sources = w.operands(4 if i.base == "fma" else 3)
    widen = conversions.float_to_float(narrow, "f32", "", False, False, False)
    *short, last = sources
    values = [w.call(widen, w.read(s, 16)) for s in short] + [w.read(last, 32)]
    if i.base == "fma":
        function = rt.fused_multiply_add("f32", f.mode, False, f.sat)
    else:
        function = rt.add("f32", f.mode, False, f.sat, i.base == "sub")
    w.write(d, w.call(function, *values), 32)


def _is_mixed(i: Instruction) -> bool:
    return i.mods[-2:-1] == ("f32",) and i.mods[-1] in ("f16", "bf16")


def _add_sub(w: Writer, i: Instruction) -> None:
    if _is_mixed(i):
        _mixed(w, i)
        return
    f = _form(w, i)
    _plain(w, f)
    function = rt.add(f.kind, f.mode, f.ftz, f.sat, i.base == "sub")
    if f.kind == "f64" and f.mode != "rn":
        function = directed.arithmetic64("add", f.mode, i.base == "sub")
    _apply(w, f, function, *w.operands(3))


def _mul(w: Writer, i: Instruction) -> None:
    f = _form(w, i)
    _plain(w, f)
    function = rt.multiply(f.kind, f.mode, f.ftz, f.sat)
    if f.kind == "f64" and f.mode != "rn":
        function = directed.arithmetic64("mul", f.mode)
    _apply(w, f, function, *w.operands(3))


def _fma(w: Writer, i: Instruction) -> None:
    if _is_mixed(i):
        _mixed(w, i)
        return
    f = _form(w, i)
    _plain(w, f)
    function = rt.fused_multiply_add(f.kind, f.mode, f.ftz, f.sat, f.relu)
    if f.kind == "f64" and f.mode != "rn":
        function = directed.arithmetic64("fma", f.mode)
    _apply(w, f, function, *w.operands(4))


def _divide(w: Writer, i: Instruction) -> None:
    f = _form(w, i)
    _plain(w, f, "full", "approx")
    function = rt.divide(f.kind, f.mode, f.ftz)
    if f.kind == "f64" and f.mode != "rn":
        function = directed.arithmetic64("div", f.mode)
    _apply(w, f, function, *w.operands(3))


def _unary(w: Writer, i: Instruction) -> None:
    if i.mods == ("approx", "ftz", "f64") and i.base in ("rcp", "rsqrt"):
        d, a = w.operands(2)
        w.write(d, w.call(rt.gross(i.base), w.read(a, 64)), 64)
        return
    f = _form(w, i)
    _plain(w, f, "approx")
    if f.mode != "rn" and i.base in ("rcp", "sqrt"):
        _apply(w, f, directed.root(i.base, f.kind, f.mode, f.ftz), *w.operands(2))
        return
    _apply(w, f, rt.unary(i.base, f.kind, f.mode, f.ftz), *w.operands(2))


def _min_max(w: Writer, i: Instruction) -> None:
    f = _form(w, i)
    _plain(w, f, "NaN", "xorsign", "abs")
    d, *sources = w.operands(3, 4)
    function = rt.extreme(f.kind, i.base == "max", "NaN" in f.rest, "xorsign" in f.rest, f.ftz)
    if len(sources) == 2:
        _apply(w, f, function, d, *sources)
        return
    if f.packed or "xorsign" in f.rest:
        raise w.refuse()
    x, y, z = (w.read(s, f.bits) for s in sources)
    w.write(d, w.call(function, w.call(function, x, y), z), f.bits)


def _sign(w: Writer, i: Instruction) -> None:
    f = _form(w, i)
    _plain(w, f)
    if f.ftz and i.base == "copysign":
        raise w.refuse(".ftz")
    operands = w.operands(3 if i.base == "copysign" else 2)
    _apply(w, f, rt.sign_operation(i.base, f.kind, f.ftz), *operands)


def _testp(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    names = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    if len(i.mods) != 2 or i.mods[0] not in names or i.mods[1] not in ("f32", "f64"):
        raise w.refuse()
    w.write(d, w.call(rt.test_property(i.mods[1], i.mods[0]), w.read(a, TYPE_BITS[i.mods[1]])), 1)


# Opcodes that exist for integers too; `arithmetic` chooses by type.
SHARED: dict[str, Emitter] = {
    "add": _add_sub,
    "sub": _add_sub,
    "mul": _mul,
    "mad": _fma,
    "div": _divide,
    "min": _min_max,
    "max": _min_max,
    "neg": _sign,
    "abs": _sign,
}

EMITTERS: dict[str, Emitter] = {
    "fma": _fma,
    "rcp": _unary,
    "sqrt": _unary,
    "rsqrt": _unary,
    "sin": _unary,
    "cos": _unary,
    "lg2": _unary,
    "ex2": _unary,
    "tanh": _unary,
    "copysign": _sign,
    "testp": _testp,
}
