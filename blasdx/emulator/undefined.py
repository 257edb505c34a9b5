"""Registers that are read although nothing on any way to the instruction can have written them.

Where some way writes them, a program may know that it is the one that is taken; such reads pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from blasdx.emulator.flow import Block, registers_of
from blasdx.emulator.ir import Instruction, Mem, Reg


def find(blocks: list[Block]) -> dict[int, list[tuple[int, str]]]:
    """For each block with such reads: PTX line and register of the first read of each."""
    written = [_written(block) for block in blocks]
    before = [0] * len(blocks)
    work = [0]
    seen = {0}
    while work:
        number = work.pop()
        after = before[number] | written[number]
        for successor in blocks[number].successors:
            if after & ~before[successor] or successor not in seen:
                before[successor] |= after
                seen.add(successor)
                work.append(successor)
    found: dict[int, list[tuple[int, str]]] = {}
    for block in blocks:
        if block.number in seen and (reads := list(_undefined(block, before[block.number]))):
            found[block.number] = reads
    return found


def _instructions(block: Block) -> Iterator[Instruction]:
    yield from block.body
    if block.ending is not None:
        yield block.ending


def _written(block: Block) -> int:
    bits = 0
    for instruction in _instructions(block):
        for reg in _may_write(instruction):
            bits |= 1 << reg.index
    return bits


def _may_write(instruction: Instruction) -> list[Reg]:
    """What stands first is taken to be written, whatever the opcode; addresses are not."""
    first = instruction.operands[:1]
    return registers_of(first[0]) if first and not isinstance(first[0], Mem) else []


def _reads(instruction: Instruction) -> Iterator[Reg]:
    for position, operand in enumerate(instruction.operands):
        if position or isinstance(operand, Mem):
            yield from registers_of(operand)
    if instruction.guard is not None:
        yield instruction.guard[0]


def _undefined(block: Block, known: int) -> Iterator[tuple[int, str]]:
    for instruction in _instructions(block):
        for reg in _reads(instruction):
            if not known >> reg.index & 1:
                known |= 1 << reg.index  # once
                yield instruction.line, reg.name
        for reg in _may_write(instruction):
            known |= 1 << reg.index
    if block.skip is not None and not known >> block.skip[0].index & 1:
        yield block.line, block.skip[0].name
