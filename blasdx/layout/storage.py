"""Sizes of what lies in shared memory one behind the other."""

from __future__ import annotations

from math import prod


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is at least ``value``."""
    return -(-value // multiple) * multiple


def shared_storage(*parts: tuple[int, int] | tuple[int, int, int]) -> int:
    """Bytes of shared memory that parts take one behind the other.

    Each part begins at the next multiple of its alignment. This is cuBLASDx's shared-storage calculator; kernels on a
    rendered pipeline have the same as ``make_shared_storage_calculator()``.

    Parameters
    ----------
    *parts
        ``(alignment, bytes)`` or ``(alignment, bytes of an element, elements)``, in order.

    Raises
    ------
    ValueError
        For an alignment below one, or a size below zero.

    Examples
    --------
    >>> shared_storage((16, 4, 10), (16, 4, 10), (16, 4, 10))
    136
    >>> shared_storage((128, 196_708), (16, 4, 128))  # a pipeline's buffer, and 128 floats
    197232
    """
    total = 0
    for number, (alignment, *sizes) in enumerate(parts, 1):
        if alignment < 1 or min(sizes) < 0:
            raise ValueError(f"part {number} is {(alignment, *sizes)}: an alignment is at least 1, a size at least 0")
        total = round_up(total, alignment) + prod(sizes)
    return total
