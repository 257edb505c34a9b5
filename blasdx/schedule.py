"""In which order tiles are visited, and into how many parts K is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

BAND = 16
"""Tiles of a band: what is at work at one time shares as few rows of A and columns of B, which then stay in L2."""

MAX_BAND = 64
"""The most tiles of a band: times as many tiles as 2^32 rows have at most, 2^26, it is a number of 32 bits."""

MAX_PARTS = 64
"""The most parts of K: each leaves a whole accumulator in memory."""

_ALIGNMENT = 256


class Raster(BaseModel):
    """Bands of ``band`` tiles along M or N, 1 to 64; inside a band, tiles along it first.

    One tile a band is row by row or column by column.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    along: Literal["m", "n"] = "m"
    band: int = Field(default=BAND, ge=1, le=MAX_BAND)

    def __str__(self) -> str:
        return f"bands of {self.band} tiles along {self.along.upper()}"


@dataclass(frozen=True)
class Parts:
    """``count`` parts of K of ``blocks`` K blocks each, the last one perhaps of fewer."""

    count: int
    blocks: int


WHOLE = Parts(1, 0)
"""K in one piece, where it does not matter how many K blocks that is."""


def parts_of(k_blocks: int, tiles: int, *, most: int, processors: int) -> Parts:
    """Cut K for as many CTAs as would have nothing to do otherwise, and never into empty parts."""
    count = max(min(most, k_blocks, processors // max(tiles, 1)), 1)
    blocks = -(-k_blocks // count)
    return Parts(-(-k_blocks // blocks) if blocks else 1, blocks)


@dataclass(frozen=True)
class Workspace:
    """What the parts of a launch leave in memory: counters, one a warpgroup's rows of a tile, and behind them sums."""

    counters: int
    partials: int

    @classmethod
    def of(cls, tiles: int, parts: int, *, counters: int, elements: int) -> Workspace:
        """In bytes, for tiles of ``elements`` 32-bit sums."""
        return cls(-(-4 * tiles * counters // _ALIGNMENT) * _ALIGNMENT, 4 * tiles * parts * elements)

    @property
    def bytes(self) -> int:
        """Of both."""
        return self.counters + self.partials
