# /// script
# requires-python = ">=3.11"
# dependencies = ["blasdx[cupy]"]
# ///
"""A kernel of one's own on a rendered pipeline: scores of causal attention, in place on a matrix of biases.

    scores[q, k] = alpha * dot(query[q], key[k]) + bias[q, k]  where k <= q, and minus infinity elsewhere

An expression cannot say it: the mask depends on where an element is, and tiles above the diagonal need no product at
all. The kernel loops over tiles itself, gives those tiles no K blocks, and computes in the functor that the epilogue
threads run. With a Blackwell GPU and CuPy it runs there, otherwise in the emulator.

    python examples/own_kernel.py
"""

from __future__ import annotations

import numpy as np

import blasdx as dx

QUERIES, KEYS, FEATURES = 200, 232, 72
ALPHA = FEATURES**-0.5

KERNEL = r"""
using namespace blasdx;

extern "C" __global__ void __launch_bounds__(Pipeline::max_threads_per_block, 1)
causal_scores(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
              const __grid_constant__ Problem problem) {
  extern __shared__ __align__(Pipeline::buffer_alignment()) u8 smem[];
  const Pipeline pipeline{a_map, b_map, problem.k};
  const Schedule schedule(problem);
  Tile whole = pipeline.get_tile(smem, 0, 0);
  whole.specialise([&](auto&& tile) {
    for (u32 index = schedule.first(); index < schedule.count; index += schedule.step()) {
      const Problem::Place at = schedule[index];
      const u32 query = at.row * kTileM;
      const u32 key = at.column * kTileN;
      const bool visible = key < query + kTileM;  // otherwise the whole tile lies above the diagonal
      pipeline.reset_tile(tile, problem.a_tile(at), problem.b_tile(at), visible ? pipeline.k_blocks() : 0);
      tile.execute([&](Accumulator& accumulator) {
        accumulator.reduce_and_store(problem.out_tile(at), [&](Value sum, Value bias, Index i) {
          return key + i.column <= query + i.row ? problem.alpha * sum + bias : -__int_as_float(0x7f800000);
        });
      });
    }
  });
}
"""


def main() -> float:
    tile = (
        dx.Size(64, 48, 64)
        + dx.Precision("f16", "f16", "f32")
        + dx.Type("real")
        + dx.Function("MM")
        + dx.Arrangement("row", "col", "row")
        + dx.Block()
        + dx.BlockDim(128)
        + dx.MaxAlignment()
        + dx.WithPipeline()
        + dx.EnableInputStreaming()
        + dx.SM(1000, "arch_specific")
    )
    kernel = dx.compile(dx.suggest_pipeline(tile), kernel_source=KERNEL)
    print(f"{kernel}, {kernel.prove()} tcgen05.mma")

    gemm = dx.Gemm(kernel)
    random = np.random.default_rng(0)
    query = random.standard_normal((QUERIES, FEATURES)).astype(np.float16)
    key = random.standard_normal((KEYS, FEATURES)).astype(np.float16)
    bias = random.standard_normal((QUERIES, KEYS)).astype(np.float32)
    expected = ALPHA * query.astype(np.float32) @ key.astype(np.float32).T + bias
    expected[np.triu_indices(QUERIES, 1, KEYS)] = -np.inf

    as_device = gemm.device.namespace.asarray
    scores = as_device(bias)
    gemm(as_device(query), as_device(key).T, out=scores, alpha=ALPHA)
    found = gemm.device.to_host(scores)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    finite = np.isfinite(expected)
    error = float(np.abs(found[finite] - expected[finite]).max())
    print(f"{gemm.device.name}: largest error {error:.1e}")
    return error


if __name__ == "__main__":
    main()
