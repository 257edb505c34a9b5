"""The gates of wgmma on SM 900: what cuBLASDx 0.8.0 was observed to do, on 454 descriptors."""

from __future__ import annotations

from blasdx.descriptor import Descriptor
from blasdx.elements import bf16, f16, tf32
from blasdx.operators import (
    SM,
    Arrangement,
    BlockDim,
    Precision,
    Size,
    arch_specific,
    col_major,
    family_specific,
    generic,
    row_major,
)
from blasdx.paths import common
from blasdx.paths.common import around, listed, resized, triple
from blasdx.paths.rules import Gate, Path, Query, Verdict
from blasdx.paths.utcmma.limits import CARD as BLACKWELL_CARD
from blasdx.paths.utcmma.limits import PRECISIONS as BLACKWELL_PRECISIONS

SOURCE = "observed on cuBLASDx 0.8.0, SM 900"
PRECISIONS = BLACKWELL_PRECISIONS
"""wgmma has exactly the combinations of tcgen05."""

WARPGROUPS = {128: (1, 1), 256: (2, 1), 512: (2, 2), 1024: (4, 2)}
"""Warpgroups along M and N, by the threads of the block."""

CARD = BLACKWELL_CARD.with_(SM(900, arch_specific))
"""The Blackwell card's descriptor on Hopper; it meets every gate."""


def _warpgroups(descriptor: Descriptor) -> tuple[int, int]:
    """Along M and N; one, where BlockDim is missing or none of the four."""
    return WARPGROUPS.get(descriptor.block_threads or 0, (1, 1))


def n_step(descriptor: Descriptor) -> int:
    """N is a multiple of this: 8 for each warpgroup along N."""
    return 8 * _warpgroups(descriptor)[1]


def m_step(descriptor: Descriptor) -> int:
    """M is a multiple of this: 64 for each warpgroup along M."""
    return 64 * _warpgroups(descriptor)[0]


# ---- judges ---------------------------------------------------------------------------------------------------------


def _wrong_sm(sm: SM) -> str:
    if sm.arch != 900:
        return f"wgmma exists on SM 900 only; SM {sm.arch} has none."
    if sm.modifier is family_specific:
        return f"family_specific builds {sm.target}; wgmma exists in sm_90a."
    return f"generic builds {sm.target}, where wgmma does not exist: it is in sm_90a."


def _precision(query: Query) -> Verdict:
    has = query.descriptor.precision
    met = has in PRECISIONS
    fixes = tuple(sorted(PRECISIONS, key=lambda p: common.distance(has, p))[:1])
    why = f"{triple(has)} is one." if met else f"{triple(has)} is none."
    return Verdict(met, str(has), "a combination that wgmma has", why, fixes, guarded=("precision",))


def _block_dim(query: Query) -> Verdict:
    has = query.descriptor.get(BlockDim)
    need = f"BlockDim {listed(WARPGROUPS)}"
    if has is None:
        return Verdict(False, "no BlockDim", need, "Left out, the choice is the library's.", (BlockDim(128),))
    met = has.y == has.z == 1 and has.x in WARPGROUPS
    if met:
        along_m, along_n = WARPGROUPS[has.x]
        return Verdict(True, str(has), need, f"{along_m} x {along_n} warpgroups along M x N.", (has,))
    nearest = min(WARPGROUPS, key=lambda threads: (common.ratio(has.threads, threads), threads))
    why = f"{has.threads} = {has.threads // 128} warpgroups of 128" + (
        f" + {rest}." if (rest := has.threads % 128) else "."
    )
    if has.threads in WARPGROUPS:
        why = "Warpgroups are numbered along x alone."
    return Verdict(False, str(has), need, why, (BlockDim(nearest),))


def _size_m(query: Query) -> Verdict:
    step, groups = m_step(query.descriptor), _warpgroups(query.descriptor)[0]
    need = f"M a multiple of {step}"
    if query.descriptor.get(Size) is None:
        return common.no_size(query.descriptor, need)
    m = query.descriptor.m
    why = f"{groups} warpgroup{'s' * (groups > 1)} along M x 64 rows = {step}: {m} = {m // step} x {step}"
    why += f" + {m % step}." if m % step else "."
    fixes = tuple(resized(query.descriptor, m=value) for value in common.neighbours(m, around(m, step)))
    return Verdict(m % step == 0, str(query.descriptor.size), need, why, fixes)


def _size_n(query: Query) -> Verdict:
    step, groups = n_step(query.descriptor), _warpgroups(query.descriptor)[1]
    need = f"N a multiple of {step}"
    if query.descriptor.get(Size) is None:
        return common.no_size(query.descriptor, need)
    n = query.descriptor.n
    why = f"{groups} warpgroup{'s' * (groups > 1)} along N x 8 columns = {step}: {n} = {n // step} x {step}"
    why += f" + {n % step}." if n % step else "."
    fixes = tuple(resized(query.descriptor, n=value) for value in common.neighbours(n, around(n, step)))
    return Verdict(n % step == 0, str(query.descriptor.size), need, why, fixes)


def _size_k(query: Query) -> Verdict:
    return common.size_k(query, None, f"K a multiple of {common.k_step(query.descriptor)}")


def _not_16_bits(query: Query) -> bool:
    precision = query.descriptor.precision
    return precision in PRECISIONS and precision.a.bits != 16


def _majorness(query: Query) -> Verdict:
    has = common.pair(query.descriptor.precision)
    return common.k_major(query, f"wgmma transposes 16-bit operands only; {has} ones have to be K-major.")


# ---- the catalogue --------------------------------------------------------------------------------------------------

