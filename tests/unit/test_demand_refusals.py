"""What each refusal of a call says, word for word: operand, value, rule, reason and fix."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import blasdx as dx
from blasdx.operands import Operand
from tests.unit.test_gemm_operands import bf16, call, see, zeros

f32 = np.dtype(np.float32)
A = see("a", np.zeros(1)).address

REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "an inner dimension that differs": (
        {"b": zeros(80, 75, "col")},
        """\
        b: shape (80, 75); needs 72 rows
            a is 130 x 72 (M x K), so b is 72 x N (K x N).
            fix: transpose or slice an operand
        """,
    ),
    "another type": (
        {"a": zeros(130, 72, dtype=np.float16)},
        """\
        a: dtype float16; needs bfloat16
            The kernel reads and writes bf16 bits; nothing converts them on the way.
            fix: a.astype('bfloat16'), or a descriptor with the array's own type
        """,
    ),
    "bits of the type in integers": (
        {"a": zeros(130, 72, dtype=np.uint16)},
        """\
        a: dtype uint16; needs bfloat16
            The kernel reads and writes bf16 bits; nothing converts them on the way.
            fix: a.view('bfloat16') of bits, a.astype('bfloat16'), or a descriptor with the array's own type
        """,
    ),
    "the other order": (
        {"a": zeros(130, 72, "col", ld=136)},
        """\
        a: strides (2, 272) B: col-major; needs row_major, 2 B between the elements of a row
            The descriptor arranges a row_major.
            fix: a descriptor whose Arrangement says 'col' for a, or blasdx.padded(a, 'row')
        """,
    ),
    "gaps along a row": (
        {"a": zeros(130, 144)[:, ::2]},
        """\
        a: strides (288, 4) B; needs 2 B between the elements of a row
            One dimension has to be contiguous; only the other may have gaps.
            fix: blasdx.padded(a, 'row')
        """,
    ),
    "rows from the last to the first": (
        {"a": zeros(130, 72)[::-1]},
        """\
        a: strides (-144, 2) B; needs no negative stride
            A tensor map and a leading dimension only count upwards.
            fix: blasdx.padded(a, 'row')
        """,
    ),
    "one row for all": (
        {"a": np.broadcast_to(zeros(1, 72), (130, 72))},
        """\
        a: strides (0, 2) B; needs at least 144 B between rows
            A row takes 72 x 2 B = 144 B, so rows overlap.
            fix: blasdx.padded(a, 'row')
        """,
    ),
    "an address beside the promised one": (
        {"a": Operand("a", (130, 72), (144, 2), bf16, 0x6200008)},
        """\
        a: first element at 0x6200008, 8 B past a multiple of 16; needs a multiple of 16 B
            The descriptor promises it, and TMA reads from addresses that are multiples of 16 B.
            fix: start the view at a multiple of 8 elements, or blasdx.padded(a, 'row')
        """,
    ),
    "columns that begin beside it": (
        {"b": zeros(144, 75, "col", ld=148)[:72]},
        """\
        b: 296 B from one column to the next (148 elements of 2 B); needs a multiple of 16 B
            The descriptor promises it, and TMA strides are multiples of 16 B.
            fix: pad the leading dimension to 72 elements: blasdx.padded(b, 'col')
        """,
    ),
    "out is transposed": (
        {"out": zeros(75, 130, dtype=np.float32)},
        """\
        out: shape (75, 130); needs (130, 75)
            It is M x N: the rows of a, the columns of b.
            fix: pass an array of shape (130, 75)
        """,
    ),
    "out in the other order": (
        {"out": zeros(130, 75, "col", np.float32)},
        """\
        out: strides (4, 520) B: col-major; needs row_major, 4 B between the elements of a row
            The descriptor arranges out row_major.
            fix: a descriptor whose Arrangement says 'col' for out, or out=None, or an array of its own
        """,
    ),
    "a complex number": (
        {"alpha": 1j},
        """\
        alpha: 1j; needs a real number in host memory
            It is passed to the kernel by value.
            fix: pass a float
        """,
    ),
    "a number beyond f32": (
        {"alpha": 1e39},
        """\
        alpha: 1e+39; needs a number that f32 holds
            The kernel takes it as f32, which goes from 1.4e-45 to 3.4e+38.
            fix: scale an operand instead
        """,
    ),
    "beta without c": (
        {"beta": 1.0},
        """\
        c: beta = 1.0 and no c; needs c, or beta = 0
            out = alpha * acc + beta * c reads c.
            fix: pass c
        """,
    ),
    "c without beta": (
        {"c": zeros(130, 75, dtype=np.float32)},
        """\
        c: c, and no beta; needs both or neither
            Left out, beta is 0, and c would not be read.
            fix: beta=1.0, or leave c out
        """,
    ),
    "more rows than coordinates": (
        {"a": Operand("a", (2**31, 72), (144, 2), bf16, 4096)},
        """\
        a: M = 2,147,483,648; needs at most 2,147,483,520
            Tile coordinates are signed 32-bit integers, and M is covered in tiles of 128.
            fix: split M
        """,
    ),
    "more tiles than are counted": (
        {
            "a": Operand("a", (2**30, 72), (144, 2), bf16, 4096),
            "b": Operand("b", (72, 2**30), (2, 144), bf16, 1 << 50),
        },
        """\
        out: 35,184,372,088,832 tiles of 128 x 256; needs fewer than 2,147,483,648
            Tiles are counted in 32 bits.
            fix: split M or N
        """,
    ),
    "out over a": (
        {"out": Operand("out", (130, 75), (300, 4), f32, A + 16)},
        """\
        out: memory shared with a; needs memory of its own
            Tiles are written while others still read a.
            fix: out=None, or copy the input
        """,
    ),
    "out between two elements": (
        {"out": Operand("out", (130, 75), (300, 4), f32, 0x40000002)},
        """\
        out: first element at 0x40000002, 2 B past a multiple of 4; needs a multiple of 4 B
            An address between two elements faults.
            fix: out=None, or an array of its own
        """,
    ),
    "an out that is read-only": (
        {"out": Operand("out", (130, 75), (300, 4), f32, 1 << 30, writable=False)},
        """\
        out: a read-only array; needs a writable one
            The kernel writes its result there.
            fix: out=None, or a writable array
        """,
    ),
}


@pytest.mark.parametrize("situation", REFUSALS)
def test_the_refusal_of(situation: str) -> None:
    changed, text = REFUSALS[situation]
    with pytest.raises(dx.OperandError) as caught:
        call(**changed)
    told = str(caught.value)
    assert told.startswith("this call breaks 1 rule:\n")
    assert dedent(told.partition("\n")[2]) == dedent(text).rstrip("\n")
