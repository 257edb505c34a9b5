"""Reports and refusals as text for a terminal: aligned columns, arithmetic with units, fixes to paste."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from blasdx.descriptor import Descriptor
from blasdx.operators import SM, Kind, Size
from blasdx.paths.common import pair
from blasdx.paths.rules import GUARDED, PATHS, Finding, PathName

if TYPE_CHECKING:
    from blasdx.paths.report import PathReport

WIDTH = 120
INSTRUCTION: dict[str, str] = {"utcmma": "tcgen05", "wgmma": "wgmma", "supermma": "mma.sync"}
"""What the trade calls the instructions of a path."""

FIXABLE = ("utcmma", "wgmma")
"""Paths that `PathReport.fixed` climbs to."""

_MARKS = ("met", "MISSED")


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
        lines += ["  rules of every path", *_rows(rules, _MARKS), ""]
    for path in PATHS[: PATHS.index(answer.path) + 1]:
        gates = answer.gates_of(path)
        if gates:
            lines += [*_path(path, gates, answer.path), ""]
    if answer.notes:
        lines += ["  notes", *_rows(answer.notes, ("ok", "note"), reasons=True), ""]
    lines += [f"  unsupported so far: {gap}" for gap in answer.gaps]
    return "\n".join(lines).rstrip()


def refusal(answer: PathReport, required: str) -> str:
    """What `check(require=...)` raises with: verdict and count, every miss, and the joint fix."""
    verdict = f"{title(answer.descriptor)} lands on {answer.path}: {_count(answer, required)}"
    rows = _rows(answer.misses(required), indent="  ")
    return "\n".join([verdict, "", *rows, *_joint(answer, required)])


def _count(answer: PathReport, required: str) -> str:
    general = sum(not finding.met for finding in answer.gates_of("any"))
    own = answer.gates_of(required)
    missed = sum(not finding.met for finding in own)
    parts = []
    if general:
        parts.append(f"{general} rule{'s' * (general > 1)} of every path missed")
    if missed:
        parts.append(f"{missed} of {len(own)} {INSTRUCTION[required]} gate{'s' * (len(own) > 1)} missed")
    return ", ".join(parts)


def _joint(answer: PathReport, required: str) -> list[str]:
    """The operators of the joint fix, or what a fix would need leave to change."""
    if required not in FIXABLE:
        return []
    fixed = answer.fixed(required)
    if fixed is not None:
        changed = [operator for operator in fixed.operators if operator not in answer.descriptor.operators]
        several = len(answer.misses(required)) > 1
        return ["", f"  together: .with_({', '.join(map(str, changed))})"] if several else []
    guarded = {name for finding in answer.misses(required) for name in finding.guarded}
    leave = sorted(guarded, key=GUARDED.index)
    if answer.fixed(required, allow=guarded) is None:
        return []
    return ["", f"  together: report.fixed({required!r}, allow={{{', '.join(map(repr, leave))}}})"]


def _path(path: PathName, gates: Sequence[Finding], landing: str) -> list[str]:
    sm = next((finding for finding in gates if finding.gate == "sm"), None)
    if sm is not None and _elsewhere(sm):
        return [f"  {path}: {sm.why}"]
    missed = sum(not finding.met for finding in gates)
    count = f"{missed} of {len(gates)} {INSTRUCTION[path]} gates missed"
    if not missed:
        count = (
            f"all {len(gates)} {INSTRUCTION[path]} gates met" if len(gates) > 1 else f"the {INSTRUCTION[path]} gate met"
        )
    return [f"  {path}: {count}", *_rows(gates, _MARKS, reasons=path == landing)]


def _elsewhere(sm: Finding) -> bool:
    """Whether the path is one of another architecture altogether, so that its other gates say nothing."""
    return not sm.met and sm.got.startswith("SM(") and all(_number(sm.got) != _number(fix) for fix in sm.fixes)


def _number(sm: str) -> str:
    return sm.strip("SM()").partition(",")[0]


def _rows(
    findings: Sequence[Finding], marks: tuple[str, str] = ("", ""), *, reasons: bool = False, indent: str = "    "
) -> list[str]:
    """One row a finding; a missed one (with `reasons`, each) is followed by its reason and its fix."""
    mark_width = max(len(mark) + 2 * bool(mark) for mark in marks)
    id_width = max(len(finding.gate) for finding in findings) + 3
    got_width = max(len(finding.got) for finding in findings) + 3
    margin = indent + " " * (mark_width + id_width)
    lines = []
    for finding in findings:
        mark = marks[0 if finding.met else 1].ljust(mark_width)
        lines.append(f"{indent}{mark}{finding.gate:<{id_width}}{finding.got:<{got_width}}needs {finding.need}")
        if reasons or not finding.met:
            lines += _wrapped(finding.why, margin) + _wrapped(_fix(finding), margin)
    return lines


def _wrapped(text: str, margin: str) -> list[str]:
    return [margin + line for line in wrap(text, WIDTH - len(margin), break_long_words=False)]


def _fix(finding: Finding) -> str:
    return f"fix: {finding.hint}" if finding.hint and not finding.met else finding.hint
