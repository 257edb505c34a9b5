"""A descriptor: the sum of operators, and every trait that follows from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationInfo
from pydantic_core import PydanticCustomError

from blasdx.elements import Element, f32
from blasdx.errors import DuplicateOperatorError, MissingOperatorError, NotAnOperatorError
from blasdx.operators import (
    MM,
    OPERATORS,
    SM,
    Alignment,
    Arrangement,
    Block,
    BlockDim,
    BlocksPerCluster,
    EnableInputStreaming,
    Function,
    Kind,
    LeadingDimension,
    Operation,
    Operator,
    Order,
    Precision,
    RequiredMantissaBits,
    Size,
    StaticBlockDim,
    Type,
    WithPipeline,
)

AnyOperator = TypeVar("AnyOperator", bound=Operator)

_POSITION = {kind: place for place, kind in enumerate(OPERATORS)}
_BY_NAME = {kind.__name__: kind for kind in OPERATORS}
MANDATORY: tuple[type[Operator], ...] = (Size, Function, SM)
"""The operators that cuBLASDx gives no default."""

_DEFAULT_PRECISION = Precision(f32)
_DEFAULT_ARRANGEMENT = Arrangement(Order.row_major, Order.col_major)


def refuse_summand(value: object) -> NoReturn:
    """Raise `NotAnOperatorError` for something in a sum that is no operator."""
    name = getattr(value, "__name__", "")
    if name in _BY_NAME or name == "MaxAlignment":
        hint = f": write {name}(...) with its arguments" if name not in _NO_ARGUMENTS else f": write {name}()"
    else:
        hint = f"; operators are {', '.join(_BY_NAME)}"
    error = NotAnOperatorError(f"a descriptor is a sum of operators, and {_brief(value)} is none{hint}")
    error.value = value
    raise error


_NO_ARGUMENTS = {kind.__name__ for kind in OPERATORS if not kind.model_fields} | {"MaxAlignment"}


def _brief(value: object) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _canonical(operators: Iterable[object]) -> tuple[Operator, ...]:
    """Flatten, refuse what is no operator or comes twice, and sort."""
    found: dict[type[Operator], Operator] = {}
    for summand in operators:
        if isinstance(summand, Descriptor):
            members: tuple[Operator, ...] = summand.operators
        elif isinstance(summand, Operator) and type(summand) in _POSITION:
            members = (summand,)
        else:
            refuse_summand(summand)
        for member in members:
            if type(member) in found:
                _refuse_duplicate(found[type(member)], member)
            found[type(member)] = member
    return tuple(sorted(found.values(), key=lambda member: _POSITION[type(member)]))


def _refuse_duplicate(first: Operator, second: Operator) -> NoReturn:
    name = type(first).__name__
    both = f"both times {first}" if first == second else f"{first} and {second}"
    error = DuplicateOperatorError(
        f"{name} comes twice, {both}; a descriptor takes one of each kind. To change it: descriptor.with_({second})"
    )
    error.operator = name
    raise error


def _load(value: Any, info: ValidationInfo) -> tuple[Operator, ...]:
    """Operators as they are, or from the mapping of names to fields that JSON holds."""
    if not isinstance(value, dict):
        try:
            if not isinstance(value, str):
                return _canonical(value)
        except TypeError:  # which pydantic lets through, other than a ValueError
            pass
        text = f"operators are an object of operators by name, such as {{'Block': {{}}}}, not {_brief(value)}"
        raise PydanticCustomError("no_operators", "{text}", {"text": text})
    unknown = set(value) - set(_BY_NAME)
    if unknown:
        legal = ", ".join(_BY_NAME)
        text = f"no operator is called {', '.join(sorted(map(repr, unknown)))}; operators are {legal}"
        raise PydanticCustomError("unknown_operator", "{text}", {"text": text})
    for name, fields in value.items():
        if not isinstance(fields, (dict, Operator)):
            text = f"the fields of {name} are an object of values by name, not {_brief(fields)}"
            raise PydanticCustomError("no_fields", "{text}", {"text": text})
    return _canonical(_BY_NAME[name].model_validate(fields) for name, fields in value.items())


def _dump(operators: tuple[Operator, ...]) -> dict[str, Any]:
    return {type(member).__name__: member.model_dump(mode="json") for member in operators}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with its references to its own definitions resolved, so that it can stand inside another."""
    definitions = schema.pop("$defs", {})
    for name, field in schema["properties"].items():
        reference = field.pop("$ref", "").rpartition("/")[2]
        schema["properties"][name] = definitions.get(reference, {}) | field
    return schema


