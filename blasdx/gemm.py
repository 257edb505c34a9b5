"""Gemm: from arrays to a launch.

A kernel is compiled for a tile; a problem is as many tiles as it takes. `Gemm` checks the operands, describes them to
the kernel (tensor maps and one struct by value) and launches as many CTAs as the device runs at once, each of which
walks over its share of the tiles.
"""

from __future__ import annotations

from typing import Any

from blasdx.call import Call
from blasdx.codegen import render
from blasdx.compiler import CompiledKernel, compile
from blasdx.descriptor import Descriptor, promote
from blasdx.devices import Arrays, Device, Look, select
from blasdx.operands import Product, bind
from blasdx.operators import Operator, row_major
from blasdx.pipeline import suggest_pipeline
from blasdx.prepared import PreparedGemm

KEPT = 64
"""Calls that differ in more than addresses, of which a `Gemm` keeps the launches."""


class Gemm:
    """A matrix product out = alpha * a @ b + beta * c with one compiled kernel.

    Parameters
    ----------
    kernel : CompiledKernel
        What `blasdx.compile` made; one kernel serves every problem size.
    device : Device or {"cuda", "emulator"}, optional
        Left out: CUDA where the current device's architecture is the kernel's, otherwise the emulator. On CUDA the
        operands decide on which device a product runs.

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
        self._calls: dict[Any, Call] = {}

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
            (..., M, K) and (..., K, N), of exactly the descriptor's types and arrangement; rows may be padded. Leading
            dimensions are batches and broadcast as in NumPy. On a CUDA device arrays of CuPy, PyTorch or anything with
            DLPack or ``__cuda_array_interface__``, all on one device; NumPy arrays on the emulator.
        c : array, optional
            (..., M, N), of the descriptor's C type and arrangement. Not read where beta is 0.
        alpha, beta : float
            Rounded to f32. beta has to be given with c.
        out : array, optional
            (..., M, N), where the result goes; may be c itself. Nothing outside it is written.
        stream : object with ``__cuda_stream__``, optional
            The current stream of the library that the operands come from when left out. The call only enqueues.

        Returns
        -------
        array
            `out`, or a new array (CuPy's, NumPy's on the emulator) in the descriptor's C type and arrangement.

        Raises
        ------
        OperandError
            For every rule that the arrays break, before anything is launched or written.
        LaunchError
            The driver refuses, or the stream is being captured into a graph and the kernel is not loaded yet.
        """
        arrays = (a, b, c, out)
        look = self.device.look(arrays, stream)
        if out is None:
            arrays, look = self._with_result(arrays, look, alpha, beta, stream)
        key = (look.seen, type(alpha), alpha, type(beta), beta)
        try:
            call = self._calls.get(key)
        except TypeError:  # a scalar that cannot be hashed is none, which `bind` says better
            call = None
        if call is None or not call.takes(look.addresses):
            product = self._bind(arrays, look, alpha, beta)
            call = call or self._keep(key, Call(self.kernel, product, look))
        call.enqueue(look, arrays)
        return arrays[3]

    def prepare(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        *,
        alpha: float = 1.0,
        beta: float | None = None,
        out: Any = None,
        stream: Any = None,
    ) -> PreparedGemm:
        """Do all of a call but the launch: check, load the kernel, encode.

        Parameters and errors are those of a call. Left out, `out` is allocated here, and every call of what is returned
        writes to it again.

        Returns
        -------
        PreparedGemm
            What launches with every call, in a few microseconds, on these arrays or on others that are alike.
        """
        arrays = (a, b, c, out)
        look = self.device.look(arrays, stream)
        if out is None:
            arrays, look = self._with_result(arrays, look, alpha, beta, stream)
        call = Call(self.kernel, self._bind(arrays, look, alpha, beta), look)

        def check(arrays: Arrays, look: Look) -> None:
            self._bind(arrays, look, alpha, beta)

        return PreparedGemm(self.device, call, arrays, look, check)

    def _bind(self, arrays: Arrays, look: Look, alpha: object, beta: object) -> Product:
        output = self.kernel.source.plan.output
        return bind(self.descriptor, *look.operands(arrays), output=output, alpha=alpha, beta=beta)

    def _with_result(
        self, arrays: Arrays, look: Look, alpha: object, beta: object, stream: object
    ) -> tuple[Arrays, Look]:
        """The arrays with a new one for the result, and a look at them."""
        product = self._bind(arrays, look, alpha, beta)
        order, element = self.descriptor.arrangement.c, self.kernel.source.plan.output
        new = look.device.empty(product.shape, element, row_major=order is row_major, queue=look.queue)
        arrays = (*arrays[:3], new)
        return arrays, look.device.look(arrays, look.queue)

    def _keep(self, key: Any, call: Call) -> Call:
        while len(self._calls) >= KEPT:
            self._calls.pop(next(iter(self._calls)), None)
        self._calls[key] = call
        return call


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
