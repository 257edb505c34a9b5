"""Which kernels exist here so far.

A path is what cuBLASDx would take; whether there is a kernel for it here is said apart from it.
"""

from __future__ import annotations

from blasdx.descriptor import Descriptor
from blasdx.operators import Precision
from blasdx.paths.common import triple
from blasdx.paths.rules import PathName
from blasdx.paths.utcmma.limits import PRECISIONS as UTCMMA_PRECISIONS
from blasdx.paths.wgmma.gates import PRECISIONS as WGMMA_PRECISIONS

KERNELS: dict[PathName, tuple[Precision, ...]] = {
    "utcmma": UTCMMA_PRECISIONS,
    "wgmma": WGMMA_PRECISIONS,
}
"""By path, the types that the templates render."""


def gaps(descriptor: Descriptor, path: PathName) -> tuple[str, ...]:
    """Why there is no kernel for a descriptor that lands on a path; empty when there is one.

    Whether its tile has a layout and fits in shared memory is the plan's answer.
    """
    if path == "unsupported":
        return ("a rule of every path is missed",)
    found = []
    precisions = KERNELS.get(path, ())
    if not precisions:
        found.append(f"{path} has no kernel")
    elif descriptor.precision not in precisions:
        found.append(f"{path} has no kernel for {triple(descriptor.precision)}")
    bits = descriptor.required_mantissa_bits
    if bits is not None:
        found.append(f"RequiredMantissaBits({bits}) has no kernel{_mantissa(descriptor, bits)}")
    return tuple(found)


def _mantissa(descriptor: Descriptor, bits: int) -> str:
    """What there is to emulate, if anything."""
    element = descriptor.precision.c
    holds = {"f32": 23, "f64": 52}.get(element.name)
    if holds is None or {descriptor.precision.a, descriptor.precision.b} != {element}:
        return f"; it emulates f32 and f64 products, and this one is {triple(descriptor.precision)}"
    return f"; an {element} has {holds} mantissa bits" if bits > holds else ""
