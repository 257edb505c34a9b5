"""The one gate of mma.sync: an instruction for the types. What has none runs on the ordinary cores (fma).

cuBLASDx does not say where it draws this line, and its traits do not tell mma.sync from fma. Here a descriptor lands on
supermma when the architecture has an mma.sync that takes both inputs as they are or converted without loss.
"""

from __future__ import annotations

from blasdx.descriptor import Descriptor
from blasdx.elements import Element, bf16, e4m3, e5m2, f16, f32, f64, s8, s32, tf32, u8, u32
from blasdx.operators import SM, Precision, arch_specific
from blasdx.paths.common import triple
from blasdx.paths.rules import Gate, Query, Verdict
from blasdx.paths.utcmma.limits import CARD

SOURCE = "PTX ISA, mma.sync shapes and types; the mixed pairs observed on cuBLASDx 0.8.0"

FIRST_SM = {f16: 750, s8: 750, u8: 750, bf16: 800, tf32: 800, f64: 800, e4m3: 890, e5m2: 890}
"""The first SM whose mma.sync takes a type (PTX ISA 9.7.14). The other types have none on any."""

_FLOATS = {f16, bf16, tf32, e4m3, e5m2}
_INTEGERS = {s8, u8}


def first_sm(precision: Precision) -> int | None:
    """The first SM with an mma.sync for these types, or None.

    Unequal floating-point inputs meet in a wider type, at most tf32, that holds both exactly; f64 and the integers only
    among themselves.
    """
    inputs = {precision.a, precision.b}
    results: set[Element]
    if inputs <= _FLOATS:
        results = {f16, f32}
    elif inputs <= _INTEGERS:
        results = {s32, u32}
    else:
        results = {f64} if inputs == {f64} else set()
    if precision.c not in results:
        return None
    return max(FIRST_SM[element] for element in inputs)


def _instruction(query: Query) -> Verdict:
    precision, sm = query.descriptor.precision, query.descriptor.get(SM)
    need = "an mma.sync for these types"
    first = first_sm(precision)
    if first is None:
        why = f"{triple(precision)} has no mma.sync: it runs on the ordinary cores."
        return Verdict(False, str(precision), need, why, _nearest(precision), guarded=("precision",))
    if sm is None:
        return Verdict(
            False,
            "no SM",
            need,
            f"mma.sync takes {triple(precision)} from SM {first} on.",
            (SM(first),),
            guarded=("sm",),
        )
    if sm.arch < first:
        why = f"mma.sync takes {triple(precision)} from SM {first} on."
        return Verdict(False, f"{precision} on SM {sm.arch}", need, why, (SM(first),), guarded=("precision", "sm"))
    return Verdict(True, str(precision), need, f"{triple(precision)} has one from SM {first} on.")


def _nearest(precision: Precision) -> tuple[Precision, ...]:
    """f32 becomes tf32, the only type that the tensor cores multiply in its place; nothing is proposed otherwise."""
    if {precision.a, precision.b} <= _FLOATS | {f32} and precision.c in (f16, f32):
        a, b = (tf32 if element is f32 else element for element in (precision.a, precision.b))
        return (Precision(a, b, precision.c),)
    return ()


def _examples(*descriptors: Descriptor) -> tuple[Query, ...]:
    return tuple(Query(descriptor) for descriptor in descriptors)


GATES = (
    Gate(
        "mma-sync",
        "An mma.sync for the types",
        "f16 and int8 from SM 750 on, bf16, tf32 and f64 from SM 800 on, fp8 from SM 890 on, real or complex.",
        "f32, and integers wider than 8 bits, have no tensor-core instruction on any architecture.",
        SOURCE,
        _instruction,
        passing=_examples(
            CARD,
            CARD.with_(Precision("f64")),
            CARD.with_(SM(1200, arch_specific)),
            CARD.with_(Precision(f16, bf16, f32)),
        ),
        failing=_examples(
            CARD.with_(Precision("f32")),
            CARD.with_(Precision(f16, f32, f32)),
            CARD.with_(SM(750)),
            CARD.with_(Precision("e4m3", "e4m3", "f32"), SM(800)),
            CARD.without(SM),
        ),
    ),
)
"""The only rule of the path."""
