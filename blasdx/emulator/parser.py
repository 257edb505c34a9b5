"""PTX text to :mod:`~blasdx.emulator.ir`.

Names are resolved here: registers, labels and variables are scoped by ``{ }``, so that inline assembly that declares
the same label or register twice is no special case afterwards.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from blasdx.emulator.errors import EmulationError
from blasdx.emulator.ir import (
    TYPE_BITS,
    FunctionBody,
    Imm,
    Instruction,
    Mem,
    ModuleText,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Special,
    Sym,
    Variable,
    Vec,
    refloat,
)

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\f\v]+|//[^\n]*|/\*.*?\*/)
      | (?P<newline>\n)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)
      | (?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
      | (?P<word>[A-Za-z_$%][\w$]*)
      | (?P<dot>\.[A-Za-z_0-9$]+(?:::[A-Za-z_0-9]+)*)
      | (?P<punct>[{}\[\](),;:|!+\-*/~&^<>=@?.%])""",
    re.VERBOSE | re.DOTALL,
)

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


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def _tokenize(text: str) -> list[_Token]:
    """Split PTX text into tokens; comments and blanks vanish, line numbers stay."""
    tokens: list[_Token] = []
    line, at, end = 1, 0, len(text)
    match = _TOKEN.match
    while at < end:
        found = match(text, at)
        if found is None:
            raise EmulationError(f"unexpected character {text[at]!r}", line=line)
        kind = found.lastgroup
        at = found.end()
        if kind == "newline":
            line += 1
        elif kind == "skip":
            line += found.group().count("\n") if found.group().startswith("/*") else 0
        else:
            tokens.append(_Token(str(kind), found.group(), line))
    tokens.append(_Token("end", "", line))
    return tokens


@dataclass
class _Scope:
    """One ``{ }``: its registers, labels and variables, and the scope around it."""

    parent: _Scope | None
    registers: dict[str, Reg] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # prefix -> first index, count, bits
    labels: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    number: int = 0

    def chain(self) -> Iterator[_Scope]:
        scope: _Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


