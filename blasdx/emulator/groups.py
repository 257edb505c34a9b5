"""Groups of asynchronous copies: commit_group and wait_group, per thread."""

from __future__ import annotations

from blasdx.emulator.asynchronous import Operation


class CopyGroups:
    """The copies one warp issued; membership is per lane.

    An item is (lane mask, operation, the operation's number for the hazard monitor).
    """

    def __init__(self) -> None:
        self.open: list[tuple[int, Operation, int]] = []
        self.groups: list[tuple[int, list[tuple[int, Operation, int]]]] = []

    def add(self, mask: int, operation: Operation, agent: int) -> None:
        """A copy that these lanes issued."""
        self.open.append((mask, operation, agent))

    def commit(self, mask: int) -> None:
        """Close the open copies of these lanes as one group, possibly an empty one."""
        members = [item for item in self.open if item[0] & mask]
        self.open = [item for item in self.open if not item[0] & mask]
        self.groups.append((mask, members))

    def needed(self, mask: int, newest: int) -> list[tuple[int, Operation, int]]:
        """The copies that must be over for these lanes when the `newest` last groups may still run."""
        rest = mask
        skipped: dict[int, int] = {}
        result: list[tuple[int, Operation, int]] = []
        for number in range(len(self.groups) - 1, -1, -1):
            lanes, members = self.groups[number]
            hit = lanes & rest
            if not hit:
                continue
            for lane in _each(hit):
                skipped[lane] = skipped.get(lane, 0) + 1
            if any(skipped[lane] > newest for lane in _each(hit)):
                result.extend(members)
        return result

    def forget(self, mask: int, newest: int) -> None:
        """Drop groups that were waited for by all their lanes."""
        if newest < len(self.groups) and all(lanes & ~mask == 0 for lanes, _ in self.groups):
            self.groups = self.groups[len(self.groups) - newest :] if newest else []

    def unfinished(self) -> list[Operation]:
        """Copies that are still under way."""
        return [o for _, o, _ in self.open if not o.done] + [o for _, g in self.groups for _, o, _ in g if not o.done]


def _each(mask: int) -> list[int]:
    # Threads of a converged warp have the same history; one lane speaks for all of them.
    return [mask.bit_length() - 1] if mask & (mask + 1) == 0 else [i for i in range(32) if mask >> i & 1]
