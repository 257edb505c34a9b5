"""The plan's numbers: the card's own where it gives them, otherwise by hand."""

from __future__ import annotations

import numpy as np
import pydantic
import pytest
from tiles import tile

import blasdx as dx
from blasdx.errors import GateError, PlanError
from blasdx.paths.operand import OperandSpec
from blasdx.plan import PipelinePlan


def descriptor(m=128, n=256, k=64, *, arrangement=("row", "col", "row"), precision=("bf16", "bf16", "f32"), sm=1000):
    return tile((m, n, k), precision, sm=sm).with_(dx.Arrangement(*arrangement))


def spec(rows, columns, *, column_major=False, ld=None, address=None, dtype="bf16"):
    ld = ld or (rows if column_major else columns)
    return OperandSpec((rows, columns), (2, 2 * ld) if column_major else (2 * ld, 2), dtype, address)


def test_the_cards_numbers():
    plan = dx.suggest_pipeline(descriptor(), depth=4)
    assert plan.stage_bytes == 48 * 1024
    assert plan.buffer_size == plan.smem_total == 196_708
    assert plan.block_dim == 192
    assert plan.accumulator_stages == 2
    assert plan.smem_limit == 232_448
    assert plan.target == "sm_100a"
    assert [(role.name, role.threads) for role in plan.roles] == [
        ("epilogue", 128),
        ("mma_issue", 32),
        ("tma_load", 32),
    ]


@pytest.mark.parametrize(
    ("size", "stage", "acc_stages", "depth", "buffer"),
    [  # the reference's table of derived maxima at 232,448 B
        ((128, 256, 64), 49_152, 2, 4, 196_708),
        ((128, 128, 64), 32_768, 4, 7, 229_556),
        ((128, 64, 64), 24_576, 8, 9, 221_460),
        ((64, 256, 64), 40_960, 2, 5, 204_916),
        ((192, 128, 64), 40_960, 1, 5, 204_900),
        ((256, 128, 64), 49_152, 2, 4, 196_708),
        ((256, 256, 64), 65_536, 1, 3, 196_676),
    ],
)
def test_the_deepest_that_fits(size, stage, acc_stages, depth, buffer):
    plan = dx.suggest_pipeline(descriptor(*size))
    assert (plan.stage_bytes, plan.accumulator_stages, plan.depth, plan.buffer_size) == (
        stage,
        acc_stages,
        depth,
        buffer,
    )


def test_depth_is_at_most_sixteen():
    assert dx.suggest_pipeline(descriptor(64, 8, 64)).depth == 16


def test_scratch_is_reserved_before_the_depth_is_chosen():
    free = dx.suggest_pipeline(descriptor())
    crowded = dx.suggest_pipeline(descriptor(), scratch=40_000)
    assert (free.depth, crowded.depth) == (4, 3)
    assert crowded.buffer_size == 3 * 49_152 + 8 * (6 + 4) + 4
    assert crowded.smem_total == 147_552 + 40_000  # the buffer rounded up to the scratch's 16 bytes, then the scratch


@pytest.mark.parametrize(
    ("size", "output", "options", "depth", "staging"),
    [
        (
            (128, 256, 64),
            "bf16",
            {},
            4,
            32_768,
        ),  # four warps x two boxes of 32 rows of 128 B, in what four stages leave
        ((128, 128, 64), "f16", {}, 6, 32_768),  # of seven stages one is given up
        ((256, 256, 64), "bf16", {}, 3, 32_768),
        ((128, 192, 64), "bf16", {}, 5, 16_384),  # three boxes, one at a time
        ((64, 128, 64), "bf16", {}, 8, 16_384),  # 16 rows a warp
        ((128, 256, 64), "e4m3", {}, 4, 16_384),
        ((128, 48, 64), "bf16", {}, 9, 12_288),  # three boxes of 32 B a row
        ((128, 256, 64), "bf16", {"scratch": 4_000}, 4, 0),  # it would cost one of four stages
        ((128, 128, 64), "bf16", {"depth": 7}, 7, 0),  # who asks for seven stages gets them
        ((128, 256, 64), "f32", {}, 4, 0),
        ((128, 40, 64), "bf16", {}, 10, 0),  # rows of 80 B
    ],
)
def test_narrow_results_are_staged_where_stages_remain(size, output, options, depth, staging):
    plan = dx.suggest_pipeline(descriptor(*size), output=output, **options)
    regions = {region.name: region.size for region in plan.regions}
    assert (plan.depth, regions.get("staging", 0)) == (depth, staging)
    assert plan.bulk_stores is bool(staging)
    assert ("of staging for C" in str(plan)) is ("TMA stores of" in str(plan)) is bool(staging)
    assert plan.smem_total <= plan.smem_budget


