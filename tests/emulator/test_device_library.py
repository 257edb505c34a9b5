"""Kernels of one's own on the rendered pipeline, on both paths: every call, every accessor, what C++ refuses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx
from blasdx.devices.emulated import EmulatedDevice
from blasdx.emulator import EmulationError
from blasdx.errors import RenderError

M, N, K = 200, 125, 136
PADDED = 128
PATHS = {"utcmma": tile((64, 48, 64)), "wgmma": tile((128, 48, 64), sm=900).with_(dx.BlockDim(256))}
WIDER = {"utcmma": tile((192, 40, 64)), "wgmma": tile((192, 80, 64), sm=900)}

KERNEL = """
using namespace blasdx;

extern "C" __global__ void __launch_bounds__(Pipeline::max_threads_per_block, 1)
mine(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
     {out_map}const __grid_constant__ Problem problem) {{
  extern __shared__ __align__(Pipeline::buffer_alignment()) u8 smem[];
  const Pipeline pipeline{{a_map, b_map, problem.k}};
  const Schedule schedule(problem);
  {body}
}}
"""

LOOP = """
  Tile tile = pipeline.get_tile(smem, 0, 0);
  for (u32 index = schedule.first(); index < schedule.count; index += schedule.step()) {
    const Problem::Place at = schedule[index];
    pipeline.reset_tile(tile, at.row, at.column);
    const auto out = problem.out_tile(AT);
    BODY
  }
