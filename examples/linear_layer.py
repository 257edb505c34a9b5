# /// script
# requires-python = ">=3.11"
# dependencies = ["blasdx[cupy]"]
# ///
"""A linear layer in one kernel: out = e4m3(gelu(x @ w + bias) / scale), 200 x 96 from 200 x 72 and 72 x 96 of bf16.

What follows the product is an epilogue: its expression is checked before anything is rendered, evaluated in registers,
and its own reference in NumPy says what the result has to be. The scale is read from device memory, where an earlier
kernel may have put it. With a Blackwell GPU and CuPy it runs there, otherwise in the emulator.

    python examples/linear_layer.py
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import blasdx as dx


def main() -> float:
    tile = (
        dx.Size(128, 96, 64)
        + dx.Precision("bf16", "bf16", "f32")
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
    epilogue = dx.Epilogue("gelu(acc + bias[n]) / scale[0]", bias="bf16", scale="f32")
    print(epilogue.describe("f32", "e4m3", tile=(128, 96)))

    gemm = dx.Gemm(dx.compile(dx.render(dx.suggest_pipeline(tile, epilogue=epilogue, output="e4m3"))))
    random = np.random.default_rng(0)
    x = random.standard_normal((200, 72)).astype(ml_dtypes.bfloat16)
    weights = random.standard_normal((96, 72)).astype(ml_dtypes.bfloat16)
    bias = random.standard_normal(96).astype(ml_dtypes.bfloat16)
    scale = np.array([0.125], np.float32)
    as_device = gemm.device.namespace.asarray
    out = gemm(as_device(x), as_device(weights).T, bias=as_device(bias), scale=as_device(scale))

    # CuPy has no 8-bit floats: there the result is bytes.
    got = gemm.device.to_host(out).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    products = x.astype(np.float32) @ weights.astype(np.float32).T
    expected = epilogue.reference(products, output="e4m3", bias=bias, scale=scale).astype(np.float32)
    unit = np.maximum(np.abs(expected) * 2.0**-3, 2.0**-9)  # of the last place
    error = float((np.abs(got - expected) / unit).max())
    same = float((got == expected).mean())
    print(f"{gemm.device.name}: {same:.2%} of the results are the reference's bits, the others {error:.2f} units off")
    assert error <= 1
    return error


if __name__ == "__main__":
    main()
