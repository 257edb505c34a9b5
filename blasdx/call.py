"""Calls: what a product asks of its device, kept for all products that are alike.

Arrays of the same shapes, strides and types ask for the same launch at other addresses. A `Call` holds that launch as
its device takes it, and knows the little that addresses can break: alignment and overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from blasdx.compiler import CompiledKernel
from blasdx.devices import Addresses, Argument, Arrays, Launch, Look, StructArgument, TensorMapArgument
from blasdx.operands import TMA_ALIGNMENT, Matrix, Operand, Product, Seen, Walk, walk
from blasdx.plan import PipelinePlan


class Call:
    """A checked product, ready for operands at other addresses.

    Parameters
    ----------
    kernel : CompiledKernel
    product : Product
        With its result.
    look : Look
        At the arrays that the product was bound to.

    Raises
    ------
    LaunchError
        The kernel is not loaded yet and cannot be now, because the call is being captured into a graph.
    """

    def __init__(self, kernel: CompiledKernel, product: Product, look: Look) -> None:
        promised, item = kernel.source.plan.descriptor.alignment, product.result.operand.dtype.itemsize
        self._alignments = (promised.a, promised.b, item, item)
        self._spans = tuple(map(_span, look.seen))
        c, out = look.seen[2:]
        self._may_be_c = c is not None and out is not None and (c.shape, c.strides) == (out.shape, out.strides)
        self._action = _action(kernel, product, look)

    def takes(self, addresses: Addresses) -> bool:
        """Whether operands at these addresses clearly keep the rules; where not, `bind` has the last word."""
        a, b, c, out = addresses
        align_a, align_b, align_c, align_out = self._alignments
        if a % align_a or b % align_b or c % align_c or out % align_out:
            return False
        span_a, span_b, span_c, span_out = self._spans
        end = out + span_out
        return not (
            (a < end and out < a + span_a)
            or (b < end and out < b + span_b)
            or (c < end and out < c + span_c and not (c == out and self._may_be_c))
        )

    def enqueue(self, look: Look, arrays: Arrays) -> None:
        """Give it to the device, which does not wait for it."""
        self._action(look, arrays)
        if look.borrowed:
            look.device.enqueued(look)


def _span(seen: Seen | None) -> int:
    return 0 if seen is None else Operand.of("", 0, seen, None).span


def _action(kernel: CompiledKernel, product: Product, look: Look) -> Callable[[Look, Arrays], None]:
    if 0 in product.shape:
        return lambda look, arrays: None
    if product.k == 0 or product.alpha == 0:
        return _scaling(product)
    steps = walk(product)
    launch = launch_of(kernel.source.plan, product, steps, look.device.processors)
    encoded = look.device.encode(kernel, launch, look.queue)
    if not steps.extents:
        return lambda look, arrays: encoded(look.addresses, arrays, look.queue)

    def one_by_one(look: Look, arrays: Arrays) -> None:
        a, b, c, out = look.addresses
        for offsets in steps.offsets():
            encoded((a + offsets[0], b + offsets[1], c + offsets[2], out + offsets[3]), arrays, look.queue)

    return one_by_one


def _scaling(product: Product) -> Callable[[Look, Arrays], None]:
    """What is left where nothing is multiplied. As in BLAS, a and b are not read, so that a NaN does not show."""
    reads_c, beta = product.c is not None, product.beta

    def scale(look: Look, arrays: Arrays) -> None:
        *_, c, out = look.operands(arrays)
        assert out is not None
        look.device.scale(out, beta, c if reads_c else None, queue=look.queue)

    return scale


# ---- from a product to a launch --------------------------------------------------------------------------------------


def launch_of(plan: PipelinePlan, product: Product, steps: Walk, processors: int) -> Launch:
    """The launch for the first batches of a product; further ones differ in their addresses."""
    matrices = [
        one and _batched(one, steps.count, step) for one, step in zip(product.matrices, steps.steps, strict=True)
    ]
    a, b, c, out = matrices
    assert a is not None
    assert b is not None
    assert out is not None
    return Launch(
        blocks=plan.grid(product.m, product.n, processors, steps.count),
        arguments=(
            TensorMapArgument(a.operand, plan.a.tensor_map(product.m, product.k, a.ld, **_batches(a, steps.count))),
            TensorMapArgument(b.operand, plan.b.tensor_map(product.n, product.k, b.ld, **_batches(b, steps.count))),
            *_out_map(plan, product, out, steps.count),
            _problem(plan, product, a, b, c, out, steps.count),
        ),
        writes=out.operand,
        cluster=plan.cluster_size,
    )


def _batched(one: Matrix, count: int, step: int) -> Matrix:
    """The part of an operand that one launch sees: one matrix, or ``count`` of them that are ``step`` bytes apart."""
    shape, strides = one.operand.shape[-2:], one.operand.strides[-2:]
    if count > 1 and step:
        shape, strides = (count, *shape), (step, *strides)
    # Not the array: the launch outlives the call that it was made for.
    return replace(one, operand=replace(one.operand, shape=shape, strides=strides, array=None), steps=(step,))


def _batches(one: Matrix, count: int) -> dict[str, int]:
    (step,) = one.steps
    return {"batches": count, "batch_stride": step // one.operand.dtype.itemsize} if step else {}


def _out_map(plan: PipelinePlan, product: Product, out: Matrix, count: int) -> tuple[Argument, ...]:
    """The map of out, where the path stores C through TMA.

    The kernel sees the same strides, and does not look at the map where TMA does not take them.
    """
    if plan.staging is None or not plan.bulk_stores:
        return ()
    if (out.stride | out.steps[0]) % TMA_ALIGNMENT:
        return (StructArgument((), lambda: bytes(128)),)
    spec = plan.staging.tensor_map(product.m, product.n, out.ld, **_batches(out, count))
    return (TensorMapArgument(out.operand, spec),)


def _problem(
    plan: PipelinePlan, product: Product, a: Matrix, b: Matrix, c: Matrix | None, out: Matrix, count: int
) -> StructArgument:
    item = out.operand.dtype.itemsize
    pack = plan.problem.packer(
        out_ld=out.ld,
        c_ld=c.ld if c else 0,
        out_batch=out.steps[0] // item,
        c_batch=c.steps[0] // item if c else 0,
        m=product.m,
        n=product.n,
        k=product.k,
        batches=count,
        a_batch=int(a.steps != (0,)),
        b_batch=int(b.steps != (0,)),
        alpha=float(product.alpha),
        beta=float(product.beta),
    )
    return StructArgument((out.operand, c.operand if c else None), pack)
