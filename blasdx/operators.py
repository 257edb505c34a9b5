"""The operators that a descriptor is a sum of, under cuBLASDx's names.

``Size<128, 256, 64>()`` becomes ``Size(128, 256, 64)``: positional arguments in C++ order, or keywords. Every operator
is a frozen value, and one with an illegal field does not come to be: it raises ``pydantic.ValidationError`` with the
operator, the value and what is legal. What is illegal only in company (an alignment below the element size, say) is
reported by `check`.
"""

from __future__ import annotations

import operator as _operator
from enum import StrEnum
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from blasdx import arch as _arch
from blasdx.elements import ELEMENTS, Element, f16, f32, f64, s32, s64, u32, u64

if TYPE_CHECKING:
    from blasdx.descriptor import Descriptor

UINT_MAX = 2**32 - 1
"""cuBLASDx's template arguments are unsigned int."""


class Tag(StrEnum):
    """A named choice; prints as the bare name that C++ uses."""

    def __repr__(self) -> str:
        return self.value


class Order(Tag):
    """How a matrix lies in memory: ``row_major`` or ``col_major``."""

    row_major = "row_major"
    col_major = "col_major"


class Kind(Tag):
    """What `Type` chooses: ``real`` or ``complex``."""

    real = "real"
    complex = "complex"


class Operation(Tag):
    """What `Function` chooses."""

    MM = "MM"


class Modifier(Tag):
    """For which devices `SM` compiles: ``generic``, ``arch_specific`` (sm_100a) or ``family_specific`` (sm_100f)."""

    generic = "generic"
    arch_specific = "arch_specific"
    family_specific = "family_specific"


row_major, col_major = Order.row_major, Order.col_major
real = Kind.real
MM = Operation.MM
generic, arch_specific, family_specific = Modifier.generic, Modifier.arch_specific, Modifier.family_specific


AnyTag = TypeVar("AnyTag", bound=Tag)


# ---- fields ---------------------------------------------------------------------------------------------------------


def _refuse(info: ValidationInfo, value: object, legal: str) -> NoReturn:
    """Name operator and field here as well: inside a descriptor's JSON the error's own title is the descriptor's."""
    operator = (info.config or {}).get("title", "")
    text = f"{operator}'s {info.field_name} is {value!r}; legal: {legal}"
    raise PydanticCustomError("illegal_field", "{text}", {"text": text})


def _whole(value: object) -> int | None:
    """Integers of any library; not True and not 2.0, as neither is meant as a size."""
    try:
        return None if isinstance(value, bool) else _operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _integer(high: int, legal: str) -> BeforeValidator:
    def validate(value: Any, info: ValidationInfo) -> int:
        number = _whole(value)
        if number is None or not 1 <= number <= high:
            _refuse(info, value, legal)
        return number

    return BeforeValidator(validate)


def _power_of_two(value: Any, info: ValidationInfo) -> int:
    number = _whole(value)
    if number is None or number < 1 or number & (number - 1) or number > UINT_MAX:
        _refuse(info, value, "bytes as a power of two: 1, 2, 4, 8, 16, 32, ...")
    return number


def _sm_number(value: Any, info: ValidationInfo) -> int:
    number = _whole(value)
    if number not in _arch.NUMBERS:
        hint = "" if number is None else _arch.hint(number)
        _refuse(info, value, ", ".join(map(str, _arch.NUMBERS)) + hint)
    return number


def _tag(kind: type[AnyTag], remark: str = "", **aliases: AnyTag) -> BeforeValidator:
    def validate(value: Any, info: ValidationInfo) -> AnyTag:
        if isinstance(value, kind):
            return value
        # Python's own `complex` stands for the tag, so that no export has to hide it.
        name = "complex" if value is complex else value
        known = isinstance(name, str) and not isinstance(name, Tag)
        found = (aliases.get(name) or kind.__members__.get(name)) if known else None
        if found is None:
            _refuse(info, value, ", ".join(kind) + remark)
        return found

    return BeforeValidator(validate)


ACCUMULATORS = (f16, f32, f64, s32, u32, s64, u64)
"""What cuBLASDx accumulates in (0.6.0 and newer; bf16, tf32, e4m3, s8 and s16 are compile errors there)."""


def _input(value: Any, info: ValidationInfo) -> Element:
    try:
        element = Element.of(value)
    except ValueError:
        _refuse(info, value, ", ".join(e.name for e in ELEMENTS))
    if element.is_complex:
        _refuse(info, value, f"the real type of its parts, {element.part}; Type(complex) makes pairs of them")
    return element