def test_columns_of_c_are_stored_directly():
    assert not dx.suggest_pipeline(descriptor(arrangement=("row", "col", "col")), output="bf16").bulk_stores


def test_tiles_come_first_and_stay_aligned():
    plan = dx.suggest_pipeline(descriptor(192, 128, 64), depth=3)
    assert [region.name for region in plan.regions] == [
        "a",
        "b",
        "full",
        "empty",
        "acc_full",
        "acc_empty",
        "tmem_handle",
    ]
    assert plan.region("b").offset == 3 * 192 * 128
    assert plan.region("b").offset % 1024 == 0
    offsets = [region.offset for region in plan.regions]
    sizes = [region.size for region in plan.regions]
    assert offsets[1:] == [offset + size for offset, size in zip(offsets, sizes, strict=True)][:-1]


def test_arrival_counts_follow_from_the_roles():
    plan = dx.suggest_pipeline(descriptor(), depth=4)
    counts = {barrier.name: (barrier.stages, barrier.count) for barrier in plan.barriers}
    assert counts == {"full": (4, 1), "empty": (4, 1), "acc_full": (2, 1), "acc_empty": (2, 128)}
    for barrier in plan.barriers:
        assert barrier.count == sum(plan.role(arrival.role).issuers for arrival in barrier.arrivals)


@pytest.mark.parametrize(
    ("size", "blocks", "steps", "m"),
    [((128, 256, 64), 1, 4, 128), ((64, 64, 128), 1, 8, 64), ((192, 64, 64), 3, 4, 64), ((256, 64, 256), 2, 16, 128)],
)
def test_mmas_a_k_block(size, blocks, steps, m):
    mma = dx.suggest_pipeline(descriptor(*size), depth=1).mma
    assert (mma.blocks, mma.steps, mma.m, mma.count) == (blocks, steps, m, blocks * steps)


def test_a_stage_that_does_not_fit_has_a_path_and_no_plan():
    large = descriptor(256, 256, 256)
    assert dx.check(large).path == "utcmma"
    with pytest.raises(PlanError, match=r"262,144 B .* 262,180 B .* 232,448 B") as caught:
        dx.suggest_pipeline(large)
    assert (caught.value.needed, caught.value.available) == (262_144 + 8 * (2 + 2) + 4, 232_448)


def test_an_explicit_depth_that_does_not_fit_names_the_one_that_does():
    with pytest.raises(PlanError, match=r"5 stages x 49,152 B .* depth=4 fits"):
        dx.suggest_pipeline(descriptor(), depth=5)


@pytest.mark.parametrize("depth", [0, 17, -1, True, 2.0, "4"])
def test_depth_is_one_to_sixteen(depth):
    with pytest.raises(PlanError, match="1 to 16 stages"):
        dx.suggest_pipeline(descriptor(), depth=depth)


@pytest.mark.parametrize("scratch", [-1, 1.5, None])
def test_scratch_is_bytes(scratch):
    with pytest.raises(PlanError, match="number of bytes"):
        dx.suggest_pipeline(descriptor(), scratch=scratch)


@pytest.mark.parametrize(
    ("size", "arrangement", "swizzles"),
    [
        ((128, 256, 48), ("row", "col", "row"), ("32B", "32B")),  # rows of 96 B
        ((128, 200, 64), ("row", "row", "row"), ("128B", "none")),  # 400 B
        ((192, 8, 16), ("col", "row", "row"), ("128B", "none")),  # 16 B, and blocks of 64 rows
        ((128, 160, 32), ("row", "row", "row"), ("64B", "64B")),  # 320 B
    ],
)
def test_the_widest_swizzle_that_divides_the_rows(size, arrangement, swizzles):
    plan = dx.suggest_pipeline(descriptor(*size, arrangement=arrangement))
    assert (str(plan.a.swizzle), str(plan.b.swizzle)) == swizzles


