"""mbarrier objects (PTX ISA 9.7.13.15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blasdx.emulator.errors import EmulationError

if TYPE_CHECKING:
    from blasdx.emulator.warp import Path

COUNT_LIMIT = (1 << 20) - 1
TX_LIMIT = (1 << 20) - 1


class Barrier:
    """One mbarrier.

    Attributes
    ----------
    expected, pending : int
        Arrivals per phase, and still missing ones.
    tx : int
        Pending bytes; negative when more completed than were expected so far.
    phase : int
        Number of completed phases.
    """

    def __init__(self, cta: int, offset: int, count: int, line: int) -> None:
        if not 1 <= count <= COUNT_LIMIT:
            raise EmulationError(f"mbarrier.init with count {count}, legal are 1 to {COUNT_LIMIT}", line=line)
        self.cta = cta
        self.offset = offset
        self.expected = count
        self.pending = count
        self.tx = 0
        self.phase = 0
        self.since = 0  # when the phase began, in executed warp-instructions
        self.line = line
        self.waiters: list[Path] = []

    @property
    def key(self) -> tuple[str, int, int, int]:
        """The phase being filled, as a key for the hazard monitor."""
        return ("mbarrier", self.cta, self.offset, self.phase)

    @property
    def state(self) -> int:
        """The token that an arrival returns: completed phases, and above them the arrivals pending before it."""
        return self.phase | self.pending << 32

    def done(self, parity: int) -> bool:
        """Whether the phase with this parity has completed."""
        return self.phase & 1 != parity

    def arrive(self, count: int) -> bool:
        """Take arrivals off the pending count; True when the phase completed."""
        if count > self.pending:
            raise EmulationError(
                f"{count} arrival(s) on the mbarrier at {self.offset:#x} of CTA {self.cta}, but phase {self.phase} "
                f"expects only {self.pending} more of {self.expected} (initialised at PTX line {self.line})"
            )
        self.pending -= count
        return self.step()

    def transfer(self, count: int) -> bool:
        """Add expected (positive) or completed (negative) bytes; True when the phase completed."""
        self.tx += count
        self.transfer_check()
        return self.step()

    def transfer_check(self) -> None:
        """Refuse pending bytes beyond what an mbarrier can count."""
        if abs(self.tx) > TX_LIMIT:
            raise EmulationError(
                f"pending bytes of the mbarrier at {self.offset:#x} of CTA {self.cta} are {self.tx}, "
                f"outside +-{TX_LIMIT}"
            )

    def step(self) -> bool:
        """Complete the phase if nothing is missing any more."""
        if self.pending or self.tx:
            return False
        self.phase += 1
        self.pending = self.expected
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing has happened in the phase yet."""
        return self.pending == self.expected and not self.tx

    @property
    def missing(self) -> str:
        """What the phase still lacks."""
        arrivals = f"{self.pending} of {self.expected} arrivals"
        return f"{arrivals} and {self.tx} bytes" if self.tx else arrivals

    def __str__(self) -> str:
        return f"mbarrier {self.offset:#x} of CTA {self.cta}: phase {self.phase} lacks {self.missing}"
