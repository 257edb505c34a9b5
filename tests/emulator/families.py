"""Small PTX kernels for the tests of instruction families: assembled by ptxas, run by the emulator, compared in bits.

Expected values come from each test's own NumPy code, written from the definition of the instruction.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from cuda.bindings import nvjitlink

from blasdx.emulator import GlobalMemory, LaunchResult, Module

HEADER = ".version 9.0\n.target {arch}\n.address_size 64\n"


@lru_cache(maxsize=256)
def assemble(text: str, arch: str = "sm_100a") -> str:
    """The PTX itself, once ptxas (inside nvJitLink) has made a cubin of it."""
    data = text.encode() + b"\0"
    handle = nvjitlink.create(2, [f"-arch={arch}", "-O0"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "test")
        nvjitlink.complete(handle)
        assert nvjitlink.get_linked_cubin_size(handle) > 0
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(max(nvjitlink.get_error_log_size(handle), 2))
        nvjitlink.get_error_log(handle, log)
        numbered = "\n".join(f"{n:4} {line}" for n, line in enumerate(text.splitlines(), 1))
        raise AssertionError(f"{bytes(log).decode()}\n{numbered}") from error
    finally:
        nvjitlink.destroy(handle)
    return text


def kernel(body: str, parameters: int = 1, *, arch: str = "sm_100a", declarations: str = "", module: str = "") -> str:
    """An entry `k` with pointers p0, p1, ... in %p0, %p1, ..., thread %t, lane %l, warp %w, cluster rank %rank."""
    names = ", ".join(f".param .u64 p{n}" for n in range(parameters))
    loads = "\n".join(f"ld.param.u64 %p{n}, [p{n}];" for n in range(parameters))
    registers = f".reg .b64 %p<{parameters}>;" if parameters else ""
    return assemble(
        f"{HEADER.format(arch=arch)}{module}\n.visible .entry k({names})\n{{\n"
        f"{registers}\n.reg .pred %q<32>;\n.reg .b16 %h<64>;\n.reg .b32 %r<160>;\n.reg .b64 %d<64>;\n"
        ".reg .b128 %x<8>;\n"
        f".reg .b32 %t, %l, %w, %rank;\n{declarations}\n{loads}\n"
        "mov.u32 %t, %tid.x;\nmov.u32 %l, %laneid;\nshr.u32 %w, %t, 5;\nmov.u32 %rank, %cluster_ctarank;\n"
        f"{body}\nret;\n}}\n",
        arch,
    )


def launch(text: str, *args: Any, block: int = 32, grid: int = 1, cluster: int = 1, **options: Any) -> LaunchResult:
    """Run the entry; arrays are pointers and are updated in place."""
    memory = options.pop("memory", None) or GlobalMemory()
    function = Module.from_ptx(text).get_function("k")
    options.setdefault("sms", cluster)
    return function.launch(
        grid=(grid, 1, 1), block=(block, 1, 1), cluster=(cluster, 1, 1), memory=memory, args=args, **options
    )


class Case(NamedTuple):
    """PTX that computes %d, and what every lane has to find in it."""

    text: str
    want: Any


def check(inputs: dict[str, Any], cases: list[Case], arch: str = "sm_100a") -> None:
    """Run each case with a lane for each element of the inputs, which are in registers of their names: %a, %b, ...

    A NaN is right whatever its payload; everything else has to agree in every bit.
    """
    lanes = len(next(iter(inputs.values())))
    body = ["mul.wide.u32 %d0, %t, 16;"]
    declarations = []
    for n, (name, values) in enumerate(inputs.items()):
        size = values.dtype.itemsize
        declarations.append(f".reg .b{max(8 * size, 16)} %{name};")
        body += [f"mad.wide.u32 %d1, %t, {size}, %p{n};", f"ld.global.b{8 * size} %{name}, [%d1];"]
    wanted = [np.broadcast_to(np.asarray(case.want), (lanes,)) for case in cases]
    for n, (case, want) in enumerate(zip(cases, wanted, strict=True), len(inputs)):
        size = want.dtype.itemsize
        body += [
            "{", f".reg .b{max(8 * size, 16)} %d; .reg .b64 %at; .reg .pred %p, %q; .reg .b32 %u, %v; .reg .b64 %y;",
            case.text, f"mad.wide.u32 %at, %t, {size}, %p{n};", f"st.global.b{8 * size} [%at], %d;", "}",
        ]  # fmt: skip
    text = kernel("\n".join(body), len(inputs) + len(cases), arch=arch, declarations="\n".join(declarations))
    outputs = [np.zeros(lanes, want.dtype) for want in wanted]
    launch(text, *inputs.values(), *outputs, block=lanes)
    for case, want, got in zip(cases, wanted, outputs, strict=True):
        bits = f"u{want.dtype.itemsize}"
        same = got.view(bits) == np.ascontiguousarray(want).view(bits)
        if want.dtype.kind not in "iu":
            same |= np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
        if not same.all():
            at = int(np.flatnonzero(~same)[0])
            given = {name: values[at] for name, values in inputs.items()}
            raise AssertionError(
                f"{case.text}\n{int((~same).sum())} of {lanes} lanes differ; lane {at}: {given} gives {got[at]!r} "
                f"({got.view(bits)[at]:#x}), wanted {want[at]!r} ({np.ascontiguousarray(want).view(bits)[at]:#x})"
            )


def corner_words(bits: int, count: int, seed: int) -> np.ndarray:
    """Random words with the corners of the range among them."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << bits, count, dtype=np.uint64).astype(f"u{bits // 8}")
    top = 1 << bits - 1
    corners = [0, 1, 2, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 0x55 % (2 * top), 31, 32, 33 % (2 * top)]
    words[rng.permutation(count)[: len(corners)]] = corners
    return words
