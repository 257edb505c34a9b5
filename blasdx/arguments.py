"""The by-value argument of a kernel: the C++ ``struct Problem`` of the templates, packed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from blasdx.elements import Element
from blasdx.epilogue import Epilogue
from blasdx.epilogue.context import BITS

_CODES = {"u64": "Q", "u32": "I", "float": "f"}


@dataclass(frozen=True)
class Fields:
    """Members of one type, declared on one line."""

    type: str
    names: tuple[str, ...]
    remark: str = ""

    @property
    def code(self) -> str:
        """Of each member, as `struct` calls it."""
        return _CODES.get(self.type, "Q")

    def __str__(self) -> str:
        star = "" if self.type.endswith("*") else " "
        line = f"{self.type}{star or ' '}{', '.join(self.names)};"
        return f"{line}  // {self.remark}" if self.remark else line


@dataclass(frozen=True)
class ProblemStruct:
    """``struct Problem`` of one kernel.

    Its members, all of them numbers:

    ``out``, ``c`` and one of its name for every array of the epilogue
        Device addresses. ``c`` is there where the epilogue reads it.
    ``out_ld``, ``c_ld`` and ``name_ld`` of every matrix
        Elements between rows, between columns where C is column-major.
    ``name_step`` of every vector
        Elements from one to the next.
    ``out_batch``, ``c_batch`` and ``name_batch`` of every array
        Elements between batches, 0 where all share one.
    ``m``, ``n``, ``k``, ``batches``, ``a_batch``, ``b_batch``
        Extents; the last two are 0 where all batches share one operand, otherwise 1.
    ``alpha``, ``beta`` and one of its name for every number by value
        As f32, those that the epilogue names.
    """

    lines: tuple[Fields, ...]

    @classmethod
    def of(cls, epilogue: Epilogue, output: Element, *, c_row_major: bool = True, split: bool = False) -> ProblemStruct:
        """The struct of a kernel that stores its results in this type."""
        c = ("c",) if epilogue.reads_c else ()
        c_type = "Output" if epilogue.c_element(output) == output else BITS[epilogue.c_element(output).name]
        arrays = epilogue.arrays
        matrices, vectors = ([one.name for one in arrays if len(one.axes) == rank] for rank in (2, 1))
        lines = (
            Fields("Output*", ("out",)),
            *(Fields(f"const {c_type}*", (name,)) for name in c),
            *(Fields(f"const {BITS[one.element.name]}*", (one.name,), f"{one}, {one.element}") for one in arrays),
            *(Fields("u32*", (name,), "where parts of K meet") for name in ("counters", "partials") if split),
            Fields(
                "u64", _with("_ld", "out", *c, *matrices), f"elements between {'rows' if c_row_major else 'columns'}"
            ),
            Fields("u64", _with("_step", *vectors), "elements from one to the next"),
            Fields("u64", _with("_batch", "out", *c, *(one.name for one in arrays)), "elements between batches"),
            Fields("u32", ("m", "n", "k", "batches")),
            Fields("u32", ("a_batch", "b_batch"), "1, or 0 where all batches share one operand"),
            *((Fields("u32", ("parts", "part_blocks"), "of K, in K blocks"),) if split else ()),
            Fields("float", ("alpha",) * epilogue.uses_alpha + ("beta",) * epilogue.uses_beta + epilogue.scalars),
        )
        return cls(tuple(line for line in lines if line.names))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The members in order."""
        return tuple(name for line in self.lines for name in line.names)

    @cached_property
    def addresses(self) -> tuple[str, ...]:
        """Those that are addresses, which come first."""
        return tuple(name for line in self.lines if line.type.endswith("*") for name in line.names)

    @cached_property
    def _layout(self) -> struct.Struct:
        codes = "".join(line.code * len(line.names) for line in self.lines)
        unpadded = struct.Struct(f"<{codes}")
        return struct.Struct(f"<{codes}{-unpadded.size % 8}x")  # as the compiler aligns a struct with 64-bit members

    @property
    def size(self) -> int:
        """Bytes; the rendered kernel asserts the same number."""
        return self._layout.size

    def packer(self, **values: float) -> Callable[..., bytes]:
        """What packs the struct with other addresses, given all other members.

        Raises
        ------
        KeyError
            For a member that is left out.
        """
        rest = [values[name] for name in self.names[len(self.addresses) :]]
        pack = self._layout.pack
        return lambda *addresses: pack(*addresses, *rest)

    def pack(self, **values: float) -> bytes:
        """The struct's bytes, given every member."""
        return self.packer(**values)(*(values[name] for name in self.addresses))


def _with(suffix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{name}{suffix}" for name in names)
