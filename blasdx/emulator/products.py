"""Products in tensor memory that are read in part.

Losing the rest is no race: every instruction is in order, and the results of some warps are just missing.
"""

from __future__ import annotations

from blasdx.emulator import wording


class Products:
    """What tcgen05.mma left in the tensor memory of one CTA and nobody has read since.

    Masks have one bit for each 16 lanes of a column: bit = lane // 16 * 512 + column. A product that nobody reads at
    all is no mistake, some programs start anew; one of whose columns some lanes are read and others are not, is.
    """

    def __init__(self) -> None:
        self._unread: dict[int, int] = {}  # PTX line of the tcgen05.mma: mask
        self._begun = 0  # columns that are read in some of their lanes, as a mask of all lanes

    def written(self, mask: int, line: int) -> None:
        """An mma writes, or adds to, these places."""
        self._forget(mask)
        self._begun &= ~wording.tensor_mask(wording.tensor_columns(mask))
        self._unread[line] = self._unread.get(line, 0) | mask

    def read(self, mask: int) -> None:
        """Some instruction reads these places."""
        self._begun |= wording.tensor_mask(wording.tensor_columns(self._forget(mask)))

    def lost(self, mask: int) -> tuple[int, int]:
        """Take these places out: what has not been read (0: nothing), and the line that multiplied last."""
        last = next((line for line, unread in reversed(self._unread.items()) if unread & mask & self._begun), 0)
        return self._forget(mask) & self._begun, last

    def _forget(self, mask: int) -> int:
        """Take places out, and return those that had not been read."""
        found = 0
        for unread in self._unread.values():
            found |= unread & mask
        if found:
            self._unread = {line: left for line, unread in self._unread.items() if (left := unread & ~mask)}
        return found


def place(mask: int) -> str:
    """Lanes and columns."""
    lanes = [16 * group for group in range(8) if mask >> 512 * group & ((1 << 512) - 1)]
    return f"{wording.place('tensor', mask)}, lanes {lanes[0]} to {lanes[-1] + 15}"
