"""mbarriers, cp.async, bulk copies, TMA and clusters (PTX ISA 9.7.9.25 - 9.7.9.28, 9.7.13)."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from blasdx.emulator import DeadlockError, EmulationError, GlobalMemory, HazardError, LivelockError, TensorMap
from tests.emulator.families import kernel, launch

SCHEDULES = ("eager", "lazy", "adversarial", "random")
SHARED = ".shared .align 1024 .b8 box[8192]; .shared .align 8 .b64 bar; .shared .align 8 .b64 bar2;"
INIT = (
    "mov.u32 %r20, box; mov.u32 %r21, bar; mov.u32 %r22, bar2; setp.eq.u32 %q30, %t, 0;\n"
    "@%q30 mbarrier.init.shared::cta.b64 [%r21], {count}; @%q30 mbarrier.init.shared::cta.b64 [%r22], 1;\n"
    "@%q30 fence.mbarrier_init.release.cluster;\n{sync}\n"
)
CLUSTER_SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def setup(count: int = 1, cluster: bool = False) -> str:
    return INIT.format(count=count, sync=CLUSTER_SYNC if cluster else "bar.sync 0;")


def wait(bar: str = "%r21", parity: int = 0, label: str = "W") -> str:
    return f"{label}: mbarrier.try_wait.parity.shared::cta.b64 %q29, [{bar}], {parity}; @!%q29 bra {label};\n"


# ---------------------------------------------------------------------------------------------------- mbarriers


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_arrivals_of_every_form_complete_a_phase(schedule: str) -> None:
    body = (
        setup(64 + 5)
        + (
            "mbarrier.arrive.shared::cta.b64 %d0, [%r21];\n"  # 64 threads
            "@%q30 mbarrier.arrive.shared::cta.b64 _, [%r21], 3;\n"
            "@%q30 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r21], 64;\n"
            "@%q30 mbarrier.arrive_drop.shared::cta.b64 _, [%r21];\n"
            "@%q30 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r21], 48;\n"
            "@%q30 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r21], 16;\n"
            "@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 0;\n"
            + wait()
            + "A: mbarrier.test_wait.shared::cta.b64 %q0, [%r21], %d0; @!%q0 bra A;\n"
            # One arrival was dropped for good: the second phase takes 68.
            "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r21];\n"
            "@%q30 mbarrier.arrive.shared::cta.b64 _, [%r21], 4;\n"
            + wait(parity=1, label="B")
            + "@%q30 mbarrier.inval.shared::cta.b64 [%r21];\nst.global.u32 [%p0], 1;"
        )
    )
    out = np.zeros(1, np.uint32)
    launch(kernel(body, declarations=SHARED), out, block=64, schedule=schedule)
    assert out[0] == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warps_that_spin_through_barriers_do_not_keep_a_copy_from_arriving(schedule: str) -> None:
    """Each round of the spinning warps is progress of its own; what they look for needs the copy."""
    body = (
        setup() + "mov.u32 %r23, flag; setp.ge.u32 %q1, %t, 32; @%q1 bra SPIN; @!%q30 bra DONE;\n"
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 128;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%p0], 128, [%r21];\n"
        + wait()
        + "ld.shared.u32 %r1, [%r20]; st.volatile.shared.u32 [%r23], %r1; bra DONE;\n"
        "SPIN: ld.volatile.shared.u32 %r1, [%r23]; setp.eq.u32 %q2, %r1, 7;\n"
        "barrier.cta.red.or.aligned.pred %q3, 1, 64, %q2; @!%q3 bra SPIN;\n"
        "mad.wide.u32 %d1, %t, 4, %p1; st.global.u32 [%d1], 7;\nDONE:"
    )
    out = np.zeros(96, np.uint32)
    text = kernel(body, 2, declarations=SHARED + ".shared .b32 flag;")
    launch(text, np.full(32, 7, np.uint32), out, block=96, schedule=schedule, max_instructions=200_000)
    np.testing.assert_array_equal(out, [0] * 32 + [7] * 64)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warps_that_spin_through_barriers_in_vain_are_given_up(schedule: str) -> None:
    body = "SPIN: setp.eq.u32 %q2, %t, 99; barrier.cta.red.or.aligned.pred %q3, 1, 64, %q2; @!%q3 bra SPIN;"
    with pytest.raises(LivelockError, match="max_instructions = 2000 passed"):
        launch(kernel(body), np.zeros(1, np.uint32), block=64, schedule=schedule, max_instructions=2000)


def test_a_phase_needs_its_bytes_as_well() -> None:
    body = setup() + "@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 16;\n" + wait()
    with pytest.raises(DeadlockError, match="16 bytes"):
        launch(kernel(body, declarations=SHARED), np.zeros(1, np.uint32))


@pytest.mark.parametrize(("body", "message"), [
    ("mbarrier.arrive.shared::cta.b64 _, [box];", "no mbarrier|not initialised|initialised"),
    (setup() + "mbarrier.arrive.shared::cta.b64 _, [%r21];", "arrival"),
    ("mbarrier.init.shared::cta.b64 [box + 4], 1;", "aligned"),
    ("mov.u32 %r0, 0; mbarrier.init.shared::cta.b64 [box], %r0;", "count|1 to"),
])  # fmt: skip
def test_misused_barriers_are_errors(body: str, message: str) -> None:
    with pytest.raises(EmulationError, match=message):
        launch(kernel(body, declarations=SHARED), np.zeros(1, np.uint32))


# ---------------------------------------------------------------------------------------------------- cp.async


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("size", [4, 8, 16])
def test_asynchronous_copies_and_zero_fill(size: int, schedule: str) -> None:
    cache = "cg" if size == 16 else "ca"
    body = setup() + (
        f"mad.lo.u32 %r1, %t, {size}, %r20; mad.wide.u32 %d0, %t, {size}, %p0; mad.wide.u32 %d1, %t, {size}, %p1;\n"
        f"rem.u32 %r2, %t, {size + 1};\n"
        f"cp.async.{cache}.shared.global [%r1], [%d0], {size}, %r2;\ncp.async.commit_group; cp.async.wait_group 0;\n"
        f"ld.shared.b{8 * size} {{r}}, [%r1]; st.global.b{8 * size} [%d1], {{r}};"
    )
    register = {4: "%r5", 8: "%d5", 16: "%x5"}[size]
    x = np.random.default_rng(size).integers(1, 256, (64, size)).astype(np.uint8)
    out = np.zeros_like(x)
    launch(kernel(body.replace("{r}", register), 2, declarations=SHARED), x, out, block=64, schedule=schedule)
    kept = np.arange(64)[:, None] % (size + 1)
    np.testing.assert_array_equal(out, np.where(np.arange(size) < kept, x, 0))


@pytest.mark.parametrize("noinc", [False, True])
def test_copies_arrive_on_an_mbarrier(noinc: bool) -> None:
    body = setup(64) + (
        "mad.lo.u32 %r1, %t, 16, %r20; mad.wide.u32 %d0, %t, 16, %p0; mad.wide.u32 %d1, %t, 16, %p1;\n"
        "cp.async.cg.shared.global [%r1], [%d0], 16;\n"
        f"cp.async.mbarrier.arrive{'.noinc' if noinc else ''}.shared::cta.b64 [%r21];\n"
        + ("" if noinc else "mbarrier.arrive.shared::cta.b64 _, [%r21];\n")
        + wait()
        + "xor.b32 %r2, %t, 1; mad.lo.u32 %r1, %r2, 16, %r20; ld.shared.b128 %x0, [%r1]; st.global.b128 [%d1], %x0;"
    )
    x = np.arange(128, dtype=np.uint64).reshape(64, 2)
    out = np.zeros_like(x)
    launch(kernel(body, 2, declarations=SHARED), x, out, block=64, schedule="adversarial")
    np.testing.assert_array_equal(out, x.reshape(32, 2, 2)[:, ::-1].reshape(64, 2))


# ---------------------------------------------------------------------------------------------------- bulk copies


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_copies_there_and_back(schedule: str) -> None:
    body = setup() + (
        "@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 1024;\n"
        "@%q30 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%p0], 1024, [%r21];\n"
        + wait()
        + "@%q30 cp.async.bulk.global.shared::cta.bulk_group [%p1], [%r20], 512;\n"
        "@%q30 cp.async.bulk.commit_group; @%q30 cp.async.bulk.wait_group 0;"
    )
    x = np.arange(256, dtype=np.float32)
    out = np.zeros_like(x)
    launch(kernel(body, 2, declarations=SHARED), x, out, schedule=schedule)
    np.testing.assert_array_equal(out, np.where(np.arange(256) < 128, x, 0))


@pytest.mark.parametrize(("name", "kind", "dtype"), [
    ("add", "u32", np.uint32), ("add", "s32", np.int32), ("min", "s32", np.int32), ("max", "u64", np.uint64),
    ("and", "b32", np.uint32), ("or", "b64", np.uint64), ("xor", "b32", np.uint32), ("add", "f32", np.float32),
    ("add", "f64", np.float64), ("min", "f16", np.float16), ("add.noftz", "f16", np.float16),
    ("inc", "u32", np.uint32),
    ("dec", "u32", np.uint32),
])  # fmt: skip
def test_bulk_reductions(name: str, kind: str, dtype: type) -> None:
    body = setup() + (
        "@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 1024;\n"
        "@%q30 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%p0], 1024, [%r21];\n"
        + wait()
        + f"@%q30 cp.reduce.async.bulk.global.shared::cta.bulk_group.{name}.{kind} [%p1], [%r20], 1024;\n"
        "@%q30 cp.async.bulk.commit_group; @%q30 cp.async.bulk.wait_group 0;"
    )
    rng = np.random.default_rng(5)
    count = 1024 // np.dtype(dtype).itemsize
    low = -50 if np.dtype(dtype).kind != "u" else 0
    x, y = rng.integers(low, 50, count).astype(dtype), rng.integers(low, 50, count).astype(dtype)
    functions: dict[str, Any] = {
        "add": operator.add, "min": np.minimum, "max": np.maximum, "and": operator.and_, "or": operator.or_,
        "xor": operator.xor, "inc": lambda o, b: np.where(o >= b, 0, o + 1).astype(dtype),
        "dec": lambda o, b: np.where((o == 0) | (o > b), b, o - 1).astype(dtype),
    }  # fmt: skip
    want = functions[name.split(".")[0]](y, x)
    launch(kernel(body, 2, declarations=SHARED), x, y)
    np.testing.assert_array_equal(y, want)


# ---------------------------------------------------------------------------------------------------- tensor maps


def map_kernel(body: str, **options: Any) -> str:
    """A kernel with a tensor map m0 of 128 bytes before its pointers; %d40 is the map's address."""
    text = kernel(
        "mov.b64 %d40, p0; cvta.param.u64 %d40, %d40;\n" + body,
        options.pop("parameters", 2),
        declarations=SHARED,
        **options,
    )
    return text.replace(".param .u64 p0", ".param .align 64 .b8 p0[128]").replace("ld.param.u64 %p0, [p0];", "")


