"""Descriptors as people write them, near the gates and far from them, complete and half-built."""

from __future__ import annotations

from hypothesis import strategies as st

from blasdx.descriptor import Descriptor
from blasdx.elements import ELEMENTS
from blasdx.operators import (
    ACCUMULATORS,
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
    Modifier,
    Operator,
    Order,
    Precision,
    RequiredMantissaBits,
    Size,
    StaticBlockDim,
    Type,
    WithPipeline,
    arch_specific,
)
from blasdx.paths.utcmma.limits import CARD, PRECISIONS

EDGES = (
    1,
    7,
    8,
    16,
    24,
    32,
    48,
    63,
    64,
    65,
    96,
    128,
    160,
    168,
    176,
    192,
    200,
    255,
    256,
    257,
    264,
    320,
    1000,
    2**32 - 1,
)
extents = st.sampled_from(EDGES) | st.integers(1, 600)
orders = st.sampled_from(list(Order))
inputs = st.sampled_from(ELEMENTS)
alignments = st.sampled_from([1, 2, 4, 8, 16, 32, 128])
modifiers = st.sampled_from(list(Modifier))

sizes = st.builds(Size, extents, extents, extents)
precisions = st.sampled_from(PRECISIONS) | st.builds(Precision, inputs, inputs, st.sampled_from(ACCUMULATORS))
sms = (
    st.sampled_from([750, 800, 860, 870, 890]).map(SM)
    | st.builds(SM, st.sampled_from([900, 1000, 1030, 1070, 1100, 1200, 1210]), modifiers)
    | st.sampled_from([900, 1000, 1030, 1070, 1100]).map(lambda number: SM(number, arch_specific))
)
block_dims = (
    st.sampled_from([32, 64, 96, 128, 160, 192, 256, 384, 512, 640, 1024]).map(BlockDim)
    | st.integers(1, 1024).map(BlockDim)
    | st.just(BlockDim(64, 2))
    | st.just(BlockDim(8, 4, 4))
)

BY_KIND: dict[type[Operator], st.SearchStrategy[Operator]] = {
    Size: sizes,
    Precision: precisions,
    Type: st.sampled_from(list(Kind)).map(Type),
    Function: st.just(Function(MM)),
    Arrangement: st.builds(Arrangement, orders, orders, orders),
    LeadingDimension: st.builds(LeadingDimension, extents, extents, extents),
    Alignment: st.builds(Alignment, alignments, alignments, alignments),
    Block: st.just(Block()),
    BlockDim: block_dims,
    StaticBlockDim: st.just(StaticBlockDim()),
    WithPipeline: st.just(WithPipeline()),
    EnableInputStreaming: st.just(EnableInputStreaming()),
    BlocksPerCluster: st.sampled_from([(1, 1), (2, 1), (1, 2), (4, 2), (3, 1)]).map(lambda mn: BlocksPerCluster(*mn)),
    RequiredMantissaBits: st.integers(1, 52).map(RequiredMantissaBits),
    SM: sms,
}
assert set(BY_KIND) == set(OPERATORS)


@st.composite
def operator_lists(draw: st.DrawFn) -> list[Operator]:
    """Any operators, each kind at most once, in any order."""
    kinds = draw(st.lists(st.sampled_from(OPERATORS), unique=True))
    return [draw(BY_KIND[kind]) for kind in kinds]


@st.composite
def near_misses(draw: st.DrawFn) -> Descriptor:
    """The card's descriptor with a few operators changed or taken away."""
    descriptor = CARD.with_(draw(sms), draw(sizes), draw(precisions))
    for kind in draw(st.lists(st.sampled_from(OPERATORS), unique=True, max_size=4)):
        descriptor = descriptor.without(kind) if draw(st.integers(0, 3)) == 0 else descriptor.with_(draw(BY_KIND[kind]))
    return descriptor


descriptors = operator_lists().map(lambda operators: Descriptor(*operators)) | near_misses()
