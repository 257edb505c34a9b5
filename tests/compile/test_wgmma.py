"""Hopper kernels compile without spills, without the compiler's warnings, and hold exactly the planned MMAs."""

from __future__ import annotations

import pytest
from tiles import tile

import blasdx as dx
from blasdx.errors import EpilogueError, RenderError


def plan_of(
    size, threads, arrangement=("row", "col", "row"), precision=("bf16", "bf16", "f32"), cluster=(1, 1), **options
):
    descriptor = tile(size, precision, threads=threads, cluster=cluster, sm=900).with_(dx.Arrangement(*arrangement))
    return dx.suggest_pipeline(descriptor, **options)


LONG = dx.Epilogue(
    "gelu(alpha * acc + beta * c + bias[n]) * scale[m] + rest[m, n]", bias="bf16", scale="f32", rest="bf16"
)

CASES = [
    ((128, 256, 64), 256, ("row", "col", "row"), ("bf16", "bf16", "f32"), "bf16", "HGMMA", 4),
    ((256, 128, 64), 256, ("col", "row", "row"), ("f16", "f16", "f32"), None, "HGMMA", 8),
    ((64, 24, 48), 128, ("row", "row", "col"), ("f16", "f16", "f16"), None, "HGMMA", 3),
    ((128, 176, 32), 128, ("row", "col", "row"), ("bf16", "bf16", "f32"), "f16", "HGMMA", 4),
    ((128, 192, 64), 128, ("row", "col", "row"), ("bf16", "bf16", "f32"), "bf16", "HGMMA", 8),
    ((384, 40, 32), 128, ("row", "col", "row"), ("bf16", "bf16", "f32"), None, "HGMMA", 6),
    ((128, 512, 32), 512, ("row", "col", "row"), ("f16", "f16", "f16"), None, "HGMMA", 2),
    ((128, 64, 32), 512, ("row", "col", "row"), ("tf32", "tf32", "f32"), None, "HGMMA", 4),
    ((128, 128, 128), 256, ("row", "col", "row"), ("e4m3", "e5m2", "f32"), "bf16", "QGMMA", 4),
    ((64, 64, 256), 128, ("row", "col", "row"), ("e5m2", "e5m2", "f16"), None, "QGMMA", 8),
    ((64, 40, 96), 128, ("row", "col", "row"), ("s8", "u8", "s32"), None, "IGMMA", 15),
]


@pytest.mark.parametrize(("size", "threads", "arrangement", "precision", "output", "mnemonic", "count"), CASES)
def test_kernel_holds_the_planned_mmas(size, threads, arrangement, precision, output, mnemonic, count):
    plan = plan_of(size, threads, arrangement, precision, output=output, depth=2)
    kernel = dx.compile(dx.render(plan))
    assert (plan.mma.mnemonic, plan.mma.count) == (mnemonic, count)
    assert kernel.prove() == count
    assert kernel.sass.require("UTMALDG") == plan.a.boxes + plan.b.boxes
    resources = kernel.resources
    assert (resources.stack, resources.spill_stores, resources.spill_loads) == (0, 0, 0)
    assert "C75" not in kernel.log


@pytest.mark.parametrize("options", [{}, {"fixed_blocksize": True}, {"pingpong": True}], ids=["", "fixed", "turns"])
def test_promoted_sums_of_a_long_k_block_stay_in_flight_step_by_step(options):
    """17 steps of four blocks of rows are a loop, with a promotion after each fourth and after the last."""
    plan = plan_of((256, 24, 544), 128, precision=("e4m3", "e4m3", "f32"), **options)
    assert plan.mma.unrolled < plan.mma.steps == 17
    kernel = dx.compile(dx.render(plan))
    assert (kernel.resources.spill_stores, kernel.complaints) == (0, ())


