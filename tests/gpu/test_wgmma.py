"""wgmma kernels on a Hopper GPU: bit-exact on small integers, within a bound from K on random data."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import blasdx as dx

ROW, COL = "row", "col"


@pytest.fixture(scope="module")
def hopper(device):
    """CuPy on a Hopper GPU."""
    if device.sm != 900:
        pytest.skip(f"these kernels are for SM 900; this is {device.name}")
    return device.namespace


def kernel(size, threads, arrangement=(ROW, COL, ROW), precision="bf16", output=None, depth=None):
    descriptor = (
        dx.Size(*size)
        + dx.Precision(precision, precision, "f32")
        + dx.Type(dx.real)
        + dx.Function(dx.MM)
        + dx.Arrangement(*arrangement)
        + dx.Block()
        + dx.BlockDim(threads)
        + dx.MaxAlignment()
        + dx.WithPipeline()
        + dx.EnableInputStreaming()
        + dx.SM(900, dx.arch_specific)
    )
    return dx.compile(dx.render(dx.suggest_pipeline(descriptor, output=output, depth=depth)))


def ordered(array, order):
    return np.asfortranarray(array) if order == COL else np.ascontiguousarray(array)


def on_device(cupy, array, order):
    """The array in its order, whose lines are padded to whole 16 bytes as TMA wants them."""
    item = array.dtype.itemsize
    column_major = order == COL
    lines, width = (array.shape[1], array.shape[0]) if column_major else array.shape
    padded = cupy.zeros((lines, -(-width * item // 16) * 16 // item), dtype=array.dtype)
    view = padded[:, :width]
    view[...] = cupy.asarray(np.ascontiguousarray(array.T if column_major else array))
    return view.T if column_major else view


def operands(m, n, k, dtype, arrangement, *, integers, seed=0):
    rng = np.random.default_rng(seed)

    def draw(rows, columns, order):
        values = rng.integers(-3, 4, (rows, columns)) if integers else rng.standard_normal((rows, columns))
        return ordered(values.astype(dtype), order)

    return draw(m, k, arrangement[0]), draw(k, n, arrangement[1])


def check(cupy, compiled, m, n, k, *, integers=True, alpha=1.0, beta=None, seed=0, out_pad=0):
    plan = compiled.source.plan
    order = tuple(
        "row" if tag is dx.row_major else "col"
        for tag in (plan.descriptor.arrangement.a, plan.descriptor.arrangement.b)
    )
    dtype = plan.descriptor.a_value_type.numpy_dtype
    a, b = operands(m, n, k, dtype, order, integers=integers, seed=seed)
    gemm = dx.Gemm(compiled, "cuda")
    kwargs = {"alpha": alpha}
    exact = alpha * (a.astype(np.float64) @ b.astype(np.float64))
    bound = abs(alpha) * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))
    out_dtype = plan.output.numpy_dtype
    if beta is not None:
        c = np.random.default_rng(seed + 1).integers(-5, 6, (m, n)).astype(out_dtype)
        c_order = COL if plan.descriptor.arrangement.c is dx.col_major else ROW
        kwargs |= {"c": cupy.asarray(ordered(c, c_order)), "beta": beta}
        exact = exact + beta * c.astype(np.float64)
        bound = bound + abs(beta) * np.abs(c.astype(np.float64))
    got = cupy.asnumpy(gemm(on_device(cupy, a, order[0]), on_device(cupy, b, order[1]), **kwargs)).astype(np.float64)
    if integers:
        np.testing.assert_array_equal(got, exact.astype(out_dtype).astype(np.float64))
    else:
        rounding = {np.dtype(np.float32): 0.0, np.dtype(np.float16): 2.0**-11}.get(np.dtype(out_dtype), 2.0**-8)
        assert np.all(np.abs(got - exact) <= k * 2.0**-23 * bound + rounding * np.abs(exact) + 1e-7)


MAJORS = [(ROW, COL), (ROW, ROW), (COL, COL), (COL, ROW)]


@pytest.mark.parametrize("majors", MAJORS)
@pytest.mark.parametrize("c_order", [ROW, COL])
@pytest.mark.parametrize(("precision", "output"), [("bf16", None), ("bf16", "bf16"), ("f16", "f16")])
def test_majornesses_and_outputs(hopper, majors, c_order, precision, output):
    compiled = kernel((128, 64, 64), 256, (*majors, c_order), precision, output)
    check(hopper, compiled, 200, 136, 328)
    check(hopper, compiled, 200, 136, 328, integers=False)
    check(hopper, compiled, 131, 77, 59, alpha=2.0, beta=-1.0)


@pytest.mark.parametrize(
    ("size", "threads", "arrangement"),
    [
        ((64, 8, 16), 128, (ROW, COL, ROW)),
        ((64, 24, 48), 128, (ROW, ROW, ROW)),
        ((64, 40, 32), 128, (COL, ROW, ROW)),
        ((64, 256, 64), 128, (ROW, COL, ROW)),
        ((128, 128, 64), 128, (ROW, COL, ROW)),
        ((128, 176, 64), 128, (ROW, COL, ROW)),
        ((128, 256, 64), 256, (ROW, COL, ROW)),
        ((256, 128, 64), 256, (COL, ROW, ROW)),
        ((128, 192, 64), 256, (ROW, COL, ROW)),
        ((384, 64, 32), 128, (ROW, COL, ROW)),
        ((128, 320, 32), 256, (ROW, COL, ROW)),
        ((64, 64, 272), 128, (COL, ROW, ROW)),
        ((128, 128, 64), 512, (ROW, COL, ROW)),
        ((128, 64, 128), 512, (COL, COL, COL)),
    ],
)
def test_tiles(hopper, size, threads, arrangement):
    compiled = kernel(size, threads, arrangement)
    for m, n, k in [(size[0], size[1], size[2]), (333, 264, 200), (7, 9, 8), (1000, 520, 72)]:
        check(hopper, compiled, m, n, k)
    check(hopper, compiled, 517, 301, 144, integers=False)


@pytest.mark.parametrize("output", [None, "bf16"])
def test_ragged_outputs_take_both_ways_out(hopper, output):
    compiled = kernel((128, 128, 64), 256, output=output)
    for n in (128, 136, 130, 129, 127, 1):
        check(hopper, compiled, 130, n, 64)
        check(hopper, compiled, 130, n, 64, alpha=0.5, beta=3.0)


def test_repeats_are_bit_equal(hopper):
    compiled = kernel((128, 256, 64), 256, output="bf16")
    rng = np.random.default_rng(3)
    a = hopper.asarray(rng.standard_normal((1111, 1000)).astype(ml_dtypes.bfloat16))
    b = hopper.asarray(rng.standard_normal((1536, 1000)).astype(ml_dtypes.bfloat16)).T
    gemm = dx.Gemm(compiled, "cuda")
    first = gemm(a, b).copy()
    for _ in range(100):
        assert bool((gemm(a, b).view(np.uint16) == first.view(np.uint16)).all())


def test_out_views_keep_their_gaps(hopper):
    compiled = kernel((128, 128, 64), 256)
    a, b = operands(200, 100, 64, ml_dtypes.bfloat16, (ROW, COL), integers=True)
    for pad in (1, 4):
        whole = hopper.full((210, 100 + 2 * pad), 7.0, dtype=np.float32)
        view = whole[5:205, pad : pad + 100]
        dx.Gemm(compiled, "cuda")(hopper.asarray(a), hopper.asarray(b), out=view)
        host = hopper.asnumpy(whole)
        np.testing.assert_array_equal(host[5:205, pad : pad + 100], a.astype(np.float64) @ b.astype(np.float64))
        host[5:205, pad : pad + 100] = 7.0
        assert (host == 7.0).all()
