"""Machine code as evidence: which instructions a cubin really holds."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from functools import cached_property
from pathlib import Path

from cuda.pathfinder import find_nvidia_binary_utility
from pydantic import BaseModel, ConfigDict

from blasdx.errors import SassError

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


class Sass(BaseModel):
    """Disassembled machine code; ``text`` is what nvdisasm printed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str

    @classmethod
    def of(cls, cubin: bytes) -> Sass:
        """Disassemble a cubin with nvdisasm.

        Raises
        ------
        SassError
            When nvdisasm is missing or does not read the cubin.
        """
        tool = find_nvidia_binary_utility("nvdisasm")
        if tool is None:
            raise SassError("nvdisasm is not installed: pip install 'blasdx[sass]' brings it")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.cubin"
            path.write_bytes(cubin)
            done = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SassError(f"nvdisasm does not read the cubin: {done.stderr.strip()}")
        return cls(text=done.stdout)

    @cached_property
    def opcodes(self) -> Counter[str]:
        """How often each opcode occurs, without its modifiers: ``UTCHMMA``, ``LDTM``, ``UTMALDG``."""
        return Counter(opcode.split(".")[0] for opcode in _INSTRUCTION.findall(self.text))

    def count(self, pattern: str) -> int:
        """How many instructions have an opcode that the regular expression matches as a whole."""
        return sum(number for opcode, number in self.opcodes.items() if re.fullmatch(pattern, opcode))

    def require(self, pattern: str, *, count: int | None = None) -> int:
        """Return how many instructions match; at least one, or exactly ``count``.

        Raises
        ------
        SassError
            When there are none or not that many.
        """
        found = self.count(pattern)
        if found == 0 or count not in (None, found):
            wanted = "at least one" if count is None else str(count)
            similar = ", ".join(f"{n} x {opcode}" for opcode, n in sorted(self.opcodes.items()) if "MMA" in opcode)
            raise SassError(
                f"the machine code holds {found} instructions matching {pattern}, wanted {wanted}; "
                f"matrix instructions in it: {similar or 'none'}",
                pattern=pattern,
            )
        return found

    def forbid(self, pattern: str) -> None:
        """Raise `SassError` when an instruction matches."""
        if found := self.count(pattern):
            raise SassError(
                f"the machine code holds {found} instructions matching {pattern}, wanted none", pattern=pattern
            )