@pytest.mark.parametrize("schedule", ["adversarial", "random"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_boxes_of_every_rank_with_and_without_elements_outside(rank: int, schedule: str) -> None:
    extents = [12, 5, 4, 3, 3][:rank]
    box = [8, 3, 2, 2, 1][:rank]
    at = [8, 3, -1, 2, 1][:rank]
    coordinates = "{" + ", ".join(map(str, at)) + "}"
    size = 4 * int(np.prod(box))
    body = setup() + (
        f"@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], {size};\n"
        f"@%q30 cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r20],"
        f" [%d40, {coordinates}], [%r21];\n" + wait()
        + f"@%q30 cp.async.bulk.global.shared::cta.bulk_group [%p1], [%r20], {size};\n"
        "@%q30 cp.async.bulk.commit_group; @%q30 cp.async.bulk.wait_group 0;"
    )  # fmt: skip
    x = np.arange(1, 1 + np.prod(extents), dtype=np.float32).reshape(extents[::-1])
    memory = GlobalMemory()
    strides = [4 * int(np.prod(extents[:k])) for k in range(1, rank)]
    m = TensorMap(memory.upload(x), dtype="f32", dims=extents, strides_bytes=strides, box=box)
    out = np.zeros(size // 4, np.float32)
    launch(map_kernel(body), m, out, memory=memory, schedule=schedule)
    want = np.zeros(box[::-1], np.float32)
    for index in np.ndindex(*want.shape):
        there = [i + a for i, a in zip(index, at[::-1], strict=True)]
        if all(0 <= p < e for p, e in zip(there, x.shape, strict=True)):
            want[index] = x[tuple(there)]
    np.testing.assert_array_equal(out, want.reshape(-1))


@pytest.mark.parametrize(("swizzle", "shift", "bits"), [("32B", 4, 1), ("64B", 4, 3), ("128B", 4, 7)])
def test_swizzled_boxes_land_where_the_address_bits_say(swizzle: str, shift: int, bits: int) -> None:
    row = int(swizzle[:-1])
    body = setup() + (
        f"@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], {row * 16};\n"
        "@%q30 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r20],"
        " [%d40, {0, 0}], [%r21];\n"
        + wait()
        + f"@%q30 cp.async.bulk.global.shared::cta.bulk_group [%p1], [%r20], {row * 16};\n"
        "@%q30 cp.async.bulk.commit_group; @%q30 cp.async.bulk.wait_group 0;"
    )
    x = np.random.default_rng(1).integers(0, 256, (16, row)).astype(np.uint8)
    memory = GlobalMemory()
    m = TensorMap(memory.upload(x), dtype="u8", dims=[row, 16], strides_bytes=[row], box=[row, 16], swizzle=swizzle)
    out = np.zeros(row * 16, np.uint8)
    launch(map_kernel(body), m, out, memory=memory)
    offset = np.arange(row * 16)
    np.testing.assert_array_equal(out[offset ^ ((offset >> 7 & bits) << shift)], x.reshape(-1))


@pytest.mark.parametrize("schedule", ["lazy", "adversarial"])
@pytest.mark.parametrize("reduction", ["", "add", "min", "max"])
def test_stores_and_reductions_stay_inside_the_tensor(reduction: str, schedule: str) -> None:
    operation = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{reduction}.tile" if reduction else (
        "cp.async.bulk.tensor.2d.global.shared::cta.tile"
    )  # fmt: skip
    body = setup() + (
        "mad.lo.u32 %r1, %t, 4, %r20; mad.wide.u32 %d0, %t, 4, %p1; ld.global.u32 %r2, [%d0];\n"
        "st.shared.u32 [%r1], %r2; fence.proxy.async.shared::cta; bar.sync 0;\n"
        f"@%q30 {operation}.bulk_group [%d40, {{4, 2}}], [%r20];\n"
        "@%q30 cp.async.bulk.commit_group; @%q30 cp.async.bulk.wait_group.read 0;"
    )
    rng = np.random.default_rng(2)
    tile, x = rng.integers(-9, 9, (4, 8)).astype(np.int32), rng.integers(-9, 9, (5, 8)).astype(np.int32)
    memory = GlobalMemory()
    buffer = memory.upload(x)
    m = TensorMap(buffer, dtype="s32", dims=[8, 5], strides_bytes=[32], box=[8, 4])
    launch(map_kernel(body), m, tile, memory=memory, schedule=schedule)
    want = x.copy()
    function: Any = {"": lambda o, n: n, "add": operator.add, "min": np.minimum, "max": np.maximum}[reduction]
    want[2:, 4:] = function(x[2:, 4:], tile[:3, :4])
    np.testing.assert_array_equal(buffer.read(), want)


def test_gather_takes_four_rows() -> None:
    body = setup() + (
        "@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 128;\n"
        "@%q30 cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r20],"
        " [%d40, {8, 5, 0, 5, 9}], [%r21];\n"
        + wait()
        + "@%q30 cp.async.bulk.global.shared::cta.bulk_group [%p1], [%r20], 128;\n"
        "@%q30 cp.async.bulk.commit_group; @%q30 cp.async.bulk.wait_group 0;"
    )
    x = np.arange(160, dtype=np.float32).reshape(10, 16)
    memory = GlobalMemory()
    m = TensorMap(memory.upload(x), dtype="f32", dims=[16, 10], strides_bytes=[64], box=[8, 1])
    out = np.zeros((4, 8), np.float32)
    launch(map_kernel(body), m, out, memory=memory)
    np.testing.assert_array_equal(out, x[[5, 0, 5, 9], 8:])


def test_a_map_of_broken_bits_and_im2col_are_refused() -> None:
    body = setup() + (
        "@%q30 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r20],"
        " [%d40, {0, 0}], [%r21];"
    )
    with pytest.raises(EmulationError, match=r"TensorMap|tensor map"):
        launch(
            map_kernel(body, parameters=1), np.random.default_rng(0).integers(0, 256, 128).astype(np.uint8).tobytes()
        )
    columns = setup() + (
        "mov.u16 %h1, 0;\n@%q30 cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        " [%r20], [%d40, {0, 0, 0}], [%r21], {%h1};"
    )
    with pytest.raises(EmulationError, match="im2col"):
        launch(map_kernel(columns, parameters=1), bytes(128))


# ---------------------------------------------------------------------------------------------------- clusters


@pytest.mark.parametrize("cluster", [2, 4, 16])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_shared_memory_of_the_neighbour(cluster: int, schedule: str) -> None:
    body = setup(cluster=True) + (
        f"add.u32 %r1, %rank, 1; rem.u32 %r1, %r1, {cluster}; mapa.shared::cluster.u32 %r2, %r20, %r1;\n"
        "@%q30 st.shared::cluster.u32 [%r2], %rank; atom.shared::cluster.add.u32 %r3, [%r2 + 4], 0;\n"
        "cvt.u64.u32 %d1, %r20; cvta.shared.u64 %d1, %d1; mapa.u64 %d2, %d1, %r1; @%q30 st.u32 [%d2 + 8], 5;\n"
        "getctarank.shared::cluster.u32 %r4, %r2; mapa.shared::cluster.u32 %r5, %r21, %r1;\n"
        "@%q30 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];\n"
        "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q29, [%r21], 0; @!%q29 bra W;\n"
        "ld.shared.u32 %r6, [%r20]; ld.shared.u32 %r7, [%r20 + 8];\n"
        "mad.wide.u32 %d3, %rank, 16, %p0; @%q30 st.global.v4.u32 [%d3], {%r6, %r4, %r7, %r1};\n" + CLUSTER_SYNC
    )
    out = np.zeros((cluster, 4), np.uint32)
    launch(kernel(body, declarations=SHARED), out, grid=cluster, cluster=cluster, schedule=schedule)
    rank = np.arange(cluster)
    following = (rank + 1) % cluster
    np.testing.assert_array_equal(out, np.stack([(rank - 1) % cluster, following, np.full(cluster, 5), following], -1))


def test_a_cta_that_has_exited_is_still_addressed() -> None:
    body = setup(cluster=True) + (
        "setp.eq.u32 %q0, %rank, 1; @%q0 exit; mov.u32 %r1, 1; mapa.shared::cluster.u32 %r2, %r20, %r1;\n"
        "mov.u32 %r5, 0; L: nanosleep.u32 100; add.u32 %r5, %r5, 1; setp.lt.u32 %q1, %r5, 300; @%q1 bra L;\n"
        "ld.shared::cluster.u32 %r3, [%r2]; st.global.u32 [%p0], %r3;"
    )
    with pytest.raises(EmulationError, match="has exited, but is still addressed"):
        launch(kernel(body, declarations=SHARED), np.zeros(1, np.uint32), grid=2, cluster=2)
    alone = setup() + "mov.u32 %r1, 3; mapa.shared::cluster.u32 %r2, %r20, %r1; ld.shared::cluster.u32 %r3, [%r2];"
    with pytest.raises(EmulationError, match="rank 3"):
        launch(kernel(alone, declarations=SHARED), np.zeros(1, np.uint32), grid=2, cluster=2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_multicast_gives_every_cta_of_the_mask_the_tile_and_the_signal(schedule: str) -> None:
    body = setup(cluster=True) + (
        "mov.u16 %h1, 13; setp.eq.and.u32 %q1, %rank, 2, %q30; setp.ne.and.u32 %q3, %rank, 1, %q30;\n"
        "@%q3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 64;\n"
        "@%q1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r20],"
        " [%d40, {0, 1}], [%r21], %h1;\n"
        "setp.eq.u32 %q2, %rank, 1; @%q2 bra OVER;\n"
        + wait()
        + "ld.shared.u32 %r1, [%r20 + 60]; mad.wide.u32 %d1, %rank, 4, %p1; st.global.u32 [%d1], %r1;\nOVER:\n"
        + CLUSTER_SYNC
    )
    x = np.arange(64, dtype=np.uint32).reshape(4, 16)
    memory = GlobalMemory()
    m = TensorMap(memory.upload(x), dtype="u32", dims=[16, 4], strides_bytes=[64], box=[16, 1])
    out = np.zeros(4, np.uint32)
    launch(map_kernel(body), m, out, memory=memory, grid=4, cluster=4, schedule=schedule)
    np.testing.assert_array_equal(out, [31, 0, 31, 31])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_copy_to_a_peer(schedule: str) -> None:
    body = setup(cluster=True) + (
        "mad.lo.u32 %r1, %t, 4, %r20; mad.lo.u32 %r2, %rank, 100, %t; st.shared.u32 [%r1], %r2;\n"
        "fence.proxy.async.shared::cta; bar.sync 0;\n"
        "xor.b32 %r3, %rank, 1; add.u32 %r4, %r20, 1024; mapa.shared::cluster.u32 %r5, %r4, %r3;"
        " mapa.shared::cluster.u32 %r6, %r21, %r3;\n"
        "@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 128;\n"
        + CLUSTER_SYNC
        + "@%q30 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [%r20], 128, [%r6];\n"
        + wait()
        + "ld.shared.u32 %r7, [%r1 + 1024]; mad.lo.u32 %r8, %rank, 32, %t; mad.wide.u32 %d0, %r8, 4, %p0;"
        " st.global.u32 [%d0], %r7;\n" + CLUSTER_SYNC
    )
    out = np.zeros((2, 32), np.uint32)
    launch(kernel(body, declarations=SHARED), out, grid=2, cluster=2, schedule=schedule)
    np.testing.assert_array_equal(out, [np.arange(32) + 100, np.arange(32)])


def test_no_launch_is_ever_cancelled() -> None:
    body = setup() + (
        "@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 16;\n"
        "@%q30 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r20], [%r21];\n"
        + wait()
        + "ld.shared.b128 %x0, [%r20]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %q1, %x0;\n"
        "selp.u32 %r1, 1, 2, %q1; st.global.u32 [%p0], %r1;"
    )
    out = np.zeros(1, np.uint32)
    launch(kernel(body, declarations=SHARED), out)
    assert out[0] == 2


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_loads_of_a_pair_signal_the_leaders_barrier(schedule: str) -> None:
    """The barrier's address without the lowest bit of the rank is the even CTA's; it counts both CTAs' bytes."""
    body = setup(cluster=True) + (
        "setp.eq.and.u32 %q1, %rank, 0, %q30; and.b32 %r1, %r21, 0xFEFFFFFF;\n"
        "@%q1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 128;\n"
        "@%q30 cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes [%r20],"
        " [%d40, {0, %rank}], [%r1];\nsetp.ne.u32 %q2, %rank, 0; @%q2 bra OVER;\n"
        + wait()
        + "OVER:\n"
        + CLUSTER_SYNC
        + "mad.lo.u32 %r2, %l, 4, %r20; ld.shared.u32 %r3, [%r2]; mad.lo.u32 %r4, %rank, 32, %t;"
        " mad.wide.u32 %d1, %r4, 4, %p1; setp.lt.u32 %q3, %l, 16; @%q3 st.global.u32 [%d1], %r3;"
    )
    x = np.arange(32, dtype=np.uint32).reshape(2, 16)
    memory = GlobalMemory()
    m = TensorMap(memory.upload(x), dtype="u32", dims=[16, 2], strides_bytes=[64], box=[16, 1])
    out = np.zeros((2, 32), np.uint32)
    launch(map_kernel(body), m, out, memory=memory, grid=2, cluster=2, schedule=schedule)
    np.testing.assert_array_equal(out[:, :16], x)


# ---------------------------------------------------------------------------------------------------- hazards

LOAD = (
    "@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 1024;\n"
    "@%q30 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%p0], 1024, [%r21];\n"
)
STORE = "@%q30 cp.async.bulk.global.shared::cta.bulk_group [%p0], [%r20], 1024;\n@%q30 cp.async.bulk.commit_group;\n"
DONE = "@%q30 cp.async.bulk.wait_group 0;\n"
HAZARDS = {
    "shared-read-before-load-complete": LOAD + "ld.shared.u32 %r1, [%r20];\n" + wait(),
    "shared-overwritten-before-load-complete": LOAD + "st.shared.u32 [%r20], 5;\n" + wait(),
    "shared-overwritten-while-store-reads": LOAD + wait() + STORE + "st.shared.u32 [%r20], 5;\n" + DONE,
    "missing-proxy-fence": "mad.lo.u32 %r1, %t, 4, %r20; st.shared.u32 [%r1], 5; bar.sync 0;\n" + STORE + DONE,
    "shared-read-before-written": STORE + DONE,
    "exit-before-write-complete": LOAD,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", HAZARDS)
def test_races_are_errors_under_every_schedule(kind: str, schedule: str) -> None:
    text = kernel(setup() + HAZARDS[kind], declarations=SHARED)
    with pytest.raises(HazardError) as caught:
        launch(text, np.zeros(256, np.uint32), schedule=schedule)
    assert kind in {h.kind for h in caught.value.hazards if h.severity == "error"}
    assert all("PTX line" in h.message for h in caught.value.hazards if h.lines)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_contracts_that_production_kernels_break_are_warnings(schedule: str) -> None:
    body = setup().replace("@%q30 fence.mbarrier_init.release.cluster;", "") + (
        "mad.lo.u32 %r1, %t, 4, %r20; st.shared.u32 [%r1], 5; bar.sync 0;\n@%q30 fence.proxy.async.shared::cta;\n"
        "@%q30 cp.async.bulk.global.shared::cta.bulk_group [%p0], [%r20], 256;\n@%q30 cp.async.bulk.commit_group;\n"
        "@%q30 mbarrier.arrive.shared::cta.b64 _, [%r21];\n" + wait()
    )
    result = launch(kernel(body, declarations=SHARED), np.zeros(64, np.uint32), schedule=schedule, block=64)
    kinds = {h.kind: h.severity for h in result.hazards}
    assert set(kinds.values()) == {"warning"}, kinds
    assert {"proxy-fence-by-reader-only", "exit-before-read-complete", "missing-mbarrier-init-fence"} <= set(kinds)
