"""One wgmma.mma_async of a warpgroup: where its operands lie, and its product once all four warps have issued it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from blasdx.emulator import fragments, matrix
from blasdx.emulator.lanes import spread
from blasdx.emulator.numerics import Factor, Model, arithmetic, multiply

if TYPE_CHECKING:
    from numpy.typing import NDArray

M = 64
DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}


@dataclass(frozen=True)
class Form:
    """The static part of a wgmma.mma_async."""

    n: int
    d: str
    a: str
    b: str
    a_in_registers: bool
    negate_a: bool
    negate_b: bool
    a_mn_major: bool
    b_mn_major: bool
    saturate: bool

    @property
    def registers(self) -> int:
        """Accumulator registers of a thread."""
        return self.n // (4 if self.d == "f16" else 2)


class Multiplication:
    """One wgmma.mma_async of a warpgroup, from its first warp on."""

    __slots__ = (
        "a",
        "accumulate",
        "agents",
        "b",
        "done",
        "form",
        "fragments",
        "number",
        "result",
        "sources",
        "watchers",
    )

    def __init__(self, number: int, form: Form, a: int, b: int, accumulate: bool) -> None:
        self.number = number
        self.form = form
        self.a = a
        self.b = b
        self.accumulate = accumulate
        self.sources: dict[int, Sources] = {}  # accumulators of each warp that has come
        self.fragments: dict[int, NDArray[Any]] = {}
        self.agents: list[int] = []
        self.result: NDArray[np.uint32] | None = None
        self.done = False
        self.watchers: list[Callable[[], None]] = []

    def registers_of(self, warp: int) -> NDArray[np.uint32]:
        """The result as the accumulator registers of one warp."""
        assert self.result is not None
        words = fragments.gather(self.result[16 * warp : 16 * warp + 16], fragments.accumulator(self.form.n))
        return fragments.pack_halves(words) if self.form.d == "f16" else words

    def operands(self) -> tuple[matrix.Operand | None, matrix.Operand]:
        """Where A (None when it is in registers) and B lie in shared memory."""
        form = self.form
        found = matrix.decode_shared(self.b, "sm_90a")
        b_where = matrix.operand(found, form.b_mn_major, form.n, DEPTH[form.b], BITS[form.b])
        if form.a_in_registers:
            return None, b_where
        found = matrix.decode_shared(self.a, "sm_90a")
        return matrix.operand(found, form.a_mn_major, M, DEPTH[form.a], BITS[form.a]), b_where

    def compute(self, shared16: NDArray[Any], numerics: Model) -> None:
        """Read the operands and leave the result; what waits for it goes on."""
        form = self.form
        a_where, b_where = self.operands()
        b_codes = matrix.read(shared16, b_where)
        a_codes = matrix.read(shared16, a_where) if a_where is not None else _a_codes(self)
        self.result = multiply(
            Factor(a_codes, form.a, negate=form.negate_a),
            Factor(b_codes, form.b, negate=form.negate_b),
            _c_words(self) if self.accumulate else None,
            form.d,
            arithmetic(numerics, "wgmma.fp8" if form.a in ("e4m3", "e5m2") else "wgmma"),
            saturate=form.saturate,
        )
        self.sources.clear()
        self.fragments.clear()
        self.done = True
        for watcher in self.watchers:
            watcher()
        self.watchers.clear()


Sources = Multiplication | list[Any]
"""The multiplication whose result is accumulated, or for each register a value or (multiplication, register)."""


def _a_codes(task: Multiplication) -> NDArray[Any]:
    bits, depth = BITS[task.form.a], DEPTH[task.form.a]
    where = fragments.operand(16, depth, bits)
    parts = [fragments.unpack(task.fragments[warp], bits) for warp in range(4)]
    return np.concatenate([fragments.scatter(part, where, (16, depth)) for part in parts])


def _c_words(task: Multiplication) -> NDArray[np.uint32]:
    """The accumulators (64, N) of all four warps, f16 in low halves."""
    sources = task.sources
    first = sources[0]
    if isinstance(first, Multiplication) and all(sources[warp] is first for warp in range(1, 4)):
        assert first.result is not None
        return first.result
    where = fragments.accumulator(task.form.n)
    parts = []
    for warp in range(4):
        registers = _registers(sources[warp], warp)
        words = fragments.unpack_halves(registers) if task.form.d == "f16" else registers
        parts.append(fragments.scatter(words, where, (16, task.form.n)))
    return np.concatenate(parts)


def _registers(source: Sources, warp: int) -> NDArray[np.uint32]:
    if isinstance(source, Multiplication):
        return source.registers_of(warp)
    rows = []
    for value in source:
        if value.__class__ is tuple:
            value = value[0].registers_of(warp)[value[1]]
        rows.append(spread(value, 32))
    return np.stack(rows)
