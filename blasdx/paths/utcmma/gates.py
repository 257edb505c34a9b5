"""The gates of tcgen05: every rule of cuBLASDx 0.8's Blackwell pipeline card.

Miss one, and cuBLASDx runs mma.sync without a word. Where the observed behaviour of cuBLASDx 0.8.0 is more precise than
the card, the observation is what stands here.
"""

from __future__ import annotations

from blasdx.descriptor import Descriptor
from blasdx.elements import bf16, e4m3, e5m2, f16, f32, s8, s32, tf32, u8
from blasdx.operators import (
    SM,
    Arrangement,
    BlockDim,
    BlocksPerCluster,
    Precision,
    Size,
    arch_specific,
    col_major,
    family_specific,
    generic,
    row_major,
)
from blasdx.paths import common
from blasdx.paths.common import listed, neighbours, pair, ratio, resized, triple
from blasdx.paths.rules import Gate, Path, Query, Verdict
from blasdx.paths.utcmma import limits
from blasdx.paths.utcmma.limits import (
    BOX,
    CARD,
    COLUMNS,
    INT8,
    INTEGER_NUMBERS,
    LEGAL_M,
    NUMBERS,
    PRECISIONS,
    blocks,
    columns,
    legal_n,
    pair_step,
)

SOURCE = "cuBLASDx 0.8 Blackwell pipeline card"
OBSERVED = f"{SOURCE}; observed on cuBLASDx 0.8.0"

# ---- judges ---------------------------------------------------------------------------------------------------------


def _wrong_sm(sm: SM) -> str:
    if sm.arch not in NUMBERS:
        if sm.arch >= 1200:
            return f"SM {sm.arch} has neither tcgen05 nor tensor memory, whatever the modifier; its class is mma.sync."
        return f"tcgen05 begins with SM 1000; SM {sm.arch} has none."
    if sm.modifier is family_specific:
        return f"family_specific builds {sm.target}; cuBLASDx takes tcgen05 with arch_specific only."
    return f"generic builds {sm.target}, where tcgen05 does not exist: ptxas refuses it."


def _precision(query: Query) -> Verdict:
    has, sm = query.descriptor.precision, query.descriptor.get(SM)
    integer = has in PRECISIONS and bool(limits.inputs(query.descriptor) & set(INT8))
    no_integer = sm is not None and sm.arch in NUMBERS and sm.arch not in INTEGER_NUMBERS
    legal = [p for p in PRECISIONS if not (no_integer and p.a in INT8)]
    need = "f16, bf16, tf32 or fp8 inputs" if no_integer else "a combination that tcgen05 has"
    if has in legal:
        return Verdict(True, str(has), need, f"{triple(has)} is one.")
    fixes = tuple(sorted(legal, key=lambda p: common.distance(has, p))[:1])
    if integer and sm is not None:
        why = f"SM {sm.arch} has no integer tcgen05.mma; SM {listed(INTEGER_NUMBERS, 'and')} have."
        chip = SM(INTEGER_NUMBERS[0], arch_specific)
        return Verdict(False, f"{has} on SM {sm.arch}", need, why, (*fixes, chip), guarded=("precision", "sm"))
    why = (
        f"{triple(has)} is not among f16 -> f16, f32; bf16 -> f32; tf32 -> f32; e4m3, e5m2 in any pairing -> f16, f32; "
        "s8, u8 in any pairing -> s32."
    )
    return Verdict(False, str(has), need, why, fixes, guarded=("precision",))


def _block_dim(query: Query) -> Verdict:
    has = query.descriptor.get(BlockDim)
    met = has == BlockDim(128)
    sm = query.descriptor.get(SM)
    why = f"{f'On SM {sm.arch} t' if sm and sm.arch in NUMBERS else 'T'}hese are the 128 epilogue threads"
    if has is None:
        why += "; left out, the choice is the library's."
    elif met:
        why += "; the pipeline adds two warps of its own."
    elif has.threads == 128:
        why += ", numbered along x alone."
    else:
        why += f"; {has.threads} is the Hopper habit." if has.threads in (256, 512, 1024) else f", not {has.threads}."
    return Verdict(met, str(has or "no BlockDim"), "BlockDim(128)", why, (BlockDim(128),))


def _size_m(query: Query) -> Verdict:
    need = f"M {listed(LEGAL_M)}"
    if query.descriptor.get(Size) is None:
        return common.no_size(query.descriptor, need)
    m = query.descriptor.m
    if m > BOX:
        why = f"A TMA box has at most {BOX} elements along a dimension; M = {m}."
    elif m % 64:
        why = f"Accumulator blocks have 64 or 128 rows: {m} = {m // 64} x 64 + {m % 64}."
    else:
        why = f"{m} = {blocks(m)} x {m // blocks(m)} rows."
    fixes = tuple(resized(query.descriptor, m=value) for value in neighbours(m, LEGAL_M))
    return Verdict(m in LEGAL_M, str(query.descriptor.size), need, why, fixes)


