"""A kernel around tcgen05 instructions: shared and tensor memory come from the host, tensor memory goes back to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.emulator.families import kernel, launch

MODES = {"none": 0, "128B": 2, "64B": 4, "32B": 6}
DECLARATIONS = (
    ".shared .align 1024 .b8 box[{size}]; .shared .align 8 .b64 loaded; .shared .align 8 .b64 done; .shared .b32 slot;"
)


@dataclass(frozen=True)
class Operand:
    """A matrix in shared memory: its bytes, its descriptor for a start of 0, and how K steps move the start."""

    image: np.ndarray
    descriptor: int
    steps: tuple[int, ...]


def swizzled(offset: np.ndarray, mode: str) -> np.ndarray:
    """XOR on address bits 7-9."""
    return offset ^ ((offset >> 7 & {"none": 0, "32B": 1, "64B": 3, "128B": 7}[mode]) << 4)


def operand(codes: np.ndarray, mode: str = "128B", *, mn_major: bool = False, step: int = 0) -> Operand:
    """Lay (rows, K) codes of 1, 2 or 4 bytes out as the canonical layouts of PTX ISA 9.7.16.4 say."""
    rows, depth = codes.shape
    size = codes.dtype.itemsize
    r, k = np.indices(codes.shape)
    span = 16 if mode == "none" else int(mode[:-1])
    if not mn_major:
        kb = k * size
        if mode == "none":
            leading, stride = 16 * rows, 128
            offset = kb % 16 + kb // 16 * leading + r % 8 * 16 + r // 8 * stride
        else:
            leading, stride = 16, 8 * span
            offset = kb % span + r % 8 * span + r // 8 * stride
            assert depth * size <= span
    else:
        mb = r * size
        if mode == "none":
            stride, leading = 128 * (depth // 8), 128
            offset = mb % 16 + mb // 16 * stride + k % 8 * 16 + k // 8 * leading
        else:
            leading, stride = depth * span, 8 * span
            offset = mb % span + mb // span * leading + k % 8 * span + k // 8 * stride
    bytes_ = np.zeros(-(-(int(offset.max()) + size) // 1024) * 1024, np.uint8)
    places = swizzled(offset, mode)
    raw = np.ascontiguousarray(codes).view(np.uint8).reshape(rows, depth, size)
    for part in range(size):
        bytes_[places + part] = raw[:, :, part]
    descriptor = leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | MODES[mode] << 61
    advance = step or 32 // size
    return Operand(bytes_, descriptor, tuple(int(offset[0, first]) for first in range(0, depth, advance)))


@dataclass
class Tensor:
    """What a kernel is made of; `instructions` may name %dX for operands and %r30 for the allocated columns.

    Descriptors of operand i at step s are in %d{20 + 8 * i + s}; the instruction descriptor is in %r40.
    """

    operands: tuple[Operand, ...] = ()
    idesc: int = 0
    group: int = 1
    columns: int = 512

    def run(
        self,
        instructions: str,
        *,
        before: np.ndarray | None = None,
        images: list[np.ndarray] | None = None,
        read: int = 64,
        arch: str = "sm_100a",
        commit: bool = True,
        **options: Any,
    ) -> np.ndarray:
        """Tensor memory afterwards: (CTAs, 128 lanes, `read` columns) of 32-bit words.

        `before` (CTAs, 128, columns) is stored to it first; `images` are each CTA's shared memory, which is that of the
        operands when left out.
        """
        ctas = self.group
        starts, image = [], np.zeros(0, np.uint8)
        for each in self.operands:
            starts.append(len(image))
            image = np.concatenate([image, each.image])
        shared = np.stack(images if images is not None else [image] * ctas)
        if not shared.shape[1]:
            shared = np.zeros((ctas, 1024), np.uint8)
        first = np.zeros((ctas, 128, 8), np.uint32) if before is None else before
        out = np.zeros((ctas, 128, read), np.uint32)
        text = self.text(instructions, starts, shared.shape[1], first.shape[2], read, arch, commit, before is not None)
        arrays = np.ascontiguousarray(shared), np.ascontiguousarray(first), out
        result = launch(text, *arrays, block=128, grid=ctas, cluster=ctas, check="collect", **options)
        # The dump reads columns that nobody wrote, which is the one thing that may be wrong with it.
        errors = {h.kind for h in result.hazards if h.severity == "error"} - {"tensor-read-before-written"}
        assert not errors, result.hazards
        return out

    def text(
        self,
        instructions: str = "",
        starts: Sequence[int] = (),
        size: int = 1024,
        filled: int = 8,
        read: int = 4,
        arch: str = "sm_100a",
        commit: bool = False,
        fill: bool = False,
    ) -> str:
        """The PTX; `size` bytes of shared memory, `filled` columns stored first, `read` columns read at the end."""
        g = f"cta_group::{self.group}"
        sync = "bar.sync 0;" if self.group == 1 else "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
        descriptors = ""
        for i, (each, start) in enumerate(zip(self.operands, starts, strict=True)):
            for s, step in enumerate(each.steps):
                descriptors += (
                    f"add.u32 %r1, %r20, {start + step}; shr.u32 %r1, %r1, 4; and.b32 %r1, %r1, 0x3fff;"
                    f" cvt.u64.u32 %d{20 + 8 * i + s}, %r1; or.b64 %d{20 + 8 * i + s}, %d{20 + 8 * i + s},"
                    f" {each.descriptor:#x};\n"
                )
        cast = ".multicast::cluster" if self.group == 2 else ""
        signal = (
            f"tcgen05.commit.{g}.mbarrier::arrive::one.shared::cluster{cast}.b64 [%r22]{', %h1' if cast else ''};\n"
            "WAIT: "
        )
        store = (
            f"mov.u32 %r2, 0; mad.lo.u32 %r3, %rank, 128, %t; mul.lo.u32 %r3, %r3, {4 * filled}; cvt.u64.u32 %d1, %r3;"
            " add.u64 %d1, %d1, %p1;\nFILL: ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d1];"
            " add.u32 %r8, %r31, %r2; tcgen05.st.sync.aligned.32x32b.x4.b32 [%r8], {%r4, %r5, %r6, %r7};"
            f" add.u64 %d1, %d1, 16; add.u32 %r2, %r2, 4; setp.lt.u32 %q1, %r2, {filled}; @%q1 bra FILL;\n"
            "tcgen05.wait::st.sync.aligned;\n"
        )
        return kernel(
            "mov.u32 %r20, box; mov.u32 %r21, loaded; mov.u32 %r22, done; setp.eq.u32 %q30, %t, 0;"
            " setp.eq.and.u32 %q28, %rank, 0, %q30; mov.u16 %h1, 3;\n"
            "@%q30 mbarrier.init.shared::cta.b64 [%r21], 1; @%q30 mbarrier.init.shared::cta.b64 [%r22], 1;\n"
            f"@%q30 fence.mbarrier_init.release.cluster;\n{sync}\n"
            f"setp.ne.u32 %q2, %w, 0; @%q2 bra ALLOCATED;\n"
            f"tcgen05.alloc.{g}.sync.aligned.shared::cta.b32 [slot], {self.columns};"
            f" tcgen05.relinquish_alloc_permit.{g}.sync.aligned;\nALLOCATED:\n"
            f"tcgen05.fence::before_thread_sync; {sync} tcgen05.fence::after_thread_sync;\n"
            "ld.shared.u32 %r30, [slot]; shl.b32 %r31, %w, 21; add.u32 %r31, %r31, %r30;\n"
            f"@%q30 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], {size};\n"
            f"mul.wide.u32 %d2, %rank, {size}; add.u64 %d2, %d2, %p0;\n"
            f"@%q30 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%d2], {size}, [%r21];\n"
            "LOADED: mbarrier.try_wait.parity.shared::cta.b64 %q29, [%r21], 0; @!%q29 bra LOADED;\n"
            + (store if fill else "")
            + f"tcgen05.fence::before_thread_sync; {sync} tcgen05.fence::after_thread_sync;\n"
            f"@!%q28 bra ISSUED;\nmov.u32 %r40, {self.idesc:#x};\n{descriptors}{instructions}\n"
            + (signal.removesuffix("WAIT: ") if commit else "")
            + "ISSUED:\n"
            + ("WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q29, [%r22], 0; @!%q29 bra WAIT;\n" if commit else sync)
            + "tcgen05.fence::after_thread_sync;\n"
            f"mov.u32 %r2, 0; mad.lo.u32 %r3, %rank, 128, %t; mul.lo.u32 %r3, %r3, {4 * read}; cvt.u64.u32 %d1, %r3;"
            " add.u64 %d1, %d1, %p2;\nDUMP: add.u32 %r8, %r31, %r2;"
            " tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r4, %r5, %r6, %r7}, [%r8]; tcgen05.wait::ld.sync.aligned;"
            " st.global.v4.b32 [%d1], {%r4, %r5, %r6, %r7}; add.u64 %d1, %d1, 16; add.u32 %r2, %r2, 4;"
            f" setp.lt.u32 %q1, %r2, {read}; @%q1 bra DUMP;\n"
            f"tcgen05.fence::before_thread_sync; {sync}\n@%q2 bra FREED;\n"
            f"tcgen05.dealloc.{g}.sync.aligned.b32 %r30, {self.columns};\nFREED:\n",
            3,
            arch=arch,
            declarations=DECLARATIONS.format(size=size),
        )
