"""How the hazard monitor names what it found: kinds, agents, places, and what was missing."""

from __future__ import annotations

from collections.abc import Callable

from blasdx.emulator.ordering import Operation
from blasdx.emulator.records import Record

TENSOR_CORE = ("mma", "cp", "shift", "wgmma")


def conflict_kind(space: str, old: Record, old_reads: bool, new_writes: bool) -> str:
    """Kind of two conflicting accesses that nothing orders."""
    return _shared_kind(old, old_reads, new_writes) if space == "shared" else _tensor_kind(old, old_reads, new_writes)


def _shared_kind(old: Record, old_reads: bool, new_writes: bool) -> str:
    if old_reads:
        who = "mma-reads" if old.engine in TENSOR_CORE else "store-reads" if old.engine else "read"
        return f"shared-overwritten-while-{who}"
    complete = "load-complete" if old.engine else "write-published"
    return f"shared-{'overwritten' if new_writes else 'read'}-before-{complete}"


def _tensor_kind(old: Record, old_reads: bool, new_writes: bool) -> str:
    if old_reads:
        return f"tensor-overwritten-while-{'load' if old.engine == 'tcgen05.ld' else 'mma'}-reads"
    complete = "store-complete" if old.engine == "tcgen05.st" else "commit"
    return f"tensor-{'overwritten' if new_writes else 'read'}-before-{complete}"


def cure(old: Record) -> str:
    """What would have ordered a later access after `old`."""
    agent = old.agent
    if not isinstance(agent, Operation):
        return (
            "an mbarrier arrival by that warp and a wait for its phase, or a bar.sync of both, is needed between them"
        )
    if agent.engine == "tma-store":
        return "cp.async.bulk.wait_group.read by the issuing thread is needed first"
    if agent.engine == "tcgen05.ld":
        return "tcgen05.wait::ld and a thread synchronisation are needed first"
    if agent.engine == "tcgen05.st":
        return "tcgen05.wait::st and a thread synchronisation are needed first"
    if agent.engine == "wgmma":
        return "wgmma.wait_group is needed first"
    if agent.engine in TENSOR_CORE:
        return "a wait for the mbarrier of a tcgen05.commit issued after it is needed first"
    signalled = ", ".join(_key_name(key) for key in agent.keys) or "the mbarrier that it signals"
    return f"a wait for {signalled} is needed first"


def _key_name(key: tuple[object, ...]) -> str:
    if key[0] == "mbarrier" and isinstance(key[2], int):
        return f"phase {key[3]} of the mbarrier at {key[2]:#x}"
    return " ".join(map(str, key))


def who(record: Record, describe: Callable[[int], str]) -> str:
    """Agent and place in the program."""
    name = f"{record.engine} of {record.warp.name}" if record.engine else record.warp.name
    return f"{name} ({describe(record.line)})"


def place(space: str, mask: int) -> str:
    """Smallest range that holds all bits of `mask`."""
    low, high = (mask & -mask).bit_length() - 1, mask.bit_length()
    if space == "shared":
        return f"shared memory {low * 16:#x} to {high * 16 - 1:#x}"
    columns = tensor_columns(mask)
    first, last = (columns & -columns).bit_length() - 1, columns.bit_length() - 1
    return f"tensor-memory columns {first} to {last}"


def tensor_columns(mask: int) -> int:
    """Columns of a tensor-memory mask in any of its eight lane groups, as bits."""
    mask |= mask >> 2048
    mask |= mask >> 1024
    mask |= mask >> 512
    return mask & ((1 << 512) - 1)


def tensor_mask(columns: int) -> int:
    """These columns in all eight lane groups."""
    columns |= columns << 512
    columns |= columns << 1024
    return columns | columns << 2048
