"""wgmma alone: every type, size and layout against products computed here, and what its protocol demands."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from blasdx.emulator import DeadlockError, EmulationError, GlobalMemory, LaunchResult, Module
from tests.emulator.toolchain import ptx

SCHEDULES = ("eager", "lazy", "adversarial", "random")
DTYPES = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8), "u8": np.dtype(np.uint8),
    "f32": np.dtype(np.float32), "s32": np.dtype(np.int32),
}  # fmt: skip
SPANS = {"128B": 128, "64B": 64, "32B": 32}
CODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}


def kernel(form: str, n: int, d: str, *, a_registers: bool = False, tail: str = "1, 1", defines: str = "") -> str:
    """One multiplication by one warpgroup, as CUDA C++."""
    count = n // (4 if d == "f16" else 2)
    accumulators = ", ".join(f"%{k}" for k in range(count))
    inputs = ", ".join(f"%{count + k}" for k in range(4))
    a, first = (f"{{{inputs}}}", count + 4) if a_registers else (f"%{count}", count + 1)
    tail = f", {tail}" if tail else ""
    outputs = ", ".join(f'"+r"(r[{k}])' for k in range(count))
    a_values = ", ".join(f'"r"(f[{k}])' for k in range(4)) if a_registers else '"l"(a)'
    return f"""
typedef unsigned int u32; typedef unsigned long long u64;
{defines}
#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define MULTIPLY(adds) asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{first + 1}, 0;\\n" \\
  "wgmma.mma_async.sync.aligned.{form} {{{accumulators}}}, {a}, %{first}, p{tail};\\n}}" \\
  : {outputs} : {a_values}, "l"(b), "r"((u32)(adds)) : "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(n) : "memory")
