"""Control flow of disassembled machine code: the loop that multiplies, and what an epilogue executes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_LINE = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(?P<guard>@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<operands>[^;]*);|^(?P<label>[.$\w]+):"
)
_LABEL = re.compile(r"\.L_\w+")
_MMA = re.compile(r"UTC[A-Z]*MMA|[HQI]GMMA")
_JUMPS = ("BRA", "BRX", "BRXU")
_ENDS = ("EXIT", "RET", *_JUMPS)  # without a predicate, what stands behind them is not what follows


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``targets`` are the positions that a branch may go to."""

    opcode: str  # with its modifiers
    conditional: bool
    targets: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.split(".")[0]

    @property
    def is_mma(self) -> bool:
        """Multiplies matrices."""
        return _MMA.match(self.opcode) is not None

    @property
    def is_wait(self) -> bool:
        """Asks whether a phase of an mbarrier is over."""
        return self.opcode.startswith("SYNCS.PHASECHK")

    @property
    def elements(self) -> int:
        """Accumulator elements that a thread gets: ``LDTM.x32`` 32, ``LDTM.16dp256bit.x8`` 32."""
        if self.name != "LDTM" or "_t16_t31" in self.opcode:  # the upper half of the warp: the other half of one load
            return 0
        repeats = re.search(r"\.x(\d+)", self.opcode)
        shape = re.search(r"\.(\d+)dp(\d+)bit(_t)?", self.opcode)
        lanes, bits, half = (int(shape[1]), int(shape[2]), shape[3]) if shape else (32, 32, None)
        registers = 1 if half else lanes * bits // (32 * 32)
        return (int(repeats[1]) if repeats else 1) * registers * (2 if "PACK16" in self.opcode else 1)

    @property
    def is_bulk_store(self) -> bool:
        """Copies from shared to global memory."""
        return self.name in ("UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED")

    def written(self, *names: str) -> int:
        """Bytes a thread writes if this is one of the stores ``names``."""
        if self.name not in names:
            return 0
        if self.name == "STSM":
            matrices = re.search(r"\.M\d+\.(\d)", self.opcode)
            return 4 * int(matrices[1] if matrices else 1)
        width = re.search(r"\.[US]?(8|16|64|128)(?:\.|$)", self.opcode)
        return int(width[1]) // 8 if width else 4


@dataclass(frozen=True)
class Loop:
    """A natural loop: everything on a way from ``first`` back to ``first``."""

    first: int
    members: frozenset[int]
    latches: tuple[int, ...]


@dataclass(frozen=True)
class Code:
    """The instructions of a disassembly in the order of their addresses."""

    at: tuple[Instruction, ...]

    @classmethod
    def parse(cls, text: str) -> Code:
        """Read nvdisasm's text: of several kernels the one that multiplies, without the padding behind it."""
        sections = re.split(r"^\s*\.section\s+\.text\.", text, flags=re.MULTILINE)
        text = max(sections, key=lambda section: (bool(_MMA.search(section)), len(section)))
        labels: dict[str, int] = {}
        found: list[tuple[str, bool, list[str]]] = []
        for line in text.splitlines():
            match = _LINE.search(line)
            if match is None:
                continue
            if match["label"]:
                labels[match["label"]] = len(found)
                continue
            opcode, operands = match["opcode"], match["operands"]
            jumps = opcode.split(".")[0] in _JUMPS
            # Only of branches: BSSY names where a warp meets again, CALL goes to functions that trap.
            targets = _LABEL.findall(operands) if jumps else []
            conditional = match["guard"] is not None or re.match(r"\s*!?U?P\d|\.DIV|\.CONV", operands) is not None
            found.append((opcode, conditional or opcode.startswith(("BRA.DIV", "BRA.CONV")), targets))
        while found and (found[-1][0] == "NOP" or [labels.get(target) for target in found[-1][2]] == [len(found) - 1]):
            found.pop()
        return cls(tuple(Instruction(o, c, tuple(labels[target] for target in ts)) for o, c, ts in found))

    def after(self, i: int) -> tuple[int, ...]:
        """What may be executed after instruction ``i``."""
        instruction = self.at[i]
        falls = instruction.conditional or instruction.name not in _ENDS
        return instruction.targets + ((i + 1,) if falls and i + 1 < len(self.at) else ())

    @cached_property
    def _order(self) -> list[int]:
        """What the entry reaches, each instruction before all that can only follow it."""
        order, seen, stack = [], {0}, [(0, iter(self.after(0)))]
        while stack:
            i, rest = stack[-1]
            following = next((j for j in rest if j not in seen), None)
            if following is None:
                order.append(i)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(self.after(following))))
        return order[::-1]

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """All natural loops, the smallest first."""
        before: dict[int, list[int]] = {i: [] for i in self._order}
        for i in self._order:
            for j in self.after(i):
                before[j].append(i)
        dominator = _dominators(self._order, before)
        back: dict[int, list[int]] = {}
        for i in self._order:
            for j in self.after(i):
                if _dominates(dominator, j, i):
                    back.setdefault(j, []).append(i)
        found = [Loop(first, _members(first, latches, before), tuple(latches)) for first, latches in back.items()]
        return tuple(sorted(found, key=lambda loop: len(loop.members)))

    def forward(self, i: int) -> list[int]:
        """What may follow ``i`` in the same round of every loop."""
        return [j for j in self.after(i) if self._position[j] > self._position[i]]

    @cached_property
    def _position(self) -> dict[int, int]:
        return {i: position for position, i in enumerate(self._order)}

    @property
    def reached(self) -> list[int]:
        """The instructions that the entry reaches, in an order that follows `forward`."""
        return self._order


