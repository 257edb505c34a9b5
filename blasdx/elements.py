"""Element types: what one number in a matrix is, in every spelling that names it.

An element type is one of the module's objects (``bf16``, ``f32``, ...). `Element.of` turns every other spelling into
it: the name, a NumPy or ml_dtypes dtype or scalar type, a framework's dtype ("torch.bfloat16"), a CUDA C++ type
(``__nv_bfloat16``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticCustomError, core_schema

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, repr=False)
class Element:
    """One element type.

    Attributes
    ----------
    name : str
        The library's one name for it: "bf16", "e4m3", "s32"; "complex<f32>" for an interleaved pair.
    bits : int
        Size in memory. tf32 takes 32 bits, of which the tensor core reads 19.
    is_float, is_signed : bool
        Floating point or integer; whether it has a sign.
    cuda : str
        The type in CUDA C++ (cuBLASDx's own for tf32 and complex).
    is_complex : bool
        An interleaved pair of real and imaginary part. Only value types are complex; operators take real elements.
    """

    name: str
    bits: int
    is_float: bool
    is_signed: bool
    cuda: str
    is_complex: bool = False

    @property
    def itemsize(self) -> int:
        """Size in memory, bytes."""
        return self.bits // 8

    @cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of a NumPy array of these: ml_dtypes' for bf16, e4m3 and e5m2; float32 for tf32, which has none."""
        import numpy as np

        if self.name in _COMPLEX_NUMPY:
            return np.dtype(_COMPLEX_NUMPY[self.name])
        if self.is_complex:
            part = self.part.numpy_dtype
            return np.dtype([("real", part), ("imag", part)])
        if self.name in _ML_DTYPES:
            import ml_dtypes

            scalar: type[Any] = getattr(ml_dtypes, _ML_DTYPES[self.name])
            return np.dtype(scalar)
        return np.dtype(_NUMPY[self.name])

    @property
    def part(self) -> Element:
        """The real element type: itself, or that of the real and imaginary part."""
        return _BY_NAME[self.name.removeprefix("complex<").removesuffix(">")]

    def as_complex(self) -> Element:
        """The interleaved pair of two of these, as ``Type(complex)`` stores them."""
        return _BY_NAME[f"complex<{self.part.name}>"]

    @classmethod
    def of(cls, spelling: object) -> Element:
        """Find the element type that a spelling names.

        Parameters
        ----------
        spelling : Element, str, dtype or type
            "bf16", "bfloat16", "__nv_bfloat16", ``ml_dtypes.bfloat16``, ``np.dtype("float16")``, ``np.float32``,
            NumPy's codes "<f4", "|i1" and "f2", a framework's dtype object whose text ends in such a name.

        Raises
        ------
        ValueError
            When nothing is known by that spelling; the text lists the names.
        """
        if isinstance(spelling, Element):
            return spelling
        text = _normal(_text(spelling))
        found = _BY_SPELLING.get(text) or _BY_SPELLING.get(_code_name(text))
        if found is None:
            raise ValueError(f"{spelling!r} names no element type; known are {', '.join(e.name for e in ELEMENTS)}")
        return found

    def __repr__(self) -> str:
        return f'Element.of("{self.name}")' if self.is_complex else self.name

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (Element.of, (self.name,))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(_validate, serialization=core_schema.to_string_ser_schema())

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> dict[str, Any]:
        return {"type": "string", "title": "Element", "examples": [e.name for e in ELEMENTS]}


f16 = Element("f16", 16, True, True, "__half")
bf16 = Element("bf16", 16, True, True, "__nv_bfloat16")
tf32 = Element("tf32", 32, True, True, "cublasdx::tfloat32_t")
f32 = Element("f32", 32, True, True, "float")
f64 = Element("f64", 64, True, True, "double")
e4m3 = Element("e4m3", 8, True, True, "__nv_fp8_e4m3")
e5m2 = Element("e5m2", 8, True, True, "__nv_fp8_e5m2")
s8 = Element("s8", 8, False, True, "int8_t")
u8 = Element("u8", 8, False, False, "uint8_t")
s16 = Element("s16", 16, False, True, "int16_t")
u16 = Element("u16", 16, False, False, "uint16_t")
s32 = Element("s32", 32, False, True, "int32_t")
u32 = Element("u32", 32, False, False, "uint32_t")
s64 = Element("s64", 64, False, True, "int64_t")
u64 = Element("u64", 64, False, False, "uint64_t")

ELEMENTS = (f16, bf16, tf32, f32, f64, e4m3, e5m2, s8, u8, s16, u16, s32, u32, s64, u64)
"""Every real element type."""

_COMPLEX = tuple(
    Element(f"complex<{e.name}>", 2 * e.bits, e.is_float, e.is_signed, f"cublasdx::complex<{e.cuda}>", True)
    for e in ELEMENTS
)
_BY_NAME = {e.name: e for e in ELEMENTS + _COMPLEX}

_NUMPY = {
    "f16": "float16", "tf32": "float32", "f32": "float32", "f64": "float64",
    "s8": "int8", "u8": "uint8", "s16": "int16", "u16": "uint16",
    "s32": "int32", "u32": "uint32", "s64": "int64", "u64": "uint64",
}  # fmt: skip
_ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_COMPLEX_NUMPY = {"complex<f32>": "complex64", "complex<f64>": "complex128"}

# Further names by which people and headers call each type. `float8_e4m3` without the "fn" is left out on purpose:
# ml_dtypes has a type of that name with infinities, which is not the tensor core's e4m3.
_ALSO = {
    "f16": ("half", "__half", "fp16", "half_t", "cutlass::half_t"),
    "bf16": ("__nv_bfloat16", "nv_bfloat16", "bfloat16_t", "cutlass::bfloat16_t"),
    "tf32": ("tfloat32", "tfloat32_t", "cublasdx::tfloat32_t", "cutlass::tfloat32_t"),
    "f32": ("float", "fp32", "single"),
    "f64": ("double", "fp64"),
    "e4m3": ("__nv_fp8_e4m3", "cublasdx::float_e4m3_t", "cutlass::float_e4m3_t", "float_e4m3_t", "fp8_e4m3"),
    "e5m2": ("__nv_fp8_e5m2", "cublasdx::float_e5m2_t", "cutlass::float_e5m2_t", "float_e5m2_t", "fp8_e5m2"),
    "s8": ("int8_t", "i8", "signed char"),
    "u8": ("uint8_t", "unsigned char"),
    "s16": ("int16_t", "i16", "short"),
    "u16": ("uint16_t", "unsigned short"),
    "s32": ("int32_t", "i32", "int"),
    "u32": ("uint32_t", "unsigned int", "unsigned"),
    "s64": ("int64_t", "i64", "long long"),
    "u64": ("uint64_t", "unsigned long long"),
}


def _spellings() -> dict[str, Element]:
    table = dict(_BY_NAME)
    for name, element in _BY_NAME.items():
        table[element.cuda] = element
        for numpy_name in (_NUMPY | _ML_DTYPES | _COMPLEX_NUMPY).get(name, "").split():
            table.setdefault(numpy_name, element)
    for name, others in _ALSO.items():
        table.update((other, _BY_NAME[name]) for other in others)
    table["float32"] = f32  # tf32 shares the dtype; the dtype alone means f32
    return table


_BY_SPELLING = _spellings()


def _text(spelling: object) -> str:
    """The name inside a dtype-like object; "" for what has none."""
    if isinstance(spelling, str):
        return spelling
    if isinstance(spelling, type):
        # Python's own float is 64 bits and CUDA's is 32: too easily confused to accept.
        return "" if spelling.__module__ == "builtins" else _scalar_name(spelling)
    inner = getattr(spelling, "dtype", None)  # jax.numpy.bfloat16 and the like carry a real dtype
    if inner is not None and not callable(inner):
        spelling = inner
    if not getattr(spelling, "isnative", True):
        return ""  # a byte-swapped dtype has the same name
    name = getattr(spelling, "name", None)
    return name if isinstance(name, str) else str(spelling)


def _scalar_name(scalar: type) -> str:
    """np.longlong is called "longlong", but its dtype "int64"."""
    import numpy as np

    try:
        return str(np.dtype(scalar).name)
    except TypeError:
        return scalar.__name__


def _code_name(text: str) -> str:
    """The name of NumPy's type code, "" for anything else.

    Codes of integers have to begin with a byte order: without one "i8" and "u8" are 64 bits to NumPy, and 8 elsewhere.
    """
    import numpy as np

    if not re.fullmatch(r"[<>=|][a-z]\d+|f[248]", text):
        return ""
    try:
        code = np.dtype(text)
    except TypeError:
        return ""
    return code.name if code.isnative else ""


def _normal(text: str) -> str:
    return text.strip().removeprefix("torch.").removeprefix("std::").removeprefix("::")


def _validate(value: object) -> Element:
    try:
        return Element.of(value)
    except ValueError as error:
        raise PydanticCustomError("element_type", "{text}", {"text": str(error)}) from None
