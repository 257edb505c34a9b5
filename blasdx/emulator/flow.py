"""Control flow of a function: basic blocks, where lanes that parted meet again, which registers are live.

A block ends at a branch, at a call, and at every instruction that may have to wait. A warp can therefore be suspended
and resumed between blocks only, and a block is a plain function without any provision for waiting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blasdx.emulator.errors import EmulationError
from blasdx.emulator.ir import FunctionBody, Instruction, Mem, Not, Operand, Pair, Reg, Sym, Vec

ENDINGS = frozenset({"bra", "brx", "ret", "exit", "trap", "call", "brkpt"})

# Opcodes whose first operand is written and not read. Everything else is taken to read all its registers, which
# costs nothing but a few registers too many in the live sets.
_WRITES_FIRST = frozenset(
    [
        "abs",
        "add",
        "addc",
        "sub",
        "subc",
        "and",
        "or",
        "xor",
        "not",
        "cnot",
        "neg",
        "mul",
        "mul24",
        "mad",
        "mad24",
        "madc",
        "mov",
        "cvt",
        "cvta",
        "setp",
        "set",
        "selp",
        "slct",
        "shl",
        "shr",
        "shf",
        "min",
        "max",
        "bfe",
        "bfi",
        "bfind",
        "brev",
        "clz",
        "popc",
        "fma",
        "fns",
        "div",
        "rem",
        "ld",
        "ldu",
        "lop3",
        "prmt",
        "sad",
        "dp2a",
        "dp4a",
        "rcp",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "lg2",
        "ex2",
        "tanh",
        "copysign",
        "testp",
        "shfl",
        "elect",
        "vote",
        "match",
        "redux",
        "activemask",
        "mapa",
        "getctarank",
        "ldmatrix",
        "movmatrix",
        "mma",
        "isspacep",
        "szext",
        "bmsk",
        "clusterlaunchcontrol",
    ]
)


@dataclass
class Block:
    """Straight-line code.

    Attributes
    ----------
    body : list[Instruction]
        Instructions without the ending.
    ending : Instruction | None
        Branch, call or waiting instruction; None to fall through.
    skip : tuple[Reg, bool] | None
        Guard of the ending of the *next* block: go there when it holds, behind it when not.
    successors : tuple[int, ...]
        Block numbers; for a guarded branch (taken, not taken).
    join : int
        The block where lanes that part at the end of this one meet again; the exit block when there is none.
    """

    number: int
    body: list[Instruction] = field(default_factory=list)
    ending: Instruction | None = None
    skip: tuple[Reg, bool] | None = None
    successors: tuple[int, ...] = ()
    join: int = -1
    live_in: frozenset[int] = frozenset()
    live_out: frozenset[int] = frozenset()
    early: dict[int, Any] = field(default_factory=dict)  # position: pending.Early

    @property
    def size(self) -> int:
        """Number of instructions."""
        return len(self.body) + (self.ending is not None)

    @property
    def line(self) -> int:
        """First PTX line."""
        if self.body:
            return self.body[0].line
        return self.ending.line if self.ending else 0


def may_wait(instruction: Instruction) -> bool:
    """Whether the instruction can suspend a warp (or wants the scheduler to look at others first)."""
    base, mods = instruction.base, instruction.mods
    if base in ("bar", "barrier"):
        return "arrive" not in mods
    if base in ("shfl", "vote", "match", "redux"):
        return True  # for lanes on other paths
    if base == "mbarrier":
        return mods[0] in ("try_wait", "test_wait")
    if base == "tcgen05":
        return mods[0] == "alloc"
    if base == "cp":
        return any(m in ("wait_group", "wait_all") for m in mods)
    if base == "wgmma":
        return mods[0] in ("fence", "wait_group")  # a fence wants to see all registers in their places
    if base == "setmaxnreg":
        return "inc" in mods
    if base == "griddepcontrol":
        return mods[0] == "wait"
    return base == "nanosleep"


def registers_of(operand: Operand) -> list[Reg]:
    """All registers an operand mentions."""
    if isinstance(operand, Reg):
        return [operand]
    if isinstance(operand, Not):
        return [operand.reg]
    if isinstance(operand, Vec):
        return [r for item in operand.items for r in registers_of(item)]
    if isinstance(operand, Pair):
        return registers_of(operand.first) + registers_of(operand.second)
    if isinstance(operand, Mem):
        return registers_of(operand.base) + [r for item in operand.rest for r in registers_of(item)]
    return []


def writes_first(instruction: Instruction) -> bool:
    """Whether the first operand is a pure destination."""
    if instruction.base == "tcgen05":
        return instruction.mods[0] == "ld"
    if instruction.base == "mbarrier":
        return instruction.mods[0] in ("try_wait", "test_wait")
    return instruction.base in _WRITES_FIRST


def uses_and_kills(instruction: Instruction) -> tuple[set[int], set[int]]:
    """Registers read, and registers certainly overwritten in all running lanes."""
    uses: set[int] = set()
    kills: set[int] = set()
    operands = instruction.operands
    if operands and writes_first(instruction):
        written = {r.index for r in registers_of(operands[0])}
        if instruction.guard is None:
            kills = written
        else:
            uses |= written
        operands = operands[1:]
    for operand in operands:
        uses.update(r.index for r in registers_of(operand))
    if instruction.guard is not None:
        uses.add(instruction.guard[0].index)
    return uses, kills


def build(function: FunctionBody) -> list[Block]:
    """Split a function into blocks and analyse them. The last block is the exit and is empty."""
    blocks, at_label = _split(function)
    _connect(function, blocks, at_label)
    _find_joins(blocks)
    _find_live(blocks)
    return blocks


def _split(function: FunctionBody) -> tuple[list[Block], dict[str, int]]:
    labelled: dict[int, list[str]] = {}
    for label, index in function.labels.items():
        labelled.setdefault(index, []).append(label)
    blocks = [Block(0)]
    at_label: dict[str, int] = {}

    def start() -> Block:
        block = Block(len(blocks))
        blocks.append(block)
        return block

    current = blocks[0]
    for index, instruction in enumerate(function.instructions):
        if index in labelled:
            if current.body or current.ending or current.skip:
                current = start()
            at_label.update(dict.fromkeys(labelled[index], current.number))
        if instruction.base in ENDINGS or may_wait(instruction):
            if instruction.guard is not None and instruction.base != "bra":
                current.skip = instruction.guard
                current = start()
            current.ending = instruction
            current = start()
        else:
            current.body.append(instruction)
    if current.body or current.ending or current.skip:
        current = start()
    at_label.update(dict.fromkeys(labelled.get(len(function.instructions), []), current.number))
    return blocks, at_label


def _connect(function: FunctionBody, blocks: list[Block], at_label: dict[str, int]) -> None:
    leave = len(blocks) - 1
    for block in blocks[:-1]:
        following = min(block.number + 1, leave)
        ending = block.ending
        if block.skip is not None:
            block.successors = (following, min(following + 1, leave))
        elif ending is None:
            block.successors = (following,)
        elif ending.base == "bra":
            target = _target(ending, at_label)
            block.successors = (target,) if ending.guard is None else (target, following)
        elif ending.base == "brx":
            table = ending.operands[-1]
            targets: tuple[str, ...] = ()
            if isinstance(table, Sym):
                targets = function.tables.get(table.name, ())
            elif isinstance(table, Vec):
                targets = tuple(t.name for t in table.items if isinstance(t, Sym))
            if not targets or any(t not in at_label for t in targets):
                raise EmulationError("brx.idx needs a .branchtargets list", line=ending.line)
            block.successors = tuple(at_label[t] for t in targets)
        elif ending.base in ("ret", "exit", "trap"):
            block.successors = (leave,)
        else:
            block.successors = (following,)


def _target(branch: Instruction, at_label: dict[str, int]) -> int:
    target = branch.operands[0] if branch.operands else None
    if not isinstance(target, Sym) or target.name not in at_label:
        raise EmulationError("the target of bra is not a label of this function", line=branch.line)
    return at_label[target.name]


def _find_joins(blocks: list[Block]) -> None:
    """Immediate post-dominators (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm)."""
    leave = len(blocks) - 1
    predecessors: list[list[int]] = [[] for _ in blocks]
    for block in blocks:
        for successor in block.successors:
            predecessors[successor].append(block.number)
    extra: dict[int, int] = {}
    order = _reverse_order(leave, predecessors)
    for block in blocks:  # an endless loop never reaches the exit; pretend that it could
        if block.number not in order:
            extra[block.number] = leave
            predecessors[leave].append(block.number)
            order = _reverse_order(leave, predecessors)
    idom: dict[int, int] = {leave: leave}
    sequence = sorted(order, key=lambda b: order[b])
    changed = True
    while changed:
        changed = False
        for number in sequence:
            if number == leave:
                continue
            after = [*blocks[number].successors, *([extra[number]] if number in extra else [])]
            candidates = [s for s in after if s in idom]
            if not candidates:
                continue
            new = candidates[0]
            for other in candidates[1:]:
                new = _meet(new, other, idom, order)
            if idom.get(number) != new:
                idom[number] = new
                changed = True
    for block in blocks:
        block.join = idom.get(block.number, leave)


def _reverse_order(start: int, predecessors: list[list[int]]) -> dict[int, int]:
    """Position of every block in reverse post-order of the reversed graph."""
    seen = {start}
    post: list[int] = []
    stack = [(start, iter(predecessors[start]))]
    while stack:
        number, edges = stack[-1]
        for edge in edges:
            if edge not in seen:
                seen.add(edge)
                stack.append((edge, iter(predecessors[edge])))
                break
        else:
            post.append(number)
            stack.pop()
    return {number: position for position, number in enumerate(reversed(post))}


def _meet(a: int, b: int, idom: dict[int, int], order: dict[int, int]) -> int:
    while a != b:
        while order[a] > order[b]:
            a = idom[a]
        while order[b] > order[a]:
            b = idom[b]
    return a


def _find_live(blocks: list[Block]) -> None:
    """Backward data flow, registers as bits of Python integers."""
    gen = [0] * len(blocks)
    kill = [0] * len(blocks)
    for block in blocks:
        used: set[int] = set()
        killed: set[int] = set()
        for instruction in [*block.body, *([block.ending] if block.ending else [])]:
            uses, kills = uses_and_kills(instruction)
            used |= uses - killed
            killed |= kills
        if block.skip is not None and block.skip[0].index not in killed:
            used.add(block.skip[0].index)
        gen[block.number], kill[block.number] = _bits(used), _bits(killed)
    live_in = [0] * len(blocks)
    live_out = [0] * len(blocks)
    predecessors: list[list[int]] = [[] for _ in blocks]
    for block in blocks:
        for successor in block.successors:
            predecessors[successor].append(block.number)
    work = [b.number for b in reversed(blocks)]
    queued = set(work)
    while work:
        number = work.pop(0)
        queued.discard(number)
        out = 0
        for successor in blocks[number].successors:
            out |= live_in[successor]
        live_out[number] = out
        new = gen[number] | (out & ~kill[number])
        if new != live_in[number]:
            live_in[number] = new
            for predecessor in predecessors[number]:
                if predecessor not in queued:
                    queued.add(predecessor)
                    work.append(predecessor)
    for block in blocks:
        block.live_in = _members(live_in[block.number])
        block.live_out = _members(live_out[block.number])


def _bits(members: set[int]) -> int:
    digits = bytearray(max(members, default=0) // 8 + 1)
    for member in members:
        digits[member >> 3] |= 1 << (member & 7)
    return int.from_bytes(digits, "little")


def _members(bits: int) -> frozenset[int]:
    digits = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), np.uint8)
    return frozenset(np.flatnonzero(np.unpackbits(digits, bitorder="little")).tolist())
