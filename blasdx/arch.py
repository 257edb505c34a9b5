"""What each SM has, as far as a matrix product asks.

cuBLASDx numbers architectures in four digits: SM 1000 is compute capability 10.0, built as sm_100, sm_100a or sm_100f.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True)
class Arch:
    """One SM architecture.

    Attributes
    ----------
    number : int
        cuBLASDx's number: 900, 1000, ...
    chip : str
        What carries it.
    smem_optin : int
        Most shared memory of one block after opting in, bytes (CUDA C++ Programming Guide, technical specifications by
        compute capability; 232,448 also measured on an H200).
    smem_oversized : int
        Most shared memory of one block in the oversized mode, bytes; equal to `smem_optin` where there is no such mode
        (cuBLASDx 0.8 Blackwell card: 327 KiB on SM 1070).
    tma : bool
        Has the tensor memory accelerator, mbarrier transactions and clusters (PTX ISA: sm_90 and newer).
    wgmma : bool
        Has wgmma.mma_async, in the architecture-specific target only (PTX ISA: sm_90a).
    tcgen05 : bool
        Has tcgen05 and tensor memory, in the architecture-specific target (PTX ISA: sm_100a,
        sm_103a, sm_107a, sm_110a).
    tcgen05_integer : bool
        tcgen05.mma takes kind::i8 (cuBLASDx 0.8 Blackwell card: SM 1030 and 1070 have no integer tcgen05).
    tmem_columns : int
        Columns of tensor memory of an SM, each 128 lanes of 32 bits; 0 without tensor memory (PTX ISA 9.7.16.1).
    oldest_nvrtc : tuple of int
        First NVRTC of the 13 series that compiles for it (measured: 13.0.88 knows all but SM 1070, which needs 13.4).
    """

    number: int
    chip: str
    smem_optin: int
    smem_oversized: int
    tma: bool = False
    wgmma: bool = False
    tcgen05: bool = False
    tcgen05_integer: bool = False
    tmem_columns: int = 0
    oldest_nvrtc: tuple[int, int] = (13, 0)

    @property
    def has_modifiers(self) -> bool:
        """Whether arch_specific and family_specific targets exist (cuBLASDx: SM 900 and newer)."""
        return self.number >= 900

    def target(self, modifier: str = "generic") -> str:
        """The compiler's name: "sm_100", "sm_100a" for arch_specific, "sm_100f" for family_specific."""
        suffix = {"generic": "", "arch_specific": "a", "family_specific": "f"}[str(modifier)]
        if suffix and not self.has_modifiers:
            raise ValueError(f"SM {self.number} has no {modifier} target: they begin with SM 900")
        return f"sm_{self.number // 10}{suffix}"


def _before_hopper(number: int, chip: str, smem_kib: int) -> Arch:
    return Arch(number, chip, smem_kib * KIB, smem_kib * KIB)


def _blackwell(
    number: int, chip: str, *, integer: bool, oversized: int = 232448, nvrtc: tuple[int, int] = (13, 0)
) -> Arch:
    return Arch(
        number,
        chip,
        232448,
        oversized,
        tma=True,
        tcgen05=True,
        tcgen05_integer=integer,
        tmem_columns=512,
        oldest_nvrtc=nvrtc,
    )


ARCHS = (
    _before_hopper(750, "Turing", 64),
    _before_hopper(800, "A100", 163),
    _before_hopper(860, "Ampere RTX", 99),
    _before_hopper(870, "Orin", 163),
    _before_hopper(890, "Ada", 99),
    Arch(900, "H100, H200", 232448, 232448, tma=True, wgmma=True),
    _blackwell(1000, "B200", integer=True),
    _blackwell(1030, "B300", integer=False),
    _blackwell(1070, "Rubin", integer=False, oversized=327 * KIB, nvrtc=(13, 4)),
    _blackwell(1100, "Thor", integer=True),
    Arch(1200, "Blackwell RTX", 99 * KIB, 99 * KIB, tma=True),
    Arch(1210, "GB10", 99 * KIB, 99 * KIB, tma=True),
)
"""Every architecture, by number."""

_BY_NUMBER = {arch.number: arch for arch in ARCHS}
NUMBERS = tuple(_BY_NUMBER)
"""The numbers that `of` knows."""


def of(number: int) -> Arch:
    """The architecture of a number.

    Raises
    ------
    ValueError
        When there is none; the text lists the numbers, and names what was probably meant.
    """
    found = _BY_NUMBER.get(number)
    if found is None:
        raise ValueError(f"there is no SM {number}; known are {', '.join(map(str, NUMBERS))}{hint(number)}")
    return found


def hint(number: int) -> str:
    """What a number that `of` does not know was probably meant to be; "" when there is no telling."""
    if number == 1010:
        return "; CUDA 13 renamed 1010 (Thor) to 1100"
    if number * 10 in _BY_NUMBER:
        return f"; sm_{number} is {number * 10}"
    return ""
