"""What `check` answers."""

from __future__ import annotations

from collections.abc import Set

from pydantic import BaseModel, ConfigDict

from blasdx.descriptor import Descriptor
from blasdx.paths import text
from blasdx.paths.nearest import nearest
from blasdx.paths.operand import OperandSpec
from blasdx.paths.rules import GUARDED, PATHS, Finding, Guarded, Path, PathName, Query
from blasdx.paths.utcmma.gates import PATH as UTCMMA
from blasdx.paths.wgmma.gates import PATH as WGMMA

_FIXABLE: dict[str, Path] = {path.name: path for path in (UTCMMA, WGMMA)}


class PathReport(BaseModel):
    """The path that a descriptor lands on, and every gate of every path.

    Prints as a table: the path, then the gates of each path down to it, met or missed.

    Attributes
    ----------
    path : str
        "utcmma", "wgmma", "supermma", "fma" or "unsupported": what cuBLASDx 0.8 does with this descriptor.
    descriptor : Descriptor
    a, b : OperandSpec or None
        The operands that were looked at.
    gates : tuple of Finding
        Every gate that applies, by path from the fastest down; the rules of every path come first, as path "any".
    notes : tuple of Finding
        Advice that does not change the path: the 2-CTA atom and its silent downgrade, operators taken for granted.
    gaps : tuple of str
        Why no kernel exists here so far for this descriptor on this path; empty when one does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: PathName
    descriptor: Descriptor
    a: OperandSpec | None = None
    b: OperandSpec | None = None
    gates: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def supported(self) -> bool:
        """Whether a kernel for this path and these types exists here. Whether it fits is the plan's answer."""
        return not self.gaps

    def gates_of(self, path: str) -> tuple[Finding, ...]:
        """The findings of one path ("any" for the rules of every path)."""
        return tuple(finding for finding in self.gates if finding.path == path)

    def misses(self, path: str) -> tuple[Finding, ...]:
        """Everything that stands between the descriptor and a path: missed rules of every path, then its own gates.

        Empty for the path it lands on.
        """
        _known(path)
        if path == "unsupported":
            return ()
        return tuple(finding for finding in self.gates if not finding.met and finding.path in ("any", path))

    def fixed(self, path: str = "utcmma", allow: Set[Guarded] = frozenset()) -> Descriptor | None:
        """One nearest descriptor that lands on a path, everything changed together, and checked again.

        Nearest means, first things first: the fewest changes among Precision, SM and Type, then the smallest (element
        types that differ, bits by which they differ, distance of the SM numbers); then the tile with the smallest
        product over M, N and K of larger / smaller extent, of equals the largest. What has one nearest answer (pipeline
        operators, an alignment of at least 16, the next BlockDim, K-major operands for types that need them, leading
        dimensions no shorter than the tile) is set. Without a Size, the card's tile of 128 x 256 with 128 bytes of K is
        the start.

        Parameters
        ----------
        path : str
            "utcmma" or "wgmma".
        allow : set of str
            Which of "precision", "type" and "sm" may change.

        Returns
        -------
        Descriptor or None
            None exactly when a gate is missed that only operators not in `allow` can meet (with operands: or when the
            path has no types like theirs). The descriptor itself when it lands there as it is.
        """
        _known(path)
        unknown = set(allow) - set(GUARDED)
        if unknown:
            raise ValueError(f"allow takes {', '.join(GUARDED)}, not {', '.join(sorted(map(repr, unknown)))}")
        if path == self.path:
            return self.descriptor
        if path not in _FIXABLE:
            raise ValueError(f"fixed() climbs to {' or '.join(_FIXABLE)}, not to {path}")
        return nearest(Query(self.descriptor, self.a, self.b), _FIXABLE[path], frozenset(allow))

    def __str__(self) -> str:
        return text.report(self)


def _known(path: str) -> None:
    if path not in PATHS:
        raise ValueError(f"there is no path {path!r}; paths are {', '.join(PATHS)}")
