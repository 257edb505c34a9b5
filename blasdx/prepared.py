"""PreparedGemm: a product whose checks, kernel and tensor maps are done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blasdx.call import Call
from blasdx.devices import Arrays, Device, Look
from blasdx.operands import OperandMiss, Seen, refuse


class PreparedGemm:
    """A product that is launched by calling it; `Gemm.prepare` makes it.

    It holds on to its arrays. What is captured into a graph keeps the addresses that the arrays had then: the graph
    does not hold on to them, and `rebind` does not reach it.
    """

    def __init__(
        self, device: Device, call: Call, arrays: Arrays, look: Look, check: Callable[[Arrays, Look], None]
    ) -> None:
        self._device = device
        self._call = call
        self._arrays = arrays
        self._look = look
        self._check = check

    @property
    def out(self) -> Any:
        """Where the result goes."""
        return self._arrays[3]

    def __call__(self, *, stream: Any = None) -> Any:
        """Enqueue the product, on the current stream of the arrays' library where none is named, and return `out`."""
        self._call.enqueue(self._look.device.again(self._look, self._arrays, stream), self._arrays)
        return self._arrays[3]

    def rebind(self, a: Any = None, b: Any = None, c: Any = None, *, out: Any = None, **operands: Any) -> PreparedGemm:
        """Take other arrays of the same shapes, strides and types from now on, for those that are given.

        Returns
        -------
        PreparedGemm
            This one.

        Raises
        ------
        OperandError
            For an array that differs in more than its address, and for addresses that break a rule; the arrays from
            before then stay.
        """
        names = self._look.names
        given = {"a": a, "b": b, "c": c, "out": out, **operands}
        refuse([_number(name) for name in operands if name not in names])
        arrays = tuple(
            old if given.get(name) is None else given[name] for name, old in zip(names, self._arrays, strict=True)
        )
        look = self._device.look(arrays, None, names)
        if look.seen != self._look.seen:
            refuse([miss for named in zip(names, look.seen, self._look.seen, strict=True) for miss in _differs(*named)])
        if not self._call.takes(look.addresses):
            self._check(arrays, look)
        self._arrays, self._look = arrays, look
        return self


def _number(name: str) -> OperandMiss:
    why = "Numbers by value were packed when the product was prepared."
    return OperandMiss(name, "prepared", f"{name}=...", "the name of an array", why, "prepare another product for it")


def _differs(name: str, new: Seen | None, old: Seen | None) -> list[OperandMiss]:
    if new == old:
        return []
    what = "Tensor maps and strides were encoded for arrays like the first; only addresses are replaced."
    return [OperandMiss(name, "prepared", _text(new), _text(old), what, "prepare another product for it")]


def _text(seen: Seen | None) -> str:
    if seen is None:
        return "no array"
    place = "" if seen.device is None else f" on CUDA device {seen.device}"
    return f"{seen.library} {seen.dtype} {seen.shape} with strides {seen.strides} B{place}"
