"""Threads, warps and memory: small kernels compiled from CUDA, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blasdx.emulator import (
    DeadlockError,
    EmulationError,
    GlobalMemory,
    LaunchResult,
    LivelockError,
    Module,
    UnsupportedInstruction,
)
from tests.emulator.toolchain import ptx

SCHEDULES = ("eager", "lazy", "adversarial", "random")


def run(source: str, *args: Any, grid: int = 1, block: Any = 64, **options: Any) -> LaunchResult:
    text = ptx('extern "C" ' + source) if "__global__" in source else source
    shape = block if isinstance(block, tuple) else (block, 1, 1)
    module = Module.from_ptx(text)
    function = module.get_function(module.entries[0])
    return function.launch(grid=(grid, 1, 1), block=shape, memory=GlobalMemory(), args=args, **options)


def test_vector_addition_with_a_ragged_end() -> None:
    n = 171
    a, b, c = np.arange(n, dtype=np.float32), np.full(n, 0.5, np.float32), np.zeros(n, np.float32)
    result = run(
        "__global__ void add(const float* a, const float* b, float* c, int n) {"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }",
        a, b, c, np.int32(n), grid=3,
    )  # fmt: skip
    np.testing.assert_array_equal(c, a + b)
    assert result.stats.ctas == 3
    assert result.stats.instructions == sum(result.stats.opcodes.values())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_reduction_through_shared_memory_and_shuffles(schedule: str) -> None:
    x = np.random.default_rng(3).integers(-50, 50, 5 * 96).astype(np.int32)
    out = np.zeros(5, np.int32)
    run(
        "__global__ void sum(const int* x, int* out) {"
        "  __shared__ int part[96]; int t = threadIdx.x; part[t] = x[blockIdx.x * 96 + t]; __syncthreads();"
        "  if (t < 32) { int v = part[t] + part[t + 32] + part[t + 64];"
        "    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);"
        "    if (t == 0) out[blockIdx.x] = v; } }",
        x, out, grid=5, block=96, schedule=schedule, sms=2,
    )  # fmt: skip
    np.testing.assert_array_equal(out, x.reshape(5, 96).sum(1))


def test_lanes_with_different_trip_counts_meet_again() -> None:
    out = np.zeros(64, np.int32)
    run(
        "__global__ void collatz(int* out) { unsigned v = threadIdx.x + 1; int n = 0;"
        "  while (v != 1) { if (v & 1) v = 3 * v + 1; else v /= 2; ++n; if (n > 90) break; }"
        "  out[threadIdx.x] = __popc(__ballot_sync(~0u, n > 10)) * 1000 + n; }",
        out,
    )  # fmt: skip

    def steps(v: int) -> int:
        n = 0
        while v != 1 and n <= 90:
            v = 3 * v + 1 if v & 1 else v // 2
            n += 1
        return n

    counts = np.array([steps(i + 1) for i in range(64)])
    long = np.repeat((counts > 10).reshape(2, 32).sum(1), 32)
    np.testing.assert_array_equal(out, long * 1000 + counts)


def test_early_return_of_some_lanes() -> None:
    out = np.full(40, -1, np.int32)
    run(
        "__global__ void odd(int* out) { int t = threadIdx.x; if (t % 3 == 1) return; int s = 0;"
        "  for (int i = 0; i <= t; ++i) { if (i == 7 && t % 2) return; s += i; } out[t] = s; }",
        out, block=40,
    )  # fmt: skip
    want = [-1 if t % 3 == 1 or (t >= 7 and t % 2) else t * (t + 1) // 2 for t in range(40)]
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_spinning_lane_does_not_starve_the_one_it_waits_for(schedule: str) -> None:
    out = np.zeros(1, np.int32)
    run(
        "__global__ void lock(int* out) { __shared__ int held; if (threadIdx.x == 0) held = 0; __syncthreads();"
        "  bool done = false; while (!done) if (atomicCAS(&held, 0, 1) == 0) {"
        "    *(volatile int*)out += threadIdx.x; atomicExch(&held, 0); done = true; } }",
        out, block=37 if schedule == "random" else 7, schedule=schedule,
    )  # fmt: skip
    assert out[0] == sum(range(37 if schedule == "random" else 7))


def test_an_assertion_that_fails_is_an_error_and_one_that_holds_is_none() -> None:
    source = (
        "__device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);"
        'extern "C" __global__ void k(int* out, int limit) {'
        '  if (threadIdx.x >= limit) __assertfail("in range", "k.cu", 3, "k", 1); out[threadIdx.x] = 1; }'
    )
    out = np.zeros(64, np.int32)
    run(source, out, np.int32(64))
    np.testing.assert_array_equal(out, 1)
    with pytest.raises(EmulationError, match="warp 1 executed __assertfail: an assertion"):
        run(source, out, np.int32(40))


def test_local_arrays_constants_and_initialised_globals() -> None:
    out = np.zeros(32, np.int32)
    run(
        "__constant__ int table[5] = {3, 1, 4, 1, 5}; __device__ int start = 7;"
        "extern \"C\" __global__ void locals(int* out, int n) { int v[8]; int t = threadIdx.x;"
        "  for (int i = 0; i < n; ++i) v[(i * 3 + t) % 8] = table[i % 5] + i;"
        "  int s = start; for (int i = 0; i < n; ++i) s = s * 3 + v[i]; out[t] = s; }",
        out, np.int32(8), block=32,
    )  # fmt: skip
    want = []
    for t in range(32):
        v = [0] * 8
        for i in range(8):
            v[(i * 3 + t) % 8] = [3, 1, 4, 1, 5][i % 5] + i
        s = 7
        for each in v:
            s = s * 3 + each
        want.append(s)
    np.testing.assert_array_equal(out, want)


def test_indices_in_three_dimensions() -> None:
    out = np.zeros((2, 3, 8), np.int32)
    run(
        "__global__ void index(int* out) { out[(threadIdx.z * 3 + threadIdx.y) * 8 + threadIdx.x] ="
        "  threadIdx.z * 100 + threadIdx.y * 10 + threadIdx.x + 1000 * (threadIdx.x + 8 * threadIdx.y) / 32; }",
        out, block=(8, 3, 2),
    )  # fmt: skip
    z, y, x = np.indices((2, 3, 8))
    np.testing.assert_array_equal(out, z * 100 + y * 10 + x + 1000 * (x + 8 * y) // 32)


def test_vector_loads_and_structs_by_value() -> None:
    x = np.arange(128, dtype=np.float32)
    out = np.zeros(128, np.float32)
    memory = GlobalMemory()
    buffer = memory.upload(x)
    params = np.float32(2).tobytes() + np.int16(-3).tobytes() + bytes(2) + buffer.address.to_bytes(8, "little")
    text = ptx(
        "struct P { float scale; short add; const float4* x; };"
        'extern "C" __global__ void scaled(P p, float4* out) { float4 v = p.x[threadIdx.x];'
        "  out[threadIdx.x] = make_float4(v.w * p.scale + p.add, v.z, v.y, v.x); }"
    )
    Module.from_ptx(text).get_function("scaled").launch(
        grid=(1, 1, 1), block=(32, 1, 1), memory=memory, args=[params, out]
    )
    want = x.reshape(32, 4)[:, ::-1].copy()
    want[:, 0] = want[:, 0] * 2 - 3
    np.testing.assert_array_equal(out.reshape(32, 4), want)


# ---------------------------------------------------------------------------------------------------- what goes wrong

COPY = "__global__ void copy(const int* x, int* y, int i) { y[threadIdx.x] = x[threadIdx.x + i]; }"


@pytest.mark.parametrize("shift", [1, -1, 1 << 20])
def test_an_address_outside_every_buffer_is_an_error_with_its_line(shift: int) -> None:
    x, y = np.zeros(64, np.int32), np.zeros(64, np.int32)
    with pytest.raises(EmulationError, match=r"outside|in no buffer") as caught:
        run(COPY, x, y, np.int32(shift))
    lines = ptx('extern "C" ' + COPY).splitlines()
    assert caught.value.line is not None
    assert "ld.global" in lines[caught.value.line - 1]
    assert "warp" in str(caught.value)


def test_misaligned_accesses_are_errors() -> None:
    with pytest.raises(EmulationError, match="not aligned"):
        run("__global__ void bad(char* x) { *(int*)(x + 4 * threadIdx.x + 2) = 1; }", np.zeros(512, np.uint8), block=8)


def test_arguments_are_checked_before_anything_runs() -> None:
    x, y = np.zeros(64, np.int32), np.zeros(64, np.int32)
    with pytest.raises(EmulationError, match=r"3 parameter\(s\), 2 argument\(s\)"):
        run(COPY, x, y)
    with pytest.raises(EmulationError, match="4 byte") as caught:
        run(COPY, x, y, np.int64(0))
    assert caught.value.parameter is not None
    with pytest.raises(EmulationError, match="type str"):
        run(COPY, x, y, "0")
    with pytest.raises(EmulationError, match="no entry 'nothing'; it has: copy"):
        Module.from_ptx(ptx('extern "C" ' + COPY)).get_function("nothing")
    with pytest.raises(EmulationError, match="schedule is 'fast'"):
        run(COPY, x, y, np.int32(0), schedule="fast")
    with pytest.raises(EmulationError, match="multiple of the cluster"):
        run(COPY, x, y, np.int32(0), grid=3, cluster=(2, 1, 1))
    with pytest.raises(EmulationError, match="232448"):
        run(COPY, x, y, np.int32(0), dynamic_smem=232_449)


def test_a_read_only_array_is_not_written() -> None:
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    y.flags.writeable = False
    with pytest.raises(EmulationError, match="read-only"):
        run(COPY, x, y, np.int32(0))


PTX = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
@BODY@
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


@pytest.mark.parametrize(
    ("body", "opcode"),
    [("    wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1}, [%rd1];", "wmma.load.a.sync.aligned.row.m16n16k16.f16"),
     ("    add.wild.u32 %r1, %r1, 1;", "add.wild.u32")],
)  # fmt: skip
def test_unknown_instructions_are_refused_with_opcode_and_line(body: str, opcode: str) -> None:
    text = PTX.replace("@BODY@", body)
    with pytest.raises(UnsupportedInstruction) as caught:
        run(text, np.zeros(1, np.uint32), block=32)
    assert caught.value.opcode == opcode
    assert caught.value.line == 11


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_barrier_that_part_of_the_block_never_reaches_is_a_deadlock(schedule: str) -> None:
    with pytest.raises(DeadlockError, match=r"barrier 3 of CTA \(0,0,0\): 32 of 64 threads") as caught:
        run(PTX.replace("@BODY@", "    setp.lt.u32 %p1, %r1, 32;\n    @%p1 bar.sync 3, 64;"), np.zeros(1, np.uint32),
            schedule=schedule)  # fmt: skip
    assert "CTA (0,0,0) warp 0: waiting for barrier 3 (PTX line 12)" in str(caught.value)
    assert "32 are missing; warp 0 came" in str(caught.value)


def test_spinning_past_the_limit_is_a_livelock() -> None:
    spin = "L: ld.volatile.global.u32 %r2, [%rd1];\n    setp.eq.u32 %p1, %r2, 0;\n    @%p1 bra L;"
    with pytest.raises(LivelockError, match="max_instructions = 50000"):
        run(PTX.replace("@BODY@", spin), np.zeros(1, np.uint32), max_instructions=50_000)


def test_scopes_hide_labels_and_registers() -> None:
    body = "\n".join(
        "{ .reg .pred p; .reg .b32 n; mov.u32 n, 0; again: add.u32 n, n, 1; add.u32 %r1,%r1,n;"
        " setp.lt.u32 p, n, " + str(n) + "; @p bra.uni again; }"
        for n in (2, 3)
    )
    out = np.zeros(1, np.uint32)
    run(PTX.replace("@BODY@", body), out, block=1)
    assert out[0] == 3 + 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add.u32 %r1, %r9, 1;", "unknown register %r9"),
        ("bra NOWHERE;", "unknown name NOWHERE"),
        ("add.u32 %r1 %r1;", "expected ';'"),
        ("L: L: ret;", "defined twice"),
        (".reg .what %x;", "unknown register type"),
        ("mov.u32 %r1, %nothing;", "unknown register %nothing"),
        ("@%r1 ret;", "not a predicate"),
        ("add.u32 %r1, %r1;", "2 operands given, 3 needed"),
        ("setp.lt.u32 %r1, %r1, 3;", "wrong type"),
        ("`", "unexpected character"),
        ("{", "unexpected end"),
    ],
)
def test_malformed_text_is_an_error_with_a_line(text: str, message: str) -> None:
    with pytest.raises(EmulationError, match=message) as caught:
        run(PTX.replace("@BODY@", text), np.zeros(1, np.uint32))
    assert caught.value.line is not None
