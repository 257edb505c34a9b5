"""What a launch did: counts, and a time line of waits and asynchronous operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TraceEvent:
    """One interval on one track.

    Attributes
    ----------
    name : str
        For example ``"mma"``, ``"tma-load"`` or ``"wait mbarrier 0x400"``.
    track : str
        ``"cta 0 warp 4"``, ``"cta 0 tma"`` or ``"cta 0 tensor core"``.
    start, stop : int
        In executed warp-instructions of the launch.
    line : int
        PTX line.
    """

    name: str
    track: str
    start: int
    stop: int
    line: int


@dataclass(frozen=True)
class Stats:
    """Counts of a launch.

    Attributes
    ----------
    instructions : int
        Executed warp-instructions.
    opcodes : mapping
        Executed warp-instructions by opcode (with all qualifiers).
    operations : mapping
        Asynchronous operations by kind (``"mma"``, ``"tma-load"``, ...).
    ctas : int
    seconds : float
        Wall time of the launch.
    """

    instructions: int = 0
    opcodes: Mapping[str, int] = field(default_factory=dict)
    operations: Mapping[str, int] = field(default_factory=dict)
    ctas: int = 0
    seconds: float = 0.0
