"""Batches: how they broadcast, what is refused, and that they are walked over in as few launches as there can be."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import tile

from blasdx.errors import OperandError
from blasdx.operands import Operand, Product, Walk, bind, walk

bf16 = ml_dtypes.bfloat16
f32 = np.float32
M, N, K = 5, 7, 24


def see(name: str, array: Any) -> Operand:
    return Operand(name, array.shape, array.strides, array.dtype, array.ctypes.data, array.flags.writeable, array)


def call(a: Any, b: Any, c: Any = None, out: Any = None, **given: Any) -> Product:
    """A product; b comes as (..., N, K)."""
    if out is None:
        out = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-2]), f32)
    named = {"a": a, "b": b.swapaxes(-1, -2), "c": c, "out": out}
    return bind(tile(), **{name: see(name, x) for name, x in named.items() if x is not None}, **given)


def zeros(*batches: int, rows: int = M, k: int = K, pad: int = 0) -> Any:
    return np.zeros((*batches, rows, k + pad), bf16)[..., :k]


def misses(*arrays: Any, **given: Any) -> list[tuple[str, str]]:
    with pytest.raises(OperandError) as caught:
        call(*arrays, **given)
    return [(miss.operand, miss.rule) for miss in caught.value.misses]


# ---- one launch where the steps agree


def test_no_batches_are_one_launch_of_one() -> None:
    assert walk(call(zeros(), zeros(rows=N))) == Walk(1, (0, 0, 0, 0))


@pytest.mark.parametrize("batches", [(3,), (2, 3), (4, 1, 5), (1,), (70_001,)])
def test_tight_batches_are_one_launch(batches: tuple[int, ...]) -> None:
    found = walk(call(zeros(*batches), zeros(*batches, rows=N)))
    count = int(np.prod(batches))
    steps = (M * K * 2, N * K * 2, 0, M * N * 4) if count > 1 else (0, 0, 0, 0)
    assert found == Walk(count, steps)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (zeros(), zeros(3, rows=N)),
        (zeros(1), zeros(3, rows=N)),
        (np.broadcast_to(zeros(1), (3, M, K)), zeros(3, rows=N)),
    ],
)
def test_an_operand_that_all_batches_share_has_no_step(a: Any, b: Any) -> None:
    assert walk(call(a, b)) == Walk(3, (0, N * K * 2, 0, M * N * 4))


def test_batches_that_lie_in_another_order_are_still_one_launch() -> None:
    """All operands have their two batch dimensions swapped, so that only the order in memory counts."""
    a, b = zeros(3, 2).swapaxes(0, 1), zeros(3, 2, rows=N).swapaxes(0, 1)
    out = np.zeros((3, 2, M, N), f32).swapaxes(0, 1)
    assert walk(call(a, b, out=out)) == Walk(6, (M * K * 2, N * K * 2, 0, M * N * 4))


def test_heads_between_the_rows_are_one_launch() -> None:
    """(row, batch, column) in memory, as attention has it: a batch's step is shorter than a row's."""
    a = np.zeros((M, 3, K), bf16).swapaxes(0, 1)
    product = call(a, zeros(rows=N))
    assert (product.a.ld, walk(product).steps[0]) == (3 * K, K * 2)


def test_dimensions_that_do_not_collapse_cost_a_launch_for_each_index_of_the_shorter() -> None:
    a, b = zeros(2, 1), zeros(5, rows=N)
    found = walk(call(a, b))
    assert (found.count, found.extents) == (5, (2,))
    assert list(found.offsets()) == [(0, 0, 0, 0), (M * K * 2, 0, 0, 5 * M * N * 4)]
    taller = walk(call(zeros(7, 1), zeros(5, rows=N)))
    assert (taller.count, taller.extents) == (7, (5,))


@settings(max_examples=200)
@given(st.data())
def test_every_batch_is_visited_once_at_its_own_addresses(data: Any) -> None:
    """Against indexing the arrays, for shared, swapped, sliced and padded batches."""
    batches = data.draw(st.lists(st.integers(1, 3), max_size=3).map(tuple))

    def operand(rows: int, dtype: Any = bf16, k: int = K, *, shared: bool = True) -> Any:
        order = data.draw(st.permutations(range(len(batches))))
        kept = [1 if shared and data.draw(st.booleans()) else extent for extent in batches]
        pads = [data.draw(st.integers(0, 1)) for _ in kept]
        whole = np.zeros((*(kept[i] + pads[i] for i in order), rows, k), dtype)
        view = whole.transpose(*np.argsort(order), len(batches), len(batches) + 1)
        return view[tuple(slice(extent) for extent in kept)]

    a, b, c = operand(M), operand(N), operand(M, f32, N)
    a = np.broadcast_to(a, (*batches, M, K)) if data.draw(st.booleans()) else a
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    c = c if np.broadcast_shapes(shape, c.shape[:-2]) == shape else None
    out = np.zeros((*shape, M, N), f32)
    found = walk(call(a, b, c, out, **({} if c is None else {"beta": 1.0})))
    visited = [
        tuple(offset + i * step for offset, step in zip(offsets, found.steps, strict=True))
        for offsets in found.offsets()
        for i in range(found.count)
    ]
    whole = [None if x is None else np.broadcast_to(x, (*shape, *x.shape[-2:])) for x in (a, b, c, out)]
    expected = [
        tuple(0 if x is None else sum(i * s for i, s in zip(index, x.strides, strict=False)) for x in whole)
        for index in itertools.product(*map(range, shape))
    ]
    assert sorted(visited) == sorted(expected)


# ---- what is refused


@pytest.mark.parametrize(("left", "right"), [((3,), (5,)), ((2, 3), (2,)), ((4, 1, 3), (4, 3, 2))])
def test_batches_that_do_not_go_together_are_named_with_both_shapes(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    with pytest.raises(OperandError) as caught:
        call(zeros(*left), zeros(*right, rows=N), out=np.zeros((M, N), f32))
    miss = next(miss for miss in caught.value.misses if miss.rule == "batch")
    assert str((*right, K, N)) in miss.got
    assert str((*left, M, K)) in miss.why


@pytest.mark.parametrize("shape", [(M, N), (1, M, N), (2, M, N), (3, M, 1), (3, 3, M, N)])
def test_out_has_the_shape_of_the_result(shape: tuple[int, ...]) -> None:
    assert ("out", "shape") in misses(zeros(3), zeros(rows=N), out=np.zeros(shape, f32))


@pytest.mark.parametrize(
    ("shape", "right"), [((M, N), True), ((1, M, N), True), ((2, M, N), False), ((3, 3, M, N), False)]
)
def test_c_goes_with_the_batches(shape: tuple[int, ...], right: bool) -> None:
    if right:
        assert walk(call(zeros(3), zeros(rows=N), np.zeros(shape, f32), beta=1.0)).steps[2] == 0
    else:
        assert misses(zeros(3), zeros(rows=N), np.zeros(shape, f32), beta=1.0) == [("c", "shape")]


def test_steps_between_batches() -> None:
    assert misses(zeros(3)[::-1], zeros(rows=N)) == [("a", "negative-stride")]
    skewed = np.lib.stride_tricks.as_strided(zeros(4), (3, M, K), (M * K * 2 + 2, K * 2, 2))
    assert misses(skewed, zeros(rows=N)) == [("a", "batch-stride")]
    assert call(zeros(4)[::2], zeros(rows=N)).a.steps == (M * K * 4,)


def test_windows_over_one_operand_may_overlap() -> None:
    windows = np.lib.stride_tricks.as_strided(zeros(rows=9), (3, M, K), (K * 2, K * 2, 2))
    assert walk(call(windows, zeros(rows=N))).steps[0] == K * 2


@pytest.mark.parametrize("step", [0, 4, M * N * 4 - 4])
def test_batches_of_out_are_apart(step: int) -> None:
    out = Operand("out", (3, M, N), (step, N * 4, 4), np.dtype(f32), 1 << 30)
    with pytest.raises(OperandError, match="written once"):
        bind(tile(), see("a", zeros(3)), see("b", zeros(rows=N).T), out=out)


def test_out_between_the_batches_of_an_input_is_taken() -> None:
    """Interlaced: the spans meet, no byte is shared; exactly that is looked at."""
    whole = np.zeros((6, M, K), f32).view(np.uint8)
    place = whole.ctypes.data
    a = Operand("a", (3, M, K), (2 * M * K * 4, K * 4, 2), np.dtype(bf16), place)
    free = Operand("out", (3, M, N), (2 * M * K * 4, K * 4, 4), np.dtype(f32), place + M * K * 4)
    b = see("b", zeros(rows=N).T)
    assert bind(tile(), a, b, out=free).batches == (3,)
    taken = Operand("out", free.shape, free.strides, free.dtype, place + 4)
    with pytest.raises(OperandError, match="memory shared with a"):
        bind(tile(), a, b, out=taken)


def test_counts_beyond_32_bits() -> None:
    a = Operand("a", (1 << 30, 129, K), (0, K * 2, 2), np.dtype(bf16), 4096)
    with pytest.raises(OperandError, match=r"2,147,483,648 tiles of 128 x 64 for each of 1,073,741,824 batches"):
        bind(tile(), a, see("b", zeros(rows=N).T))
    assert bind(tile(), Operand("a", (1 << 30, 128, K), a.strides, a.dtype, 4096), see("b", zeros(rows=N).T)).k == K


@pytest.mark.parametrize("empty", [(0,), (3, 0)])
def test_no_batches_at_all(empty: tuple[int, ...]) -> None:
    assert call(zeros(*empty), zeros(rows=N)).shape == (*empty, M, N)
