"""PTX text to :mod:`~blasdx.emulator.ir`.

Names are resolved here: registers, labels and variables are scoped by ``{ }``, so that inline assembly that declares
the same label or register twice is no special case afterwards.
"""

from __future__ import annotations

import re

from blasdx.emulator.errors import EmulationError
from blasdx.emulator.ir import (
    TYPE_BITS,
    FunctionBody,
    Instruction,
    ModuleText,
    Operand,
    Reg,
    Variable,
    refloat,
)
from blasdx.emulator.lexer import Token
from blasdx.emulator.operands import OperandParser, Scope, mentions_symbol


class _Parser(OperandParser):
    """A recursive-descent parser for one module."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.scopes = 0
        self.source: tuple[int, int] | None = None
        self.unresolved: list[tuple[int, Scope]] = []

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

    def debug_line(self, token: Token) -> None:
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
        self.scope = Scope(None, number=self.scopes)
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
        self.scope = Scope(None)

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
                self.scope = Scope(self.scope, number=self.scopes)
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
        if any(mentions_symbol(o) for o in operands):
            self.unresolved.append((len(self.function.instructions), self.scope))
        self.function.instructions.append(Instruction(base, tuple(mods), tuple(operands), guard, line, self.source))

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
