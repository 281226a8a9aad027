"""Read SuperBench's ``results-summary.jsonl``: one observation for each node.

A line is an object with ``node`` and ``BENCHMARK/METRIC[:RANK]`` to a number; a benchmark's
``return_code`` says whether it ran to its end. The file names neither units nor times.

Source: https://github.com/microsoft/superbenchmark, ``docs/user-tutorial/result-summary.md``,
``superbench/runner/runner.py`` and ``superbench/benchmarks/return_code.py``.
"""

from __future__ import annotations

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
from compatgate.canary.run import Check, Metric, Report

_MONITOR = "monitor"
_CODE = "return_code"
_CODES = {
    1: "invalid argument",
    2: "invalid benchmark type",
    3: "invalid result",
    4: "exception at run time",
    30: "no program named",
    31: "no such program",
    32: "the program failed",
    33: "its output could not be read",
    34: "architecture not supported",
    35: "no device",
    36: "MPI did not start",
    124: "killed by its timeout",
}
_UNITS = {"_busbw": "GB/s", "_algbw": "GB/s"}
"""Units that follow from a metric's name in every benchmark."""


def read_superbench(text: str) -> list[Observation]:
    """Read a summary of results.

    Raises:
        BadInput: names the line and the field.
    """
    lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    limit(lines, MAX_OBSERVATIONS, "nodes", "file")
    found: dict[str, Observation] = {}
    for number, line in lines:
        body = parse_json(line, f"line {number}")
        node = body.get("node")
        if node.text() in found:
            raise node.wrong("the report lists the node twice")
        found[node.text()] = Observation("SuperBench", _parts(body), host=node.text())
    return list(found.values())


def _parts(body: Node) -> tuple[Part, ...]:
    benchmarks: dict[str, dict[str, Node]] = {}
    for key in body.value:
        if key == "node":
            continue
        benchmark, slash, metric = key.partition("/")
        if not slash or not metric:
            raise body.get(key).wrong("is no metric", "BENCHMARK/METRIC")
        # A benchmark's name may have a variant behind a slash; the metric is the last part.
        benchmark, _, metric = key.rpartition("/")
        benchmarks.setdefault(benchmark, {})[metric] = body.get(key)
    limit(list(benchmarks), MAX_PARTS, "benchmarks", body.path)
    monitored = benchmarks.pop(_MONITOR, {})
    parts = [_part(name, values) for name, values in benchmarks.items()]
    limit(parts, MAX_PARTS, "benchmarks", body.path)
    if monitored:
        first = parts[0]
        metrics = tuple(
            Metric(f"monitor-{name}", "", (value.number(),)) for name, value in monitored.items()
        )
        report = first.report
        whole = Report(metrics=(*report.metrics, *metrics), checks=report.checks)
        parts[0] = make_part(first.name, whole)
    return tuple(parts)


def _part(name: str, values: dict[str, Node]) -> Part:
    checks, metrics = [], []
    for metric, value in values.items():
        if metric.partition(":")[0] == _CODE:
            code = int(value.number())
            words = "ran to its end" if code == 0 else _CODES.get(code, "failed")
            checks.append(Check(metric, code == 0, f"return code {code}: {words}"))
        elif value.value is None:
            checks.append(Check(metric, False, "no value was measured"))
        else:
            unit = next((u for end, u in _UNITS.items() if metric.split(":")[0].endswith(end)), "")
            metrics.append(Metric(metric, unit, (value.number(),)))
    return make_part(name, Report(metrics=tuple(metrics), checks=tuple(checks)))
