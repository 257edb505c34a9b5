"""Epilogue: what a kernel does with its sums before it stores them, as a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from blasdx.elements import Element
from blasdx.epilogue import tree
from blasdx.epilogue.functions import ARRAYS, CAST_OPERATIONS, CASTS, FUNCTIONS
from blasdx.epilogue.parser import parse
from blasdx.errors import EpilogueError

OUTPUTS: dict[str, tuple[str, ...]] = {
    "f32": ("f32", "f16", "bf16", "e4m3", "e5m2", "s8"),
    "f16": ("f16", "f32", "bf16", "e4m3", "e5m2", "s8"),
    "s32": ("s32", "s8", "u8", "f32", "f16", "bf16"),
}
"""What each accumulator may be stored as; the first is what a descriptor stores when nothing else is asked for."""


@dataclass(frozen=True)
class ArrayOperand:
    """An array that an epilogue reads.

    ``axes`` are those of C along which it has elements: ``("m",)``, ``("n",)``, ``("m", "n")``, or none for a single
    number in device memory.
    """

    name: str
    axes: tuple[str, ...]
    element: Element

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(self.axes) or '0'}]"


class Epilogue(BaseModel):
    """An expression in the accumulator, evaluated for every element of C before it is stored.

    Parameters
    ----------
    expression : str
        ``+ - * /``, unary ``-``, brackets and numbers; ``acc``, ``c``, ``alpha`` and ``beta``; vectors ``name[m]`` with
        an element for every row of C and ``name[n]`` with one for every column, matrices ``name[m, n]`` that lie as C
        does, and single numbers, in device memory ``name[0]`` or by value ``name``; relu, gelu, gelu_tanh, silu,
        sigmoid, tanh, clamp, min, max, abs; and casts ``bf16(x)`` that round and come back (f16, bf16, e4m3, e5m2, s8,
        u8).
    **types : element type
        Of every array in it, by name. ``c`` may be declared where it is not what is stored; a number by value is an
        f32.

    Attributes
    ----------
    expression : str
        The expression as it is understood: spaces and brackets that change nothing are gone.

    Raises
    ------
    EpilogueError
        The expression cannot be read, with the place.

    Examples
    --------
    >>> import blasdx as dx
    >>> dx.Epilogue("relu(alpha*acc + bias[n])", bias="bf16")
    Epilogue('relu(alpha * acc + bias[n])', bias='bf16')
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    expression: str
    types: tuple[tuple[str, Element], ...] = ()

    def __init__(self, expression: str, *, types: Iterable[tuple[str, object]] = (), **declared: object) -> None:
        elements = {name: _element(name, spelling) for name, spelling in [*types, *declared.items()]}
        node = parse(expression, elements)
        used = dict.fromkeys(one.name for one in tree.walk(node) if isinstance(one, tree.Name | tree.Element))
        ordered = tuple((name, elements[name]) for name in used if name in elements and not _is_default(name, node))
        super().__init__(expression=tree.text(node), types=ordered)

    @cached_property
    def node(self) -> tree.Node:
        """The expression's root."""
        return parse(self.expression, dict(self.types))

    # ---- what it reads

    @cached_property
    def arrays(self) -> tuple[ArrayOperand, ...]:
        """Arrays besides C, in the order of their first use."""
        types = dict(self.types)
        found = (one for one in tree.walk(self.node) if isinstance(one, tree.Element))
        return tuple(dict.fromkeys(ArrayOperand(one.name, one.axes, types[one.name]) for one in found))

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """Numbers by value besides alpha and beta, in the order of their first use."""
        names = (one.name for one in tree.walk(self.node) if isinstance(one, tree.Name))
        return tuple(dict.fromkeys(name for name in names if name not in _SPECIAL))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What a call is given by name besides alpha and beta: arrays, then numbers."""
        return (*(array.name for array in self.arrays), *self.scalars)

    @cached_property
    def reads_c(self) -> bool:
        """Whether C is an operand."""
        return tree.count(self.node, tree.SOURCE) > 0

    @cached_property
    def scales_c(self) -> bool:
        """Whether every use of C is in a product with beta, so that C is not read where beta is zero."""
        return self.reads_c and tree.scaled(self.node, tree.SOURCE, tree.BETA)

    @cached_property
    def scales_products(self) -> bool:
        """Whether every use of the sum is in a product with alpha, so that A and B are not read where alpha is zero."""
        return tree.scaled(self.node, tree.ACCUMULATOR, tree.ALPHA)

    @cached_property
    def uses_alpha(self) -> bool:
        """Whether alpha occurs."""
        return tree.count(self.node, tree.ALPHA) > 0

    @cached_property
    def uses_beta(self) -> bool:
        """Whether beta occurs."""
        return tree.count(self.node, tree.BETA) > 0

    def c_element(self, output: Element) -> Element:
        """Element type of C in memory: the declared one, otherwise what is stored."""
        return dict(self.types).get(tree.SOURCE, output)

    # ---- what it means

    def reference(
        self, acc: Any, c: Any = None, *, output: object = "f32", alpha: float = 1.0, beta: float = 0.0, **operands: Any
    ) -> Any:
        """Evaluate the expression in NumPy: in float64, and rounded to the output's type.

        Parameters
        ----------
        acc : array_like
            (..., m, n), the sums of products.
        c : array_like, optional
            (..., m, n), where the expression names it; not looked at where it is scaled by a beta of zero.
        output : element type
        alpha, beta : float
        **operands : array_like
            The arrays and numbers of the expression: vectors are (m,) and (n,), batches go in front.

        Returns
        -------
        numpy.ndarray
            (..., m, n), in the output's type.
        """
        from blasdx.epilogue.reference import reference

        return reference(self, acc, Element.of(output), {"c": c, "alpha": alpha, "beta": beta, **operands})

    # ---- for people

    def require_output(self, accumulator: Element, output: Element) -> None:
        """Raise for what the accumulator cannot be stored as.

        Raises
        ------
        EpilogueError
            With what it can be stored as.
        """
        legal = OUTPUTS.get(accumulator.name, (accumulator.name,))
        if output.name not in legal:
            raise EpilogueError(
                f"an {accumulator} accumulator cannot be stored as {output}\n  it can as {', '.join(legal)}\n"
                f"  fix: output={legal[0]!r}",
                expression=self.expression,
            )

    def describe(self, accumulator: object = "f32", output: object = None, tile: tuple[int, int] = (128, 256)) -> str:
        """What it costs: bytes that are read, by array, and operations an element of C.

        Parameters
        ----------
        accumulator, output : element type
            Of the kernel; the output is the accumulator's type when left out.
        tile : tuple of int
            Rows and columns of C whose bytes are counted.
        """
        made = Element.of(accumulator)
        return _described(self, made, made if output is None else Element.of(output), tile)

    def __repr__(self) -> str:
        types = "".join(f", {name}={str(element)!r}" for name, element in self.types)
        return f"Epilogue({self.expression!r}{types})"

    def __str__(self) -> str:
        return self.expression


_SPECIAL = (tree.ACCUMULATOR, tree.SOURCE, tree.ALPHA, tree.BETA)


def _element(name: str, spelling: object) -> Element:
    try:
        return Element.of(spelling)
    except ValueError as error:
        legal = ", ".join(map(str, ARRAYS))
        raise EpilogueError(
            f"{name}={spelling!r} declares no element type\n  {error}\n  fix: {name}=one of {legal}"
        ) from None


def _is_default(name: str, node: tree.Node) -> bool:
    """Whether a declaration says what holds without it: a number by value is an f32."""
    return name != tree.SOURCE and any(isinstance(one, tree.Name) and one.name == name for one in tree.walk(node))


def is_rough(output: Element) -> bool:
    """Whether results of this type take the cheaper functions: what they lose disappears in its rounding."""
    return output.bits <= 16


def _described(epilogue: Epilogue, accumulator: Element, output: Element, tile: tuple[int, int]) -> str:
    m, n = tile
    rows: list[tuple[str, str, str]] = []
    if epilogue.reads_c:
        element = epilogue.c_element(output)
        when = ", unless beta is 0" if epilogue.scales_c else ""
        rows.append(("c", f"{element}, {element.itemsize} B an element{when}", f"{m * n * element.itemsize:,} B"))
    for array in epilogue.arrays:
        size = array.element.itemsize
        per, elements = {
            ("m",): ("a row", m),
            ("n",): ("a column", n),
            ("m", "n"): ("an element", m * n),
            (): ("a tile", 1),
        }[array.axes]
        rows.append((str(array), f"{array.element}, {size} B {per}", f"{elements * size:,} B"))
    for scalar in (*("alpha",) * epilogue.uses_alpha, *("beta",) * epilogue.uses_beta, *epilogue.scalars):
        rows.append((scalar, "f32 by value", "0 B"))
    compute = "f64" if accumulator.name == "s32" else "f32"
    lines = [f"{epilogue.expression}, {accumulator} -> {compute} -> {output}; a tile of {m} x {n} reads"]
    lines += [f"  {name:<16} {what:<40} {total:>12}" for name, what, total in rows]
    lines.append(f"  about {operations(epilogue.node, rough=is_rough(output))} operations an element")
    return "\n".join(lines)


def operations(node: tree.Node, *, rough: bool) -> int:
    """Instructions an element, about; a product that is added to something is one with the sum."""
    below = sum(operations(child, rough=rough) for child in tree.children(node))
    if isinstance(node, tree.Call):
        if node.function in CASTS:
            return below + CAST_OPERATIONS[node.function]
        function = FUNCTIONS[node.function]
        return below + (function.rough_operations if rough and function.rough else function.operations)
    if isinstance(node, tree.Binary):
        if node.operator == "/":
            return below + DIVISION_OPERATIONS
        fused = node.operator in "+-" and any(_is_product(side) for side in (node.left, node.right))
        return below + (0 if fused else 1)
    return below  # a minus goes with what reads it


DIVISION_OPERATIONS = 8
"""Of a division, which is rounded correctly; of numbers that are very large or small it takes more."""


def _is_product(node: tree.Node) -> bool:
    return isinstance(node, tree.Binary) and node.operator == "*"


DEFAULT = Epilogue("alpha * acc + beta * c")
"""BLAS."""