extern "C" __global__ void __launch_bounds__(128) k(const uint4* image, int units, u64 a, u64 b, const u32* fragments,
                                                    const u32* c, u32* d, int adds) {{
  extern __shared__ __align__(1024) uint4 smem[];
  for (int i = threadIdx.x; i < units; i += 128) smem[i] = image[i];
#ifndef NO_PROXY_FENCE
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
  u64 base = (u64)__cvta_generic_to_shared(smem) >> 4;
  a += base; b += base;
  u32 r[{count}], f[4];
  for (int i = 0; i < {count}; ++i) r[i] = c[threadIdx.x * {count} + i];
  for (int i = 0; i < 4; ++i) f[i] = fragments[threadIdx.x * 4 + i];
#ifndef BODY
#define BODY FENCE; MULTIPLY(adds); COMMIT; WAIT(0);
#endif
  BODY
  for (int i = 0; i < {count}; ++i) d[threadIdx.x * {count} + i] = r[i];
}}"""


def lay(matrix: NDArray[Any], swizzle: str, mn_major: bool, start: int) -> tuple[bytes, int]:
    """Bytes of (rows, K) as a canonical layout that starts at shared offset `start`, and its descriptor."""
    rows, depth = matrix.shape
    size = matrix.dtype.itemsize
    inner = (rows if mn_major else depth) * size
    span = SPANS.get(swizzle, 16)
    outer = depth if mn_major else rows
    if swizzle == "none":
        along, across = 128, 128 * -(-inner // 16)
        leading, stride = (across, along) if mn_major else (along, across)
        total = across * -(-outer // 8)
    else:
        leading, stride = (8 * span * -(-outer // 8)) if mn_major else 16, 8 * span
        total = -(-inner // span) * 8 * span * -(-outer // 8)
    image = bytearray(total)
    for r in range(rows):
        for k in range(depth):
            x, y = (r * size, k) if mn_major else (k * size, r)
            if swizzle == "none":
                at = x % 16 + x // 16 * along + y % 8 * 16 + y // 8 * across
            elif mn_major:
                at = x % span + x // span * leading + y % 8 * span + y // 8 * stride
            else:
                assert x < span
                at = x + y % 8 * span + y // 8 * stride
            where = start + 0x400 + at
            where ^= ((where >> 7) & (span // 16 - 1)) << 4 if swizzle != "none" else 0
            where -= start + 0x400
            image[where : where + size] = matrix[r, k].tobytes()
    return bytes(image), start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | CODES[swizzle] << 62


def a_fragments(a: NDArray[Any]) -> NDArray[np.uint32]:
    """(128, 4) registers of A (64, K), by PTX ISA 9.7.15.5."""
    size = a.dtype.itemsize
    each = 4 // size
    out = np.zeros((128, 4), np.uint32)
    for t in range(128):
        for r in range(4):
            row = 16 * (t // 32) + t % 32 // 4 + 8 * (r & 1)
            k = each * (t % 4) + 4 * each * (r >> 1)
            out[t, r] = int.from_bytes(a[row, k : k + each].tobytes(), "little")
    return out


def d_fragments(d: NDArray[Any]) -> NDArray[np.uint32]:
    """(128, registers) of an accumulator (64, N)."""
    n = d.shape[1]
    words = np.zeros((128, n // 2), d.dtype)
    for t in range(128):
        for i in range(n // 2):
            row, column = 16 * (t // 32) + t % 32 // 4 + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * (t % 4) + (i & 1)
            words[t, i] = d[row, column]
    return words.view(np.uint32)


class Case:
    """Operands of one multiplication in shared memory and registers, and D."""

    def __init__(
        self, n: int, d: str, a: str, b: str, depth: int, *, seed: int = 0, swizzles: tuple[str, str] = ("32B", "32B"),
        majors: tuple[bool, bool] = (False, False), limit: int = 4,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng(seed)

        def draw(shape: tuple[int, int], element: str) -> NDArray[Any]:
            low = 0 if element == "u8" else -limit
            return rng.integers(low, limit + 1, shape).astype(DTYPES[element])

        self.a, self.b, self.c = draw((64, depth), a), draw((n, depth), b), draw((64, n), d)
        first, self.a_bits = lay(self.a, swizzles[0], majors[0], 0)
        start = -(-len(first) // 1024) * 1024
        second, self.b_bits = lay(self.b, swizzles[1], majors[1], start)
        self.image = np.frombuffer(first.ljust(start, b"\0") + second, np.uint8)

    def run(
        self, source: str, *, adds: bool = True, threads: int = 128, compiled: bool = False, **options: Any
    ) -> tuple[Any, LaunchResult]:
        memory = GlobalMemory()
        out = memory.upload(np.zeros_like(d_fragments(self.c)))
        size = self.a.dtype.itemsize
        fragments = a_fragments(self.a) if self.a.shape[1] * size == 32 else np.zeros((128, 4), np.uint32)
        function = Module.from_ptx(source if compiled else ptx(source, arch="sm_90a")).get_function("k")
        result = function.launch(
            grid=(1,), block=(threads,), dynamic_smem=len(self.image), memory=memory,
            args=[memory.upload(self.image), np.int32(len(self.image) // 16), np.uint64(self.a_bits),
                  np.uint64(self.b_bits), memory.upload(fragments), memory.upload(d_fragments(self.c)), out,
                  np.int32(adds)],
            **options,
        )  # fmt: skip
        return out.read(), result

    def product(self) -> NDArray[np.float64]:
        product: NDArray[np.float64] = self.a.astype(np.float64) @ self.b.astype(np.float64).T
        return product

    def want(self, value: NDArray[Any]) -> NDArray[np.uint32]:
        return d_fragments(value.astype(self.c.dtype))


FORMS = [
    # D, A, B, K, N, what follows scale-d
    ("f32", "f16", "f16", 16, 8, "1, 1, 0, 0"), ("f16", "f16", "f16", 16, 256, "1, 1, 0, 0"),
    ("f32", "bf16", "bf16", 16, 104, "1, 1, 0, 0"), ("f32", "tf32", "tf32", 8, 40, "1, 1"),
    ("f32", "e4m3", "e5m2", 32, 72, "1, 1"), ("f16", "e5m2", "e4m3", 32, 16, "1, 1"),
    ("f32", "e4m3", "e4m3", 32, 24, "1, 1"), ("f16", "e5m2", "e5m2", 32, 8, "1, 1"),
    ("s32", "s8", "u8", 32, 48, ""), ("s32", "u8", "s8", 32, 240, ""), ("s32", "s8", "s8", 32, 24, ""),
    ("s32", "u8", "u8", 32, 8, ""),
]  # fmt: skip


@pytest.mark.parametrize("from_registers", [False, True], ids=["shared", "registers"])
@pytest.mark.parametrize(("d", "a", "b", "depth", "n", "tail"), FORMS)
def test_every_type(d: str, a: str, b: str, depth: int, n: int, tail: str, from_registers: bool) -> None:
    case = Case(n, d, a, b, depth, seed=n)
    tail = tail.removesuffix(", 0") if from_registers and tail.count(",") == 3 else tail
    source = kernel(f"m64n{n}k{depth}.{d}.{a}.{b}", n, d, a_registers=from_registers, tail=tail)
    got, result = case.run(source)
    np.testing.assert_array_equal(got, case.want(case.product() + case.c.astype(np.float64)))
    assert result.hazards == ()
    got, _ = case.run(source, adds=False)
    np.testing.assert_array_equal(got, case.want(case.product()))


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("majors", [(True, False), (False, True), (True, True), (False, False)])
def test_layouts(swizzle: str, majors: tuple[bool, bool]) -> None:
    case = Case(64, "f32", "bf16", "bf16", 16, swizzles=(swizzle, swizzle), majors=majors)
    got, _ = case.run(kernel("m64n64k16.f32.bf16.bf16", 64, "f32", tail=f"1, 1, {majors[0]:d}, {majors[1]:d}"))
    np.testing.assert_array_equal(got, case.want(case.product() + case.c.astype(np.float64)))


@pytest.mark.parametrize(("tail", "sign"), [("-1, 1, 0, 0", -1), ("1, -1, 0, 0", -1), ("-1, -1, 0, 0", 1)])
def test_negation(tail: str, sign: int) -> None:
    case = Case(16, "f32", "f16", "f16", 16)
    got, _ = case.run(kernel("m64n16k16.f32.f16.f16", 16, "f32", tail=tail))
    np.testing.assert_array_equal(got, case.want(sign * case.product() + case.c))


@pytest.mark.parametrize("saturates", [False, True])
def test_integers_wrap_or_saturate(saturates: bool) -> None:
    case = Case(8, "s32", "s8", "s8", 32, limit=100)
    case.c[...] = np.where(case.c > 0, 2**31 - 5, -(2**31) + 5)
    exact = case.product().astype(np.int64) + case.c
    want = (
        np.clip(exact, -(2**31), 2**31 - 1) if saturates else exact.astype(np.uint64).astype(np.uint32).view(np.int32)
    )
    assert (want != exact).any()
    got, _ = case.run(kernel("m64n8k32.s32.s8.s8" + ".satfinite" * saturates, 8, "s32", tail=""))
    np.testing.assert_array_equal(got, case.want(want))


def test_fp8_keeps_thirteen_fraction_bits_in_the_hardware_model_only() -> None:
    case = Case(8, "f32", "e4m3", "e4m3", 32)
    case.c[...] = 1 + 2.0**-14
    case.image = np.zeros_like(case.image)
    source = kernel("m64n8k32.f32.e4m3.e4m3", 8, "f32")
    assert (case.run(source)[0].view(np.float32) == 1 + 2.0**-14).all()
    assert (case.run(source, numerics="hardware")[0].view(np.float32) == 1).all()


# ------------------------------------------------------------------------------------------------ the protocol

CHAIN = "FENCE; MULTIPLY(adds); MULTIPLY(1); COMMIT; MULTIPLY(1); COMMIT; WAIT(1); WAIT(0);"
BETWEEN = (
    "FENCE; MULTIPLY(1); COMMIT; WAIT(0); for (int i = 0; i < 8; ++i) r[i] ^= threadIdx.x << 20; "
    "MULTIPLY(1); COMMIT; WAIT(0);"
)
PLAIN = "m64n16k16.f32.bf16.bf16"


def protocol(
    body: str, defines: str = "", *, a_registers: bool = False, schedule: str = "random", **options: Any
) -> Any:
    case = Case(16, "f32", "bf16", "bf16", 16)
    tail = "1, 1, 0" if a_registers else "1, 1, 0, 0"
    source = kernel(PLAIN, 16, "f32", a_registers=a_registers, tail=tail, defines=f"#define BODY {body}\n{defines}")
    got, result = case.run(source, check="collect", schedule=schedule, **options)
    return case, got, {(h.severity, h.kind) for h in result.hazards}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("a_registers", [False, True], ids=["shared", "registers"])
def test_multiplications_accumulate_in_order(schedule: str, a_registers: bool) -> None:
    case, got, hazards = protocol(CHAIN, a_registers=a_registers, schedule=schedule)
    np.testing.assert_array_equal(got, case.want(3 * case.product() + case.c))
    assert hazards == set()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("FENCE; MULTIPLY(1); COMMIT; r[3] += 1; WAIT(0);", "wgmma-register-used-early"),
        ("FENCE; MULTIPLY(1); COMMIT;", "wgmma-register-used-early"),
        ("FENCE; MULTIPLY(1); COMMIT; MULTIPLY(1); COMMIT; WAIT(1);", "wgmma-register-used-early"),
        ("FENCE; MULTIPLY(1); WAIT(0);", "wgmma-register-used-early"),
        ("MULTIPLY(1); COMMIT; WAIT(0);", "wgmma-fence-missing"),
        (BETWEEN, "wgmma-fence-missing"),
        (
            "FENCE; MULTIPLY(1); COMMIT; smem[threadIdx.x] = make_uint4(1, 2, 3, 4); WAIT(0);",
            "shared-overwritten-while-mma-reads",
        ),
    ],
)
def test_broken_protocols_are_errors_under_every_schedule(body: str, kind: str, schedule: str) -> None:
    _, _, hazards = protocol(body, schedule=schedule)
    assert ("error", kind) in hazards


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_results_are_not_there_before_the_wait(schedule: str) -> None:
    _, got, _ = protocol("FENCE; MULTIPLY(1); COMMIT;", schedule=schedule)
    assert np.isnan(got.view(np.float32)).all()


TAKE = (
    "unsigned short x[4], y[4]; "
    'for (int i = 0; i < 4; ++i) asm volatile("mov.b32 {%0, %1}, %2;" : "=h"(x[i]), "=h"(y[i]) : "r"(r[i]));'
)
JOIN = 'for (int i = 0; i < 4; ++i) asm volatile("mov.b32 %0, {%1, %2};" : "=r"(r[i]) : "h"(x[i]), "h"(y[i]));'
HALVES = [f"{TAKE} WAIT(0); {JOIN}", f"{TAKE} {JOIN} WAIT(0);"]
EXCHANGED = HALVES[1].replace('"h"(x[i]), "h"(y[i])', '"h"(y[i]), "h"(x[i])')


def in_halves(body: str, schedule: str) -> tuple[Case, Any, set[tuple[str, str]]]:
    """One multiplication whose f16 accumulators are taken apart before the wait."""
    case = Case(16, "f16", "f16", "f16", 16)
    defines = f"#define BODY FENCE; MULTIPLY(adds); COMMIT; {body}\n"
    source = kernel("m64n16k16.f16.f16.f16", 16, "f16", tail="1, 1, 0, 0", defines=defines)
    got, result = case.run(source, schedule=schedule, check="collect")
    return case, got, {(h.severity, h.kind) for h in result.hazards}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("body", HALVES, ids=["joined-after", "joined-before"])
def test_accumulators_may_be_named_by_halves_before_the_wait(body: str, schedule: str) -> None:
    case, got, hazards = in_halves(body, schedule)
    np.testing.assert_array_equal(got, case.want(case.product() + case.c.astype(np.float64)))
    assert hazards == set()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_exchanging_halves_before_the_wait_is_an_early_use(schedule: str) -> None:
    _, _, hazards = in_halves(EXCHANGED, schedule)
    assert ("error", "wgmma-register-used-early") in hazards


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_registers_of_a_stay_until_the_wait(schedule: str) -> None:
    case = Case(16, "f32", "bf16", "bf16", 16)
    text = ptx(kernel(PLAIN, 16, "f32", a_registers=True, tail="1, 1, 0"), arch="sm_90a")
    found = re.search(r"mma_async[^{]*\{[^}]*\}, \{(%r\d+)", text)
    assert found is not None
    broken = text.replace(
        "wgmma.commit_group.sync.aligned;", f"wgmma.commit_group.sync.aligned;\nxor.b32 {found[1]}, {found[1]}, 1;"
    )
    _, result = case.run(broken, check="collect", compiled=True, schedule=schedule)
    assert {(h.severity, h.kind) for h in result.hazards} == {("error", "wgmma-operand-overwritten")}
    assert case.run(text, check="collect", compiled=True, schedule=schedule)[1].hazards == ()


def test_shared_memory_written_without_proxy_fence_is_an_error() -> None:
    _, _, hazards = protocol("FENCE; MULTIPLY(1); COMMIT; WAIT(0);", "#define NO_PROXY_FENCE")
    assert ("error", "missing-proxy-fence") in hazards


def test_a_warpgroup_issues_together() -> None:
    with pytest.raises(DeadlockError, match=r"which warp\(s\) 3 have not issued"):
        protocol("if (threadIdx.x < 96) { FENCE; MULTIPLY(1); COMMIT; WAIT(0); }")
    with pytest.raises(EmulationError, match=r"another wgmma\.mma_async than the other warps"):
        protocol("b += threadIdx.x / 32 * 64; FENCE; MULTIPLY(1); COMMIT; WAIT(0);")
    with pytest.raises(EmulationError, match="warps 0 to 3 have to exist"):
        protocol("FENCE; MULTIPLY(1); COMMIT; WAIT(0);", threads=96)


def test_wgmma_exists_on_one_target() -> None:
    text = ptx(kernel(PLAIN, 16, "f32", tail="1, 1, 0, 0"), arch="sm_90a").replace("sm_90a", "sm_100a")
    function = Module.from_ptx(text).get_function("k")
    memory = GlobalMemory()
    empty = memory.upload(np.zeros(4096, np.uint8))
    with pytest.raises(EmulationError, match="sm_90a only"):
        function.launch(
            grid=(1,), block=(128,), dynamic_smem=4096, memory=memory,
            args=[empty, np.int32(1), np.uint64(0), np.uint64(0), empty, empty, empty, np.int32(0)],
        )  # fmt: skip
