"""Gemm: from arrays to a launch.

A kernel is compiled for a tile; a problem is as many tiles as it takes. `Gemm` checks the operands, describes them to
the kernel (two tensor maps and one struct by value) and launches as many CTAs as the device runs at once, each of which
walks over its share of the tiles.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from blasdx.arguments import Arguments
from blasdx.codegen import render
from blasdx.compiler import CompiledKernel, compile
from blasdx.descriptor import Descriptor, promote
from blasdx.devices import Device, Launch, StructArgument, TensorMapArgument, select
from blasdx.operands import TMA_ALIGNMENT, Product, bind, matrix
from blasdx.operators import Operator, row_major
from blasdx.pipeline import suggest_pipeline
from blasdx.plan import PipelinePlan


class Gemm:
    """A matrix product out = alpha * a @ b + beta * c with one compiled kernel on one device.

    Parameters
    ----------
    kernel : CompiledKernel
        What `blasdx.compile` made; one kernel serves every problem size.
    device : Device or {"cuda", "emulator"}, optional
        Left out: the current CUDA device where its architecture is the kernel's, otherwise the emulator.

    Raises
    ------
    NoDriverError
        "cuda" was asked for on a machine without a driver.
    ArchMismatchError
        The device does not run code for the kernel's SM.
    """

    def __init__(self, kernel: CompiledKernel, device: Device | str | None = None) -> None:
        self.kernel = kernel
        self.descriptor = kernel.source.plan.descriptor
        self.device = select(self.descriptor.sm.arch, device)

    def __repr__(self) -> str:
        return f"Gemm({self.kernel.entry} on {self.device.name})"

    def __call__(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        *,
        alpha: float = 1.0,
        beta: float | None = None,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Multiply.

        Parameters
        ----------
        a, b : array
            (M, K) and (K, N), of exactly the descriptor's types and arrangement; rows may be padded. CuPy arrays on a
            CUDA device, NumPy arrays on the emulator.
        c : array, optional
            (M, N), of the descriptor's C type and arrangement. Not read where beta is 0.
        alpha, beta : float
            Rounded to f32. beta has to be given with c.
        out : array, optional
            (M, N), where the result goes; may be c itself. Nothing outside it is written.
        stream : object with ``__cuda_stream__``, optional
            CuPy's current stream when left out. The call only enqueues.

        Returns
        -------
        array
            `out`, or a new array in the descriptor's C type and arrangement.

        Raises
        ------
        OperandError
            For every rule that the arrays break, before anything is launched or written.
        """
        view = self.device.view
        product = bind(
            self.descriptor,
            view("a", a),
            view("b", b),
            None if c is None else view("c", c),
            None if out is None else view("out", out),
            output=self.kernel.source.plan.output,
            alpha=alpha,
            beta=beta,
        )
        if product.out is None:
            order, element = self.descriptor.arrangement.c, self.kernel.source.plan.output
            shape = (product.m, product.n)
            new = self.device.empty(shape, element, row_major=order is row_major, stream=stream)
            product = replace(product, out=matrix(view("out", new), order))
        self._run(product, stream)
        return product.result.operand.array

    def _run(self, product: Product, stream: Any) -> None:
        if 0 in (product.m, product.n):
            return
        if product.k == 0 or product.alpha == 0:
            # As in BLAS, a and b are not read then, so that a NaN in them does not show.
            addend = product.c.operand if product.c else None
            self.device.scale(product.result.operand, product.beta, addend, stream=stream)
            return
        plan = self.kernel.source.plan
        launch = Launch(
            blocks=plan.grid(product.m, product.n, self.device.processors),
            arguments=arguments(plan, product),
            writes=product.result.operand,
        )
        self.device.launch(self.kernel, launch, stream=stream)


def gemm(
    descriptor: Descriptor | Operator,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    out: Any = None,
    depth: int | None = None,
    device: Device | str | None = None,
    stream: Any = None,
) -> Any:
    """Multiply in one call: plan, render, compile or take from the cache, and run.

    For more than one product make a `Gemm` once; it keeps the loaded kernel. Parameters, result and errors are those of
    `Gemm` and of the steps that lead to it.
    """
    kernel = compile(render(suggest_pipeline(promote(descriptor), depth=depth)))
    return Gemm(kernel, device)(a, b, c, alpha=alpha, beta=beta, out=out, stream=stream)


def arguments(plan: PipelinePlan, product: Product) -> tuple[TensorMapArgument | StructArgument, ...]:
    """The parameters of a kernel, in order.

    The maps of a and b; where the path stores C through TMA, the map of out; the struct that says what to do with them.
    """
    out, c = product.result, product.c

    def pack(out_address: int, c_address: int) -> bytes:
        return Arguments(
            out=out_address,
            c=c_address,
            out_ld=out.ld,
            c_ld=c.ld if c else 0,
            m=product.m,
            n=product.n,
            k=product.k,
            alpha=float(product.alpha),
            beta=float(product.beta),
        ).pack()

    struct = StructArgument((out.operand, c.operand if c else None), pack)
    a_map = plan.a.tensor_map(product.m, product.k, product.a.ld)
    b_map = plan.b.tensor_map(product.n, product.k, product.b.ld)
    maps = (TensorMapArgument(product.a.operand, a_map), TensorMapArgument(product.b.operand, b_map))
    if plan.staging is None or plan.descriptor.arrangement.c is not row_major:
        return (*maps, struct)
    if (out.operand.address | out.stride) % TMA_ALIGNMENT:
        # The kernel sees the same numbers and does not look at the map then.
        return (*maps, StructArgument((), lambda: bytes(128)), struct)
    out_map = plan.staging.tensor_map(product.m, product.n, out.ld)
    return (*maps, TensorMapArgument(out.operand, out_map), struct)