@pytest.mark.parametrize(
    ("size", "depth", "plans", "oversized"),
    [
        ((128, 256, 64), None, 4, False),  # as anywhere: an automatic depth stays within 227 KiB
        ((128, 256, 64), 6, 6, True),
        ((256, 256, 256), None, 1, True),  # one stage of 256 KiB
    ],
)
def test_sm_1070_has_more_shared_memory_for_those_who_ask(size, depth, plans, oversized):
    plan = dx.suggest_pipeline(descriptor(*size).with_(dx.SM(1070, "arch_specific")), depth=depth)
    assert (plan.depth, plan.oversized) == (plans, oversized)
    assert ("oversized, by CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE" in str(plan)) is oversized
    with pytest.raises(PlanError, match="232,448 B a block may"):
        dx.suggest_pipeline(descriptor(*size), depth=7)
    with pytest.raises(PlanError, match="334,848 B a block may"):
        dx.suggest_pipeline(descriptor(*size).with_(dx.SM(1070, "arch_specific")), depth=7)


def test_oversized_shared_memory_is_a_mode_and_not_a_size(monkeypatch):
    from blasdx.devices import gpu

    device = object.__new__(gpu.Gpu)
    device.index = 3
    monkeypatch.setattr(gpu, "attribute_of", lambda index, name: {"OVERSIZED": 334_848}[name.split("_")[4]])
    rubin = descriptor(256, 256, 256).with_(dx.SM(1070, "arch_specific"))
    large, usual = dx.suggest_pipeline(rubin), dx.suggest_pipeline(descriptor())
    names = gpu.driver.CUfunction_attribute
    assert device._shared_memory(usual) == (names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, usual.smem_total)
    assert device._shared_memory(large) == (names.CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE, 3)
    monkeypatch.setattr(gpu, "attribute_of", lambda index, name: 232_448)
    with pytest.raises(dx.LaunchError, match=r"262,\d\d\d B of oversized .* CUDA device 3 has at most 232,448 B"):
        device._shared_memory(large)


def test_a_path_without_a_kernel_says_what_keeps_from_tcgen05():
    with pytest.raises(GateError, match="block-dim"):
        dx.suggest_pipeline(descriptor().with_(dx.BlockDim(256)))


# ---- strict --------------------------------------------------------------------------------------------------------


def test_strict_takes_what_cublasdx_takes():
    plan = dx.suggest_pipeline(descriptor(), spec(512, 256), spec(256, 512, column_major=True), depth=4, strict=True)
    assert plan == dx.suggest_pipeline(descriptor(), depth=4)


@pytest.mark.parametrize(
    ("a", "b", "depth", "code", "words"),
    [
        ((512, 256), (320, 512), 4, "incompatible_k_dimensions", "K differs, 256 against 320"),
        ((500, 256), (256, 512), 4, "tile_divisibility", r"M = 500 = 3 x 128 \+ 116"),
        ((512, 256), (256, 520), 4, "tile_divisibility", r"N = 520 = 2 x 256 \+ 8"),
        ((512, 264), (264, 512), 4, "tile_divisibility", r"K = 264 = 4 x 64 \+ 8"),
        ((512, 192), (192, 512), 4, "insufficient_stages", "3 blocks of 64, fewer than the 4 stages"),
        ((512, 64), (64, 512), None, "insufficient_stages", "1 block of 64, fewer than the 4 stages"),
    ],
)
def test_strict_refuses_as_cublasdx_does(a, b, depth, code, words):
    with pytest.raises(PlanError, match=words) as caught:
        dx.suggest_pipeline(descriptor(), spec(*a), spec(*b, column_major=True), depth=depth, strict=True)
    assert caught.value.code == code


