"""Loads, stores, atomics, matrix loads and stores (PTX ISA 9.7.9, 9.7.13.13)."""

from __future__ import annotations

from blasdx.emulator import access as rt
from blasdx.emulator import floats, integers, matrix_access
from blasdx.emulator.ir import TYPE_BITS, Instruction, Mem, Operand, Sym
from blasdx.emulator.lanes import Value, select
from blasdx.emulator.translate import Emitter, Writer, vector

_SPACES = {
    "global": "global", "const": "global", "shared": "shared", "shared::cta": "shared", "shared::cluster": "shared",
    "local": "local", "param": "param", "param::entry": "param",
}  # fmt: skip
# Qualifiers without effect on values: caching, eviction, scopes.
_HINTS = frozenset(
    [
        "ca",
        "cg",
        "cs",
        "lu",
        "cv",
        "wb",
        "wt",
        "nc",
        "cta",
        "cluster",
        "gpu",
        "sys",
        "weak",
        "mmio",
        "L1::evict_normal",
        "L1::evict_unchanged",
        "L1::evict_first",
        "L1::evict_last",
        "L1::no_allocate",
        "L2::evict_normal",
        "L2::evict_first",
        "L2::evict_last",
        "L2::64B",
        "L2::128B",
        "L2::256B",
        "L2::cache_hint",
        "noftz",
    ]
)
_ORDERS = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel"))


def space_of(w: Writer, mods: tuple[str, ...]) -> str:
    """The state space among the qualifiers."""
    found = [m for m in mods if m in _SPACES]
    if len(found) > 1:
        raise w.refuse()
    return _SPACES[found[0]] if found else "generic"


def address(w: Writer, operand: Operand, space: str) -> str:
    """The source of a memory operand's address."""
    if not isinstance(operand, Mem) or operand.rest:
        raise w.malformed("an address in brackets is needed")
    bits = 32 if space in ("shared", "shared::cta", "shared::cluster") else 64
    if isinstance(operand.base, Sym):
        symbol = Sym(operand.base.name, operand.base.offset + operand.offset)
        variable, _ = w.variables.get(symbol.name, (None, 0))
        if variable is None:
            raise w.refuse(f"the address of {symbol.name} cannot be taken")
        found = w.address_of(symbol)
        if space == "generic" and variable.space == "shared":
            raise w.malformed("a generic address is needed, the operand names a shared variable")
        return found
    base = w.read(operand.base, bits)
    if not operand.offset:
        return base
    return f"({base} + {operand.offset})" if operand.offset > 0 else f"({base} - {-operand.offset})"


def _element(w: Writer, i: Instruction) -> tuple[str, int, int, str]:
    """Space, bytes an element, elements, and type of ld or st."""
    kind = i.mods[-1]
    if kind not in TYPE_BITS or kind == "pred":
        raise w.refuse()
    count = next((int(m[1:]) for m in i.mods if m in ("v2", "v4", "v8")), 1)
    unknown = [m for m in i.mods[:-1] if m not in _SPACES and m not in _HINTS and m not in _ORDERS and m[:1] != "v"]
    if unknown:
        raise w.refuse(f"qualifier .{unknown[0]}")
    return space_of(w, i.mods), TYPE_BITS[kind] // 8, count, kind


def _order(i: Instruction) -> str:
    return next((m for m in i.mods if m in _ORDERS), "")


def _load(w: Writer, i: Instruction) -> None:
    d, source, *_ = w.operands(2, 3)
    space, size, count, kind = _element(w, i)
    targets = vector(d)
    if len(targets) != count:
        raise w.malformed(f"{len(targets)} destinations for {count} element(s)")
    call = w.call(rt.load, "w", repr(space), address(w, source, space), str(size), str(count), "$m", str(i.line),
                  repr(_order(i)))  # fmt: skip
    found = w.loaded(call, count if count > 1 else 0)
    for k, target in enumerate(targets):
        w.write(target, f"{found}[{k}]" if count > 1 else found, 8 * size, signed=kind[0] == "s")


def _store(w: Writer, i: Instruction) -> None:
    target, d, *_ = w.operands(2, 3)
    space, size, count, _ = _element(w, i)
    sources = vector(d)
    if len(sources) != count:
        raise w.malformed(f"{len(sources)} sources for {count} element(s)")
    values = ", ".join(w.read(s, 8 * size) for s in sources)
    w.effect(w.call(rt.store, "w", repr(space), address(w, target, space), str(size), f"({values},)", "$m",
                    str(i.line), repr(_order(i))))  # fmt: skip


def _exchange(old: Value, b: Value) -> Value:
    del old
    return b


def _compare_and_swap(bits: int) -> integers.Operation:
    def operation(old: Value, b: Value, c: Value) -> Value:
        return select(old == b, c, old, bits)

    return operation


def wrapping(w: Writer, name: str, bits: int) -> integers.Operation:
    """inc and dec."""
    if bits != 32:
        raise w.refuse()
    full = 0xFFFFFFFF

    def increment(old: Value, b: Value) -> Value:
        return select(old >= b, 0, (old + 1) & full, 32)

    def decrement(old: Value, b: Value) -> Value:
        return select((old == 0) | (old > b), b, (old - 1) & full, 32)

    return increment if name == "inc" else decrement