class _ByName:
    """JSON Schema of what `_dump` writes, made when somebody asks for it."""

    def __get_pydantic_json_schema__(self, core: object, handler: object) -> dict[str, Any]:
        properties = {kind.__name__: _inlined(kind.model_json_schema()) for kind in OPERATORS}
        return {"type": "object", "properties": properties, "additionalProperties": False}


class Descriptor(BaseModel):
    """A tile-level matrix product, complete or half-built.

    Made by adding operators, in any order and grouping. Two descriptors are equal when they have equal operators.
    Traits answer with cuBLASDx's defaults where an operator is absent; those of `Size` and `SM`, which have none, raise
    `MissingOperatorError`.

    As JSON it is one object with the operators by name: ``{"operators": {"Size": {"m": 128, ...}, "Block": {}}}``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    operators: Annotated[tuple[Operator, ...], BeforeValidator(_load), PlainSerializer(_dump), _ByName()] = ()

    def __init__(self, *operators: Operator | Descriptor, **fields: Any) -> None:
        if operators:
            fields["operators"] = _canonical(operators)
        super().__init__(**fields)

    # ---- sums

    def __add__(self, other: object) -> Descriptor:
        return Descriptor(self, other)  # type: ignore[arg-type]  # what is no operator is refused in there

    def __radd__(self, other: object) -> NoReturn:
        refuse_summand(other)

    def with_(self, *operators: Operator) -> Descriptor:
        """The descriptor with the given operators in place of, or besides, those it has."""
        kinds = {type(member) for member in operators}
        return Descriptor(*(member for member in self.operators if type(member) not in kinds), *operators)

    def without(self, *kinds: type[Operator]) -> Descriptor:
        """The descriptor without the operators of the given kinds."""
        return Descriptor(*(member for member in self.operators if type(member) not in kinds))

    def get(self, kind: type[AnyOperator]) -> AnyOperator | None:
        """The operator of a kind as it was given, or None."""
        return next((member for member in self.operators if type(member) is kind), None)

    def __contains__(self, kind: type[Operator]) -> bool:
        return self.get(kind) is not None

    def _need(self, kind: type[AnyOperator]) -> AnyOperator:
        found = self.get(kind)
        if found is None:
            error = MissingOperatorError(
                f"{self._sum() or 'the empty descriptor'} has no {kind.__name__}, which has no default"
            )
            error.operator = kind.__name__
            raise error
        return found

    # ---- what is there

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the operators without a default that are absent: of Size, Function and SM."""
        return tuple(kind.__name__ for kind in MANDATORY if kind not in self)

    @property
    def is_complete(self) -> bool:
        """Whether nothing mandatory is missing (cuBLASDx's ``is_complete_blas``)."""
        return not self.missing

    @property
    def is_executable(self) -> bool:
        """Whether it is complete and says `Block` (cuBLASDx's ``is_complete_blas_execution``)."""
        return self.is_complete and Block in self

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that follow from the operators alone, equal across processes and machines."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]

    # ---- traits

    @property
    def size(self) -> Size:
        """Extents of the tile, elements."""
        return self._need(Size)

    @property
    def m(self) -> int:
        """Rows of A and C."""
        return self.size.m

    @property
    def n(self) -> int:
        """Columns of B and C."""
        return self.size.n

    @property
    def k(self) -> int:
        """Columns of A, rows of B."""
        return self.size.k

    @property
    def precision(self) -> Precision:
        """Element types of A, B and the accumulator."""
        return self.get(Precision) or _DEFAULT_PRECISION

    @property
    def type(self) -> Kind:
        """``real`` or ``complex``."""
        found = self.get(Type)
        return found.kind if found else Kind.real

    @property
    def function(self) -> Operation:
        """``MM``; assumed when `Function` is absent, as there is no other."""
        found = self.get(Function)
        return found.operation if found else MM

    @property
    def arrangement(self) -> Arrangement:
        """Order of A, B and C in memory."""
        return self.get(Arrangement) or _DEFAULT_ARRANGEMENT

    @property
    def alignment(self) -> Alignment:
        """Bytes; one element of each value type when not given."""
        types = (self.a_value_type, self.b_value_type, self.c_value_type)
        return self.get(Alignment) or Alignment(*(element.itemsize for element in types))

    @property
    def leading_dimension(self) -> LeadingDimension:
        """Elements, of the shared-memory tiles; tight when not given."""
        return self.get(LeadingDimension) or self.tight_leading_dimension

    @property
    def tight_leading_dimension(self) -> LeadingDimension:
        """The smallest legal one, elements: the columns of a row-major tile, the rows of a column-major one."""
        order = self.arrangement
        return LeadingDimension(
            _inner(order.a, self.a_shape), _inner(order.b, self.b_shape), _inner(order.c, self.c_shape)
        )

    @property
    def block_dim(self) -> tuple[int, int, int] | None:
        """Computing threads (x, y, z), or None when the choice is left to the library."""
        found = self.get(BlockDim)
        return (found.x, found.y, found.z) if found else None

    @property
    def block_threads(self) -> int | None:
        """The product of `block_dim`."""
        found = self.get(BlockDim)
        return found.threads if found else None

    @property
    def static_block_dim(self) -> bool:
        """Whether the launch is promised to have exactly `block_dim`."""
        return StaticBlockDim in self

    @property
    def sm(self) -> SM:
        """Architecture and modifier."""
        return self._need(SM)

    @property
    def with_pipeline(self) -> bool:
        """Whether it is a descriptor for pipelines."""
        return WithPipeline in self

    @property
    def enable_input_streaming(self) -> bool:
        """Whether operands may go from shared memory to the tensor core without passing registers."""
        return EnableInputStreaming in self

    @property
    def blocks_per_cluster(self) -> tuple[int, int]:
        """Blocks of a cluster along M and N."""
        found = self.get(BlocksPerCluster)
        return (found.m, found.n) if found else (1, 1)

    @property
    def required_mantissa_bits(self) -> int | None:
        """Mantissa bits that an emulated product must keep, or None for a native one."""
        found = self.get(RequiredMantissaBits)
        return found.bits if found else None

    @property
    def a_value_type(self) -> Element:
        """What an element of A is in memory."""
        return self._value_type(self.precision.a)

    @property
    def b_value_type(self) -> Element:
        """What an element of B is in memory."""
        return self._value_type(self.precision.b)

    @property
    def c_value_type(self) -> Element:
        """What an element of C is in memory."""
        return self._value_type(self.precision.c)

    def _value_type(self, element: Element) -> Element:
        return element.as_complex() if self.type is Kind.complex else element

    @property
    def a_shape(self) -> tuple[int, int]:
        """(m, k)."""
        return (self.m, self.k)

    @property
    def b_shape(self) -> tuple[int, int]:
        """(k, n)."""
        return (self.k, self.n)

    @property
    def c_shape(self) -> tuple[int, int]:
        """(m, n)."""
        return (self.m, self.n)

    @property
    def a_size(self) -> int:
        """Elements of the A tile in shared memory, padding of the leading dimension included."""
        return self.leading_dimension.a * _outer(self.arrangement.a, self.a_shape)

    @property
    def b_size(self) -> int:
        """Elements of the B tile in shared memory, padding of the leading dimension included."""
        return self.leading_dimension.b * _outer(self.arrangement.b, self.b_shape)

    @property
    def c_size(self) -> int:
        """Elements of the C tile in shared memory, padding of the leading dimension included."""
        return self.leading_dimension.c * _outer(self.arrangement.c, self.c_shape)

    # ---- text

    def _sum(self) -> str:
        return " + ".join(map(repr, self.operators))

    def __repr__(self) -> str:
        """A Python expression that makes an equal descriptor."""
        return self._sum() if len(self.operators) > 1 else f"Descriptor({self._sum()})"

    def __str__(self) -> str:
        lacks = self.missing
        if not lacks:
            return self._sum()
        return f"{self._sum() or 'an empty descriptor'} (still lacks: {', '.join(lacks)})"


def _inner(order: Order, shape: tuple[int, int]) -> int:
    return shape[1] if order is Order.row_major else shape[0]


def _outer(order: Order, shape: tuple[int, int]) -> int:
    return shape[0] if order is Order.row_major else shape[1]


def promote(value: Operator | Descriptor) -> Descriptor:
    """A descriptor as it is, an operator as the descriptor of it alone."""
    return value if isinstance(value, Descriptor) else Descriptor(value)
