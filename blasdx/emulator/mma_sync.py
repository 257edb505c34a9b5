"""mma.sync as generated code calls it (PTX ISA 9.7.14): one warp, operands and results in registers, no delay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from blasdx.emulator import floats, fragments
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import FULL, Value, spread
from blasdx.emulator.numerics import EXACT, Arithmetic, Factor, Model, multiply
from blasdx.emulator.warp import Path

if TYPE_CHECKING:
    from numpy.typing import NDArray

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "f64": 64}
_FP8 = ("e4m3", "e5m2")


@dataclass(frozen=True)
class Form:
    """The static part of an mma.sync; `bitwise` is the operation of 1-bit products."""

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    saturate: bool
    bitwise: str
    target: str

    @property
    def a_registers(self) -> int:
        """Registers of A in a thread."""
        return self.m * self.k * BITS[self.a] // (32 * max(32, BITS[self.a]))

    @property
    def b_registers(self) -> int:
        """Registers of B in a thread."""
        return self.n * self.k * BITS[self.b] // (32 * max(32, BITS[self.b]))

    @property
    def d_registers(self) -> int:
        """Registers of C or D in a thread."""
        return self.m * self.n // 32 // (2 if self.d == "f16" else 1)


def compute(w: Path, form: Form, a: Sequence[Value], b: Sequence[Value], c: Sequence[Value]) -> Sequence[Value]:
    """mma.sync: the registers of D."""
    if w.mask != FULL:
        raise EmulationError(f"mma is .sync.aligned: all 32 lanes of {w.warp.name} have to execute it together")
    a_codes = _operand(a, form.m, form.k, BITS[form.a])
    b_codes = _operand(b, form.n, form.k, BITS[form.b])
    where = fragments.accumulator(form.n)
    if form.m == 8:
        where = fragments.Fragment(where.rows[:2], where.columns[:2])
    width = 64 if form.d == "f64" else 32
    registers = np.stack([spread(value, width) for value in c])
    words = fragments.unpack_halves(registers) if form.d == "f16" else registers
    sums = fragments.scatter(words, where, (form.m, form.n))
    found = fragments.gather(_product(form, a_codes, b_codes, sums, w.machine.numerics), where)
    return list(fragments.pack_halves(found) if form.d == "f16" else found)


def _operand(registers: Sequence[Value], rows: int, depth: int, bits: int) -> NDArray[Any]:
    values = np.stack([spread(value, max(32, bits)) for value in registers])
    where = fragments.operand(rows, depth, bits)
    return fragments.scatter(fragments.unpack(values, bits), where, (rows, depth))


def _product(form: Form, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], model: Model) -> NDArray[Any]:
    if form.a == "f64":
        return _product64(a, b, c)
    if form.a == "b1":
        x, y = a.astype(np.int64), b.astype(np.int64)
        both = x @ y.T
        hits = both if form.bitwise == "and" else x.sum(1)[:, None] + y.sum(1)[None, :] - 2 * both
        total: NDArray[Any] = (c.view(np.int32) + hits).astype(np.uint64).astype(np.uint32)
        return total
    if form.a in ("s4", "u4"):
        a, b = (_widened(codes, element) for codes, element in ((a, form.a), (b, form.b)))
    factors = [Factor(codes, _EIGHT.get(element, element)) for codes, element in ((a, form.a), (b, form.b))]
    if model == "hardware" and form.a in _FP8 and _number(form.target) not in (89, 120, 121):
        return _expanded_fp8(form, a, b, c)
    return multiply(factors[0], factors[1], c, form.d, arithmetic(form, model), saturate=form.saturate)


_EIGHT = {"s4": "s8", "u4": "u8"}


def _widened(codes: NDArray[Any], element: str) -> NDArray[Any]:
    return codes | np.where(codes & 8, 0xF0, 0).astype(np.uint8) if element == "s4" else codes


def _number(target: str) -> int:
    return int(target.removeprefix("sm_").rstrip("af"))


def arithmetic(form: Form, model: Model) -> Arithmetic:
    """How one mma.sync computes under a model (MMA-Sim, arXiv 2511.10909): Ampere and Ada halve the largest K."""
    if model == "exact" or form.d == "s32":
        return EXACT
    early = _number(form.target) < 90
    passes = 2 if early and form.k * BITS[form.a] == 256 else 1
    if form.a in _FP8:
        return Arithmetic("hardware", 13, 13, passes) if early else Arithmetic("hardware")
    return Arithmetic("hardware", fraction_bits=24 if early else 25, passes=passes)


def _expanded_fp8(form: Form, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
    """fp8 where ptxas makes two f16 multiplications of it, and an addition: read off SASS for sm_90 and sm_100."""
    model = Arithmetic("hardware")
    total: NDArray[Any] | None = None
    for part in ((0, 1), (2, 3)):
        chosen = [k for k in range(form.k) if k % 4 in part]
        total = multiply(Factor(a[:, chosen], form.a), Factor(b[:, chosen], form.b), total, form.d, model)
    assert total is not None
    if form.d == "f16":
        return (
            (c.astype(np.uint16).view(np.float16) + total.astype(np.uint16).view(np.float16))
            .view(np.uint16)
            .astype(np.uint32)
        )
    return (c.view(np.float32) + total.view(np.float32)).view(np.uint32)


def _product64(a: NDArray[np.uint64], b: NDArray[np.uint64], c: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Fused multiply-adds in the order of K, each rounded to nearest even."""
    fma = floats.fused_multiply_add("f64")
    total = c
    for k in range(a.shape[1]):
        x, y = np.broadcast_arrays(a[:, k, None], b[None, :, k])
        total = fma(x.reshape(-1), y.reshape(-1), total.reshape(-1)).reshape(c.shape)
    return total
