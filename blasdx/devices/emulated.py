"""The emulator as a device: NumPy arrays, and the very PTX that a GPU's driver would be given."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from blasdx.devices.protocol import (
    NAMES,
    Arrays,
    Encoded,
    Launch,
    Look,
    StructArgument,
    TensorMapArgument,
    result_array,
)
from blasdx.elements import Element
from blasdx.emulator import (
    Buffer,
    EmulationError,
    Function,
    GlobalMemory,
    LaunchResult,
    Module,
    Names,
    TensorMap,
    check_options,
)
from blasdx.operands import TMA_ALIGNMENT, Operand, Seen, reject

if TYPE_CHECKING:
    from blasdx.compiler import CompiledKernel
    from blasdx.plan import PipelinePlan

__all__ = ["EmulatedDevice", "EmulationError"]

ALLOCATION = 256
"""Bytes within which an operand keeps its place: the alignment of CUDA's own allocations."""

Schedule = Literal["eager", "lazy", "adversarial", "random"]


class EmulatedDevice:
    """A GPU of any architecture, in software.

    Parameters
    ----------
    schedule : {"random", "eager", "lazy", "adversarial"}
        When asynchronous operations take effect, within what the instruction set allows.
    seed : int
        Of the random schedule.
    check : bool or "collect"
        Raise the hazards that were found at the end of a launch, only list them, or do not look for them.
    processors : int
        CTAs that are resident at once.
    numerics : {"exact", "hardware"}
        Sums in float64, rounded once, or as the tensor cores are known to add (docs/emulator.md).

    Raises
    ------
    EmulationError
        An option has no meaning.

    Attributes
    ----------
    last : LaunchResult or None
        Hazards, statistics and trace of the newest launch.
    """

    def __init__(
        self,
        *,
        schedule: Schedule = "random",
        seed: int = 0,
        check: bool | Literal["collect"] = True,
        processors: int = 2,
        numerics: Literal["exact", "hardware"] = "exact",
    ) -> None:
        check_options(schedule, seed, check, processors, numerics)
        self.schedule = schedule
        self.seed = seed
        self.check = check
        self.processors = processors
        self.numerics: Literal["exact", "hardware"] = numerics
        self.last: LaunchResult | None = None

    @property
    def name(self) -> str:
        """The emulator and how it schedules."""
        return f"emulator (schedule {self.schedule}, seed {self.seed})"

    @property
    def sm(self) -> None:
        """None: kernels for any SM, as long as it knows their instructions."""

    @property
    def namespace(self) -> Any:
        """NumPy."""
        return np

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """The array itself."""
        held: np.ndarray[Any, Any] = array
        return held

    def view(self, name: str, array: object) -> Operand:
        """Look at a NumPy array."""
        address, seen = _see(name, array)
        return Operand.of(name, address, seen, array)

    def look(self, arrays: Arrays, stream: object, names: tuple[str, ...] = NAMES) -> Look:
        """Look at NumPy arrays; there are no streams."""
        sights = [(0, None) if array is None else _see(name, array) for name, array in zip(names, arrays, strict=True)]
        addresses, seen = zip(*sights, strict=True)
        return Look(self, stream, addresses, seen, names=names)

    def again(self, look: Look, arrays: Arrays, stream: object) -> Look:
        """The look itself."""
        return look

    def captures(self, queue: object) -> bool:
        """Nothing is ever recorded."""
        return False

    def empty(self, shape: tuple[int, ...], element: Element, *, row_major: bool, queue: object) -> Any:
        """A new NumPy array."""
        return result_array(np, shape, element.numpy_dtype, row_major=row_major)

    def zeros(self, size: int, *, queue: object) -> tuple[int, Any]:
        """Host memory, which is uploaded for each launch: what a kernel leaves there is gone behind it."""
        memory = np.zeros(size + ALLOCATION, np.uint8)
        return memory.ctypes.data + -memory.ctypes.data % ALLOCATION, memory

    def scale(self, out: Operand, factor: np.float32, c: Operand | None, *, queue: object) -> None:
        """out = factor * c, or zeros without c."""
        scaled = np.zeros(out.shape) if c is None else _times(factor, c.array)
        out.array[...] = np.rint(scaled).astype(out.dtype) if out.dtype.kind in "iu" else scaled

    def encode(self, kernel: CompiledKernel, launch: Launch, queue: object) -> Encoded:
        """Nothing is kept but the launch: each one uploads its operands."""
        return lambda addresses, arrays, queue: self.launch(kernel, launch.at(addresses, arrays), stream=queue)

    def enqueued(self, look: Look) -> None:
        """Nothing is borrowed, and everything has run."""

    def launch(self, kernel: CompiledKernel, launch: Launch, *, stream: object) -> None:
        """Upload what the arguments name, run the kernel to its end, and copy the elements of the result back."""
        plan = kernel.source.plan
        memory = GlobalMemory()
        uploads: dict[tuple[int, int], Buffer] = {}

        def address(operand: Operand) -> int:
            # out and c may be one array, which is then one buffer on the device too.
            key = _key(operand)
            if key not in uploads:
                # As misaligned as on the host: kernels choose how to store by where out lies.
                uploads[key] = memory.upload(_bytes(operand), offset=operand.address % ALLOCATION)
            return uploads[key].address

        arguments = [
            argument.bytes(address) if isinstance(argument, StructArgument) else _tensor_map(argument, address)
            for argument in launch.arguments
        ]
        function = _function(kernel.ptx, kernel.source.entry)
        self.last = function.launch(
            grid=(launch.blocks, 1, 1),
            block=(plan.block_dim, 1, 1),
            cluster=(launch.cluster, 1, 1),
            dynamic_smem=plan.smem_total,
            memory=memory,
            args=arguments,
            schedule=self.schedule,
            seed=self.seed,
            check=self.check,
            sms=self.processors,
            numerics=self.numerics,
            names=_names(plan, function.dynamic_smem_address),
        )
        # All bytes of the span, as hardware would: what a faulty kernel writes between the rows has to be seen.
        written = uploads[_key(launch.writes)].read()
        _bytes(launch.writes)[...] = written


