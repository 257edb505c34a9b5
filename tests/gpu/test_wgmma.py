"""wgmma kernels on a Hopper GPU: bit-exact on small integers, within a bound from K on random data."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tiles import tile

import blasdx as dx

ROW, COL = "row", "col"


def kernel(
    size, threads, arrangement=(ROW, COL, ROW), precision="bf16", output=None, depth=None, cluster=(1, 1), **options
):
    descriptor = tile(size, precision, threads=threads, cluster=cluster, sm=900).with_(dx.Arrangement(*arrangement))
    return dx.compile(dx.render(dx.suggest_pipeline(descriptor, output=output, depth=depth, **options)))


def ordered(array, order):
    return np.asfortranarray(array) if order == COL else np.ascontiguousarray(array)


def on_device(cupy, array, order):
    """The array in its order, whose lines are padded to whole 16 bytes as TMA wants them."""
    item = array.dtype.itemsize
    column_major = order == COL
    lines, width = (array.shape[1], array.shape[0]) if column_major else array.shape
    if array.dtype.name.startswith("float8"):
        array = array.view(np.uint8)  # CuPy has no 8-bit floats
    padded = cupy.zeros((lines, -(-width * item // 16) * 16 // item), dtype=array.dtype)
    view = padded[:, :width]
    view[...] = cupy.asarray(np.ascontiguousarray(array.T if column_major else array))
    return view.T if column_major else view


def operands(m, n, k, dtypes, arrangement, *, integers, seed=0):
    """A and B, exactly representable in what the tensor core reads."""
    rng = np.random.default_rng(seed)

    def draw(rows, columns, order, dtype):
        if dtype.kind in "iu":
            values = rng.integers(0 if dtype.kind == "u" else -100, 101, (rows, columns))
        else:
            values = rng.integers(-3, 4, (rows, columns)) if integers else rng.standard_normal((rows, columns))
        values = values.astype(dtype)
        if dtype == np.float32:  # tf32: the tensor core drops the low 13 bits
            values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return ordered(values, order)

    return draw(m, k, arrangement[0], dtypes[0]), draw(k, n, arrangement[1], dtypes[1])


KEPT = {"f32": 2.0**-23, "f16": 2.0**-10}
"""Relative error of one addition in the accumulator: truncation to 23 or rounding to 10 fraction bits."""


def check(cupy, compiled, m, n, k, *, integers=True, alpha=1.0, beta=None, seed=0):
    plan = compiled.source.plan
    tile = plan.descriptor
    order = tuple(ROW if tag is dx.row_major else COL for tag in (tile.arrangement.a, tile.arrangement.b))
    dtypes = (tile.a_value_type.numpy_dtype, tile.b_value_type.numpy_dtype)
    a, b = operands(m, n, k, dtypes, order, integers=integers, seed=seed)
    gemm = dx.Gemm(compiled, "cuda")
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    exact, magnitude = alpha * (wide_a @ wide_b), abs(alpha) * (abs(wide_a) @ abs(wide_b))
    out_dtype = plan.output.numpy_dtype
    kwargs = {"alpha": alpha}
    if beta is not None:
        c = np.random.default_rng(seed + 1).integers(-5, 6, (m, n)).astype(out_dtype)
        kwargs |= {"c": cupy.asarray(ordered(c, COL if tile.arrangement.c is dx.col_major else ROW)), "beta": beta}
        exact, magnitude = exact + beta * c.astype(np.float64), magnitude + abs(beta * c.astype(np.float64))
    device_a, device_b = on_device(cupy, a, order[0]), on_device(cupy, b, order[1])
    got = cupy.asnumpy(gemm(device_a, device_b, **kwargs)).astype(np.float64)
    if out_dtype == np.int8:
        exact = np.clip(np.rint(exact), -128, 127)
    if integers:
        np.testing.assert_array_equal(got, exact.astype(out_dtype).astype(np.float64))
        return
    kept = 2.0**-13 if tile.precision.a.bits == 8 and tile.precision.c is dx.f32 else KEPT[tile.precision.c.name]
    stored = {"f32": 0.0, "f16": 2.0**-11, "bf16": 2.0**-8}[plan.output.name]
    terms = 128 if plan.promotion else k  # promoted sums lose bits over 128 of K only
    assert np.all(np.abs(got - exact) <= terms * kept * magnitude + stored * np.abs(exact) + 1e-7)


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
        ((256, 256, 32), 128, (ROW, COL, ROW)),
        ((512, 48, 96), 512, (COL, ROW, ROW)),  # 24 columns a warpgroup: no span of B may straddle two
        ((128, 40, 544), 256, (ROW, COL, ROW)),  # more K steps than are unrolled
        ((512, 264, 16), 256, (COL, ROW, COL)),
    ],
)
def test_tiles(hopper, size, threads, arrangement):
    compiled = kernel(size, threads, arrangement)
    for m, n, k in [(size[0], size[1], size[2]), (333, 264, 200), (7, 9, 8), (1000, 520, 72)]:
        check(hopper, compiled, m, n, k)
    check(hopper, compiled, 517, 301, 144, integers=False)


@pytest.mark.parametrize(
    ("precision", "k", "output"),
    [
        (("f16", "f16", "f16"), 64, None),
        (("f16", "f16", "f16"), 32, "f32"),
        (("tf32", "tf32", "f32"), 32, None),
        (("tf32", "tf32", "f32"), 8, "bf16"),
        (("e4m3", "e4m3", "f32"), 128, None),
        (("e4m3", "e5m2", "f32"), 64, "bf16"),
        (("e5m2", "e4m3", "f32"), 160, "f16"),
        (("e5m2", "e5m2", "f32"), 32, None),
        (("e4m3", "e4m3", "f16"), 256, None),
        (("s8", "s8", "s32"), 128, None),
        (("u8", "s8", "s32"), 64, None),
        (("s8", "u8", "s32"), 32, None),
        (("u8", "u8", "s32"), 96, None),
    ],
)
@pytest.mark.parametrize(("threads", "tile"), [(128, (64, 96)), (256, (128, 128)), (512, (128, 64))])
def test_types(hopper, precision, k, output, threads, tile):
    compiled = kernel((*tile, k), threads, (ROW, COL, ROW), precision, output)
    check(hopper, compiled, 200, 136, 336)
    check(hopper, compiled, 131, 77, 48, alpha=2.0, beta=-3.0)
    if precision[0] not in ("s8", "u8"):
        check(hopper, compiled, 259, 130, 400, integers=False)


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2)])
@pytest.mark.parametrize("majors", MAJORS)
def test_clusters(hopper, cluster, majors):
    compiled = kernel((128, 64, 64), 256, (*majors, ROW), output="bf16", cluster=cluster)
    for m, n, k in [(128, 64, 64), (1000, 264, 200), (129, 520, 328), (2100, 1111, 72)]:
        check(hopper, compiled, m, n, k)
    check(hopper, compiled, 517, 301, 144, integers=False)
    check(hopper, compiled, 300, 200, 136, alpha=2.0, beta=1.0)


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("majors", MAJORS)
def test_clusters_with_operands_of_several_spans(hopper, cluster, majors):
    compiled = kernel((128, 256, 32), 256, (*majors, ROW), cluster=cluster)
    check(hopper, compiled, 517, 801, 144)


@pytest.mark.parametrize("cluster", [(16, 1), (4, 4), (2, 8)])
def test_clusters_that_not_every_device_takes(hopper, cluster):
    compiled = kernel((128, 128, 64), 256, cluster=cluster)
    check(hopper, compiled, 1517, 2801, 144)


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize(("size", "order", "output"), [((128, 128, 64), ROW, "bf16"), ((64, 256, 64), COL, None)])
def test_two_sets_take_turns(hopper, cluster, size, order, output):
    compiled = kernel(size, 128, (ROW, COL, order), output=output, cluster=cluster, pingpong=True)
    for m, n, k in [(128, 64, 64), (1000, 264, 200), (4099, 3001, 72), (3000, 5000, 1000)]:
        check(hopper, compiled, m, n, k)
    check(hopper, compiled, 517, 301, 144, integers=False)
    check(hopper, compiled, 2300, 1200, 136, alpha=2.0, beta=1.0)


def test_integer_sums_beyond_what_f32_holds(hopper):
    compiled = kernel((128, 128, 128), 256, precision=("s8", "s8", "s32"))
    check(hopper, compiled, 128, 256, 4096)  # sums beyond 2^24, which f32 would round


@pytest.mark.parametrize("output", [None, "bf16", "s8"])
@pytest.mark.parametrize("order", [ROW, COL])
def test_ragged_outputs_take_all_ways_out(hopper, order, output):
    compiled = kernel((128, 128, 64), 256, (ROW, COL, order), output=output)
    for extent in (128, 136, 130, 129, 127, 1):
        m, n = (130, extent) if order == ROW else (extent, 130)
        check(hopper, compiled, m, n, 24)
        check(hopper, compiled, m, n, 24, alpha=0.5, beta=3.0)


@pytest.mark.parametrize(("size", "threads", "pingpong"), [((128, 256, 64), 256, False), ((64, 128, 64), 128, True)])
def test_repeats_are_bit_equal(hopper, size, threads, pingpong):
    compiled = kernel(size, threads, output="bf16", pingpong=pingpong)
    rng = np.random.default_rng(3)
    a = hopper.asarray(rng.standard_normal((1111, 1000)).astype(ml_dtypes.bfloat16))
    b = hopper.asarray(rng.standard_normal((1536, 1000)).astype(ml_dtypes.bfloat16)).T
    gemm = dx.Gemm(compiled, "cuda")
    first = gemm(a, b).copy()
    for _ in range(100):
        assert bool((gemm(a, b).view(np.uint16) == first.view(np.uint16)).all())


@pytest.mark.parametrize("output", [None, "bf16", "s8"])
@pytest.mark.parametrize("order", [ROW, COL])
def test_out_views_keep_their_gaps(hopper, order, output):
    compiled = kernel((128, 128, 64), 256, (ROW, COL, order), output=output)
    dtype = compiled.source.plan.output.numpy_dtype
    m, n = (200, 112) if order == ROW else (112, 200)
    a, b = operands(m, n, 16, [np.dtype(ml_dtypes.bfloat16)] * 2, (ROW, COL), integers=True)
    exact = np.clip(a.astype(np.float64) @ b.astype(np.float64), -128, 127 if output == "s8" else 255)
    for offset, pitch in ((16, 144), (16, 147), (3, 144)):  # through TMA, at an odd pitch, at an odd address
        whole = hopper.asarray(np.full((210, pitch), 7, dtype))
        lines = whole[5:205, offset : offset + 112]
        dx.Gemm(compiled, "cuda")(hopper.asarray(a), hopper.asarray(b), out=lines if order == ROW else lines.T)
        host = hopper.asnumpy(whole).astype(np.float64)
        np.testing.assert_array_equal(host[5:205, offset : offset + 112], exact if order == ROW else exact.T)
        host[5:205, offset : offset + 112] = 7
        assert (host == 7).all()
