"""Write docs/gates.md from the gate catalogue: ``python tools/gates_doc.py`` (``--check`` only compares)."""

from __future__ import annotations

import sys
from pathlib import Path

from blasdx.descriptor import Descriptor
from blasdx.paths import CATALOGUE, Gate
from blasdx.paths.rules import Query, Verdict
from blasdx.paths.supermma.gates import FIRST_SM
from blasdx.paths.utcmma.limits import CARD
from blasdx.paths.wgmma import gates as wgmma

TARGET = Path(__file__).parent.parent / "docs" / "gates.md"

HEADINGS = {
    "any": (
        "Rules of every path",
        "A descriptor that misses one of these lands on `unsupported`. An illegal field is refused before that.",
    ),
    "utcmma": ("utcmma", "tcgen05 on SM 1000, 1030, 1070 and 1100. All gates met: the descriptor lands here."),
    "wgmma": ("wgmma", "wgmma on SM 900. All gates met, and not utcmma: the descriptor lands here."),
    "supermma": (
        "supermma",
        "mma.sync. What misses its gate too runs on the ordinary cores: `fma`, which has no gate.",
    ),
}

INTRO = """\
# Gates

<!-- Written by tools/gates_doc.py from the catalogue in blasdx/paths; do not edit. -->

A path is an instruction class. A descriptor lands on the first of `utcmma`, `wgmma`, `supermma` and `fma` whose gates
it meets, and cuBLASDx says nothing when that is a slower one than was meant. `blasdx.check(descriptor)` names the path
and every gate, met or missed; `check(descriptor, require="utcmma")` raises `GateError` with every miss at once;
`report.fixed("utcmma")` is the nearest descriptor that lands there.

Examples are changes to the Blackwell card's own descriptor, which meets every gate of utcmma:

```
{card}
```

For wgmma it is the same with `SM(900, arch_specific)`.
"""


def document() -> str:
    """The whole page."""
    parts = [INTRO.format(card=_lines(CARD))]
    for path, gates in CATALOGUE.items():
        heading, text = HEADINGS[path]
        room = "rule" if path == "any" else path
        base = wgmma.CARD if path == "wgmma" else CARD
        parts += [f"## {heading}\n\n{text}\n", _index(room, gates), *(_gate(room, gate, base) for gate in gates)]
        if path == "supermma":
            parts.append(_first_sm())
    return "\n".join(parts)


def _lines(descriptor: Descriptor) -> str:
    return "\n+ ".join(map(repr, descriptor.operators))


def _index(room: str, gates: tuple[Gate, ...]) -> str:
    rows = "\n".join(f"| [`{gate.id}`](#{room}-{gate.id}) | {gate.rule} |" for gate in gates)
    return f"| gate | rule |\n|---|---|\n{rows}\n"


def _gate(room: str, gate: Gate, base: Descriptor) -> str:
    kind = "\n*Advice: a miss is a note in the report and does not change the path.*\n" if gate.advisory else ""
    return f"""\
### {room}: {gate.id}

**{gate.title}.** {gate.rule}
{kind}
{gate.why} *Source: {gate.source}.*

| example | | |
|---|---|---|
{_examples(gate, base)}
"""


def _examples(gate: Gate, base: Descriptor) -> str:
    rows = [(query, "met") for query in gate.passing] + [(query, "missed") for query in gate.failing]
    return "\n".join(
        f"| {_change(query, base)} | {word} | {_reason(gate, gate.judge(query))} |" for query, word in rows
    )


def _reason(gate: Gate, verdict: Verdict) -> str:
    return verdict.why if verdict.why != gate.why else ""


def _change(query: Query, base: Descriptor) -> str:
    """What the example changes in the card's descriptor."""
    operators = query.descriptor.operators
    changed = [repr(operator) for operator in operators if operator not in base.operators]
    kept = {type(operator) for operator in operators}
    changed += [f"without {type(operator).__name__}" for operator in base.operators if type(operator) not in kept]
    specs = [f"{name} of {spec.dtype}" for name, spec in (("a", query.a), ("b", query.b)) if spec]
    return ", ".join(f"`{change}`" for change in changed + specs) or "the card's"


def _first_sm() -> str:
    rows = "\n".join(f"| {element} | {number} |" for element, number in FIRST_SM.items())
    return f"First SM with an mma.sync for each type:\n\n| type | SM |\n|---|---|\n{rows}\n"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; the exit status says whether it was current."""
    text = document()
    if arguments == ["--check"]:
        return 0 if TARGET.exists() and TARGET.read_text() == text else 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
