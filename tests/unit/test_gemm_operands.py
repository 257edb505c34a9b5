"""Operands that a kernel cannot take are refused, each with its rule, before anything is launched."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiles import tile

from blasdx.descriptor import Descriptor
from blasdx.errors import OperandError
from blasdx.operands import Operand, Product, bind
from blasdx.operators import Alignment

bf16 = np.dtype(ml_dtypes.bfloat16)


def see(name: str, array: Any, *, shift: int = 0) -> Operand:
    """An array as a device sees it, at an address that is a multiple of 256 plus `shift` and the view's own offset."""
    if isinstance(array, Operand):
        return array
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    address = (1 << 20) * (1 + ord(name[0])) + array.ctypes.data - base.ctypes.data + shift
    return Operand(name, array.shape, array.strides, array.dtype, address, array.flags.writeable, array)


def zeros(rows: int, columns: int, order: str = "row", dtype: Any = bf16, ld: int | None = None) -> Any:
    """A matrix with `ld` elements from one row (column) to the next; tight when left out."""
    inner, outer = (columns, rows) if order == "row" else (rows, columns)
    lines = np.zeros((outer, ld or inner), dtype)[:, :inner]
    return lines if order == "row" else lines.T


def call(descriptor: Descriptor | None = None, m: int = 130, n: int = 75, k: int = 72, **changed: Any) -> Product:
    descriptor = descriptor or tile((128, 256, 64))
    order = descriptor.arrangement
    operands: dict[str, Any] = {
        "a": zeros(m, k, order.a.value[:3].strip("_")),
        "b": zeros(k, n, order.b.value[:3].strip("_")),
        "c": None,
        "out": None,
    }
    scalars = {name: changed.pop(name) for name in ("alpha", "beta") if name in changed}
    operands |= changed
    return bind(descriptor, *(x if x is None else see(name, x) for name, x in operands.items()), **scalars)


def broken(**changed: Any) -> list[tuple[str, str]]:
    """Operand and rule of everything that is wrong with a call."""
    with pytest.raises(OperandError) as caught:
        call(**changed)
    assert caught.value.operand == caught.value.misses[0].operand
    for miss in caught.value.misses:
        assert str(miss) in str(caught.value)
        assert all((miss.got, miss.need, miss.why, miss.fix))
    return [(miss.operand, miss.rule) for miss in caught.value.misses]


def broken_or_none(**changed: Any) -> list[tuple[str, str]]:
    try:
        call(**changed)
    except OperandError:
        return broken(**changed)
    return []


# ---- what is taken --------------------------------------------------------------------------------------------------


def test_tight_operands() -> None:
    product = call(m=130, n=75, k=72)
    assert (product.m, product.n, product.k) == (130, 75, 72)
    assert (product.a.inner, product.a.outer, product.a.ld) == (72, 130, 72)
    assert (product.b.inner, product.b.outer, product.b.ld) == (72, 75, 72)
    assert product.c is None
    assert product.out is None
    assert (product.alpha, product.beta) == (1, 0)


def test_majorness_decides_which_stride_is_the_leading_dimension() -> None:
    product = call(tile(a="col", b="row", c="col"), m=136, n=80, k=7, out=zeros(136, 80, "col", np.float32, ld=141))
    assert (product.a.inner, product.a.outer, product.a.ld) == (136, 7, 136)
    assert (product.b.inner, product.b.outer, product.b.ld) == (80, 7, 80)
    assert (product.result.inner, product.result.outer, product.result.ld) == (136, 80, 141)


def test_padded_rows_and_offset_views() -> None:
    a = zeros(130, 200, ld=208)[:, 8:80]
    product = call(a=a)
    assert (product.a.inner, product.a.ld) == (72, 208)
    assert product.a.operand.address % 256 == 16


def test_c_is_bound_only_when_beta_reads_it() -> None:
    c = zeros(130, 75, dtype=np.float32)
    assert call(c=c, beta=0.5).c is not None
    assert call(c=c, beta=0.0).c is None


def test_result_may_have_any_leading_dimension_and_address() -> None:
    out = see("out", zeros(130, 75, dtype=np.float32, ld=77), shift=4)
    assert call(out=out).result.ld == 77


