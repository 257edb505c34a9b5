"""setmaxnreg: the registers a CTA was launched with, handed from warp to warp (PTX ISA 9.7.20.5)."""

from __future__ import annotations

from blasdx.emulator.errors import DeadlockError, EmulationError
from blasdx.emulator.warp import Path, Wait

FILE = 65536  # 32-bit registers of an SM
LEAST = 24  # a warp can go down to this many a thread


def launched(threads: int, directives: dict[str, tuple[int, ...]], given: int | None) -> tuple[int, bool]:
    """Registers a thread of a launch, and whether that is known.

    PTX does not say what ptxas assigned. Unless the launch or .maxnreg does, it is as many as the register file has for
    one such CTA, in steps of 8.
    """
    if given is not None:
        return given, True
    if "maxnreg" in directives:
        return directives["maxnreg"][0], True
    bound = directives.get("reqntid") or directives.get("maxntid")
    if bound:
        threads = 1
        for extent in bound:
            threads *= extent
    return min(256, FILE // (-(-threads // 32) * 32) // 8 * 8), False


def _check(w: Path, count: int) -> None:
    if not w.whole:
        raise EmulationError(f"setmaxnreg is .sync.aligned: all lanes of {w.warp.name} have to execute it together")
    if not LEAST <= count <= 256 or count % 8:
        raise EmulationError(f"setmaxnreg {count}; 24 to 256 in steps of 8 are legal")


def release(w: Path, count: int) -> None:
    """setmaxnreg.dec: what is above `count` a thread goes to the CTA's pool."""
    _check(w, count)
    cta, warp = w.cta, w.warp
    if count > warp.registers:
        if w.machine.registers[1]:
            raise EmulationError(f"setmaxnreg.dec to {count} by {warp.name}, which has {warp.registers} a thread")
        return
    cta.free_registers += 32 * (warp.registers - count)
    warp.registers = count
    w.machine.events += 1
    waiting, cta.claiming = cta.claiming, []
    for path in waiting:
        if not w.machine.retry(path):
            cta.claiming.append(path)


def claim(w: Path, count: int, following: int) -> int | None:
    """setmaxnreg.inc: wait until the pool has what is missing to `count` a thread."""
    _check(w, count)
    cta, warp = w.cta, w.warp
    per_thread, known = w.machine.registers
    total = 32 * per_thread * len(cta.warps)
    needed = 32 * (count - warp.registers)
    if needed < 0 and known:
        raise EmulationError(f"setmaxnreg.inc to {count} by {warp.name}, which has {warp.registers} a thread")
    line = w.program.blocks[w.pc].line

    def text() -> str:
        held = sum(32 * each.registers for each in cta.warps)
        return (
            f"setmaxnreg.inc to {count}: {needed} more registers, {cta.free_registers} are in the pool; the CTA was "
            f"launched with {len(cta.warps)} warps x 32 x {per_thread} = {total}, of which its warps hold {held}"
        )

    # The instruction is for a whole warpgroup, so its other warps claim as much.
    group = sum(each.index >> 2 == warp.index >> 2 for each in cta.warps)
    least = 32 * (count * group + LEAST * (len(cta.warps) - group))
    if least > total:
        raise DeadlockError(
            f"{warp.name}: {text()}. Even if the other {len(cta.warps) - group} warps went down to {LEAST} a thread, "
            f"{least} would be needed"
        )

    def ready() -> bool:
        if needed > cta.free_registers:
            return False
        if needed > 0:
            cta.free_registers -= needed
            warp.registers = count
        return True

    result = w.suspend(Wait(text, ready, line), following)
    if result is None:
        cta.claiming.append(w)
    return result
