"""Write the golden kernels anew. Review the diff as code before committing it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.golden.cases import CASES, FOLDER, rendered  # the checkout has to be on the path first


def main() -> None:
    texts = {name: rendered(name) for name in CASES}
    for stale in FOLDER.glob("*.cu"):
        stale.unlink()
    for name, text in texts.items():
        (FOLDER / f"{name}.cu").write_text(text, encoding="utf-8")
        print(f"tests/golden/{name}.cu")


if __name__ == "__main__":
    main()
