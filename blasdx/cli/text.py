"""A descriptor from what is typed on a command line: the Python expression that makes it, or its JSON.

The expression is read, never evaluated: calls of operators, sums of them, and names, strings and numbers as arguments.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, NoReturn

from blasdx.descriptor import Descriptor, promote
from blasdx.errors import DescriptorError
from blasdx.operators import OPERATORS, MaxAlignment, Operator

_MAKERS: dict[str, Any] = {kind.__name__: kind for kind in OPERATORS} | {
    "MaxAlignment": MaxAlignment,
    "Descriptor": Descriptor,
}


def descriptor_from_text(text: str) -> Descriptor:
    """Read a descriptor.

    Parameters
    ----------
    text : str
        ``Size(128, 256, 64) + Precision(bf16, bf16, f32) + ...`` with or without ``dx.`` before the names; the JSON of
        a descriptor; or the path of a file that holds one of the two.

    Raises
    ------
    DescriptorError
        For anything else, with the place.
    pydantic.ValidationError
        An operator's field is illegal.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        return Descriptor.model_validate_json(stripped)
    if "(" not in stripped and _is_file(stripped):
        return _from_file(Path(stripped))
    return _from_expression(stripped)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a null in it
        return False


def _from_file(path: Path) -> Descriptor:
    """What a file holds; it cannot name another file, or itself."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise DescriptorError(f"{path} is no descriptor: it is not UTF-8 text ({error})") from error
    return Descriptor.model_validate_json(text) if text.startswith("{") else _from_expression(text)


def _from_expression(text: str) -> Descriptor:
    try:
        tree = ast.parse(f"({text}\n)", mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # ValueError: a null or half a surrogate
        raise DescriptorError(f"this is no descriptor: {error}: {text[:200]!r}") from error
    try:
        return promote(_sum(tree.body, text))
    except (RecursionError, MemoryError) as error:  # nested thousands deep
        raise DescriptorError(f"this is no descriptor: {error}: {text[:200]!r}") from error


def _sum(node: ast.expr, text: str) -> Descriptor | Operator:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _sum(node.left, text) + _sum(node.right, text)
    if isinstance(node, ast.Call):
        name = _name(node.func, text)
        if name not in _MAKERS:
            raise DescriptorError(f"no operator is called {name}; operators are {', '.join(_MAKERS)}")
        read = _sum if name == "Descriptor" else _argument
        if any(keyword.arg is None for keyword in node.keywords):
            _refuse(node, text, "a call without ** in it")
        keywords = {str(keyword.arg): read(keyword.value, text) for keyword in node.keywords}
        arguments = [read(argument, text) for argument in node.args]
        try:
            made: Descriptor | Operator = _MAKERS[name](*arguments, **keywords)
        except TypeError as error:  # too many arguments, or names that there are not
            if isinstance(error, DescriptorError):
                raise
            raise DescriptorError(f"{ast.unparse(node)}: {error}") from error
        return made
    _refuse(node, text, "an operator such as Size(128, 256, 64)")


def _argument(node: ast.expr, text: str) -> object:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, int | float) else _refuse(node, text, "a number")
    # A tag or an element type: operators take both by name.
    return _name(node, text)


def _name(node: ast.expr, text: str) -> str:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    _refuse(node, text, "a name, a string or a number")


def _refuse(node: ast.expr, text: str, wanted: str) -> NoReturn:
    raise DescriptorError(f"a descriptor is a sum of operators: {ast.unparse(node)!r} should be {wanted}, in {text!r}")
