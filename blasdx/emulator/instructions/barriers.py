"""bar, barrier, mbarrier and fences (PTX ISA 9.7.13)."""

from __future__ import annotations

from blasdx.emulator import collective, tensormap_edit
from blasdx.emulator import synchronisation as rt
from blasdx.emulator.instructions.control import meet
from blasdx.emulator.instructions.memory import address, space_of
from blasdx.emulator.ir import Instruction, Sink
from blasdx.emulator.translate import Emitter, Writer

_SEMANTICS = frozenset(
    [
        "acquire",
        "release",
        "relaxed",
        "acq_rel",
        "sc",
        "cta",
        "cluster",
        "gpu",
        "sys",
        "b64",
        "shared",
        "shared::cta",
        "shared::cluster",
        "sem",
    ]
)


def _bar(w: Writer, i: Instruction) -> None:
    """bar and barrier, for a CTA, a warp or the cluster."""
    mods = [m for m in i.mods if m not in ("cta", "aligned")]
    match mods:
        case ["sync"]:
            number, *count = w.operands(1, 2)
            threads = w.read(count[0], 32) if count else "None"
            w.line(w.call(rt.bar_sync, "w", w.read(number, 32), threads, "$next", str(i.line)))
        case ["arrive"]:
            number, threads_operand = w.operands(2)
            w.effect(w.call(rt.bar_arrive, "w", w.read(number, 32), w.read(threads_operand, 32), str(i.line)))
        case ["red", ("popc" | "and" | "or") as name, _]:
            d, number, *count, predicate = w.operands(3, 4)
            threads = w.read(count[0], 32) if count else "None"
            w.line(
                w.call(rt.bar_reduce, "w", repr(name), str(w.destination(d)), w.read(number, 32), threads,
                       w.read(predicate, 1), "$next", str(i.line))
            )  # fmt: skip
        case ["warp", "sync"]:
            meet(w, i, collective.nothing, (), w.operands(1)[0], ())
        case ["cluster", "arrive", *rest] if set(rest) <= {"release", "relaxed"}:
            w.effect(w.call(rt.cluster_arrive, "w", str(i.line)))
        case ["cluster", "wait", *rest] if set(rest) <= {"acquire"}:
            w.line(w.call(rt.cluster_wait, "w", "$next", str(i.line)))
        case _:
            raise w.refuse()


def _mbarrier(w: Writer, i: Instruction) -> None:
    operation, *rest = i.mods
    space = space_of(w, tuple(rest))
    if space not in ("shared", "generic"):
        raise w.refuse()
    generic = str(space == "generic")
    extra = set(rest) - _SEMANTICS
    line = str(i.line)
    match operation:
        case "init" if not extra:
            bar_, count = w.operands(2)
            w.effect(w.call(rt.init, "w", address(w, bar_, space), generic, w.read(count, 32), "$m", line))
        case "inval" if not extra:
            w.effect(w.call(rt.invalidate, "w", address(w, w.operands(1)[0], space), generic, "$m", line))
        case "expect_tx" if not extra:
            bar_, count = w.operands(2)
            w.effect(w.call(rt.expect, "w", address(w, bar_, space), generic, w.read(count, 32), "$m", line))
        case "complete_tx" if not extra:
            bar_, count = w.operands(2)
            w.effect(w.call(rt.complete, "w", address(w, bar_, space), generic, w.read(count, 32), "$m", line))
        case "arrive" | "arrive_drop":
            _arrive(w, i, operation == "arrive_drop", extra, space, generic)
        case "pending_count" if not extra:
            d, state = w.operands(2)
            w.write(d, f"zero_extend({w.read(state, 64)} >> 32, 32, 32)", 32)
        case "test_wait" | "try_wait" if extra <= {"parity"}:
            d, bar_, wanted, *_ = w.operands(3, 4)
            bits = 32 if "parity" in extra else 64
            function = rt.test_wait if operation == "test_wait" else rt.try_wait
            w.line(
                w.call(function, "w", str(w.destination(d)), address(w, bar_, space), generic, w.read(wanted, bits),
                       str("parity" in extra), "$next", line)
            )  # fmt: skip
        case _:
            raise w.refuse()


def _arrive(w: Writer, i: Instruction, drop: bool, extra: set[str], space: str, generic: str) -> None:
    """With or without the state it returns, a count, and expected bytes."""
    if extra - {"expect_tx", "noComplete"}:
        raise w.refuse()
    operands = list(i.operands)
    state = operands.pop(0) if operands and not hasattr(operands[0], "base") else Sink()
    bar_, *counts = operands
    count, tx = "1", "0"
    if "expect_tx" in extra:
        if len(counts) != 1:
            raise w.malformed("the number of expected bytes is needed")
        tx = w.read(counts[0], 32)
    elif counts:
        count = w.read(counts[0], 32)
    call = w.call(rt.arrive, "w", address(w, bar_, space), generic, count, tx, str(drop), "$m", str(i.line))
    if isinstance(state, Sink):
        w.effect(call)
    else:
        w.write(state, w.loaded(call), 64)


def _fence(w: Writer, i: Instruction) -> None:
    mods = i.mods
    if mods[:3] == ("proxy", "tensormap::generic", "acquire"):
        where, size = w.operands(2)
        if w.static(size) != tensormap_edit.BYTES:
            raise w.malformed("the size is 128")
        w.effect(w.call(tensormap_edit.acquire, "w", address(w, where, "generic"), "$m"))
    kind = ""
    if mods[0] == "proxy" and any(m.startswith("async") for m in mods):
        kind = "proxy.async"
    elif mods[0] == "proxy" and any(m.startswith(("tensormap", "alias")) for m in mods):
        kind = "proxy.tensormap"
    elif mods[0] == "mbarrier_init":
        kind = "mbarrier_init"
    elif set(mods) <= {"acq_rel", "sc", "acquire", "release", "cta", "cluster", "gpu", "sys",
                       "sync_restrict::shared::cta", "sync_restrict::shared::cluster"}:  # fmt: skip
        kind = "memory.gpu" if {"gpu", "sys"} & set(mods) else "memory"
    else:
        raise w.refuse()
    w.effect(w.call(rt.fence, "w", repr(kind), str(i.line)))


def _membar(w: Writer, i: Instruction) -> None:
    kind = "memory" if i.mods == ("cta",) else "memory.gpu"
    w.effect(w.call(rt.fence, "w", repr(kind), str(i.line)))


EMITTERS: dict[str, Emitter] = {
    "bar": _bar,
    "barrier": _bar,
    "mbarrier": _mbarrier,
    "fence": _fence,
    "membar": _membar,
}
