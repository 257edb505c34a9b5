"""Covering arrays: points that together hold every combination of values of any few choices."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

CANDIDATES = 12
"""Points that are drawn for each one that is taken."""

Point = dict[str, Any]
_Combination = frozenset[tuple[str, int]]


def covering(choices: Mapping[str, Sequence[Any]], *, strength: int, seed: int, minimum: int = 0) -> list[Point]:
    """Draw points until every combination of values of any ``strength`` choices has occurred, and at least ``minimum``.

    Greedy and random, the same points for the same seed: each candidate is built around a combination that is still
    missing, and the one with the most missing combinations is taken.
    """
    rng = random.Random(seed)
    order = _all(choices, strength)
    missing = set(order)
    rng.shuffle(order)
    points: list[Point] = []
    while missing or len(points) < minimum:
        while order and order[-1] not in missing:
            order.pop()
        drawn = [{name: rng.randrange(len(values)) for name, values in choices.items()} for _ in range(CANDIDATES)]
        if order:
            for candidate in drawn:
                candidate.update(order[-1])
        held = [set(_combinations(candidate, strength)) for candidate in drawn]
        best = max(range(len(drawn)), key=lambda i: len(held[i] & missing))
        missing -= held[best]
        points.append({name: choices[name][index] for name, index in drawn[best].items()})
    return points


def _all(choices: Mapping[str, Sequence[Any]], strength: int) -> list[_Combination]:
    return [
        frozenset(zip(names, indices, strict=True))
        for names in itertools.combinations(choices, strength)
        for indices in itertools.product(*(range(len(choices[name])) for name in names))
    ]


def _combinations(point: Mapping[str, int], strength: int) -> Iterator[_Combination]:
    return map(frozenset, itertools.combinations(point.items(), strength))
