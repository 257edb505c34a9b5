"""Races in global memory between clusters of one launch: two write one byte, or one reads what another writes.

Clusters order each other as PTX has it (memory consistency model): a release, or a fence at gpu scope before a relaxed
update, publishes what was done before; whoever then reads or updates the same word knows it. On the reader's side no
fence is asked for: kernels in production leave it to the barrier behind. Accesses of one cluster are taken to be in
order, which its barriers see to, and atomic updates are not compared with anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from blasdx.emulator.boxes import windows
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import FULL, Value, lane_index, lane_value, lanes_of
from blasdx.emulator.stamps import Book, Lanes, Piece, Stamps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from blasdx.emulator.findings import Findings
    from blasdx.emulator.memory import Buffer, GlobalMemory
    from blasdx.emulator.tensormap import TensorMap
    from blasdx.emulator.warp import Path

_LOGGED = 1 << 15  # accesses that are looked at together

Clock = Mapping[int, int]  # cluster: epoch up to which its accesses are known; never changed once published


class GlobalRaces:
    """What is known of one launch.

    Parameters
    ----------
    memory : GlobalMemory
    findings : Findings
    describe : callable
        Turns a PTX line into text.
    """

    def __init__(self, memory: GlobalMemory, findings: Findings, describe: Callable[[int], str]) -> None:
        self._memory = memory
        self._findings = findings
        self._describe = describe
        self._book = Book()
        self._clocks: dict[int, dict[int, int]] = {}
        self._fenced: dict[int, Clock] = {}  # what each cluster knew at its last fence
        self._words: dict[int, Clock] = {}  # what is published with each word of memory
        self._stamps: dict[Buffer, Stamps] = {}
        # Accesses since somebody last learnt something: until then their order says nothing. By stamp, bytes a lane
        # and what they do: the addresses.
        self._log: dict[tuple[int, int, str], list[NDArray[np.uint64]]] = {}
        self._logged = 0

    # order

    def _clock(self, cluster: int) -> dict[int, int]:
        return self._clocks.setdefault(cluster, {cluster: 1})

    def fence(self, w: Path) -> None:
        """A fence at gpu or system scope: later updates publish what was done so far."""
        cluster = w.cta.cluster.number
        clock = self._clock(cluster)
        self._fenced[cluster] = clock.copy()
        clock[cluster] += 1

    def synchronise(self, w: Path, address: Value, mask: int, *, acquire: bool, release: bool, strong: bool) -> None:
        """An atomic update, or a load or store with a memory order; `strong`: it releases without a fence before it."""
        if release and strong:
            self.fence(w)
        cluster = w.cta.cluster.number
        given = self._fenced.get(cluster) if release else None
        if given is None and not self._words:
            return
        joined: dict[int, tuple[Clock | None, Clock]] = {}  # by identity, which the first of the pair keeps
        lanes = lanes_of(mask) if address.__class__ is np.ndarray else lanes_of(mask)[:1]
        for word in {int(lane_value(address, lane)) >> 2 for lane in lanes}:
            old = self._words.get(word)
            if id(old) not in joined:
                joined[id(old)] = (old, _join(given or {}, old or {}))
                if acquire and old is not None:
                    self._learn(cluster, old)
            if given is not None:
                self._words[word] = joined[id(old)][1]

    def _learn(self, cluster: int, clock: Clock) -> None:
        own = self._clock(cluster)
        if any(own.get(other, 0) < epoch for other, epoch in clock.items()):
            self.settle()
            own.update(_join(own, clock))

    # accesses

    def lanes(self, w: Path, address: Value, mask: int, width: int, line: int, does: str) -> None:
        """An access of `width` bytes in each lane, which `does` "read" or "write"; or "look" or "put" with an order.

        Those with a memory order are compared with ordinary ones, not with each other.
        """
        if address.__class__ is not np.ndarray:
            address = np.array([address], np.uint64)
        elif mask != FULL:
            address = address[lane_index(mask)]
        self._log.setdefault((self._stamp(w, line), width, does), []).append(address)
        self._logged += 1
        if self._logged > _LOGGED:
            self.settle()

    def piece(self, w: Path, address: int, count: int, line: int, *, write: bool) -> None:
        """`count` bytes in a row."""
        self._piece(w, address, (count,), (1,), line, write)

    def box(
        self, w: Path, tensor: TensorMap, coordinates: tuple[int, ...], gather: bool, line: int, *, write: bool
    ) -> None:
        """What a tensor copy takes of a tensor."""
        for part in windows(tensor, coordinates, gather):
            self._piece(w, part.address, part.shape, part.strides, line, write)

    def _piece(
        self, w: Path, address: int, shape: tuple[int, ...], strides: tuple[int, ...], line: int, write: bool
    ) -> None:
        buffer = self._memory.find(address)
        last = address + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if last < buffer.stop:  # otherwise the copy itself says so
            place = Piece(address - buffer.origin, shape, strides)
            self._access(buffer, place, self._stamp(w, line), "write" if write else "read")

    def _stamp(self, w: Path, line: int) -> int:
        cluster = w.cta.cluster.number
        return self._book.number(cluster, self._clock(cluster)[cluster], line, w.warp.name)

    def settle(self) -> None:
        """Compare what was put off."""
        log, self._log, self._logged = self._log, {}, 0
        for (stamp, width, does), parts in log.items():
            addresses = np.concatenate(parts)
            addresses = addresses[addresses % width == 0]
            while len(addresses):
                try:
                    buffer = self._memory.find(int(addresses[0]))
                except EmulationError:
                    break  # the access itself says so
                inside = (addresses >= buffer.start) & (addresses < buffer.stop)
                offsets = addresses[inside].astype(np.int64) - buffer.origin
                self._access(buffer, Lanes(offsets, width), stamp, does)
                addresses = addresses[~inside]

    def _access(self, buffer: Buffer, place: Lanes | Piece, stamp: int, does: str) -> None:
        stamps = self._stamps.get(buffer)
        if stamps is None:
            stamps = self._stamps[buffer] = Stamps(len(buffer.data), self._book)
        cluster = self._book[stamp].cluster
        if stamps.writers - {cluster}:
            self._compare(buffer, stamps.written(place), stamp, "write", does)
        if does == "read":
            stamps.read(place, stamp)
        elif does == "write":
            for old in stamps.readers(place):
                self._compare(buffer, old, stamp, "read", does)
            stamps.write(place, stamp)
            stamps.writers.add(cluster)

    def _compare(self, buffer: Buffer, old: NDArray[np.int32] | None, stamp: int, did: str, does: str) -> None:
        if old is None:
            return
        cluster, _, line, warp = self._book[stamp]
        others = old[(old != 0) & (self._book.clusters[old] != cluster)]
        if not len(others):
            return
        clock = self._clock(cluster)
        for number in np.unique(others).tolist():
            other, epoch, other_line, name = self._book[number]
            if clock.get(other, 0) < epoch:
                writes = does in ("write", "put")
                text = (
                    f"{warp} ({self._describe(line)}) {'writes' if writes else 'reads'} bytes of {buffer.name} that "
                    f"{name} ({self._describe(other_line)}) {did}s, and nothing orders the two; between them, an "
                    "atomic update behind a fence, or a flag with release and acquire, is needed"
                )
                kind = "global-overwritten-without-order" if writes else "global-read-without-order"
                self._findings.report("error", kind, text, (other_line, line))


def _join(one: Clock, other: Clock) -> dict[int, int]:
    joined = dict(one)
    for cluster, epoch in other.items():
        if joined.get(cluster, 0) < epoch:
            joined[cluster] = epoch
    return joined
