"""What is illegal in company: rules that no path is without. A descriptor that misses one lands on "unsupported"."""

from __future__ import annotations

from blasdx import arch
from blasdx.descriptor import Descriptor
from blasdx.elements import s8, u8
from blasdx.operators import (
    SM,
    Alignment,
    Arrangement,
    Block,
    BlocksPerCluster,
    Function,
    Kind,
    LeadingDimension,
    Precision,
    Size,
    Type,
    WithPipeline,
    arch_specific,
)
from blasdx.paths.common import listed, no_size, pair
from blasdx.paths.rules import Gate, Guarded, Query, Verdict
from blasdx.paths.utcmma.limits import CARD

SOURCE = "cuBLASDx 0.8 operators"
OBSERVED_C = f"{SOURCE}; C observed on cuBLASDx 0.8.0"
OBSERVED = "refused by cuBLASDx 0.8.0 at compile time"


def _has_size(query: Query) -> Verdict:
    size = query.descriptor.get(Size)
    if size is None:
        return no_size(query.descriptor, "Size(m, n, k)")
    return Verdict(True, str(size), "Size(m, n, k)", "The extents of one tile.")


def _has_sm(query: Query) -> Verdict:
    sm = query.descriptor.get(SM)
    fix = SM(1000, arch_specific)
    why = "Nothing can be chosen or compiled without an architecture."
    return Verdict(sm is not None, str(sm or "no SM"), "SM(architecture)", why, (fix,), guarded=("sm",))


def _one_family(query: Query) -> Verdict:
    has = query.descriptor.precision
    floats = [element.is_float for _, element in has]
    met = all(floats) or not any(floats)
    kinds = listed((f"{name.upper()} {'floating point' if e.is_float else 'integer'}" for name, e in has), "and")
    return Verdict(
        met,
        str(has),
        "all floating point or all integer",
        f"{kinds}.",
        instead="types of one family",
        guarded=("precision",),
    )


def _narrow_integers(query: Query) -> Verdict:
    has = query.descriptor.precision
    wide = [e.name for e in (has.a, has.b) if not e.is_float and e not in (s8, u8)]
    met = not (wide and query.descriptor.with_pipeline)
    if met:
        why = "Without a pipeline every integer is legal." if wide else f"{pair(has)} inputs have 8 bits."
    else:
        why = f"A pipeline does not take {listed(dict.fromkeys(wide), 'and')} inputs."
    return Verdict(
        met, str(has), "s8 or u8 inputs in a pipeline", why, instead="s8 or u8 inputs", guarded=("precision",)
    )


def _is_integer(query: Query) -> bool:
    return not query.descriptor.precision.a.is_float or not query.descriptor.precision.b.is_float


def _real_integers(query: Query) -> Verdict:
    descriptor = query.descriptor
    met = descriptor.type is Kind.real
    got = f"Type({descriptor.type}) + {descriptor.precision}"
    guarded: tuple[Guarded, ...] = ("type", "precision")
    return Verdict(
        met, got, "Type(real) for integers", "There are no complex integers.", (Type("real"),), guarded=guarded
    )


def _whole_elements(query: Query) -> Verdict:
    has = query.descriptor.alignment
    values = {"a": query.descriptor.a_value_type, "b": query.descriptor.b_value_type}
    sizes = [(name, value, values[name].itemsize if name in values else 1) for name, value in has]
    short = [f"{name.upper()} {value} B of {size} B" for name, value, size in sizes if value % size]
    why = f"{listed(short, 'and')}: less than an element." if short else ""
    fix = Alignment(*(max(value, size) for _, value, size in sizes))
    return Verdict(not short, str(has), "at least an element of A and of B", why, (fix,))


def _roomy(query: Query) -> Verdict:
    descriptor = query.descriptor
    given = descriptor.get(LeadingDimension)
    if descriptor.get(Size) is None or given is None:
        return Verdict(True, str(given or "no LeadingDimension"), "at least the tile's own", "Nothing to compare.")
    tight = descriptor.tight_leading_dimension
    pairs = [(name, has, getattr(tight, name)) for name, has in given]
    short = [f"{name.upper()}: {has} < {least}" for name, has, least in pairs if has < least]
    why = (
        f"A row-major tile is as wide as its columns, a column-major one as its rows. {listed(short, 'and')}."
        if short
        else ""
    )
    fix = LeadingDimension(*(max(has, least) for _, has, least in pairs))
    return Verdict(not short, str(given), f"at least {tight}", why or "Rows do not overlap.", (fix,))


def _staged_rows(query: Query) -> bool:
    descriptor = query.descriptor
    return descriptor.with_pipeline and all(descriptor.get(kind) is not None for kind in (Size, LeadingDimension))


def _unpadded(query: Query) -> Verdict:
    given, tight = query.descriptor.get(LeadingDimension), query.descriptor.tight_leading_dimension
    why = "A pipeline swizzles its tiles instead of padding them; a matrix in memory has its array's own strides."
    return Verdict(given == tight, str(given), f"{tight}, or none", why, (tight,))


def _clustered(query: Query) -> bool:
    return query.descriptor.get(BlocksPerCluster) is not None


def _cluster(query: Query) -> Verdict:
    descriptor, sm = query.descriptor, query.descriptor.get(SM)
    has, need = str(BlocksPerCluster(*descriptor.blocks_per_cluster)), "WithPipeline() and SM 900 or newer"
    if sm is not None and not arch.of(sm.arch).tma:
        return Verdict(
            False,
            f"{has} on SM {sm.arch}",
            need,
            "Clusters begin with SM 900.",
            guarded=("sm",),
            fixes=(SM(900),),
        )
    met = descriptor.with_pipeline
    why = "Blocks of a cluster share the loads of a pipeline."
    return Verdict(met, has if met else f"{has} without WithPipeline()", need, why, (WithPipeline(),))


