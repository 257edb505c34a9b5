"""What a report prints, pasted back."""

from __future__ import annotations

from typing import Any

import blasdx

NAMESPACE = {name: getattr(blasdx, name) for name in blasdx.__all__}


def pasted(text: str) -> Any:
    """The value of an expression under ``from blasdx import *``."""
    return eval(text, dict(NAMESPACE))  # noqa: S307