def test_strict_wants_whole_clusters():
    paired = descriptor(sm=900).with_(dx.BlockDim(256), dx.BlocksPerCluster(2, 1))
    assert dx.suggest_pipeline(paired, spec(512, 256), spec(256, 512, column_major=True), strict=True).cluster == (2, 1)
    with pytest.raises(PlanError, match="3 tiles along M in clusters of 2") as caught:
        dx.suggest_pipeline(paired, spec(384, 256), spec(256, 512, column_major=True), strict=True)
    assert caught.value.code == "cluster_grid_divisibility"


@pytest.mark.parametrize(
    ("ld", "address", "words"), [(257, None, "a stride of 514 B"), (256, 1000, "its address 1,000 B")]
)
def test_strict_checks_the_declared_alignment(ld, address, words):
    with pytest.raises(PlanError, match=words) as caught:
        dx.suggest_pipeline(
            descriptor(), spec(512, 256, ld=ld, address=address), spec(256, 512, column_major=True), strict=True
        )
    assert caught.value.code == "alignment_unfulfilled"


def test_a_different_k_is_always_refused_and_tails_are_clipped_otherwise():
    with pytest.raises(PlanError, match="K differs") as caught:
        dx.suggest_pipeline(descriptor(), spec(512, 256), spec(264, 512, column_major=True))
    assert caught.value.code == "incompatible_k_dimensions"
    assert dx.suggest_pipeline(descriptor(), spec(500, 264), spec(264, 8, column_major=True)).depth == 4


def test_operands_lie_as_the_descriptor_arranges_them():
    with pytest.raises(PlanError, match=r"a has the strides .* arranges it row_major") as caught:
        dx.suggest_pipeline(descriptor(), spec(512, 256, column_major=True), spec(256, 512, column_major=True))
    assert caught.value.code == "arrangement"
    with pytest.raises(PlanError, match=r"b has the strides .* arranges it col_major"):
        dx.suggest_pipeline(descriptor(), spec(512, 256), spec(256, 512))
    with pytest.raises(PlanError, match=r"a has the shape \(256,\)"):
        dx.suggest_pipeline(descriptor(), OperandSpec((256,), None, "bf16"), spec(256, 512, column_major=True))


def test_numpy_integers_are_integers():
    assert dx.suggest_pipeline(descriptor(), depth=np.int64(3)) == dx.suggest_pipeline(descriptor(), depth=3)


def test_strict_needs_operands_and_operands_come_in_pairs():
    with pytest.raises(PlanError, match="pass a and b"):
        dx.suggest_pipeline(descriptor(), strict=True)
    with pytest.raises(PlanError, match="both a and b"):
        dx.suggest_pipeline(descriptor(), spec(512, 256))


# ---- the value -----------------------------------------------------------------------------------------------------


def test_a_plan_is_a_value():
    plan = dx.suggest_pipeline(descriptor(), depth=4)
    again = PipelinePlan.model_validate_json(plan.model_dump_json())
    assert again == plan
    assert hash(again) == hash(plan)
    assert plan != dx.suggest_pipeline(descriptor(), depth=3)


def test_a_plan_prints_itself():
    text = str(dx.suggest_pipeline(descriptor(), depth=4))
    for fact in ("192 = 128 epilogue + 32 mma_issue + 32 tma_load", "196,708 B of 232,448 B", "2 accumulator stages"):
        assert fact in text


@pytest.mark.parametrize(
    ("m", "n", "sms", "grid"), [(128, 256, 132, 1), (1000, 1000, 132, 32), (1000, 1000, 7, 7), (1, 1, 132, 1)]
)
def test_grid(m, n, sms, grid):
    assert dx.suggest_pipeline(descriptor(), depth=1).grid(m, n, sms) == grid


@pytest.mark.parametrize("band", [0, -1, 65, 2.5])
def test_bands_that_are_none_are_refused(band):
    with pytest.raises(pydantic.ValidationError, match="band"):
        dx.Raster(band=band)


@pytest.mark.parametrize("raster", [0, "m", {"along": "n"}, dx.Raster])
def test_an_order_of_tiles_is_a_raster(raster):
    with pytest.raises(PlanError, match=r"raster = .*dx\.Raster"):
        dx.suggest_pipeline(tile(), raster=raster)
