"""The nodes of an epilogue's expression, and their text.

Nodes are frozen values. The text of a node is legal in the language again, and, with other leaves, in CUDA C++: the two
agree on operators and on how they bind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

ACCUMULATOR, SOURCE, ALPHA, BETA = "acc", "c", "alpha", "beta"
"""Names with a meaning of their own: the sum of products, the matrix C, and the two factors of BLAS."""


@dataclass(frozen=True)
class Number:
    """A literal."""

    value: float


@dataclass(frozen=True)
class Name:
    """``acc``, ``c`` or a scalar that is passed by value."""

    name: str


@dataclass(frozen=True)
class Element:
    """One element of an array in device memory.

    ``axes`` are ``("m",)`` and ``("n",)`` for vectors along the rows and columns of C, ``("m", "n")`` for a matrix, and
    empty for a single number, written ``name[0]``.
    """

    name: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Negative:
    """Unary minus."""

    operand: Node


@dataclass(frozen=True)
class Binary:
    """``+``, ``-``, ``*`` or ``/``."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Call:
    """A function or a cast."""

    function: str
    arguments: tuple[Node, ...]


Node = Number | Name | Element | Negative | Binary | Call

_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2}
_UNARY, _ATOM = 3, 4


def children(node: Node) -> tuple[Node, ...]:
    """The operands of a node, left to right."""
    if isinstance(node, Negative):
        return (node.operand,)
    if isinstance(node, Binary):
        return node.left, node.right
    return node.arguments if isinstance(node, Call) else ()


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, left to right."""
    yield node
    for child in children(node):
        yield from walk(child)


def count(node: Node, name: str) -> int:
    """How often a name occurs."""
    return sum(1 for one in walk(node) if isinstance(one, Name) and one.name == name)


def factors(node: Node) -> tuple[Node, ...]:
    """What a product multiplies, brackets and signs aside; a node that is none is its own only factor."""
    if isinstance(node, Negative):
        return factors(node.operand)
    if isinstance(node, Binary) and node.operator == "*":
        return (*factors(node.left), *factors(node.right))
    return (node,)


def scaled(node: Node, name: str, factor: str) -> bool:
    """Whether ``name`` occurs only in products that have ``factor`` as one of their factors."""
    if Name(factor) in factors(node):
        return True
    return node != Name(name) and all(scaled(child, name, factor) for child in children(node))


Leaf = Callable[[Number | Name | Element], str]


def text(node: Node, leaf: Leaf | None = None, call: Callable[[str, list[str]], str] | None = None) -> str:
    """An expression as text, with ``leaf`` and ``call`` saying how leaves and calls are spelled."""
    return _text(node, leaf or _leaf, call or _call)[0]


def _text(node: Node, leaf: Leaf, call: Callable[[str, list[str]], str]) -> tuple[str, int]:
    """The text and how tightly it binds."""
    if isinstance(node, Binary):
        binds = _BINDS[node.operator]
        left = _bracketed(_text(node.left, leaf, call), binds)
        # Floats do not associate: a right operand of the same rank keeps its brackets.
        right = _bracketed(_text(node.right, leaf, call), binds + 1)
        return f"{left} {node.operator} {right}", binds
    if isinstance(node, Negative):
        return f"-{_bracketed(_text(node.operand, leaf, call), _UNARY + 1)}", _UNARY
    if isinstance(node, Call):
        return call(node.function, [_text(one, leaf, call)[0] for one in node.arguments]), _ATOM
    return leaf(node), _ATOM


def _bracketed(text: tuple[str, int], binds: int) -> str:
    return text[0] if text[1] >= binds else f"({text[0]})"


def _leaf(node: Number | Name | Element) -> str:
    if isinstance(node, Number):
        return f"{node.value:g}" if float(f"{node.value:g}") == node.value else repr(node.value)
    return node.name if isinstance(node, Name) else f"{node.name}[{', '.join(node.axes) or '0'}]"


def _call(function: str, arguments: list[str]) -> str:
    return f"{function}({', '.join(arguments)})"
