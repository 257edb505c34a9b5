"""Stores and reductions that complete on an mbarrier, and tensor maps that kernels edit (PTX ISA 9.7.9, 9.7.13)."""

from __future__ import annotations

from blasdx.emulator import access, tensormap_edit
from blasdx.emulator import remote as rt
from blasdx.emulator.instructions import memory
from blasdx.emulator.instructions.memory import address, space_of, update
from blasdx.emulator.ir import TYPE_BITS, Instruction
from blasdx.emulator.translate import Emitter, Writer, vector


def _store(w: Writer, i: Instruction) -> None:
    """st, st.bulk and st.async."""
    if i.mods[:1] == ("bulk",):
        _fill(w, i)
        return
    if i.mods[:1] != ("async",):
        memory.EMITTERS["st"](w, i)
        return
    kind = i.mods[-1]
    count = next((int(m[1:]) for m in i.mods if m in ("v2", "v4")), 1)
    known = {"async", "weak", "shared::cluster", "mbarrier::complete_tx::bytes", "v2", "v4", kind}
    if set(i.mods) - known or "mbarrier::complete_tx::bytes" not in i.mods or TYPE_BITS.get(kind, 0) not in (32, 64):
        raise w.refuse()
    target, values, barrier = w.operands(3)
    bits = TYPE_BITS[kind]
    items = vector(values)
    if len(items) != count:
        raise w.malformed(f"{len(items)} sources for {count} element(s)")
    texts = ", ".join(w.read(o, bits) for o in items)
    w.effect(w.call(rt.store, "w", address(w, target, "shared"), str(bits // 8), f"({texts},)",
                    address(w, barrier, "shared"), "$m", str(i.line)))  # fmt: skip


def _fill(w: Writer, i: Instruction) -> None:
    """st.bulk: zeros."""
    target, size, value = w.operands(3)
    if set(i.mods) - {"bulk", "weak", "shared::cta"} or w.static(value) != 0:
        raise w.refuse("only zeros can be stored")
    space = space_of(w, i.mods)
    w.effect(w.call(access.fill, "w", repr(space), address(w, target, space), w.read(size, 64), "$m", str(i.line)))


def _reduce(w: Writer, i: Instruction) -> None:
    """red, and red.async."""
    if i.mods[:1] != ("async",):
        memory.EMITTERS["red"](w, i)
        return
    kind = i.mods[-1]
    name = next((m for m in i.mods if m in ("inc", "dec", "min", "max", "add", "and", "or", "xor")), "")
    known = {"async", "relaxed", "cluster", "shared::cluster", "mbarrier::complete_tx::bytes", name, kind}
    if set(i.mods) - known or not name or TYPE_BITS.get(kind, 0) not in (32, 64):
        raise w.refuse()
    target, value, barrier = w.operands(3)
    bits = TYPE_BITS[kind]
    w.effect(w.call(rt.reduce, "w", address(w, target, "shared"), str(bits // 8), w.read(value, bits),
                    w.bind(update(w, name, kind)), address(w, barrier, "shared"), "$m", str(i.line)))  # fmt: skip


def _tensormap(w: Writer, i: Instruction) -> None:
    if i.mods[0] == "cp_fenceproxy":
        expected = {"cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"}
        if set(i.mods) - {"cta", "cluster", "gpu", "sys"} != expected:
            raise w.refuse()
        target, source, size = w.operands(3)
        if w.static(size) != tensormap_edit.BYTES:
            raise w.malformed("the size is 128")
        arguments = (address(w, target, "global"), address(w, source, "shared"))
        w.effect(w.call(tensormap_edit.copy, "w", *arguments, str(i.line)))
        return
    field = i.mods[2] if len(i.mods) > 2 else ""
    if i.mods[:2] != ("replace", "tile") or field not in tensormap_edit.FIELDS or "b1024" not in i.mods:
        raise w.refuse()
    bits, _ = tensormap_edit.FIELDS[field]
    if i.mods[-1] != f"b{bits}":
        raise w.malformed(f".b{bits} is the type of {field}")
    where, *rest = w.operands(3 if field in tensormap_edit.INDEXED else 2)
    index = w.static(rest.pop(0)) if len(rest) == 2 else 0
    if not 0 <= index <= 4:
        raise w.malformed(f"dimension {index}; 0 to 4 are legal")
    space = space_of(w, i.mods)
    if space not in ("global", "shared", "generic"):
        raise w.refuse()
    w.effect(w.call(tensormap_edit.replace, "w", repr(space), address(w, where, space), repr(field), str(index),
                    w.read(rest[0], bits), "$m", str(i.line)))  # fmt: skip


EMITTERS: dict[str, Emitter] = {"st": _store, "red": _reduce, "tensormap": _tensormap}