def _size_n(query: Query) -> Verdict:
    descriptor = query.descriptor
    legal, inputs = legal_n(descriptor), pair(descriptor.precision)
    step = legal[-1] - legal[-2]
    also = "8 or " if legal[0] < step else ""
    need = f"N {also}a multiple of {step}, at most {BOX}"
    if descriptor.get(Size) is None:
        return common.no_size(descriptor, need)
    n, major = descriptor.n, "K-major" if common.k_major_b(descriptor) else "MN-major"
    if n in legal:
        why = f"{n} = {n // step} x {step}." if n % step == 0 else f"8 is the exception, where B is {major}."
    elif n > BOX:
        why = f"One tcgen05.mma has at most {BOX} columns; N = {n}."
    else:
        why = f"{inputs} inputs, B {major}: {n} = {n // step} x {step} + {n % step}."
    fixes = tuple(resized(descriptor, n=value) for value in neighbours(n, legal))
    return Verdict(n in legal, str(descriptor.size), need, why, fixes)


def _size_k(query: Query) -> Verdict:
    step = common.k_step(query.descriptor)
    size = query.descriptor.get(Size)
    limit = f"A TMA box has at most {BOX} elements along a dimension; K = {size.k}." if size else ""
    return common.size_k(query, range(step, BOX + 1, step), f"K a multiple of {step}, at most {BOX}", limit)


def _tensor_memory(query: Query) -> Verdict:
    descriptor, need = query.descriptor, f"at most {COLUMNS} columns"
    if descriptor.get(Size) is None:
        return common.no_size(descriptor, need)
    m, n = descriptor.m, descriptor.n
    rows = 128 if m % 128 == 0 else 64
    count = blocks(m)
    lead = "" if m % 128 == 0 else f"{m} is not a multiple of 128: "
    rounded = "" if m % rows == 0 else ", rounded up,"
    why = f"{lead}{m} / {rows}{rounded} = {count} block{'s' * (count > 1)} x {n} columns = {columns(m, n)}."
    met = columns(m, n) <= COLUMNS
    got = f"{descriptor.size}, {descriptor.precision.c} accumulator"
    return Verdict(met, got, need, why, () if met else _fitting(descriptor))


def _fitting(descriptor: Descriptor) -> tuple[Size, ...]:
    """The widest N for this M, and the nearest M for this N; where neither exists, the nearest M with its widest N."""
    m, n = descriptor.m, descriptor.n
    near = sorted(LEGAL_M, key=lambda value: ratio(m, value))
    other_m = [resized(descriptor, m=value) for value in near if columns(value, n) <= COLUMNS][:1]
    found = (*_widest(descriptor, m), *other_m)
    return found or _widest(descriptor, near[0])


def _widest(descriptor: Descriptor, m: int) -> tuple[Size, ...]:
    fitting = [n for n in legal_n(descriptor) if columns(m, n) <= COLUMNS]
    return tuple(resized(descriptor, m=m, n=n) for n in fitting[-1:])


def _tf32(query: Query) -> bool:
    return tf32 in limits.inputs(query.descriptor)


def _tf32_majorness(query: Query) -> Verdict:
    return common.k_major(query, "tf32 operands have to be K-major; every other type is free.")


# ---- the pair -------------------------------------------------------------------------------------------------------


def _asks_for_pair(query: Query) -> bool:
    sm = query.descriptor.get(SM)
    return query.descriptor.blocks_per_cluster[0] % 2 == 0 and (sm is None or sm.arch in NUMBERS)


def _cta_pair(query: Query) -> Verdict:
    descriptor = query.descriptor
    cluster = BlocksPerCluster(*descriptor.blocks_per_cluster)
    step = pair_step(descriptor)
    need = f"N a multiple of {step} for the 2-CTA atom"
    if descriptor.get(Size) is None:
        return common.no_size(descriptor, need)
    n, k = descriptor.n, descriptor.k
    remark = f"a CUTLASS 256 x N pair tile is Size(128, {n}, {k}) here: Size is what each CTA of a pair holds"
    got = f"{descriptor.size} + {cluster}"
    if n % step == 0:
        return Verdict(True, got, need, f"{n} = {n // step} x {step}: pairs of CTAs multiply together.", remark=remark)
    why = (
        f"{n} = {n // step} x {step} + {n % step}: cuBLASDx silently takes the 1-CTA atom: the cluster "
        "multicasts, but no pair multiplies together."
    )
    legal = tuple(value for value in legal_n(descriptor) if value % step == 0)
    fixes = tuple(resized(descriptor, n=value) for value in neighbours(n, legal))
    return Verdict(False, got, need, why, fixes, remark=remark)