"""


def source(plan: dx.PipelinePlan, body: str, loop: str = LOOP) -> str:
    bulk = plan.bulk_stores
    body = loop.replace("BODY", body).replace("AT)", "at, out_map)" if bulk else "at)")
    out_map = "const __grid_constant__ TensorMap out_map, " if bulk else ""
    return KERNEL.format(out_map=out_map, body=body)


def functor(text: str) -> str:
    return f"tile.execute([&](Accumulator& acc) {{ {text} }});"


def run(plan: dx.PipelinePlan, text: str, n: int = N) -> tuple[Any, Any, Any]:
    """What the kernel wrote, A * B, and what stood in the output before."""
    random = np.random.default_rng(0)
    a = random.integers(-3, 4, (M, K)).astype(ml_dtypes.bfloat16)
    b = random.integers(-3, 4, (n, K)).astype(ml_dtypes.bfloat16).T
    memory = random.integers(-9, 9, (M, PADDED)).astype(plan.output.numpy_dtype)
    before = memory.copy()
    device = EmulatedDevice(processors=3)
    dx.Gemm(dx.compile(plan, kernel_source=text), device)(a, b, out=memory[:, :n])
    assert device.last is not None
    assert device.last.hazards == ()
    assert (memory[:, n:] == before[:, n:]).all()
    return memory[:, :n], a.astype(np.float32) @ b.astype(np.float32), before[:, :n]


def places(plan: dx.PipelinePlan) -> tuple[Any, Any]:
    row, column = np.indices((M, N))
    return row % plan.tile_m, column % plan.tile_n


ACCESSORS: dict[str, tuple[str, Any]] = {
    "partition_and_store": ("acc.partition_and_store(out);", lambda new, old, at: new),
    "process_and_store": (
        "acc.process_and_store(out, [](Value x) { return 2 * x + 1; });",
        lambda new, old, at: 2 * new + 1,
    ),
    "process_and_store, a fragment": (
        """Fragment all; acc.process_and_store(all, identity{});
           for (u32 i = 0; i < acc.size(); ++i)
             if (acc.is_index_in_bounds(i, out)) *out[acc.map_fragment_index(i)] = __float_as_uint(all[i]);""",
        lambda new, old, at: new,
    ),
    "reduce_and_store": (
        "acc.reduce_and_store(out, [](Value x, Value c, Index i) { return x - c + 1000.0f * i.row + i.column; });",
        lambda new, old, at: new - old + 1000 * at[0] + at[1],
    ),
    "reduce_and_store, a fragment": (
        """Fragment all; for (u32 i = 0; i < acc.size(); ++i) all[i] = 5;
           acc.reduce_and_store(all, [](Value x, Value c, Index i) { return x * c + i.column; });
           for (u32 i = 0; i < acc.size(); ++i)
             if (acc.is_index_in_bounds(i, out)) *out[acc.map_fragment_index(i)] = __float_as_uint(all[i]);""",
        lambda new, old, at: 5 * new + at[1],
    ),
    "axpby": ("acc.axpby(2, -1, out);", lambda new, old, at: 2 * new - old),
    "axpby, beta zero": ("acc.axpby(2, 0, out);", lambda new, old, at: 2 * new),
    "axpby, a fragment": (
        """Fragment all; for (u32 i = 0; i < acc.size(); ++i) all[i] = 3;
           acc.axpby(2, -1, all);
           for (u32 i = 0; i < acc.size(); ++i)
             if (acc.is_index_in_bounds(i, out)) *out[acc.map_fragment_index(i)] = __float_as_uint(all[i]);""",
        lambda new, old, at: 2 * new - 3,
    ),
    "get_results": (
        """const Fragment all = acc.get_results();
           tile.epilogue_sync();
           for (u32 i = 0; i < acc.size(); ++i)
             if (acc.is_index_in_bounds(i, out)) *out[acc.map_fragment_index(i)] = __float_as_uint(all[i]);""",
        lambda new, old, at: new,
    ),
}


@pytest.mark.parametrize("tiles", [PATHS, WIDER], ids=["", "wider"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("accessor", ACCESSORS)
def test_accessor(accessor: str, path: str, tiles: dict[str, dx.Descriptor]) -> None:
    text, expected = ACCESSORS[accessor]
    plan = dx.suggest_pipeline(tiles[path])
    got, product, before = run(plan, source(plan, functor(text)))
    assert (got == expected(product, before, places(plan))).all()


NARROW: dict[str, tuple[str, Any]] = {
    "partition_and_store": ACCESSORS["partition_and_store"],
    "process_and_store": ACCESSORS["process_and_store"],
    "axpby": ACCESSORS["axpby"],
    "reduce_and_store": (
        "acc.reduce_and_store(out, [](Value x, Value c, Index i) { return x - c + i.column; });",
        lambda new, old, at: new - old + at,
    ),
    "scratch behind the pipeline's buffer": (
        """u32* mine = reinterpret_cast<u32*>(smem + (Pipeline::buffer_size() + 15) / 16 * 16) + threadIdx.x;
           *mine = threadIdx.x;
           acc.process_and_store(out, [&](Value x) { return x + (*mine == threadIdx.x); });""",
        lambda new, old, at: new + 1,
    ),
}


@pytest.mark.parametrize("n", [N, 120])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("accessor", NARROW)
def test_accessor_that_stores_through_shared_memory(accessor: str, path: str, n: int) -> None:
    """By TMA where rows are whole units of 16 bytes."""
    text, expected = NARROW[accessor]
    plan = dx.suggest_pipeline(PATHS[path], output="bf16", scratch=1024)
    assert plan.bulk_stores
    got, product, before = run(plan, source(plan, functor(text)), n)
    column = np.arange(n) % plan.tile_n
    assert (got == expected(product, before.astype(np.float32), column).astype(got.dtype)).all()


REUSED = {
    "two products, then epilogue": """
        Tile whole = pipeline.get_tile(smem, 0, 0);
        whole.specialise([&](auto&& tile) {
          auto acc = tile.get_accumulator();
          for (u32 index = schedule.first(); index < schedule.count; index += schedule.step()) {
            const Problem::Place at = schedule[index];
            pipeline.reset_tile(tile, at.row, at.column);
            tile.execute(acc);
            tile.execute(acc);
            tile.epilogue(acc, [&](Accumulator& acc) {
              acc.process_and_store(problem.out_tile(AT), [](Value x) { return x / 2; });
            });
          }
        });""",
    "cleared, finished, consumed": """
        Tile tile = pipeline.get_tile(smem, 0, 0);
        auto acc = tile.get_accumulator();
        for (u32 index = schedule.first(); index < schedule.count; index += schedule.step()) {
          const Problem::Place at = schedule[index];
          pipeline.reset_tile(tile, at.row, at.column);
          tile.execute(acc);
          acc.clear();
          tile.execute(acc);
          acc.finish_accumulation();
          if (acc.is_thread_active()) {
            acc.partition_and_store(problem.out_tile(AT));
          }
          acc.clear();
        }""",
    "K in two halves, named by their coordinates": """
        Tile tile = pipeline.get_tile(smem, 0, 0);
        auto acc = tile.get_accumulator();
        for (u32 index = schedule.first(); index < schedule.count; index += schedule.step()) {
          const Problem::Place at = schedule[index];
          for (u32 half = 0; half < 2; ++half) {
            pipeline.reset_tile(tile, {at.row, 0, half}, {at.column, 0, half}, half == 0 ? 1 : pipeline.k_blocks() - 1);
            tile.execute(acc);
          }
          tile.epilogue(acc, [&](Accumulator& acc) { acc.partition_and_store(problem.out_tile(AT)); });
        }""",
    "a sum of nothing": """
        Tile tile = pipeline.get_tile(smem, 0, 0);
        for (u32 index = schedule.first(); index < schedule.count; index += schedule.step()) {
          const Problem::Place at = schedule[index];
          pipeline.reset_tile(tile, {at.row}, {at.column}, 0);
          tile.execute([&](Accumulator& acc) { acc.axpby(1, 0, problem.out_tile(AT)); });
          pipeline.reset_tile(tile, at.row, at.column);
          tile.execute([&](Accumulator& acc) { acc.axpby(1, 1, problem.out_tile(AT)); });
        }""",
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("what", REUSED)
def test_reused_accumulator(what: str, path: str) -> None:
    plan = dx.suggest_pipeline(PATHS[path])
    got, product, _ = run(plan, source(plan, "", REUSED[what]))
    assert (got == product).all()


@pytest.mark.parametrize("what", REUSED)
def test_reused_accumulator_that_stores_through_shared_memory(what: str) -> None:
    plan = dx.suggest_pipeline(PATHS["utcmma"], output="f16")
    assert plan.bulk_stores
    got, product, _ = run(plan, source(plan, "", REUSED[what]), 120)
    assert (got == product).all()


EXACTLY_ONE = "blasdx_a_functor_makes_exactly_one_consuming_call"
ONCE = "blasdx_get_the_accumulator_once_and_before_the_loop"
STORE = "acc.partition_and_store(out);"
MISTAKES = {
    "two consuming calls": (functor(STORE + STORE), EXACTLY_ONE),
    "no consuming call": (functor("acc.size();"), EXACTLY_ONE),
    "one that some threads skip": (functor(f"if (threadIdx.x < 77) {STORE}"), EXACTLY_ONE),
    "a second accumulator in the loop": (
        f"""auto acc = tile.get_accumulator();
            tile.execute(acc);
            tile.epilogue(acc, [&](Accumulator& acc) {{ {STORE} }});""",
        ONCE,
    ),
    "a fragment where memory is due": (
        functor("Fragment all; acc.partition_and_store(all);"),
        r"process_and_store\(fragment, identity\{\}\)",
    ),
    "memory of another type": (
        functor("acc.partition_and_store(get_tile(reinterpret_cast<u16*>(problem.out), M, N, N, 0, 0));").replace(
            "M, N, N", "200, 125, 125"
        ),
        "tiles in memory hold f32",
    ),
    "a copy of the tile": ("Tile other = tile;" + functor(STORE), "deleted function"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_that_do_not_compile(what: str) -> None:
    body, says = MISTAKES[what]
    plan = dx.suggest_pipeline(PATHS["utcmma"])
    with pytest.raises(dx.CompileError, match=says):
        dx.compile(plan, kernel_source=source(plan, body))


def tiles_of(body: str) -> str:
    """A kernel's loop without the tile that it works on."""
    return (
        LOOP.replace("Tile tile = pipeline.get_tile(smem, 0, 0);", "")
        .replace("pipeline.reset_tile(tile, at.row, at.column);", "")
        .replace("BODY", body)
    )


