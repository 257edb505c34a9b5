"""tcgen05 (PTX ISA 9.7.16)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from blasdx.emulator import floats, integers, synchronisation, tensor_access
from blasdx.emulator import tensor_core as rt
from blasdx.emulator.instructions.memory import address, space_of
from blasdx.emulator.ir import Imm, Instruction, Mem, Operand, Reg, Vec
from blasdx.emulator.translate import Emitter, Writer, vector

_COLLECTORS = frozenset(
    f"collector::{x}::{y}" for x in ("a", "b", "b0", "b1", "b2", "b3") for y in ("fill", "use", "lastuse", "discard")
)
_REDUCING = ("sm_103a", "sm_103f", "sm_107a", "sm_107f", "sm_110a", "sm_110f")
_SCALE_VECTORS = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4}


def _tcgen05(w: Writer, i: Instruction) -> None:
    operation = i.mods[0]
    emitter = _OPERATIONS.get(operation)
    if emitter is None:
        raise w.refuse()
    emitter(w, i)


def _group(w: Writer, i: Instruction) -> int:
    found = [int(m[-1]) for m in i.mods if m in ("cta_group::1", "cta_group::2")]
    if len(found) != 1:
        raise w.malformed(".cta_group::1 or ::2 is needed")
    return found[0]


def _tensor_address(w: Writer, operand: Operand) -> str:
    """[taddr], [taddr + n] or a plain register."""
    if isinstance(operand, Mem) and isinstance(operand.base, (Reg, Imm)) and not operand.rest:
        base = w.read(operand.base, 32)
        return f"({base} + {operand.offset})" if operand.offset else base
    raise w.malformed("a tensor-memory address in brackets is needed")


def _alloc(w: Writer, i: Instruction) -> None:
    target, columns = w.operands(2)
    if set(i.mods) - {"alloc", "cta_group::1", "cta_group::2", "sync", "aligned", "shared::cta", "b32"}:
        raise w.refuse()
    space = space_of(w, i.mods)
    w.line(w.call(rt.allocate, "w", str(_group(w, i)), address(w, target, space), str(space == "generic"),
                  w.read(columns, 32), "$next", str(i.line)))  # fmt: skip


def _dealloc(w: Writer, i: Instruction) -> None:
    target, columns = w.operands(2)
    w.effect(w.call(rt.deallocate, "w", str(_group(w, i)), w.read(target, 32), w.read(columns, 32), str(i.line)))


def _relinquish(w: Writer, i: Instruction) -> None:
    w.effect(w.call(rt.relinquish, "w", str(_group(w, i))))


def _mma(w: Writer, i: Instruction) -> None:
    mods = i.mods
    kind = next((m[6:] for m in mods if m.startswith("kind::")), "")
    known = {"mma", "ws", "block_scale", "block16", "block32", "cta_group::1", "cta_group::2", f"kind::{kind}"}
    unknown = set(mods) - known - _COLLECTORS - set(_SCALE_VECTORS)
    if unknown or not kind:
        raise w.refuse(f"qualifier .{min(unknown)}" if unknown else "no kind")
    group, ws = _group(w, i), "ws" in mods
    d, a, b, idesc, *rest = i.operands
    in_tensor_memory = isinstance(a, Mem)
    scales = "None"
    if "block_scale" in mods:
        if len(rest) < 3:
            raise w.malformed("scale-factor addresses are needed")
        scales = f"({_tensor_address(w, rest.pop(0))}, {_tensor_address(w, rest.pop(0))})"
    disabled = "()"
    if rest and isinstance(rest[0], Vec):
        words = vector(rest.pop(0))
        if len(words) != 4 * group:
            raise w.malformed(f"{len(words)} words of the lane mask, {4 * group} needed for .cta_group::{group}")
        disabled = "(" + ", ".join(w.read(o, 32) for o in words) + ",)"
    if not rest:
        raise w.malformed("the enable-input-d predicate is needed")
    accumulate = w.read(rest.pop(0), 1)
    shift = 0
    if rest and not ws:
        shift = w.static(rest.pop(0))
        if not 0 <= shift <= 15 or kind not in ("f16", "tf32"):
            raise w.malformed("scale-input-d is 0 to 15 and for kinds f16 and tf32 only")
    zero_columns = w.read(rest.pop(0), 64) if rest and ws else "0"
    if rest:
        raise w.malformed("too many operands")
    form = rt.MmaForm(kind, group, ws, in_tensor_memory, _scale_vector(w, kind, mods), w.target, shift)
    a_source = _tensor_address(w, a) if in_tensor_memory else w.read(a, 64)
    w.effect(w.call(rt.mma, "w", w.bind(form), _tensor_address(w, d), a_source, w.read(b, 64), w.read(idesc, 32),
                    scales, disabled, accumulate, zero_columns, "$m", str(i.line)))  # fmt: skip


def _scale_vector(w: Writer, kind: str, mods: tuple[str, ...]) -> int:
    """Scales for each row and instruction: N of .scale_vec::NX."""
    if "block_scale" not in mods:
        if kind.startswith("mx"):
            raise w.malformed(".block_scale is mandatory for this kind")
        return 0
    for name, value in _SCALE_VECTORS.items():
        if name in mods:
            return value
    if "block16" in mods:
        return 4
    if "block32" in mods:
        return 1 if kind == "mxf8f6f4" else 2
    if kind == "mxf4nvf4":
        raise w.malformed("kind mxf4nvf4 has to name its vector size")
    return 1 if kind == "mxf8f6f4" else 2


def _commit(w: Writer, i: Instruction) -> None:
    known = {"commit", "cta_group::1", "cta_group::2", "mbarrier::arrive::one", "shared::cluster", "shared::cta", "b64",
             "multicast::cluster"}  # fmt: skip
    if set(i.mods) - known:
        raise w.refuse()
    bar, *cast = w.operands(1, 2)
    space = space_of(w, i.mods)
    multicast = w.read(cast[0], 16) if "multicast::cluster" in i.mods else "None"
    w.effect(w.call(rt.commit, "w", str(_group(w, i)), address(w, bar, space), str(space == "generic"), multicast, "$m",
                    str(i.line)))  # fmt: skip


def _copy(w: Writer, i: Instruction) -> None:
    target, source = w.operands(2)
    rest = [m for m in i.mods if m not in ("cp", "cta_group::1", "cta_group::2")]
    bits = 8
    if rest[-2:] == ["b8x16", "b6x16_p32"]:
        bits, rest = 6, rest[:-2]
    elif rest[-2:] == ["b8x16", "b4x16_p64"]:
        bits, rest = 4, rest[:-2]
    w.effect(w.call(rt.copy, "w", str(_group(w, i)), repr(".".join(rest)), str(bits), repr(w.target),
                    _tensor_address(w, target), w.read(source, 64), "$m", str(i.line)))  # fmt: skip


def _shift(w: Writer, i: Instruction) -> None:
    if set(i.mods) != {"shift", "down", f"cta_group::{_group(w, i)}"}:
        raise w.refuse()
    w.effect(w.call(rt.shift, "w", str(_group(w, i)), _tensor_address(w, w.operands(1)[0]), "$m", str(i.line)))


def _access(w: Writer, i: Instruction) -> tuple[str, int, bool]:
    """Shape, repetition and packing of ld and st."""
    shape = next((m for m in i.mods if re.fullmatch(r"\d+x\d+b(x2)?", m)), "")
    count = next((int(m[1:]) for m in i.mods if re.fullmatch(r"x\d+", m)), 0)
    packing = "pack::16b" if i.mods[0] == "ld" else "unpack::16b"
    rest = set(i.mods) - {i.mods[0], "sync", "aligned", shape, f"x{count}", packing, "b32"}
    if rest or not shape or not count:
        raise w.refuse()
    return shape, count, packing in i.mods


def _access_call(w: Writer, function: Callable[..., Any], form: tuple[Any, ...], operand: Operand, *more: str) -> str:
    """The call of a load or store: its form, the address, values to store, the line."""
    return w.call(function, "w", *map(repr, form), _tensor_address(w, operand), *more, str(w.ins.line))


def _load_reduced(w: Writer, i: Instruction) -> None:
    """ld.red: the columns, and their smallest or largest in one more register."""
    if w.target not in _REDUCING:
        raise w.refuse(f"ld.red does not exist on {w.target}")
    mods = tuple(m for m in i.mods if m not in ("red", "min", "max", "abs", "NaN", "f32", "u32", "s32"))
    kind = next((m for m in i.mods if m in ("f32", "u32", "s32")), "")
    name = next((m for m in i.mods if m in ("min", "max")), "")
    plain = Instruction(i.base, (*mods, "b32"), i.operands, i.guard, i.line, i.source)
    shape, count, packed = _access(w, plain)
    if not kind or not name or packed or count < 2 or shape not in ("32x32b", "16x32bx2"):
        raise w.refuse()
    if kind != "f32" and {"abs", "NaN"} & set(i.mods):
        raise w.refuse()
    d, reduced, source, *half = w.operands(3, 4)
    second = w.static(half[0]) if half else 0
    targets = vector(d)
    if len(targets) != count:
        raise w.malformed(f"{len(targets)} destination registers, {count} needed")
    call = _access_call(w, tensor_access.load, (shape, count, False, second), source)
    found = w.loaded(call, count)
    for k, target in enumerate(targets):
        w.write(target, f"{found}[{k}]", 32)
    if kind == "f32":
        function = floats.extreme("f32", name == "max", "NaN" in i.mods)
    else:
        function = integers.extreme(32, kind == "s32", name == "max")
    w.write(reduced, w.call(tensor_access.fold, found, w.bind(function), str("abs" in i.mods)), 32)


def _load(w: Writer, i: Instruction) -> None:
    if "red" in i.mods:
        _load_reduced(w, i)
        return
    shape, count, packed = _access(w, i)
    d, source, *half = w.operands(2, 3)
    second = w.static(half[0]) if half else 0
    call = _access_call(w, tensor_access.load, (shape, count, packed, second), source)
    targets = vector(d)
    expected = count * {"16x128b": 2, "16x256b": 4}.get(shape, 1)
    if len(targets) != expected:
        raise w.malformed(f"{len(targets)} destination registers, {expected} needed")
    found = w.loaded(call, expected)
    for k, target in enumerate(targets):
        w.write(target, f"{found}[{k}]", 32)


def _store(w: Writer, i: Instruction) -> None:
    shape, count, packed = _access(w, i)
    target, *half, values = w.operands(2, 3)
    second = w.static(half[0]) if half else 0
    sources = vector(values)
    expected = count * {"16x128b": 2, "16x256b": 4}.get(shape, 1)
    if len(sources) != expected:
        raise w.malformed(f"{len(sources)} source registers, {expected} needed")
    texts = ", ".join(w.read(s, 32) for s in sources)
    w.effect(_access_call(w, tensor_access.store, (shape, count, packed, second), target, f"({texts},)"))


def _wait(w: Writer, i: Instruction) -> None:
    w.effect(w.call(tensor_access.wait, "w", str(i.mods[0] == "wait::st")))


def _fence(w: Writer, i: Instruction) -> None:
    kind = {"fence::before_thread_sync": "tcgen05.before", "fence::after_thread_sync": "tcgen05.after"}.get(i.mods[0])
    if kind is None:
        raise w.refuse()
    w.effect(w.call(synchronisation.fence, "w", repr(kind), str(i.line)))


_OPERATIONS: dict[str, Emitter] = {
    "alloc": _alloc,
    "dealloc": _dealloc,
    "relinquish_alloc_permit": _relinquish,
    "mma": _mma,
    "commit": _commit,
    "cp": _copy,
    "shift": _shift,
    "ld": _load,
    "st": _store,
    "wait::ld": _wait,
    "wait::st": _wait,
    "fence::before_thread_sync": _fence,
    "fence::after_thread_sync": _fence,
}

EMITTERS: dict[str, Emitter] = {"tcgen05": _tcgen05}
