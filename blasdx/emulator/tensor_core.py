"""tcgen05 as generated code calls it: allocation, mma, commit, cp, ld, st."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from blasdx.emulator import access, matrix, tensor_memory
from blasdx.emulator.errors import EmulationError
from blasdx.emulator.instruction import InstructionDescriptor, check_operand, decode_instruction
from blasdx.emulator.lanes import Value, lane_value, lanes_of
from blasdx.emulator.numerics import Factor, arithmetic, multiply
from blasdx.emulator.resident import Cta
from blasdx.emulator.synchronisation import barrier_at, one, shared_address
from blasdx.emulator.warp import Path, Wait
from blasdx.emulator.zero_columns import decode_zero_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMN_MASK = 0xFFFF
SHARED_FIELD = 0x3FFFF


def whole_warp(w: Path, what: str) -> None:
    """Refuse a part of a warp."""
    if not w.whole:
        raise EmulationError(f"{what} is .sync.aligned: all lanes of {w.warp.name} have to execute it together")


def _group(cta: Cta, group: int) -> None:
    """A kernel uses one cta_group throughout; ptxas refuses a mixture."""
    if cta.cta_group and cta.cta_group != group:
        raise EmulationError(f"tcgen05 with .cta_group::{group} after .cta_group::{cta.cta_group} in the same kernel")
    cta.cta_group = group


def pair_of(w: Path, group: int) -> list[Cta]:
    """The CTAs a tcgen05 operation works on: this one, or the pair with the even one first."""
    if group == 1:
        return [w.cta]
    even = w.cta.rank & ~1
    return [w.cta.peer(even), w.cta.peer(even + 1)]


# ---------------------------------------------------------------------------------------------------- allocation


def allocate(
    w: Path, group: int, address: Value, generic: bool, columns: Value, following: int, line: int
) -> int | None:
    """tcgen05.alloc."""
    whole_warp(w, "tcgen05.alloc")
    _group(w.cta, group)
    cta = w.cta
    count = one(columns, w, "the number of columns")
    target = one(shared_address(address, generic, w.mask), w, "the address")

    def ready() -> bool:
        column = cta.allocator.allocate(cta.number, count)
        if column is None:
            return False
        cta.tensor_memory[:, column : column + count] = 0xFFFFFFFF
        cta.ever_allocated[column : column + count] = True
        cta.region(target).store_one(target, 4, [column])
        access.note_shared(w, target, w.mask, 4, True, line)
        if w.monitor is not None:
            w.monitor.allocate(w.warp.agent, cta.number, column, count, line)
        return True

    result = w.suspend(Wait(lambda: f"{count} columns of tensor memory", ready, line), following)
    if result is None:
        cta.allocating.append(w)
    return result


def deallocate(w: Path, group: int, address: Value, columns: Value, line: int) -> None:
    """tcgen05.dealloc: the contents survive until the columns are allocated again."""
    whole_warp(w, "tcgen05.dealloc")
    _group(w.cta, group)
    cta = w.cta
    at, count = one(address, w, "the address"), one(columns, w, "the number of columns")
    cta.allocator.deallocate(cta.number, at, count)
    if w.monitor is not None:
        w.monitor.deallocate(w.warp.agent, cta.number, at & COLUMN_MASK, count, line)
    w.machine.events += 1
    waiting, cta.allocating = cta.allocating, []
    for path in waiting:
        if not w.machine.retry(path):
            cta.allocating.append(path)


def relinquish(w: Path, group: int) -> None:
    """tcgen05.relinquish_alloc_permit."""
    whole_warp(w, "tcgen05.relinquish_alloc_permit")
    _group(w.cta, group)
    w.cta.allocator.relinquish(w.cta.number)


def check_allocated(cta: Cta, column: int, columns: int, what: str) -> None:
    """Refuse columns that the CTA never held."""
    if column + columns > 512 or not cta.ever_allocated[column : column + columns].all():
        raise EmulationError(f"{what} columns {column} to {column + columns - 1}, which CTA {cta.name} never allocated")


# ---------------------------------------------------------------------------------------------------- mma


@dataclass(frozen=True)
class MmaForm:
    """The static part of a tcgen05.mma instruction."""

    kind: str
    group: int
    ws: bool
    a_in_tensor_memory: bool
    scale_vector: int
    target: str
    shift: int = 0


def mma(
    w: Path,
    form: MmaForm,
    d: Value,
    a: Value,
    b: Value,
    idesc: Value,
    scales: tuple[Value, Value] | None,
    disabled: Sequence[Value],
    accumulate: Value,
    zero_columns: Value,
    mask: int,
    line: int,
) -> None:
    """tcgen05.mma: one operation for each executing thread."""
    for lane in lanes_of(mask):
        pick = [int(lane_value(v, lane)) for v in (d, a, b, idesc, zero_columns)]
        factors = None if scales is None else tuple(int(lane_value(s, lane)) for s in scales)
        off = sum(int(lane_value(v, lane)) << 32 * k for k, v in enumerate(disabled))
        _mma(w, form, pick, factors, off, bool(lane_value(accumulate, lane)), line)


def _mma(
    w: Path,
    form: MmaForm,
    operands: list[int],
    scales: tuple[int, ...] | None,
    disabled: int,
    accumulate: bool,
    line: int,
) -> None:
    d, a, b, bits, zeros = operands
    group = form.group
    _group(w.cta, group)
    desc = decode_instruction(bits, form.kind, form.target, cta_group=group, ws=form.ws, scale_vector=form.scale_vector)
    lane, column = tensor_memory.split(d)
    where = tensor_memory.layout(desc.m, desc.n, group, ws=form.ws, lane=lane)
    ctas = pair_of(w, group)
    rows, columns = desc.m // group, desc.n // group
    b_desc = matrix.decode_shared(b, form.target)
    check_operand(desc, b_desc, mn_major=desc.b_mn_major, name="B")
    masked = decode_zero_columns(zeros, desc.m, desc.n, desc.most_shift)
    skipped = -(-masked.shift // 16) * 16 if desc.b_mn_major else masked.shift  # MN-major tiles have whole units
    b_where = matrix.operand(b_desc, desc.b_mn_major, columns + skipped, desc.k, desc.shared_bits)
    a_where: matrix.Operand | None = None
    if not form.a_in_tensor_memory:
        a_desc = matrix.decode_shared(a, form.target)
        check_operand(desc, a_desc, mn_major=desc.a_mn_major, name="A")
        a_where = matrix.operand(a_desc, desc.a_mn_major, rows, desc.k, desc.shared_bits)
    for cta in ctas:
        check_allocated(cta, column, where.width, "tcgen05.mma writes")
    _announce(w, form, desc, ctas, (a_where, b_where, where, column, a, scales, accumulate), line)
    if w.monitor is not None and not disabled:
        for cta in ctas:
            w.monitor.multiply(w.warp.agent, cta.number, where.mask(column), accumulate, line)
    model = arithmetic(w.machine.numerics, "tcgen05.mxf4" if desc.dense_4bit else "tcgen05")

    def action() -> None:
        b_codes = [_shared_codes(cta, b_where, desc, desc.b) for cta in ctas]
        b_all = b_codes[0] if len(b_codes) == 1 else np.concatenate(b_codes)
        if zeros:
            b_all = masked.apply(b_all, desc.n)
        for index, cta in enumerate(ctas):
            memory = cta.tensor_memory
            if a_where is None:
                a_lane, a_column = tensor_memory.split(a)
                del a_lane
                a_codes = tensor_memory.read_a(memory, where, a_column, desc.k, desc.shared_bits)
                if desc.a == "e2m1" and not desc.dense_4bit:
                    a_codes = a_codes >> 2 & 15  # in bits 2 to 5 of its byte, as tcgen05.cp unpacks it
            else:
                a_codes = _shared_codes(cta, a_where, desc, desc.a)
            a_scales = b_scales = None
            if scales is not None:
                vector = form.scale_vector
                a_scales = tensor_memory.read_scales(memory, scales[0], rows, desc.a_scale_id, vector)
                b_scales = tensor_memory.read_scales(memory, scales[1], desc.n, desc.b_scale_id, vector)
            c = tensor_memory.read_d(memory, where, column) if accumulate else None
            words = multiply(
                Factor(a_codes, desc.a, negate=desc.negate_a, scales=a_scales, scale=desc.scale),
                Factor(b_all, desc.b, negate=desc.negate_b, scales=b_scales, scale=desc.scale),
                c,
                desc.d,
                model,
                saturate=desc.saturate,
                shift=form.shift,
            )
            off = disabled >> 128 * index & (1 << 128) - 1
            tensor_memory.write_d(memory, where, column, words, disabled=off)

    track = f"cta {w.cta.number} tensor core"
    w.machine.submit("mma", action, track, line, _stream(w))


def _stream(w: Path) -> tuple[str, int, int]:
    return ("tcgen05", w.cta.number, w.warp.index)


def _shared_codes(cta: Cta, where: matrix.Operand, desc: InstructionDescriptor, element: str) -> NDArray[Any]:
    codes = matrix.read(cta.shared16, where)
    if element in ("e2m1", "e2m3", "e3m2") and not desc.dense_4bit:
        return matrix.unpack_padded(np.ascontiguousarray(codes), 4 if element == "e2m1" else 6)
    return codes


def _announce(
    w: Path,
    form: MmaForm,
    desc: InstructionDescriptor,
    ctas: list[Cta],
    parts: tuple[Any, ...],
    line: int,
) -> None:
    """Tell the hazard monitor what an mma reads and writes."""
    monitor = w.monitor
    if monitor is None:
        return
    a_where, b_where, where, column, a, scales, accumulate = parts
    agent = monitor.issue(w.warp.agent, "mma", line, stream=_stream(w))
    for cta in ctas:
        if a_where is not None:
            monitor.access(agent, "shared", cta.number, a_where.mask, write=False, proxy="async", line=line)
        else:
            width = desc.k * desc.shared_bits // 32
            found = where.mask(a & COLUMN_MASK, width)
            monitor.access(agent, "tensor", cta.number, found, write=False, proxy="tensor", line=line)
        monitor.access(agent, "shared", cta.number, b_where.mask, write=False, proxy="async", line=line)
        if scales is not None:
            for address, count in ((scales[0], desc.m // form.group), (scales[1], desc.n)):
                found = tensor_memory.mask_of(0xFF, address & COLUMN_MASK, -(-count // 32))
                monitor.access(agent, "tensor", cta.number, found, write=False, proxy="tensor", line=line)
        mode = "accumulate" if accumulate else ""
        monitor.access(
            agent, "tensor", cta.number, where.mask(column), write=True, proxy="tensor", line=line, mode=mode
        )


# ---------------------------------------------------------------------------------------------------- commit, cp, shift


def commit(w: Path, group: int, address: Value, generic: bool, multicast: Value | None, mask: int, line: int) -> None:
    """tcgen05.commit: an arrival when everything this thread issued so far is over."""
    _group(w.cta, group)
    address = shared_address(address, generic, mask)
    for lane in lanes_of(mask):
        at = int(lane_value(address, lane))
        if multicast is None:
            barriers = [barrier_at(w, at)]
        else:
            wanted = int(lane_value(multicast, lane))
            ranks = [r for r in range(16) if wanted >> r & 1]
            if not ranks:
                raise EmulationError("tcgen05.commit with an empty multicast mask")
            barriers = [w.cta.peer(r).barrier(at & 0xFFFFFF) for r in ranks]
        _commit(w, barriers, line)


def _commit(w: Path, barriers: list[Any], line: int) -> None:
    monitor = w.monitor
    agent = 0
    if monitor is not None:
        for barrier in barriers:
            monitor.use_barrier(w.warp.agent, barrier.cta, barrier.offset, line)
        agent = monitor.commit(w.warp.agent, line, stream=_stream(w))
    machine = w.machine

    def action() -> None:
        for barrier in barriers:
            if monitor is not None:
                monitor.finish(agent, barrier.key)
            if barrier.arrive(1):
                machine.flipped(barrier)

    machine.submit("commit", action, f"cta {w.cta.number} tensor core", line, _stream(w))


def copy(
    w: Path, group: int, shape: str, source_bits: int, target: str, d: Value, s: Value, mask: int, line: int
) -> None:
    """tcgen05.cp: shared memory to tensor memory, in every CTA of the group from its own shared memory."""
    _group(w.cta, group)
    rows, size = tensor_memory.copy_shape(shape)
    for lane in lanes_of(mask):
        first, column = tensor_memory.split(int(lane_value(d, lane)))
        tensor_memory.check_copy_lane(shape, first)
        desc = matrix.decode_shared(int(lane_value(s, lane)), target)
        where = matrix.operand(desc, False, rows, size, 8)
        ctas = pair_of(w, group)
        for cta in ctas:
            check_allocated(cta, column, size // 4, "tcgen05.cp writes")
        if w.monitor is not None:
            agent = w.monitor.issue(w.warp.agent, "cp", line, stream=_stream(w))
            for cta in ctas:
                w.monitor.access(agent, "shared", cta.number, where.mask, write=False, proxy="async", line=line)
                found = tensor_memory.mask_of(0xFF, column, size // 4)
                w.monitor.access(agent, "tensor", cta.number, found, write=True, proxy="tensor", line=line)
        _submit_copy(w, ctas, where, shape, (first, column), source_bits, line)


def _submit_copy(
    w: Path, ctas: list[Cta], where: matrix.Operand, shape: str, to: tuple[int, int], source_bits: int, line: int
) -> None:
    def action() -> None:
        for cta in ctas:
            data = np.ascontiguousarray(matrix.read(cta.shared16, where))
            if source_bits != 8:
                data = matrix.unpack_padded(data, source_bits)
            if source_bits == 4:
                data = data << 2  # the container of e2m1 has it in bits 2 to 5
            tensor_memory.copy(cta.tensor_memory, shape, to, data)

    w.machine.submit("cp", action, f"cta {w.cta.number} tensor core", line, _stream(w))


def shift(w: Path, group: int, address: Value, mask: int, line: int) -> None:
    """tcgen05.shift.down: in each quarter, rows move down by one lane, 32 bytes wide; the last lane keeps its contents.

    The shape 31x256b (PTX ISA 9.7.16.2.3) is that of a quarter, whose last row a cp of 4x256b then replaces.
    """
    _group(w.cta, group)
    for lane in lanes_of(mask):
        first, column = tensor_memory.split(int(lane_value(address, lane)))
        if first:
            raise EmulationError(f"tcgen05.shift at lane {first}: only lane 0, that is all quarters, is emulated")
        ctas = pair_of(w, group)
        if w.monitor is not None:
            agent = w.monitor.issue(w.warp.agent, "shift", line, stream=_stream(w))
            found = tensor_memory.mask_of(0xFF, column, 8)
            for cta in ctas:
                w.monitor.access(agent, "tensor", cta.number, found, write=True, proxy="tensor", line=line)

        def action(ctas: list[Cta] = ctas, column: int = column) -> None:
            for cta in ctas:
                quarters = cta.tensor_memory[:, column : column + 8].reshape(4, 32, 8)
                quarters[:, :-1] = quarters[:, 1:].copy()
                cta.tensor_memory[:, column : column + 8] = quarters.reshape(128, 8)

        w.machine.submit("shift", action, f"cta {w.cta.number} tensor core", line, _stream(w))
