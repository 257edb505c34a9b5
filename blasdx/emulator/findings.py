"""Hazards, and a list of them in which each occurs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Hazard:
    """One finding.

    Attributes
    ----------
    severity : "error" or "warning"
        "error": can change a result or hang. "warning": a broken contract that known production kernels break too.
    kind : str
        Stable kebab-case id, for example ``"shared-read-before-load-complete"``.
    message : str
        CTA, warp or role, barrier, PTX lines (CUDA source lines where known), and what was expected.
    lines : tuple[int, ...]
        PTX lines involved.
    count : int
        How often the same kind occurred on the same lines.
    """

    severity: Severity
    kind: str
    message: str
    lines: tuple[int, ...]
    count: int = 1

    def renamed(self, names: Callable[[str], str]) -> Hazard:
        """The same with names put into the message."""
        return replace(self, message=names(self.message))

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.severity}: {self.kind}: {self.message}{times}"


class Findings:
    """Hazards found so far; the same kind on the same lines is one hazard with a count."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, tuple[int, ...]], Hazard] = {}
        self._counts: Counter[tuple[str, tuple[int, ...]]] = Counter()

    def report(self, severity: Severity, kind: str, message: str | Callable[[], str], lines: tuple[int, ...]) -> None:
        """Add a finding, or count it when the same kind was found on the same lines before.

        A `message` that takes time to write is given as a function.
        """
        key = (kind, lines)
        self._counts[key] += 1
        if key not in self._found:
            text = message if isinstance(message, str) else message()
            self._found[key] = Hazard(severity, kind, text, lines)

    def hazards(self) -> tuple[Hazard, ...]:
        """Everything found so far, errors first, each (kind, lines) once with its count."""
        counted = [replace(hazard, count=self._counts[key]) for key, hazard in self._found.items()]
        return tuple(sorted(counted, key=lambda h: (h.severity, h.kind, h.lines)))
