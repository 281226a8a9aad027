"""Read ReFrame's run report: one observation for each partition of a system.

Source: https://github.com/reframe-hpc/reframe, ``reframe/schemas/runreport.json`` (data version 4);
performance values are ``[value, reference, lower, upper, unit, result]`` by
``system:partition:variable``.
"""

from __future__ import annotations

from datetime import datetime

from compatgate.canary.imports.observation import (
    MAX_PARTS,
    Node,
    Observation,
    Part,
    limit,
    make_part,
    parse_json,
)
from compatgate.canary.run import Check, Metric, Report

_VERSION = "4"
_PASSED = ("pass",)
_FAILED = ("fail", "fail_deps", "xpass")
_LEFT_OUT = ("skip", "xfail", "abort")
_REASON = 500
_MAX_VALUES = 2000


def read_reframe(text: str) -> list[Observation]:
    """Read a run report.

    A case that ran again counts as its last run says. A skipped, aborted or expectedly failing
    case decides nothing.

    Raises:
        BadInput: names the field.
    """
    document = parse_json(text)
    session = document.get("session_info")
    version = session.get("data_version")
    if version.text().partition(".")[0] != _VERSION:
        raise version.wrong("unknown version of the ReFrame report", "4.x, of ReFrame 4")
    cases: dict[tuple[str, str], Node] = {}
    places: dict[str, list[Node]] = {}
    for run in document.get("runs").items():
        for case in run.get("testcases").items():
            place = f"{case.get('system').text()}:{case.get('partition').optional_text() or ''}"
            environ = case.get("environ").optional_text() or ""
            cases[place, f"{case.get('unique_name').text()}@{environ}"] = case
    for (place, _), case in cases.items():
        places.setdefault(place, []).append(case)
    limit(list(cases), MAX_PARTS, "test cases", "runs")
    tool = f"ReFrame {session.get('version').optional_text() or ''}".strip()
    times = session.get("time_start_unix").moment(), session.get("time_end_unix").moment()
    return [_observation(tool, place, found, *times) for place, found in places.items()]


def _observation(
    tool: str,
    place: str,
    cases: list[Node],
    started: datetime | None,
    finished: datetime | None,
) -> Observation:
    nodes = {node for case in cases for node in _nodes(case)}
    return Observation(
        tool=f"{tool} on {place}",
        parts=tuple(_part(case) for case in cases),
        host=next(iter(nodes)) if len(nodes) == 1 else None,
        nodes=max(1, len(nodes)),
        started=started,
        finished=finished,
    )


def _nodes(case: Node) -> list[str]:
    found = case.get("job_nodelist")
    return [found.text()] if isinstance(found.value, str) else [n.text() for n in found.items()]


def _part(case: Node) -> Part:
    name = case.get("unique_name").text()
    environ = case.get("environ").optional_text()
    result = case.get("result")
    outcome = result.text()
    checks, problems = [], []
    reason = case.get("fail_reason").optional_text() or ""
    if outcome in _PASSED:
        checks.append(Check("result", True, "passed"))
    elif outcome in _FAILED:
        phase = case.get("fail_phase").optional_text()
        message = f"{outcome} in {phase}: {reason}" if phase else f"{outcome}: {reason}"
        checks.append(Check("result", False, message.strip(": ")[:_REASON]))
    elif outcome in _LEFT_OUT:
        problems.append(f"ReFrame says {outcome}: {reason}".strip(": ")[:_REASON])
    else:
        known = ", ".join((*_PASSED, *_FAILED, *_LEFT_OUT))
        raise result.wrong("is not a result of ReFrame", known)
    metrics, verdicts = _values(case.get("perfvalues"))
    return make_part(
        f"{name}@{environ}" if environ else name,
        Report(metrics=metrics, checks=(*checks, *verdicts), problems=tuple(problems)),
        finished=case.get("job_completion_time_unix").moment(),
    )


def _values(found: Node) -> tuple[tuple[Metric, ...], tuple[Check, ...]]:
    """Return the performance values, and a check for each that ReFrame failed."""
    if found.value is None:
        return (), ()
    if not isinstance(found.value, dict):
        raise found.wrong("is not an object")
    if len(found.value) > _MAX_VALUES:
        raise found.wrong("has too many values", f"at most {_MAX_VALUES}")
    metrics, checks = [], []
    for key in found.value:
        entry = found.get(key)
        items = entry.items()
        if len(items) < 5:
            raise entry.wrong(
                "is not a performance value", "[value, reference, lower, upper, unit, result]"
            )
        name = key.rpartition(":")[2]
        unit = items[4].optional_text() or ""
        if items[0].value is None:
            checks.append(Check(name, False, "no value was measured"))
            continue
        metrics.append(Metric(name, unit, (items[0].number(),)))
        if len(items) > 5 and items[5].optional_text() in ("fail", "xpass"):
            words = f"{items[0].value} {unit}, reference {items[1].value}"
            checks.append(Check(name, False, words[:_REASON]))
    return tuple(metrics), tuple(checks)