class _Parser:
    """A recursive-descent parser for one module."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokenize(text)
        self.at = 0
        self.module = ModuleText()
        self.scopes = 0
        self.source: tuple[int, int] | None = None
        self.function: FunctionBody | None = None
        self.scope = _Scope(None)
        self.unresolved: list[tuple[int, _Scope]] = []

    # tokens

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def next(self) -> _Token:
        token = self.tokens[self.at]
        if token.kind == "end":
            raise EmulationError("unexpected end of text", line=token.line)
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.token.text == text and self.token.kind not in ("string", "end"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> _Token:
        token = self.next()
        if token.text != text:
            raise EmulationError(f"expected {text!r}, found {token.text!r}", line=token.line)
        return token

    def word(self) -> str:
        token = self.next()
        if token.kind != "word":
            raise EmulationError(f"expected a name, found {token.text!r}", line=token.line)
        return token.text

    def integer(self) -> int:
        negative = self.accept("-")
        token = self.next()
        if token.kind != "int":
            raise EmulationError(f"expected an integer, found {token.text!r}", line=token.line)
        value = _integer(token.text)
        return -value if negative else value

    def skip_line(self, line: int) -> None:
        while self.token.kind != "end" and self.token.line == line:
            self.at += 1

    def skip_statement(self) -> None:
        while not self.accept(";"):
            self.next()

    def skip_braces(self) -> None:
        self.expect("{")
        depth = 1
        while depth:
            text = self.next().text
            depth += (text == "{") - (text == "}")

    # module level

    def parse(self) -> ModuleText:
        while self.token.kind != "end":
            self.module_statement()
        return self.module

    def module_statement(self) -> None:
        token = self.next()
        text, line = token.text, token.line
        if text == ".version":
            self.module.version = self.next().text
            self.skip_line(line)
        elif text == ".target":
            self.module.target = self.word()
            self.skip_line(line)
        elif text == ".address_size":
            if self.integer() != 64:
                raise EmulationError("only .address_size 64 is supported", line=line)
        elif text in (".file", ".loc"):
            self.debug_line(token)
        elif text == ".section":
            while self.token.text != "{":
                self.next()
            self.skip_braces()
        elif text in (".pragma", ".alias"):
            self.skip_statement()
        elif text in (".visible", ".extern", ".weak", ".common"):
            following = self.token.text
            if following in (".entry", ".func"):
                return
            self.next()
            self.variable(following.lstrip("."), external=text == ".extern")
        elif text in (".global", ".const", ".shared"):
            self.variable(text.lstrip("."), external=False)
        elif text in (".entry", ".func"):
            self.at -= 1
            self.function_definition()
        elif text != ";":
            raise EmulationError(f"unexpected {text!r} at module level", line=line)

    def debug_line(self, token: _Token) -> None:
        if token.text == ".file":
            number = self.integer()
            name = self.next().text.strip('"')
            self.module.files[number] = name
        else:
            number, line = self.integer(), self.integer()
            self.source = (number, line)
        self.skip_line(token.line)

    def variable(self, space: str, *, external: bool) -> Variable:
        """A declaration from behind its space to its semicolon; also declares it in the current scope."""
        line = self.token.line
        align, type_ = 0, ""
        lanes = 1
        while self.token.kind == "dot":
            text = self.next().text[1:]
            if text == "align":
                align = self.integer()
            elif text in TYPE_BITS:
                type_ = text
            elif re.fullmatch(r"v[248]", text):
                lanes = int(text[1])
            elif text == "attribute":
                self.expect("(")
                while not self.accept(")"):
                    self.next()
        if not type_:
            raise EmulationError("a variable needs a type", line=line)
        last: Variable | None = None
        while last is None or self.accept(","):
            last = self.declarator(space, type_, lanes, align, external)
        self.expect(";")
        return last

    def declarator(self, space: str, type_: str, lanes: int, align: int, external: bool) -> Variable:
        name = self.word()
        size = max(TYPE_BITS[type_] // 8, 1) * lanes
        element = size
        unsized = False
        while self.accept("["):
            if self.accept("]"):
                unsized = True
                continue
            size *= self.integer()
            self.expect("]")
        data = b""
        pointers: tuple[tuple[int, str, int], ...] = ()
        if self.accept("="):
            data, pointers, count = self.initializer(TYPE_BITS[type_] // 8)
            if unsized:
                size, unsized = count, False
            data = data.ljust(size, b"\0")
        unique = name if self.function is None else f"{self.function.name}::{self.scope.number}::{name}"
        variable = Variable(
            unique, space, type_, align or element, 0 if unsized else size, data, pointers, external or unsized
        )
        if self.function is None:
            self.module.variables[name] = variable
        else:
            self.scope.variables[name] = unique
            self.function.variables[unique] = variable
        return variable

    def initializer(self, itemsize: int) -> tuple[bytes, tuple[tuple[int, str, int], ...], int]:
        data = bytearray()
        pointers: list[tuple[int, str, int]] = []

        def item() -> None:
            if self.accept("{"):
                while not self.accept("}"):
                    item()
                    self.accept(",")
                return
            line = self.token.line
            if self.token.kind == "word":
                name = self.word()
                if self.accept("("):  # generic(name)
                    name = self.word()
                    self.expect(")")
                pointers.append((len(data), name, self.integer() if self.accept("+") else 0))
                data.extend(bytes(itemsize))
                return
            value = self.immediate(line)
            if value.float_bits:
                bits = value.value if value.float_bits == itemsize * 8 else refloat(value, itemsize * 8)
                data.extend(bits.to_bytes(itemsize, "little"))
            else:
                data.extend((value.value & ((1 << 8 * itemsize) - 1)).to_bytes(itemsize, "little"))

        item()
        return bytes(data), tuple(pointers), len(data)

    # functions

    def function_definition(self) -> None:
        start = self.next()
        returns: list[Variable] = []
        body = FunctionBody("", start.text == ".entry", start.line)
        self.function = body
        self.scopes += 1
        self.scope = _Scope(None, number=self.scopes)
        if start.text == ".func" and self.token.text == "(":
            returns = self.parameters()
        body.name = self.word()
        if self.token.text == "(":
            body.params = self.parameters()
        body.returns = returns
        while self.token.kind == "dot":
            directive = self.next().text[1:]
            values: list[int] = []
            while self.token.kind == "int":
                values.append(self.integer())
                if not self.accept(","):
                    break
            body.directives[directive] = tuple(values)
        if not self.accept(";"):
            self.body()
            body.defined = True
        known = self.module.functions.get(body.name)
        if known is None or not known.defined:
            self.module.functions[body.name] = body
        self.function = None
        self.scope = _Scope(None)

    def parameters(self) -> list[Variable]:
        assert self.function is not None
        self.expect("(")
        result: list[Variable] = []
        while not self.accept(")"):
            token = self.next()
            if token.text == ".reg":
                raise EmulationError("register parameters of .func are not supported", line=token.line)
            if token.text != ".param":
                raise EmulationError(f"expected .param, found {token.text!r}", line=token.line)
            align, type_ = 0, ""
            while self.token.kind == "dot":
                text = self.next().text[1:]
                if text == "align":
                    align = self.integer()
                elif text in TYPE_BITS:
                    type_ = text
                elif text == "ptr":
                    align = self.pointer_attributes()
            name = self.word()
            if not type_:
                raise EmulationError(f"parameter {name} has no type", line=token.line)
            size = TYPE_BITS[type_] // 8
            natural = size
            if self.accept("["):
                size *= self.integer() if self.token.text != "]" else 1
                self.expect("]")
            variable = Variable(name, "param", type_, align or natural, size)
            self.scope.variables[name] = name
            self.function.variables[name] = variable
            result.append(variable)
            self.accept(",")
        return result

    def pointer_attributes(self) -> int:
        """``.ptr .global .align 16``: what the pointer points to, not how the parameter itself is aligned."""
        while self.token.kind == "dot":
            if self.next().text == ".align":
                self.integer()
        return 0

    def body(self) -> None:
        assert self.function is not None
        self.expect("{")
        self.unresolved = []
        depth = 1
        while depth:
            if self.accept("{"):
                self.scopes += 1
                self.scope = _Scope(self.scope, number=self.scopes)
                depth += 1
            elif self.accept("}"):
                depth -= 1
                if depth:
                    assert self.scope.parent is not None
                    self.scope = self.scope.parent
            else:
                self.statement()
        self.resolve_labels()

    def statement(self) -> None:
        assert self.function is not None
        token = self.token
        if token.kind == "dot":
            self.directive()
        elif token.text == ";":
            self.next()
        elif token.kind == "word" and self.tokens[self.at + 1].text == ":":
            self.label()
        else:
            self.instruction()

    def label(self) -> None:
        assert self.function is not None
        token = self.next()
        self.expect(":")
        if token.text in self.scope.labels:
            raise EmulationError(f"label {token.text} is defined twice in its scope", line=token.line)
        unique = f"{token.text}@{self.scope.number}"
        self.scope.labels[token.text] = unique
        if self.token.text in (".branchtargets", ".calltargets", ".callprototype"):
            kind = self.next().text
            targets: list[str] = []
            if kind == ".branchtargets":
                targets.append(self.word())
                while self.accept(","):
                    targets.append(self.word())
            self.skip_statement()
            self.function.tables[unique] = tuple(targets)
            return
        self.function.labels[unique] = len(self.function.instructions)

    def directive(self) -> None:
        token = self.next()
        text = token.text
        if text == ".reg":
            self.registers()
        elif text in (".loc", ".file"):
            self.debug_line(token)
        elif text in (".shared", ".local", ".param", ".global", ".const"):
            self.variable(text[1:], external=False)
        elif text == ".pragma":
            self.skip_statement()
        else:
            raise EmulationError(f"unknown directive {text}", line=token.line)

    def registers(self) -> None:
        assert self.function is not None
        line = self.token.line
        type_ = self.next().text[1:]
        if type_ not in TYPE_BITS:
            raise EmulationError(f"unknown register type .{type_}", line=line)
        bits = TYPE_BITS[type_]
        while True:
            name = self.word()
            if self.accept("<"):
                count = self.integer()
                self.expect(">")
                first = len(self.function.registers)
                self.scope.ranges[name] = (first, count, bits)
                self.function.registers.extend(Reg(first + i, bits, f"{name}{i}") for i in range(count))
            else:
                register = Reg(len(self.function.registers), bits, name)
                self.function.registers.append(register)
                self.scope.registers[name] = register
            if not self.accept(","):
                break
        self.expect(";")

    def find_register(self, name: str) -> Reg | None:
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

    # instructions

    def instruction(self) -> None:
        assert self.function is not None
        guard = None
        line = self.token.line
        if self.accept("@"):
            negate = self.accept("!")
            name = self.word()
            register = self.find_register(name)
            if register is None or register.bits != 1:
                raise EmulationError(f"{name} is not a predicate register", line=line)
            guard = (register, negate)
        line = self.token.line
        base = self.word()
        mods: list[str] = []
        while self.token.kind == "dot":
            mods.append(self.next().text[1:])
        operands: list[Operand] = []
        if not self.accept(";"):
            operands.append(self.operand())
            while self.accept(","):
                operands.append(self.operand())
            if self.token.text != ";":
                raise EmulationError(f"expected ';', found {self.token.text!r}", line=self.token.line)
            self.next()
        if any(_mentions_symbol(o) for o in operands):
            self.unresolved.append((len(self.function.instructions), self.scope))
        self.function.instructions.append(Instruction(base, tuple(mods), tuple(operands), guard, line, self.source))

    def operand(self) -> Operand:
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
        items: list[Operand] = []
        while not self.accept(closing):
            items.append(self.operand())
            if not self.accept(",") and self.token.text != closing:
                raise EmulationError(f"expected ',' or {closing!r}, found {self.token.text!r}", line=self.token.line)
        return Vec(tuple(items))

    def address(self) -> Mem:
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
        root = name[1:]
        if root in SPECIAL_ROOTS or re.fullmatch(r"(pm|envreg)\d+(_64)?", root):
            if self.token.kind == "dot" and self.token.text in (".x", ".y", ".z", ".w"):
                return Special(root + self.next().text)
            return Special(root)
        raise EmulationError(f"unknown register {name}", line=line)

    def immediate(self, line: int) -> Imm:
        negative = False
        while self.token.text in ("-", "+"):
            negative ^= self.next().text == "-"
        if self.accept("~"):
            inner = self.immediate(line)
            return Imm(~inner.value if not negative else -~inner.value)
        token = self.next()
        if token.kind == "int":
            value = _integer(token.text)
            return Imm(-value if negative else value)
        if token.kind == "float":
            if token.text[:2] in ("0f", "0F"):
                return Imm(int(token.text[2:], 16) ^ (negative << 31), 32)
            if token.text[:2] in ("0d", "0D"):
                return Imm(int(token.text[2:], 16) ^ (negative << 63), 64)
            number = -float(token.text) if negative else float(token.text)
            return Imm(struct.unpack("<Q", struct.pack("<d", number))[0], 64)
        raise EmulationError(f"expected a number, found {token.text!r}", line=line)

    # names that could only be resolved once the whole scope was read

    def resolve_labels(self) -> None:
        assert self.function is not None
        body = self.function
        for index, scope in self.unresolved:
            old = body.instructions[index]
            operands = tuple(self.resolve(o, scope, old.line) for o in old.operands)
            body.instructions[index] = Instruction(old.base, old.mods, operands, old.guard, old.line, old.source)
        for table, targets in body.tables.items():
            resolved = []
            for target in targets:
                unique = next((s.labels[target] for s in self.scope.chain() if target in s.labels), None)
                if unique is None:
                    raise EmulationError(f"unknown label {target}", line=body.line)
                resolved.append(unique)
            body.tables[table] = tuple(resolved)

    def resolve(self, operand: Operand, scope: _Scope, line: int) -> Operand:
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


def _mentions_symbol(operand: Operand) -> bool:
    if isinstance(operand, Mem):
        return isinstance(operand.base, Sym) or any(_mentions_symbol(o) for o in operand.rest)
    if isinstance(operand, Vec):
        return any(_mentions_symbol(o) for o in operand.items)
    return isinstance(operand, Sym)


def _integer(text: str) -> int:
    text = text.rstrip("U")
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if text[:2] in ("0b", "0B"):
        return int(text, 2)
    return int(text, 8) if len(text) > 1 and text[0] == "0" else int(text)


def parse(text: str) -> ModuleText:
    """Parse a PTX module.

    Raises
    ------
    EmulationError
        With the line, for text that is not PTX, and for unknown or twice-defined names.
    """
    try:
        return _Parser(text).parse()
    except (ValueError, OverflowError, RecursionError) as error:
        raise EmulationError(f"malformed PTX: {error}") from error