def test_threads_and_buffer_are_those_of_cublasdx():
    plan = plan_of((128, 256, 64), 256, depth=4)
    assert plan.block_dim == 256 + 128
    assert plan.buffer_size == 4 * 48 * 1024 + 16 * 4
    assert plan.smem_total == plan.buffer_size + 2 * 2 * 64 * 128  # two staging buffers a warpgroup


@pytest.mark.parametrize(
    ("threads", "size", "load", "math"),
    [(128, (64, 64, 64), 40, 240), (256, (128, 64, 64), 40, 232), (512, (128, 64, 64), 40, 104)],
)
def test_registers_claimed_are_registers_there(threads, size, load, math):
    split = plan_of(size, threads).register_split
    assert split is not None
    assert (split.load, split.math) == (load, math)
    assert 128 * load + threads * math <= (threads + 128) * split.launched <= 65536


def test_two_sets_in_turns_have_barriers_staging_and_registers_of_their_own():
    one, two = (plan_of((128, 128, 64), 128, output="bf16", pingpong=turns) for turns in (False, True))
    assert (one.block_dim, two.block_dim) == (256, 384)
    assert two.region("staging").size == 2 * one.region("staging").size
    assert [(barrier.name, barrier.stages, barrier.count) for barrier in two.barriers] == [
        ("full", two.depth, 1),
        ("empty", two.depth, 4),  # of the four warps that read the stage, not of all eight
        ("turn", 2, 4),
    ]
    assert two.register_split == plan_of((128, 128, 64), 256).register_split
    assert "2 sets of math warps" in str(two)
    assert plan_of((128, 192, 64), 128, pingpong=True).passes == (
        1,
        2,
    )  # 192 accumulator registers are too many for two


@pytest.mark.parametrize(
    ("size", "arrangement", "options"),
    [
        ((128, 128, 64), ("row", "col", "row"), {"output": "bf16"}),
        ((64, 256, 64), ("row", "col", "col"), {"output": "e4m3", "epilogue": LONG}),
        ((128, 176, 64), ("col", "row", "row"), {"output": "bf16", "cluster": (2, 1)}),
        ((128, 128, 32), ("row", "col", "row"), {"epilogue": LONG}),
    ],
)
def test_two_sets_in_turns_do_not_spill(size, arrangement, options):
    plan = plan_of(size, 128, arrangement, pingpong=True, **options)
    kernel = dx.compile(dx.render(plan))
    assert kernel.prove() == plan.mma.count
    assert (kernel.resources.stack, kernel.resources.spill_stores, kernel.complaints) == (0, 0, ())


@pytest.mark.parametrize(
    ("threads", "options", "why"),
    [
        (256, {}, "do not have the registers"),
        (128, {"fixed_blocksize": True}, "exactly BlockDim threads"),
        (128, {"split_k": 4}, "fewer tiles than SMs"),
    ],
)
def test_what_cannot_take_turns_is_refused(threads, options, why):
    with pytest.raises(dx.PlanError, match=why) as refusal:
        plan_of((128, 128, 64), threads, pingpong=True, **options)
    assert refusal.value.code == "pingpong"


def test_turns_are_of_wgmma_and_of_the_default_kernel():
    with pytest.raises(dx.PlanError, match="accumulators in tensor memory"):
        dx.suggest_pipeline(tile(), pingpong=True)
    plan = plan_of((128, 128, 64), 128, pingpong=True)
    with pytest.raises(RenderError, match="default kernel"):
        dx.render_header(plan)


