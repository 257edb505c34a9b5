"""What a device is asked to do, in words that both devices understand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from blasdx.elements import Element
from blasdx.layout.tensor_map import TensorMapSpec
from blasdx.operands import Operand

if TYPE_CHECKING:
    from blasdx.compiler import CompiledKernel


@dataclass(frozen=True)
class TensorMapArgument:
    """A TMA tensor map of an operand, passed by value."""

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
    """One launch: ``blocks`` CTAs of the kernel's own size, its arguments in order, and the operand that it writes."""

    blocks: int
    arguments: tuple[Argument, ...]
    writes: Operand


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
        """Look at an operand.

        Raises
        ------
        OperandError
            When the device cannot reach this kind of array.
        """

    def empty(self, shape: tuple[int, int], element: Element, *, row_major: bool, stream: object) -> Any:
        """A new array for a result."""

    def scale(self, out: Operand, factor: np.float32, c: Operand | None, *, stream: object) -> None:
        """out = factor * c, or zeros without c: what is left of a product whose K is zero."""

    def launch(self, kernel: CompiledKernel, launch: Launch, *, stream: object) -> None:
        """Run the kernel, in stream order where the device has streams."""
