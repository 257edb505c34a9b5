"""PTX blocks to Python functions.

Every block becomes one function ``block(w, R)``: `w` is the running set of lanes (:class:`~blasdx.emulator.warp.Path`),
`R` its registers. Registers are loaded into locals on first use and stored back when they are live behind the block.
The function returns the number of the next block, or None when the lanes have to wait.

Each generated line knows the PTX line it came from, so that whatever goes wrong in it can be reported there.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from blasdx.emulator import wgmma
from blasdx.emulator.errors import EmulationError, UnsupportedInstruction
from blasdx.emulator.flow import Block, registers_of
from blasdx.emulator.ir import Imm, Instruction, Not, Operand, Pair, Reg, Sink, Special, Sym, Variable, Vec, refloat
from blasdx.emulator.lanes import mask_bits, select, sign_extend, zero_extend
from blasdx.emulator.pending import Early

Emitter = Callable[["Writer", Instruction], None]
BlockFunction = Callable[[Any, list[Any]], "int | None"]


class Writer:
    """Collects the Python source of one block.

    Parameters
    ----------
    block : Block
    variables : mapping of resolved name to (Variable, constant offset)
        Offsets of shared, local, const and parameter variables are fixed before translation; global ones are not.
    target : str
        The module's ``.target``.
    """

    def __init__(self, block: Block, variables: dict[str, tuple[Variable, int]], target: str) -> None:
        self.block = block
        self.variables = variables
        self.target = target
        self.lines: list[str] = []
        self.ptx_lines: list[int] = []
        self.instruction: Instruction | None = None
        self.namespace: dict[str, Any] = {
            "ndarray": np.ndarray,
            "select": select,
            "mask_bits": mask_bits,
            "zero_extend": zero_extend,
            "sign_extend": sign_extend,
        }
        self.names: dict[int, str] = {}
        self.loads: dict[int, str] = {}
        self.known: set[int] = set()
        self.written: dict[int, Reg] = {}
        self.temps = 0

    # source

    def line(self, text: str) -> None:
        """Add a line of Python."""
        self.lines.append(text)
        self.ptx_lines.append(self.instruction.line if self.instruction else self.block.line)

    def temp(self, expression: str) -> str:
        """Give an expression a name."""
        self.temps += 1
        name = f"t{self.temps}"
        self.line(f"{name} = {expression}")
        return name

    def bind(self, thing: Any) -> str:
        """Make an object (usually a function) available to the generated code and return its name there."""
        key = id(thing)
        if key not in self.names:
            name = f"k{len(self.names)}"
            self.names[key] = name
            self.namespace[name] = thing
        return self.names[key]

    def call(self, function: Callable[..., Any], *arguments: str) -> str:
        """The source of a call of `function`."""
        return f"{self.bind(function)}({', '.join(arguments)})"

    # what the current instruction says

    @property
    def ins(self) -> Instruction:
        """The instruction being translated."""
        assert self.instruction is not None
        return self.instruction

    def refuse(self, why: str = "") -> UnsupportedInstruction:
        """The error for a form that is not supported."""
        return UnsupportedInstruction(self.ins.opcode, line=self.ins.line, why=why)

    def malformed(self, why: str) -> EmulationError:
        """The error for operands that do not fit the opcode."""
        return EmulationError(f"{self.ins.opcode}: {why}", line=self.ins.line)

    def operands(self, *counts: int) -> tuple[Operand, ...]:
        """The operands, whose number must be one of `counts`."""
        if len(self.ins.operands) not in counts:
            raise self.malformed(f"{len(self.ins.operands)} operands given, {' or '.join(map(str, counts))} needed")
        return self.ins.operands

    # reading

    def register(self, reg: Reg) -> str:
        """The local name of a register's current value."""
        name = f"r{reg.index}"
        if reg.index not in self.known:
            self.known.add(reg.index)
            self.loads[reg.index] = name
        return name

    def read(self, operand: Operand, bits: int) -> str:
        """The source of an operand's low `bits` bits, as canonical value (bool for one bit)."""
        if isinstance(operand, Reg):
            if operand.bits == bits:
                return self.register(operand)
            if operand.bits == 1 or bits == 1:
                raise self.malformed(f"operand {operand.name} has the wrong type")
            return f"zero_extend({self.register(operand)}, {min(operand.bits, bits)}, {bits})"
        if isinstance(operand, Imm):
            return str(self.constant(operand, bits))
        if isinstance(operand, Not):
            return f"({self.register(operand.reg)} ^ True)"
        if isinstance(operand, Special):
            return self.special(operand.name, bits)
        if isinstance(operand, Sym):
            return self.address_of(operand)
        raise self.malformed("a register or a constant is needed")

    def constant(self, operand: Imm, bits: int) -> int | bool:
        """The value of an immediate in `bits` bits."""
        if bits == 1:
            return bool(operand.value)
        if operand.float_bits and operand.float_bits != bits:
            if bits not in (16, 32, 64):
                raise self.malformed("a float constant does not fit here")
            return refloat(operand, bits)
        return operand.value & ((1 << bits) - 1)

    def static(self, operand: Operand) -> int:
        """An operand that has to be an integer constant."""
        if not isinstance(operand, Imm) or operand.float_bits:
            raise self.malformed("a constant is needed")
        return operand.value

    def special(self, name: str, bits: int) -> str:
        """The source of a special register."""
        attribute = name.replace(".", "_")
        if attribute in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
            return f"w.clock({attribute!r})"
        if attribute.endswith("_w"):
            return "0"
        expression = f"w.special.{attribute}"
        return f"zero_extend({expression}, 32, {bits})" if bits != 32 else expression

    def address_of(self, symbol: Sym) -> str:
        """The address of a variable in its own state space."""
        if symbol.name not in self.variables:
            raise self.refuse(f"the address of {symbol.name} cannot be taken")
        variable, offset = self.variables[symbol.name]
        if variable.space == "shared":
            return f"(w.rank_bits + {offset + symbol.offset})"
        if variable.space in ("global", "const"):
            return f"(w.machine.globals[{symbol.name!r}] + {symbol.offset})"
        return str(offset + symbol.offset)

    # writing

    def write(self, target: Operand, expression: str, bits: int, *, signed: bool = False) -> None:
        """Assign a canonical value of `bits` bits to a register, under the guard, extended when it is wider."""
        if isinstance(target, Sink):
            if "(" in expression:
                self.line(expression)
            return
        if not isinstance(target, Reg):
            raise self.malformed("a destination register is needed")
        if target.bits != bits:
            if target.bits == 1 or bits == 1:
                raise self.malformed(f"destination {target.name} has the wrong type")
            extend = "sign_extend" if signed and target.bits > bits else "zero_extend"
            expression = f"{extend}({expression}, {min(bits, target.bits)}, {target.bits})"
        guard = self.ins.guard
        if guard is not None:
            old = self.register(target)
            predicate = self.register(guard[0])
            condition = f"{predicate} ^ True" if guard[1] else predicate
            expression = f"select({condition}, {expression}, {old}, {target.bits})"
        self.known.add(target.index)
        self.written[target.index] = target
        self.line(f"r{target.index} = {expression}")

    def wrapped(self, expression: str, bits: int) -> str:
        """A name for an integer expression, brought back into `bits` bits when it is a Python integer."""
        name = self.temp(expression)
        self.line(f"if {name}.__class__ is int: {name} &= {(1 << bits) - 1}")
        return name

    def write_wrapped(self, target: Operand, expression: str, bits: int) -> None:
        """Like `write` for an expression that may have left the range of `bits` when it is a Python integer."""
        if isinstance(target, Reg) and target.bits == bits and self.ins.guard is None:
            self.known.add(target.index)
            self.written[target.index] = target
            name = f"r{target.index}"
            self.line(f"{name} = {expression}")
            self.line(f"if {name}.__class__ is int: {name} &= {(1 << bits) - 1}")
        else:
            self.write(target, self.wrapped(expression, bits), bits)

    def write_pair(self, target: Operand, first: str, bits: int, second: str, second_bits: int) -> None:
        """Assign to ``d|p`` or to ``d`` alone."""
        if isinstance(target, Pair):
            self.write(target.first, first, bits)
            self.write(target.second, second, second_bits)
        else:
            self.write(target, first, bits)

    def lanes(self) -> str:
        """The source of the bit mask of lanes that execute the current instruction."""
        guard = self.ins.guard
        if guard is None:
            return "w.mask"
        predicate = self.register(guard[0])
        return f"(w.mask & {'~' if guard[1] else ''}mask_bits({predicate}))"

    def effect(self, call: str) -> None:
        """Run a call with side effects for the lanes of the guard; the call may use the name ``m`` for them."""
        if self.ins.guard is None:
            self.line(call.replace("$m", "w.mask"))
        else:
            self.line(f"m = {self.lanes()}")
            self.line(f"if m: {call.replace('$m', 'm')}")

    def loaded(self, call: str, count: int = 0) -> str:
        """A name for the result of a call with side effects; zeros (`count` of them) when no lane is left."""
        if self.ins.guard is None:
            return self.temp(call.replace("$m", "w.mask"))
        self.line(f"m = {self.lanes()}")
        return self.temp(f"{call.replace('$m', 'm')} if m else {(0,) * count if count else 0}")

    def destination(self, operand: Operand) -> int:
        """The register number of a destination that the machine itself writes (results of waiting instructions)."""
        if not isinstance(operand, Reg):
            raise self.malformed("a destination register is needed")
        return operand.index

    # whole block

    def finish(self, ending: list[str]) -> tuple[CodeType, dict[str, Any], list[int]]:
        """Compile the block; `ending` are the lines behind the stores."""
        body = [f"{name} = R[{index}]" for index, name in self.loads.items()]
        body_lines = [self.block.line] * len(body)
        body += self.lines
        body_lines += self.ptx_lines
        stores = [f"R[{i}] = r{i}" for i in self.written if i in self.block.live_out]
        last = self.block.ending.line if self.block.ending else (self.ptx_lines or [self.block.line])[-1]
        body += stores + ending
        body_lines += [last] * (len(stores) + len(ending))
        source = "def block(w, R):\n" + "".join(f" {text}\n" for text in body)
        code = compile(source, "<ptx>", "exec")
        return code, self.namespace, [self.block.line, *body_lines]


