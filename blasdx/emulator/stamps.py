"""Stamps on the bytes of a buffer in global memory: who wrote them last, and the last two who read them."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COARSEST = 16  # bytes with one stamp, until somebody touches fewer
_LOGGED = 1 << 16  # reads that are put off until somebody writes to the buffer


class Lanes(NamedTuple):
    """Aligned places of `width` bytes each, in bytes from the start of the buffer."""

    offsets: NDArray[np.int64]
    width: int

    @property
    def unit(self) -> int:
        """The largest unit that the places are made of."""
        return self.width

    def of(self, stamps: NDArray[np.int32], unit: int) -> NDArray[np.int32]:
        """The stamps of these bytes."""
        found: NDArray[np.int32] = stamps.reshape(-1, self.width // unit)[self.offsets // self.width]
        return found

    def put(self, stamps: NDArray[np.int32], unit: int, value: Any) -> None:
        """Stamp these bytes."""
        stamps.reshape(-1, self.width // unit)[self.offsets // self.width] = value


class Piece(NamedTuple):
    """A strided piece, as copies take it; all in bytes, the last stride is 1."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def unit(self) -> int:
        """The largest unit that the piece is made of."""
        return gcd(self.start, self.shape[-1], *self.strides[:-1])

    def _view(self, stamps: NDArray[np.int32], unit: int) -> NDArray[np.int32]:
        shape = (*self.shape[:-1], self.shape[-1] // unit)
        strides = (*(4 * stride // unit for stride in self.strides[:-1]), 4)
        return as_strided(stamps[self.start // unit :], shape, strides)

    def of(self, stamps: NDArray[np.int32], unit: int) -> NDArray[np.int32]:
        """The stamps of these bytes."""
        return self._view(stamps, unit).copy()

    def put(self, stamps: NDArray[np.int32], unit: int, value: Any) -> None:
        """Stamp these bytes."""
        self._view(stamps, unit)[...] = value


class Stamp(NamedTuple):
    """What a stamp says."""

    cluster: int
    epoch: int
    line: int
    warp: str


class Book:
    """The stamps of a launch, by number; 0 is nobody's.

    Attributes
    ----------
    clusters : NDArray[np.int32]
        Of each stamp; -1 for nobody.
    """

    def __init__(self) -> None:
        self._stamps = [Stamp(-1, 0, 0, "")]
        self._numbers: dict[tuple[int, int, int], int] = {}
        self.clusters = np.full(1024, -1, np.int32)

    def __getitem__(self, number: int) -> Stamp:
        return self._stamps[number]

    def number(self, cluster: int, epoch: int, line: int, warp: str) -> int:
        """The stamp for an access, the same for the next one like it."""
        key = (cluster, epoch, line)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._stamps)
            self._stamps.append(Stamp(cluster, epoch, line, warp))
            if found == len(self.clusters):
                self.clusters = np.concatenate([self.clusters, np.full(found, -1, np.int32)])
            self.clusters[found] = cluster
        return found


class Stamps:
    """Who touched one buffer of `size` bytes.

    Attributes
    ----------
    writers : set[int]
        Clusters that have written.
    """

    def __init__(self, size: int, book: Book) -> None:
        self._size = size
        self._book = book
        self._unit = _COARSEST
        self._written: NDArray[np.int32] | None = None
        self._read: list[NDArray[np.int32]] = []  # the last reader, and the one before
        self._log: list[tuple[Lanes | Piece, int]] = []
        self.writers: set[int] = set()

    def _refine(self, place: Lanes | Piece) -> int:
        unit = gcd(self._unit, place.unit)
        if unit != self._unit:
            ratio = self._unit // unit
            self._read = [stamps.repeat(ratio) for stamps in self._read]
            if self._written is not None:
                self._written = self._written.repeat(ratio)
            self._unit = unit
        return unit

    def _fresh(self) -> NDArray[np.int32]:
        return np.zeros(self._size // self._unit, np.int32)

    def written(self, place: Lanes | Piece) -> NDArray[np.int32] | None:
        """Stamps of who wrote there; None when nobody wrote to the buffer."""
        unit = self._refine(place)
        return None if self._written is None else place.of(self._written, unit)

    def readers(self, place: Lanes | Piece) -> list[NDArray[np.int32]]:
        """Stamps of who read there."""
        self._unlog()
        unit = self._refine(place)
        return [place.of(stamps, unit) for stamps in self._read]

    def write(self, place: Lanes | Piece, stamp: int) -> None:
        """Remember the writer."""
        unit = self._refine(place)
        if self._written is None:
            self._written = self._fresh()
        place.put(self._written, unit, stamp)

    def read(self, place: Lanes | Piece, stamp: int) -> None:
        """Remember the reader: at once, or when it begins to matter."""
        self._log.append((place, stamp))
        if self._written is not None or len(self._log) > _LOGGED:
            self._unlog()

    def _unlog(self) -> None:
        """Of two readers the older one goes, unless both later ones are of one cluster."""
        log, self._log = self._log, []
        clusters = self._book.clusters
        for place, stamp in log:
            unit = self._refine(place)
            if not self._read:
                self._read = [self._fresh(), self._fresh()]
            latest, before = self._read
            old = place.of(latest, unit)
            moved = (old != 0) & (clusters[old] != clusters[stamp])
            if moved.any():
                place.put(before, unit, np.where(moved, old, place.of(before, unit)))
            place.put(latest, unit, stamp)
