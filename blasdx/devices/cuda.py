"""CUDA devices: arrays of CuPy, PyTorch and others as they are, on the stream that their library works on.

No stream is used but the caller's, nothing synchronises, and the thread's current device is left as it was found.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from blasdx.devices import arrays as libraries
from blasdx.devices.driver import BEFORE, FORKED, require_driver
from blasdx.devices.protocol import (
    NAMES,
    Addresses,
    Argument,
    Arrays,
    Encoded,
    Launch,
    Look,
    TensorMapArgument,
    result_array,
)
from blasdx.elements import Element
from blasdx.errors import ArchMismatchError, LaunchError, MissingPackageError
from blasdx.operands import Operand, Seen, reject

if TYPE_CHECKING:
    from blasdx.compiler import CompiledKernel
    from blasdx.devices.gpu import Gpu

LEFT_OUT: tuple[int, None] = (0, None)


class Stream(int):
    """The driver's handle of a stream, which is a stream by ``__cuda_stream__`` too."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self)


class CudaDevice:
    """CUDA: the device that the operands are on, or one of a given number.

    Parameters
    ----------
    index : int, optional
        Operands have to be on the device of this number. Left out, they may be on any of the current device's
        architecture, and the product runs there.

    Raises
    ------
    NoDriverError
        This machine has no CUDA driver.
    MissingPackageError
        CuPy is not installed.
    """

    def __init__(self, index: int | None = None) -> None:
        require_driver()
        try:
            import cupy
        except ModuleNotFoundError as error:
            text = "arrays on a CUDA device are CuPy's: pip install 'blasdx[cupy]'"
            raise MissingPackageError(text, extra="cupy") from error
        self._cupy = cupy
        self._pinned = index is not None
        with _explained(cupy):
            self.index = int(cupy.cuda.runtime.getDevice()) if index is None else index
        self._gpu = _gpu(self.index)
        self._elsewhere: dict[int, CudaDevice] = {}
        self._readers: dict[type, libraries.Reader] = {type(None): lambda name, array: LEFT_OUT}
        self._borrowed: list[tuple[Any, tuple[Any, ...]]] = []
        self._lending = threading.Lock()

    @property
    def name(self) -> str:
        """The product name, the index and the SM number."""
        return f"{self._gpu.product} (CUDA device {self.index}, SM {self._gpu.sm})"

    @property
    def processors(self) -> int:
        """Streaming multiprocessors."""
        return self._gpu.processors

    @property
    def sm(self) -> int:
        """The SM number."""
        return self._gpu.sm

    @property
    def namespace(self) -> Any:
        """CuPy."""
        return self._cupy

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy in host memory; waits for the current stream."""
        copy: np.ndarray[Any, Any] = self._cupy.asnumpy(array)
        return copy

    # ---- looking at arrays

    def view(self, name: str, array: object) -> Operand:
        """Look at one array on this device, without regard to streams."""
        address, seen = self._see(name, array) or libraries.borrow(name, array, -1)[0]
        if seen is None:
            libraries.refuse_host(name, array, "an array")
        self._at(seen, name)
        return Operand.of(name, address, seen, array)

    def look(self, arrays: Arrays, stream: object, names: tuple[str, ...] = NAMES) -> Look:
        """Look at arrays that are all on one device, and find the stream: theirs, unless one is named."""
        if names is not NAMES:
            return self._look_closely(arrays, stream, names)
        a, b, c, out = arrays
        known = self._readers.get
        # One by one: a loop over four operands costs a microsecond.
        see_a, see_b, see_c, see_out = known(type(a)), known(type(b)), known(type(c)), known(type(out))
        if see_a is None or see_b is None or see_c is None or see_out is None:
            return self._look_closely(arrays, stream, names)
        at_a, seen_a = see_a("a", a)
        at_b, seen_b = see_b("b", b)
        at_c, seen_c = see_c("c", c)
        at_out, seen_out = see_out("out", out)
        return self._together((at_a, at_b, at_c, at_out), (seen_a, seen_b, seen_c, seen_out), stream, names)

    def again(self, look: Look, arrays: Arrays, stream: object) -> Look:
        """The same look, for a call that takes its place in a stream now."""
        if look.borrowed:
            return self.look(arrays, stream, look.names)
        queue = self._stream(look.seen, self.index, stream)
        return look if queue == look.queue else Look(look.device, queue, look.addresses, look.seen, (), look.names)

    def _look_closely(self, arrays: Arrays, stream: object, names: tuple[str, ...]) -> Look:
        """A look at any number of arrays, those of types not seen before or to be told the stream among them."""
        sights = [self._see(name, array) for name, array in zip(names, arrays, strict=True)]
        known = [sight for sight in sights if sight is not None]
        if len(known) == len(sights):
            addresses, seen = zip(*known, strict=True)
            return self._together(addresses, seen, stream, names)
        seen = tuple(None if sight is None else sight[1] for sight in sights)
        index = next((one.device for one in seen if one is not None and one.device is not None), self.index)
        queue = self._stream(seen, index, stream)
        borrowed = []
        for slot, sight in enumerate(sights):
            if sight is None:
                sights[slot], keeper = libraries.borrow(names[slot], arrays[slot], queue)
                borrowed.append(keeper)
        addresses, seen = zip(*(sight for sight in sights if sight is not None), strict=True)
        look = self._together(addresses, seen, queue, names)
        if stream is None and all(one is None or one.device != index for one in look.seen):
            return look.device.look(arrays, None, names)  # on the stream of the device that they turned out to be on
        return look._replace(borrowed=tuple(borrowed))

    def _see(self, name: str, array: object) -> libraries.Sight | None:
        """What is seen of an array whose library is known."""
        kind = type(array)
        if kind not in self._readers and (reader := libraries.reader(array)):
            self._readers[kind] = reader
        return self._readers[kind](name, array) if kind in self._readers else None

    def _together(
        self, addresses: Addresses, seen: tuple[Seen | None, ...], stream: object, names: tuple[str, ...]
    ) -> Look:
        devices = {one.device for one in seen if one is not None}
        if devices <= {self.index}:
            device = self
        else:
            first, *others = ((name, one) for name, one in zip(names, seen, strict=True) if one is not None)
            device = self._at(first[1], first[0])
            for name, one in others:
                _same_device(name, one, first[1])
        return Look(device, device._stream(seen, device.index, stream), addresses, seen, (), names)

    def _at(self, seen: Seen, name: str) -> CudaDevice:
        """The device that an array is on."""
        index = seen.device
        if index == self.index or index is None:
            return self
        if self._pinned:
            reject(
                name,
                "device",
                f"an array on CUDA device {index}",
                f"one on CUDA device {self.index}",
                "This device was named for all products.",
                f"copy it there, or Gemm(kernel, device=CudaDevice({index}))",
            )
        if index not in self._elsewhere:
            other = CudaDevice(index)
            if other.sm != self.sm:
                text = f"{name} is on {other.name}, which does not run code compiled for SM {self.sm} arch_specific"
                raise ArchMismatchError(text, device=other.name, sm=self.sm)
            self._elsewhere[index] = other
        return self._elsewhere[index]

    def _stream(self, seen: tuple[Seen | None, ...], index: int, stream: object) -> Stream:
        if stream is not None:
            return stream if type(stream) is Stream else Stream(libraries.handle_of(stream))
        used = {one.library for one in seen if one is not None}
        return Stream(libraries.current_stream(used, index))

    # ---- running

    def captures(self, queue: Any) -> bool:
        """Whether what is enqueued on the stream goes into a graph."""
        return self._gpu.captures(queue)

    def empty(self, shape: tuple[int, ...], element: Element, *, row_major: bool, queue: object) -> Any:
        """A new CuPy array that the stream may write at once, of bytes where the element is an 8-bit float.

        Raises
        ------
        LaunchError
            The stream is being captured: the graph would write to memory that is given to others.
        """
        stream = queue if type(queue) is Stream else self._stream((), self.index, queue)
        if self._gpu.captures(stream):
            text = (
                "a result cannot be allocated while the stream is being captured into a graph, which would keep its "
                "address but not its memory; nothing was launched, and the capture goes on. Pass out=..."
            )
            raise LaunchError(text, status="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
        with self._current(stream):
            narrow = element.is_float and element.bits == 8  # of which CuPy has none
            dtype = np.uint8 if narrow else element.numpy_dtype
            return result_array(self._cupy, shape, dtype, row_major=row_major)

    def zeros(self, size: int, *, queue: Any) -> tuple[int, Any]:
        """Device memory that the stream may use at once."""
        with self._current(queue):
            memory = self._cupy.zeros(size, dtype=np.uint8)
        return int(memory.data.ptr), memory

    def scale(self, out: Operand, factor: np.float32, c: Operand | None, *, queue: Any) -> None:
        """out = factor * c, or zeros without c."""
        with self._current(queue):
            scaled = 0 if c is None else factor * self._as_cupy(c)
            self._as_cupy(out)[...] = self._cupy.rint(scaled) if out.dtype.kind == "i" and c is not None else scaled

    def encode(self, kernel: CompiledKernel, launch: Launch, queue: Any) -> Encoded:
        """Load the kernel, encode tensor maps, lay out the parameters."""
        from blasdx.devices.gpu import EncodedLaunch

        plan = kernel.source.plan
        function = self._gpu.function(kernel, queue)
        return EncodedLaunch(self._gpu, function, launch, block_dim=plan.block_dim, shared_bytes=plan.smem_total)

    def launch(self, kernel: CompiledKernel, launch: Launch, *, stream: object) -> None:
        """Enqueue a kernel on the stream, CuPy's current one when it is None, and return."""
        operands = {one.name: one.address for argument in launch.arguments for one in _operands(argument)}
        addresses = tuple(operands.get(name, 0) for name in launch.names)
        queue = self._stream((), self.index, stream)
        self.encode(kernel, launch, queue)(addresses, (None,) * len(addresses), queue)

    def enqueued(self, look: Look) -> None:
        """Keep borrowed arrays until the stream has passed this point; a graph's stay with the caller."""
        from cuda.bindings import driver

        from blasdx.devices.gpu import unrecorded

        if self._gpu.captures(look.queue):
            return
        with self._current(look.queue) as current, unrecorded(), self._lending:
            done = driver.CUresult.CUDA_SUCCESS
            self._borrowed = [one for one in self._borrowed if driver.cuEventQuery(one[0].ptr)[0] != done]
            event = self._cupy.cuda.Event(disable_timing=True)
            event.record(current)
            self._borrowed.append((event, look.borrowed))

    def _as_cupy(self, operand: Operand) -> Any:
        cuda = self._cupy.cuda
        memory = cuda.UnownedMemory(operand.address, operand.span, operand.array, self.index)
        pointer = cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray(operand.shape, operand.dtype, pointer, operand.strides)

    @contextmanager
    def _current(self, stream: int) -> Iterator[Any]:
        """This device and the stream as CuPy's current ones; the caller's are left as they were found."""
        named = {0: self._cupy.cuda.Stream.null, 2: self._cupy.cuda.Stream.ptds}  # as cuda.h numbers them
        with (
            _explained(self._cupy),
            self._gpu.current(),
            named.get(stream) or self._cupy.cuda.Stream.from_external(Stream(stream)) as current,
        ):
            yield current