_SHARED = common.common_gates(CARD, PRECISIONS, SOURCE)
_FP8 = CARD.with_(Precision("e4m3", "e5m2", "f32"))
_INT8 = CARD.with_(Precision("s8", "u8", "s32"))
_TF32 = CARD.with_(Precision(tf32, tf32, "f32"))


def _examples(*descriptors: Descriptor) -> tuple[Query, ...]:
    return tuple(Query(descriptor) for descriptor in descriptors)


GATES = (
    _SHARED["pipeline"],
    _SHARED["input-streaming"],
    Gate(
        "sm",
        "Hopper, built for exactly it",
        "SM is 900 with arch_specific.",
        "wgmma exists in the target sm_90a and nowhere else.",
        SOURCE,
        common.architecture("wgmma", (900,), _wrong_sm),
        passing=_examples(CARD),
        failing=_examples(
            CARD.with_(SM(900, generic)), CARD.with_(SM(900, family_specific)), CARD.with_(SM(1000, arch_specific))
        ),
    ),
    _SHARED["type"],
    Gate(
        "precision",
        "A combination of types that the instruction has",
        "f16 -> f16 or f32; bf16 -> f32; tf32 -> f32; e4m3 and e5m2 in any pairing -> f16 or f32; s8 and u8 in any "
        "pairing -> s32.",
        "These are the types of wgmma.mma_async.",
        SOURCE,
        _precision,
        passing=_examples(CARD, _FP8, _INT8, CARD.with_(Precision(f16))),
        failing=_examples(
            CARD.with_(Precision("f64")),
            CARD.with_(Precision(bf16, bf16, f16)),
            CARD.with_(Precision("u8", "u8", "u32")),
        ),
    ),
    Gate(
        "block-dim",
        "One, two, four or eight warpgroups",
        "BlockDim is 128, 256, 512 or 1024 along x: 1 x 1, 2 x 1, 2 x 2 or 4 x 2 warpgroups along M x N.",
        "wgmma is issued by warpgroups of 128 threads, which share the tile out between them in these ways only.",
        SOURCE,
        _block_dim,
        passing=_examples(CARD, CARD.with_(BlockDim(256)), CARD.with_(BlockDim(512)), CARD.with_(BlockDim(1024))),
        failing=_examples(
            CARD.with_(BlockDim(384)), CARD.with_(BlockDim(64)), CARD.with_(BlockDim(64, 2)), CARD.without(BlockDim)
        ),
    ),
    _SHARED["alignment"],
    Gate(
        "size-m",
        "64 rows for each warpgroup along M",
        "M is a multiple of 64 (128 threads), 128 (256 and 512) or 256 (1024); there is no upper limit.",
        "A wgmma has 64 rows.",
        SOURCE,
        _size_m,
        passing=_examples(CARD.with_(Size(192, 64, 64)), CARD.with_(Size(512, 64, 32), BlockDim(512))),
        failing=_examples(
            CARD.with_(Size(192, 64, 64), BlockDim(256)), CARD.with_(Size(96, 64, 64)), CARD.without(Size)
        ),
    ),
    Gate(
        "size-n",
        "8 columns for each warpgroup along N",
        "N is a multiple of 8 (128 and 256 threads) or 16 (512 and 1024), whatever the types; there is no upper limit.",
        "The N of a wgmma is a multiple of 8.",
        SOURCE,
        _size_n,
        passing=_examples(CARD.with_(Size(64, 40, 64)), CARD.with_(Size(64, 264, 32))),
        failing=_examples(
            CARD.with_(Size(64, 12, 64)), CARD.with_(Size(128, 40, 64), BlockDim(512)), CARD.without(Size)
        ),
    ),
    Gate(
        "size-k",
        "K in the instruction's steps",
        "K is a multiple of 16 for 16-bit inputs, of 8 for tf32, of 32 for 8-bit inputs; there is no upper limit.",
        "One wgmma consumes 32 bytes of K.",
        SOURCE,
        _size_k,
        passing=_examples(CARD.with_(Size(64, 64, 272)), _TF32.with_(Size(64, 64, 8))),
        failing=_examples(CARD.with_(Size(64, 64, 24)), _INT8.with_(Size(64, 64, 16)), CARD.without(Size)),
    ),
    Gate(
        "k-major",
        "K-major operands for other than 16-bit types",
        "tf32, fp8 and int8 inputs have A row_major and B col_major; 16-bit inputs are free.",
        "wgmma transposes 16-bit operands only.",
        SOURCE,
        _majorness,
        applies=_not_16_bits,
        passing=_examples(_FP8, _INT8.with_(Arrangement(row_major, col_major, col_major))),
        failing=_examples(
            _FP8.with_(Arrangement(row_major, row_major, row_major)),
            _TF32.with_(Arrangement(col_major, col_major, row_major)),
        ),
    ),
    _SHARED["element-type"],
)
"""Every rule, in the order in which a report lists them."""


def _arrangement(descriptor: Descriptor) -> Arrangement:
    has = descriptor.arrangement
    return has if descriptor.precision.a.bits == 16 else Arrangement(row_major, col_major, has.c)


def _sizes(descriptor: Descriptor) -> tuple[Size, ...]:
    m, n, k = descriptor.m, descriptor.n, descriptor.k
    return tuple(
        Size(new_m, new_n, new_k)
        for new_m in around(m, m_step(descriptor))
        for new_n in around(n, n_step(descriptor))
        for new_k in around(k, common.k_step(descriptor))
    )


PATH = Path(
    name="wgmma",
    instruction="wgmma",
    gates=GATES,
    targets=(SM(900, arch_specific),),
    precisions=PRECISIONS,
    block_dims=tuple(BlockDim(threads) for threads in WARPGROUPS),
    arrangement=_arrangement,
    sizes=_sizes,
)
