"""Judgements that more than one path makes, with what differs as arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from blasdx.descriptor import Descriptor
from blasdx.elements import Element, f32, tf32
from blasdx.operators import (
    SM,
    UINT_MAX,
    Alignment,
    Arrangement,
    EnableInputStreaming,
    Kind,
    Order,
    Precision,
    Size,
    Type,
    WithPipeline,
    arch_specific,
    real,
)
from blasdx.paths.operand import OperandSpec
from blasdx.paths.rules import Gate, Query, Verdict

Judge = Callable[[Query], Verdict]
MMA_K_BYTES = 32
"""Bytes of each operand's K that one wgmma or tcgen05.mma consumes (PTX ISA 9.7.15.1 and 9.7.16.2: K = 256 bits)."""


# ---- wording --------------------------------------------------------------------------------------------------------


def pair(precision: Precision) -> str:
    """The input types in short: "bf16", or "e4m3 x e5m2"."""
    a, b = precision.a.name, precision.b.name
    return a if a == b else f"{a} x {b}"


def triple(precision: Precision) -> str:
    """The types in short: "bf16 -> f32"."""
    return f"{pair(precision)} -> {precision.c}"


def listed(items: Iterable[object], last: str = "or") -> str:
    """Join as prose: "128, 256 or 512"."""
    *head, tail = map(str, items)
    return f"{', '.join(head)} {last} {tail}" if head else tail


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def k_major_a(descriptor: Descriptor) -> bool:
    """Whether the K elements of one row of A are adjacent."""
    return descriptor.arrangement.a is Order.row_major


def k_major_b(descriptor: Descriptor) -> bool:
    """Whether the K elements of one column of B are adjacent."""
    return descriptor.arrangement.b is Order.col_major


def k_step(descriptor: Descriptor) -> int:
    """K of one instruction, elements: 32 bytes of the narrower input."""
    return MMA_K_BYTES // min(descriptor.precision.a.itemsize, descriptor.precision.b.itemsize)


def ratio(old: int, new: int) -> Fraction:
    """How far apart two extents are: the larger over the smaller."""
    return Fraction(max(old, new), min(old, new))


def distance(old: Precision, new: Precision) -> tuple[int, int]:
    """How much a change of precision changes: element types that differ, then bits by which they differ."""
    pairs = [(x, y) for (_, x), (_, y) in zip(old, new, strict=True)]
    return sum(x != y for x, y in pairs), sum(abs(x.bits - y.bits) for x, y in pairs)


def neighbours(value: int, legal: Sequence[int]) -> tuple[int, ...]:
    """The nearest legal values below and above, nearest first."""
    below = [candidate for candidate in legal if candidate <= value][-1:]
    above = [candidate for candidate in legal if candidate >= value][:1]
    return tuple(sorted(dict.fromkeys(below + above), key=lambda candidate: (ratio(value, candidate), -candidate)))


def around(value: int, step: int) -> tuple[int, ...]:
    """The multiples of a step next to a value, both sides, as far as they are legal extents."""
    below, above = value // step * step, -(-value // step) * step
    return tuple(sorted({candidate for candidate in (below, above) if 0 < candidate <= UINT_MAX}))


def resized(descriptor: Descriptor, **extents: int) -> Size:
    """The descriptor's size with some extents changed."""
    size = descriptor.size
    return Size(extents.get("m", size.m), extents.get("n", size.n), extents.get("k", size.k))


def reference_size(descriptor: Descriptor) -> Size:
    """A tile for a descriptor that has none: the card's, 128 x 256 with 128 bytes of K."""
    return Size(128, 256, 4 * k_step(descriptor))


# ---- judges ---------------------------------------------------------------------------------------------------------


def pipeline(query: Query) -> Verdict:
    """WithPipeline."""
    met = query.descriptor.with_pipeline
    return Verdict(met, "WithPipeline()" if met else "no WithPipeline()", "WithPipeline()", fixes=(WithPipeline(),))


