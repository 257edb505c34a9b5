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
    opcode: _by_type(integer.SHARED[opcode], floating.SHARED[opcode]) for opcode in integer.SHARED
}