def _same_device(name: str, one: Seen, first: Seen) -> None:
    if one.device != first.device:
        reject(
            name,
            "device",
            f"an array on CUDA device {one.device}",
            f"one on CUDA device {first.device}, where a is",
            "A kernel runs on one device.",
            f"copy {name} to CUDA device {first.device}",
        )


def _operands(argument: Argument) -> Iterator[Operand]:
    if isinstance(argument, TensorMapArgument):
        yield argument.operand
    else:
        yield from (operand for operand in argument.operands if operand is not None)


def _gpu(index: int) -> Gpu:
    from blasdx.devices.gpu import gpu  # loads cuda.bindings.driver, which takes 0.2 s

    return gpu(index)


@contextmanager
def _explained(cupy: Any) -> Iterator[None]:
    """CuPy's errors of a context that is broken or forked, as blasdx says them."""
    try:
        yield
    except cupy.cuda.runtime.CUDARuntimeError as error:
        text = str(error)
        if "cudaErrorInitializationError" in text:
            raise LaunchError(f"{text}: {FORKED}", status="CUDA_ERROR_NOT_INITIALIZED") from error
        if any(name in text for name in STICKY_RUNTIME):
            raise LaunchError(f"{text}: {BEFORE}", status=text.partition(":")[0], earlier=True) from error
        raise


STICKY_RUNTIME = (
    "cudaErrorIllegalAddress",
    "cudaErrorLaunchFailure",
    "cudaErrorIllegalInstruction",
    "cudaErrorMisalignedAddress",
    "cudaErrorInvalidAddressSpace",
    "cudaErrorInvalidPc",
    "cudaErrorHardwareStackError",
    "cudaErrorAssert",
    "cudaErrorLaunchTimeout",
)
"""The runtime API's names of what `driver.STICKY` holds."""