@pytest.mark.parametrize(("m", "n", "k"), [(1, 75, 72), (130, 1, 72), (130, 75, 1), (1, 1, 1)])
def test_one_line_has_a_legal_leading_dimension_whatever_its_stride(m: int, n: int, k: int) -> None:
    a = Operand("a", (m, k), (2 * k if m > 1 and k % 8 == 0 else 16 if m > 1 else 3, 2), bf16, 4096)
    b = Operand("b", (k, n), (2, 2 * k if n > 1 and k % 8 == 0 else 16 if n > 1 else -5), bf16, 8192)
    product = call(a=a, b=b)
    assert product.a.stride % 16 == 0
    assert product.b.stride % 16 == 0
    assert product.a.stride >= 2 * k


@pytest.mark.parametrize(("m", "n", "k"), [(0, 75, 72), (130, 0, 72), (130, 75, 0), (0, 0, 0)])
def test_empty_problems(m: int, n: int, k: int) -> None:
    product = call(m=m, n=n, k=k)
    assert (product.m, product.n, product.k) == (m, n, k)


def test_c_may_be_the_result_itself() -> None:
    c = zeros(130, 75, dtype=np.float32)
    out = see("c", c)
    product = call(c=c, out=Operand("out", out.shape, out.strides, out.dtype, out.address), beta=1.0)
    assert product.result.ld == 75


def test_bands_of_one_wider_matrix_do_not_overlap() -> None:
    """The rows of out lie in the gaps of c: the spans meet, the elements do not."""
    wide = Operand("c", (130, 75), (800, 4), np.dtype(np.float32), 1 << 16)
    out = Operand("out", (130, 75), (800, 4), np.dtype(np.float32), (1 << 16) + 300)
    assert call(c=wide, out=out, beta=1.0).result.ld == 200


