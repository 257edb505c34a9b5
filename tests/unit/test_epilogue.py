"""The language of epilogues: what is read, what is refused and where, what it means, and what it becomes."""

from __future__ import annotations

import json
import re
import struct

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.arguments import ProblemStruct
from blasdx.elements import Element
from blasdx.epilogue import DEFAULT, OUTPUTS
from blasdx.epilogue.context import EpilogueContext
from blasdx.epilogue.functions import CASTS, FUNCTIONS
from blasdx.epilogue.parser import MAX_DEPTH

LONG = dx.Epilogue("relu(alpha * acc + beta * c + bias[n]) * scale[m]", bias="bf16", scale="f32")


def test_what_a_kernel_declares_where_operands_are_is_no_operands_name():
    for sm in (900, 1000):
        plan = dx.suggest_pipeline(tile(sm=sm), epilogue=LONG, split_k=2)
        text = re.sub(r"//.*", "", dx.render(plan).text)
        problem, epilogue = (
            text[text.index(f"struct {name} {{") :].partition("\n};")[0] for name in ("Problem", "Epilogue")
        )
        declared = {*plan.problem.names, *re.findall(r"(\w+)\([^()]*\) const \{", problem + epilogue)}
        declared |= set(re.findall(r"(?:Value|Columns|u32|Problem|Place)&? \(?&?(\w+)", epilogue))
        assert {"parts", "counters", "split_of", "fetch", "columns", "row", "inside", "value"} <= declared
        for name in declared - {"bias", "scale", "alpha", "beta", "c"}:
            with pytest.raises(dx.EpilogueError, match=r"means something else|is a function"):
                dx.Epilogue(f"acc + {name}")


# ---- a value ---------------------------------------------------------------------------------------------------------


def test_it_is_a_value():
    same = dx.Epilogue("relu((alpha*acc) + beta*c+bias[n])*scale[ m ]", scale=np.float32, bias=ml_dtypes.bfloat16)
    assert same == LONG
    assert hash(same) == hash(LONG)
    assert str(LONG) == "relu(alpha * acc + beta * c + bias[n]) * scale[m]"
    assert repr(LONG) == f"Epilogue({str(LONG)!r}, bias='bf16', scale='f32')"
    assert eval(repr(LONG), {"Epilogue": dx.Epilogue}) == LONG  # noqa: S307
    assert dx.Epilogue.model_validate_json(LONG.model_dump_json()) == LONG
    assert dx.Epilogue("acc + bias[n]", bias="f16") != dx.Epilogue("acc + bias[n]", bias="f32")


def test_a_plan_keeps_it_in_its_json():
    plan = dx.suggest_pipeline(tile(), epilogue=LONG, output="bf16")
    assert plan.epilogue == LONG
    assert dx.PipelinePlan.model_validate_json(plan.model_dump_json()) == plan
    assert json.loads(plan.model_dump_json())["epilogue"]["types"] == [["bias", "bf16"], ["scale", "f32"]]
    assert str(LONG) in str(plan)


@pytest.mark.parametrize(
    ("text", "understood"),
    [
        ("acc", "acc"),
        ("  acc\n + 1", "acc + 1"),
        ("((acc))", "acc"),
        ("acc - (x - y)", "acc - (x - y)"),
        ("(acc - x) - y", "acc - x - y"),
        ("acc + (x + y)", "acc + (x + y)"),
        ("-(acc + 1)", "-(acc + 1)"),
        ("-acc * x", "-acc * x"),
        ("--acc", "-(-acc)"),
        ("acc / (x * y)", "acc / (x * y)"),
        ("acc * 1e-3 + .5", "acc * 0.001 + 0.5"),
        ("clamp(acc, -1, 448)", "clamp(acc, -1, 448)"),
    ],
)
def test_spaces_and_needless_brackets_go(text, understood):
    assert dx.Epilogue(text).expression == understood
    assert dx.Epilogue(understood).expression == understood


