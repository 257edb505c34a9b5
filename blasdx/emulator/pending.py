"""Which instructions may use registers that an asynchronous instruction has not filled yet.

A forward analysis over the blocks of a function, before it runs. tcgen05.ld registers are waited for by the next
tcgen05.wait::ld, so that a use between the two is certain where the code is reached. wgmma.wait_group may leave groups
pending; for accumulators the analysis only says where the running program has to look.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from blasdx.emulator.flow import Block, registers_of, uses_and_kills, writes_first
from blasdx.emulator.ir import Instruction, Reg, Vec

_COPIES = ("mov", "selp")


@dataclass
class State:
    """What may be pending.

    Attributes
    ----------
    loads : dict[int, int]
        Register of a tcgen05.ld: its line.
    sums : set[int]
        Registers that hold, or were copied from, accumulators of a wgmma.
    sources : set[int]
        Registers with A of a wgmma.
    uncommitted : set[int]
        Those of both that no wgmma.commit_group has followed yet.
    """

    loads: dict[int, int] = field(default_factory=dict)
    sums: set[int] = field(default_factory=set)
    sources: set[int] = field(default_factory=set)
    uncommitted: set[int] = field(default_factory=set)

    def copy(self) -> State:
        """An independent copy."""
        return State(dict(self.loads), set(self.sums), set(self.sources), set(self.uncommitted))

    def join(self, other: State) -> bool:
        """Add what may be pending on another way; whether that was anything new."""
        before = self._size()
        self.loads = {**other.loads, **self.loads}
        self.sums |= other.sums
        self.sources |= other.sources
        self.uncommitted |= other.uncommitted
        return before != self._size()

    def _size(self) -> int:
        return len(self.loads) + len(self.sums) + len(self.sources) + len(self.uncommitted)


@dataclass(frozen=True)
class Early:
    """One instruction that comes early.

    Attributes
    ----------
    loads : tuple[int, ...]
        Lines of the tcgen05.ld whose registers it uses.
    sums : tuple[int, ...]
        Registers it uses that may be accumulators.
    sources : tuple[int, ...]
        Registers it writes that may be A of a pending wgmma.
    """

    loads: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()


def find(blocks: list[Block]) -> None:
    """Fill `Block.early` of all blocks."""
    bases = {i.base for block in blocks for i in block.body if i.base in ("tcgen05", "wgmma")}
    if not bases:
        return
    entries = [State() for _ in blocks]
    work = list(range(len(blocks)))
    queued = set(work)
    while work:
        number = work.pop(0)
        queued.discard(number)
        state = entries[number].copy()
        for instruction in _all(blocks[number]):
            _step(state, instruction)
        for successor in blocks[number].successors:
            if entries[successor].join(state) and successor not in queued:
                queued.add(successor)
                work.append(successor)
    for block, state in zip(blocks, entries, strict=True):
        for index, instruction in enumerate(_all(block)):
            found = _step(state, instruction)
            if found != Early():
                block.early[index] = found
                for line in found.loads:  # once for each load is enough
                    state.loads = {r: at for r, at in state.loads.items() if at != line}


def _all(block: Block) -> list[Instruction]:
    return [*block.body, *([block.ending] if block.ending is not None else [])]


def _step(state: State, instruction: Instruction) -> Early:
    """Change the state as the instruction does, and say what it does too early."""
    base, mods = instruction.base, instruction.mods
    if base == "tcgen05" and mods[0] == "wait::ld":
        state.loads.clear()
        return Early()
    if base == "wgmma":
        return _wgmma(state, instruction)
    if not (state.loads or state.sums or state.sources):
        if base == "tcgen05" and mods[0] == "ld":
            _load(state, instruction)
        return Early()
    uses, _ = uses_and_kills(instruction)
    written = {r.index for r in registers_of(instruction.operands[0])} if _writes(instruction) else set()
    if instruction.guard is not None:
        uses -= written - {r.index for o in instruction.operands[1:] for r in registers_of(o)}
    copied = base in _COPIES and bool(uses & state.sums)
    early = Early(
        tuple(sorted({state.loads[r] for r in uses & state.loads.keys()})),
        () if copied else tuple(sorted(uses & state.sums)),
        tuple(sorted(written & state.sources)),
    )
    for register in written:
        state.loads.pop(register, None)
    if copied:
        state.sums |= written
        if uses & state.sums & state.uncommitted:
            state.uncommitted |= written
    elif instruction.guard is None:
        state.sums -= written
    if base == "tcgen05" and mods[0] == "ld":
        _load(state, instruction)
    return early


def _writes(instruction: Instruction) -> bool:
    return bool(instruction.operands) and writes_first(instruction)


def _load(state: State, instruction: Instruction) -> None:
    state.loads.update((r.index, instruction.line) for r in registers_of(instruction.operands[0]))


def _wgmma(state: State, instruction: Instruction) -> Early:
    operands = instruction.operands
    if instruction.mods[0] == "wait_group":
        if getattr(operands[0], "value", None) == 0:
            state.sums &= state.uncommitted
            state.sources &= state.uncommitted
        return Early()
    if instruction.mods[0] == "commit_group":
        state.uncommitted.clear()
    if instruction.mods[0] != "mma_async":
        return Early()
    uses = {r.index for o in operands[1:] for r in registers_of(o)}
    early = Early((), tuple(sorted(uses & state.sums)), ())
    sums = {r.index for r in registers_of(operands[0])}
    state.sums |= sums
    state.uncommitted |= sums
    if isinstance(operands[1], Vec):
        sources = {o.index for o in operands[1].items if isinstance(o, Reg)}
        state.sources |= sources
        state.uncommitted |= sources
    return early