# ---- what is not ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"a": np.zeros(72, bf16)}, ("a", "rank")),
        ({"b": np.zeros((), bf16)}, ("b", "rank")),
        ({"b": zeros(80, 75, "col")}, ("b", "shape")),
        ({"out": zeros(75, 130, dtype=np.float32)}, ("out", "shape")),
        ({"c": zeros(130, 1, dtype=np.float32), "beta": 1.0}, ("c", "shape")),
        ({"a": zeros(130, 72, dtype=np.float16)}, ("a", "element-type")),
        ({"b": zeros(72, 75, "col", np.uint16)}, ("b", "element-type")),
        ({"a": zeros(130, 72, dtype=np.dtype(">f2"))}, ("a", "element-type")),
        ({"out": zeros(130, 75, dtype=bf16)}, ("out", "element-type")),
        ({"a": zeros(130, 72, "col", ld=136)}, ("a", "arrangement")),
        ({"b": zeros(72, 75, "row", ld=80)}, ("b", "arrangement")),
        ({"out": zeros(130, 75, "col", np.float32)}, ("out", "arrangement")),
        ({"a": zeros(130, 144)[:, ::2]}, ("a", "contiguity")),
        ({"a": zeros(130, 72)[::-1]}, ("a", "negative-stride")),
        ({"a": zeros(130, 72)[:, ::-1]}, ("a", "negative-stride")),
        ({"a": np.broadcast_to(zeros(1, 72), (130, 72))}, ("a", "leading-dimension")),
        ({"out": np.broadcast_to(zeros(1, 75, dtype=np.float32), (130, 75))}, ("out", "leading-dimension")),
        ({"a": Operand("a", (130, 72), (145, 2), bf16, 4096)}, ("a", "leading-dimension")),
        ({"a": Operand("a", (2, 72), (1 << 40, 2), bf16, 4096), "m": 2}, ("a", "leading-dimension")),
        ({"a": see("a", zeros(130, 72), shift=8)}, ("a", "pointer-alignment")),
        ({"b": zeros(144, 75, "col", ld=148)[:72]}, ("b", "leading-dimension-alignment")),
        ({"alpha": 1j}, ("alpha", "scalar")),
        ({"alpha": "2"}, ("alpha", "scalar")),
        ({"alpha": np.ones(1)}, ("alpha", "scalar")),
        ({"beta": np.complex64(1)}, ("beta", "scalar")),
        ({"alpha": 1e39}, ("alpha", "scalar")),
        ({"beta": 1.0}, ("c", "missing")),
        ({"c": zeros(130, 75, dtype=np.float32)}, ("c", "unused")),
    ],
)
def test_broken_rule(changed: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in broken(**changed)


def test_ragged_k_says_how_far_to_pad() -> None:
    with pytest.raises(OperandError) as caught:
        call(k=37)
    text = str(caught.value)
    assert "a: 74 B from one row to the next (37 elements of 2 B); needs a multiple of 16 B" in text
    assert "pad the leading dimension to 40 elements: blasdx.padded(a, 'row')" in text
    assert "pad the leading dimension to 40 elements: blasdx.padded(b, 'col')" in text
    assert call(k=37, a=zeros(130, 37, ld=40), b=zeros(37, 75, "col", ld=40)).k == 37


def test_a_promised_alignment_above_16_is_held_to() -> None:
    promised = tile().with_(Alignment(32, 16, 16))
    with pytest.raises(OperandError, match="a multiple of 32 B"):
        call(promised, k=72)
    assert call(promised, k=80).k == 80


def test_every_broken_rule_is_listed_at_once() -> None:
    found = broken(
        a=zeros(130, 72, dtype=np.float16),
        b=zeros(80, 75, "row", ld=80),
        out=zeros(130, 74, dtype=np.float32),
        alpha=float("1e300"),
    )
    expected = [("a", "element-type"), ("b", "arrangement"), ("b", "shape"), ("out", "shape"), ("alpha", "scalar")]
    assert sorted(found) == sorted(expected)


def test_read_only_result() -> None:
    out = zeros(130, 75, dtype=np.float32)
    out.flags.writeable = False
    assert broken(out=out) == [("out", "read-only")]


@pytest.mark.parametrize("name", ["a", "b"])
def test_result_that_overlaps_an_input(name: str) -> None:
    out = Operand("out", (130, 75), (300, 4), np.dtype(np.float32), see(name, np.zeros(1)).address + 16)
    assert broken(out=out) == [("out", "overlap")]


def test_result_that_is_c_but_shifted() -> None:
    c = see("c", zeros(130, 75, dtype=np.float32))
    out = Operand("out", c.shape, c.strides, c.dtype, c.address + 300)
    assert broken(c=c, out=out, beta=1.0) == [("out", "overlap")]


@pytest.mark.parametrize(("axis", "operand"), [("m", "a"), ("n", "b"), ("k", "a")])
def test_extents_beyond_32_bits(axis: str, operand: str) -> None:
    extents = {"m": 8, "n": 8, "k": 8} | {axis: 2**31}
    m, n, k = extents["m"], extents["n"], extents["k"]
    a = Operand("a", (m, k), (2 * k, 2), bf16, 4096)
    b = Operand("b", (k, n), (2, 2 * k), bf16, 1 << 50)
    assert (operand, "extent") in broken(a=a, b=b)
    last = {axis: 2**31 - 256}
    m, n, k = ((extents | last)[name] for name in "mnk")
    assert (
        call(a=Operand("a", (m, k), (2 * k, 2), bf16, 4096), b=Operand("b", (k, n), (2, 2 * k), bf16, 1 << 50)).m == m
    )


def test_too_many_tiles() -> None:
    a = Operand("a", (2**30, 8), (16, 2), bf16, 4096)
    b = Operand("b", (8, 2**30), (2, 16), bf16, 1 << 50)
    assert broken(a=a, b=b) == [("out", "extent")]


# ---- overlap, against looking at every element ----------------------------------------------------------------------


@given(data=st.data())
def test_overlap_agrees_with_the_bytes(data: st.DataObject) -> None:
    """Refused whenever a byte is shared; never refused for equal leading dimensions when none is."""
    m, n = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    ld_c, ld_out = (data.draw(st.integers(n, 12)) for _ in range(2))
    shift = data.draw(st.integers(-60, 60))
    c = Operand("c", (m, n), (4 * ld_c, 4), np.dtype(np.float32), 1 << 16)
    out = Operand("out", (m, n), (4 * ld_out, 4), np.dtype(np.float32), (1 << 16) + 4 * shift)
    elements_c = {i * ld_c + j for i in range(m) for j in range(n)}
    elements_out = {shift + i * ld_out + j for i in range(m) for j in range(n)}
    same = shift == 0 and (ld_c == ld_out or m == 1)
    operands = {"a": zeros(m, 72), "b": zeros(72, n, "col"), "c": c, "out": out}
    rules = broken_or_none(m=m, n=n, beta=1.0, **operands)
    assert set(rules) <= {("out", "overlap")}
    if elements_c & elements_out and not same:
        assert rules
    elif ld_c == ld_out or m == 1:
        assert not rules