def update(w: Writer, name: str, kind: str) -> integers.Operation:
    """new = f(old, operand) of an atomic."""
    bits = TYPE_BITS[kind]
    mask = (1 << bits) - 1
    if name == "exch":
        return _exchange
    if name == "cas":
        return _compare_and_swap(bits)
    if name in ("and", "or", "xor"):
        return {"and": lambda o, b: o & b, "or": lambda o, b: o | b, "xor": lambda o, b: o ^ b}[name]
    if kind in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2"):
        element = kind.removesuffix("x2")
        if name == "add":
            function = floats.add(element)
        elif name in ("min", "max"):
            function = floats.extreme(element, name == "max")
        else:
            raise w.refuse()
        return floats.packed(function, element) if kind.endswith("x2") else function
    if name == "add":
        return lambda o, b: (o + b) & mask if (o + b).__class__ is int else o + b
    if name in ("min", "max"):
        return integers.extreme(bits, kind[0] == "s", name == "max")
    if name in ("inc", "dec"):
        return wrapping(w, name, bits)
    raise w.refuse()


_OPERATIONS = frozenset(["exch", "cas", "and", "or", "xor", "add", "min", "max", "inc", "dec"])


def _atomic(w: Writer, i: Instruction) -> None:
    """atom and red; code generators disagree about where the type stands."""
    kind = next((m for m in reversed(i.mods) if m in TYPE_BITS), "")
    name = next((m for m in i.mods if m in _OPERATIONS), "")
    count = next((int(m[1:]) for m in i.mods if m in ("v2", "v4", "v8")), 1)
    unknown = set(i.mods) - {name, kind, "v2", "v4", "v8"} - _HINTS - _ORDERS - set(_SPACES)
    if not name or kind not in TYPE_BITS or unknown or "async" in i.mods:
        raise w.refuse()
    operands = list(i.operands)
    d = operands.pop(0) if i.base == "atom" else None
    if "L2::cache_hint" in i.mods:
        operands.pop()
    if len(operands) != (3 if name == "cas" else 2):
        raise w.malformed(f"{len(i.operands)} operands")
    bits = TYPE_BITS[kind]
    space = space_of(w, i.mods)
    where = address(w, operands[0], space)
    columns = [vector(o) for o in operands[1:]]
    if any(len(c) != count for c in columns):
        raise w.malformed(f"vectors of {count} elements are needed")
    values = ", ".join("(" + ", ".join(w.read(c[k], bits) for c in columns) + ",)" for k in range(count))
    call = w.call(rt.atomic, "w", repr(space), where, str(bits // 8), f"({values},)", w.bind(update(w, name, kind)),
                  "$m", str(i.line), repr(_order(i)))  # fmt: skip
    if d is None:
        w.effect(call)
        return
    found = w.loaded(call, count if count > 1 else 0)
    targets = vector(d)
    for k, target in enumerate(targets):
        w.write(target, f"{found}[{k}]" if count > 1 else found, bits)


def _matrix(w: Writer, i: Instruction) -> None:
    """ldmatrix and stmatrix; qualifier order varies between code generators."""
    form = _matrix_form(w, i)
    first, second = w.operands(2)
    space = space_of(w, i.mods)
    generic = str(space == "generic")
    if space not in ("shared", "generic"):
        raise w.refuse()
    registers = vector(first if i.base == "ldmatrix" else second)
    if len(registers) != form.registers:
        raise w.malformed(f"{len(registers)} registers, {form.registers} are needed")
    if i.base == "ldmatrix":
        where = address(w, second, space)
        found = w.loaded(
            w.call(matrix_access.load, "w", w.bind(form), where, generic, "$m", str(i.line)), len(registers)
        )
        for k, target in enumerate(registers):
            w.write(target, f"{found}[{k}]", 32)
    else:
        values = "(" + ", ".join(w.read(s, 32) for s in registers) + ",)"
        where = address(w, first, space)
        w.effect(w.call(matrix_access.store, "w", w.bind(form), where, generic, values, "$m", str(i.line)))


def _matrix_form(w: Writer, i: Instruction) -> matrix_access.Form:
    shape = next((m for m in i.mods if m in ("m8n8", "m16n16", "m8n16", "m16n8")), "")
    count = next((int(m[1:]) for m in i.mods if m in ("x1", "x2", "x4")), 0)
    transpose = "trans" in i.mods
    kind = ".".join(m for m in i.mods if m in ("b16", "b8", "b8x16", "b6x16_p32", "b4x16_p64"))
    bits = {"b16": 16, "b8": 8, "b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}.get(kind, 0)
    known = {"sync", "aligned", shape, f"x{count}", "trans", "shared", "shared::cta", *kind.split(".")}
    legal = {
        "m8n8": bits == 16,
        "m16n16": 0 < bits <= 8 and transpose and count < 4 and i.base == "ldmatrix",
        "m8n16": bits in (4, 6) and not transpose and i.base == "ldmatrix",
        "m16n8": bits == 8 and transpose and i.base == "stmatrix",
    }.get(shape, False)
    if set(i.mods) - known or not count or not legal:
        raise w.refuse()
    return matrix_access.Form(shape, count, transpose, bits)


def _move_matrix(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    if set(i.mods) != {"sync", "aligned", "m8n8", "trans", "b16"}:
        raise w.refuse()
    w.write(d, w.loaded(w.call(matrix_access.transpose, "w", w.read(a, 32), "$m")), 32)


def _prefetch(w: Writer, i: Instruction) -> None:
    """Prefetches, discards and cache policies have no effect on values."""
    if i.base == "createpolicy":
        w.write(i.operands[0], "0", 64)


EMITTERS: dict[str, Emitter] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
    "ldmatrix": _matrix,
    "stmatrix": _matrix,
    "movmatrix": _move_matrix,
    "prefetch": _prefetch,
    "prefetchu": _prefetch,
    "discard": _prefetch,
    "applypriority": _prefetch,
    "createpolicy": _prefetch,
}
