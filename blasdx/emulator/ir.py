"""What the parser makes of a PTX module: plain values, names resolved, nothing interpreted yet."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

TYPE_BITS = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "b32": 32, "u32": 32,
    "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "tf32": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64,
    "f32x2": 64, "b128": 128, "e4m3x2": 16, "e5m2x2": 16, "e2m1x2": 8, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16,
    "e4m3x4": 32, "e5m2x4": 32, "e2m1x4": 16, "e2m3x4": 32, "e3m2x4": 32, "u16x2": 32, "s16x2": 32,
}  # fmt: skip


@dataclass(frozen=True)
class Reg:
    """A register: its index in the function's register list and its width in bits (1 for a predicate)."""

    index: int
    bits: int
    name: str


@dataclass(frozen=True)
class Imm:
    """An immediate: the integer as written, or a float given as the bits of its own width (32 or 64)."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True)
class Special:
    """A special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True)
class Sym:
    """The address of a variable, parameter, function or label, plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Mem:
    """``[base + offset]`` or ``[base + offset, {vector}]``; further bracket contents follow in `rest`."""

    base: Reg | Sym | Imm
    offset: int = 0
    rest: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Vec:
    """``{a, b, ...}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """``d|p``, the two destinations of setp, shfl, elect, ..."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Not:
    """``!p``."""

    reg: Reg


@dataclass(frozen=True)
class Sink:
    """``_``: a destination nobody reads."""


Operand = Reg | Imm | Special | Sym | Mem | Vec | Pair | Not | Sink


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction.

    `base` is the opcode up to the first dot, `mods` its qualifiers in order, `guard` the predicate register with its
    negation. `line` is the PTX line, `source` the (file, line) of the last ``.loc``, when there is one.
    """

    base: str
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Reg, bool] | None
    line: int
    source: tuple[int, int] | None = None

    @property
    def opcode(self) -> str:
        """The opcode as written."""
        return ".".join((self.base, *self.mods))


@dataclass(frozen=True)
class Variable:
    """A variable or parameter. `size` in bytes; 0 for ``extern`` arrays. `data` initialises .global and .const."""

    name: str
    space: str
    type: str
    align: int
    size: int
    data: bytes = b""
    pointers: tuple[tuple[int, str, int], ...] = ()
    external: bool = False


@dataclass
class FunctionBody:
    """A parsed entry or function.

    `labels` maps a resolved label to the index of the instruction it stands before; `tables` maps a .branchtargets
    label to its targets.
    """

    name: str
    entry: bool
    line: int
    params: list[Variable] = field(default_factory=list)
    returns: list[Variable] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    registers: list[Reg] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    defined: bool = False


@dataclass
class ModuleText:
    """A parsed module."""

    version: str = ""
    target: str = ""
    functions: dict[str, FunctionBody] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)


def refloat(value: Imm, bits: int) -> int:
    """The bits of a float immediate in another width."""
    source = {32: "<f", 64: "<d"}[value.float_bits]
    number = struct.unpack(source, value.value.to_bytes(value.float_bits // 8, "little"))[0]
    packed = struct.pack({16: "<e", 32: "<f", 64: "<d"}[bits], number)
    return int.from_bytes(packed, "little")
