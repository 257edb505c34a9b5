"""Matrices from and to ``.npy`` files, exactly those that are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


class NotAnArrayError(Exception):
    """A file that holds no matrix that can be read."""


def load(path: Path) -> np.ndarray[Any, Any]:
    """The array in a file. NumPy stores bfloat16, which it does not know, as two opaque bytes.

    Raises
    ------
    NotAnArrayError
        The file is empty, cut short, an archive, holds Python objects, or is something else.
    OSError
        It cannot be opened.
    """
    import ml_dtypes

    with path.open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            raise NotAnArrayError(f"{path} is no .npy file; numpy.save writes one")
        file.seek(0)
        try:
            matrix = np.lib.format.read_array(file, allow_pickle=False)
        except (ValueError, EOFError, MemoryError, OverflowError) as error:  # MemoryError: a header of absurd extents
            raise NotAnArrayError(f"{path} cannot be read as .npy: {' '.join(str(error).split())}") from error
    return matrix.view(ml_dtypes.bfloat16) if matrix.dtype == np.dtype("V2") else matrix


def save(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Write an array; into an open file, as NumPy adds ``.npy`` to names without it."""
    with path.open("wb") as file:
        np.save(file, array)
