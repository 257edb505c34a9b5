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
from blasdx.devices import NAMES, Arrays, Device, Look, select
from blasdx.epilogue import DEFAULT, Epilogue
from blasdx.operands import Product, bind
from blasdx.operators import Operator, row_major
from blasdx.pipeline import suggest_pipeline
from blasdx.prepared import PreparedGemm

KEPT = 64
"""Calls that differ in more than addresses, of which a `Gemm` keeps the launches."""


class Gemm:
    """A matrix product with one compiled kernel: out = alpha * a @ b + beta * c, or what its epilogue makes of a @ b.

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
    TypeError
        ``kernel`` is no compiled kernel, or ``device`` no device.
    """

    def __init__(self, kernel: CompiledKernel, device: Device | str | None = None) -> None:
        if not isinstance(kernel, CompiledKernel):
            raise TypeError(f"a Gemm takes what blasdx.compile made, not {type(kernel).__name__}")
        self.kernel = kernel
        self.descriptor = kernel.source.plan.descriptor
        self.device = select(self.descriptor.sm.arch, device)
        self._calls: dict[Any, Call] = {}
        arrays = tuple(array.name for array in kernel.source.plan.epilogue.arrays)
        self._names = NAMES + arrays if arrays else NAMES

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
        **operands: Any,
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
        **operands : array or float
            What the epilogue reads besides, by name: (..., M), (..., N) or (..., M, N) as it says, in the types that it
            declares, where leading dimensions are batches; and numbers.

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
        arrays, numbers = (a, b, c, out), operands
        if operands or self._names is not NAMES:
            arrays, numbers = self._sorted(arrays, operands)
        look = self.device.look(arrays, stream, self._names)
        if out is None:
            arrays, look = self._with_result(arrays, look, alpha, beta, numbers)
        key: tuple[Any, ...] = (look.seen, type(alpha), alpha, type(beta), beta)
        if numbers:
            key += (*numbers.items(), *map(type, numbers.values()))
        try:
            call = self._calls.get(key)
        except TypeError:  # a scalar that cannot be hashed is none, which `bind` says better
            call = None
        if call is None or not call.takes(look.addresses):
            product = self._bind(arrays, look, alpha, beta, numbers)
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
        **operands: Any,
    ) -> PreparedGemm:
        """Do all of a call but the launch: check, load the kernel, encode.

        Parameters and errors are those of a call. Left out, `out` is allocated here, and every call of what is returned
        writes to it again.

        Returns
        -------
        PreparedGemm
            What launches with every call, in a few microseconds, on these arrays or on others that are alike.
        """
        arrays, numbers = self._sorted((a, b, c, out), operands)
        look = self.device.look(arrays, stream, self._names)
        if out is None:
            arrays, look = self._with_result(arrays, look, alpha, beta, numbers)
        call = Call(self.kernel, self._bind(arrays, look, alpha, beta, numbers), look, alone=True)

        def check(arrays: Arrays, look: Look) -> None:
            self._bind(arrays, look, alpha, beta, numbers)

        return PreparedGemm(self.device, call, arrays, look, check)

    def _sorted(self, arrays: Arrays, operands: dict[str, Any]) -> tuple[Arrays, dict[str, Any]]:
        """The arrays with the epilogue's behind them, and the rest of what it was given."""
        numbers = dict(operands)
        return (*arrays, *(numbers.pop(name, None) for name in self._names[4:])), numbers

    def _bind(self, arrays: Arrays, look: Look, alpha: object, beta: object, numbers: dict[str, Any]) -> Product:
        plan = self.kernel.source.plan
        operands = look.operands(arrays)
        return bind(
            self.descriptor,
            *operands,
            output=plan.output,
            epilogue=plan.epilogue,
            alpha=alpha,
            beta=beta,
            numbers=numbers,
        )

    def _with_result(
        self, arrays: Arrays, look: Look, alpha: object, beta: object, numbers: dict[str, Any]
    ) -> tuple[Arrays, Look]:
        """The arrays with a new one for the result, and a look at them."""
        product = self._bind(arrays, look, alpha, beta, numbers)
        order, element = self.descriptor.arrangement.c, self.kernel.source.plan.output
        new = look.device.empty(product.shape, element, row_major=order is row_major, queue=look.queue)
        arrays = (*arrays[:3], new, *arrays[4:])
        return arrays, look.device.look(arrays, look.queue, self._names)

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
    epilogue: Epilogue | str = DEFAULT,
    output: object = None,
    **operands: Any,
) -> Any:
    """Multiply in one call: plan, render, compile or take from the cache, and run.

    For more than one product make a `Gemm` once; it keeps the loaded kernel. Parameters, result and errors are those of
    `Gemm`, of `suggest_pipeline` and of the other steps that lead to it.
    """
    plan = suggest_pipeline(promote(descriptor), depth=depth, epilogue=epilogue, output=output)
    return Gemm(compile(render(plan)), device)(a, b, c, alpha=alpha, beta=beta, out=out, stream=stream, **operands)
