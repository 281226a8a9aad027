"""Write and read samples: data files next to the workload that was measured.

The first line of a sample states its provenance; the lines of the protocol follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from compatgate.canary.judge.baseline import SampleSource
from compatgate.canary.judge.result import Samples
from compatgate.canary.protocol.jsonl import JsonLines
from compatgate.canary.run import Report
from compatgate.canary.workload import Workload
from compatgate.canary.workloads.contents import SAMPLES
from compatgate.documents import validation
from compatgate.documents.sources import DocumentProblem, Problems, Source, read_paths
from compatgate.documents.specs import (
    DIGEST_PATTERN,
    LINE_PATTERN,
    MOMENT_PATTERN,
    NAME_PATTERN,
    SLUG_PATTERN,
    TEXT_PATTERN,
)
from compatgate.documents.text import RawDocument
from compatgate.errors import BadInput, explain_form

MOMENT = "%Y-%m-%dT%H:%M:%SZ"
SUFFIX = ".jsonl"
_MAX_FAMILY = 120
_UNUSUAL = re.compile(r"[^A-Za-z0-9.+-]")
_Line = Annotated[str, Meta(pattern=LINE_PATTERN)]


class SampleHead(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """First line of a sample; see `matrix/schema/sample.schema.json`.

    Attributes:
        sku: MIG profile included; ``cpu`` on a host without GPUs.
        family: of the stack (see `compatgate.canary.judge.baseline`).
        measured_at: end of the execution, UTC, to the second.
        executor: kind of executor, as in ``hosts.toml``.
        development: it ran outside a container, so it never starts a baseline.
        run, step: origin of the sample, on any gate.
    """

    type: Literal["sample"]
    workload: Annotated[str, Meta(pattern=SLUG_PATTERN)]
    digest: Annotated[str, Meta(pattern=DIGEST_PATTERN)]
    seed: Annotated[int, Meta(ge=0, le=4_294_967_295)]
    sku: _Line
    family: _Line
    measured_at: Annotated[str, Meta(pattern=MOMENT_PATTERN)]
    executor: Annotated[str, Meta(pattern=SLUG_PATTERN)]
    development: bool
    compatgate: _Line
    run: Annotated[str, Meta(pattern=NAME_PATTERN)]
    step: Annotated[str, Meta(pattern=NAME_PATTERN)]
    note: Annotated[str, Meta(pattern=TEXT_PATTERN, max_length=2000)] = ""

    @property
    def key(self) -> str:
        """Return the sample's name among the runs that baselines are learned from."""
        return f"{self.run}:{self.step}"

    @property
    def file_name(self) -> str:
        """Return a name of SKU, family, time and seed, unique in a workload's folder."""
        parts = (self.sku, self.family[:_MAX_FAMILY], self.measured_at.replace(":", ""))
        named = "_".join(_UNUSUAL.sub("-", part) for part in parts)
        return f"{named}_seed-{self.seed}{SUFFIX}"


class Sample(Struct, frozen=True):
    """One execution of a workload, as data."""

    head: SampleHead
    report: Report

    @property
    def source(self) -> SampleSource:
        """Return the provenance that a baseline stores with the values."""
        env = self.report.env
        driver, versions = (env.driver, dict(env.versions)) if env else (None, {})
        return SampleSource(self.head.measured_at, driver, versions, self.head.note)

    def values(self) -> list[Samples]:
        """Return every metric, as the judge takes it."""
        return [Samples(m.name, m.unit, (m.values,)) for m in self.report.metrics]


SAMPLE_KIND = "sample"
_REPORT_TYPES = ("env", "metric", "check")
_DEVICE = ("name", "memory_bytes", "compute_capability", "mig")
"""Members of a GPU that name no single device."""
_NUMBERED = re.compile(r"line (\d+): (.*)", re.DOTALL)


def format_sample(sample: Sample) -> str:
    """Return the file's text: the head, then each metric and check once."""
    bodies = [msgspec.to_builtins(sample.head), *_reported(sample.report)]
    return "".join(msgspec.json.encode(body).decode() + "\n" for body in bodies)


def read_sample_head(source: Source, problems: Problems) -> SampleHead | None:
    """Read the first line, and check every line as far as that needs no workload."""
    records = _read_records(source, problems)
    if not records:
        return None

    def complain(line: int, *mistakes: DocumentProblem) -> None:
        for mistake in mistakes:
            mistake.line = line
            problems.add(mistake)

    first = next(iter(records))
    for line, record in records.items():
        if line != first and record.value["type"] not in _REPORT_TYPES:
            hint = f"allowed after the first line: {', '.join(_REPORT_TYPES)}"
            complain(line, record.problem(("type",), "is not a line of a sample", hint=hint))
    head = records[first]
    if head.value["type"] != "sample":
        what = f"the first line is {head.value['type']!r}, not 'sample'"
        hint = "compatgate canary sample writes samples"
        complain(first, head.problem(("type",), what, hint=hint))
        return None
    try:
        return msgspec.convert(head.value, SampleHead)
    except msgspec.ValidationError as error:
        mistakes = list(validation.explain_mistakes(head, SAMPLE_KIND))
        complain(first, *mistakes or [head.problem((), explain_form(error, "the document"))])
        return None