def _explicit(query: Query) -> Verdict:
    absent = [
        f"{kind.__name__}({argument})"
        for kind, argument in ((Function, "MM"), (Block, ""))
        if kind not in query.descriptor
    ]
    why = (
        "There is no other choice here, so that it is assumed; cuBLASDx asks for it."
        if absent
        else "Nothing is assumed."
    )
    fixes = (
        tuple(op for op in (Function("MM"), Block()) if type(op) not in query.descriptor)[:1]
        if len(absent) == 1
        else ()
    )
    got = f"no {listed(absent, 'and no')}" if absent else "Function(MM) + Block()"
    instead = " + ".join(absent) if len(absent) == 2 else ""
    return Verdict(not absent, got, "Function(MM) and Block()", why, fixes, instead)


def _examples(*descriptors: Descriptor) -> tuple[Query, ...]:
    return tuple(Query(descriptor) for descriptor in descriptors)


GATES = (
    Gate(
        "size-given",
        "A tile",
        "Size is there; it has no default.",
        "The extents of one tile decide everything else.",
        SOURCE,
        _has_size,
        passing=_examples(CARD),
        failing=_examples(CARD.without(Size)),
    ),
    Gate(
        "sm-given",
        "An architecture",
        "SM is there; it has no default.",
        "Nothing can be chosen or compiled without an architecture.",
        SOURCE,
        _has_sm,
        passing=_examples(CARD),
        failing=_examples(CARD.without(SM)),
    ),
    Gate(
        "one-family",
        "All floating point or all integer",
        "The types of A, B and C are all floating point, or all integer.",
        "Nothing converts between the families on the way.",
        OBSERVED,
        _one_family,
        passing=_examples(CARD, CARD.with_(Precision("u8", "u8", "u32"))),
        failing=_examples(CARD.with_(Precision("s8", "s8", "f32")), CARD.with_(Precision("f16", "s8", "f32"))),
    ),
    Gate(
        "narrow-integers",
        "8-bit integers in pipelines",
        "Integer inputs of a pipeline are s8 or u8.",
        "cuBLASDx refuses s32 inputs there; the other wide integers are taken to be like it.",
        OBSERVED,
        _narrow_integers,
        applies=_is_integer,
        passing=_examples(CARD.with_(Precision("s8", "u8", "s32")), CARD.with_(Precision("s32")).without(WithPipeline)),
        failing=_examples(CARD.with_(Precision("s32"))),
    ),
    Gate(
        "real-integers",
        "No complex integers",
        "Type is real for integers.",
        "cuBLASDx refuses complex u8; no integer is taken to be different.",
        OBSERVED,
        _real_integers,
        applies=_is_integer,
        passing=_examples(CARD.with_(Precision("u8", "u8", "s32"))),
        failing=_examples(CARD.with_(Precision("u8", "u8", "s32"), Type("complex"))),
    ),
    Gate(
        "whole-elements",
        "Alignment in whole elements",
        "Alignment of A and of B is a multiple of the value type's size; a complex element is two real ones.",
        "An address between two elements is the address of none. C is not asked: cuBLASDx takes 2 bytes for f32 there.",
        OBSERVED_C,
        _whole_elements,
        passing=_examples(CARD, CARD.with_(Alignment(2, 2, 2))),
        failing=_examples(CARD.with_(Alignment(1, 2, 4)), CARD.with_(Alignment(2, 2, 4), Type("complex"))),
    ),
    Gate(
        "leading-dimension",
        "Rows that do not overlap",
        "Each LeadingDimension is at least the columns of a row-major tile, the rows of a column-major one.",
        "A shorter one would put the end of a row onto the beginning of the next.",
        SOURCE,
        _roomy,
        passing=_examples(CARD, CARD.with_(LeadingDimension(72, 64, 256))),
        failing=_examples(
            CARD.with_(LeadingDimension(63, 64, 256)),
            CARD.with_(LeadingDimension(64, 64, 256), Arrangement("col", "row", "row")),
        ),
    ),
    Gate(
        "padded-rows",
        "LeadingDimension of a pipeline",
        "LeadingDimension is the tile's own, or is left out, beside WithPipeline.",
        "It is that of a tile in shared memory, where TMA writes swizzled tiles that need no padding: another value is "
        "without effect. Matrices in memory have the strides of their arrays.",
        SOURCE,
        _unpadded,
        applies=_staged_rows,
        advisory=True,
        passing=_examples(CARD.with_(LeadingDimension(64, 64, 256))),
        failing=_examples(CARD.with_(LeadingDimension(72, 64, 256))),
    ),
    Gate(
        "cluster",
        "Clusters of pipelines",
        "BlocksPerCluster comes with WithPipeline, on SM 900 or newer.",
        "Blocks of a cluster share the loads of a pipeline; clusters begin with SM 900.",
        SOURCE,
        _cluster,
        applies=_clustered,
        passing=_examples(CARD.with_(BlocksPerCluster(2, 1))),
        failing=_examples(
            CARD.with_(BlocksPerCluster(2, 1)).without(WithPipeline), CARD.with_(BlocksPerCluster(2, 1), SM(890))
        ),
    ),
    Gate(
        "implied-operators",
        "Function and Block",
        "Function(MM) and Block() are there.",
        "Each is the only one of its kind here, so that check assumes it; cuBLASDx asks for both.",
        SOURCE,
        _explicit,
        advisory=True,
        passing=_examples(CARD),
        failing=_examples(CARD.without(Function), CARD.without(Block), CARD.without(Function, Block)),
    ),
)
"""The rules of every path, in the order in which a report lists them."""
