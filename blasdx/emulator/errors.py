"""What the emulator raises.

::

    EmulationError                 anything that makes the launch meaningless: bad PTX, bad argument, bad address
    |-- UnsupportedInstruction     an opcode, or a form of one, that the emulator does not know; never a guess
    |-- DecodeError                descriptor, tensor map or operand bits that the hardware definition does not allow
    |-- DeadlockError              no warp can go on
    |-- LivelockError              warps go on, but nothing happens any more
    `-- HazardError                the launch ended, but its result is not guaranteed on hardware
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blasdx.emulator.hazards import Hazard
    from blasdx.emulator.trace import TraceEvent


class EmulationError(Exception):
    """A launch that cannot be executed, or went wrong.

    Attributes
    ----------
    line : int | None
        Line of the PTX text the error belongs to, counted from 1.
    parameter : str | None
        Name of the kernel parameter the error belongs to.
    hazards : tuple[Hazard, ...]
        What a checked launch had found before it failed.
    trace : tuple[TraceEvent, ...]
        The time line of the launch until it failed; waits that never ended last until then.
    """

    hazards: tuple[Hazard, ...] = ()
    trace: tuple[TraceEvent, ...] = ()

    def __init__(self, message: str, *, line: int | None = None, parameter: str | None = None) -> None:
        where = f"PTX line {line}: " if line is not None else f"parameter {parameter}: " if parameter else ""
        super().__init__(where + message)
        self.line = line
        self.parameter = parameter

    def locate(self, line: int, who: str = "") -> None:
        """Add the PTX line, and who ran it, when the error does not have a line yet."""
        if self.line is None:
            self.line = line
            self.args = (f"PTX line {line}{', ' if who else ''}{who}: {self.args[0]}", *self.args[1:])

    def rename(self, names: Callable[[str], str]) -> None:
        """Put names for warps and barriers into the text and the hazards."""
        self.args = (names(str(self.args[0])), *self.args[1:])
        self.hazards = tuple(hazard.renamed(names) for hazard in self.hazards)

    def found(self, hazards: Sequence[Hazard]) -> None:
        """Add what the hazard monitor had found before; errors often explain a hang."""
        self.hazards = tuple(hazards)
        errors = [f"  {h}" for h in self.hazards if h.severity == "error"]
        if errors:
            self.args = ("\n".join([self.args[0], "hazards found before:", *errors]), *self.args[1:])


class UnsupportedInstruction(EmulationError):  # noqa: N818
    """An instruction, or a form of one, that the emulator does not execute.

    Attributes
    ----------
    opcode : str
        The opcode as written, with all its qualifiers.
    """

    def __init__(self, opcode: str, *, line: int | None = None, why: str = "") -> None:
        super().__init__(f"unsupported instruction {opcode!r}" + (f": {why}" if why else ""), line=line)
        self.opcode = opcode


class DecodeError(EmulationError, ValueError):
    """Bits or arguments that the hardware definition does not allow."""


class DeadlockError(EmulationError):
    """No warp can go on; the text lists every barrier and what each warp waits for."""


class LivelockError(EmulationError):
    """The instruction limit was passed; the text says where each warp was."""


class HazardError(EmulationError):
    """The launch ended with at least one hazard of severity "error".

    Attributes
    ----------
    hazards : tuple[Hazard, ...]
        All hazards, warnings included.
    """

    def __init__(self, hazards: Sequence[Hazard]) -> None:
        self.hazards = tuple(hazards)
        errors = [h for h in self.hazards if h.severity == "error"]
        super().__init__(f"{len(errors)} hazard(s):\n" + "\n".join(f"  {h}" for h in errors))
