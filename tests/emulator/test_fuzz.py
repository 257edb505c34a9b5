"""Whatever text, arguments and shapes are given: an EmulationError or a launch that ends, never anything else.

BLASDX_FUZZ=100 tries a hundred times as much.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blasdx.emulator import EmulationError, GlobalMemory, Module, TensorMap
from tests.emulator.families import kernel
from tests.emulator.test_family_copies import DONE, LOAD, SHARED, STORE, map_kernel, setup, wait
from tests.emulator.toolchain import ptx, source

SCALE = int(os.environ.get("BLASDX_FUZZ", "1"))
LIMIT = 20_000  # warp-instructions


def attempt(text: str, args: Any = None, **shape: Any) -> None:
    """Parse and launch; only the emulator's own errors may come out."""
    with suppress(EmulationError):
        module = Module.from_ptx(text)
        for name in module.entries:
            function = module.get_function(name)
            given = args if args is not None else [np.zeros(128, np.uint8) if p.size == 8 else bytes(p.size) for p in
                                                   function.parameters]  # fmt: skip
            options: dict[str, Any] = {"grid": (1, 1, 1), "block": (32, 1, 1), "dynamic_smem": 0} | shape
            function.launch(memory=GlobalMemory(), args=given, max_instructions=LIMIT, **options)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    body = setup() + LOAD + wait() + STORE + DONE
    small = kernel(
        "mov.u32 %r0, 0; L: add.u32 %r0, %r0, 1; setp.lt.u32 %q0, %r0, %l; @%q0 bra L;\n"
        "shfl.sync.bfly.b32 %r1|%q1, %r0, 1, 31, -1; { .reg .b32 %z; mov.b32 %z, 0f3F800000; add.rn.f32 %z, %z, %z; }\n"
        "mad.wide.u32 %d0, %t, 4, %p0; st.global.v2.b32 [%d0], {%r0, %r1};"
    )
    return [kernel(body, declarations=SHARED), small, ptx(source("gemm.cu")), map_kernel(setup(), parameters=1)]


@settings(max_examples=SCALE * 150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_modules(data: st.DataObject, texts: list[str]) -> None:
    """Tokens of a module deleted, doubled, swapped, or replaced by those of another."""
    index = data.draw(st.integers(0, len(texts) - 1))
    words = texts[index].split(" ")
    other = texts[data.draw(st.integers(0, len(texts) - 1))].split(" ")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(words) - 1))
        match data.draw(st.sampled_from(["drop", "double", "swap", "foreign", "cut", "number", "character"])):
            case "drop":
                words[at] = ""
            case "double":
                words[at] += " " + words[at]
            case "swap":
                there = data.draw(st.integers(0, len(words) - 1))
                words[at], words[there] = words[there], words[at]
            case "foreign":
                words[at] = data.draw(st.sampled_from(other))
            case "cut":
                words[at] = words[at][: len(words[at]) // 2]
            case "number":
                words[at] = str(data.draw(st.integers(-(1 << 66), 1 << 66))) + (";" if words[at].endswith(";") else ",")
            case "character":
                words[at] += data.draw(st.characters(max_codepoint=0x2FF))
    attempt(" ".join(words))


@settings(max_examples=SCALE * 100, suppress_health_check=list(HealthCheck))
@given(st.text(st.sampled_from(list('.{}[]();,:%@!|+-0x9fFdD"\\/*\n abregU<>=_$')), max_size=80))
def test_arbitrary_text(text: str) -> None:
    attempt(text)
    attempt(".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{\n" + text + "\n}\n")


@settings(max_examples=SCALE * 60, suppress_health_check=list(HealthCheck))
@given(
    size=st.integers(0, 1200), grid=st.integers(-1, 4), block=st.integers(-1, 1100), cluster=st.integers(-1, 20),
    argument=st.sampled_from([None, 3, 2.5, "x", b"1234", np.float32(1), np.int64(7), []]),
    shared=st.integers(-5, 300_000),
)  # fmt: skip
def test_arbitrary_launches(
    size: int, grid: int, block: int, cluster: int, shared: int, argument: Any, texts: list[str]
) -> None:
    for value in (argument, np.zeros(size, np.uint8)):
        attempt(texts[1], [value], grid=(grid, 1, 1), block=(block, 1, 1), cluster=(cluster, 1, 1), dynamic_smem=shared)


@settings(max_examples=SCALE * 60, suppress_health_check=list(HealthCheck))
@given(st.binary(min_size=128, max_size=128), st.integers(0, 1023), st.integers(0, 255))
def test_arbitrary_tensor_maps(noise: bytes, bit: int, value: int) -> None:
    body = setup() + (
        "@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 128;\n"
        "@%q30 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r20],"
        " [%d40, {0, 0}], [%r21];\n"
    )
    text = map_kernel(body, parameters=1)
    attempt(text, [noise])
    memory = GlobalMemory()
    good = bytearray(TensorMap(memory.upload(np.zeros((8, 32), np.float32)), "f32", [32, 8], [128], [32, 1]).to_bytes())
    good[bit // 8] ^= 1 << bit % 8 | value & 1
    attempt(text, [bytes(good)])
