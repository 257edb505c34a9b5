"""Which accesses to one CTA's shared or tensor memory can still conflict with a later one.

A record loses the bits that a later access, ordered after it, covers: whatever is not ordered after the old access is
not ordered after the new one either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from blasdx.emulator.ordering import WRITER_FENCE, Clock, Operation, Warp

Side = Literal["generic reads", "generic writes", "async reads", "async writes"]

# What a new access is compared with. Generic accesses are not compared with each other.
CONFLICTS: dict[Side, tuple[Side, ...]] = {
    "generic reads": ("async writes",),
    "generic writes": ("async writes", "async reads"),
    "async reads": ("generic writes", "async writes"),
    "async writes": ("generic writes", "async writes", "async reads", "generic reads"),
}
_PRUNE_FIRST = 64


class Record:
    """One access, or several of one agent between which no observer can tell.

    Attributes
    ----------
    agent : Warp | Operation
        Who (the first of them).
    component, epoch : int
        The access is over for a clock that has this component at this epoch.
    issued : int
        Epoch of the warp when it made the access or issued the operation.
    """

    __slots__ = ("agent", "atomic", "component", "epoch", "issued", "line", "mask")

    def __init__(self, agent: Warp | Operation, write: bool, mask: int, line: int, atomic: bool) -> None:
        self.agent = agent
        self.mask = mask
        self.line = line
        self.atomic = atomic
        if isinstance(agent, Warp):
            self.component, self.epoch = agent.component, agent.epoch
            self.issued = self.epoch
        else:
            self.component, self.epoch = agent.component if write else agent.reads, agent.epoch
            self.issued = agent.issued

    @property
    def warp(self) -> Warp:
        """The warp that made the access or issued the operation."""
        return self.agent if isinstance(self.agent, Warp) else self.agent.warp

    @property
    def engine(self) -> str:
        """What carried it out; "" for a warp."""
        return "" if isinstance(self.agent, Warp) else self.agent.engine

    def ordered(self, clock: Clock) -> bool:
        """Whether the access is over for somebody with this clock."""
        return clock.get(self.component, 0) >= self.epoch


class Memory:
    """Records of one memory of one CTA, on four sides."""

    def __init__(self, dropped: Callable[[Record], None]) -> None:
        self.sides: dict[Side, list[Record]] = {side: [] for side in CONFLICTS}
        # Bits that any record of a side may have: a superset.
        self.unions: dict[Side, int] = dict.fromkeys(CONFLICTS, 0)
        self.written = 0  # bits that anybody wrote
        self._latest: dict[tuple[Side, int], Record] = {}
        self._limits: dict[Side, int] = dict.fromkeys(CONFLICTS, _PRUNE_FIRST)
        self._dropped = dropped

    def add(self, side: Side, record: Record) -> None:
        """Add a record, or merge it into the agent's latest when nothing was published between the two."""
        self.unions[side] |= record.mask
        key = (side, record.component)
        latest = self._latest.get(key)
        if (
            latest is not None
            and latest.mask
            and latest.epoch == record.epoch
            and latest.issued == record.issued
            and latest.atomic == record.atomic
        ):
            latest.mask |= record.mask
            return
        self._latest[key] = record
        self.sides[side].append(record)
        if isinstance(record.agent, Operation):
            record.agent.records += 1

    def hand_over(self, record: Record, warp: Warp) -> None:
        """A cp.async that its own warp has waited for is from now on like a store of that warp."""
        if not record.mask:
            return
        plain = Record(warp, True, record.mask, record.line, record.atomic)
        record.mask = 0
        self.add("generic writes", plain)

    def supersede(self, side: Side, new: Record, clock: Clock) -> None:
        """Drop what `new`, an access by an agent with `clock`, takes the place of.

        Sides that `new` was compared with lose their bits in any case: what is not ordered has been reported.
        """
        mask, own = new.mask, new.component
        if side == "async writes":
            for other in CONFLICTS[side]:
                self._remove(other, mask, None)
        elif side == "generic writes":
            self._remove("async writes", mask, None)
            self._remove("async reads", mask, None)
            self._remove("generic reads", mask, lambda old: old.component == own or old.ordered(clock))
            # Granules are coarser than stores: another warp's unfenced bytes may still be there beside these.
            self._remove(
                "generic writes",
                mask,
                lambda old: old.component == own or clock.get(old.component + WRITER_FENCE, 0) >= old.epoch,
            )
        elif side == "async reads":
            self._remove(side, mask, lambda old: old.component == own or old.ordered(clock))
        else:
            self._remove(side, mask, lambda old: old.component == own)

    def _remove(self, side: Side, mask: int, condition: Callable[[Record], bool] | None) -> None:
        if not mask & self.unions[side]:
            return
        emptied = False
        for record in self.sides[side]:
            if record.mask & mask and (condition is None or condition(record)):
                record.mask &= ~mask
                emptied |= not record.mask
        if emptied:
            self._keep(side, lambda record: bool(record.mask))

    def prune(self, side: Side, observers: Iterable[Warp]) -> None:
        """Drop records that all `observers` know to be over, once there are many."""
        if len(self.sides[side]) <= self._limits[side]:
            return
        clocks = [warp.clock for warp in observers]
        # A generic write matters to later asynchronous reads until its writer's fence is known as well.
        fence = WRITER_FENCE if side == "generic writes" else 0
        self._keep(
            side,
            lambda old: any(clock.get(old.component + fence, 0) < old.epoch for clock in clocks) and bool(old.mask),
        )
        self._limits[side] = max(_PRUNE_FIRST, 2 * len(self.sides[side]))

    def _keep(self, side: Side, wanted: Callable[[Record], bool]) -> None:
        kept: list[Record] = []
        union = 0
        for record in self.sides[side]:
            if wanted(record):
                kept.append(record)
                union |= record.mask
            else:
                key = (side, record.component)
                if self._latest.get(key) is record:
                    del self._latest[key]
                self._dropped(record)
        self.sides[side] = kept
        self.unions[side] = union