@pytest.mark.parametrize(
    ("size", "threads", "precision", "passes"),
    [
        ((256, 256, 32), 128, ("bf16", "bf16", "f32"), (2, 2)),
        ((512, 256, 32), 256, ("bf16", "bf16", "f32"), (2, 2)),
        ((64, 512, 32), 128, ("bf16", "bf16", "f32"), (1, 2)),
        ((128, 256, 64), 256, ("e4m3", "e4m3", "f32"), (1, 2)),
        ((320, 328, 32), 128, ("s8", "s8", "s32"), (1, 41)),
        ((256, 256, 64), 512, ("f16", "f16", "f16"), (1, 2)),
        ((128, 264, 64), 128, ("bf16", "bf16", "f32"), (1, 3)),  # narrow chunks, and many
    ],
)
def test_a_tile_that_fits_in_no_registers_takes_several_passes(size, threads, precision, passes):
    plan = plan_of(size, threads, precision=precision)
    assert plan.passes == passes
    assert (plan.tile_m, plan.tile_n) == (size[0] // passes[0], size[1] // passes[1])
    assert plan.tiles(*size[:2]) == passes[0] * passes[1]
    kernel = dx.compile(dx.render(plan))
    assert kernel.prove() == plan.mma.count
    assert kernel.resources.spill_stores == 0


def test_promotion_is_said_and_can_be_turned_off():
    promoted = plan_of((128, 128, 64), 256, precision=("e4m3", "e4m3", "f32"))
    assert promoted.promotion is not None
    assert (promoted.promotion.k, promoted.promotion.blocks) == (128, 2)
    assert "every 128 of K" in str(promoted)
    assert plan_of((128, 128, 64), 256, precision=("e4m3", "e4m3", "f32"), promote=False).promotion is None
    assert plan_of((128, 128, 64), 256).promotion is None


def test_an_output_that_an_accumulator_is_not_stored_as():
    with pytest.raises(EpilogueError, match="an s32 accumulator cannot be stored as e5m2"):
        plan_of((64, 64, 32), 128, precision=("s8", "s8", "s32"), output="e5m2")


@pytest.mark.parametrize(
    ("cluster", "a_shares", "b_shares", "arrivals"), [((2, 1), 1, 2, 16), ((1, 2), 2, 1, 16), ((4, 2), 2, 4, 40)]
)
def test_a_cluster_shares_its_loads(cluster, a_shares, b_shares, arrivals):
    plan = plan_of((128, 128, 64), 256, cluster=cluster)
    assert (plan.a.shares, plan.b.shares) == (a_shares, b_shares)
    assert (plan.a.box, plan.b.box) == ((64, 128 // a_shares), (64, 128 // b_shares))
    assert plan.barrier("empty").count == arrivals  # eight warps in every CTA that this one loads into
    assert plan.grid(1000, 1000, 132) == min(
        -(-1000 // (128 * cluster[0])) * -(-1000 // (128 * cluster[1])) * plan.cluster_size,
        132 // plan.cluster_size * plan.cluster_size,
    )
    kernel = dx.compile(dx.render(plan))
    kernel.prove()
    assert kernel.sass.count("MEMBAR") <= 8  # none in the loop: a remote arrival orders no memory


def test_as_many_load_as_whole_groups_of_eight_lines_go_round():
    plan = plan_of((64, 24, 64), 128, cluster=(4, 1))
    assert (plan.b.sharers, plan.b.shares) == (4, 3)
    assert plan_of((64, 8, 64), 128, cluster=(2, 1)).b.shares == 1


def test_long_k_loops_are_rolled_where_registers_are_few():
    plan = plan_of((256, 400, 544), 512, precision=("u8", "u8", "s32"), depth=1)
    assert (plan.mma.steps, plan.mma.unrolled) == (17, 1)
    kernel = dx.compile(dx.render(plan))
    assert kernel.prove() == plan.mma.blocks
    assert kernel.complaints == ()
    assert plan_of((128, 64, 272), 256, depth=1).mma.unrolled == 17


@pytest.mark.parametrize("output", ["f32", "bf16", "e4m3"])
def test_the_widest_tile_with_a_long_epilogue_does_not_spill(output):
    kernel = dx.compile(dx.render(plan_of((128, 256, 64), 256, epilogue=LONG, output=output)))
    assert (kernel.resources.stack, kernel.resources.spill_stores) == (0, 0)
    assert kernel.complaints == ()
