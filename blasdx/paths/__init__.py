"""Which path a descriptor lands on, and why.

A path is a room with three things: its gates, its plan, its template. `check` asks the gates of every room.
"""

from __future__ import annotations

from blasdx.descriptor import Descriptor, promote
from blasdx.errors import GateError
from blasdx.operators import Operator
from blasdx.paths import legality, text
from blasdx.paths.coverage import gaps
from blasdx.paths.nearest import judged
from blasdx.paths.operand import OperandSpec
from blasdx.paths.report import PathReport
from blasdx.paths.rules import PATHS, Finding, Gate, Guarded, PathName, Query, Verdict
from blasdx.paths.supermma import gates as supermma
from blasdx.paths.utcmma import gates as utcmma
from blasdx.paths.wgmma import gates as wgmma

__all__ = ["CATALOGUE", "PATHS", "Finding", "Gate", "OperandSpec", "PathName", "PathReport", "check"]

CATALOGUE: dict[str, tuple[Gate, ...]] = {
    "any": legality.GATES,
    "utcmma": utcmma.GATES,
    "wgmma": wgmma.GATES,
    "supermma": supermma.GATES,
}
"""Every gate, by path; "any" holds the rules of every path. fma has no gate of its own."""


def check(
    descriptor: Descriptor | Operator,
    a: object = None,
    b: object = None,
    *,
    require: PathName | None = None,
) -> PathReport:
    """Name the path that a descriptor lands on, with every gate of every path.

    The path is what cuBLASDx 0.8 does with the descriptor. It does not depend on shared-memory capacity: a tile of
    which not one stage fits has a path, and no plan.

    Parameters
    ----------
    descriptor : Descriptor or Operator
        Complete or half-built; what is missing is a missed gate.
    a, b : array or OperandSpec, optional
        Operands, or their shape, strides and type; their element types then count as well.
    require : str, optional
        The slowest path that will do.

    Raises
    ------
    GateError
        When `require` is given and the descriptor lands on a slower path; it lists every miss.
    OperandError
        When `a` or `b` is no array.
    """
    query = Query(
        promote(descriptor),
        None if a is None else OperandSpec.of(a, "a"),
        None if b is None else OperandSpec.of(b, "b"),
    )
    report = _report(query)
    if require is not None:
        _require(report, require)
    return report


_OPERATOR_OF: dict[Guarded, str] = {"precision": "Precision", "type": "Type", "sm": "SM"}


def _report(query: Query) -> PathReport:
    verdicts = {path: judged(gates, query) for path, gates in CATALOGUE.items()}
    gates: list[Finding] = []
    notes: list[Finding] = []
    for path, judgements in verdicts.items():
        around = verdicts["any"] + judgements if path != "any" else judgements
        holding = [gate for gate, verdict in around if verdict.met]
        for gate, verdict in judgements:
            fixes = () if verdict.met else _true_fixes(gate, verdict, holding, query)
            (notes if gate.advisory else gates).append(_finding(path, gate, verdict, fixes))
    missed = {finding.path for finding in gates if not finding.met}
    path = "unsupported" if "any" in missed else next(path for path in PATHS if path not in missed)
    return PathReport(
        path=path,
        descriptor=query.descriptor,
        a=query.a,
        b=query.b,
        gates=tuple(gates),
        # That nothing was assumed is not worth a note; that the pair is active is.
        notes=tuple(note for note in notes if note.path == "utcmma" or not note.met),
        gaps=gaps(query.descriptor, path),
    )


def _finding(path: str, gate: Gate, verdict: Verdict, fixes: tuple[Operator, ...]) -> Finding:
    return Finding(
        path=path,
        gate=gate.id,
        met=verdict.met,
        got=verdict.got,
        need=verdict.need,
        why=verdict.why or gate.why,
        fixes=tuple(map(str, fixes)),
        hint=verdict.remark if verdict.met else _advice(verdict, fixes),
        guarded=() if verdict.met else verdict.guarded,
    )


def _advice(verdict: Verdict, fixes: tuple[Operator, ...]) -> str:
    ways = [*map(str, fixes), *filter(None, [verdict.instead])]
    ways = ways or [f"another {_OPERATOR_OF[name]}" for name in verdict.guarded]
    return "; ".join(filter(None, [" or ".join(ways), verdict.remark])) or f"choose {verdict.need}"


def _true_fixes(gate: Gate, verdict: Verdict, holding: list[Gate], query: Query) -> tuple[Operator, ...]:
    """The proposals that meet the gate; of these, if there are any, those that keep every gate which is met now."""
    meeting, harmless = [], []
    for fix in verdict.fixes:
        changed = Query(query.descriptor.with_(fix), query.a, query.b)
        if gate.judge(changed).met:
            meeting.append(fix)
            if all(other.judge(changed).met for other in holding):
                harmless.append(fix)
    return tuple(harmless or meeting)


def _require(report: PathReport, require: str) -> None:
    if require not in PATHS or require == "unsupported":
        raise ValueError(f"require takes {', '.join(PATHS[:-1])}, not {require!r}")
    if PATHS.index(report.path) <= PATHS.index(require):
        return
    error = GateError(text.refusal(report, require))
    error.report, error.required, error.misses = report, require, report.misses(require)
    raise error
