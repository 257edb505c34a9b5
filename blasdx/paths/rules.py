"""The shape of a rule and of its answer: `Gate`, `Verdict`, `Finding`, `PathReport`.

A gate is one condition that a descriptor meets or misses on the way to a path. Gates are data: each names itself, its
rule, the reason and the source, and carries descriptors that meet and miss it; ``docs/gates.md`` is made from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict

from blasdx.descriptor import Descriptor
from blasdx.operators import SM, Arrangement, BlockDim, Operator, Precision, Size
from blasdx.paths.operand import OperandSpec

PathName = Literal["utcmma", "wgmma", "supermma", "fma", "unsupported"]
PATHS: tuple[PathName, ...] = ("utcmma", "wgmma", "supermma", "fma", "unsupported")
"""From the fastest instruction class to none."""

Guarded = Literal["precision", "type", "sm"]
GUARDED: tuple[Guarded, ...] = ("precision", "type", "sm")
"""What a fix changes only when it is allowed to: what is computed, and for which machine."""


@dataclass(frozen=True)
class Query:
    """What is judged: a descriptor, and the operands where they are given."""

    descriptor: Descriptor
    a: OperandSpec | None = None
    b: OperandSpec | None = None


@dataclass(frozen=True)
class Verdict:
    """A gate's answer to a query.

    Attributes
    ----------
    met : bool
    got, need : str
        What the descriptor has, as the user wrote it, and what the gate asks for.
    why : str
        The reason, with the arithmetic and its units; the gate's own when empty.
    fixes : tuple of Operator
        Operators each of which, put into the descriptor, meets this gate; nearest first.
    instead : str
        What else would meet it, where it is no operator.
    remark : str
        What else to know, met or missed.
    guarded : tuple of str
        Empty when operators that a fix may always change can meet the gate, otherwise the guarded ones that can.
    """

    met: bool
    got: str
    need: str
    why: str = ""
    fixes: tuple[Operator, ...] = ()
    instead: str = ""
    remark: str = ""
    guarded: tuple[Guarded, ...] = ()


def _always(query: Query) -> bool:
    return True


@dataclass(frozen=True)
class Gate:
    """One rule.

    Attributes
    ----------
    id : str
        Stable, kebab-case.
    title, rule, why, source : str
        For the documentation: what it is about, what it asks, the reason, and where the fact is from.
    judge : callable
        Query to Verdict. Never raises, whatever the query lacks.
    applies : callable
        Query to bool; a gate that does not apply is not listed.
    advisory : bool
        Its miss does not change the path, only what to expect.
    passing, failing : tuple of Query
        Examples; each failing one misses the gate.
    """

    id: str
    title: str
    rule: str
    why: str
    source: str
    judge: Callable[[Query], Verdict]
    applies: Callable[[Query], bool] = _always
    advisory: bool = False
    passing: tuple[Query, ...] = field(default=(), repr=False)
    failing: tuple[Query, ...] = field(default=(), repr=False)


class Finding(BaseModel):
    """One gate's answer inside a report.

    Attributes
    ----------
    path, gate : str
        Where the gate stands ("any" for a rule that no path is without), and its id.
    met : bool
    got, need, why : str
        What the descriptor has, what is asked for, and the reason, arithmetic included.
    fixes : tuple of str
        Operators to paste, each of which meets the gate; nearest first.
    hint : str
        What to do about a miss: the fixes, and what else would help. Of a gate that is met, what else to know.
    guarded : tuple of str
        Empty when operators that a fix may always change can meet the gate, otherwise the guarded ones that can.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    gate: str
    met: bool
    got: str
    need: str
    why: str
    fixes: tuple[str, ...] = ()
    hint: str = ""
    guarded: tuple[Guarded, ...] = ()


@dataclass(frozen=True)
class Path:
    """An instruction class that has gates of its own, and the neighbourhood in which a fix is looked for.

    Attributes
    ----------
    name : str
    instruction : str
        What the trade calls it.
    gates : tuple of Gate
    targets, precisions, block_dims : tuple
        Every SM, Precision and BlockDim that passes.
    arrangement : callable
        Descriptor to the arrangement nearest to its own that passes.
    sizes : callable
        Descriptor to the sizes, around its own, among which the nearest that passes is.
    """

    name: PathName
    instruction: str
    gates: tuple[Gate, ...]
    targets: tuple[SM, ...]
    precisions: tuple[Precision, ...]
    block_dims: tuple[BlockDim, ...]
    arrangement: Callable[[Descriptor], Arrangement]
    sizes: Callable[[Descriptor], tuple[Size, ...]]