def test_what_it_reads():
    epilogue = dx.Epilogue("acc * s[0] + r[m, n] * x + v[m] + v[m] * y - w[n]", s="f32", r="e4m3", v="f16", w="s8")
    assert [str(array) for array in epilogue.arrays] == ["s[0]", "r[m, n]", "v[m]", "w[n]"]
    assert epilogue.scalars == ("x", "y")
    assert epilogue.names == ("s", "r", "v", "w", "x", "y")
    assert (epilogue.reads_c, epilogue.uses_alpha, epilogue.uses_beta) == (False, False, False)
    assert (DEFAULT.arrays, DEFAULT.scalars, DEFAULT.reads_c, DEFAULT.scales_c) == ((), (), True, True)


@pytest.mark.parametrize(
    ("text", "scales_c", "scales_products"),
    [
        ("alpha * acc + beta * c", True, True),
        ("relu(c * x * beta - alpha * -acc)", True, True),
        ("acc + beta * relu(c)", True, False),
        ("alpha * acc + beta * c + c", False, True),
        ("alpha * (acc + c)", False, True),
        ("alpha + acc + c", False, False),
        ("acc / alpha + beta / c", False, False),
    ],
)
def test_whether_a_factor_of_zero_leaves_an_operand_unread(text, scales_c, scales_products):
    epilogue = dx.Epilogue(text)
    assert (epilogue.scales_c, epilogue.scales_products) == (scales_c, scales_products)


def test_a_number_by_value_may_be_declared_an_f32():
    assert dx.Epilogue("acc * x", x="f32") == dx.Epilogue("acc * x")


# ---- refusals --------------------------------------------------------------------------------------------------------

REFUSALS = {
    "no expression": ("acc +", {}, None, "this is no expression"),
    "nothing": ("", {}, None, "this is no expression"),
    "an open bracket": ("relu(acc", {}, None, "never closed"),
    "a null byte": ("acc\0", {}, None, "cannot be parsed|no expression"),
    "another operator": ("acc ** 2", {}, 0, "this operator is not part of the language"),
    "a comparison": ("1 + (acc > 2)", {}, 5, "a comparison is not part"),
    "a condition": ("acc if 1 else 2", {}, 0, "a condition is not part"),
    "an attribute": ("1 + acc.real", {}, 4, "an attribute is not part"),
    "a call of an attribute": ("acc + os.system(1)", {}, 6, "'os.system' is no function here"),
    "a text": ("acc + 'x'", {}, 6, "'x' is no number"),
    "truth": ("acc + True", {}, 6, "True is no number"),
    "an imaginary number": ("acc + 1j", {}, 6, "is no number"),
    "a literal beyond f32": ("acc * 1e39", {}, 6, "beyond f32"),
    "an integer beyond f64": ("acc * 1" + "0" * 400, {}, 6, "beyond f32"),
    "an unknown function": ("rleu(acc)", {}, 0, "'rleu' is no function here"),
    "arguments": ("acc + clamp(acc, 1)", {}, 6, "clamp with 2 arguments"),
    "arguments by name": ("relu(x=acc)", {}, 0, "some by name"),
    "starred arguments": ("relu(*acc)", {}, 5, "not part of the language"),
    "a function that is not called": ("acc + relu", {}, 6, "relu is a function"),
    "no accumulator": ("alpha * c", {}, None, "acc does not occur"),
    "beta alone": ("acc * beta", {}, None, "beta without c"),
    "an unknown array": ("acc + bais[n]", {"bias": "f32"}, 6, "bais has no element type"),
    "an unused array": ("acc", {"bias": "f32"}, None, "bias is declared, and not used"),
    "an index that is none": ("acc + bias[k]", {"bias": "f32"}, 6, r"\[k\] is no index"),
    "a slice": ("acc + bias[:]", {"bias": "f32"}, 6, "is no index"),
    "indices the other way round": ("acc + r[n, m]", {"r": "f32"}, 6, "lies as C does"),
    "no index": ("acc + bias", {"bias": "f16"}, 6, "bias without an index"),
    "an index on acc": ("acc[m]", {}, 0, "acc with an index"),
    "two indices": ("acc + v[m] + v[n]", {"v": "f32"}, 13, r"it is v\[m\] elsewhere"),
    "a reserved name": ("acc + out[n]", {"out": "f32"}, None, "means something else"),
    "a word of C++": ("acc + register", {}, 6, "means something else"),
    "a member": ("acc + x_ld", {}, 6, "means something else"),
    "an upper-case name": ("acc + Bias", {}, 6, "is no operand's name"),
    "an element type": ("acc + v[n]", {"v": "f64"}, None, "elements are one of f32, f16"),
    "no element type": ("acc + v[n]", {"v": "half-full"}, None, "declares no element type"),
    "a type for acc": ("acc", {"acc": "f32"}, None, "the accumulator's type is the descriptor's"),
    "a letter that is not ASCII": ("acc + \N{GREEK SMALL LETTER ALPHA}", {}, 6, "not ASCII"),
    "too deep": ("relu(" * (MAX_DEPTH + 1) + "acc" + ")" * (MAX_DEPTH + 1), {}, None, "more than 40 operations"),
    "too many brackets": ("(" * 250 + "acc" + ")" * 250, {}, None, "cannot be parsed|no expression"),
    "too long": ("acc" + " + 1" * 300, {}, None, "1,203 characters"),
}


