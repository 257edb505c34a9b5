"""The command ``blasdx``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; its packages are the extra ``cli``."""
    try:
        from blasdx.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        sys.exit(f"the command line needs {missing.name}: pip install 'blasdx[cli]'")
    app()
