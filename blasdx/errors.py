"""Every exception of the library, and what each carries besides its text.

::

    BlasdxError
    ├── DescriptorError                 a sum of operators that cannot be
    │   ├── DuplicateOperatorError      (also a ValueError)
    │   ├── NotAnOperatorError          (also a TypeError)
    │   └── MissingOperatorError        (also a ValueError)
    ├── GateError                       the descriptor does not land on the path that was asked for (also a ValueError)
    ├── EpilogueError                   an epilogue's expression that cannot be (also a ValueError)
    ├── PlanError                       the path is there, but no pipeline fits
    ├── RenderError                     the plan cannot be turned into source
    ├── CompileError                    the compiler refused the source
    │   └── UnsupportedToolkitError     the installed compiler is too old for the target
    ├── SassError                       the machine code is not what was promised
    ├── OperandError                    an array that the kernel cannot take (also a ValueError)
    ├── NoDriverError                   a call that needs a CUDA driver, on a machine without one
    ├── MissingPackageError             a call that needs an optional package (also an ImportError)
    ├── ArchMismatchError               a device that does not run code for the kernel's SM
    └── LaunchError                     the CUDA driver refused a call

A field with an illegal value is not in this tree: it is a ``pydantic.ValidationError`` raised by the operator itself.
"""

from __future__ import annotations

from typing import Any


class BlasdxError(Exception):
    """Root of everything the library raises on purpose; keyword arguments become its attributes."""

    def __init__(self, message: str, **attributes: object) -> None:
        super().__init__(message)
        self.__dict__.update(attributes)


class DescriptorError(BlasdxError):
    """A sum of operators that cannot be."""


class DuplicateOperatorError(DescriptorError, ValueError):
    """Two operators of one kind in a sum; ``operator`` is the kind's name."""

    operator: str = ""


class NotAnOperatorError(DescriptorError, TypeError):
    """Something in a sum that is no operator; ``value`` is that thing."""

    value: object = None


class MissingOperatorError(DescriptorError, ValueError):
    """A trait was asked for whose operator the descriptor lacks; ``operator`` is its name."""

    operator: str = ""


class GateError(BlasdxError, ValueError):
    """A descriptor that does not land on the path that ``check(..., require=path)`` asked for.

    Attributes
    ----------
    report : PathReport or None
        Everything `blasdx.check` found.
    required : str
        The path that was asked for.
    misses : tuple of Finding
        Every gate that stands between the descriptor and that path.
    """

    report: Any = None
    required: str = ""
    misses: tuple[Any, ...] = ()


class EpilogueError(BlasdxError, ValueError):
    """An epilogue's expression that cannot be.

    Attributes
    ----------
    expression : str
    column : int or None
        Where in it, counted from 0.
    """

    expression: str = ""
    column: int | None = None


class PlanError(BlasdxError):
    """The path is there, but no pipeline fits.

    Attributes
    ----------
    code : str
        cuBLASDx's name of the refusal where it has one ("insufficient_stages", ...), otherwise "".
    needed, available : int or None
        What was compared, in the unit the text names (bytes, stages).
    """

    code: str = ""
    needed: int | None = None
    available: int | None = None


class RenderError(BlasdxError):
    """The plan cannot be turned into source."""


class CompileError(BlasdxError):
    """The compiler refused the source; ``log`` is what it said, ``source`` what it was given."""

    log: str = ""
    source: str = ""


class UnsupportedToolkitError(CompileError):
    """The installed compiler is too old for the target; ``found`` and ``needed`` are versions."""

    found: tuple[int, int] | None = None
    needed: tuple[int, int] | None = None


class SassError(BlasdxError):
    """The machine code is not what was promised; ``pattern`` is what was looked for."""

    pattern: str = ""


class OperandError(BlasdxError, ValueError):
    """Arrays that the kernel cannot take.

    Attributes
    ----------
    operand : str
        Name of the first of them: "a", "b", "c" or "out".
    misses : tuple
        Every rule that the operands break.
    """

    operand: str = ""
    misses: tuple[Any, ...] = ()


class NoDriverError(BlasdxError):
    """A call that needs a CUDA driver, on a machine without one."""


class MissingPackageError(BlasdxError, ImportError):
    """A call that needs an optional package; ``extra`` is the extra of blasdx that brings it."""

    extra: str = ""


class ArchMismatchError(BlasdxError):
    """A device that does not run code for the kernel's SM; ``device`` is its name, ``sm`` the kernel's number."""

    device: str = ""
    sm: int = 0


class LaunchError(BlasdxError):
    """The CUDA driver refused a call.

    Attributes
    ----------
    status : str
        Its name for the reason ("CUDA_ERROR_INVALID_VALUE").
    earlier : bool
        An earlier kernel of the process failed, and this call launched nothing.
    """

    status: str = ""
    earlier: bool = False