def vector(operand: Operand) -> tuple[Operand, ...]:
    """The items of a vector operand; a single operand is a vector of one."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def translate(
    block: Block,
    emitters: dict[str, Emitter],
    variables: dict[str, tuple[Variable, int]],
    target: str,
    leave: int,
) -> tuple[BlockFunction, list[int]]:
    """Translate one block.

    Returns
    -------
    The function, and for each line of its source the PTX line.

    Raises
    ------
    UnsupportedInstruction
        With opcode and line.
    """
    writer = Writer(block, variables, target)
    for position, instruction in enumerate(block.body):
        writer.instruction = instruction
        if position in block.early:
            _look(writer, block.early[position])
        _emit(writer, instruction, emitters)
    writer.instruction = block.ending
    if len(block.body) in block.early:
        _look(writer, block.early[len(block.body)])
    ending = _ending(writer, block, emitters, leave)
    code, namespace, lines = writer.finish(ending)
    exec(code, namespace)  # the source was written above
    function: BlockFunction = namespace["block"]
    return function, lines


def _look(writer: Writer, early: Early) -> None:
    """Report, or look for, registers that are used before their wait."""
    line = str(writer.ins.line)
    for loaded in early.loads:
        writer.line(f"if w.machine.monitor is not None: w.used_early({loaded}, {line})")
    if early.sums or early.sources:
        registers = {reg.index: reg for operand in writer.ins.operands for reg in registers_of(operand)}
        values = ", ".join(writer.register(registers[index]) for index in early.sums if index in registers)
        values = f"({values},)" if values else "()"
        writer.line(writer.call(wgmma.touched, "w", values, repr(early.sources), line))


def _emit(writer: Writer, instruction: Instruction, emitters: dict[str, Emitter]) -> None:
    emitter = emitters.get(instruction.base)
    if emitter is None:
        raise writer.refuse()
    emitter(writer, instruction)


def _ending(writer: Writer, block: Block, emitters: dict[str, Emitter], leave: int) -> list[str]:
    ending = block.ending
    if block.skip is not None:
        return _branch(writer, block.skip, block.successors)
    if ending is None:
        return [f"return {block.successors[0] if block.successors else leave}"]
    if ending.base == "bra":
        if ending.guard is None:
            return [f"return {block.successors[0]}"]
        return _branch(writer, ending.guard, block.successors)
    if ending.base in ("exit", "ret"):
        return [f"return w.leave({ending.base == 'exit'})"]
    if ending.base in ("trap", "brkpt"):
        return [f"return w.trap({ending.opcode!r})"]
    if ending.base == "brx":
        index = writer.read(ending.operands[0], 32)
        return [f"return w.branch_indexed({index}, {block.successors!r})"]
    # Waiting instructions: their emitter leaves the call as last line, which has to come behind the stores.
    guarded = ending
    if ending.guard is not None:  # the guard was resolved by the block before
        guarded = Instruction(ending.base, ending.mods, ending.operands, None, ending.line, ending.source)
        writer.instruction = guarded
    _emit(writer, guarded, emitters)
    writer.ptx_lines.pop()
    call = writer.lines.pop()
    return [f"return {call.replace('$next', str(block.successors[0]))}"]


def _branch(writer: Writer, guard: tuple[Reg, bool], successors: tuple[int, ...]) -> list[str]:
    predicate = writer.register(guard[0])
    taken, other = successors if not guard[1] else successors[::-1]
    if taken == other:
        return [f"return {taken}"]
    return [
        f"if {predicate}.__class__ is bool: return {taken} if {predicate} else {other}",
        f"return w.split({predicate}, {taken}, {other})",
    ]
