"""The functions and casts of the language: how many arguments they take, and which device functions compute them."""

from __future__ import annotations

from dataclasses import dataclass

from blasdx.elements import Element, bf16, e4m3, e5m2, f16, f32, s8, s32, u8


@dataclass(frozen=True)
class Function:
    """One function of the language.

    Attributes
    ----------
    name : str
    parameters : tuple of str
        As the error messages write them.
    device : str
        Its function in ``templates/device``, or CUDA's own; "" where its text is put together from others.
    rough : str
        The one that serves where the result is stored in at most 16 bits; ``device`` where that is no cheaper.
    operations : int
        Instructions an element, about: what the device function compiles to on SM 900.
    rough_operations : int
    """

    name: str
    parameters: tuple[str, ...]
    device: str
    operations: int
    rough: str = ""
    rough_operations: int = 0

    @property
    def signature(self) -> str:
        """``clamp(x, lo, hi)``."""
        return f"{self.name}({', '.join(self.parameters)})"


FUNCTIONS = {
    function.name: function
    for function in (
        Function("relu", ("x",), "relu", 1),
        Function("gelu", ("x",), "gelu", 25, "gelu_rough", 9),
        Function("gelu_tanh", ("x",), "gelu_tanh", 21, "gelu_tanh_rough", 6),
        Function("silu", ("x",), "silu", 5),
        Function("sigmoid", ("x",), "sigmoid", 4),
        Function("tanh", ("x",), "tanhf", 15, "tanh_rough", 1),
        Function("clamp", ("x", "lo", "hi"), "", 2),
        Function("min", ("x", "y"), "minimum", 1),
        Function("max", ("x", "y"), "maximum", 1),
        Function("abs", ("x",), "absolute", 1),
    )
}
"""By name."""

CASTS: dict[str, Element] = {element.name: element for element in (f16, bf16, e4m3, e5m2, s8, u8)}
"""Rounding to an element type and back: ``bf16(x)``."""

CAST_OPERATIONS = {"f16": 2, "bf16": 2, "e4m3": 4, "e5m2": 3, "s8": 3, "u8": 3}

ARRAYS: tuple[Element, ...] = (f32, f16, bf16, e4m3, e5m2, s8, u8, s32)
"""What arrays in memory may hold."""

SIGNATURES = (*(function.signature for function in FUNCTIONS.values()), *(f"{cast}(x)" for cast in CASTS))
