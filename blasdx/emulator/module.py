"""The public face: modules, functions, launches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from blasdx.emulator import reports
from blasdx.emulator.asynchronous import SCHEDULES, Schedule
from blasdx.emulator.errors import EmulationError, HazardError
from blasdx.emulator.hazards import Hazard, Monitor
from blasdx.emulator.ir import ModuleText, Variable
from blasdx.emulator.machine import Machine
from blasdx.emulator.memory import Buffer, GlobalMemory
from blasdx.emulator.names import UNNAMED, Names
from blasdx.emulator.parser import parse
from blasdx.emulator.program import Program
from blasdx.emulator.scheduler import Config
from blasdx.emulator.tensormap import TensorMap
from blasdx.emulator.trace import Stats, TraceEvent
from blasdx.emulator.windows import SHARED_BASE

SHARED_LIMIT = 232_448  # opt-in bytes a CTA can have on sm_90, sm_100, sm_103 and sm_110
OVERSIZED_LIMIT = 327 * 1024  # and on sm_107, where a mode allows more

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchResult:
    """What a launch left behind, apart from memory.

    Attributes
    ----------
    hazards : tuple[Hazard, ...]
        Errors first; empty with ``check=False``.
    stats : Stats
    trace : tuple[TraceEvent, ...]
        Waits and asynchronous operations in the order in which they ended.
    """

    hazards: tuple[Hazard, ...]
    stats: Stats
    trace: tuple[TraceEvent, ...]


class Module:
    """A parsed PTX module."""

    def __init__(self, text: ModuleText) -> None:
        self._text = text
        self._functions: dict[str, Function] = {}

    @classmethod
    def from_ptx(cls, text: str) -> Module:
        """Parse PTX text.

        Raises
        ------
        EmulationError
            With the line, when the text is not PTX.
        """
        return cls(parse(text))

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the kernels in the module."""
        return tuple(name for name, body in self._text.functions.items() if body.entry and body.defined)

    @property
    def target(self) -> str:
        """The module's ``.target``, for example ``"sm_100a"``."""
        return self._text.target

    def get_function(self, name: str) -> Function:
        """The kernel of that name.

        Raises
        ------
        EmulationError
            When the module has no such entry.
        """
        if name not in self.entries:
            raise EmulationError(f"the module has no entry {name!r}; it has: {', '.join(self.entries) or 'none'}")
        if name not in self._functions:
            self._functions[name] = Function(self._text, Program(self._text, self._text.functions[name]))
        return self._functions[name]


