"""Opcodes that exist for integers and floats alike: the last qualifier, the type, decides."""

from __future__ import annotations

from blasdx.emulator.instructions import floating, integer
from blasdx.emulator.ir import Instruction
from blasdx.emulator.translate import Emitter, Writer


def _by_type(integers: Emitter, floats: Emitter) -> Emitter:
    def emit(w: Writer, i: Instruction) -> None:
        if not i.mods:
            raise w.refuse()
        (floats if i.mods[-1] in floating.FLOAT_TYPES else integers)(w, i)

    return emit


ARITHMETIC: dict[str, Emitter] = {
    "add": _by_type(integer.add_sub, floating.add_sub),
    "sub": _by_type(integer.add_sub, floating.add_sub),
    "mul": _by_type(integer.mul, floating.mul),
    "mad": _by_type(integer.mad, floating.fma),
    "div": _by_type(integer.divide, floating.divide),
    "min": _by_type(integer.min_max, floating.min_max),
    "max": _by_type(integer.min_max, floating.min_max),
    "neg": _by_type(integer.neg_abs, floating.sign),
    "abs": _by_type(integer.neg_abs, floating.sign),
}
