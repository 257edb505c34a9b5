"""What warps, mbarriers and parts of shared memory are called, for messages and time lines.

The machine speaks of warp numbers and addresses; whoever launched it may know better. Names are put into finished
texts, so that nothing inside the machine has to carry them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_WARP = re.compile(r"\bwarps? (\d+)(?:-(\d+))?\b")
_MBARRIER = re.compile(r"(?:\bthe )?\bmbarrier (?:at )?(0x[0-9a-f]+)")
_SHARED = re.compile(r"\bshared memory (0x[0-9a-f]+) to (0x[0-9a-f]+)")


@dataclass(frozen=True)
class Names:
    """Names of one kernel; addresses are those of shared memory, the same in every CTA.

    Attributes
    ----------
    warps : tuple[(int, str), ...]
        Warp of the CTA, and its role.
    mbarriers : tuple[(int, str), ...]
        Address, and for example ``"acc_full[1]"``.
    regions : tuple[(str, int, int), ...]
        Name, first address and bytes of parts of shared memory.
    """

    warps: tuple[tuple[int, str], ...] = ()
    mbarriers: tuple[tuple[int, str], ...] = ()
    regions: tuple[tuple[str, int, int], ...] = ()

    @classmethod
    def from_text(cls, names: Mapping[str, str]) -> Names:
        """Names from ``{"warp 4": "mma", "mbarrier 0x400": "full[0]"}``.

        Raises
        ------
        ValueError
            For a key that names neither.
        """
        warps: list[tuple[int, str]] = []
        mbarriers: list[tuple[int, str]] = []
        for key, name in names.items():
            if found := re.fullmatch(r"warp (\d+)", key):
                warps.append((int(found[1]), name))
            elif found := re.fullmatch(r"mbarrier (0x[0-9a-fA-F]+)", key):
                mbarriers.append((int(found[1], 16), name))
            else:
                raise ValueError(f"a name for {key!r}; 'warp 4' or 'mbarrier 0x400' is needed")
        return cls(tuple(warps), tuple(mbarriers))

    def roles(self, warps: Iterable[int]) -> str:
        """The roles of some warps, each once; "" when none has one."""
        wanted = set(warps)
        return ", ".join(dict.fromkeys(role for warp, role in self.warps if warp in wanted))

    def annotate(self, text: str) -> str:
        """The text with names behind warps and parts of memory, and in front of mbarriers."""
        if self.warps:
            text = _WARP.sub(self._warp, text)
        if self.mbarriers:
            text = _MBARRIER.sub(self._mbarrier, text)
        if self.regions:
            text = _SHARED.sub(self._region, text)
        return text

    def _warp(self, found: re.Match[str]) -> str:
        first = int(found[1])
        roles = self.roles(range(first, int(found[2] or first) + 1))
        return f"{found[0]} ({roles})" if roles else found[0]

    def _mbarrier(self, found: re.Match[str]) -> str:
        name = dict(self.mbarriers).get(int(found[1], 16))
        return f"{name} (mbarrier {found[1]})" if name else found[0]

    def _region(self, found: re.Match[str]) -> str:
        low, high = int(found[1], 16), int(found[2], 16)
        inside = [name for name, start, size in self.regions if start <= high and low < start + size]
        return f"{found[0]} ({', '.join(inside)})" if inside else found[0]


UNNAMED = Names()


def spans(numbers: Iterable[int]) -> str:
    """``"0-3, 5"`` for 0, 1, 2, 3, 5."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def warps(numbers: Iterable[int]) -> str:
    """``"warps 0-3, warp 5"`` for 0, 1, 2, 3, 5: each run of them can be named."""
    return ", ".join(f"warps {s}" if "-" in s else f"warp {s}" for s in spans(numbers).split(", ") if s)
