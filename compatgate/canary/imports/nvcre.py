"""Read a certification report of NVIDIA's Cluster Readiness Engine.

`nvcrectl certification report --results-file` writes an object, or a list of objects; its export
to a webhook puts the object into an envelope with the time.

Source: https://docs.nvidia.com/cluster-readiness-engine, "Validation Results" and "ReportExport";
https://github.com/NVIDIA/cluster-readiness-engine, ``pkg/report/report.go``.
"""

from __future__ import annotations

import re
from datetime import datetime

from compatgate.canary.imports.observation import (
    MAX_OBSERVATIONS,
    MAX_PARTS,
    Node,
    Observation,
    Part,
    limit,
    make_part,
    parse_json,
)
from compatgate.canary.run import Check, Env, Metric, Report
from compatgate.errors import BadInput
from compatgate.kit.clock import parse_moment

_RESULTS = ("PASSED", "FAILED", "INCOMPLETE")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z/%]*)")
_MAX_NAMED = 5


def read_nvcre(text: str) -> list[Observation]:
    """Read a report, a list of reports, or an exported report.

    Raises:
        BadInput: names the field; or the certification still runs.
    """
    document = parse_json(text)
    bodies = document.items() if isinstance(document.value, list) else [document]
    return [_unwrap(body) for body in limit(bodies, MAX_OBSERVATIONS, "certifications", "file")]


def _unwrap(body: Node) -> Observation:
    if not isinstance(body.value, dict) or "report" not in body.value:
        return _observation(body, None)
    generated = body.get("generatedAt")
    try:
        when = parse_moment(generated.text(), field=generated.path)
    except BadInput:
        raise generated.wrong("is no time", "like 2026-11-03T09:30:00Z") from None
    return _observation(body.get("report"), when)


def _observation(body: Node, finished: datetime | None) -> Observation:
    result = body.get("result")
    if result.text() not in _RESULTS:
        running = result.value == "RUNNING"
        problem = "the certification still runs" if running else "is no result of a certification"
        raise result.wrong(problem, ", ".join(_RESULTS))
    failed = [node.text() for node in body.get("failedNodes").items()]
    excluded = [node.text() for node in body.get("excludedNodes").items()]
    categories = limit(body.get("categories").items(), MAX_PARTS, "categories", "categories")
    parts: dict[str, Part] = {}
    for category in categories:
        part = _part(category)
        name, number = part.name, 2
        while name in parts:
            name, number = f"{part.name}-{number}", number + 1
        parts[name] = make_part(name, part.report)
    parts["certification"] = make_part(
        "certification", _summary(result.text(), failed, excluded, body.get("exclusionReason"))
    )
    nodes = [node.get("name").text() for node in body.get("nodeResults").items()]
    total = body.get("totalNodes").count() or len(nodes)
    return Observation(
        tool=f"NVCRE certification {body.get('name').text()}",
        parts=tuple(parts.values()),
        host=nodes[0] if len(nodes) == 1 else None,
        nodes=max(1, total),
        family=body.get("gpu").optional_text(),
        finished=finished,
    )


def _summary(result: str, failed: list[str], excluded: list[str], why: Node) -> Report:
    """Return the certification's own result; nodes that were left out leave it open."""
    named = ", ".join(failed[:_MAX_NAMED]) + (", ..." if len(failed) > _MAX_NAMED else "")
    env = Env(other={"failed_nodes": failed, "excluded_nodes": excluded})
    if result == "FAILED" or failed:
        message = f"{result}; failed nodes: {named or 'none named'}"
        return Report(env=env, checks=(Check("result", False, message),))
    if result == "INCOMPLETE" or excluded:
        reason = why.optional_text() or "no reason given"
        problem = f"{len(excluded)} nodes were left untested: {reason}"
        return Report(env=env, problems=(problem,))
    return Report(env=env, checks=(Check("result", True, "PASSED, no failed node"),))


def _part(category: Node) -> Part:
    name = f"{category.get('domain').text()}/{category.get('variant').text()}"
    if mnnvl := category.get("mnnvl").optional_text():
        name = f"{name}-mnnvl-{mnnvl.lower()}"
    status = category.get("status").text()
    metrics = [*_bandwidths(category), *_training(category)]
    if status == "Succeeded":
        return make_part(name, Report(metrics=tuple(metrics), checks=(Check("status", True),)))
    if status == "Failed":
        message = category.get("failureReason").optional_text() or "failed"
        check = Check("status", False, message)
        return make_part(name, Report(metrics=tuple(metrics), checks=(check,)))
    problems = (f"the category is {status}",)
    return make_part(name, Report(metrics=tuple(metrics), problems=problems))


def _bandwidths(category: Node) -> list[Metric]:
    found = []
    for row in category.get("bandwidth").items():
        size = row.get("size").text().replace(" ", "")
        found.append(_metric(f"algbw-{size}", row.get("algBW"), "GB/s"))
        found.append(_metric(f"busbw-{size}", row.get("busBW"), "GB/s"))
    for index, row in enumerate(category.get("groupBandwidth").items()):
        if row.get("busBW").optional_text():
            found.append(_metric(f"busbw-group-{index}", row.get("busBW"), "GB/s"))
    return found


def _training(category: Node) -> list[Metric]:
    found = []
    for index, domain in enumerate(category.get("domains").items()):
        end = f"-{index}" if index else ""
        for name, member, unit in (
            ("goodput", "goodput", "1"),
            ("tflops", "tflops", "TFLOP/s"),
            ("step-time", "stepTime", "s"),
        ):
            if domain.get(member).optional_text():
                found.append(_metric(name + end, domain.get(member), unit))
    return found


def _metric(name: str, node: Node, unit: str) -> Metric:
    """Read a number with its unit, as ``882.51 GB/s``; a percentage becomes a share."""
    match = _NUMBER.match(node.text().strip())
    if match is None or (match[2] not in ("", "%") and match[2] != unit):
        raise node.wrong(f"is not a number of {unit}")
    value = float(match[1])
    return Metric(name, unit, (value / 100 if match[2] == "%" else value,))