def input_streaming(query: Query) -> Verdict:
    """EnableInputStreaming."""
    met = query.descriptor.enable_input_streaming
    got = "EnableInputStreaming()" if met else "no EnableInputStreaming()"
    return Verdict(met, got, "EnableInputStreaming()", fixes=(EnableInputStreaming(),))


def real_type(query: Query) -> Verdict:
    """Type(real)."""
    kind = query.descriptor.type
    return Verdict(kind is Kind.real, f"Type({kind})", "Type(real)", fixes=(Type(real),), guarded=("type",))


def alignment(query: Query) -> Verdict:
    """16 bytes or more of each operand."""
    has = query.descriptor.alignment
    given = query.descriptor.get(Alignment) is not None
    short = [f"{name.upper()} {value} B" for name, value in has if value < 16]
    return Verdict(
        not short,
        str(has) if given else f"no Alignment, so {', '.join(str(value) for _, value in has)} B",
        "16 B or more for A, B and C",
        why=f"{listed(short, 'and')}: less than 16 B." if short else "",
        fixes=(Alignment(*(max(value, 16) for _, value in has)),),
    )


def architecture(path: str, numbers: Sequence[int], wrong: Callable[[SM], str]) -> Judge:
    """SM of some numbers, arch_specific; `wrong` words the reason for every other."""

    def judge(query: Query) -> Verdict:
        has = query.descriptor.get(SM)
        need = f"arch_specific SM {listed(numbers)}"
        if has is None:
            why = f"{path} exists on some architectures only."
            return Verdict(False, "no SM", need, why, (SM(numbers[0], arch_specific),), guarded=("sm",))
        met = has.arch in numbers and has.modifier is arch_specific
        fix = SM(has.arch if has.arch in numbers else numbers[0], arch_specific)
        return Verdict(met, str(has), need, "" if met else wrong(has), (fix,), guarded=("sm",))

    return judge


def size_k(query: Query, legal: range | None, need: str, limit_why: str = "") -> Verdict:
    """K a multiple of 32 bytes of input, and in `legal` when there is an upper limit."""
    descriptor, step = query.descriptor, k_step(query.descriptor)
    if descriptor.get(Size) is None:
        return no_size(descriptor, need)
    k = descriptor.k
    item = MMA_K_BYTES // step
    arithmetic = f"{k} x {item} B = {k * item} B"
    if k % step:
        why = f"One instruction consumes {MMA_K_BYTES} B of K: {arithmetic}, no multiple of {MMA_K_BYTES} B."
    elif legal is not None and k not in legal:
        why = limit_why
    else:
        why = f"{arithmetic} = {k // step} x {MMA_K_BYTES} B, one instruction each."
    met = k % step == 0 and (legal is None or k in legal)
    options = around(k, step) if legal is None else tuple(legal)
    fixes = tuple(resized(descriptor, k=value) for value in neighbours(k, options))
    return Verdict(met, str(descriptor.size), need, why, fixes)


def no_size(descriptor: Descriptor, need: str) -> Verdict:
    """The miss of a gate about extents by a descriptor without Size."""
    return Verdict(False, "no Size", need, "The tile's extents decide.", (reference_size(descriptor),))


def k_major(query: Query, why: str) -> Verdict:
    """A row-major, B column-major."""
    has = query.descriptor.arrangement
    met = k_major_a(query.descriptor) and k_major_b(query.descriptor)
    fix = Arrangement(Order.row_major, Order.col_major, has.c)
    return Verdict(met, str(has), "A row_major and B col_major", why, (fix,))


# ---- operands -------------------------------------------------------------------------------------------------------


def has_operands(query: Query) -> bool:
    """Whether there is anything for `element_type` to look at."""
    return query.a is not None or query.b is not None


