"""Operators: cuBLASDx's names and arguments, and refusals that say what is legal."""

from __future__ import annotations

import inspect
import json
import pickle

import ml_dtypes
import numpy as np
import pydantic
import pytest

import blasdx
from blasdx.elements import bf16, e4m3, f16, f32, s8, s32
from blasdx.operators import (
    MM,
    OPERATORS,
    SM,
    Alignment,
    Arrangement,
    Block,
    BlockDim,
    BlocksPerCluster,
    Function,
    LeadingDimension,
    MaxAlignment,
    Operator,
    Precision,
    RequiredMantissaBits,
    Size,
    Type,
    arch_specific,
    col_major,
    generic,
    real,
    row_major,
)

EXAMPLES: tuple[Operator, ...] = (
    Size(128, 256, 64),
    Precision(bf16, bf16, f32),
    Type(real),
    Type("complex"),
    Function(MM),
    Arrangement(row_major, col_major, row_major),
    LeadingDimension(72, 64, 264),
    Alignment(16, 32, 4),
    MaxAlignment(),
    Block(),
    BlockDim(128),
    BlockDim(64, 2),
    BlockDim(16, 1, 4),
    blasdx.StaticBlockDim(),
    blasdx.WithPipeline(),
    blasdx.EnableInputStreaming(),
    BlocksPerCluster(4, 2),
    RequiredMantissaBits(52),
    SM(900),
    SM(1000, arch_specific),
)


def test_the_examples_cover_every_operator() -> None:
    assert {type(operator) for operator in EXAMPLES} == set(OPERATORS)


@pytest.mark.parametrize("operator", EXAMPLES, ids=repr)
def test_an_operator_round_trips(operator: Operator) -> None:
    namespace = {name: getattr(blasdx, name) for name in blasdx.__all__}
    assert eval(repr(operator), namespace) == operator  # noqa: S307
    assert type(operator).model_validate_json(operator.model_dump_json()) == operator
    assert pickle.loads(pickle.dumps(operator)) == operator
    assert hash(operator) == hash(type(operator).model_validate(json.loads(operator.model_dump_json())))


@pytest.mark.parametrize("operator", EXAMPLES, ids=repr)
def test_an_operator_is_frozen(operator: Operator) -> None:
    for name in type(operator).model_fields:
        with pytest.raises(pydantic.ValidationError, match="frozen"):
            setattr(operator, name, getattr(operator, name))


def test_positions_and_keywords_are_the_same() -> None:
    assert Size(1, 2, k=3) == Size(m=1, n=2, k=3) == Size(1, 2, 3)
    assert SM(1000, modifier="arch_specific") == SM(1000, arch_specific)
    assert str(inspect.signature(Size)) == "(m: int, n: int, k: int)"
    with pytest.raises(TypeError, match=r"Size takes 3 arguments \(m, n, k\), 4 given"):
        Size(1, 2, 3, 4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="m by position and by keyword"):
        Size(1, 2, 3, m=1)  # type: ignore[call-arg,misc]


def test_one_precision_stands_for_three() -> None:
    assert Precision("float") == Precision(f32, f32, f32) == Precision(np.float32)
    assert Precision(ml_dtypes.bfloat16, "__nv_bfloat16", "float32") == Precision(bf16, bf16, f32)
    assert Precision(np.int8, "int8_t", np.dtype("int32")) == Precision(s8, s8, s32)


def test_strings_stand_for_tags() -> None:
    assert Arrangement("row", "col", "row_major") == Arrangement(row_major, col_major, row_major)
    assert Arrangement("col_major", "row").c is col_major, "cuBLASDx's default of C"
    assert (Type("real"), Function("MM"), SM(900, "generic")) == (Type(real), Function(MM), SM(900, generic))
    assert Type(complex) == Type("complex"), "the repr is Type(complex), where `complex` is Python's own"


def test_any_integer_is_a_size_but_neither_true_nor_a_float() -> None:
    assert Size(np.int64(8), np.uint8(16), 24) == Size(8, 16, 24)  # type: ignore[arg-type]