def _see(name: str, array: object) -> tuple[int, Seen]:
    if not isinstance(array, np.ndarray):
        reject(
            name,
            "array-library",
            f"{type(array).__module__}.{type(array).__name__}",
            "a NumPy array",
            "The emulator computes in host memory.",
            f"numpy.asarray({name}), cupy.asnumpy({name}) for a CuPy array",
        )
    seen = Seen(array.shape, array.strides, array.dtype, array.flags.writeable, None, "numpy")
    return array.ctypes.data, seen


def _names(plan: PipelinePlan, buffer: int) -> Names:
    """What the plan calls warps, barriers and shared memory, whose buffer begins at address `buffer`."""
    offsets = {region.name: region.offset for region in plan.regions}
    return Names(
        warps=tuple((role.first_warp + warp, role.name) for role in plan.roles for warp in range(role.warps)),
        mbarriers=tuple(
            (buffer + offsets[ring.name] + stage * (ring.size // ring.stages), f"{ring.name}[{stage}]")
            for ring in plan.barriers
            for stage in range(ring.stages)
        ),
        regions=tuple((region.name, buffer + region.offset, region.size) for region in plan.regions),
    )


@lru_cache(maxsize=32)
def _function(ptx: str, entry: str) -> Function:
    """A parsed kernel; it keeps the Python that its PTX was translated to from one launch to the next."""
    return Module.from_ptx(ptx).get_function(entry)


def _times(factor: np.float32, array: Any) -> Any:
    with np.errstate(all="ignore"):  # infinity times zero is NaN, as on a GPU, and no news
        return np.float64(factor) * array.astype(np.float64)


def _key(operand: Operand) -> tuple[int, int]:
    return operand.address, len(_bytes(operand))


def _bytes(operand: Operand) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The memory from the first to the last element, gaps included."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * operand.span).from_address(operand.address))


def _tensor_map(argument: TensorMapArgument, address: Callable[[Operand], int]) -> TensorMap | bytes:
    if argument.operand.address % TMA_ALIGNMENT:
        return bytes(128)
    spec = argument.spec
    return TensorMap(
        address(argument.operand),
        dtype=spec.element.name,
        dims=spec.dims,
        strides_bytes=spec.strides_bytes,
        box=spec.box,
        swizzle=str(spec.swizzle),
    )