def _dominators(order: list[int], before: dict[int, list[int]]) -> dict[int, int]:
    """The nearest instruction that stands on every way to each (Cooper, Harvey and Kennedy's iteration)."""
    position = {i: n for n, i in enumerate(order)}
    nearest = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for i in order[1:]:
            known = [j for j in before[i] if j in nearest]
            common = known[0]
            for j in known[1:]:
                while common != j:
                    if position[common] > position[j]:
                        common = nearest[common]
                    else:
                        j = nearest[j]
            if nearest.get(i) != common:
                nearest[i] = common
                changed = True
    return nearest


def _dominates(nearest: dict[int, int], above: int, i: int) -> bool:
    while i != above and nearest[i] != i:
        i = nearest[i]
    return i == above


def _members(first: int, latches: list[int], before: dict[int, list[int]]) -> frozenset[int]:
    members, waiting = {first}, list(latches)
    while waiting:
        i = waiting.pop()
        if i not in members:
            members.add(i)
            waiting += before[i]
    return frozenset(members)


@dataclass(frozen=True)
class MmaLoop:
    """The loop that multiplies: its MMAs, the instructions that stand in line, and those that ptxas moved elsewhere."""

    mmas: int
    inline: int
    elsewhere: int


def mma_loop(code: Code) -> MmaLoop | None:
    """The smallest loop that holds an MMA; of loops that hold each other's parts of one K loop, that with most MMAs.

    In line stands what lies between the loop's first instruction and the branch back to it. The rest is the repetition
    of waits, which nothing executes while the pipeline is full.
    """
    holding = [loop for loop in code.loops if any(code.at[i].is_mma for i in loop.members)]
    innermost = [loop for loop in holding if not any(other.members < loop.members for other in holding)]
    found = []
    for loop in innermost:
        first_mma = min(i for i in loop.members if code.at[i].is_mma)
        latch = min((i for i in loop.latches if i > first_mma), default=max(loop.latches))
        inline = [i for i in loop.members if loop.first <= i <= latch]
        mmas = sum(code.at[i].is_mma for i in inline)
        found.append(MmaLoop(mmas, len(inline), len(loop.members) - len(inline)))
    return max(found, key=lambda loop: (loop.mmas, -loop.inline), default=None)


@dataclass(frozen=True)
class Epilogue:
    """What a warp executes for so many accumulator elements of each of its threads."""

    executed: int
    elements: int


def epilogue(code: Code, bytes_each: int) -> Epilogue | None:
    """The cheapest way to write elements of ``bytes_each`` bytes; tools/sass_report.py has the definition."""
    start = next((i for i in sorted(code.reached) if code.at[i].elements), None)
    if start is None:
        return None
    within = next((loop for loop in code.loops if start in loop.members), None)
    if within is not None and not any(code.at[i].is_mma or code.at[i].is_wait for i in within.members):
        return _cheapest(code, within.first, within.members, within.latches, bytes_each)
    members = frozenset(i for i in code.reached if not code.at[i].is_mma)
    bulk = tuple(i for i in members if code.at[i].is_bulk_store)
    return _cheapest(code, start, members, bulk or tuple(members), bytes_each)


_GLOBAL = ("STG", "ST", "RED", "REDG", "ATOMG")
_SHARED = ("STS", "STSM")


def _cheapest(
    code: Code, start: int, members: frozenset[int], ends: tuple[int, ...], bytes_each: int
) -> Epilogue | None:
    """Of the ways to an end that write all they load, those that load most, then those that hand most of it to TMA.

    Of them the one that executes least: a thread that issues no TMA store goes on while another of its warp does.
    """
    stores = _SHARED if any(code.at[i].is_bulk_store for i in members) else _GLOBAL
    # Per instruction: how many lead to it at least, for each number of elements loaded, bytes written and TMA stores.
    least: dict[int, dict[tuple[int, int, int], int]] = {start: {(0, 0, 0): 0}}
    found = []
    for i in code.reached:
        instruction = code.at[i]
        for (elements, written, sent), executed in least.get(i, {}).items():
            way = (
                elements + instruction.elements,
                written + instruction.written(*stores),
                sent + instruction.is_bulk_store,
            )
            if i in ends and way[1] >= way[0] * bytes_each > 0:
                found.append((way[0], way[2], -executed - 1))
            for j in code.forward(i):
                if j in members:
                    there = least.setdefault(j, {})
                    there[way] = min(there.get(way, executed + 1), executed + 1)
        least.pop(i, None)
    if not found:
        return None
    elements, _, executed = max(found)
    return Epilogue(-executed, elements)