@pytest.mark.parametrize("situation", REFUSALS)
def test_a_refusal_says_where_and_what(situation):
    text, types, column, reason = REFUSALS[situation]
    with pytest.raises(dx.EpilogueError, match=reason) as caught:
        dx.Epilogue(text, **types)
    assert isinstance(caught.value, ValueError)
    if column is not None:
        assert caught.value.column == column
        *_, marked, caret = str(caught.value).split("^")[0].split("\n")
        assert caret == " " * (2 + column)
        assert marked.strip() == " ".join(text.split())


def test_a_text_is_needed():
    with pytest.raises(dx.EpilogueError, match="not int"):
        dx.Epilogue(3)


def test_what_an_accumulator_can_be_stored_as():
    for accumulator, legal in OUTPUTS.items():
        for element in ("f32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "s32", "f64"):
            if element in legal:
                DEFAULT.require_output(Element.of(accumulator), Element.of(element))
            else:
                with pytest.raises(dx.EpilogueError, match=f"cannot be stored as {element}"):
                    DEFAULT.require_output(Element.of(accumulator), Element.of(element))
    with pytest.raises(dx.EpilogueError, match="it can as f32, f16, bf16, e4m3, e5m2, s8"):
        dx.suggest_pipeline(tile(), output="u8")


# ---- what it means ---------------------------------------------------------------------------------------------------


def test_the_reference_by_hand():
    acc = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
    bias, scale = np.array([1.0, 1.5, -9.0]), np.array([2.0, 10.0])
    got = LONG.reference(acc, alpha=2.0, bias=bias, scale=scale)
    np.testing.assert_array_equal(got, [[6.0, 0.0, 0.0], [90.0, 115.0, 0.0]])
    assert got.dtype == np.float32


def test_the_reference_reads_no_c_where_beta_is_zero():
    acc, c = np.ones((2, 3)), np.full((2, 3), np.nan)
    scaled = dx.Epilogue("acc + beta * (1 / c) + scale[m] * beta * c", scale="f32")
    np.testing.assert_array_equal(scaled.reference(acc, c, beta=0, scale=np.array([np.inf, 1])), acc)
    assert np.isnan(dx.Epilogue("acc + c").reference(acc, c)).all()


def test_the_reference_rounds_and_saturates():
    acc = np.array([[300.0, -300.0, 2.5, 3.5, np.nan, 1e6]])
    np.testing.assert_array_equal(dx.Epilogue("acc").reference(acc, output="s8"), [[127, -128, 2, 4, 0, 127]])
    np.testing.assert_array_equal(dx.Epilogue("acc").reference(acc, output="u8"), [[255, 0, 2, 4, 0, 255]])
    got = dx.Epilogue("acc").reference(acc, output="e4m3").astype(np.float32)
    np.testing.assert_array_equal(got, [[288, -288, 2.5, 3.5, np.nan, 448]])
    np.testing.assert_array_equal(dx.Epilogue("s8(acc) / 2").reference(acc), [[63.5, -64, 1, 2, 0, 63.5]])
    assert np.isinf(dx.Epilogue("acc").reference(acc, output="f16")[0, -1])


def test_batches_of_the_reference():
    acc = np.arange(24.0).reshape(2, 3, 4)
    epilogue = dx.Epilogue("acc + v[m] + w[n] + s[0]", v="f32", w="f32", s="f32")
    v, w, s = np.ones((2, 3)), np.arange(4.0), np.array([10.0, 20.0])
    got = epilogue.reference(acc, v=v, w=w, s=s)
    np.testing.assert_array_equal(got, acc + v[:, :, None] + w + s[:, None, None])


# ---- what it costs ---------------------------------------------------------------------------------------------------


def test_a_description_counts_bytes_by_hand():
    text = LONG.describe("f32", "bf16", tile=(128, 256))
    assert "bias[n]          bf16, 2 B a column" in text
    assert "512 B" in text
    assert f"{128 * 256 * 2:,} B" in text
    assert "unless beta is 0" in text
    assert "about 5 operations" in text  # a product, a product fused with a sum, a sum, relu, a product


# ---- what it becomes -------------------------------------------------------------------------------------------------


def context(
    text: str, accumulator: str = "f32", output: str = "bf16", *, c_row_major: bool = True, **types: str
) -> EpilogueContext:
    epilogue = dx.Epilogue(text, **types)
    return EpilogueContext.of(epilogue, Element.of(accumulator), Element.of(output), c_row_major=c_row_major)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("alpha * acc + beta * c", "problem.alpha * value[i] + problem.beta * c[i]"),
        ("--acc", "-(-value[i])"),
        ("acc - (x - 1)", "value[i] - (problem.x - 1.0f)"),
        ("clamp(acc, -1, x)", "minimum(maximum(value[i], -1.0f), problem.x)"),
        ("e4m3(acc)", "round_to_e4m3(value[i])"),
        ("acc + beta / c", "value[i] + problem.beta / c[i]"),
        ("acc + beta * e4m3(c) * 2", "value[i] + problem.beta * round_to_e4m3(c[i]) * 2.0f"),
        ("acc + beta * (1 / c)", "value[i] + (problem.beta != 0 ? problem.beta * (1.0f / c[i]) : 0.0f)"),
        ("acc + x * beta * c", "value[i] + (problem.beta != 0 ? problem.x * problem.beta * c[i] : 0.0f)"),
    ],
)
def test_the_text_of_an_expression(text, becomes):
    assert " ".join(context(text).result) == becomes


