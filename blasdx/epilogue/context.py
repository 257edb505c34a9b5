"""What the templates see of an epilogue: the CUDA C++ that its expression becomes, line by line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from blasdx.elements import Element
from blasdx.epilogue import tree
from blasdx.epilogue.functions import CASTS, FUNCTIONS
from blasdx.epilogue.tree import ACCUMULATOR, BETA, SOURCE, Binary, Call, Name, Negative, Node, Number
from blasdx.epilogue.value import DEFAULT, ArrayOperand, Epilogue, is_rough

BITS = {
    "f32": "float",
    "f16": "u16",
    "bf16": "u16",
    "e4m3": "u8",
    "e5m2": "u8",
    "s8": "signed char",
    "u8": "u8",
    "s32": "int",
}
"""C++ type of an element in memory: the number where C++ has the type, otherwise its bits."""

_UNLESS_ZERO = "unless beta is zero"
_WIDTH = 108


class EpilogueContext(BaseModel):
    """An epilogue in CUDA C++.

    Attributes
    ----------
    expression : str
    plain : bool
        Whether it is alpha * acc + beta * c.
    value : {"float", "double"}
        What is computed in: double holds every 32-bit integer.
    reads_c : bool
        Whether the pipeline hands over what C holds. It does not where C is no operand, nor where its type is not what
        is stored: the epilogue then reads it itself.
    scales_c : bool
        Whether C is read only where ``problem.beta`` is not zero.
    columns : tuple of str
        What is held of the vectors along the columns for a run: members of a struct.
    held : tuple of str
        What a thread holds of all vectors from before the sums are there, where its warp then hands the columns round:
        members of a struct.
    fetches : tuple of str
        Statements that load what belongs to columns, of a run or of what is held.
    row_fetches : tuple of str
        Statements that load what is held of a row, the i-th of the thread's.
    spreads : tuple of str
        Statements that make what belongs to the columns of a run of what the warp holds.
    places : tuple of str
        Statements that load what the expression reads, for a run of kRun elements.
    inside : bool
        Whether one of them has to know how many of the run lie inside the problem.
    result : tuple of str
        The expression, for element i of a run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    expression: str
    plain: bool
    value: str
    reads_c: bool
    scales_c: bool
    columns: tuple[str, ...]
    held: tuple[str, ...]
    fetches: tuple[str, ...]
    row_fetches: tuple[str, ...]
    spreads: tuple[str, ...]
    places: tuple[str, ...]
    inside: bool
    result: tuple[str, ...]

    @classmethod
    def of(
        cls, epilogue: Epilogue, accumulator: Element, output: Element, *, c_row_major: bool, holds: bool = False
    ) -> EpilogueContext:
        """The epilogue of a kernel with this accumulator, that stores C in this type and order.

        ``holds`` where threads load vectors before the sums are there.
        """
        value = "double" if accumulator.name == "s32" else "float"
        spelling = _Spelling(epilogue, value, rough=is_rough(output), holds=holds)
        c = epilogue.c_element(output)
        fetched = [ArrayOperand(SOURCE, ("m", "n"), c)] if epilogue.reads_c and c != output else []
        arrays = (*fetched, *epilogue.arrays)
        spelling.arrays = {array.name: array for array in arrays}
        along_m, along_n = ([array for array in arrays if array.axes == (axis,)] for axis in "mn")
        return cls(
            expression=epilogue.expression,
            plain=epilogue == DEFAULT,
            value=spelling.value,
            reads_c=epilogue.reads_c and not fetched,
            scales_c=epilogue.scales_c,
            columns=tuple(spelling.member(array, "kRun") for array in along_n),
            held=tuple(map(spelling.held, along_n + along_m)) if holds else (),
            fetches=tuple(map(spelling.fetch, along_n)),
            row_fetches=tuple(map(spelling.fetch_row, along_m)) if holds else (),
            spreads=tuple(map(spelling.spread, along_n)) if holds else (),
            places=tuple(line for array in arrays for line in spelling.load(array, c_row_major=c_row_major)),
            inside=any(array.axes == ("m", "n") for array in arrays),
            result=tuple(textwrap.wrap(spelling.result(), _WIDTH, break_long_words=False)),
        )


