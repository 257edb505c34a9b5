"""What a device is asked to do, in words that both devices understand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from blasdx.elements import Element
from blasdx.layout.tensor_map import TensorMapSpec
from blasdx.operands import Operand, Seen, reject

if TYPE_CHECKING:
    from blasdx.compiler import CompiledKernel

Arrays = tuple[Any, ...]
"""a, b, c, out and what the epilogue reads besides, as the caller gave them, None for those that were left out."""

Addresses = tuple[int, ...]
"""Where they begin, 0 for those that were left out."""

NAMES: tuple[str, ...] = ("a", "b", "c", "out")
"""The operands that every product has, in the order of `Arrays`; those of an epilogue follow."""


class Look(NamedTuple):
    """What is seen of a call's arrays, and where the call goes.

    ``addresses`` and ``seen`` are in the order of ``names``, 0 and None for what was left out. ``device`` is where the
    arrays are, ``queue`` the device's own word for the order that the call takes its place in, ``borrowed`` what has to
    live until its turn has come.
    """

    device: Device
    queue: Any
    addresses: Addresses
    seen: tuple[Seen | None, ...]
    borrowed: tuple[Any, ...] = ()
    names: tuple[str, ...] = NAMES

    def operands(self, arrays: Arrays) -> tuple[Operand, Operand, *tuple[Operand | None, ...]]:
        """The arrays as operands."""
        a, b, *others = (
            None if seen is None else Operand.of(name, address, seen, array)
            for name, address, seen, array in zip(self.names, self.addresses, self.seen, arrays, strict=True)
        )
        if a is None or b is None:
            name = "a" if a is None else "b"
            reject(name, "missing", "None", "an array", "out = alpha * a @ b + beta * c reads a and b.", f"pass {name}")
        return a, b, *others


@dataclass(frozen=True)
class TensorMapArgument:
    """A TMA tensor map of an operand, passed by value.

    Where the operand's address is one that TMA does not take, 128 zero bytes are passed: the kernel sees the same
    address and does not look at the map then.
    """

    operand: Operand
    spec: TensorMapSpec


@dataclass(frozen=True)
class StructArgument:
    """A C struct passed by value: ``pack`` makes its bytes from the addresses of ``operands``, 0 for None."""

    operands: tuple[Operand | None, ...]
    pack: Callable[..., bytes]

    def bytes(self, address: Callable[[Operand], int]) -> bytes:
        """The struct, with the addresses that one device gives."""
        return self.pack(*(0 if operand is None else address(operand) for operand in self.operands))


Argument = TensorMapArgument | StructArgument


@dataclass(frozen=True)
class Launch:
    """One launch: ``blocks`` CTAs of the kernel's own size, its arguments in order, and the operand that it writes.

    CTAs come in clusters of ``cluster``, along x. ``names`` are those of all operands, in the order of `Addresses`.
    """

    blocks: int
    arguments: tuple[Argument, ...]
    writes: Operand
    cluster: int = 1
    names: tuple[str, ...] = NAMES

    def at(self, addresses: Addresses, arrays: Arrays) -> Launch:
        """The same launch with its operands at other addresses."""

        def moved(operand: Operand) -> Operand:
            slot = self.names.index(operand.name)
            return replace(operand, address=addresses[slot], array=arrays[slot])

        arguments = tuple(
            TensorMapArgument(moved(one.operand), one.spec)
            if isinstance(one, TensorMapArgument)
            else StructArgument(tuple(None if x is None else moved(x) for x in one.operands), one.pack)
            for one in self.arguments
        )
        return replace(self, arguments=arguments, writes=moved(self.writes))


def result_array(namespace: Any, shape: tuple[int, ...], dtype: Any, *, row_major: bool) -> Any:
    """A new array in one order; its batches follow each other."""
    *batches, m, n = shape
    new = namespace.empty((*batches, m, n) if row_major else (*batches, n, m), dtype)
    return new if row_major else new.swapaxes(-1, -2)


class Encoded(Protocol):
    """A launch in the form that its device takes, for operands at any addresses."""

    def __call__(self, addresses: Addresses, arrays: Arrays, queue: Any) -> None:
        """Enqueue it."""


class Device(Protocol):
    """A CUDA device or the emulator."""

    @property
    def name(self) -> str:
        """What it is, for people."""

    @property
    def processors(self) -> int:
        """CTAs of a persistent kernel that run at once: its streaming multiprocessors."""

    @property
    def sm(self) -> int | None:
        """The only SM number that it runs kernels for; None if it runs any."""

    @property
    def namespace(self) -> Any:
        """The module that makes its arrays: cupy or numpy."""

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """An array's contents once everything enqueued before is done."""

    def view(self, name: str, array: object) -> Operand:
        """Look at one operand.

        Raises
        ------
        OperandError
            When the device cannot reach this kind of array.
        """

    def look(self, arrays: Arrays, stream: object, names: tuple[str, ...] = NAMES) -> Look:
        """Look at the operands of a call, of these names, and find the queue that it goes into.

        Raises
        ------
        OperandError
            When the device cannot reach an array, or the arrays are on several devices.
        """

    def again(self, look: Look, arrays: Arrays, stream: object) -> Look:
        """The same look, for a call that takes its place in a queue now."""

    def captures(self, queue: Any) -> bool:
        """Whether what goes into the queue is recorded into a graph instead of run."""

    def empty(self, shape: tuple[int, ...], element: Element, *, row_major: bool, queue: Any) -> Any:
        """A new array for a result."""

    def zeros(self, size: int, *, queue: Any) -> tuple[int, Any]:
        """The address of ``size`` zero bytes, and what keeps them."""

    def scale(self, out: Operand, factor: np.float32, c: Operand | None, *, queue: Any) -> None:
        """out = factor * c, or zeros without c: what is left of a product whose K is zero."""

    def encode(self, kernel: CompiledKernel, launch: Launch, queue: Any) -> Encoded:
        """Load the kernel and do all else that need not be done again where operands differ in their addresses alone.

        Raises
        ------
        LaunchError
            The kernel is not loaded yet, and the queue is being captured into a graph.
        """

    def enqueued(self, look: Look) -> None:
        """Everything of a call is in the queue: keep what was borrowed as long as that needs it."""

    def launch(self, kernel: CompiledKernel, launch: Launch, *, stream: object) -> None:
        """Run the kernel, in stream order where the device has streams."""