def _accumulator(value: Any, info: ValidationInfo) -> Element:
    element = _input(value, info)
    if element not in ACCUMULATORS:
        _refuse(info, value, f"{', '.join(e.name for e in ACCUMULATORS)} (C is the accumulator)")
    return element


Extent = Annotated[int, _integer(UINT_MAX, f"a whole number from 1 to {UINT_MAX}")]
Threads = Annotated[int, _integer(1024, "a whole number of threads from 1 to 1024")]
Blocks = Annotated[int, _integer(16, "a whole number of blocks from 1 to 16")]
Bits = Annotated[int, _integer(52, "a whole number from 1 to 52 (f64 has 52 mantissa bits, f32 has 23)")]
Bytes = Annotated[int, BeforeValidator(_power_of_two)]
Number = Annotated[int, BeforeValidator(_sm_number)]
Input = Annotated[Element, BeforeValidator(_input)]
Accumulator = Annotated[Element, BeforeValidator(_accumulator)]
AnyOrder = Annotated[Order, _tag(Order, row=Order.row_major, col=Order.col_major)]
AnyKind = Annotated[Kind, _tag(Kind)]
AnyOperation = Annotated[Operation, _tag(Operation, remark="; cuBLASDx's triangular solve is not here")]
AnyModifier = Annotated[Modifier, _tag(Modifier)]


# ---- operators ------------------------------------------------------------------------------------------------------


class Operator(BaseModel):
    """One summand of a descriptor. Sums are order-free; each kind appears at most once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, *args: Any, **fields: Any) -> None:
        names = tuple(type(self).model_fields)
        kind = type(self).__name__
        if len(args) > len(names):
            raise TypeError(f"{kind} takes {_count(len(names))} ({', '.join(names) or 'none'}), {len(args)} given")
        for name, value in zip(names, args, strict=False):
            if name in fields:
                raise TypeError(f"{kind} got {name} by position and by keyword")
            fields[name] = value
        super().__init__(**fields)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Give help() and editors the positional signature."""
        super().__pydantic_init_subclass__(**kwargs)
        cls.__signature__ = Signature(
            [
                Parameter(
                    name,
                    Parameter.POSITIONAL_OR_KEYWORD,
                    default=Parameter.empty if field.is_required() else field.default,
                    annotation=field.annotation,
                )
                for name, field in cls.model_fields.items()
            ]
        )

    def __add__(self, other: object) -> Descriptor:
        from blasdx.descriptor import Descriptor

        return Descriptor(self) + other

    def __radd__(self, other: object) -> NoReturn:
        from blasdx.descriptor import refuse_summand

        refuse_summand(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._arguments()))})"

    __str__ = __repr__

    def _arguments(self) -> tuple[Any, ...]:
        """The positional arguments that make an equal operator."""
        return tuple(getattr(self, name) for name in type(self).model_fields)


def _refuse_whole(operator: Operator, legal: str) -> NoReturn:
    raise PydanticCustomError("illegal_operator", "{text}", {"text": f"{operator} is not legal; legal: {legal}"})


def _count(number: int) -> str:
    return "1 argument" if number == 1 else f"{number} arguments"


class Size(Operator):
    """Extents of one tile: C (m x n) += A (m x k) B (k x n). Mandatory."""

    m: Extent
    n: Extent
    k: Extent

    if TYPE_CHECKING:

        def __init__(self, m: int, n: int, k: int) -> None: ...


