"""The bit fields that an MMA is told its operands with.

Sources: PTX ISA 9.7.16.4.1 and 9.7.15.5.1.2 (shared-memory matrix descriptors of tcgen05 and of wgmma), 9.7.16.4.2
(instruction descriptor of tcgen05).
"""

from __future__ import annotations

from enum import StrEnum

from blasdx.elements import Element, bf16, e4m3, e5m2, f16, f32, s8, s32, tf32, u8
from blasdx.layout.swizzle import Swizzle


class Major(StrEnum):
    """The dimension along which an operand is contiguous."""

    K = "K-major"
    MN = "MN-major"


class Generation(StrEnum):
    """Which matrix descriptor an instruction reads; the two differ in a constant and in the place of the swizzle."""

    WGMMA = "sm_90"
    TCGEN05 = "sm_100"


_ADDRESS_UNIT = 16
_MAX_FIELD = (1 << 14) - 1


def matrix_descriptor(
    swizzle: Swizzle, generation: Generation, *, leading_bytes: int, stride_bytes: int, address: int = 0
) -> int:
    """Encode the 64-bit shared-memory matrix descriptor of an operand tile.

    Parameters
    ----------
    swizzle
        How the tile is permuted.
    leading_bytes, stride_bytes
        The two strides of the canonical layout in bytes, multiples of 16: for a swizzled K-major tile ``stride_bytes``
        separates groups of eight rows and ``leading_bytes`` is unused; for a swizzled MN-major tile ``leading_bytes``
        separates spans along M or N and ``stride_bytes`` groups of eight K.
    address
        Shared-memory address of the tile in bytes, a multiple of 16; zero when the kernel adds it.

    Raises
    ------
    ValueError
        When a field is not a multiple of 16 or does not fit its 14 bits.
    """
    fields = {"address": address, "leading_bytes": leading_bytes, "stride_bytes": stride_bytes}
    for name, value in fields.items():
        if value % _ADDRESS_UNIT or not 0 <= value // _ADDRESS_UNIT <= _MAX_FIELD:
            raise ValueError(
                f"{name} is {value} B; a matrix descriptor holds multiples of 16 B up to {_MAX_FIELD * 16}"
            )
    # Bits 46-48 hold a constant on sm_100 and nothing on sm_90; the swizzle codes coincide in bits 62 and 63.
    constant = 0b001 << 46 if generation is Generation.TCGEN05 else 0
    return (
        address // _ADDRESS_UNIT
        | leading_bytes // _ADDRESS_UNIT << 16
        | stride_bytes // _ADDRESS_UNIT << 32
        | constant
        | swizzle.matrix_descriptor_code << 61
    )


_KIND: dict[Element, str] = {
    f16: "f16",
    bf16: "f16",
    tf32: "tf32",
    e4m3: "f8f6f4",
    e5m2: "f8f6f4",
    s8: "i8",
    u8: "i8",
}
_INPUT_CODE: dict[Element, int] = {f16: 0, bf16: 1, tf32: 2, e4m3: 0, e5m2: 1, u8: 0, s8: 1}
_ACCUMULATOR_CODE: dict[Element, int] = {f16: 0, f32: 1, s32: 2}


def mma_kind(a: Element) -> str:
    """The ``.kind`` of the tcgen05.mma that multiplies this input type: f16, tf32, f8f6f4 or i8."""
    return _KIND[a]


def instruction_descriptor(
    a: Element, b: Element, accumulator: Element, *, m: int, n: int, a_major: Major, b_major: Major
) -> int:
    """Encode the 32-bit instruction descriptor of a dense ``tcgen05.mma``.

    ``m`` and ``n`` are the rows and columns of one instruction (of the whole pair for ``cta_group::2``): multiples
    of 16 and 8.

    Raises
    ------
    ValueError
        When ``m`` or ``n`` cannot be encoded.
    """
    if m % 16 or not 0 < m <= 256 or n % 8 or not 0 < n <= 256:
        raise ValueError(f"m = {m}, n = {n}: an instruction covers a multiple of 16 rows and of 8 columns, at most 256")
    return (
        _ACCUMULATOR_CODE[accumulator] << 4
        | _INPUT_CODE[a] << 7
        | _INPUT_CODE[b] << 10
        | (a_major is Major.MN) << 15
        | (b_major is Major.MN) << 16
        | n // 8 << 17
        | m // 16 << 24
    )
