"""A sample as text and back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from compatgate.canary.protocol.jsonl import JsonLines
from compatgate.canary.report import Device, Env, Report
from compatgate.canary.samples.model import Sample, SampleHead
from compatgate.canary.samples.records import Record, read_records
from compatgate.canary.workload import Workload
from compatgate.documents.problems import DocumentProblem, Problems
from compatgate.documents.sources import Source

KIND = "sample"
_REPORTED = ("env", "metric", "check")
_NUMBERED = re.compile(r"line (\d+): (.*)", re.DOTALL)


def to_text(sample: Sample) -> str:
    """The file: the head, then the lines of the protocol, each metric and check once."""
    bodies = [msgspec.to_builtins(sample.head), *_reported(sample.report)]
    return "".join(msgspec.json.encode(body).decode() + "\n" for body in bodies)


def read_head(source: Source, problems: Problems) -> SampleHead | None:
    """The first line, with every line looked at as far as that needs no workload.

    Args:
        source: the file.
        problems: receives what is wrong, each with its line.
    """
    records = read_records(source, problems)
    if not records:
        return None
    first, *others = records
    for record in others:
        if record.says not in _REPORTED:
            hint = f"after the first line: {', '.join(_REPORTED)}"
            problems.add(record.problem("type", what="is no line of a sample", hint=hint))
    return _head(first, problems)


def read_report(source: Source, workload: Workload, problems: Problems) -> Report:
    """What follows the first line, as the workload declares it.

    Args:
        source: a file whose lines `read_head` has looked at.
        workload: of the sample.
        problems: receives what is not as declared, each with its line.
    """
    reader = JsonLines(_as_jsonl(workload, source))
    lines = source.text.split("\n")
    first = next(i for i, line in enumerate(lines) if line.strip())
    lines[first] = ""  # so that the others keep their numbers
    reader.feed("\n".join(lines).encode())
    report = reader.report()
    for said in report.problems:
        numbered = _NUMBERED.fullmatch(said)
        line, what = (int(numbered[1]), numbered[2]) if numbered else (None, said)
        problems.add(DocumentProblem(what, file=source.file, line=line))
    return report


def _as_jsonl(workload: Workload, source: Source) -> Workload:
    """The workload as if it printed the lines itself; a tool may check more than is declared."""
    if workload.adapter == "jsonl":
        return workload
    more = {
        name: ""
        for record in read_records(source, Problems())
        if record.says == "check" and isinstance(name := record.body.get("name"), str)
    }
    return msgspec.structs.replace(workload, adapter="jsonl", checks=more | workload.checks)


def _head(record: Record, problems: Problems) -> SampleHead | None:
    if record.says != "sample":
        what = f"the first line is {record.says!r}, not 'sample'"
        problems.add(record.problem("type", what=what, hint="docs/canaries.md, Samples"))
        return None
    return record.read(SampleHead, KIND, problems)


def _reported(report: Report) -> Iterator[dict[str, Any]]:
    if report.env is not None:
        yield {"type": "env", **_env(report.env)}
    for metric in report.metrics:
        yield {"type": "metric", **msgspec.to_builtins(metric)}
    for check in report.checks:
        shown = {"skipped": True} if check.skipped else {}
        yield {
            "type": "check",
            "name": check.name,
            "ok": check.ok,
            "message": check.message,
            **shown,
        }


def _env(env: Env) -> dict[str, Any]:
    """As a program prints it, but for what names one device, or one machine's files."""
    return {
        "driver": env.driver,
        "gpus": [_device(device) for device in env.gpus],
        "versions": env.versions,
        **env.other,
    }


def _device(device: Device) -> dict[str, Any]:
    known = ("name", "memory_bytes", "compute_capability", "mig")
    return {name: value for name in known if (value := getattr(device, name)) is not None}
