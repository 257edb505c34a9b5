"""From the text of an expression to its nodes, or to an error that points at the place.

The text is parsed by Python's own grammar (`ast`), of which a handful of nodes is legal here; nothing is evaluated.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import NoReturn

import numpy as np

from blasdx.elements import Element as ElementType
from blasdx.elements import f32
from blasdx.epilogue.functions import ARRAYS, CASTS, FUNCTIONS, SIGNATURES
from blasdx.epilogue.tree import ACCUMULATOR, ALPHA, BETA, SOURCE, Binary, Call, Element, Name, Negative, Node, Number
from blasdx.errors import EpilogueError

MAX_LENGTH = 1000
"""Characters of an expression."""

MAX_DEPTH = 40
"""Operations inside each other."""

_PARAMETERS = "descriptor a b out stream depth device epilogue output expression types self"

_KERNEL = """
m n k batches parts part_blocks counters partials a_tile b_tile c_tile out_tile is_bulk_storable blocks_of split_of
problem at held fetch first row column columns columns_of line value inside i u8 u16 u32 u64
"""
"""Members of the structs Problem and Epilogue, and what the latter's functions declare."""

_DEVICE = " ".join(f"{function.device} {function.rough}" for function in FUNCTIONS.values())

_CPLUSPLUS = """
alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t co_await co_return
co_yield compl concept const constexpr consteval constinit const_cast decltype default delete do double dynamic_cast
enum explicit export extern false float friend goto inline int long mutable namespace new noexcept not_eq nullptr
operator or_eq private protected public register reinterpret_cast requires short signed sizeof static static_assert
static_cast struct switch template this thread_local throw true typedef typeid typename union unsigned using virtual
void volatile wchar_t xor xor_eq
"""
"""Those that Python's grammar takes for names."""

RESERVED = frozenset(f"{_PARAMETERS} {_KERNEL} {_DEVICE} {_CPLUSPLUS}".split())
"""Names that are no operand's: other parameters of a call, the kernel's own, and words of C++."""

_MEMBERS, _CONVERSIONS = ("_ld", "_step", "_batch"), ("fetch_", "pack_", "unpack_", "round_to_")
"""What members of the kernel's argument end in, and conversions begin with."""

_SPECIAL = (ACCUMULATOR, SOURCE, ALPHA, BETA)
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_F32_MAX = float(np.finfo(np.float32).max)
_INDICES: dict[tuple[object, ...], tuple[str, ...]] = {("m",): ("m",), ("n",): ("n",), ("m", "n"): ("m", "n"), (0,): ()}


def parse(expression: str, types: Mapping[str, ElementType]) -> Node:
    """Read an expression whose operands have the given element types.

    Raises
    ------
    EpilogueError
        It is none, or names, arguments, shapes or types do not fit; with the place in the text.
    """
    if not isinstance(expression, str):
        raise EpilogueError(f"an epilogue is a text such as 'alpha * acc + beta * c', not {type(expression).__name__}")
    return _Parser(expression, types).node