class Precision(Operator):
    """Element types of A, B and C (the accumulator); one argument sets all three. Default: f32 three times."""

    a: Input
    b: Input
    c: Accumulator

    if TYPE_CHECKING:

        def __init__(self, a: object, b: object = ..., c: object = ...) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _one_for_all(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and set(fields) == {"a"}:
            return dict.fromkeys("abc", fields["a"])
        if isinstance(fields, dict) and set(fields) == {"a", "b"}:
            text = f"Precision({fields['a']!r}, {fields['b']!r}) has two types; legal: one for all, or A, B and C"
            raise PydanticCustomError("illegal_operator", "{text}", {"text": text})
        return fields


class Type(Operator):
    """``real``, or ``complex``: interleaved pairs of the `Precision`'s elements. Default: real."""

    kind: AnyKind

    if TYPE_CHECKING:

        def __init__(self, kind: object) -> None: ...


class Function(Operator):
    """What is computed: ``MM``, a matrix product. cuBLASDx's triangular solve is not here."""

    operation: AnyOperation

    if TYPE_CHECKING:

        def __init__(self, operation: object) -> None: ...


class Arrangement(Operator):
    """Order of A, B and C in global memory: ``row_major`` or ``col_major``. Default: row, col, col."""

    a: AnyOrder
    b: AnyOrder
    c: AnyOrder = Order.col_major

    if TYPE_CHECKING:

        def __init__(self, a: object, b: object, c: object = ...) -> None: ...


class LeadingDimension(Operator):
    """Elements from one row (column, if column-major) of a shared-memory tile to the next. Default: tight."""

    a: Extent
    b: Extent
    c: Extent

    if TYPE_CHECKING:

        def __init__(self, a: int, b: int, c: int) -> None: ...


class Alignment(Operator):
    """Bytes that the pointers and leading dimensions of A, B and C are multiples of. Default: one element."""

    a: Bytes
    b: Bytes
    c: Bytes

    if TYPE_CHECKING:

        def __init__(self, a: int, b: int, c: int) -> None: ...


def MaxAlignment() -> Alignment:  # noqa: N802 (cuBLASDx's name)
    """``Alignment(16, 16, 16)``, as cuBLASDx abbreviates it."""
    return Alignment(16, 16, 16)


class Block(Operator):
    """Executed by the threads of a block together."""


class BlockDim(Operator):
    """Computing threads of a block; at most 1024 in all. A pipeline may add threads of its own. Default: suggested."""

    x: Threads
    y: Threads = 1
    z: Threads = 1

    if TYPE_CHECKING:

        def __init__(self, x: int, y: int = 1, z: int = 1) -> None: ...

    @model_validator(mode="after")
    def _at_most_1024(self) -> BlockDim:
        if self.threads > 1024:
            _refuse_whole(self, f"at most 1024 threads, and {self.x} x {self.y} x {self.z} = {self.threads}")
        return self

    @property
    def threads(self) -> int:
        """The product of the extents."""
        return self.x * self.y * self.z

    def _arguments(self) -> tuple[Any, ...]:
        if self.z > 1:
            return (self.x, self.y, self.z)
        return (self.x, self.y) if self.y > 1 else (self.x,)


class StaticBlockDim(Operator):
    """Promise that the launch has exactly the threads of `BlockDim`."""


class WithPipeline(Operator):
    """Makes the descriptor one for pipelines, which stage tiles of A and B asynchronously."""


class EnableInputStreaming(Operator):
    """Promise that nothing transforms elements between shared memory and tensor core; wgmma and tcgen05 need it."""


class BlocksPerCluster(Operator):
    """Blocks of a cluster along M and N, at most 16 in all. Default: 1 and 1. Pipelines only."""

    m: Blocks
    n: Blocks

    if TYPE_CHECKING:

        def __init__(self, m: int, n: int) -> None: ...

    @model_validator(mode="after")
    def _at_most_16(self) -> BlocksPerCluster:
        if self.m * self.n > 16:
            _refuse_whole(self, f"at most 16 blocks, and {self.m} x {self.n} = {self.m * self.n}")
        return self


class RequiredMantissaBits(Operator):
    """Mantissa bits that an emulated f64 (52) or f32 (23) product must keep. Pipelines only. Default: not emulated."""

    bits: Bits

    if TYPE_CHECKING:

        def __init__(self, bits: int) -> None: ...


class SM(Operator):
    """Architecture (1000 is compute capability 10.0) and for which devices to compile. Mandatory; default generic."""

    arch: Number
    modifier: AnyModifier = Modifier.generic

    if TYPE_CHECKING:

        def __init__(self, arch: int, modifier: object = ...) -> None: ...

    @model_validator(mode="after")
    def _modifiers_begin_with_900(self) -> SM:
        if self.modifier is not Modifier.generic and not _arch.of(self.arch).has_modifiers:
            _refuse_whole(self, f"SM({self.arch}) generic; the other modifiers begin with SM 900")
        return self

    @property
    def target(self) -> str:
        """The compiler's name of it: "sm_100a"."""
        return _arch.of(self.arch).target(self.modifier)

    def _arguments(self) -> tuple[Any, ...]:
        return (self.arch,) if self.modifier is Modifier.generic else (self.arch, self.modifier)


OPERATORS: tuple[type[Operator], ...] = (
    Size,
    Precision,
    Type,
    Function,
    Arrangement,
    LeadingDimension,
    Block,
    BlockDim,
    StaticBlockDim,
    Alignment,
    WithPipeline,
    EnableInputStreaming,
    BlocksPerCluster,
    RequiredMantissaBits,
    SM,
)
"""Every operator, in the order in which a descriptor lists them."""
