"""Descriptors: sums of operators, cuBLASDx's defaults, and its traits."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pydantic
import pytest

import blasdx
from blasdx.descriptor import Descriptor, promote
from blasdx.elements import bf16, e4m3, f16, f32, f64, s32, u8
from blasdx.errors import DescriptorError, DuplicateOperatorError, MissingOperatorError, NotAnOperatorError
from blasdx.operators import (
    MM,
    SM,
    Alignment,
    Arrangement,
    Block,
    BlockDim,
    BlocksPerCluster,
    EnableInputStreaming,
    Function,
    Kind,
    LeadingDimension,
    MaxAlignment,
    Precision,
    RequiredMantissaBits,
    Size,
    StaticBlockDim,
    Type,
    WithPipeline,
    arch_specific,
    col_major,
    generic,
    real,
    row_major,
)

CARD = (
    Size(128, 256, 64)
    + Precision(bf16, bf16, f32)
    + Type(real)
    + Function(MM)
    + Arrangement(row_major, col_major, row_major)
    + Block()
    + BlockDim(128)
    + MaxAlignment()
    + WithPipeline()
    + EnableInputStreaming()
    + SM(1000, arch_specific)
)
TINY = Size(6, 5, 7) + Function(MM) + SM(750)


# ---- sums


def test_a_sum_has_no_order_and_no_grouping() -> None:
    a, b, c, d = Size(6, 5, 7), SM(900), Block(), BlockDim(128)
    assert ((a + b) + c) + d == a + (b + (c + d)) == (d + c) + (b + a) == Descriptor(d, a, c, b)
    assert hash(a + b) == hash(b + a)
    assert a + b != a + SM(1000)


def test_a_duplicate_is_refused_and_names_both() -> None:
    with pytest.raises(
        DuplicateOperatorError, match=r"Size comes twice, Size\(6, 5, 7\) and Size\(1, 1, 1\)"
    ) as caught:
        _ = TINY + Size(1, 1, 1)
    assert caught.value.operator == "Size"
    assert isinstance(caught.value, ValueError)
    assert r"with_(Size(1, 1, 1))" in str(caught.value), "it says how to change one"
    with pytest.raises(DuplicateOperatorError, match=r"Block comes twice, both times Block\(\)"):
        _ = Block() + Block()
    with pytest.raises(DuplicateOperatorError, match="Function comes twice"):
        _ = (Size(6, 5, 7) + Function(MM)) + (Block() + Function(MM))
    with pytest.raises(DuplicateOperatorError, match="Alignment comes twice"):
        _ = MaxAlignment() + Alignment(16, 16, 16)


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (3, "3 is none; operators are Size, Precision"),
        ("Size", "'Size' is none"),
        (None, "None is none"),
        (WithPipeline, r"WithPipeline is none: write WithPipeline\(\)"),
        (MaxAlignment, r"MaxAlignment is none: write MaxAlignment\(\)"),
        (Size, r"Size is none: write Size\(...\) with its arguments"),
        (f16, "f16 is none"),
    ],
)
def test_what_is_no_operator_is_refused_on_either_side(thing: object, told: str) -> None:
    for left, right in ((TINY, thing), (Block(), thing), (thing, TINY), (thing, Block())):
        with pytest.raises(NotAnOperatorError, match=told) as caught:
            _ = left + right  # type: ignore[operator]
        assert isinstance(caught.value, TypeError)
        assert caught.value.value is thing


def test_a_half_built_sum_says_what_it_lacks() -> None:
    half = Size(6, 5, 7) + Block()
    assert (half.missing, half.is_complete) == (("Function", "SM"), False)
    assert str(half) == "Size(6, 5, 7) + Block() (still lacks: Function, SM)"
    assert str(Descriptor()) == "an empty descriptor (still lacks: Size, Function, SM)"
    assert str(TINY) == "Size(6, 5, 7) + Function(MM) + SM(750)"
    assert (TINY.is_complete, TINY.is_executable, (TINY + Block()).is_executable) == (True, False, True)


def test_operators_are_changed_by_name() -> None:
    assert TINY.with_(Size(1, 2, 3), Block()) == Size(1, 2, 3) + Function(MM) + SM(750) + Block()
    assert CARD.without(BlockDim, SM).missing == ("SM",)
    assert TINY.without(Block) == TINY
    assert TINY.size == Size(6, 5, 7), "the old one stays what it was"


def test_a_single_operator_is_promoted() -> None:
    assert promote(Size(6, 5, 7)) == Descriptor(Size(6, 5, 7))
    assert promote(TINY) is TINY


# ---- values


@pytest.mark.parametrize("descriptor", [CARD, TINY, Descriptor(), Descriptor(Block()), CARD.without(SM)], ids=str)
def test_a_descriptor_round_trips(descriptor: Descriptor) -> None:
    namespace = {name: getattr(blasdx, name) for name in blasdx.__all__}
    assert eval(repr(descriptor), namespace) == descriptor  # noqa: S307
    assert Descriptor.model_validate_json(descriptor.model_dump_json()) == descriptor
    assert Descriptor.model_validate(descriptor.model_dump()) == descriptor
    assert pickle.loads(pickle.dumps(descriptor)) == descriptor == copy.deepcopy(descriptor)


def test_a_descriptor_is_frozen() -> None:
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        TINY.operators = ()  # type: ignore[misc]


def test_json_is_operators_by_name() -> None:
    assert TINY.model_dump() == {
        "operators": {
            "Size": {"m": 6, "n": 5, "k": 7},
            "Function": {"operation": "MM"},
            "SM": {"arch": 750, "modifier": "generic"},
        }
    }


def test_the_json_schema_describes_what_is_written() -> None:
    written = Descriptor.model_json_schema()["properties"]["operators"]["properties"]
    for name, fields in CARD.model_dump()["operators"].items():
        assert set(written[name]["properties"]) == set(fields)


def test_broken_json_is_refused_by_name() -> None:
    with pytest.raises(pydantic.ValidationError, match="no operator is called 'Siez'; operators are Size"):
        Descriptor.model_validate({"operators": {"Siez": {}}})
    with pytest.raises(pydantic.ValidationError, match="Size's m is 0; legal"):
        Descriptor.model_validate_json('{"operators": {"Size": {"m": 0, "n": 1, "k": 1}}}')


def test_the_fingerprint_is_the_operators_and_the_same_everywhere() -> None:
    code = "from tests.unit.test_descriptor import CARD; print(CARD.fingerprint)"
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert elsewhere == CARD.fingerprint
    assert len(CARD.fingerprint) == 12
    assert CARD.fingerprint != CARD.with_(Size(128, 256, 80)).fingerprint


# ---- defaults and traits


def test_defaults_are_those_of_cublasdx() -> None:
    assert TINY.precision == Precision(f32, f32, f32)
    assert TINY.type is Kind.real
    assert TINY.function is MM
    assert TINY.arrangement == Arrangement(row_major, col_major, col_major)
    assert TINY.alignment == Alignment(4, 4, 4)
    assert TINY.leading_dimension == LeadingDimension(7, 7, 6)
    assert (TINY.block_dim, TINY.block_threads) == (None, None), "the library's choice"
    assert TINY.sm.modifier is generic
    flags = (TINY.with_pipeline, TINY.enable_input_streaming, TINY.static_block_dim)
    assert not any(flags)
    assert (TINY.blocks_per_cluster, TINY.required_mantissa_bits) == ((1, 1), None)


def test_traits_of_the_card() -> None:
    assert (CARD.m, CARD.n, CARD.k) == (128, 256, 64)
    assert (CARD.a_shape, CARD.b_shape, CARD.c_shape) == ((128, 64), (64, 256), (128, 256))
    assert (CARD.a_size, CARD.b_size, CARD.c_size) == (128 * 64, 64 * 256, 128 * 256)
    assert (CARD.a_value_type, CARD.b_value_type, CARD.c_value_type) == (bf16, bf16, f32)
    assert CARD.leading_dimension == LeadingDimension(64, 64, 256)
    assert (CARD.block_dim, CARD.block_threads) == ((128, 1, 1), 128)
    assert (CARD.sm.arch, CARD.sm.modifier, CARD.sm.target) == (1000, arch_specific, "sm_100a")
    assert CARD.with_pipeline
    assert CARD.enable_input_streaming


def test_sizes_count_the_padding_of_leading_dimensions() -> None:
    padded = TINY + LeadingDimension(9, 8, 10)
    assert (padded.a_size, padded.b_size, padded.c_size) == (9 * 6, 8 * 5, 10 * 5)
    turned = padded + Arrangement(col_major, row_major, row_major)
    assert (turned.a_size, turned.b_size, turned.c_size) == (9 * 7, 8 * 7, 10 * 6)
    assert turned.tight_leading_dimension == LeadingDimension(6, 5, 5)


def test_complex_values_are_pairs_and_align_as_such() -> None:
    pairs = TINY + Type("complex") + Precision(f16, e4m3, f64)
    assert (pairs.a_value_type.name, pairs.b_value_type.itemsize) == ("complex<f16>", 2)
    assert pairs.alignment == Alignment(4, 2, 16)
    assert (TINY + Precision(u8, u8, s32)).alignment == Alignment(1, 1, 4)


def test_other_operators_answer_for_themselves() -> None:
    full = TINY + BlockDim(16, 4) + StaticBlockDim() + BlocksPerCluster(4, 2) + RequiredMantissaBits(23)
    assert (full.block_dim, full.block_threads, full.static_block_dim) == ((16, 4, 1), 64, True)
    assert (full.blocks_per_cluster, full.required_mantissa_bits) == ((4, 2), 23)
    assert full.get(BlockDim) == BlockDim(16, 4)
    assert full.get(WithPipeline) is None
    assert StaticBlockDim in full
    assert WithPipeline not in full


def test_a_trait_without_default_says_what_is_missing() -> None:
    half = Block() + BlockDim(64)
    for trait, name in (("m", "Size"), ("a_shape", "Size"), ("sm", "SM"), ("leading_dimension", "Size")):
        with pytest.raises(MissingOperatorError, match=f"has no {name}, which has no default") as caught:
            getattr(half, trait)
        assert caught.value.operator == name
        assert isinstance(caught.value, DescriptorError)