class _Spelling:
    """How the parts of one epilogue are written in C++."""

    def __init__(self, epilogue: Epilogue, value: str, *, rough: bool, holds: bool) -> None:
        self.epilogue = epilogue
        self.value = value
        self.zero = "0.0f" if value == "float" else "0.0"
        self.rough = rough
        self.holds = holds
        self.arrays: dict[str, ArrayOperand] = {}

    def result(self) -> str:
        node = self.epilogue.node
        return tree.text(_guarded(node) if self.epilogue.scales_c else node, self.leaf, self.call)

    def leaf(self, node: Number | Name | tree.Element) -> str:
        if isinstance(node, Number):
            return f"{node.value!r}f" if self.value == "float" else repr(node.value)
        if isinstance(node, Name) and node.name not in self.arrays:
            return {ACCUMULATOR: "value[i]", SOURCE: "c[i]"}.get(node.name, f"problem.{node.name}")
        array = self.arrays[node.name]
        if array.axes == ("n",):
            return self.unpacked(self.column(array), array.element)
        return self.unpacked(f"{node.name}[i]", array.element) if "n" in array.axes else node.name

    def call(self, function: str, arguments: list[str]) -> str:
        if function == _UNLESS_ZERO:
            return f"(problem.beta != 0 ? {arguments[0]} : {self.zero})"
        if self.value == "double" and function in ("min", "max", "clamp"):
            arguments = [f"Value({argument})" for argument in arguments]  # a factor by value is a float
        if function == "clamp":
            x, low, high = arguments
            return f"minimum(maximum({x}, {low}), {high})"
        if function in CASTS:
            return f"round_to_{function}({arguments[0]})"
        known = FUNCTIONS[function]
        return f"{known.rough if self.rough and known.rough else known.device}({', '.join(arguments)})"

    def load(self, array: ArrayOperand, *, c_row_major: bool) -> Iterator[str]:
        name, kind = array.name, BITS[array.element.name]
        batch = f"at.batch * problem.{name}_batch"
        fetch = f"fetch_run<kRunAdjacent, kRunStep>({name}, problem.{name} + {batch}"
        if array.axes == ():
            element = self.unpacked(f"problem.{name}[{batch}]", array.element)
            yield f"const Value {name} = {element};"
        elif array.axes == ("m",) and self.holds:
            yield f"const Value {name} = {self.unpacked(f'held.{name}[line]', array.element)};"
        elif array.axes == ("m",):
            element = self.unpacked(f"problem.{name}[{batch} + row * problem.{name}_step]", array.element)
            yield f"const Value {name} = row < problem.m ? {element} : {self.zero};"
        elif array.axes == ("m", "n"):
            ld = f"problem.{name}_ld"
            line = f"row * {ld} + column, 1" if c_row_major else f"column * {ld} + row, {ld}"
            unless = name == SOURCE and self.epilogue.scales_c
            yield f"{kind} {name}[kRun]{' = {}' if unless else ''};"
            yield f"{'if (problem.beta != 0) ' if unless else ''}{fetch} + {line}, inside);"

    def member(self, array: ArrayOperand, count: str) -> str:
        """An array for what belongs to ``count`` columns; narrow elements stay in pairs until they are used."""
        if array.element.itemsize == 4:
            return f"{BITS[array.element.name]} {array.name}[{count}];"
        return f"u{16 * array.element.itemsize} {array.name}[{count} / 2];"

    def column(self, array: ArrayOperand) -> str:
        if array.element.itemsize == 4:
            return f"columns.{array.name}[i]"
        bits = array.element.bits
        return f"static_cast<{BITS[array.element.name]}>(columns.{array.name}[i / 2] >> i % 2 * {bits})"

    def held(self, array: ArrayOperand) -> str:
        if array.axes == ("m",):
            return f"{BITS[array.element.name]} {array.name}[kHeldRows];"
        return self.member(array, "kHeldColumns")

    def fetch(self, array: ArrayOperand) -> str:
        name = array.name
        how = "fetch_run" if array.element.itemsize == 4 else "fetch_pairs"
        into = f"<2, 64>(held.{name}" if self.holds else f"<kRunAdjacent, kRunStep>(columns.{name}"
        line = f"problem.{name} + at.batch * problem.{name}_batch + column * problem.{name}_step"
        return f"{how}{into}, {line}, problem.{name}_step, inside);"

    def fetch_row(self, array: ArrayOperand) -> str:
        name = array.name
        element = f"problem.{name}[at.batch * problem.{name}_batch + row * problem.{name}_step]"
        return f"held.{name}[i] = row < problem.m ? {element} : {BITS[array.element.name]}(0);"

    def spread(self, array: ArrayOperand) -> str:
        how = "spread_run" if array.element.itemsize == 4 else "spread_pairs"
        return f"{how}(columns.{array.name}, held.{array.name}, first);"

    def unpacked(self, bits: str, element: Element) -> str:
        """An element in memory as a number to compute with."""
        if element.name == "f32":
            return bits
        return f"unpack_{element}({bits})" if element.is_float else f"static_cast<Value>({bits})"


def _guarded(node: Node) -> Node:
    """The same with every product that beta zeroes left out then, unless zero times what it holds is zero anyway."""
    parts = tree.factors(node)
    if Name(BETA) in parts and tree.count(node, SOURCE):
        rest = [part for part in parts if part != Name(BETA)]
        plain = all(isinstance(part, Number) or _is_c(part) for part in rest)
        return node if plain else Call(_UNLESS_ZERO, (node,))
    match node:
        case Negative(operand):
            return Negative(_guarded(operand))
        case Binary(operator, left, right):
            return Binary(operator, _guarded(left), _guarded(right))
        case Call(function, arguments):
            return Call(function, tuple(map(_guarded, arguments)))
    return node


def _is_c(node: Node) -> bool:
    return node == Name(SOURCE) or (isinstance(node, Call) and node.function in CASTS and _is_c(node.arguments[0]))
