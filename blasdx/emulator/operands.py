"""Operands of PTX instructions: registers, numbers, addresses and names, looked up in their scopes."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from blasdx.emulator.errors import EmulationError
from blasdx.emulator.ir import FunctionBody, Imm, Mem, ModuleText, Not, Operand, Pair, Reg, Sink, Special, Sym, Vec
from blasdx.emulator.lexer import TokenStream, parse_integer

SPECIAL_ROOTS = frozenset(
    [
        "tid",
        "ntid",
        "laneid",
        "warpid",
        "nwarpid",
        "ctaid",
        "nctaid",
        "smid",
        "nsmid",
        "gridid",
        "is_explicit_cluster",
        "clusterid",
        "nclusterid",
        "cluster_ctaid",
        "cluster_nctaid",
        "cluster_ctarank",
        "cluster_nctarank",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "clock",
        "clock_hi",
        "clock64",
        "globaltimer",
        "globaltimer_lo",
        "globaltimer_hi",
        "total_smem_size",
        "aggr_smem_size",
        "dynamic_smem_size",
        "reserved_smem_offset_begin",
        "reserved_smem_offset_end",
        "reserved_smem_offset_cap",
        "current_graph_exec",
    ]
)


@dataclass
class Scope:
    """One ``{ }``: its registers, labels and variables, and the scope around it."""

    parent: Scope | None
    registers: dict[str, Reg] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # prefix -> first index, count, bits
    labels: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    number: int = 0

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


class OperandParser(TokenStream):
    """Reads operands.

    Attributes
    ----------
    module : ModuleText
    function : FunctionBody | None
        What is being parsed.
    scope : Scope
        The innermost ``{ }``.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.module = ModuleText()
        self.function: FunctionBody | None = None
        self.scope = Scope(None)

    def find_register(self, name: str) -> Reg | None:
        """The register of that name in the innermost scope that has it."""
        assert self.function is not None
        split = re.fullmatch(r"(.*?)(0|[1-9]\d*)", name)
        for scope in self.scope.chain():
            if name in scope.registers:
                return scope.registers[name]
            if split and split[1] in scope.ranges:
                first, count, _ = scope.ranges[split[1]]
                if int(split[2]) < count:
                    register = self.function.registers[first + int(split[2])]
                    scope.registers[name] = register
                    return register
        return None

    def operand(self) -> Operand:
        """One operand."""
        if self.accept("{"):
            return self.vector("}")
        if self.accept("("):
            return self.vector(")")
        if self.accept("["):
            return self.address()
        first = self.simple()
        if self.accept("|"):
            return Pair(first, self.simple())
        if isinstance(first, Sym) and self.token.text in ("+", "-"):
            sign = 1 if self.next().text == "+" else -1
            return Sym(first.name, first.offset + sign * self.integer())
        return first

    def vector(self, closing: str) -> Vec:
        """Operands up to the closing brace."""
        items: list[Operand] = []
        while not self.accept(closing):
            items.append(self.operand())
            if not self.accept(",") and self.token.text != closing:
                raise EmulationError(f"expected ',' or {closing!r}, found {self.token.text!r}", line=self.token.line)
        return Vec(tuple(items))

    def address(self) -> Mem:
        """What stands in brackets, behind the first of them."""
        line = self.token.line
        base = self.simple()
        if not isinstance(base, (Reg, Sym, Imm)):
            raise EmulationError("an address is a register, a name or a number", line=line)
        offset = 0
        while self.token.text in ("+", "-"):
            sign = 1 if self.next().text == "+" else -1
            offset += sign * self.integer()
        rest: list[Operand] = []
        while self.accept(","):
            rest.append(self.operand())
        self.expect("]")
        return Mem(base, offset, tuple(rest))

    def simple(self) -> Operand:
        """A register, a number or a name."""
        token = self.token
        if token.text == "!":
            self.next()
            name = self.word()
            register = self.find_register(name)
            if register is None:
                raise EmulationError(f"unknown register {name}", line=token.line)
            return Not(register)
        if token.kind in ("int", "float") or token.text in ("-", "+", "~", "("):
            return self.immediate(token.line)
        name = self.word()
        if name == "_":
            return Sink()
        register = self.find_register(name)
        if register is not None:
            return register
        if name.startswith("%"):
            return self.special(name, token.line)
        return Sym(name)

    def special(self, name: str, line: int) -> Special:
        """A special register."""
        root = name[1:]
        if root in SPECIAL_ROOTS or re.fullmatch(r"(pm|envreg)\d+(_64)?", root):
            if self.token.kind == "dot" and self.token.text in (".x", ".y", ".z", ".w"):
                return Special(root + self.next().text)
            return Special(root)
        raise EmulationError(f"unknown register {name}", line=line)

    def immediate(self, line: int) -> Imm:
        """A number."""
        negative = False
        while self.token.text in ("-", "+"):
            negative ^= self.next().text == "-"
        if self.accept("~"):
            inner = self.immediate(line)
            return Imm(~inner.value if not negative else -~inner.value)
        token = self.next()
        if token.kind == "int":
            value = parse_integer(token.text)
            return Imm(-value if negative else value)
        if token.kind == "float":
            if token.text[:2] in ("0f", "0F"):
                return Imm(int(token.text[2:], 16) ^ (negative << 31), 32)
            if token.text[:2] in ("0d", "0D"):
                return Imm(int(token.text[2:], 16) ^ (negative << 63), 64)
            number = -float(token.text) if negative else float(token.text)
            return Imm(struct.unpack("<Q", struct.pack("<d", number))[0], 64)
        raise EmulationError(f"expected a number, found {token.text!r}", line=line)

    def resolve(self, operand: Operand, scope: Scope, line: int) -> Operand:
        """An operand with its names looked up."""
        if isinstance(operand, Sym):
            for each in scope.chain():
                if operand.name in each.labels:
                    return Sym(each.labels[operand.name], operand.offset)
                if operand.name in each.variables:
                    return Sym(each.variables[operand.name], operand.offset)
            if operand.name in self.module.variables or operand.name in self.module.functions:
                return operand
            assert self.function is not None
            if operand.name == self.function.name:
                return operand
            raise EmulationError(f"unknown name {operand.name}", line=line)
        if isinstance(operand, Mem):
            base = self.resolve(operand.base, scope, line)
            assert isinstance(base, (Reg, Sym, Imm))
            return Mem(base, operand.offset, tuple(self.resolve(o, scope, line) for o in operand.rest))
        if isinstance(operand, Vec):
            return Vec(tuple(self.resolve(o, scope, line) for o in operand.items))
        return operand


def mentions_symbol(operand: Operand) -> bool:
    """Whether an operand names a variable, a function or a label."""
    if isinstance(operand, Mem):
        return isinstance(operand.base, Sym) or any(mentions_symbol(o) for o in operand.rest)
    if isinstance(operand, Vec):
        return any(mentions_symbol(o) for o in operand.items)
    return isinstance(operand, Sym)
