"""PTX and a launch document to a report: what ``blasdx emulate`` does, without a command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from blasdx.cli.arrays import save
from blasdx.cli.launch_spec import (
    BufferSpec,
    LaunchSpec,
    Null,
    Output,
    Parameter,
    Pointer,
    Raw,
    Scalar,
    TensorMapSpec,
    load_array,
)
from blasdx.elements import Element
from blasdx.emulator import Buffer, EmulationError, GlobalMemory, LaunchResult, Module, Names, TensorMap

Schedule = Literal["eager", "lazy", "adversarial", "random"]
Numerics = Literal["exact", "hardware"]


@dataclass(frozen=True)
class Comparison:
    """A buffer beside what was expected in it.

    Attributes
    ----------
    buffer : str
    elements, wrong : int
        How many there are, and how many lie outside the tolerance.
    first : tuple[int, ...] or None
        Index of the first wrong element.
    largest : float
        Largest absolute difference; NaN when one side is NaN.
    """

    buffer: str
    elements: int
    wrong: int
    first: tuple[int, ...] | None
    largest: float

    def __str__(self) -> str:
        if not self.wrong:
            return f"{self.buffer}: all {self.elements} elements are as expected (largest difference {self.largest:g})"
        return (
            f"{self.buffer}: {self.wrong} of {self.elements} elements are wrong, the first at {self.first}; "
            f"largest difference {self.largest:g}"
        )


@dataclass(frozen=True)
class Report:
    """What a launch left behind.

    Attributes
    ----------
    result : LaunchResult
    written : tuple[tuple[str, Path], ...]
        Buffers and the files their elements were written to.
    comparisons : tuple[Comparison, ...]
    """

    result: LaunchResult
    written: tuple[tuple[str, Path], ...]
    comparisons: tuple[Comparison, ...]

    @property
    def passed(self) -> bool:
        """No hazard of severity "error", and everything as expected."""
        return not any(h.severity == "error" for h in self.result.hazards) and not any(
            c.wrong for c in self.comparisons
        )

    def lines(self) -> Iterator[str]:
        """The report, a line at a time."""
        for comparison in self.comparisons:
            yield str(comparison)
        for name, path in self.written:
            yield f"{name} -> {path}"
        yield from map(str, self.result.hazards)
        stats = self.result.stats
        yield (
            f"{stats.ctas} CTA(s), {stats.instructions} warp-instructions in {stats.seconds:.2f} s; "
            + (", ".join(f"{count} {kind}" for kind, count in sorted(stats.operations.items())) or "no")
            + " asynchronous operation(s)"
        )
        most = sorted(stats.opcodes.items(), key=lambda item: (-item[1], item[0]))[:8]
        yield "most frequent: " + ", ".join(f"{opcode} {count}" for opcode, count in most)


def emulate(
    ptx: str,
    spec: LaunchSpec,
    folder: Path,
    *,
    schedule: Schedule = "random",
    seed: int = 0,
    numerics: Numerics = "exact",
    check: bool = True,
    sms: int = 2,
    max_instructions: int | None = None,
) -> Report:
    """Run one launch.

    Parameters
    ----------
    ptx : str
    spec : LaunchSpec
    folder : Path
        Where the document's relative paths start.
    schedule, seed, numerics, sms, max_instructions
        As :meth:`blasdx.emulator.Function.launch` takes them.
    check : bool
        Look for hazards. They are reported, never raised.

    Raises
    ------
    EmulationError
        The launch cannot be executed: malformed PTX, an unknown entry, wrong parameters, a broken tensor map; or went
        wrong while it ran.
    OSError, ValueError
        A file cannot be read or written, or holds something else than the document says.
    """
    module = Module.from_ptx(ptx)
    function = module.get_function(_entry(module, spec))
    names = [variable.name for variable in function.parameters]
    if len(names) != len(spec.parameters):
        raise EmulationError(
            f"{function.name} has {len(names)} parameter(s) ({', '.join(names)}), the document gives "
            f"{len(spec.parameters)}"
        )
    memory = GlobalMemory()
    buffers = {name: memory.upload(buffer.contents(folder), name) for name, buffer in spec.buffers.items()}
    args = [_argument(n, p, spec, buffers) for n, p in zip(names, spec.parameters, strict=True)]
    result = function.launch(
        grid=spec.grid,
        block=spec.block,
        cluster=spec.cluster,
        dynamic_smem=spec.dynamic_smem,
        memory=memory,
        args=args,
        schedule=schedule,
        seed=seed,
        check="collect" if check else False,
        sms=max(sms, int(np.prod(spec.cluster))),
        max_instructions=max_instructions,
        numerics=numerics,
        names=Names.from_text(spec.names),
    )
    written: list[tuple[str, Path]] = []
    comparisons: list[Comparison] = []
    for output in spec.outputs:
        buffer = spec.buffers[output.buffer]
        got = buffer.elements(buffers[output.buffer].read())
        if output.path is not None:
            save(folder / output.path, np.ascontiguousarray(got))
            written.append((output.buffer, folder / output.path))
        if output.expected is not None:
            comparisons.append(_compare(output, buffer, got, folder / output.expected))
    return Report(result, tuple(written), tuple(comparisons))


def _entry(module: Module, spec: LaunchSpec) -> str:
    if spec.entry is not None:
        return spec.entry
    if len(module.entries) != 1:
        raise EmulationError(
            f"the module has {len(module.entries)} entries ({', '.join(module.entries)}); `entry` says which one"
        )
    return module.entries[0]


def _argument(name: str, parameter: Parameter, spec: LaunchSpec, buffers: dict[str, Buffer]) -> bytes:
    """The bytes of one parameter."""
    if not isinstance(parameter, Raw):
        return _value(name, parameter, spec, buffers)
    data = bytearray.fromhex(parameter.hex)
    for fixup in parameter.fixups:
        value = _value(name, fixup.value, spec, buffers)
        if fixup.at + len(value) > len(data):
            raise EmulationError(
                f"a fix-up of {len(value)} bytes at {fixup.at} does not fit into {len(data)} bytes", parameter=name
            )
        data[fixup.at : fixup.at + len(value)] = value
    return bytes(data)


def _value(
    name: str, parameter: Pointer | Null | Scalar | TensorMapSpec, spec: LaunchSpec, buffers: dict[str, Buffer]
) -> bytes:
    if isinstance(parameter, Pointer):
        return (buffers[parameter.buffer].address + parameter.offset).to_bytes(8, "little")
    if isinstance(parameter, Null):
        return bytes(8)
    if isinstance(parameter, Scalar):
        return parameter.data
    try:
        return _tensor_map(parameter, spec.buffers[parameter.buffer], buffers[parameter.buffer]).to_bytes()
    except EmulationError as error:
        raise EmulationError(str(error), parameter=name) from error


def _tensor_map(m: TensorMapSpec, spec: BufferSpec, buffer: Buffer) -> TensorMap:
    size = Element.of(spec.dtype).itemsize
    strides = m.strides_bytes
    if strides is None:
        if spec.element_strides[-1] != 1:
            raise EmulationError(
                f"the innermost dimension of buffer {m.buffer} has stride {spec.element_strides[-1]}, a tensor map's "
                "is dense; give dims and strides_bytes"
            )
        strides = tuple(step * size for step in spec.element_strides[-2::-1])
    return TensorMap(
        buffer,
        dtype=m.dtype or spec.dtype,
        dims=m.dims or spec.shape[::-1],
        strides_bytes=strides,
        box=m.box,
        element_strides=m.element_strides,
        swizzle=m.swizzle,
        interleave=m.interleave,
        oob_fill=m.oob_fill,
        offset=m.offset,
    )


def _compare(output: Output, spec: BufferSpec, got: np.ndarray[Any, Any], path: Path) -> Comparison:
    want = load_array(path, spec.dtype, spec.shape)
    if Element.of(spec.dtype).is_float or output.rtol or output.atol:
        got, want = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(invalid="ignore"):
            difference = np.abs(got - want)
            right = (difference <= output.atol + output.rtol * np.abs(want)) | (got == want)
            right |= np.isnan(got) & np.isnan(want)
            difference = np.where(right & ~np.isfinite(difference), 0.0, difference)
        largest = float(difference.max())
    else:
        right = got == want
        largest = (
            float(max(abs(int(g) - int(w)) for g, w in zip(got[~right], want[~right], strict=True)))
            if not right.all()
            else 0.0
        )
    wrong = np.argwhere(~right)
    first = tuple(int(i) for i in wrong[0]) if len(wrong) else None
    return Comparison(output.buffer, got.size, len(wrong), first, largest)
