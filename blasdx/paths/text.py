"""Reports and refusals as text for a terminal: aligned columns, arithmetic with units, fixes to paste."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from blasdx.descriptor import Descriptor
from blasdx.operators import SM, Kind, Size
from blasdx.paths.common import pair
from blasdx.paths.rules import PATHS, Finding

if TYPE_CHECKING:
    from blasdx.paths.report import PathReport

WIDTH = 120
INSTRUCTION = {"utcmma": "tcgen05", "wgmma": "wgmma", "supermma": "mma.sync", "any": "general"}
_ARCHITECTURE_GATE = "sm"


def title(descriptor: Descriptor) -> str:
    """A descriptor in a few words: "Size<192,256,64> bf16 on SM 1000"."""
    size, sm = descriptor.get(Size), descriptor.get(SM)
    extents = f"Size<{size.m},{size.n},{size.k}>" if size else "No Size,"
    kind = "complex " if descriptor.type is Kind.complex else ""
    return f"{extents} {kind}{pair(descriptor.precision)} on {f'SM {sm.arch}' if sm else 'no SM'}"


def report(answer: PathReport) -> str:
    """The path first, then every gate of the paths down to it, then notes and what is missing here."""
    lines = [f"{answer.path}   {title(answer.descriptor)}", ""]
    rules = answer.gates_of("any")
    if not all(finding.met for finding in rules):
        lines += [*_section("rules of every path", rules), ""]
    for path in PATHS[: PATHS.index(answer.path) + 1]:
        gates = answer.gates_of(path)
        if gates:
            lines += [*_path(path, gates, answer.path), ""]
    if answer.notes:
        lines += [*_section("notes", answer.notes, marks=("ok", "note")), ""]
    lines += [f"  unsupported so far: {gap}" for gap in answer.gaps]
    return "\n".join(lines).rstrip()


def refusal(answer: PathReport, required: str) -> str:
    """What `check(require=...)` raises with: verdict and count, every miss, and the joint fix."""
    misses = answer.misses(required)
    rows = _rows(misses, marks=None)
    return "\n".join(
        [
            f"{title(answer.descriptor)} lands on {answer.path}: {_count(answer, required)}",
            "",
            *rows,
            *_joint(answer, required),
        ]
    )


def _count(answer: PathReport, required: str) -> str:
    general = sum(not finding.met for finding in answer.gates_of("any"))
    own = answer.gates_of(required)
    missed = sum(not finding.met for finding in own)
    parts = []
    if general:
        parts.append(f"{general} rule{'s' * (general > 1)} of every path broken")
    if missed or not general:
        parts.append(f"{missed} of {len(own)} {INSTRUCTION[required]} gate{'s' * (len(own) > 1)} missed")
    return ", ".join(parts)


def _joint(answer: PathReport, required: str) -> list[str]:
    """The operators of the joint fix, where there is more than one miss to fix."""
    if len(answer.misses(required)) < 2 or required not in ("utcmma", "wgmma"):
        return []
    fixed = answer.fixed(required)
    if fixed is None:
        return []
    changed = [operator for operator in fixed.operators if operator not in answer.descriptor.operators]
    return ["", f"  together: .with_({', '.join(map(str, changed))})"]


def _path(path: str, gates: Sequence[Finding], landing: str) -> list[str]:
    sm = next((finding for finding in gates if finding.gate == _ARCHITECTURE_GATE), None)
    if sm is not None and not sm.met and landing != path and _elsewhere(sm):
        return [f"  {path}: {sm.why}"]
    missed = sum(not finding.met for finding in gates)
    verdict = f"{missed} of {len(gates)} missed" if missed else f"all {len(gates)} met"
    return _section(f"{path} ({INSTRUCTION[path]} gates): {verdict}", gates)


def _elsewhere(sm: Finding) -> bool:
    """Whether the path is one of another architecture altogether, so that its other gates say nothing."""
    given, fix = sm.got.partition(",")[0].rstrip(")"), (sm.fixes[0] if sm.fixes else "").partition(",")[0].rstrip(")")
    return sm.got.startswith("SM(") and given != fix


def _section(heading: str, findings: Sequence[Finding], marks: tuple[str, str] | None = ("met", "MISSED")) -> list[str]:
    return [f"  {heading}", *_rows(findings, marks, indent="    ")]


def _rows(findings: Sequence[Finding], marks: tuple[str, str] | None, indent: str = "  ") -> list[str]:
    """One row a finding; a missed one is followed by its reason and its fix."""
    mark_width = max(map(len, marks)) + 2 if marks else 0
    id_width = max(len(finding.gate) for finding in findings) + 3
    got_width = max(len(finding.got) for finding in findings) + 3
    rest = " " * (len(indent) + mark_width + id_width)
    lines = []
    for finding in findings:
        mark = marks[0 if finding.met else 1].ljust(mark_width) if marks else ""
        lines.append(f"{indent}{mark}{finding.gate:<{id_width}}{finding.got:<{got_width}}needs {finding.need}")
        if not finding.met or (marks and marks[0] == "ok"):
            lines += [rest + line for line in wrap(finding.why, WIDTH - len(rest))]
            lines += [rest + line for line in wrap(_fix(finding), WIDTH - len(rest), break_long_words=False)]
    return lines


def _fix(finding: Finding) -> str:
    told = finding.hint if finding.met else " or ".join((*finding.fixes, *filter(None, [finding.hint])))
    if not told:
        return ""
    return f"fix: {told}" if not finding.met else told
