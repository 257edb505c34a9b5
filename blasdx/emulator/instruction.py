"""The 32-bit instruction descriptor of tcgen05.mma, decoded and checked against the instruction that carries it.

Bit fields: PTX ISA 9.7.16.4.2. Shapes and types: PTX ISA 9.7.16.2, assembled with ptxas 13.0 to 13.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from blasdx.emulator.errors import DecodeError
from blasdx.emulator.matrix import SharedDescriptor

_F8F6F4 = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_OPERANDS = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": _F8F6F4,
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": _F8F6F4,
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}
_ACCUMULATORS = {
    "f16": {0: "f16", 1: "f32"},
    "tf32": {1: "f32"},
    "f8f6f4": {0: "f16", 1: "f32"},
    "i8": {2: "s32"},
}
_DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
_BITS = {"f16": 16, "bf16": 16, "tf32": 32}


@dataclass(frozen=True, slots=True)
class InstructionDescriptor:
    """What one tcgen05.mma computes; M and N of the whole CTA pair for cta_group::2."""

    kind: str
    m: int
    n: int
    k: int
    a: str
    b: str
    d: str
    negate_a: bool
    negate_b: bool
    a_mn_major: bool
    b_mn_major: bool
    saturate: bool
    scale: str  # element type of the block scales, "" without
    a_scale_id: int
    b_scale_id: int
    most_shift: int = 0  # columns that .ws may skip at the start of B

    @property
    def dense_4bit(self) -> bool:
        """Whether 4-bit elements lie two to a byte in shared memory (otherwise padded to a byte each)."""
        return self.kind in ("mxf4", "mxf4nvf4")

    @property
    def shared_bits(self) -> int:
        """Bits that one element of A or B takes in shared memory."""
        return 4 if self.dense_4bit else _BITS.get(self.a, 8)


class _Bits:
    """The 32 bits, and a refusal that quotes them."""

    def __init__(self, bits: int, kind: str, target: str) -> None:
        self.bits, self.kind, self.target = bits, kind, target

    def __call__(self, low: int, high: int | None = None) -> int:
        return self.bits >> low & ((1 << ((low if high is None else high) - low + 1)) - 1)

    def refuse(self, what: str, got: object, need: str) -> DecodeError:
        return DecodeError(
            f"instruction descriptor {self.bits:#010x} with .kind::{self.kind}: {what} is {got}, needs {need}"
            f" on {self.target}"
        )

    def choose(self, what: str, code: int, table: dict[int, str]) -> str:
        if code not in table:
            raise self.refuse(what, code, " or ".join(f"{c} ({name})" for c, name in table.items()))
        return table[code]


@lru_cache(maxsize=512)
def decode_instruction(
    bits: int, kind: str, target: str, *, cta_group: int = 1, ws: bool = False, scale_vector: int = 0
) -> InstructionDescriptor:
    """Decode `bits` for ``tcgen05.mma{.ws}.cta_group::G.kind::K`` on `target` (``"sm_100a"``).

    Parameters
    ----------
    scale_vector
        N of ``.scale_vec::NX`` (``.block32`` is 1 for mxf8f6f4 and 2 for the others, ``.block16`` is 4).

    Raises
    ------
    DecodeError
        When reserved bits are set, or types, shape, transposition or target do not fit the kind.
    """
    if kind not in _OPERANDS:
        raise DecodeError(f"tcgen05.mma .kind::{kind} is not known; known: {', '.join(_OPERANDS)}")
    field = _Bits(bits, kind, target)
    if kind == "i8" and target not in ("sm_100a", "sm_110a"):
        raise DecodeError(f".kind::i8 exists on sm_100a and sm_110a only, not on {target}")
    if field(0, 2):
        raise field.refuse("sparsity (bits 0-2)", field(0, 2), "0: sparse operands are not emulated")
    if field(6):
        raise field.refuse("bit 6", 1, "0 (reserved)")
    scaled = kind.startswith("mx")
    k = _depth(field, scaled)
    desc = InstructionDescriptor(
        kind=kind,
        m=field(24, 28) << 4,
        n=field(17, 22) << 3,
        k=k,
        a=field.choose("type of A (bits 7-9)", field(7, 9), _OPERANDS[kind]),
        b=field.choose("type of B (bits 10-12)", field(10, 12), _OPERANDS[kind]),
        d="f32" if scaled else field.choose("type of D (bits 4-5)", field(4, 5), _ACCUMULATORS[kind]),
        negate_a=bool(field(13)),
        negate_b=bool(field(14)),
        a_mn_major=bool(field(15)),
        b_mn_major=bool(field(16)),
        saturate=not scaled and bool(field(3)),
        scale=_scale_type(field, kind) if scaled else "",
        a_scale_id=field(29, 30) if scaled else 0,
        b_scale_id=field(4, 5) if scaled else 0,
        most_shift=0 if scaled else (0, 8, 16, 32)[field(30, 31)],
    )
    _check_flags(field, desc, scale_vector)
    _check_shape(field, desc, cta_group, ws)
    return desc


def _depth(field: _Bits, scaled: bool) -> int:
    """K, and the bits that only later parts use to double it (PTX ISA 9.4, sm_107)."""
    rubin = field.target.startswith("sm_107")
    base = _DEPTH[field.kind]
    if field.kind in ("mxf4", "mxf4nvf4"):
        code = field(3) << 1 | field(31)
        if code == 1 and field.target in ("sm_103a", "sm_107a"):
            raise field.refuse("K (bit 31)", 96, "0 (K = 64): K = 96 is not emulated")
        if code and not (rubin and code == 2):
            raise field.refuse("K (bits 3 and 31)", code, "0 (K = 64)")
        return base << (code >> 1)
    if field.kind == "mxf8f6f4":
        if field(3):
            raise field.refuse("bit 3", 1, "0 (reserved)")
        if field(31) and not rubin:
            raise field.refuse("bit 31", 1, "0 (K = 64 exists on sm_107 only)")
        return base << field(31)
    if field(29) and not (rubin and field.kind == "f8f6f4"):
        raise field.refuse("bit 29", 1, "0 (reserved)")
    if field(23):
        raise field.refuse("bit 23", 1, "0 (reserved)")
    if not scaled and field(3) and field.kind != "i8":
        raise field.refuse("saturate (bit 3)", 1, "0 (only .kind::i8 saturates)")
    return base << field(29)


def _scale_type(field: _Bits, kind: str) -> str:
    table = {1: "ue8m0", 0: "ue4m3"} if kind == "mxf4nvf4" else {1: "ue8m0"}
    return field.choose("scale type (bit 23)", field(23), table)


def _check_flags(field: _Bits, desc: InstructionDescriptor, scale_vector: int) -> None:
    if desc.d == "f16" and desc.kind == "f16" and (desc.a, desc.b) != ("f16", "f16"):
        raise field.refuse("type of A x B", f"{desc.a} x {desc.b}", "f16 x f16 for an f16 accumulator")
    if desc.kind == "i8" and (desc.negate_a or desc.negate_b):
        raise field.refuse("negate (bits 13-14)", field(13, 14), "0 (integers are not negated)")
    for name, element, mn_major in (("A", desc.a, desc.a_mn_major), ("B", desc.b, desc.b_mn_major)):
        if mn_major and element in ("e2m3", "e3m2", "e2m1"):
            raise field.refuse(f"majorness of {name}", "MN", f"K for {element}")
    if desc.scale:
        ids = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}[scale_vector or (1 if desc.kind == "mxf8f6f4" else 2)]
        for name, value in (("A", desc.a_scale_id), ("B", desc.b_scale_id)):
            if value not in ids:
                raise field.refuse(f"scale-factor id of {name}", value, f"one of {ids}")


def _check_shape(field: _Bits, desc: InstructionDescriptor, cta_group: int, ws: bool) -> None:
    """Shapes of PTX ISA 9.7.16.2.1, as far as ptxas and the libraries use them."""
    if ws:
        if cta_group != 1 or desc.scale:
            raise DecodeError(".ws needs cta_group::1 and no block scales")
        ms: tuple[int, ...] = (32, 64, 128)
        legal: tuple[int, ...] = (64, 128, 256)
    else:
        small = 128 if desc.scale else 64
        ms = (small, 128) if cta_group == 1 else (128, 256)
        legal = _columns(desc, cta_group)
        if desc.most_shift:
            raise field.refuse("maximum shift (bits 30-31)", field(30, 31), "0 (only .ws shifts B)")
    if desc.m not in ms:
        raise field.refuse("M", desc.m, f"one of {sorted(set(ms))} for cta_group::{cta_group}{'.ws' * ws}")
    if desc.n not in legal:
        raise field.refuse("N", desc.n, f"one of {legal[0]}, {legal[1]}, ... {legal[-1]} for cta_group::{cta_group}")


def _columns(desc: InstructionDescriptor, cta_group: int) -> tuple[int, ...]:
    eight_bit = desc.kind in ("i8", "f8f6f4", "mxf8f6f4")
    step = 8 * cta_group * (2 if eight_bit and desc.b_mn_major else 1)
    if desc.kind == "i8":
        if cta_group == 2:
            return tuple(range(32, 257, 32))
        few = () if desc.b_mn_major else (8, 24)
        return tuple(sorted((*few, *range(16, 257, 16))))
    return tuple(range(step, 257, step))


def check_operand(desc: InstructionDescriptor, shared: SharedDescriptor, *, mn_major: bool, name: str) -> None:
    """Refuse a swizzle that the kind does not allow for this operand.

    Raises
    ------
    DecodeError
        MN-major tf32 exists with the 32-byte atom only, every other MN-major operand without it.
    """
    if mn_major and (desc.kind == "tf32") != (shared.swizzle == "128B_ATOM_32B"):
        need = "128B_ATOM_32B" if desc.kind == "tf32" else "none, 32B, 64B or 128B"
        raise DecodeError(f"MN-major {name} of .kind::{desc.kind} has swizzle {shared.swizzle}, needs {need}")
