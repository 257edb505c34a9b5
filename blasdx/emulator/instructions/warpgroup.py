"""wgmma and setmaxnreg (PTX ISA 9.7.15 and 9.7.20.5)."""

from __future__ import annotations

import re

from blasdx.emulator import register_pool
from blasdx.emulator import wgmma as rt
from blasdx.emulator.ir import Imm, Instruction, Operand, Reg
from blasdx.emulator.multiplication import DEPTH, Form
from blasdx.emulator.translate import Emitter, Writer, vector

# Types of A (and of B beside it) with the types of D that exist for them; assembled with ptxas 13.0 to 13.5.
_FAMILIES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("f16",): ("f16", "f32"),
    ("bf16",): ("f32",),
    ("tf32",): ("f32",),
    ("e4m3", "e5m2"): ("f16", "f32"),
    ("s8", "u8"): ("s32",),
}
_INTEGER_COLUMNS = (8, 16, 24, *range(32, 257, 16))


def _wgmma(w: Writer, i: Instruction) -> None:
    if w.target != "sm_90a":
        raise w.refuse(f"wgmma exists on sm_90a only, not on {w.target}")
    match i.mods:
        case ("fence", "sync", "aligned"):
            w.line(w.call(rt.fence, "w", "$next", str(i.line)))
        case ("commit_group", "sync", "aligned"):
            w.effect(w.call(rt.commit_group, "w"))
        case ("wait_group", "sync", "aligned"):
            newest = w.static(w.operands(1)[0])
            w.line(w.call(rt.wait_group, "w", str(newest), "$next", str(i.line)))
        case ("mma_async", *_):
            _multiply(w, i)
        case _:
            raise w.refuse()


def _multiply(w: Writer, i: Instruction) -> None:
    if "sp" in i.mods:
        raise w.refuse("sparse operands are not emulated")
    rest = [m for m in i.mods[1:] if m not in ("sync", "aligned", "satfinite")]
    shape = re.fullmatch(r"m64n(\d+)k(\d+)", rest[0]) if rest else None
    if shape is None or len(rest) != 4 or i.guard is not None:
        raise w.refuse()
    n, depth, (d, a, b) = int(shape[1]), int(shape[2]), rest[1:]
    _check_types(w, n, depth, d, a, b)
    integer, saturate = d == "s32", "satfinite" in i.mods
    if saturate and not integer:
        raise w.refuse(".satfinite is for integers")
    operands = list(i.operands)
    in_registers = len(operands) > 1 and len(vector(operands[1])) > 1
    majors = 0 if a not in ("f16", "bf16") else 1 if in_registers else 2
    expected = 4 if integer else 6 + majors
    if len(operands) not in (expected, expected - 1 if integer else expected):
        raise w.malformed(f"{len(operands)} operands given, {expected} needed")
    target, source, b_operand, accumulate, *flags = operands
    signs = [_flag(w, o, (1, -1)) for o in flags[:2]]
    transposes = [_flag(w, o, (0, 1)) for o in flags[2:]]
    form = Form(
        n=n, d=d, a=a, b=b, a_in_registers=in_registers,
        negate_a=signs[:1] == [-1], negate_b=signs[1:] == [-1],
        a_mn_major=majors == 2 and transposes[0] == 1, b_mn_major=majors > 0 and transposes[-1] == 1,
        saturate=saturate,
    )  # fmt: skip
    targets, sources = vector(target), vector(source)
    if len(targets) != form.registers or (in_registers and len(sources) != 4):
        raise w.malformed(
            f"{len(targets)} accumulator and {len(sources)} A registers; {form.registers} and 4 are needed"
        )
    values = ", ".join(w.read(o, 32) for o in targets)
    a_text = "(" + ", ".join(w.read(o, 32) for o in sources) + ",)" if in_registers else w.read(source, 64)
    read = tuple(o.index for o in sources if isinstance(o, Reg)) if in_registers else ()
    found = w.temp(
        w.call(rt.multiply_async, "w", w.bind(form), f"({values},)", a_text, w.read(b_operand, 64),
               w.read(accumulate, 1), repr(read), str(i.line))
    )  # fmt: skip
    for k, each in enumerate(targets):
        w.write(each, f"{found}[{k}]", 32)


def _check_types(w: Writer, n: int, depth: int, d: str, a: str, b: str) -> None:
    family = next((f for f in _FAMILIES if a in f and b in f), None)
    if family is None or d not in _FAMILIES[family]:
        raise w.refuse(f"types {d} = {a} x {b}")
    if depth != DEPTH[a]:
        raise w.malformed(f"K = {depth}, {DEPTH[a]} is needed for {a}")
    if n not in (_INTEGER_COLUMNS if d == "s32" else range(8, 257, 8)):
        raise w.malformed(f"N = {n} does not exist for {a}")


def _flag(w: Writer, operand: Operand, legal: tuple[int, ...]) -> int:
    value = w.static(operand)
    if value not in legal:
        raise w.malformed(f"{value} given, {' or '.join(map(str, legal))} is needed")
    return value


def _setmaxnreg(w: Writer, i: Instruction) -> None:
    (operand,) = w.operands(1)
    if not isinstance(operand, Imm) or set(i.mods) - {"inc", "dec", "sync", "aligned", "u32"}:
        raise w.refuse()
    count = str(w.static(operand))
    if "inc" in i.mods:
        w.line(w.call(register_pool.claim, "w", count, "$next"))
    else:
        w.effect(w.call(register_pool.release, "w", count))


EMITTERS: dict[str, Emitter] = {"wgmma": _wgmma, "setmaxnreg": _setmaxnreg}
