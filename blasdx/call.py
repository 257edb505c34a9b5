"""Calls: what a product asks of its device, kept for all products that are alike.

Arrays of the same shapes, strides and types ask for the same launch at other addresses. A `Call` holds that launch as
its device takes it, and knows the little that addresses can break: alignment and overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from operator import add
from typing import Any

import numpy as np

from blasdx.compiler import CompiledKernel
from blasdx.devices import NAMES, Addresses, Argument, Arrays, Encoded, Launch, Look, StructArgument, TensorMapArgument
from blasdx.errors import LaunchError
from blasdx.layout.operand import OperandTile
from blasdx.operands import TMA_ALIGNMENT, Matrix, Operand, Product, Seen, Walk, walk
from blasdx.plan import PipelinePlan
from blasdx.schedule import WHOLE, Parts, Workspace

MEETING = ("counters", "partials")
"""Names of the memory in which parts of K meet, as the kernel knows it."""

QUEUES = 8
"""A call keeps such memory for so many queues; another one takes the place of the one that waited longest."""


class Call:
    """A checked product, ready for operands at other addresses.

    Parameters
    ----------
    kernel : CompiledKernel
    product : Product
        With its result.
    look : Look
        At the arrays that the product was bound to.
    alone : bool
        Whether it never has its turn in two queues at once. Parts of K then meet in memory that is allocated here, and
        not in that of each queue.

    Raises
    ------
    LaunchError
        The kernel is not loaded yet and cannot be now, because the call is being captured into a graph.
    """

    def __init__(self, kernel: CompiledKernel, product: Product, look: Look, *, alone: bool = False) -> None:
        promised, item = kernel.source.plan.descriptor.alignment, product.result.operand.dtype.itemsize
        c, out, *extra = look.seen[2:]
        c_item = item if c is None else c.dtype.itemsize
        self._alignments = (promised.a, promised.b, c_item, item)
        self._spans = tuple(map(_span, look.seen[:4]))
        self._extra = tuple((one.dtype.itemsize, _span(one)) for one in extra if one is not None)
        self._may_be_c = c is not None and out is not None and _alike(c, out)
        self._action = _action(kernel, product, look, alone)

    def takes(self, addresses: Addresses) -> bool:
        """Whether operands at these addresses clearly keep the rules; where not, `bind` has the last word."""
        if self._extra and not self._apart(addresses[3], addresses[4:]):
            return False
        a, b, c, out = addresses[:4] if self._extra else addresses
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

    def _apart(self, out: int, extra: Addresses) -> bool:
        """The same of what the epilogue reads besides."""
        end = out + self._spans[3]
        return not any(
            one % item or (one < end and out < one + span) for one, (item, span) in zip(extra, self._extra, strict=True)
        )

    def enqueue(self, look: Look, arrays: Arrays) -> None:
        """Give it to the device, which does not wait for it."""
        self._action(look, arrays)
        if look.borrowed:
            look.device.enqueued(look)


def _alike(x: Seen, y: Seen) -> bool:
    return (x.shape, x.strides, x.dtype) == (y.shape, y.strides, y.dtype)


def _span(seen: Seen | None) -> int:
    return 0 if seen is None else Operand.of("", 0, seen, None).span


def _action(kernel: CompiledKernel, product: Product, look: Look, alone: bool) -> Callable[[Look, Arrays], None]:
    if 0 in product.shape:
        return lambda look, arrays: None
    plan = kernel.source.plan
    if nothing_multiplied(plan, product) and not plan.empty_sums:
        return _scaling(product)
    steps = walk(product)
    parts = plan.parts(product.m, product.n, product.k, look.device.processors, steps.count)
    launch = launch_of(plan, product, steps, look.device.processors, look.names, parts)
    encoded = look.device.encode(kernel, launch, look.queue)
    if parts.count > 1:
        workspace = plan.workspace(product.m, product.n, parts.count, steps.count)
        encoded = _meeting(encoded, workspace, look, alone)
    if not steps.extents:
        return lambda look, arrays: encoded(look.addresses, arrays, look.queue)

    def one_by_one(look: Look, arrays: Arrays) -> None:
        for offsets in steps.offsets():
            encoded(tuple(map(add, look.addresses, offsets)), arrays, look.queue)

    return one_by_one


def _meeting(encoded: Encoded, workspace: Workspace, look: Look, alone: bool) -> Encoded:
    """The launch with the memory in which its parts meet, which no two launches may use at once.

    A queue is an order, so that one piece of memory serves all launches in it. A graph is replayed in any queue, and
    keeps nothing alive: it can hold only what has memory of its own.
    """

    def allocate(queue: Any) -> tuple[int, Any]:
        return look.device.zeros(workspace.bytes, queue=queue)

    def refuse_capture(queue: Any) -> None:
        if look.device.captures(queue):
            text = (
                "the memory in which parts of K meet would not outlive the call, and the stream is being captured into "
                "a graph; nothing was launched, and the capture goes on. Capture what Gemm.prepare(...) made before"
            )
            raise LaunchError(text, status="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")

    if alone:
        refuse_capture(look.queue)
        address, memory = allocate(look.queue)
        more, held = (address, address + workspace.counters), (memory, memory)
        return lambda addresses, arrays, queue: encoded((*addresses, *more), (*arrays, *held), queue)
    of_queue = lru_cache(maxsize=QUEUES)(allocate)

    def launch(addresses: Addresses, arrays: Arrays, queue: Any) -> None:
        refuse_capture(queue)
        address, memory = of_queue(queue)
        encoded((*addresses, address, address + workspace.counters), (*arrays, memory, memory), queue)

    return launch


def nothing_multiplied(plan: PipelinePlan, product: Product) -> bool:
    """Whether every sum is zero. As in BLAS, a and b are not read then, so that a NaN does not show."""
    return product.k == 0 or (plan.epilogue.scales_products and product.alpha == 0)


def _scaling(product: Product) -> Callable[[Look, Arrays], None]:
    """What is left of the default epilogue where nothing is multiplied."""
    reads_c, beta = product.c is not None, product.beta

    def scale(look: Look, arrays: Arrays) -> None:
        _, _, *others = look.operands(arrays)
        c, out = others
        assert out is not None
        look.device.scale(out, beta, c if reads_c else None, queue=look.queue)

    return scale


# ---- from a product to a launch --------------------------------------------------------------------------------------


def launch_of(
    plan: PipelinePlan,
    product: Product,
    steps: Walk,
    processors: int,
    names: tuple[str, ...] = NAMES,
    parts: Parts = WHOLE,
) -> Launch:
    """The launch for the first batches of a product; further ones differ in their addresses."""
    matrices = [
        one and _batched(one, steps.count, step) for one, step in zip(product.matrices, steps.steps, strict=True)
    ]
    a, b, c, out, *extra = matrices
    assert a is not None
    assert b is not None
    assert out is not None
    k = 0 if nothing_multiplied(plan, product) else product.k
    return Launch(
        blocks=plan.grid(product.m, product.n, processors, steps.count, parts.count),
        arguments=(
            _map(plan.a, a, out, product.m, k, steps.count),
            _map(plan.b, b, out, product.n, k, steps.count),
            *_out_map(plan, product, out, steps.count),
            _problem(plan, product, (a, b, c, out, *extra), k, steps.count, parts),
        ),
        writes=out.operand,
        cluster=plan.cluster_size,
        names=(*names, *MEETING) if parts.count > 1 else names,
    )


def _map(tile: OperandTile, one: Matrix, out: Matrix, rows: int, k: int, count: int) -> TensorMapArgument:
    """The map of A or B. Without a K nothing is loaded, but the map has to be one: that of a single element of out."""
    if k == 0:
        return TensorMapArgument(out.operand, tile.tensor_map(1, 1, TMA_ALIGNMENT))
    return TensorMapArgument(one.operand, tile.tensor_map(rows, k, one.ld, **_batches(one, count)))


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
    plan: PipelinePlan, product: Product, matrices: tuple[Matrix | None, ...], k: int, count: int, parts: Parts
) -> StructArgument:
    a, b, c, out, *extra = matrices
    epilogue, members = plan.epilogue, dict[str, float]()
    meeting: tuple[Operand | None, ...] = ()
    if plan.split_k > 1:
        members.update(parts=parts.count, part_blocks=parts.blocks)
        workspace = plan.workspace(product.m, product.n, parts.count, count)
        meeting = _memory(workspace) if parts.count > 1 else (None, None)
    names = ("c", "out", *(array.name for array in epilogue.arrays))
    for name, one in zip(names, (c, out, *extra), strict=True):
        members[f"{name}_ld"] = members[f"{name}_step"] = one.ld if one else 0
        members[f"{name}_batch"] = one.steps[0] // one.operand.dtype.itemsize if one else 0
    pack = plan.problem.packer(
        m=product.m,
        n=product.n,
        k=k,
        batches=count,
        a_batch=int(a is not None and a.steps != (0,)),
        b_batch=int(b is not None and b.steps != (0,)),
        **members,
        **{name: float(number) for name, number in product.numbers.items()},
    )
    placed = (out, *((c,) if epilogue.reads_c else ()), *extra)
    return StructArgument((*(one.operand if one else None for one in placed), *meeting), pack)


def _memory(workspace: Workspace) -> tuple[Operand, ...]:
    """Counters and sums as operands that lie somewhere else in each launch."""
    return tuple(
        Operand(name, (size,), (1,), np.dtype(np.uint8), 0)
        for name, size in zip(MEETING, (workspace.counters, workspace.partials), strict=True)
    )