def test_alignment_above_16_is_legal() -> None:
    assert tuple(dict(Alignment(32, 64, 128)).values()) == (32, 64, 128)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Size(-1, 8, 8), "Size's m is -1; legal: a whole number from 1 to 4294967295"),
        (lambda: Size(8, 0, 8), "Size's n is 0; legal: a whole number from 1"),
        (lambda: Size(8, 8, True), "Size's k is True; legal: a whole number"),
        (lambda: Size(8.0, 8, 8), "Size's m is 8.0; legal: a whole number"),
        (lambda: Size("8", 8, 8), "Size's m is '8'; legal: a whole number"),
        (lambda: Size(8, 2**40, 8), "Size's n is 1099511627776; legal: a whole number from 1 to 4294967295"),
        (lambda: Alignment(3, 16, 16), "Alignment's a is 3; legal: bytes as a power of two: 1, 2, 4, 8, 16, 32"),
        (lambda: Alignment(16, 0, 16), "Alignment's b is 0; legal: bytes as a power of two"),
        (lambda: Alignment(16, 16, 48), "Alignment's c is 48; legal: bytes as a power of two"),
        (lambda: LeadingDimension(0, 1, 1), "LeadingDimension's a is 0; legal: a whole number"),
        (lambda: Precision(bf16), "Precision's c is bf16; legal: f16, f32, f64, s32, u32, s64, u64"),
        (lambda: Precision(f16, f16, "tf32"), "Precision's c is 'tf32'; legal: f16, f32, f64, s32, u32, s64, u64"),
        (lambda: Precision(f16, f16, e4m3), "Precision's c is e4m3; legal: f16, f32, f64, s32, u32, s64, u64"),
        (lambda: Precision(s8, s8, s8), "Precision's c is s8; legal: f16, f32, f64, s32, u32, s64, u64"),
        (lambda: Precision(s8, s8, "int16"), "Precision's c is 'int16'; legal: f16"),
        (lambda: Precision("bf61", f16, f16), "Precision's a is 'bf61'; legal: f16, bf16, tf32, f32, f64, e4m3"),
        (lambda: Precision("complex64"), "Precision's a is 'complex64'; legal: the real type of its parts, f32"),
        (lambda: Precision(f16, f32), r"Precision\(f16, f32\) has two types; legal: one for all, or A, B and C"),
        (lambda: Type("imaginary"), "Type's kind is 'imaginary'; legal: real, complex"),
        (lambda: Type(row_major), "Type's kind is row_major; legal: real, complex"),
        (
            lambda: Function("TRSM"),
            "Function's operation is 'TRSM'; legal: MM; cuBLASDx's triangular solve is not here",
        ),
        (lambda: Arrangement("row", "column"), "Arrangement's b is 'column'; legal: row_major, col_major"),
        (lambda: BlockDim(0), "BlockDim's x is 0; legal: a whole number of threads from 1 to 1024"),
        (
            lambda: BlockDim(32, 33),
            r"BlockDim\(32, 33\) is not legal; legal: at most 1024 threads, and 32 x 33 x 1 = 1056",
        ),
        (lambda: BlocksPerCluster(8, 4), r"BlocksPerCluster\(8, 4\).*legal: at most 16 blocks, and 8 x 4 = 32"),
        (lambda: RequiredMantissaBits(53), "RequiredMantissaBits's bits is 53; legal: a whole number from 1 to 52"),
        (lambda: SM(1010), "SM's arch is 1010; legal: 750, 800.*renamed 1010 .Thor. to 1100"),
        (lambda: SM(100, arch_specific), "SM's arch is 100; legal: 750.*sm_100 is 1000"),
        (lambda: SM("sm_100a"), "SM's arch is 'sm_100a'; legal: 750"),
        (lambda: SM(1000, "a"), "SM's modifier is 'a'; legal: generic, arch_specific, family_specific"),
        (lambda: SM(890, arch_specific), r"SM\(890, arch_specific\) is not legal; legal: SM\(890\) generic"),
    ],
)
def test_an_illegal_field_names_operator_value_and_what_is_legal(make: object, told: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=told) as caught:
        make()  # type: ignore[operator]
    operator = told.split("'s ")[0].split("\\(")[0].split("(")[0]
    assert caught.value.title == operator, "the error's title is the operator"


def test_a_field_that_is_missing_or_unknown_is_a_validation_error_too() -> None:
    with pytest.raises(pydantic.ValidationError, match="Size\nk\n  Field required"):
        Size(1, 2)  # type: ignore[call-arg]
    with pytest.raises(pydantic.ValidationError, match="not permitted"):
        Size(1, 2, 3, l=4)  # type: ignore[call-arg,misc]
    with pytest.raises(pydantic.ValidationError, match="Field required"):
        Size.model_validate_json('{"m": 1}')


def test_max_alignment_is_an_alignment() -> None:
    assert MaxAlignment() == Alignment(16, 16, 16)
    assert repr(MaxAlignment()) == "Alignment(16, 16, 16)"


def test_an_sm_knows_its_compile_target() -> None:
    assert SM(1000, arch_specific).target == "sm_100a"
    assert SM(750).target == "sm_75"