FUNCTOR = functor(STORE)
SEEN_BY_THE_EMULATOR = {
    "a block barrier in the functor": (
        LOOP.replace("BODY", functor("__syncthreads();" + STORE)),
        "tensor-used-after-free",
    ),
    "a warp that leaves before the last tile": (
        LOOP.replace(
            "BODY", "if (index + schedule.step() >= schedule.count && threadIdx.x / 32 == 2) return;" + FUNCTOR
        ),
        "tensor-result-never-read",
    ),
    "a functor that a thread skips": (LOOP.replace("BODY", "if (threadIdx.x != 77) " + FUNCTOR), "no warp can go on"),
    "a tile for each tile": (
        tiles_of("Tile tile = pipeline.get_tile(smem, at.row, at.column);" + FUNCTOR),
        "tcgen05.alloc after tcgen05.relinquish_alloc_permit",
    ),
    "an accumulation that only the epilogue threads finish": (
        REUSED["cleared, finished, consumed"].replace(
            "acc.finish_accumulation();\n          if (acc.is_thread_active()) {",
            "if (acc.is_thread_active()) { acc.finish_accumulation();",
        ),
        "no warp can go on",
    ),
    "roles that count other K blocks": (
        LOOP.replace(
            "pipeline.reset_tile(tile, at.row, at.column)",
            "pipeline.reset_tile(tile, Coordinate{at.row}, Coordinate{at.column}, threadIdx.x < 160 ? 2u : 1u)",
        ).replace("BODY", FUNCTOR),
        "no warp can go on",
    ),
    "a barrier of the pipeline's own": (
        LOOP.replace(
            "BODY", functor('if (threadIdx.x < 64) asm volatile("bar.sync 1, 64;"); tile.epilogue_sync();' + STORE)
        ),
        "barrier 1 is used with",
    ),
}


