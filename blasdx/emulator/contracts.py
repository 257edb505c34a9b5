"""Contracts of mbarriers and tensor memory that are not races between two accesses: initialisation and allocation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from blasdx.emulator import products, wording
from blasdx.emulator.findings import Findings
from blasdx.emulator.ordering import INIT_FENCE, Operation, Warp
from blasdx.emulator.records import Memory, Record


class Cta:
    """What the monitor keeps of a CTA."""

    def __init__(self, cluster: Hashable, dropped: Callable[[Record], None]) -> None:
        self.cluster = cluster
        self.memories: dict[str, Memory] = {"shared": Memory(dropped), "tensor": Memory(dropped)}
        self.warps: list[Warp] = []
        self.agents: set[int] = set()
        self.slots: list[tuple[int, int]] = []  # unused: component, last epoch
        self.components: list[int] = []
        self.barriers: dict[int, tuple[Warp, int, int]] = {}  # offset: initialising warp, its epoch, line
        self.barriers_seen: set[tuple[int, int]] = set()  # component of the user, offset
        self.barrier_mask = 0  # granules that hold barriers
        self.columns = 0  # allocated, as bits
        self.freed = 0
        self.products = products.Products()


@dataclass
class ChangedMap:
    """A tensor map in global memory that the launch wrote.

    Attributes
    ----------
    writer : tuple[int, int]
        Component and epoch of the last change.
    acquired : dict[int, list[tuple[int, int]]]
        By CTA: components and epochs of the warps that acquired that change.
    """

    writer: tuple[int, int]
    acquired: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


class Contracts(Findings):
    """The part of the monitor that knows barriers and allocations.

    Parameters
    ----------
    describe_line : callable
        Turns a PTX line number into text for messages.
    """

    def __init__(self, describe_line: Callable[[int], str]) -> None:
        super().__init__()
        self.describe = self._describe = describe_line
        self._agents: dict[int, Warp | Operation] = {}
        self._ctas: dict[int, Cta] = {}
        self._maps: dict[int, ChangedMap] = {}
        self._map_uses: dict[int, dict[int, tuple[str, int, int]]] = {}  # address, component: name, epoch, line

    def _who(self, record: Record) -> str:
        return wording.who(record, self._describe)

    def _warp(self, agent: int) -> Warp:
        found = self._agents[agent]
        return found if isinstance(found, Warp) else found.warp

    # barriers

    def init_barrier(self, agent: int, cta: int, offset: int, line: int) -> None:
        """mbarrier.init by `agent`; using it from elsewhere wants fence.mbarrier_init and a thread sync between."""
        warp, state = self._warp(agent), self._ctas[cta]
        state.barriers[offset] = (warp, warp.epoch, line)
        state.barrier_mask |= 1 << (offset >> 4)
        state.barriers_seen = {seen for seen in state.barriers_seen if seen[1] != offset}

    def init_again(self, agent: int, offset: int, idle: bool, lines: tuple[int, int]) -> None:
        """mbarrier.init of a live mbarrier; in the middle of a phase, arrivals and bytes are lost."""
        text = (
            f"{self._warp(agent).name} ({self._describe(lines[1])}) initialises the mbarrier at {offset:#x} again, "
            f"which was initialised before ({self._describe(lines[0])}); mbarrier.inval is needed between"
        )
        self.report("warning" if idle else "error", "mbarrier-initialised-twice", text, lines)

    def drop_barrier(self, cta: int, offset: int) -> None:
        """mbarrier.inval: the place is ordinary memory again."""
        state = self._ctas[cta]
        state.barriers.pop(offset, None)
        state.barrier_mask = sum({1 << (at >> 4) for at in state.barriers})

    def barriers_in(self, cta: int, mask: int) -> list[int]:
        """Offsets of the barriers in these granules."""
        state = self._ctas.get(cta)
        if state is None or not mask & state.barrier_mask:
            return []
        return [offset for offset in state.barriers if mask >> (offset >> 4) & 1]

    def use_barrier(self, agent: int, cta: int, offset: int, line: int) -> None:
        """An mbarrier is used (arrive, expect_tx, wait, or handed to an asynchronous operation) by `agent`."""
        state = self._ctas.get(cta)
        warp = self._warp(agent)
        seen = (warp.component, offset)
        if state is None or seen in state.barriers_seen or offset not in state.barriers:
            return
        state.barriers_seen.add(seen)
        owner, epoch, init_line = state.barriers[offset]
        if owner is warp:
            return
        text = f"{warp.name} ({self._describe(line)}) uses the mbarrier at {offset:#x}, which {owner.name} initialises "
        text += f"({self._describe(init_line)}); "
        if warp.clock.get(owner.component, 0) < epoch:
            text += "nothing orders them: a bar.sync or cluster barrier is needed between"
            self.report("error", "barrier-used-before-init", text, (init_line, line))
        elif warp.clock.get(owner.component + INIT_FENCE, 0) < epoch:
            text += "fence.mbarrier_init is missing between the initialisation and the barrier that publishes it"
            self.report("warning", "missing-mbarrier-init-fence", text, (init_line, line))

    def odd_parity(self, agent: int, parity: int, line: int) -> None:
        """A wait for another parity than 0 and 1, of which the hardware looks at the lowest bit."""
        text = f"{self._warp(agent).name} waits for phase parity {parity}; the instruction set defines 0 and 1 alone"
        self.report("warning", "mbarrier-parity-undefined", text, (line,))

    # tensor maps

    def change_map(self, agent: int, address: int, line: int) -> None:
        """A tensor map in global memory is written; whoever used it as it was has to be known to have done so."""
        warp = self._warp(agent)
        for component, (name, epoch, used) in self._map_uses.pop(address, {}).items():
            if warp.clock.get(component, 0) < epoch:
                text = (
                    f"{warp.name} ({self._describe(line)}) changes the tensor map at {address:#x}, which {name} "
                    f"({self._describe(used)}) uses; nothing orders them"
                )
                self.report("error", "missing-tensormap-fence", text, (used, line))
        self._maps[address] = ChangedMap((warp.component, warp.epoch))

    def acquire_map(self, agent: int, address: int) -> None:
        """fence.proxy.tensormap::generic.acquire: counts for what this warp knows to be written."""
        warp, changed = self._warp(agent), self._maps.get(address)
        if changed is not None and warp.clock.get(changed.writer[0], 0) >= changed.writer[1]:
            changed.acquired.setdefault(warp.cta, []).append((warp.component, warp.epoch))

    def use_map(self, agent: int, address: int, line: int) -> None:
        """A copy uses a tensor map: after a change, a thread of its CTA has to acquire it before.

        A proxy fence on the way from the change to the use is enough, whichever thread of the CTA runs it (PTX
        ISA's memory consistency model, proxy-preserved base causality order): compilers let one warp fence and publish
        that by bar.sync.
        """
        warp, changed = self._warp(agent), self._maps.get(address)
        self._map_uses.setdefault(address, {})[warp.component] = (warp.name, warp.epoch, line)
        if changed is None or any(warp.clock.get(c, 0) >= epoch for c, epoch in changed.acquired.get(warp.cta, ())):
            return
        text = (
            f"{warp.name} uses the tensor map at {address:#x}, which was changed in this launch, without "
            "fence.proxy.tensormap::generic.acquire in its CTA between"
        )
        self.report("error", "missing-tensormap-fence", text, (line,))

    # tensor memory

    def allocate(self, agent: int, cta: int, column: int, columns: int, line: int) -> None:
        """tcgen05.alloc gave `columns` columns from `column` on."""
        bits = ((1 << columns) - 1) << column
        self._ctas[cta].columns |= bits
        self._ctas[cta].freed &= ~bits
        self._ctas[cta].memories["tensor"].written &= ~wording.tensor_mask(bits)

    def deallocate(self, agent: int, cta: int, column: int, columns: int, line: int) -> None:
        """tcgen05.dealloc: warn when an access to the columns is not ordered before."""
        state, warp = self._ctas[cta], self._warp(agent)
        bits = ((1 << columns) - 1) << column
        state.columns &= ~bits
        state.freed |= bits
        memory = state.memories["tensor"]
        for side in ("async reads", "async writes"):
            for old in memory.sides[side]:
                if wording.tensor_columns(old.mask) & bits and not old.ordered(warp.clock):
                    text = (
                        f"{warp.name} ({self._describe(line)}) frees {wording.place('tensor', old.mask)}, which "
                        f"{self._who(old)} may still use; {wording.cure(old)}"
                    )
                    self.report("warning", "tensor-freed-while-used", text, (old.line, line))

    def multiply(self, agent: int, cta: int, mask: int, accumulates: bool, line: int) -> None:
        """tcgen05.mma leaves a product in these places of the tensor memory of `cta`."""
        state = self._ctas[cta]
        if not accumulates:
            who = f"mma of {self._warp(agent).name} ({self._describe(line)})"
            self._lose(state, mask, f"{who} overwrites", (line,))
        state.products.written(mask, line)

    def _lose(self, state: Cta, mask: int, who: str, lines: tuple[int, ...]) -> None:
        """What lies in these places is gone from now on."""
        lost, multiplied = state.products.lost(mask)
        if lost:
            text = (
                f"{who} {products.place(lost)}, where the product of a tcgen05.mma ({self._describe(multiplied)}) was "
                "never read: the warps of these lanes have no results"
            )
            self.report("warning", "tensor-result-never-read", text, (multiplied, *lines))

    def _check_allocated(self, state: Cta, new: Record) -> None:
        missing = wording.tensor_columns(new.mask) & ~state.columns
        if not missing:
            return
        text = f"{self._who(new)} accesses {wording.place('tensor', missing)}, "
        if missing & ~state.freed:
            self.report("error", "tensor-not-allocated", text + "which were never allocated", (new.line,))
        else:
            self.report("warning", "tensor-used-after-free", text + "which were freed before", (new.line,))

    def registers_used_early(self, agent: int, load_line: int, line: int) -> None:
        """A register loaded by tcgen05.ld is used before tcgen05.wait::ld (warning)."""

        def text() -> str:
            return (
                f"{self._warp(agent).name} uses a register ({self._describe(line)}) of a tcgen05.ld "
                f"({self._describe(load_line)}) before tcgen05.wait::ld"
            )

        self.report("warning", "tensor-load-registers-used-early", text, (load_line, line))