class Function:
    """A kernel that can be launched."""

    def __init__(self, text: ModuleText, program: Program) -> None:
        self._text = text
        self._program = program
        self._sources: dict[int, tuple[int, int]] | None = None  # (file, line) of a PTX line

    @property
    def name(self) -> str:
        """Name of the entry."""
        return self._program.name

    @property
    def parameters(self) -> tuple[Variable, ...]:
        """Parameters in PTX order, with ``name``, ``size`` and ``align`` in bytes."""
        return tuple(self._program.body.params)

    @property
    def dynamic_smem_address(self) -> int:
        """Shared address of the first byte of dynamic shared memory."""
        return SHARED_BASE + self._program.static_shared

    def launch(
        self,
        *,
        grid: Sequence[int],
        block: Sequence[int],
        cluster: Sequence[int] | None = None,
        dynamic_smem: int = 0,
        memory: GlobalMemory,
        args: Sequence[Any],
        schedule: Schedule = "random",
        seed: int = 0,
        check: bool | Literal["collect"] = True,
        sms: int = 1,
        max_instructions: int | None = None,
        numerics: Literal["exact", "hardware"] = "exact",
        registers: int | None = None,
        names: Names = UNNAMED,
    ) -> LaunchResult:
        """Run the kernel.

        Parameters
        ----------
        grid, block, cluster : (x, y, z)
            The grid in CTAs, the block in threads, the cluster in CTAs (left out: what .reqnctapercluster says, or 1).
        dynamic_smem : int
            Dynamic shared memory in bytes.
        memory : GlobalMemory
        args : sequence
            In PTX parameter order: a buffer or ndarray (as device pointer; an ndarray is updated in place), a NumPy
            scalar (by value), a TensorMap (128 bytes by value), or bytes (by value, as they are).
        schedule : "eager", "lazy", "adversarial" or "random"
            When asynchronous operations are carried out.
        seed : int
            For the random schedule.
        check : bool or "collect"
            True raises at the end when a hazard of severity "error" was found; "collect" only lists them; False does
            not look.
        sms : int
            CTAs that are resident at the same time (at least one cluster).
        max_instructions : int, optional
            Warp-instructions after which the launch is given up.
        numerics : "exact" or "hardware"
            Arithmetic of the matrix instructions: rounded once, or the published model of the hardware.
        registers : int, optional
            Registers a thread that the assembler gave the kernel, for setmaxnreg; left out: .maxnreg, or as many as
            the register file has for one CTA.
        names : Names
            What warps, mbarriers and parts of shared memory are called in errors and hazards.

        Raises
        ------
        EmulationError
            Wrong arguments, bad addresses, malformed operands; see its subclasses for the rest.
        """
        started = time.perf_counter()
        check_options(schedule, seed, check, sms, numerics)
        config = self._config(grid, block, cluster, dynamic_smem, schedule, seed, sms, max_instructions, registers)
        params, in_place = self._params(args, memory)
        monitor = Monitor(self._describe_line) if check else None
        symbols = _place_globals(self._text, memory)
        machine = Machine(self._program, config, memory, params, symbols, numerics, monitor)
        try:
            with np.errstate(all="ignore"):
                machine.run()
        except EmulationError as error:
            reports.conclude(machine)
            if monitor is not None:
                error.found(monitor.hazards())
            error.trace = (*machine.trace, *machine.open_waits())
            error.rename(names.annotate)
            raise
        reports.conclude(machine)
        for array, buffer in in_place:
            _update(array, buffer)
        hazards = tuple(h.renamed(names.annotate) for h in (monitor.hazards() if monitor is not None else ()))
        if check is True and any(h.severity == "error" for h in hazards):
            raise HazardError(hazards)
        return LaunchResult(hazards, reports.stats(machine, time.perf_counter() - started), tuple(machine.trace))

    def _config(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        cluster: Sequence[int] | None,
        dynamic_smem: int,
        schedule: Schedule,
        seed: int,
        sms: int,
        max_instructions: int | None,
        registers: int | None,
    ) -> Config:
        cluster = self._program.cluster(cluster)
        shapes = [_dim3(name, shape) for name, shape in (("grid", grid), ("block", block), ("cluster", cluster))]
        if any(g % c for g, c in zip(shapes[0], shapes[2], strict=True)):
            raise EmulationError(f"grid {shapes[0]} is not a multiple of the cluster {shapes[2]}")
        if (ctas := shapes[2][0] * shapes[2][1] * shapes[2][2]) > 16:
            raise EmulationError(f"a cluster of {ctas} CTAs; at most 16 are possible")
        self._program.check_block(shapes[1])
        total = self._program.static_shared + dynamic_smem
        limit = OVERSIZED_LIMIT if self._program.target.startswith("sm_107") else SHARED_LIMIT
        if dynamic_smem < 0 or total > limit:
            raise EmulationError(
                f"{self._program.static_shared} bytes of static and {dynamic_smem} of dynamic shared memory are "
                f"{total} bytes; a CTA can have {limit}"
            )
        return Config(shapes[0], shapes[1], shapes[2], dynamic_smem, schedule, seed, sms, max_instructions, registers)

    def _params(self, args: Sequence[Any], memory: GlobalMemory) -> tuple[bytes, list[tuple[Any, Buffer]]]:
        """The parameter block, and the arrays that have to be updated afterwards."""
        program = self._program
        params = program.body.params
        if len(args) != len(params):
            raise EmulationError(f"{program.name} has {len(params)} parameter(s), {len(args)} argument(s) given")
        block = bytearray(program.param_bytes)
        in_place: list[tuple[Any, Buffer]] = []
        for param, offset, argument in zip(params, program.param_offsets, args, strict=True):
            data = _argument(param, argument, memory, in_place)
            if len(data) != param.size:
                raise EmulationError(
                    f"{param.size} byte(s) needed, the argument of type {type(argument).__name__} has {len(data)}",
                    parameter=param.name,
                )
            block[offset : offset + param.size] = data
        return bytes(block), in_place

    def _describe_line(self, line: int) -> str:
        if self._sources is None:
            self._sources = {i.line: i.source for i in self._program.body.instructions if i.source}
        source = self._sources.get(line)
        if source is None:
            return f"PTX line {line}"
        name = self._text.files.get(source[0], "source").rsplit("/", 1)[-1]
        return f"PTX line {line} ({name}:{source[1]})"


