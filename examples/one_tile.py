# /// script
# requires-python = ">=3.11"
# dependencies = ["blasdx[cupy]"]
# ///
"""One tile: out = a @ b for a 128 x 64 and a 64 x 64 f16 matrix, one CTA, four tcgen05.mma instructions.

The smallest product that takes the whole way: the descriptor names the tile, the kernel loads it by TMA, multiplies it
into 64 columns of tensor memory and stores it as f32. With a Blackwell GPU and CuPy it runs there, otherwise in the
emulator.

    python examples/one_tile.py
"""

from __future__ import annotations

import numpy as np

import blasdx as dx

TOLERANCE = 2e-4


def main() -> float:
    # The tutorial product out = a @ b.T reads b row by row; that is a column-major b of the same memory.
    tile = (
        dx.Size(128, 64, 64)
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
    kernel = dx.compile(dx.render(dx.suggest_pipeline(tile, depth=1)))
    print(f"{kernel}, {kernel.prove()} tcgen05.mma")

    gemm = dx.Gemm(kernel)
    random = np.random.default_rng(0)
    a = random.standard_normal((128, 64)).astype(np.float16)
    b = random.standard_normal((64, 64)).astype(np.float16)
    as_device = gemm.device.namespace.asarray
    out = gemm.device.to_host(gemm(as_device(a), as_device(b).T))

    expected = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_allclose(out, expected, rtol=TOLERANCE, atol=TOLERANCE)
    error = float(np.abs(out - expected).max())
    print(f"{gemm.device.name}: largest error {error:.1e}, tolerance {TOLERANCE:.0e}")
    return error


if __name__ == "__main__":
    main()
