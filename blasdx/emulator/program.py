"""A function made ready to run: its blocks, translated when they are first reached, and where its variables lie."""

from __future__ import annotations

from collections.abc import Sequence

from blasdx.emulator import flow, inline, pending, undefined
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.instructions import EMITTERS
from blasdx.emulator.ir import FunctionBody, Mem, ModuleText, Operand, Reg, Sym, Variable, Vec
from blasdx.emulator.translate import BlockFunction, translate
from blasdx.emulator.windows import SHARED_BASE

DYNAMIC_ALIGNMENT = 1024  # 76 of 106 kernels from other compilers rely on it although they declare .align 16


class Program:
    """One entry function.

    Attributes
    ----------
    blocks : list[flow.Block]
    leave : int
        Number of the exit block.
    static_shared : int
        Bytes of static shared memory, including the padding before dynamic shared memory.
    local_bytes : int
        Local memory of one thread.
    """

    def __init__(self, module: ModuleText, body: FunctionBody) -> None:
        self.module = module
        self.body = body = inline.expand(module, body)
        self.name = body.name
        self.target = module.target
        self.registers: list[Reg] = body.registers
        self.blocks = flow.build(body)
        pending.find(self.blocks)
        self.undefined = undefined.find(self.blocks)
        self.leave = len(self.blocks) - 1
        self.sizes = [block.size + (block.skip is not None) for block in self.blocks]
        self.functions: list[BlockFunction | None] = [None] * len(self.blocks)
        self.lines: list[list[int]] = [[] for _ in self.blocks]
        self.variables: dict[str, tuple[Variable, int]] = {}
        self.param_offsets: list[int] = []
        self.param_bytes = 0
        self._place_params()
        self.static_shared = 0
        self.local_bytes = 0
        self._place_variables()

    def translated(self, number: int) -> BlockFunction:
        """The Python function of a block."""
        function, lines = translate(self.blocks[number], EMITTERS, self.variables, self.target, self.leave)
        self.functions[number] = function
        self.lines[number] = lines
        return function

    def line_of(self, number: int, python_line: int) -> int:
        """The PTX line a line of a block's Python source came from."""
        lines = self.lines[number]
        return lines[min(python_line, len(lines)) - 1] if lines else self.blocks[number].line

    def _place_params(self) -> None:
        at = 0
        for param in self.body.params:
            at = -(-at // param.align) * param.align
            self.param_offsets.append(at)
            self.variables[param.name] = (param, at)
            at += param.size
        self.param_bytes = at

    def _place_variables(self) -> None:
        mentioned = {name for i in self.body.instructions for o in i.operands for name in _symbols(o)}
        dynamic: list[str] = []
        shared = SHARED_BASE
        local = 0
        for name, variable in {**self.module.variables, **self.body.variables}.items():
            if variable.space == "param" or name not in mentioned:
                continue
            if variable.space == "shared":
                if variable.external:
                    dynamic.append(name)
                else:
                    shared = -(-shared // variable.align) * variable.align
                    self.variables[name] = (variable, shared)
                    shared += variable.size
            elif variable.space == "local":
                local = -(-local // variable.align) * variable.align
                self.variables[name] = (variable, local)
                local += variable.size
            else:
                self.variables[name] = (variable, 0)
        if dynamic:
            shared = -(-shared // DYNAMIC_ALIGNMENT) * DYNAMIC_ALIGNMENT
        elif shared > SHARED_BASE:
            shared = -(-shared // 16) * 16
        for name in dynamic:
            self.variables[name] = ({**self.module.variables, **self.body.variables}[name], shared)
        self.static_shared = shared - SHARED_BASE
        self.local_bytes = -(-local // 64) * 64

    def cluster(self, given: Sequence[int] | None) -> Sequence[int]:
        """The cluster of a launch: as given, or as .reqnctapercluster requires.

        Raises
        ------
        EmulationError
            When the two contradict each other.
        """
        required = self.body.directives.get("reqnctapercluster")
        if not required:
            return (1, 1, 1) if given is None else given
        padded = (*required, 1, 1)[:3]
        if given is not None and (*given, 1, 1)[:3] != padded:
            raise EmulationError(f"cluster {tuple(given)} given, {self.name} requires {padded} (.reqnctapercluster)")
        return padded

    def check_block(self, block: tuple[int, int, int]) -> None:
        """Compare a block shape with .reqntid and .maxntid.

        Raises
        ------
        EmulationError
        """
        threads = block[0] * block[1] * block[2]
        if not 1 <= threads <= 1024:
            raise EmulationError(f"a block of {threads} threads; legal are 1 to 1024")
        required = self.body.directives.get("reqntid")
        if required:
            padded = (*required, 1, 1)[:3]
            if padded != block:
                raise EmulationError(f"block {block} given, the entry {self.name} requires {padded} (.reqntid)")
        most = self.body.directives.get("maxntid")
        if most:
            limit = 1
            for extent in most:
                limit *= extent
            if threads > limit:
                raise EmulationError(
                    f"{threads} threads a block given, the entry {self.name} allows {limit} (.maxntid)"
                )


def _symbols(operand: Operand) -> list[str]:
    if isinstance(operand, Sym):
        return [operand.name]
    if isinstance(operand, Mem):
        return _symbols(operand.base) + [n for o in operand.rest for n in _symbols(o)]
    if isinstance(operand, Vec):
        return [n for o in operand.items for n in _symbols(o)]
    return []
