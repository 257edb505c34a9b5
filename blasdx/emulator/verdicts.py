"""What is wrong with two accesses to the same memory, judged by what the later agent knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from blasdx.emulator import wording
from blasdx.emulator.findings import Severity
from blasdx.emulator.ordering import BEFORE_FENCE, CONSUMER_FENCE, WRITER_FENCE, Clock
from blasdx.emulator.records import Record

_TENSOR_ACCESS = ("tcgen05.ld", "tcgen05.st")


class Verdict(NamedTuple):
    """One broken rule."""

    severity: Severity
    kind: str
    missing: str


def verdicts(space: str, old_reads: bool, old: Record, new: Record, clock: Clock, write: bool) -> Iterator[Verdict]:
    """Broken rules between `old` and `new`, which overlap and of which one writes.

    `clock` is what the agent of `new` knew when it started, `write` whether it writes. What can change a result is an
    error; a contract that production kernels break without harm is a warning.
    """
    if old.component == new.component or old.agent is new.agent:
        return
    if old.ordered(clock):
        if space == "shared" and not old.engine and not old_reads and not write and new.engine:
            yield from _proxy(old, new, clock)
        if space == "tensor" or new.engine in ("mma", "cp"):
            yield from _tcgen05_fences(old, new, clock)
    elif old.engine == "tcgen05.ld" and clock.get(old.warp.component, 0) >= old.issued:
        missing = "tcgen05.wait::ld is missing before the columns are handed over"
        yield Verdict("warning", "tensor-load-not-waited", missing)
    elif old.engine == "tcgen05.st" and new.engine in _TENSOR_ACCESS and old.warp is new.warp:
        yield Verdict("warning", "tensor-store-not-waited", "tcgen05.wait::st is missing between the two")
    else:
        yield Verdict("error", wording.conflict_kind(space, old, old_reads, write), wording.cure(old))


def _proxy(old: Record, new: Record, clock: Clock) -> Iterator[Verdict]:
    """A generic write that an asynchronous operation reads."""
    if clock.get(old.component + WRITER_FENCE, 0) >= old.epoch:
        return
    if clock.get(old.component + CONSUMER_FENCE, 0) >= old.epoch:
        missing = "fence.proxy.async ran on the reader's side only; every writer should run it before the barrier"
        yield Verdict("warning", "proxy-fence-by-reader-only", missing)
    else:
        missing = "fence.proxy.async is missing: the writer must run it between its writes and the barrier"
        yield Verdict("error", "missing-proxy-fence", missing)


def _tcgen05_fences(old: Record, new: Record, clock: Clock) -> Iterator[Verdict]:
    """tcgen05 instructions on both sides of another thread synchronisation, or after one."""
    if old.warp is new.warp and old.engine in ("", *_TENSOR_ACCESS):
        return
    if not old.ordered(new.warp.after):
        missing = "tcgen05.fence::after_thread_sync is missing between the wait and the later instruction"
        yield Verdict("warning", "missing-tcgen05-fence-after", missing)
    elif old.engine in _TENSOR_ACCESS and clock.get(old.warp.component + BEFORE_FENCE, 0) < old.issued:
        missing = "tcgen05.fence::before_thread_sync is missing between the earlier instruction and the arrival"
        yield Verdict("warning", "missing-tcgen05-fence-before", missing)
