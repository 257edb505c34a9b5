"""cp.async, bulk and tensor copies, clusterlaunchcontrol (PTX ISA 9.7.9.25 - 9.7.9.28, 9.7.13.18)."""

from __future__ import annotations

import re

from blasdx.emulator import bulk as rt
from blasdx.emulator import cp_async, floats, integers
from blasdx.emulator.instructions.memory import address, space_of, wrapping
from blasdx.emulator.ir import TYPE_BITS, Instruction, Mem, Operand
from blasdx.emulator.lanes import Value
from blasdx.emulator.translate import Emitter, Writer, vector

_EVICTION = frozenset(("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B", "weak"))
_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


def _cp(w: Writer, i: Instruction) -> None:
    """Everything that begins with cp."""
    mods = i.mods
    if mods[:1] == ("reduce",):
        _reduce(w, i)
    elif mods[:1] != ("async",):
        raise w.refuse()
    elif "commit_group" in mods:
        w.effect(w.call(cp_async.commit_group, "w", str("bulk" in mods), "$m"))
    elif "wait_group" in mods:
        newest = w.static(w.operands(1)[0])
        w.line(w.call(cp_async.wait_group, "w", str("bulk" in mods), str(newest), "False", "$next", str(i.line)))
    elif mods == ("async", "wait_all"):
        w.line(w.call(cp_async.wait_group, "w", "False", "0", "True", "$next", str(i.line)))
    elif mods[1:3] == ("mbarrier", "arrive"):
        where = address(w, w.operands(1)[0], "shared")
        w.effect(w.call(cp_async.copy_arrive, "w", where, str("noinc" in mods), "$m", str(i.line)))
    elif "prefetch" in mods:
        pass
    elif mods[:3] == ("async", "bulk", "tensor"):
        _tensor(w, i)
    elif mods[:2] == ("async", "bulk"):
        _bulk(w, i)
    else:
        _copy(w, i)


def _copy(w: Writer, i: Instruction) -> None:
    known = {
        "async",
        "ca",
        "cg",
        "shared",
        "shared::cta",
        "global",
        "L2::64B",
        "L2::128B",
        "L2::256B",
        "L2::cache_hint",
    }
    if set(i.mods) - known:
        raise w.refuse()
    operands = list(i.operands)
    if "L2::cache_hint" in i.mods:
        operands.pop()
    if len(operands) not in (3, 4):
        raise w.malformed("3 or 4 operands are needed")
    size = w.static(operands[2])
    if size not in (4, 8, 16):
        raise w.malformed("the copy size is 4, 8 or 16 bytes")
    taken = str(size)
    if len(operands) == 4:
        operand = operands[3]
        if getattr(operand, "bits", 32) == 1:  # ignore-src
            taken = f"select({w.read(operand, 1)}, 0, {size}, 32)"
        else:
            taken = w.read(operand, 32)
    where = address(w, operands[0], "shared"), address(w, operands[1], "global")
    call = w.call(cp_async.copy_async, "w", *where, str(size), taken, "$m", str(i.line))
    w.effect(call)


def _map_and_coordinates(w: Writer, operand: Operand) -> tuple[str, tuple[Operand, ...]]:
    if not isinstance(operand, Mem) or len(operand.rest) != 1:
        raise w.malformed("[tensor map, {coordinates}] is needed")
    return address(w, Mem(operand.base, operand.offset), "generic"), vector(operand.rest[0])


def _direction(w: Writer, i: Instruction) -> str:
    """Tell a load, a store and a copy to a peer apart by the order of the spaces."""
    spaces = [m for m in i.mods if m in ("global", "shared::cluster", "shared::cta")]
    if spaces[-1:] == ["global"] and len(spaces) == 2:
        return "load"
    if spaces == ["global", "shared::cta"]:
        return "store"
    if spaces == ["shared::cluster", "shared::cta"]:
        return "peer"
    raise w.refuse()


def _tensor(w: Writer, i: Instruction) -> None:
    known = {"async", "bulk", "tensor", "1d", "2d", "3d", "4d", "5d", "shared::cluster", "shared::cta", "global",
             "tile", "tile::gather4", "tile::scatter4", "mbarrier::complete_tx::bytes", "bulk_group",
             "multicast::cluster", "cta_group::1", "cta_group::2"} | _EVICTION  # fmt: skip
    unknown = [m for m in i.mods if m not in known]
    if unknown:
        raise w.refuse(f"qualifier .{unknown[0]}" if not unknown[0].startswith("im2col") else "im2col copies")
    direction = _direction(w, i)
    gather = "tile::gather4" in i.mods or "tile::scatter4" in i.mods
    rank = next(int(m[0]) for m in i.mods if re.fullmatch(r"[1-5]d", m))
    if direction == "load":
        target, source, barrier, *extra = i.operands
        where, coordinates = _map_and_coordinates(w, source)
        cast = w.read(extra.pop(0), 16) if "multicast::cluster" in i.mods else "None"
        arguments = (address(w, target, "shared"), where, _list(w, coordinates), address(w, barrier, "shared"), cast,
                     str("cta_group::2" in i.mods), str(gather), "$m", str(i.line))  # fmt: skip
        call = w.call(rt.tensor_load, "w", *arguments)
    else:
        target, source, *extra = i.operands
        where, coordinates = _map_and_coordinates(w, target)
        call = w.call(rt.tensor_store, "w", where, _list(w, coordinates), address(w, source, "shared"), "''",
                      str(gather), "$m", str(i.line))  # fmt: skip
    if len(coordinates) != (5 if gather else rank):
        raise w.malformed(f"{len(coordinates)} coordinates for {rank} dimensions")
    w.effect(call)


