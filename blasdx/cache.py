"""Compiled kernels on disk, and in memory where the disk takes none.

The files are cuda.core's: each is written beside its place and renamed into it, without a lock, so that any number of
processes may start at once and a killed one leaves nothing that another would read. What is read is checked against a
digest, whatever the file system did to it. A folder that fails costs one warning and nothing else.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import platformdirs
from cuda.core.utils import FileStreamProgramCache

Entry = Mapping[str, bytes]
"""What is kept under one key: contents by the ending of the file's name."""

ATTEMPTS = 3
"""How often a file is tried where a network file system calls its handle stale."""

_DIGEST = "sha256"
_Result = TypeVar("_Result")


def cache_folder() -> Path:
    """Where compiled kernels are kept: ``BLASDX_CACHE_DIR``, otherwise the user's cache folder."""
    chosen = os.environ.get("BLASDX_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("blasdx")


def read(key: str, endings: tuple[str, ...]) -> Entry | None:
    """What was written under a key, or None where it is missing, incomplete or damaged."""
    folder = cache_folder()
    kept = _this_process().kept.get((folder, key))
    if kept is not None:
        return kept
    store = _store(folder)
    if store is None:
        return None
    try:
        found = {ending: _retried(store.get, f"{key}.{ending}") for ending in (*endings, _DIGEST)}
    except OSError:
        return None
    digest = found.pop(_DIGEST)
    entry = {ending: content for ending, content in found.items() if content is not None}
    return entry if len(entry) == len(endings) and digest == _digest(entry) else None


def write(key: str, entry: Entry) -> None:
    """Keep an entry on disk; where that fails, in the memory of this process."""
    folder = cache_folder()
    store = _store(folder)
    try:
        if store is not None:
            for ending, content in {**entry, _DIGEST: _digest(entry)}.items():
                _retried(store.__setitem__, f"{key}.{ending}", content)
            return
    except OSError as error:
        _complain(folder, f"blasdx could not write to its cache in {folder}: {error}")
    _this_process().kept[folder, key] = entry


@contextmanager
def one_at_a_time(key: str) -> Iterator[None]:
    """Let one thread of this process at a time look a key up and make what is missing."""
    process = _this_process()
    with process.guard:
        lock = process.in_flight[key]
    with lock:
        yield


@dataclass
class _Process:
    """What one process knows besides its disk."""

    kept: dict[tuple[Path, str], Entry] = field(default_factory=dict)
    complaints: set[Path] = field(default_factory=set)
    guard: threading.Lock = field(default_factory=threading.Lock)
    in_flight: defaultdict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))


@functools.cache
def _process(number: int) -> _Process:
    return _Process()


def _this_process() -> _Process:
    # By number: a child must not wait for a lock that another thread of its parent held at the fork.
    return _process(os.getpid())


def _store(folder: Path) -> FileStreamProgramCache | None:
    try:
        return FileStreamProgramCache(path=folder)
    except OSError as error:
        _complain(folder, f"blasdx compiles without a cache: {folder} cannot be used ({error})")
        return None


def _digest(entry: Entry) -> bytes:
    parts = (f"{ending} {len(content)}\n".encode() + content for ending, content in sorted(entry.items()))
    return hashlib.sha256(b"".join(parts)).hexdigest().encode()


def _retried(call: Callable[..., _Result], *arguments: object) -> _Result:
    for _ in range(ATTEMPTS - 1):
        try:
            return call(*arguments)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return call(*arguments)


def _complain(folder: Path, text: str) -> None:
    """Warn, once a process and folder."""
    complaints = _this_process().complaints
    if folder not in complaints:
        complaints.add(folder)
        advice = "kernels are kept in memory as long as this process lives; BLASDX_CACHE_DIR names another folder"
        warnings.warn(f"{text}; {advice}", stacklevel=5)
