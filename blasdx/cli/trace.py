"""A launch's time line in the Trace Event Format, which Perfetto and chrome://tracing open.

One process a CTA, one thread a track: warps with their waits, the copy engine, the tensor core, the phases of each
mbarrier and the rounds of each named barrier. An executed warp-instruction of the launch is one microsecond. Operations
of one engine overlap: those that do get threads of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from blasdx.emulator import TraceEvent

_TRACK = re.compile(r"cta (\d+) (.+)")
_OPCODE = re.compile(r"\b(?:mbarrier|barrier|bar|cp|tcgen05|wgmma|griddepcontrol)\.[a-z0-9_]+")
_ORDER = ("warp", "tma", "cp.async", "tensor core", "barrier", "mbarrier")


def chrome_trace(events: Sequence[TraceEvent], ptx: str, names: Mapping[str, str]) -> dict[str, Any]:
    """The JSON document.

    Parameters
    ----------
    events : sequence of TraceEvent
    ptx : str
        The module's text, for the instruction beside each event.
    names : mapping
        ``"warp 4"`` or ``"mbarrier 0x400"`` to what it is called.
    """
    lines = ptx.splitlines()
    out: list[dict[str, Any]] = []
    threads: dict[tuple[int, str, int], int] = {}
    free: dict[tuple[int, str], list[int]] = {}  # track: when each of its threads is free again
    for event in sorted(events, key=lambda e: (e.start, e.stop)):
        cta, track = _split(event.track)
        ends = free.setdefault((cta, track), [])
        row = next((k for k, end in enumerate(ends) if end <= event.start), len(ends))
        duration = max(event.stop - event.start, 1)
        if row == len(ends):
            ends.append(0)
        ends[row] = event.start + duration
        thread = threads.setdefault((cta, track, row), len(threads) + 1)
        text = lines[event.line - 1].strip() if 0 < event.line <= len(lines) else ""
        name = _named(event.name, names)
        if event.name.startswith("wait") and (opcode := _OPCODE.search(text)):
            name = f"wait: {opcode[0]}{name.removeprefix('wait')}"
        out.append(
            {
                "ph": "X", "name": name, "cat": track.split(" ")[0], "ts": event.start,
                "dur": duration, "pid": cta, "tid": thread, "args": {"ptx line": event.line, "ptx": text},
            }
        )  # fmt: skip
    for (cta, track, row), thread in threads.items():
        label = f"{track} ({names[track]})" if track in names else track
        label += f" #{row + 1}" if row else ""
        out.append({"ph": "M", "name": "thread_name", "pid": cta, "tid": thread, "args": {"name": label}})
        order = next((k for k, kind in enumerate(_ORDER) if track.startswith(kind)), len(_ORDER))
        out.append({"ph": "M", "name": "thread_sort_index", "pid": cta, "tid": thread, "args": {"sort_index": order}})
    for cta in sorted({key[0] for key in threads}):
        out.append({"ph": "M", "name": "process_name", "pid": cta, "tid": 0, "args": {"name": f"CTA {cta}"}})
    return {"traceEvents": out, "displayTimeUnit": "ms", "otherData": {"unit": "1 us = 1 warp-instruction"}}


def _split(track: str) -> tuple[int, str]:
    found = _TRACK.fullmatch(track)
    return (int(found[1]), found[2]) if found else (0, track)


def _named(text: str, names: Mapping[str, str]) -> str:
    """Barriers by their names, longest address first."""
    for key in sorted(names, key=len, reverse=True):
        text = re.sub(rf"\b{re.escape(key)}\b", names[key].replace("\\", r"\\"), text)
    return text
