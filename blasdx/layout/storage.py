"""Sizes of what lies in shared memory one behind the other."""

from __future__ import annotations


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is at least ``value``."""
    return -(-value // multiple) * multiple


def shared_storage(*parts: tuple[int, int]) -> int:
    """Bytes of the given ``(alignment, bytes)`` parts in order: round the total up to the alignment, then add.

    This is cuBLASDx's shared-storage calculator.

    >>> shared_storage((16, 16), (4, 4), (10, 10))
    30
    """
    total = 0
    for alignment, size in parts:
        total = round_up(total, alignment) + size
    return total