def element_type(precisions: Sequence[Precision]) -> Judge:
    """Operands of exactly the descriptor's value types; `precisions` are those a fix may propose."""

    def judge(query: Query) -> Verdict:
        descriptor = query.descriptor
        given = [
            (name, spec, wanted)
            for name, spec, wanted in (
                ("a", query.a, descriptor.a_value_type),
                ("b", query.b, descriptor.b_value_type),
            )
            if spec is not None
        ]
        wrong = [name for name, spec, wanted in given if not holds(spec, wanted)]
        casts = [f"{name}.astype({wanted.numpy_dtype.name!r})" for name, _, wanted in given if name in wrong]
        return Verdict(
            not wrong,
            listed((f"{name} of {spec.dtype}" for name, spec, _ in given), "and"),
            listed((f"{name} of {wanted}" for name, _, wanted in given), "and"),
            fixes=_matching(query, precisions) if wrong else (),
            instead=listed(casts, "and") if casts else "",
            guarded=("precision",),
        )

    return judge


def holds(spec: OperandSpec, element: Element) -> bool:
    """Whether an array's elements are a value type. No array library has tf32: its values lie in float32 arrays."""
    return spec.dtype == element or (element is tf32 and spec.dtype == f32)


def _matching(query: Query, precisions: Sequence[Precision]) -> tuple[Precision, ...]:
    a, b, c = query.a, query.b, query.descriptor.precision.c
    if query.descriptor.type is not Kind.real:
        return ()
    fitting = [p for p in precisions if (a is None or holds(a, p.a)) and (b is None or holds(b, p.b))]
    return tuple(sorted(fitting, key=lambda p: p.c != c)[:1])


# ---- gates that both paths have -------------------------------------------------------------------------------------


def common_gates(card: Descriptor, precisions: Sequence[Precision], source: str) -> dict[str, Gate]:
    """Gates with the same judge on utcmma and wgmma; `card` is a descriptor that meets them all."""
    passing = (Query(card),)
    return {
        "pipeline": Gate(
            "pipeline",
            "A descriptor for pipelines",
            "WithPipeline() is there.",
            "The instruction reads tiles that a pipeline stages in shared memory; without one it has nothing to read.",
            source,
            pipeline,
            passing=passing,
            failing=(Query(card.without(WithPipeline)),),
        ),
        "input-streaming": Gate(
            "input-streaming",
            "Operands straight from shared memory",
            "EnableInputStreaming() is there.",
            "The tensor core reads operands from shared memory itself; the operator promises that nothing transforms "
            "them on the way.",
            source,
            input_streaming,
            passing=passing,
            failing=(Query(card.without(EnableInputStreaming)),),
        ),
        "type": Gate(
            "type",
            "Real elements",
            "Type is real.",
            "The instruction multiplies real numbers; complex tiles are left to mma.sync.",
            source,
            real_type,
            passing=passing,
            failing=(Query(card.with_(Type("complex"))),),
        ),
        "alignment": Gate(
            "alignment",
            "16-byte alignment of A, B and C",
            "Alignment of A, B and C is 16 bytes or more each; C counts too.",
            "TMA reads and writes in units of 16 bytes: addresses and strides have to be multiples of that.",
            source,
            alignment,
            passing=(*passing, Query(card.with_(Alignment(32, 16, 16)))),
            failing=(Query(card.with_(Alignment(16, 16, 8))), Query(card.without(Alignment))),
        ),
        "element-type": Gate(
            "element-type",
            "Operands of exactly the descriptor's types",
            "Operands, where given, have exactly the descriptor's element types (float32 arrays for tf32).",
            "The kernel reads the operands' bits as the descriptor's types; nothing converts them on the way. cuBLASDx "
            "falls back to mma.sync for any other type, even of the same layout.",
            source,
            element_type(precisions),
            applies=has_operands,
            passing=(Query(card, OperandSpec((512, 64), None, card.a_value_type)),),
            failing=(Query(card, OperandSpec((512, 64), None, "uint16")),),
        ),
    }
