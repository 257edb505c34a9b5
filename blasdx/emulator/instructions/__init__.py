"""Instruction families: each module maps opcodes (up to the first dot) to functions that emit Python for them."""

from __future__ import annotations

from blasdx.emulator.instructions import (
    barriers,
    control,
    conversion,
    copies,
    floating,
    integer,
    logic,
    memory,
    mma,
    remote,
    tensor,
    warpgroup,
)
from blasdx.emulator.instructions.arithmetic import ARITHMETIC
from blasdx.emulator.translate import Emitter

EMITTERS: dict[str, Emitter] = {
    **integer.EMITTERS,
    **logic.EMITTERS,
    **floating.EMITTERS,
    **ARITHMETIC,
    **conversion.EMITTERS,
    **control.EMITTERS,
    **memory.EMITTERS,
    **remote.EMITTERS,
    **barriers.EMITTERS,
    **copies.EMITTERS,
    **mma.EMITTERS,
    **tensor.EMITTERS,
    **warpgroup.EMITTERS,
}