def _list(w: Writer, operands: tuple[Operand, ...]) -> str:
    return "(" + ", ".join(w.read(o, 32) for o in operands) + ",)"


def _bulk(w: Writer, i: Instruction) -> None:
    known = {"async", "bulk", "shared::cluster", "shared::cta", "global", "mbarrier::complete_tx::bytes", "bulk_group",
             "multicast::cluster", "cp_mask"} | _EVICTION  # fmt: skip
    if set(i.mods) - known:
        raise w.refuse()
    direction = _direction(w, i)
    if direction == "store":
        target, source, size, *rest = i.operands
        kept = w.read(rest[-1], 16) if "cp_mask" in i.mods else "0xFFFF"
        w.effect(w.call(rt.bulk_store, "w", address(w, target, "global"), address(w, source, "shared"),
                        w.read(size, 32), "None", "1", kept, "$m", str(i.line)))  # fmt: skip
        return
    if "cp_mask" in i.mods:
        raise w.refuse()
    target, source, size, barrier, *extra = i.operands
    cast = w.read(extra[0], 16) if "multicast::cluster" in i.mods else "None"
    into, signal = address(w, target, "shared"), address(w, barrier, "shared")
    if direction == "peer":
        w.effect(w.call(rt.bulk_peer, "w", into, address(w, source, "shared"), w.read(size, 32), signal, "None", "1",
                        "$m", str(i.line)))  # fmt: skip
    else:
        w.effect(w.call(rt.bulk_load, "w", into, address(w, source, "global"), w.read(size, 32), signal, cast, "$m",
                        str(i.line)))  # fmt: skip


def _reduce(w: Writer, i: Instruction) -> None:
    name = next((m for m in i.mods if m in _REDUCTIONS), "")
    known = {"reduce", "async", "bulk", "tensor", "1d", "2d", "3d", "4d", "5d", "global", "shared::cta", "bulk_group",
             "tile", "noftz", name} | _EVICTION  # fmt: skip
    if name and _direction(w, i) == "peer":
        _reduce_peer(w, i, name)
        return
    if not name or _direction(w, i) != "store":
        raise w.refuse()
    if "tensor" in i.mods:
        if set(i.mods) - known:
            raise w.refuse()
        target, source, *_ = i.operands
        where, coordinates = _map_and_coordinates(w, target)
        w.effect(w.call(rt.tensor_store, "w", where, _list(w, coordinates), address(w, source, "shared"), repr(name),
                        "False", "$m", str(i.line)))  # fmt: skip
        return
    kind = i.mods[-1]
    if set(i.mods[:-1]) - known or kind not in TYPE_BITS:
        raise w.refuse()
    target, source, size, *_ = i.operands
    function = _reduction(w, name, kind)
    w.effect(w.call(rt.bulk_store, "w", address(w, target, "global"), address(w, source, "shared"), w.read(size, 32),
                    w.bind(function), str(TYPE_BITS[kind] // 8), "0xFFFF", "$m", str(i.line)))  # fmt: skip


def _reduce_peer(w: Writer, i: Instruction, name: str) -> None:
    """To shared memory of the cluster: integers only, signalled on an mbarrier."""
    kind = i.mods[-1]
    known = {"reduce", "async", "bulk", "shared::cluster", "shared::cta", "mbarrier::complete_tx::bytes", name}
    if set(i.mods[:-1]) - known or kind not in ("s32", "u32", "b32", "u64", "s64", "b64"):
        raise w.refuse()
    target, source, size, barrier = w.operands(4)
    w.effect(w.call(rt.bulk_peer, "w", address(w, target, "shared"), address(w, source, "shared"), w.read(size, 32),
                    address(w, barrier, "shared"), w.bind(_reduction(w, name, kind)), str(TYPE_BITS[kind] // 8), "$m",
                    str(i.line)))  # fmt: skip


def _reduction(w: Writer, name: str, kind: str) -> integers.Operation:
    bits = TYPE_BITS[kind]
    if kind in ("f16", "bf16", "f32", "f64"):
        if name == "add":
            return floats.add(kind)
        if name in ("min", "max"):
            return floats.extreme(kind, name == "max")
        raise w.refuse()
    if name in ("min", "max"):
        return integers.extreme(bits, kind[0] == "s", name == "max")
    if name in ("inc", "dec"):
        return wrapping(w, name, bits)
    table: dict[str, integers.Operation] = {
        "add": lambda o, b: o + b, "and": lambda o, b: o & b, "or": lambda o, b: o | b, "xor": lambda o, b: o ^ b,
    }  # fmt: skip
    if name not in table:
        raise w.refuse()
    return table[name]


def _launch_control(w: Writer, i: Instruction) -> None:
    mods = i.mods
    if mods[0] == "try_cancel":
        target, barrier = w.operands(2)
        space = space_of(w, mods)
        multicast = "multicast::cluster::all" in mods
        w.effect(w.call(rt.try_cancel, "w", address(w, target, space), address(w, barrier, space),
                        str(space == "generic"), str(multicast), "$m", str(i.line)))  # fmt: skip
    elif mods[:2] == ("query_cancel", "is_canceled"):
        # The answer is 16 zero bytes when nothing was cancelled, which is the only answer given here.
        d, source = w.operands(2)
        w.write(d, w.call(_not_zero, w.read(source, 128)), 1)
    elif mods[:1] == ("query_cancel",) and mods[1].startswith("get_first_ctaid"):
        d, source = w.operands(2)
        del source
        for target in vector(d):
            w.write(target, "0", 32)
    else:
        raise w.refuse()


def _not_zero(value: Value) -> Value:
    return (value != 0).any(axis=1) if value.__class__ is not int else value != 0


EMITTERS: dict[str, Emitter] = {"cp": _cp, "clusterlaunchcontrol": _launch_control}