# ---- the catalogue --------------------------------------------------------------------------------------------------

_INT8 = CARD.with_(Precision(s8, s8, s32))
_FP8 = CARD.with_(Precision(e4m3, e5m2, f32))
_TF32 = CARD.with_(Precision(tf32, tf32, f32))
_MN_MAJOR = Arrangement(row_major, row_major, row_major)
_SHARED = common.common_gates(CARD, PRECISIONS, SOURCE)


def _examples(*descriptors: Descriptor) -> tuple[Query, ...]:
    return tuple(Query(descriptor) for descriptor in descriptors)


GATES = (
    _SHARED["pipeline"],
    _SHARED["input-streaming"],
    Gate(
        "sm",
        "An architecture with tcgen05, built for exactly it",
        f"SM is {listed(NUMBERS)} with arch_specific; family_specific and generic are refused, and 1200 and 1210 never "
        "reach it.",
        "tcgen05 exists in the architecture-specific targets of these chips only (sm_100a, sm_103a, sm_107a, sm_110a).",
        OBSERVED,
        common.architecture("tcgen05", NUMBERS, _wrong_sm),
        passing=_examples(*(CARD.with_(SM(number, arch_specific)) for number in NUMBERS)),
        failing=_examples(
            CARD.with_(SM(1000, generic)),
            CARD.with_(SM(1000, family_specific)),
            CARD.with_(SM(1200, arch_specific)),
            CARD.with_(SM(900, arch_specific)),
        ),
    ),
    _SHARED["type"],
    Gate(
        "precision",
        "A combination of types that the instruction has",
        "f16 -> f16 or f32; bf16 -> f32; tf32 -> f32; e4m3 and e5m2 in any pairing -> f16 or f32; s8 and u8 in any "
        "pairing -> s32, on SM 1000 and 1100 only.",
        "These are the kinds of tcgen05.mma. SM 1030 and 1070 have no kind::i8, and no chip has one for double.",
        OBSERVED,
        _precision,
        passing=_examples(
            CARD,
            _FP8,
            CARD.with_(Precision(f16)),
            CARD.with_(Precision(u8, s8, s32)),
            _INT8.with_(SM(1100, arch_specific)),
        ),
        failing=_examples(
            CARD.with_(Precision("f64")),
            CARD.with_(Precision(bf16, bf16, f16)),
            CARD.with_(Precision(f16, bf16, f32)),
            _INT8.with_(SM(1030, arch_specific)),
            _INT8.with_(SM(1070, arch_specific)),
        ),
    ),
    Gate(
        "block-dim",
        "Exactly 128 threads",
        "BlockDim is (128), no other number and no other shape.",
        "These are the 128 epilogue threads, one for each lane of tensor memory; the pipeline adds warps that issue "
        "TMA and MMA. 256 and 512 threads, the Hopper habit, leave the path.",
        OBSERVED,
        _block_dim,
        passing=_examples(CARD),
        failing=_examples(
            CARD.with_(BlockDim(256)), CARD.with_(BlockDim(96)), CARD.with_(BlockDim(64, 2)), CARD.without(BlockDim)
        ),
    ),
    _SHARED["alignment"],
    Gate(
        "size-m",
        "M in blocks of 64",
        "M is 64, 128, 192 or 256.",
        "An accumulator block has 64 or 128 rows, and a TMA box at most 256 elements along a dimension.",
        OBSERVED,
        _size_m,
        passing=_examples(CARD.with_(Size(192, 128, 64)), _FP8.with_(Size(192, 128, 64))),
        failing=_examples(
            CARD.with_(Size(96, 128, 64)),
            CARD.with_(Size(320, 64, 64)),
            CARD.with_(Size(8, 256, 64)),
            CARD.without(Size),
        ),
    ),
    Gate(
        "size-n",
        "N in the instruction's steps",
        "N is at most 256 and a multiple of 8 for 16-bit and tf32 inputs; for fp8 of 8 with a K-major B and of 16 "
        "otherwise; for int8 a multiple of 16, or 8 with a K-major B.",
        "One tcgen05.mma covers all N columns, in the steps that its descriptor can say and the tile's layout has.",
        OBSERVED,
        _size_n,
        passing=_examples(
            CARD.with_(Size(128, 8, 64)),
            _FP8.with_(Size(128, 24, 64)),
            _INT8.with_(Size(128, 8, 64)),
            _INT8.with_(Size(128, 48, 64)),
        ),
        failing=_examples(
            CARD.with_(Size(128, 60, 64)),
            CARD.with_(Size(128, 264, 64)),
            _FP8.with_(Size(128, 24, 64), _MN_MAJOR),
            _INT8.with_(Size(128, 24, 64)),
            _INT8.with_(Size(128, 8, 64), _MN_MAJOR),
            CARD.without(Size),
        ),
    ),
    Gate(
        "size-k",
        "K in the instruction's steps",
        "K is at most 256 and a multiple of 16 for 16-bit inputs, of 8 for tf32, of 32 for 8-bit inputs.",
        "One tcgen05.mma consumes 32 bytes of K, and a TMA box has at most 256 elements along a dimension.",
        OBSERVED,
        _size_k,
        passing=_examples(CARD.with_(Size(64, 64, 16)), _TF32.with_(Size(64, 64, 8)), _INT8.with_(Size(64, 64, 256))),
        failing=_examples(
            CARD.with_(Size(128, 64, 24)),
            CARD.with_(Size(128, 64, 272)),
            _TF32.with_(Size(128, 64, 12)),
            _INT8.with_(Size(128, 64, 16)),
            CARD.without(Size),
        ),
    ),
    Gate(
        "tensor-memory",
        "An accumulator that fits tensor memory",
        "M / 128 blocks for M a multiple of 128, otherwise M / 64 blocks, times N columns are at most 512.",
        "Tensor memory has 512 columns of 128 lanes; every accumulator element takes one 32-bit column, f16 included.",
        OBSERVED,
        _tensor_memory,
        passing=_examples(
            CARD.with_(Size(256, 256, 64)),
            CARD.with_(Size(192, 168, 64)),
            CARD.with_(Size(192, 168, 64), Precision(f16)),
        ),
        failing=_examples(
            CARD.with_(Size(192, 256, 64)), CARD.with_(Size(192, 176, 64), Precision(f16)), CARD.without(Size)
        ),
    ),
    Gate(
        "tf32-k-major",
        "K-major operands for tf32",
        "tf32 inputs have A row_major and B col_major; every other type is free.",
        "Operands of 8 and 16 bits may be transposed on the way from shared memory; tf32 has no such choice.",
        OBSERVED,
        _tf32_majorness,
        applies=_tf32,
        passing=_examples(_TF32, _TF32.with_(Arrangement(row_major, col_major, col_major))),
        failing=_examples(
            _TF32.with_(_MN_MAJOR),
            _TF32.with_(Arrangement(col_major, col_major, row_major)),
            _TF32.with_(Arrangement(col_major, row_major, row_major)),
        ),
    ),
    _SHARED["element-type"],
    Gate(
        "cta-pair",
        "The 2-CTA atom under BlocksPerCluster",
        "With an even number of blocks along M, N is a multiple of 16; of 32 for int8, and for fp8 with an MN-major B.",
        "An even cluster asks for pairs of CTAs that multiply together. A shape that the pair cannot take gets the "
        "1-CTA atom, in cuBLASDx without a diagnostic. A CUTLASS 256 x N pair tile is Size(128, N, K) here.",
        SOURCE,
        _cta_pair,
        applies=_asks_for_pair,
        advisory=True,
        passing=_examples(
            CARD.with_(BlocksPerCluster(2, 1)),
            CARD.with_(BlocksPerCluster(4, 2), Size(256, 48, 64)),
            _FP8.with_(BlocksPerCluster(2, 1), Size(128, 48, 64)),
        ),
        failing=_examples(
            CARD.with_(BlocksPerCluster(2, 1), Size(128, 40, 64)),
            _INT8.with_(BlocksPerCluster(2, 1), Size(128, 48, 64)),
            _FP8.with_(BlocksPerCluster(2, 1), Size(128, 48, 64), _MN_MAJOR),
        ),
    ),
)
"""Every rule of the card, in the order in which a report lists them."""


# ---- the neighbourhood that a fix searches --------------------------------------------------------------------------


def _arrangement(descriptor: Descriptor) -> Arrangement:
    has = descriptor.arrangement
    return Arrangement(row_major, col_major, has.c) if tf32 in limits.inputs(descriptor) else has


def _sizes(descriptor: Descriptor) -> tuple[Size, ...]:
    """Legal tiles: every M and N that fit together, with the K next to the descriptor's."""
    step = common.k_step(descriptor)
    ks = neighbours(descriptor.k, range(step, BOX + 1, step))
    pairs = [(m, n) for m in LEGAL_M for n in legal_n(descriptor) if columns(m, n) <= COLUMNS]
    return tuple(Size(m, n, k) for m, n in pairs for k in ks)


PATH = Path(
    name="utcmma",
    instruction="tcgen05",
    gates=GATES,
    targets=tuple(SM(number, arch_specific) for number in NUMBERS),
    precisions=PRECISIONS,
    block_dims=(BlockDim(128),),
    arrangement=_arrangement,
    sizes=_sizes,
)