class _Parser:
    def __init__(self, expression: str, types: Mapping[str, ElementType]) -> None:
        self.expression = expression
        self.types = types
        self.used: dict[str, tuple[str, ...] | None] = {}
        if len(expression) > MAX_LENGTH:
            self._refuse(
                None, f"{len(expression):,} characters", f"the limit is {MAX_LENGTH:,}", "compute a part in a matrix"
            )
        if not expression.isascii():
            place = next(i for i, character in enumerate(expression) if not character.isascii())
            self._refuse(place, f"{expression[place]!r} is not ASCII", "names and operators are", "spell it out")
        for name, element in types.items():
            self._declared(name, element)
        self.node = self._read(self._grammar(), 0)
        self._whole()

    def _grammar(self) -> ast.expr:
        try:
            # Lines and leading blanks mean nothing in an expression, but do in Python.
            return ast.parse(re.sub(r"\s", " ", self.expression).lstrip(), mode="eval").body
        except SyntaxError as error:
            stripped = len(self.expression) - len(self.expression.lstrip())
            self._refuse(stripped + (error.offset or 1) - 1, f"this is no expression: {error.msg}", LEGAL)
        except (ValueError, RecursionError, MemoryError) as error:
            self._refuse(None, f"this cannot be parsed: {error or 'too many brackets'}", LEGAL)

    # ---- what was declared

    def _declared(self, name: str, element: ElementType) -> None:
        if name in (ACCUMULATOR, ALPHA, BETA):
            what = (
                "the accumulator's type is the descriptor's" if name == ACCUMULATOR else "it is an f32 in host memory"
            )
            self._refuse(None, f"{name}={str(element)!r} declares {name}", what, f"leave {name}= out")
        self._legal_name(name, None)
        if element not in ARRAYS:
            legal = ", ".join(map(str, ARRAYS))
            self._refuse(None, f"{name}={str(element)!r}", f"an operand's elements are one of {legal}", "convert it")

    def _legal_name(self, name: str, node: ast.expr | None) -> None:
        if name in FUNCTIONS or name in CASTS:
            self._refuse(node, f"{name!r} is a function", "operands have names of their own", f"call it {name}_0")
        if name in RESERVED or name.endswith(_MEMBERS) or name.startswith(_CONVERSIONS):
            self._refuse(node, f"{name!r} means something else in a kernel or a call", "choose another name")
        if not _NAME.fullmatch(name):
            self._refuse(node, f"{name!r} is no operand's name", "a name is lower-case words and digits, joined by _")

    def _whole(self) -> None:
        """What only the whole expression tells."""
        if ACCUMULATOR not in self.used:
            self._refuse(None, "acc does not occur", "acc is the sum of products that the kernel is for", "use acc")
        if BETA in self.used and SOURCE not in self.used:
            self._refuse(None, "beta without c", "beta scales c", "beta * c, or a scalar by another name")
        for name in self.types:
            if name not in self.used:
                self._refuse(
                    None,
                    f"{name} is declared, and not used",
                    "an operand occurs in the expression",
                    f"leave {name}= out",
                )

    # ---- nodes

    def _read(self, node: ast.expr, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self._refuse(
                node, f"more than {MAX_DEPTH} operations inside each other", "the limit keeps kernels readable"
            )
        match node:
            case ast.Constant():
                return self._number(node)
            case ast.Name():
                return self._name(node)
            case ast.Subscript():
                return self._element(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Negative(self._read(operand, depth + 1))
            case ast.BinOp(op=operator, left=left, right=right) if type(operator) in _OPERATORS:
                return Binary(_OPERATORS[type(operator)], self._read(left, depth + 1), self._read(right, depth + 1))
            case ast.Call():
                return self._call(node, depth)
        self._refuse(node, f"{_KINDS.get(type(node), 'this')} is not part of the language", LEGAL)

    def _number(self, node: ast.Constant) -> Number:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            self._refuse(node, f"{node.value!r} is no number", "literals are real numbers")
        try:
            value = float(node.value)
        except OverflowError:
            value = math.inf
        if abs(value) > _F32_MAX:
            self._refuse(node, "a literal beyond f32", f"f32 ends at {_F32_MAX:.3g}")
        return Number(value)

    def _name(self, node: ast.Name) -> Name:
        name = node.id
        if name not in _SPECIAL:
            if name in FUNCTIONS or name in CASTS:
                signature = FUNCTIONS[name].signature if name in FUNCTIONS else f"{name}(x)"
                self._refuse(node, f"{name} is a function", "it is called", signature)
            self._legal_name(name, node)
            declared = self.types.get(name)
            if declared is not None and declared != f32:
                need = f"without an index it is a number by value, which is an f32; an array of {declared} has one"
                self._refuse(node, f"{name} without an index", need, _indexed(name))
        self._use(name, None, node)
        return Name(name)

    def _element(self, node: ast.Subscript) -> Element:
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if not name:
            self._refuse(node, "an index on something that is no name", "arrays have an index", "name[m], name[n]")
        if name in _SPECIAL:
            self._refuse(node, f"{name} with an index", f"{name} is written without one", name)
        self._legal_name(name, node)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        index = tuple(_index(part) for part in parts)
        if index not in _INDICES:
            text = ast.unparse(node.slice).strip("()")
            fix = f"{name}[m, n], an array that lies as C does" if index == ("n", "m") else _indexed(name)
            self._refuse(node, f"[{text}] is no index", "[m] for rows, [n] for columns, [m, n] or [0]", fix)
        if name not in self.types:
            known = get_close_matches(name, self.types, 1)
            declare = f'Epilogue(..., {name}="f32")'
            fix = f"{known[0]}[{', '.join(map(str, index))}], or {declare}" if known else declare
            self._refuse(node, f"{name} has no element type", f"declared: {_listed(self.types)}", fix)
        self._use(name, _INDICES[index], node)
        return Element(name, _INDICES[index])

    def _use(self, name: str, axes: tuple[str, ...] | None, node: ast.expr) -> None:
        if self.used.setdefault(name, axes) != axes:
            before = self.used[name]
            was = name if before is None else f"{name}[{', '.join(before) or '0'}]"
            self._refuse(node, f"{name} with two indices", f"it is {was} elsewhere", "one name an array")

    def _call(self, node: ast.Call, depth: int) -> Call:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS and name not in CASTS:
            known = get_close_matches(name, [*FUNCTIONS, *CASTS], 1)
            given = f"{name or ast.unparse(node.func)!r} is no function here"
            self._refuse(node.func, given, f"there are {', '.join(SIGNATURES)}", known[0] if known else "")
        parameters = FUNCTIONS[name].parameters if name in FUNCTIONS else ("x",)
        if node.keywords or len(node.args) != len(parameters):
            given = f"{name} with {_counted(len(node.args) + len(node.keywords), 'argument')}"
            given += ", some by name" if node.keywords else ""
            self._refuse(
                node, given, f"it takes {_counted(len(parameters), 'argument')}", f"{name}({', '.join(parameters)})"
            )
        return Call(name, tuple(self._read(argument, depth + 1) for argument in node.args))

    # ---- refusals

    def _refuse(self, place: ast.expr | int | None, what: str, need: str, fix: str = "") -> NoReturn:
        """Raise, with the expression and a caret below the place."""
        lines = [f"the epilogue cannot be read: {what}"]
        column = None
        if not len(self.expression) > MAX_LENGTH:
            lines.append("  " + re.sub(r"\s", " ", self.expression))
        if place is not None:
            stripped = len(self.expression) - len(self.expression.lstrip())
            column = place if isinstance(place, int) else stripped + place.col_offset
            length = 1 if isinstance(place, int) else (place.end_col_offset or 0) - place.col_offset
            lines.append("  " + " " * column + "^" * max(length, 1))
        lines.append(f"  {need}")
        if fix:
            lines.append(f"  fix: {fix}")
        raise EpilogueError("\n".join(lines), expression=self.expression, column=column)


LEGAL = "legal are + - * /, unary -, brackets, numbers, names, name[m], name[n], name[m, n], name[0], " + ", ".join(
    SIGNATURES
)

_KINDS: dict[type[ast.expr], str] = {
    ast.Attribute: "an attribute",
    ast.BinOp: "this operator",
    ast.BoolOp: "a logical operator",
    ast.Compare: "a comparison",
    ast.IfExp: "a condition",
    ast.Lambda: "a lambda",
    ast.Tuple: "a tuple",
    ast.UnaryOp: "this operator",
}


def _index(part: ast.expr) -> object:
    if isinstance(part, ast.Name):
        return part.id
    return 0 if isinstance(part, ast.Constant) and part.value == 0 and type(part.value) is int else None


def _indexed(name: str) -> str:
    return f"{name}[m], {name}[n], {name}[m, n] or {name}[0]"


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "nothing"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
