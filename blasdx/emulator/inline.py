"""Device functions, put in the place of their calls.

A called function gets its own registers and labels at every call. Its parameters are the very ``.param`` variables that
the call names; all of them live in local memory. What cannot be placed (recursion, calls through a register, functions
without a body) stays a call and is refused when a thread reaches it.
"""

from __future__ import annotations

from dataclasses import replace

from blasdx.emulator.errors import EmulationError
from blasdx.emulator.ir import FunctionBody, Instruction, Mem, ModuleText, Not, Operand, Pair, Reg, Sym, Vec


def expand(module: ModuleText, body: FunctionBody) -> FunctionBody:
    """`body` with the functions it calls in it; the same object when it calls none."""
    if not any(i.base == "call" for i in body.instructions):
        return body
    return _Expansion(module, body).result


class _Frame:
    """How the names of one copy of a function translate."""

    def __init__(self, body: FunctionBody, prefix: str, first: int, alias: dict[str, str], leave: str | None) -> None:
        self.body = body
        self.prefix = prefix
        self.first = first  # register
        self.alias = alias
        self.leave = leave  # label behind the call; None for the entry

    def register(self, reg: Reg) -> Reg:
        return Reg(self.first + reg.index, reg.bits, reg.name)

    def symbol(self, name: str) -> str:
        if name in self.alias:
            return self.alias[name]
        variable = self.body.variables.get(name)
        if variable is not None:
            return self.prefix + name if variable.space in ("local", "param") else name
        return self.prefix + name if name in self.body.labels or name in self.body.tables else name

    def operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Reg):
            return self.register(operand)
        if isinstance(operand, Not):
            return Not(self.register(operand.reg))
        if isinstance(operand, Sym):
            return Sym(self.symbol(operand.name), operand.offset)
        if isinstance(operand, Vec):
            return Vec(tuple(map(self.operand, operand.items)))
        if isinstance(operand, Pair):
            return Pair(self.operand(operand.first), self.operand(operand.second))
        if isinstance(operand, Mem):
            base = self.operand(operand.base)
            assert not isinstance(base, (Vec, Pair, Not, Mem))
            return Mem(base, operand.offset, tuple(map(self.operand, operand.rest)))  # type: ignore[arg-type]
        return operand


class _Expansion:
    def __init__(self, module: ModuleText, entry: FunctionBody) -> None:
        self.module = module
        self.calls = 0
        self.result = FunctionBody(entry.name, True, entry.line, params=entry.params, directives=entry.directives)
        self.result.defined = True
        names = {param.name: param.name for param in entry.params}
        self.stack: list[str] = []
        self.place(_Frame(entry, "", 0, names, None))

    def place(self, frame: _Frame) -> None:
        """Append one copy of a function."""
        out, body = self.result, frame.body
        self.stack.append(body.name)
        out.registers.extend(frame.register(reg) for reg in body.registers)
        for name, variable in body.variables.items():
            if name in frame.alias and frame.leave is not None:
                continue
            local = variable.space == "param" and name not in frame.alias
            new = frame.symbol(name)
            out.variables[new] = replace(variable, name=new, space="local" if local else variable.space)
        out.tables.update({frame.prefix + n: tuple(frame.prefix + t for t in ts) for n, ts in body.tables.items()})
        at: dict[int, list[str]] = {}
        for label, index in body.labels.items():
            at.setdefault(index, []).append(label)
        for index, instruction in enumerate(body.instructions):
            out.labels.update({frame.prefix + label: len(out.instructions) for label in at.get(index, ())})
            self.instruction(frame, instruction)
        end = len(out.instructions)
        out.labels.update({frame.prefix + label: end for label in at.get(len(body.instructions), ())})
        if frame.leave is not None:
            out.labels[frame.leave] = end
        self.stack.pop()

    def instruction(self, frame: _Frame, old: Instruction) -> None:
        guard = None if old.guard is None else (frame.register(old.guard[0]), old.guard[1])
        if old.base == "ret" and frame.leave is not None:
            self.emit(Instruction("bra", (), (Sym(frame.leave),), guard, old.line, old.source))
            return
        if old.base == "call" and self.call(frame, old, guard):
            return
        mods = old.mods
        if "param" in mods or "param::func" in mods or "param::entry" in mods:
            base = next((o.base for o in old.operands if isinstance(o, Mem)), None)
            named = isinstance(base, Sym)
            if frame.leave is not None or (named and isinstance(base, Sym) and base.name not in frame.alias):
                mods = tuple("local" if m.startswith("param") else m for m in mods)
        operands = tuple(map(frame.operand, old.operands))
        self.emit(Instruction(old.base, mods, operands, guard, old.line, old.source))

    def emit(self, instruction: Instruction) -> None:
        self.result.instructions.append(instruction)

    def call(self, frame: _Frame, old: Instruction, guard: tuple[Reg, bool] | None) -> bool:
        """Put the called function here; False when that is not possible."""
        operands = list(old.operands)
        returns = operands.pop(0) if operands and isinstance(operands[0], Vec) else Vec(())
        target = operands.pop(0) if operands else None
        arguments = operands.pop(0) if operands and isinstance(operands[0], Vec) else Vec(())
        function = self.module.functions.get(target.name) if isinstance(target, Sym) else None
        if function is None or not function.defined or function.name in self.stack:
            return False
        assert isinstance(returns, Vec)
        assert isinstance(arguments, Vec)
        formal = [*function.returns, *function.params]
        actual = [*returns.items, *arguments.items]
        if len(function.returns) != len(returns.items) or len(formal) != len(actual):
            raise EmulationError(
                f"{function.name} takes {len(function.params)} argument(s) and returns {len(function.returns)}; "
                f"the call has {len(arguments.items)} and {len(returns.items)}",
                line=old.line,
            )
        alias: dict[str, str] = {}
        for variable, operand in zip(formal, actual, strict=True):
            if not isinstance(operand, Sym) or operand.name not in frame.body.variables:
                return False
            alias[variable.name] = frame.symbol(operand.name)
        self.calls += 1
        prefix = f"{function.name}#{self.calls}:"
        leave = prefix + "return"
        if guard is not None:
            self.emit(Instruction("bra", (), (Sym(leave),), (guard[0], not guard[1]), old.line, old.source))
        self.place(_Frame(function, prefix, len(self.result.registers), alias, leave))
        return True
