"""Any text is an epilogue or an `EpilogueError`; any expression survives being written down and read again."""

from __future__ import annotations

import re
import string

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import blasdx as dx
from blasdx.elements import Element as ElementType
from blasdx.epilogue import tree
from blasdx.epilogue.context import EpilogueContext
from blasdx.epilogue.functions import CASTS, FUNCTIONS

TYPES = {"bias": "bf16", "scale": "f32", "rest": "e4m3", "one": "s32"}

leaves = st.one_of(
    st.just(tree.Name("acc")),
    st.just(tree.Name("alpha")),
    st.builds(tree.Name, st.sampled_from(["x", "y_1"])),
    st.sampled_from([
        tree.Element("bias", ("n",)), tree.Element("scale", ("m",)), tree.Element("rest", ("m", "n")),
        tree.Element("one", ()),
    ]),
    st.builds(tree.Number, st.floats(0, 3e38, allow_nan=False)),
)  # fmt: skip


def _calls(inside):
    arities = {name: len(function.parameters) for name, function in FUNCTIONS.items()} | dict.fromkeys(CASTS, 1)
    return st.sampled_from(sorted(arities)).flatmap(
        lambda name: st.builds(tree.Call, st.just(name), st.tuples(*[inside] * arities[name]))
    )


nodes = st.recursive(
    leaves,
    lambda inside: st.one_of(
        st.builds(tree.Negative, inside),
        st.builds(tree.Binary, st.sampled_from("+-*/"), inside, inside),
        _calls(inside),
    ),
    max_leaves=12,
)


def declared(node):
    used = {one.name for one in tree.walk(node) if isinstance(one, tree.Element)}
    return {name: element for name, element in TYPES.items() if name in used}


@given(nodes)
def test_an_expression_is_read_as_it_was_written(node):
    whole = tree.Binary("+", node, tree.Name("acc"))
    epilogue = dx.Epilogue(tree.text(whole), **declared(whole))
    assert epilogue.node == whole
    assert dx.Epilogue.model_validate_json(epilogue.model_dump_json()) == epilogue


@given(nodes)
def test_brackets_are_the_ones_that_python_needs(node):
    """With every operation in brackets of its own, Python computes the same."""
    whole = tree.Binary("+", node, tree.Name("acc"))
    values = {"acc": 1.25, "alpha": 0.5, "x": -3.0, "y_1": 7.0}

    def leaf(one):
        if isinstance(one, tree.Number):
            return repr(one.value)
        return repr(values.get(one.name, 2.5)) if isinstance(one, tree.Name) else "1.75"

    def full(one):
        if isinstance(one, tree.Negative):
            return f"(-{full(one.operand)})"
        if isinstance(one, tree.Binary):
            return f"({full(one.left)} {one.operator} {full(one.right)})"
        return f"({' + '.join(map(full, one.arguments))})" if isinstance(one, tree.Call) else leaf(one)

    short = tree.text(whole, leaf, lambda name, arguments: f"({' + '.join(arguments)})")
    assert _value(short) == _value(full(whole))


def _value(text):
    with np.errstate(all="ignore"):
        numbers = re.sub(r"\d[\d.]*(e[+-]?\d+)?", lambda found: f"np.float64({found[0]})", text)
        result = eval(numbers, {"np": np})  # noqa: S307
        return "nan" if np.isnan(result) else result


@given(st.text(alphabet=string.ascii_lowercase[:6] + "accmn0123456789.,()[]+-*/% \n'\\\0é@:=<>{}", max_size=60))
def test_any_text_is_an_epilogue_or_refused(text):
    refused = ""
    try:
        dx.Epilogue(text)
    except dx.EpilogueError as error:
        refused = str(error)
    assert not refused or refused.startswith("the epilogue cannot be read: ")


@given(nodes, st.sampled_from(["f32", "f16", "s32"]), st.sampled_from(["f32", "bf16", "s8"]), st.booleans())
def test_the_kernels_text_names_nothing_unknown(node, accumulator, output, c_row_major):
    whole = tree.Binary("+", node, tree.Name("acc"))
    epilogue = dx.Epilogue(tree.text(whole), **declared(whole))
    made = EpilogueContext.of(epilogue, ElementType.of(accumulator), ElementType.of(output), c_row_major=c_row_major)
    text = " ".join(made.result)
    assert text.count("(") == text.count(")")
    assert "--" not in text, "C++ would decrement"
    members = set(re.findall(r"problem\.(\w+)", text))
    assert members <= {"alpha", *epilogue.scalars}