def _read_records(source: Source, problems: Problems) -> dict[int, RawDocument]:
    """Return the lines of a text by number, without empty ones: objects with a ``type``."""
    results: dict[int, RawDocument] = {}
    for number, line in enumerate(source.text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            body = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            body = None
        if isinstance(body, dict) and isinstance(body.get("type"), str):
            results[number] = RawDocument(source.file, body)
        else:
            what = "is not a JSON object with a type"
            hint = 'write one per line: {"type": "...", ...}'
            problems.add(DocumentProblem(what, file=source.file, line=number, hint=hint))
        if problems.enough:
            break
    if not results and not len(problems):
        problems.add(DocumentProblem("the file is empty", file=source.file, line=1))
    return results


def read_sample_report(source: Source, workload: Workload, problems: Problems) -> Report:
    """Read the lines after the first, as the workload declares them."""
    if workload.adapter != "jsonl":  # a tool reports checks that its workload does not declare
        more = {
            name: ""
            for record in _read_records(source, Problems()).values()
            if record.value["type"] == "check" and isinstance(name := record.value.get("name"), str)
        }
        checks = more | workload.checks
        workload = msgspec.structs.replace(workload, adapter="jsonl", checks=checks)
    reader = JsonLines(workload)
    lines = source.text.split("\n")
    first = next(i for i, line in enumerate(lines) if line.strip())
    lines[first] = ""  # so that line numbers stay the same
    reader.feed("\n".join(lines).encode())
    report = reader.report()
    for problem in report.problems:
        numbered = _NUMBERED.fullmatch(problem)
        line, what = (int(numbered[1]), numbered[2]) if numbered else (None, problem)
        problems.add(DocumentProblem(what, file=source.file, line=line))
    return report


def _reported(report: Report) -> Iterator[dict[str, Any]]:
    if report.env is not None:
        yield {
            "type": "env",
            "driver": report.env.driver,
            "gpus": [
                {name: value for name in _DEVICE if (value := getattr(device, name)) is not None}
                for device in report.env.gpus
            ],
            "versions": report.env.versions,
            **report.env.other,
        }
    for metric in report.metrics:
        yield {"type": "metric", **msgspec.to_builtins(metric)}
    for check in report.checks:
        skipped = {"skipped": True} if check.skipped else {}
        yield {
            "type": "check",
            "name": check.name,
            "ok": check.ok,
            "message": check.message,
            **skipped,
        }


PAGE = "README.md"


class StoredSample(Struct, frozen=True):
    """Sample of a workload, as lists show it."""

    file: str
    sku: str
    family: Annotated[str, Meta(description="stack family")]
    driver: str | None
    versions: dict[str, str]
    measured_at: Annotated[str, Meta(description="time of the measurement, UTC")]
    seed: int
    development: Annotated[bool, Meta(description="true: the run was outside a container")]
    current: Annotated[
        bool, Meta(description="true: the sample belongs to the current version of the workload")
    ]
    note: str


def find_sample_files(folder: Path) -> list[Path]:
    """Return the samples of a workload's folder, by name."""
    return sorted(p for p in (folder / SAMPLES).glob(f"*{SUFFIX}") if p.is_file())


def list_samples(workload: Workload) -> list[StoredSample]:
    """Return the readable samples of a workload, newest first; lint reports the others."""
    if workload.folder is None:
        return []
    results: list[StoredSample | None] = []
    for path in find_sample_files(workload.folder):
        with suppress(BadInput):
            results += [_stored_sample(source, workload) for source in read_paths([path])]
    return sorted(filter(None, results), key=lambda one: (one.measured_at, one.file), reverse=True)


def _stored_sample(source: Source, workload: Workload) -> StoredSample | None:
    problems = Problems()
    head = read_sample_head(source, problems)
    if head is None:
        return None
    env = read_sample_report(source, workload, problems).env
    return StoredSample(
        file=Path(source.file).name,
        sku=head.sku,
        family=head.family,
        driver=env.driver if env else None,
        versions=dict(env.versions) if env else {},
        measured_at=head.measured_at,
        seed=head.seed,
        development=head.development,
        current=head.digest == workload.digest,
        note=head.note,
    )
