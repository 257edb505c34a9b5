"""What ptxas takes and the emulator does not execute is refused by name, with its line, and only when it is reached."""

from __future__ import annotations

import numpy as np
import pytest

from blasdx.emulator import UnsupportedInstruction
from tests.emulator.families import kernel, launch

MAP = ".reg .f32 %f<8>; mov.u32 %r0, 0; mov.u16 %h0, 0; mov.u16 %h1, 0;\n"
REFUSED = [
    "vadd.s32.s32.s32 %r1, %r0, %r0;",
    "vabsdiff4.u32.u32.u32.add %r1, %r0, %r0, %r0;",
    "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%p0], {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, 16;",
    "tex.2d.v4.f32.f32 {%f0,%f1,%f2,%f3}, [%p0, {%f4,%f5}];",
    "suld.b.1d.b32.trap %r1, [%p0, {%r0}];",
    "multimem.ld_reduce.global.add.f32 %f0, [%p0];",
    "multimem.red.release.gpu.global.add.u32 [%p0], %r0;",
    "alloca.u64 %d0, 16;",
    "fma.rn.oob.bf16x2 %r1, %r0, %r0, %r0;",
    "isspacep.const %q0, %p0;",
    "cvt.rs.satfinite.e2m1x4.f32 %h0, {%f0,%f1,%f2,%f3}, %r0;",
    "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%p0, {%r0,%r0,%r0,%r0}], [%r0];",
    (
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r0,%r0,%r0},"
        " {%r0,%r0,%r0,%r0}, {%f0,%f1,%f2,%f3}, %r0, 0;"
    ),
    "tcgen05.mma.ws.sp.cta_group::1.kind::f16 [%r0], %p0, %p0, [%r0], %r0, %q0;",
]


@pytest.mark.parametrize("text", REFUSED)
def test_refused_by_name_and_line(text: str) -> None:
    source = kernel(MAP + f"setp.eq.u32 %q0, %t, %t; @!%q0 bra OVER;\n{text}\nOVER:")
    with pytest.raises(UnsupportedInstruction) as caught:
        launch(source, np.zeros(1024, np.uint8))
    assert caught.value.opcode == text.split()[0]
    assert source.splitlines()[caught.value.line - 1].startswith(caught.value.opcode)  # type: ignore[operator]
    launch(source.replace("@!%q0", "@%q0"), np.zeros(1024, np.uint8), check=False)
