"""The search behind ``report.fixed``: one joint nearest descriptor that lands on a path."""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import product
from typing import Any

from blasdx.descriptor import Descriptor
from blasdx.operators import (
    SM,
    Alignment,
    BlockDim,
    EnableInputStreaming,
    LeadingDimension,
    Precision,
    Size,
    Type,
    WithPipeline,
)
from blasdx.paths import legality
from blasdx.paths.common import distance, ratio, reference_size
from blasdx.paths.rules import Gate, Guarded, Path, Query, Verdict


def judged(gates: tuple[Gate, ...], query: Query) -> list[tuple[Gate, Verdict]]:
    """Every gate that applies, with its verdict."""
    return [(gate, gate.judge(query)) for gate in gates if gate.applies(query)]


def missed(path: Path, query: Query) -> list[Verdict]:
    """What stands between a query and a path."""
    verdicts = judged(legality.GATES + path.gates, query)
    return [verdict for gate, verdict in verdicts if not verdict.met and not gate.advisory]


def nearest(query: Query, path: Path, allow: Set[Guarded]) -> Descriptor | None:
    """The nearest descriptor that lands on a path; the metric is that of `PathReport.fixed`."""
    misses = missed(path, query)
    if not misses:
        return query.descriptor
    if any(verdict.guarded and not allow & set(verdict.guarded) for verdict in misses):
        return None
    for identity in _identities(query.descriptor, path, allow):
        staged = _staged(identity)
        if any(verdict.guarded for verdict in missed(path, Query(staged, query.a, query.b))):
            continue
        for candidate in _shapes(staged, path):
            if not missed(path, Query(candidate, query.a, query.b)):
                return candidate
    return None


def _identities(descriptor: Descriptor, path: Path, allow: Set[Guarded]) -> list[Descriptor]:
    """What is computed and for which machine: every allowed choice, fewest and smallest changes first."""
    precision, sm, kind = descriptor.precision, descriptor.get(SM), descriptor.type
    choices = product(
        (precision, *path.precisions) if "precision" in allow else (precision,),
        (sm, *path.targets) if "sm" in allow else (sm,),
        (Type(kind), Type("real")) if "type" in allow else (Type(kind),),
    )

    def cost(choice: tuple[Precision, SM | None, Type]) -> tuple[Any, ...]:
        new_precision, new_sm, new_type = choice
        changes = (new_precision != precision) + (new_sm != sm) + (new_type.kind != kind)
        far = abs(new_sm.arch - sm.arch) if sm and new_sm else 0
        return (changes, distance(precision, new_precision), far)

    return [_with_identity(descriptor, *choice) for choice in sorted(choices, key=cost)]


def _with_identity(descriptor: Descriptor, precision: Precision, sm: SM | None, kind: Type) -> Descriptor:
    """Set only what differs from the descriptor, defaults included."""
    changed: list[Any] = []
    if precision != descriptor.precision:
        changed.append(precision)
    if sm != descriptor.get(SM):
        changed.append(sm)
    if kind.kind != descriptor.type:
        changed.append(kind)
    return descriptor.with_(*changed)


def _staged(descriptor: Descriptor) -> Descriptor:
    """Everything for which there is one choice only."""
    changed: list[Any] = [op for op in (WithPipeline(), EnableInputStreaming()) if type(op) not in descriptor]
    raised = Alignment(*(max(value, 16) for _, value in descriptor.alignment))
    if raised != descriptor.alignment:
        changed.append(raised)
    if descriptor.get(Size) is None:
        changed.append(reference_size(descriptor))
    return descriptor.with_(*changed)


def _shapes(descriptor: Descriptor, path: Path) -> Iterator[Descriptor]:
    """Majorness and threads, for which there is one nearest choice, then the tile: nearest first."""
    order = path.arrangement(descriptor)
    if order != descriptor.arrangement:
        descriptor = descriptor.with_(order)
    old_block = descriptor.get(BlockDim)
    if old_block not in path.block_dims:
        threads = old_block.threads if old_block else 1
        descriptor = descriptor.with_(min(path.block_dims, key=lambda block: ratio(threads, block.threads)))
    old = descriptor.size
    for size in sorted((old, *path.sizes(descriptor)), key=lambda size: _size_cost(old, size)):
        yield _roomy(descriptor if size == old else descriptor.with_(size))


def _size_cost(old: Size, new: Size) -> tuple[Any, ...]:
    factor = ratio(old.m, new.m) * ratio(old.n, new.n) * ratio(old.k, new.k)
    return (factor, -new.m * new.n * new.k, new.m, new.n, new.k)


def _roomy(descriptor: Descriptor) -> Descriptor:
    """Widen leading dimensions that the tile has outgrown."""
    given = descriptor.get(LeadingDimension)
    if given is None:
        return descriptor
    tight = dict(descriptor.tight_leading_dimension)
    wide = LeadingDimension(*(max(value, tight[name]) for name, value in given))
    return descriptor if wide == given else descriptor.with_(wide)
