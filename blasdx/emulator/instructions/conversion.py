"""mov, cvt, cvta and the packing they do (PTX ISA 9.7.9)."""

from __future__ import annotations

from blasdx.emulator import conversions as rt
from blasdx.emulator import wgmma
from blasdx.emulator.ir import TYPE_BITS, Instruction, Pair, Reg, Sym, Vec
from blasdx.emulator.translate import Emitter, Writer, vector
from blasdx.emulator.windows import GENERIC

_INTEGERS = frozenset(("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"))
_FLOATS = frozenset(("f16", "bf16", "f32", "f64"))
_SMALL = frozenset(("e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "ue8m0"))
_ROUNDING = frozenset(("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "rs"))


def _mov(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    if len(i.mods) != 1 or i.mods[0] not in TYPE_BITS:
        raise w.refuse()
    bits = TYPE_BITS[i.mods[0]]
    accumulates = w.target == "sm_90a"  # registers may be those of a wgmma that is under way
    if isinstance(a, Vec):
        part = bits // len(a.items)
        parts = "(" + ", ".join(w.read(item, part) for item in a.items) + ")"
        if accumulates:
            w.write(d, w.call(wgmma.pack, "w", parts, str(part), str(i.line)), bits)
        else:
            w.write(d, w.call(rt.pack_many, parts, str(part)), bits)
    elif isinstance(d, Vec):
        part = bits // len(d.items)
        source = w.read(a, bits), str(bits), str(part)
        if accumulates:
            name = w.temp(w.call(wgmma.unpack, "w", *source, str(i.line)))
        else:
            name = w.temp(w.call(rt.unpack_many, *source))
        for k, item in enumerate(d.items):
            w.write(item, f"{name}[{k}]", part)
    elif isinstance(d, Pair):
        raise w.refuse()
    elif isinstance(a, Sym):
        w.write(d, w.address_of(a), bits)
    else:
        w.write(d, w.read(a, bits), bits)


def _cvta(w: Writer, i: Instruction) -> None:
    d, a = w.operands(2)
    to = i.mods[0] == "to"
    spaces = [m for m in i.mods if m not in ("to", "u64", "u32")]
    if len(spaces) != 1 or i.mods[-1] != "u64":
        raise w.refuse()
    space = spaces[0].removesuffix("::cta").removesuffix("::cluster").removesuffix("::entry")
    if space not in GENERIC:
        raise w.refuse()
    base = GENERIC[space]
    value = w.read(a, 64)
    if not base:
        w.write(d, value, 64)
    elif to:
        w.write_wrapped(d, f"{value} - {base}", 64)
    else:
        w.write_wrapped(d, f"{value} + {base}", 64)


def _cvt(w: Writer, i: Instruction) -> None:
    if len(i.mods) < 2:
        raise w.refuse()
    if i.mods[0] == "pack":
        _pack_integers(w, i)
        return
    *mods, target, source = i.mods
    extra = set(mods)
    mode = next((m for m in mods if m in _ROUNDING), "")
    rest = extra - _ROUNDING - {"ftz", "sat", "relu", "satfinite"}
    if rest:
        raise w.refuse()
    if mode == "rs":
        _stochastic(w, target, source, extra)
    elif target.removesuffix("x2") in _SMALL or source.removesuffix("x2") in _SMALL:
        _small(w, target, source, mode, extra)
    elif target in ("f16x2", "bf16x2") and source == "f32":
        _pack_pair(w, i, target.removesuffix("x2"), mode, extra)
    elif source in _INTEGERS and target in _INTEGERS:
        _integers(w, target, source, "sat" in extra)
    elif source in _INTEGERS and target in _FLOATS:
        d, a = w.operands(2)
        bits = TYPE_BITS[source]
        function = rt.integer_to_float(bits, source[0] == "s", target, mode or "rn")
        w.write(d, w.call(function, w.read(a, bits)), TYPE_BITS[target])
    elif source in _FLOATS and target in _INTEGERS:
        d, a = w.operands(2)
        if mode not in ("rni", "rzi", "rmi", "rpi"):
            raise w.malformed("an integer rounding mode is needed")
        bits = TYPE_BITS[target]
        function = rt.float_to_integer(source, bits, target[0] == "s", mode, "ftz" in extra)
        w.write(d, w.call(function, w.read(a, TYPE_BITS[source])), bits, signed=target[0] == "s")
    elif source in _FLOATS and target in _FLOATS | {"tf32"}:
        d, a = w.operands(2)
        function = rt.float_to_float(source, target, mode, "ftz" in extra, "sat" in extra, "relu" in extra)
        if "satfinite" in extra:
            function = rt.satfinite(function, target)
        w.write(d, w.call(function, w.read(a, TYPE_BITS[source])), TYPE_BITS[target])
    else:
        raise w.refuse()


def _pack_pair(w: Writer, i: Instruction, kind: str, mode: str, extra: set[str]) -> None:
    d, high, low = w.operands(3)
    function = rt.float_to_float("f32", kind, mode, "ftz" in extra, False, "relu" in extra)
    if "satfinite" in extra:
        function = rt.satfinite(function, kind)
    del i
    w.write(d, w.call(rt.pack, w.call(function, w.read(low, 32)), w.call(function, w.read(high, 32)), "16"), 32)


def _small(w: Writer, target: str, source: str, mode: str, extra: set[str]) -> None:
    """Pairs of 8-, 6- and 4-bit floats, to and from pairs of wider ones."""
    relu = "relu" in extra
    to, element = target.removesuffix("x2"), source.removesuffix("x2")
    if element in _SMALL:
        if to not in ("f16", "bf16") or not target.endswith("x2"):
            raise w.refuse()
        d, a = w.operands(2)
        four = element == "e2m1"
        value = w.read(a, 8 if four else 16)
        parts = w.temp(w.call(rt.unpack_nibbles, value) if four else w.call(rt.unpack_many, value, "16", "8"))
        function = rt.decode_small(element, to, relu)
        low, high = (w.call(function, f"{parts}[{k}]") for k in range(2))
        w.write(d, w.call(rt.pack, low, high, "16"), 32)
        return
    if mode not in ("rn", "rz", "rp") or (mode == "rn") == (to == "ue8m0"):
        raise w.malformed("rounding .rn is needed, .rz or .rp for ue8m0")
    function = rt.encode_small(to, element, "rn" if mode == "rn" else "rz" if mode == "rz" else "rp", relu,
                               "satfinite" in extra)  # fmt: skip
    if source == "f32":
        d, a, b = w.operands(3)
        low, high = w.call(function, w.read(b, 32)), w.call(function, w.read(a, 32))
    elif source in ("f16x2", "bf16x2"):
        d, a = w.operands(2)
        parts = w.temp(w.call(rt.unpack_many, w.read(a, 32), "32", "16"))
        low, high = (w.call(function, f"{parts}[{k}]") for k in range(2))
    else:
        raise w.refuse()
    if to == "e2m1":
        w.write(d, w.call(rt.pack_nibbles, low, high), 8)
    else:
        w.write(d, w.call(rt.pack, low, high, "8"), 16)


def _stochastic(w: Writer, target: str, source: str, extra: set[str]) -> None:
    """cvt.rs: pairs of 16-bit floats with 13 or 16 random bits each, fours of 8- and 6-bit ones with 8.

    Where the bits of a word belong: figures of PTX ISA 9.7.9.22 as FlashInfer reads them; of the fours it measured
    e4m3x4 on Blackwell, where every second element takes its byte in reverse. The figure of e2m1x4 is another one.
    """
    relu, saturate = "relu" in extra, "satfinite" in extra
    if source != "f32":
        raise w.refuse()
    if target in ("f16x2", "bf16x2"):
        d, high, low, random = w.operands(4)
        function = rt.stochastic(target.removesuffix("x2"), 13 if target == "f16x2" else 16, relu, saturate)
        word = w.temp(w.read(random, 32))
        halves = (w.call(function, w.read(v, 32), f"({word} >> {s})") for v, s in ((low, 0), (high, 16)))
        w.write(d, w.call(rt.pack, *halves, "16"), 32)
    elif target in ("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4") and saturate:
        d, values, random = w.operands(3)
        items = vector(values)
        if len(items) != 4:
            raise w.malformed("four values are needed")
        function = rt.stochastic(target.removesuffix("x4"), 8, relu, True)
        word = w.temp(w.read(random, 32))
        reverse = w.bind(rt.reverse_byte())
        bits = (f"({word} >> 8)", f"{reverse}({word})", f"({word} >> 24)", f"{reverse}({word} >> 16)")
        codes = ", ".join(w.call(function, w.read(v, 32), b) for v, b in zip(reversed(items), bits, strict=True))
        w.write(d, w.call(rt.pack_many, f"({codes})", "8"), 32)
    else:
        raise w.refuse("which random bits belong to which element is not established")


def _pack_integers(w: Writer, i: Instruction) -> None:
    """cvt.pack.sat."""
    match i.mods:
        case ("pack", "sat", ("u16" | "s16") as kind, "s32"):
            d, a, b = w.operands(3)
            c = "0"
        case ("pack", "sat", ("u8" | "s8" | "u4" | "s4" | "u2" | "s2") as kind, "s32", "b32"):
            d, a, b, last = w.operands(4)
            c = w.read(last, 32)
        case _:
            raise w.refuse()
    function = rt.pack_saturated(int(kind[1:]), kind[0] == "s")
    w.write(d, w.call(function, w.read(a, 32), w.read(b, 32), c), 32)


def _integers(w: Writer, target: str, source: str, sat: bool) -> None:
    d, a = w.operands(2)
    source_bits, target_bits = TYPE_BITS[source], TYPE_BITS[target]
    value = w.read(a, source_bits)
    if sat:
        function = rt.saturate_integer(source_bits, source[0] == "s", target_bits, target[0] == "s")
        value = w.call(function, value)
    elif isinstance(a, Reg) or source_bits != target_bits:
        extend = "sign_extend" if source[0] == "s" else "zero_extend"
        value = f"{extend}({value}, {source_bits}, {target_bits})"
    w.write(d, value, target_bits, signed=target[0] == "s")


EMITTERS: dict[str, Emitter] = {"mov": _mov, "cvta": _cvta, "cvt": _cvt}
