"""Asynchronous stores and reductions to other CTAs, tensor maps that a kernel builds, reducing tensor-memory loads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blasdx.emulator import GlobalMemory, Module, TensorMap
from tests.emulator.families import kernel, launch

SCHEDULES = ("eager", "lazy", "adversarial", "random")
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q9, [signal], 0; @!%q9 bra WAIT;"


def shared(declarations: str) -> str:
    return ".shared .align 8 .b64 signal;\n" + declarations


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("name", "kind"), [("", "b32"), ("", "v2"), ("", "b64"), ("add", "u32"), ("max", "s32"),
                                            ("xor", "b32"), ("inc", "u32"), ("add", "u64")])  # fmt: skip
def test_values_and_bytes_arrive_in_the_neighbour(name: str, kind: str, schedule: str) -> None:
    size = 8 if kind in ("v2", "b64", "u64") else 4
    value = {"v2": "{%r2, %r3}", "b64": "%d2", "u64": "%d2"}.get(kind, "%r2")
    opcode = f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{name}.{kind}"
    if not name:
        vector = {"v2": ".v2.b32"}.get(kind, f".{kind}")
        opcode = f"st.async.shared::cluster.mbarrier::complete_tx::bytes{vector}"
    text = kernel(
        f"mov.u32 %r9, box; mad.lo.u32 %r9, %t, {size}, %r9; cvt.u64.u32 %d9, %t; st.shared.b{8 * size} [%r9], "
        f"{'%d9' if size == 8 else '%t'};\n"
        "setp.ne.u32 %q0, %t, 0; @%q0 bra READY; mbarrier.init.shared::cta.b64 [signal], 1;\n"
        "fence.mbarrier_init.release.cluster;\n"
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [signal], {32 * size};\nREADY:\n"
        "fence.proxy.async.shared::cta; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
        "xor.b32 %r8, %rank, 1; mapa.shared::cluster.u32 %r7, %r9, %r8; mov.u32 %r6, signal;\n"
        "mapa.shared::cluster.u32 %r6, %r6, %r8; mad.lo.u32 %r2, %rank, 1000, %t; add.u32 %r2, %r2, 7;\n"
        "add.u32 %r3, %r2, 5; cvt.u64.u32 %d2, %r2;\n"
        f"{opcode} [%r7], {value}, [%r6];\n{WAIT}\n"
        f"ld.shared.b{8 * size} %d4, [%r9]; mad.lo.u32 %r5, %rank, 32, %t; mad.wide.u32 %d5, %r5, 8, %p0;\n"
        "st.global.b64 [%d5], %d4; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;".replace(
            "ld.shared.b32 %d4, [%r9];", "ld.shared.b32 %r4, [%r9]; cvt.u64.u32 %d4, %r4;"
        ),
        declarations=shared(".shared .align 8 .b8 box[256];"),
    )
    out = np.zeros((2, 32), np.uint64)
    launch(text, out, grid=2, cluster=2, schedule=schedule)
    t = np.arange(32, dtype=np.int64)
    for rank in range(2):
        sent = (1 - rank) * 1000 + t + 7
        want: Any = {
            "add": t + sent, "max": np.maximum(t, sent), "xor": t ^ sent, "inc": t + 1,
            "": sent | (sent + 5) << 32 if kind == "v2" else sent,
        }[name]  # fmt: skip
        np.testing.assert_array_equal(out[rank].astype(np.int64), want)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_reading_what_arrives_without_waiting_is_an_error(schedule: str) -> None:
    text = kernel(
        "setp.ne.u32 %q0, %t, 0; @%q0 bra READY; mbarrier.init.shared::cta.b64 [signal], 1;\n"
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [signal], 128;\nREADY: bar.sync 0;\n"
        "mov.u32 %r9, box; mad.lo.u32 %r9, %t, 4, %r9; mov.u32 %r6, signal;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r9], %t, [%r6];\n"
        f"ld.shared.b32 %r4, [%r9]; st.global.b32 [%p0], %r4;\n{WAIT}",
        declarations=shared(".shared .align 8 .b8 box[256];"),
    )
    result = launch(text, np.zeros(1, np.uint32), schedule=schedule, check="collect")
    assert "shared-read-before-load-complete" in {h.kind for h in result.hazards if h.severity == "error"}


# ------------------------------------------------------------------------------------------------ tensor maps

BUILD = """
mov.u32 %r1, map; mad.lo.u32 %r2, %t, 4, %r1; mov.u32 %r3, 0; st.shared.b32 [%r2], %r3; bar.warp.sync 0xffffffff;
setp.ne.u32 %q0, %t, 0; @%q0 bra BUILT;
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1], %p0;
tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r1], 1;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1], 0, 32;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1], 1, 8;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1], 0, 40;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1], 1, 20;
mov.u64 %d1, 96; tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r1], 0, %d1;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r1], 0, 1;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r1], 1, 1;
tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r1], ELEMENT;
tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r1], 0;
tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r1], SWIZZLE;
tensormap.replace.tile.swizzle_atomicity.shared::cta.b1024.b32 [%r1], 0;
tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r1], FILL;
BUILT: bar.warp.sync 0xffffffff;
cvt.u64.u32 %d2, %r1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%p1], [%r1], 128;
"""
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%p1], 128;\n"
USE = """
mbarrier.init.shared::cta.b64 [signal], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [signal], 512; mov.u32 %r4, tile; mov.u32 %r5, signal;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r4], [%p1, {%r6, %r7}], [%r5];
"""


def build(acquire: bool = True, element: int = 6, swizzle: int = 0, fill: int = 1, **options: Any) -> Any:
    body = BUILD.replace("ELEMENT", str(element)).replace("SWIZZLE", str(swizzle)).replace("FILL", str(fill))
    text = kernel(
        body + ACQUIRE * acquire + "mov.u32 %r6, 16; mov.u32 %r7, 15;\nsetp.ne.u32 %q1, %t, 0; @%q1 bra LOADED;\n"
        + USE + WAIT + "\nLOADED: bar.sync 0; mov.u32 %r4, tile; mad.lo.u32 %r4, %t, 16, %r4;\n"
        "ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r4]; mad.wide.u32 %d3, %t, 16, %p2;\n"
        "st.global.v4.b32 [%d3], {%r10, %r11, %r12, %r13};",
        3,
        declarations=shared(".shared .align 128 .b8 map[128]; .shared .align 1024 .b8 tile[512];"),
    )  # fmt: skip
    matrix = np.arange(20 * 48).reshape(20, 48).astype(np.float16)
    memory = GlobalMemory()
    source, where = memory.upload(matrix), memory.upload(np.zeros(128, np.uint8))
    out = memory.upload(np.zeros(512, np.uint8))
    result = (
        Module.from_ptx(text)
        .get_function("k")
        .launch(grid=(1,), block=(32,), memory=memory, args=[source, where, out], **options)
    )
    return matrix, source, where.read(), out.read(), result


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_map_built_in_shared_memory_is_the_drivers_and_loads(schedule: str) -> None:
    matrix, source, built, out, result = build(schedule=schedule)
    wanted = TensorMap(source, "f16", dims=[40, 20], strides_bytes=[96], box=[32, 8], oob_fill="nan")
    assert TensorMap.from_bytes(built.tobytes()) == wanted
    want = np.full((8, 32), np.nan, np.float16)
    want[:5, :24] = matrix[15:20, 16:40]
    np.testing.assert_array_equal(out.view(np.float16).reshape(8, 32), want)
    assert [h for h in result.hazards if h.severity == "error"] == []


@pytest.mark.parametrize(
    ("element", "name"),
    [
        (0, "u8"),
        (1, "u16"),
        (2, "u32"),
        (3, "s32"),
        (4, "u64"),
        (5, "s64"),
        (6, "f16"),
        (7, "f32"),
        (8, "f32_ftz"),
        (9, "f64"),
        (10, "bf16"),
        (11, "tf32"),
        (12, "tf32_ftz"),
    ],
)
def test_element_types_have_the_codes_of_the_instruction(element: int, name: str) -> None:
    text = kernel(BUILD.replace("ELEMENT", str(element)).replace("SWIZZLE", "0").replace("FILL", "0"), 2,
                  declarations=".shared .align 128 .b8 map[128];")  # fmt: skip
    memory = GlobalMemory()
    where = memory.upload(np.zeros(128, np.uint8))
    args = [memory.upload(np.zeros(4096, np.uint8)), where]
    Module.from_ptx(text).get_function("k").launch(grid=(1,), block=(32,), memory=memory, args=args)
    assert TensorMap.from_bytes(where.read().tobytes()).dtype == name


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_edited_map_wants_its_fence(schedule: str) -> None:
    *_, result = build(acquire=False, check="collect", schedule=schedule)
    assert "missing-tensormap-fence" in {h.kind for h in result.hazards if h.severity == "error"}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("acquirer", "barriers", "found"),
    [
        ("first", "after", False),  # the warp that wrote the map fences, and a barrier tells the other warp
        ("second", "before", False),  # the warp that loads fences, once it knows that the map is written
        ("first", "before", True),  # nothing orders the fence before the use
        ("second", "none", True),  # nothing orders the write before the fence
    ],
)
def test_another_warp_may_fence_for_the_cta(acquirer: str, barriers: str, found: bool, schedule: str) -> None:
    body = BUILD.replace("ELEMENT", "6").replace("SWIZZLE", "0").replace("FILL", "1")
    meet = "bar.sync 1, 64;\n"
    text = kernel(
        "setp.ne.u32 %q4, %w, 0; @%q4 bra SECOND;\n"
        + body + meet * (barriers == "before") + ACQUIRE * (acquirer == "first") + meet * (barriers == "after")
        + "bra DONE;\nSECOND:\n"
        + meet * (barriers != "none") + ACQUIRE * (acquirer == "second")
        + "setp.ne.u32 %q1, %t, 32; @%q1 bra DONE; mov.u32 %r6, 16; mov.u32 %r7, 15;\n" + USE + WAIT + "\nDONE:",
        2,
        declarations=shared(".shared .align 128 .b8 map[128]; .shared .align 1024 .b8 tile[512];"),
    )  # fmt: skip
    memory = GlobalMemory()
    source = memory.upload(np.zeros((20, 48), np.float16))
    # Whatever order the schedule gives the two warps, the map has to be one.
    wanted = TensorMap(source, "f16", dims=[40, 20], strides_bytes=[96], box=[32, 8], oob_fill="nan").to_bytes()
    args = [source, memory.upload(np.frombuffer(wanted, np.uint8))]
    function = Module.from_ptx(text).get_function("k")
    result = function.launch(grid=(1,), block=(64,), memory=memory, args=args, schedule=schedule, check="collect")
    assert ("missing-tensormap-fence" in {h.kind for h in result.hazards if h.severity == "error"}) == found


# ------------------------------------------------------------------------------------------------ tensor memory


@pytest.mark.parametrize(("operation", "kind"), [("min", "f32"), ("max", "f32"), ("max.abs", "f32"), ("min.NaN", "f32"),
                                                 ("min", "s32"), ("max", "u32"), ("max", "s32")])  # fmt: skip
def test_loads_that_reduce(operation: str, kind: str) -> None:
    values = ", ".join(f"%r{k}" for k in range(8))
    back = ", ".join(f"%r{10 + k}" for k in range(8))
    text = kernel(
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [box], 32; ld.shared.b32 %r30, [box];\n"
        "mad.wide.u32 %d1, %t, 32, %p0;\n"
        + "\n".join(f"ld.global.b32 %r{k}, [%d1 + {4 * k}];" for k in range(8))
        + f"\ntcgen05.st.sync.aligned.32x32b.x8.b32 [%r30], {{{values}}}; tcgen05.wait::st.sync.aligned;\n"
        f"tcgen05.ld.red.sync.aligned.32x32b.x8.{operation}.{kind} {{{back}}}, %r20, [%r30];\n"
        "tcgen05.wait::ld.sync.aligned; mad.wide.u32 %d2, %t, 36, %p1; st.global.b32 [%d2 + 32], %r20;\n"
        + "\n".join(f"st.global.b32 [%d2 + {4 * k}], %r{10 + k};" for k in range(8))
        + "\ntcgen05.dealloc.cta_group::1.sync.aligned.b32 %r30, 32;",
        2,
        arch="sm_103a",
        declarations=".shared .align 4 .b32 box;",
    )
    rng = np.random.default_rng(3)
    data: Any = rng.standard_normal((32, 8)).astype(np.float32)
    data[5, 2] = np.nan
    if kind != "f32":
        data = rng.integers(0, 1 << 32, (32, 8)).astype(np.uint32).view(np.int32 if kind == "s32" else np.uint32)
    out = np.zeros((32, 9), data.dtype)
    launch(text, data, out)
    np.testing.assert_array_equal(out[:, :8], data)
    used = np.abs(data) if "abs" in operation else data
    numbers = {"min": np.fmin, "max": np.fmax}[operation[:3]] if "NaN" not in operation else np.minimum
    np.testing.assert_array_equal(out[:, 8], numbers.reduce(used, axis=1))


def test_shift_moves_rows_down() -> None:
    values = ", ".join(f"%r{k}" for k in range(16))
    back = ", ".join(f"%r{20 + k}" for k in range(16))
    text = kernel(
        "setp.ne.u32 %q0, %w, 0; @%q0 bra HAVE; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [box], 32;\n"
        "setp.ne.u32 %q1, %t, 0; @%q1 bra HAVE; mbarrier.init.shared::cta.b64 [signal], 1;\n"
        "HAVE: bar.sync 0; ld.shared.b32 %r40, [box];\n"
        + "\n".join(f"mad.lo.u32 %r{k}, %t, 100, {k};" for k in range(16))
        + f"\ntcgen05.st.sync.aligned.32x32b.x16.b32 [%r40], {{{values}}}; tcgen05.wait::st.sync.aligned;\n"
        "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;\n"
        "setp.ne.u32 %q1, %t, 0; @%q1 bra SHIFTED; tcgen05.shift.cta_group::1.down [%r40];\n"
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [signal];\n"
        f"SHIFTED: {WAIT}\ntcgen05.fence::after_thread_sync;\n"
        f"tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{back}}}, [%r40]; tcgen05.wait::ld.sync.aligned;\n"
        "mad.wide.u32 %d2, %t, 64, %p0;\n"
        + "\n".join(f"st.global.b32 [%d2 + {4 * k}], %r{20 + k};" for k in range(16))
        + "\nbar.sync 0; @%q0 bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r40, 32;\nEND:",
        declarations=shared(".shared .align 4 .b32 box;"),
    )
    out = np.zeros((128, 16), np.uint32)
    result = launch(text, out, block=128)
    before = np.arange(128)[:, None] * 100 + np.arange(16)
    want = before.copy()
    for quarter in range(0, 128, 32):
        want[quarter : quarter + 31, :8] = before[quarter + 1 : quarter + 32, :8]
    np.testing.assert_array_equal(out, want)
    assert [h for h in result.hazards if h.severity == "error"] == []