def test_results_of_sixteen_bits_and_fewer_take_the_cheaper_functions():
    assert context("gelu(acc)", output="f32").result == ("gelu(value[i])",)
    for output in ("f16", "bf16", "e4m3", "s8"):
        assert context("gelu(acc)", output=output).result == ("gelu_rough(value[i])",)


def test_integer_sums_are_computed_in_doubles():
    made = context("min(acc * 0.5, x)", "s32", "s8")
    assert made.value == "double"
    assert made.result == ("minimum(Value(value[i] * 0.5), Value(problem.x))",)


def test_c_of_another_type_is_read_by_the_epilogue_itself():
    own = context("alpha * acc + beta * c", c="e4m3")
    assert not own.reads_c
    assert any("problem.c" in line and "problem.beta != 0" in line for line in own.places)
    assert context("alpha * acc + beta * c", c="bf16").reads_c


def test_every_function_and_cast_has_a_device_function():
    from blasdx.codegen import device_library

    for name, function in FUNCTIONS.items():
        for output in ("f32", "bf16"):
            call = f"{name}({', '.join(['acc'] * len(function.parameters))})"
            body = " ".join(context(call, output=output).result)
            used = body.split("(")[0]
            assert used == "tanhf" or f" {used}(" in device_library(body)[1]
    for cast in CASTS:
        assert f" round_to_{cast}(" in device_library(f"round_to_{cast}(x)")[1]


def test_the_struct_holds_what_the_expression_names():
    epilogue = dx.Epilogue("acc * x + r[m, n] + v[n]", r="f16", v="f32")
    fields = ProblemStruct.of(epilogue, Element.of("bf16"))
    assert fields.names == (
        "out", "r", "v", "out_ld", "r_ld", "v_step", "out_batch", "r_batch", "v_batch",
        "m", "n", "k", "batches", "a_batch", "b_batch", "x",
    )  # fmt: skip
    assert fields.addresses == ("out", "r", "v")
    assert fields.size % 8 == 0
    values = {name: number for number, name in enumerate(fields.names, 1)}
    assert fields.pack(**values) == struct.pack("<9Q6If4x", *range(1, 17))


def test_the_struct_of_the_default_epilogue():
    assert ProblemStruct.of(DEFAULT, Element.of("f32")).size == 80
