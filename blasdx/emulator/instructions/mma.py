"""mma.sync (PTX ISA 9.7.14)."""

from __future__ import annotations

import re

from blasdx.emulator import mma_sync as rt
from blasdx.emulator.ir import Instruction
from blasdx.emulator.translate import Emitter, Writer, vector

_INTEGERS = ("s8", "u8")
_NIBBLES = ("s4", "u4")
_FP8 = ("e4m3", "e5m2")
# (types of A and B), types of C and D, shapes; assembled with ptxas 13.0 to 13.5.
_TABLE: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (("f16",), ("f16", "f32"), ("m16n8k8", "m16n8k16")),
    (("bf16",), ("f32",), ("m16n8k8", "m16n8k16")),
    (("tf32",), ("f32",), ("m16n8k4", "m16n8k8")),
    (_INTEGERS, ("s32",), ("m8n8k16", "m16n8k16", "m16n8k32")),
    (_NIBBLES, ("s32",), ("m8n8k32", "m16n8k32", "m16n8k64")),
    (_FP8, ("f16", "f32"), ("m16n8k16", "m16n8k32")),
    (("b1",), ("s32",), ("m8n8k128", "m16n8k128", "m16n8k256")),
    (("f64",), ("f64",), ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
)


def _mma(w: Writer, i: Instruction) -> None:
    mods = list(i.mods)
    if mods[0] == "sp" or any(m.startswith("sp::") for m in mods):
        raise w.refuse("sparse operands are not emulated")
    if "block_scale" in mods:
        raise w.refuse("block scales exist on sm_120a and sm_121a only, which are not emulated")
    bitwise = next((m for m in mods if m in ("and", "xor")), "")
    saturate = "satfinite" in mods
    rest = [m for m in mods if m not in ("sync", "aligned", "row", "col", "satfinite", "and", "xor", "popc",
                                         "kind::f8f6f4", "rn")]  # fmt: skip
    if len(rest) != 5 or ("row" not in mods or "col" not in mods):
        raise w.refuse()
    shape, d, a, b, c = rest
    found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape)
    row = next((r for r in _TABLE if a in r[0] and b in r[0] and d in r[1] and shape in r[2]), None)
    if found is None or row is None or c != d or bool(bitwise) != (a == "b1"):
        raise w.refuse(f"{shape} with {d} = {a} x {b} + {c}")
    form = rt.Form(int(found[1]), int(found[2]), int(found[3]), d, a, b, saturate, bitwise, w.target)
    targets, *sources = (vector(o) for o in w.operands(4))
    expected = (form.d_registers, form.a_registers, form.b_registers, form.d_registers)
    counts = tuple(map(len, (targets, *sources)))
    if counts != expected:
        raise w.malformed(f"{counts} registers of D, A, B, C; {expected} are needed")
    bits = 64 if a == "f64" else 32
    texts = ["(" + ", ".join(w.read(o, bits) for o in part) + ",)" for part in sources]
    result = w.temp(w.call(rt.compute, "w", w.bind(form), *texts))
    for k, target in enumerate(targets):
        w.write(target, f"{result}[{k}]", bits)


EMITTERS: dict[str, Emitter] = {"mma": _mma}