def check_options(schedule: object, seed: object, check: object, sms: object, numerics: object) -> None:
    """Refuse options of a launch that mean nothing.

    Raises
    ------
    EmulationError
        With what was given and what is legal.
    """
    legal: tuple[tuple[str, object, tuple[object, ...]], ...] = (
        ("schedule", schedule, SCHEDULES),
        ("check", check, (True, False, "collect")),
        ("numerics", numerics, ("exact", "hardware")),
    )
    for name, given, choices in legal:
        if not any(type(given) is type(choice) and given == choice for choice in choices):
            raise EmulationError(f"{name} is {given!r}; legal are {', '.join(map(repr, choices))}")
    if not isinstance(seed, int):
        raise EmulationError(f"seed is {seed!r}; an integer is needed")
    if not isinstance(sms, int) or isinstance(sms, bool) or sms < 1:
        raise EmulationError(f"sms is {sms!r}; the number of CTAs that are resident at once is needed, at least 1")


def _dim3(name: str, shape: Sequence[int]) -> Dim3:
    if len(shape) > 3 or any(int(extent) < 1 for extent in shape):
        raise EmulationError(f"{name} {tuple(shape)}: one to three positive extents are needed")
    x, y, z = (*(int(extent) for extent in shape), 1, 1)[:3]
    return x, y, z


def _argument(param: Variable, argument: Any, memory: GlobalMemory, in_place: list[tuple[Any, Buffer]]) -> bytes:
    if isinstance(argument, Buffer):
        return argument.address.to_bytes(8, "little")
    if isinstance(argument, np.ndarray):
        buffer = memory.upload(argument, name=param.name)
        in_place.append((argument, buffer))
        return buffer.address.to_bytes(8, "little")
    if isinstance(argument, TensorMap):
        return argument.to_bytes()
    if isinstance(argument, (bytes, bytearray, memoryview)):
        return bytes(argument)
    if isinstance(argument, np.generic):
        return argument.tobytes()
    raise EmulationError(
        f"an argument of type {type(argument).__name__} cannot be passed; give a buffer, an ndarray, a NumPy scalar, "
        "a TensorMap or bytes",
        parameter=param.name,
    )


def _update(array: Any, buffer: Buffer) -> None:
    after = buffer.read()
    if after.tobytes() == np.ascontiguousarray(array).tobytes():
        return
    if not array.flags.writeable:
        raise EmulationError(f"the kernel wrote to a read-only array ({buffer.name})")
    array[...] = after


def _place_globals(text: ModuleText, memory: GlobalMemory) -> dict[str, int]:
    """Addresses of module-scope .global and .const variables; a module is placed once in each memory."""
    known = memory.symbols.get(text.target + str(id(text)))
    if known is not None:
        return known
    addresses: dict[str, int] = {}
    buffers: list[tuple[Variable, Buffer]] = []
    variables = dict(text.variables)
    for body in text.functions.values():
        variables |= body.variables
    for name, variable in variables.items():
        if variable.space in ("global", "const") and variable.size:
            data = np.frombuffer(variable.data.ljust(variable.size, b"\0"), np.uint8).copy()
            buffer = memory.upload(data, name=name)
            addresses[name] = buffer.address
            buffers.append((variable, buffer))
    for variable, buffer in buffers:
        for offset, name, addend in variable.pointers:
            target = (addresses.get(name, 0) + addend).to_bytes(8, "little")
            buffer.data[offset : offset + 8] = np.frombuffer(target, np.uint8)
    memory.symbols[text.target + str(id(text))] = addresses
    return addresses