@pytest.mark.parametrize("what", SEEN_BY_THE_EMULATOR)
def test_mistakes_that_the_emulator_names(what: str) -> None:
    body, says = SEEN_BY_THE_EMULATOR[what]
    plan = dx.suggest_pipeline(PATHS["utcmma"])
    random = np.random.default_rng(0)
    a = random.integers(-3, 4, (M, K)).astype(ml_dtypes.bfloat16)
    b = random.integers(-3, 4, (N, K)).astype(ml_dtypes.bfloat16).T
    device = EmulatedDevice(processors=3)
    kernel = dx.compile(plan, kernel_source=source(plan, "", body))
    try:
        dx.Gemm(kernel, device)(a, b)
    except EmulationError as error:
        said = str(error)
    else:
        assert device.last is not None
        said = " ".join(map(str, device.last.hazards))
    assert says in said


def test_shared_storage_calculator() -> None:
    """The same sums on the device and on the host."""
    parts = [[(16, 4, 10)] * 3, [(2, 2, 1), (4, 4, 1), (8, 8, 1)], [(128, 1000), (16, 4, 3)]]
    plan = dx.suggest_pipeline(PATHS["utcmma"])
    text = "\n".join(
        f"static_assert(make_shared_storage_calculator(){''.join(f'.add{part}' for part in one)}.get() == {total});"
        for one, total in zip(parts, (136, 16, 1020), strict=True)
    )
    assert [dx.shared_storage(*one) for one in parts] == [136, 16, 1020]
    dx.compile(plan, kernel_source=source(plan, text + FUNCTOR))


def test_a_fragment_of_more_than_128_registers_is_said() -> None:
    plan = dx.suggest_pipeline(tile((128, 136, 64)))
    text = functor("const Fragment all = acc.get_results(); if (all[0] == 1) *out[{0, 0}] = 1;")
    with pytest.warns(UserWarning, match="get_results takes 136 registers a thread"):
        dx.compile(plan, kernel_source=source(plan, text))


def test_which_function_is_the_kernel() -> None:
    plan = dx.suggest_pipeline(PATHS["utcmma"])
    text = source(plan, functor(STORE))
    assert dx.render(plan, kernel_source=text).entry == "mine"
    two = text + text.replace("mine(", "other(").replace("using namespace blasdx;", "")
    assert dx.render(plan, kernel_source=two, entry="other").entry == "other"
    with pytest.raises(RenderError, match=r"no entry is named.*mine, other"):
        dx.render(plan, kernel_source=two)
    with pytest.raises(RenderError, match="entry = 'third'"):
        dx.render(plan, kernel_source=two, entry="third")
    with pytest.raises(RenderError, match="none"):
        dx.render(plan, kernel_source="__global__ void mangled() {}")
    with pytest.raises(TypeError, match="go with a plan"):
        dx.compile(dx.render(plan), kernel_source=text)
