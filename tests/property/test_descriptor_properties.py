"""What holds for every descriptor."""

from __future__ import annotations

import pickle
from functools import reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blasdx.descriptor import Descriptor, promote
from blasdx.errors import DuplicateOperatorError
from blasdx.operators import MaxAlignment, Operator
from tests.property.strategies import BY_KIND, descriptors, operator_lists
from tests.unit.pasting import pasted


@st.composite
def groupings(draw: st.DrawFn) -> tuple[list[Operator], Descriptor | Operator]:
    """Operators, and one way to add them up: any order, any parentheses."""
    operators = draw(operator_lists().filter(bool))
    terms: list[Descriptor | Operator] = list(draw(st.permutations(operators)))
    while len(terms) > 1:
        place = draw(st.integers(0, len(terms) - 2))
        terms[place : place + 2] = [terms[place] + terms[place + 1]]
    return operators, terms[0]


@given(groupings())
def test_every_order_and_every_grouping_is_the_same_descriptor(
    case: tuple[list[Operator], Descriptor | Operator],
) -> None:
    operators, total = case
    straight = reduce(add, operators)
    assert promote(total) == promote(straight) == Descriptor(*operators)
    assert hash(total) == hash(straight)
    assert promote(total).fingerprint == promote(straight).fingerprint


@given(operator_lists().filter(bool), st.data())
def test_a_second_operator_of_a_kind_is_refused_wherever_it_stands(
    operators: list[Operator], data: st.DataObject
) -> None:
    kind = type(data.draw(st.sampled_from(operators)))
    again = data.draw(BY_KIND[kind])
    for make in (lambda: Descriptor(*operators) + again, lambda: again + Descriptor(*operators)):
        with pytest.raises(DuplicateOperatorError) as caught:
            make()
        assert caught.value.operator == kind.__name__


@given(st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_an_alias_is_a_duplicate_of_what_it_stands_for(value: int) -> None:
    from blasdx.operators import Alignment

    with pytest.raises(DuplicateOperatorError, match="Alignment comes twice"):
        _ = MaxAlignment() + Alignment(value, value, value)


@given(descriptors)
def test_text_json_and_pickle_lead_back(descriptor: Descriptor) -> None:
    assert promote(pasted(repr(descriptor))) == descriptor
    assert Descriptor.model_validate_json(descriptor.model_dump_json()) == descriptor
    assert pickle.loads(pickle.dumps(descriptor)) == descriptor
    assert str(descriptor).startswith(
        "an empty descriptor" if not descriptor.operators else repr(descriptor.operators[0])
    )


@given(descriptors)
def test_what_is_missing_is_said(descriptor: Descriptor) -> None:
    kinds = {type(operator).__name__ for operator in descriptor.operators}
    assert set(descriptor.missing) == {"Size", "Function", "SM"} - kinds
    assert descriptor.is_complete == (not descriptor.missing)
    assert ("still lacks" in str(descriptor)) == bool(descriptor.missing)


@given(descriptors)
def test_traits_agree_with_each_other(descriptor: Descriptor) -> None:
    if "Size" in descriptor.missing:
        return
    ld = descriptor.leading_dimension
    shapes = (descriptor.a_shape, descriptor.b_shape, descriptor.c_shape)
    sizes = (descriptor.a_size, descriptor.b_size, descriptor.c_size)
    for (name, order), shape, size in zip(descriptor.arrangement, shapes, sizes, strict=True):
        lines = shape[0] if order == "row_major" else shape[1]
        assert size == lines * getattr(ld, name)
    assert shapes == ((descriptor.m, descriptor.k), (descriptor.k, descriptor.n), (descriptor.m, descriptor.n))
