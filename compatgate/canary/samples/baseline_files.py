"""Write baselines to a file, and read files of baselines and samples from another gate.

The first line says who wrote the file; each further line is a baseline. `matrix/schema` has the
schema. The workload defines a metric (its unit, its better direction, its tolerance), so a file has
only the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from compatgate import version
from compatgate.canary.engine.baseline_judge import NO_GPU_SKU
from compatgate.canary.engine.interface import BaselineKey
from compatgate.canary.judge.baseline import Baseline, RunValues, SampleSource
from compatgate.canary.judge.result import Samples
from compatgate.canary.samples.extract import find_doubts, find_stale_reason
from compatgate.canary.samples.sample import Sample, read_sample, read_sample_head
from compatgate.canary.structured_files import Record, read_records
from compatgate.canary.workload import Workload
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.documents.sources import Problems, Source, suggest_name
from compatgate.documents.specs import (
    CONTENT_PATTERN,
    LINE_PATTERN,
    MOMENT_PATTERN,
    NAME_PATTERN,
    TEXT_PATTERN,
)
from compatgate.errors import BadInput

BASELINES_KIND = "baselines"
_Line = Annotated[str, Meta(pattern=LINE_PATTERN)]
_Note = Annotated[str, Meta(pattern=TEXT_PATTERN, max_length=2000)]
_Moment = Annotated[str, Meta(pattern=MOMENT_PATTERN)]


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    pass


class ExportHead(_Strict, frozen=True):
    """First line of an export."""

    type: Literal["baselines"]
    compatgate: _Line
    exported_at: _Moment


class ExportedSource(_Strict, frozen=True):
    """Written form of `compatgate.canary.judge.baseline.SampleSource`."""

    measured_at: _Moment
    driver: _Line | None
    versions: dict[str, _Line]
    note: _Note = ""


class ExportedRun(_Strict, frozen=True):
    """Written form of `compatgate.canary.judge.baseline.RunValues`."""

    run: _Line
    values: Annotated[tuple[float, ...], Meta(min_length=1, max_length=1_000_000)]
    sample: ExportedSource | None = None


class ExportedBaseline(_Strict, frozen=True):
    """Line with a baseline version that the exporting gate judged runs against.

    Attributes:
        workload: name and digest of its content, as in `BaselineKey`.
        source: where the exporting gate had imported it from.
    """

    type: Literal["baseline"]
    workload: Annotated[str, Meta(pattern=CONTENT_PATTERN)]
    sku: _Line
    family: _Line
    metric: Annotated[str, Meta(pattern=NAME_PATTERN)]
    unit: _Line
    runs: Annotated[tuple[ExportedRun, ...], Meta(min_length=1, max_length=10)]
    version: Annotated[int, Meta(ge=1)]
    approved_by: _Line
    approved_at: _Moment
    source: _Note = ""

    @property
    def accepted(self) -> list[tuple[str, Samples]]:
        """Return its runs, as `compatgate.canary.judge.baseline.learn` takes them."""
        return [(r.run, Samples(self.metric, self.unit, (r.values,))) for r in self.runs]

    @property
    def sources(self) -> dict[str, SampleSource]:
        """Return the provenance of the runs that came as samples."""
        return {
            run.run: SampleSource(**msgspec.structs.asdict(run.sample))
            for run in self.runs
            if run.sample is not None
        }

    @property
    def origin(self) -> str:
        """Describe where it comes from."""
        there = f"version {self.version} of another gate, approved by {self.approved_by}"
        return f"{there} on {self.approved_at[:10]}"


def make_head_line(exported_at: str) -> dict[str, Any]:
    """Return the first line, as plain data."""
    return {"type": "baselines", "compatgate": version(), "exported_at": exported_at}


def make_baseline_line(baseline: Baseline, *, approved_by: str, approved_at: str) -> dict[str, Any]:
    """Return a baseline as plain data."""
    line = ExportedBaseline(
        type="baseline",
        workload=baseline.workload,
        sku=baseline.sku,
        family=baseline.family,
        metric=baseline.metric,
        unit=baseline.unit,
        runs=tuple(map(_run, baseline.runs)),
        version=baseline.version,
        approved_by=approved_by,
        approved_at=approved_at,
        source=baseline.source,
    )
    body: dict[str, Any] = {"type": line.type, **msgspec.to_builtins(line)}
    return body


def _run(run: RunValues) -> ExportedRun:
    source = run.sample
    exported = ExportedSource(**msgspec.structs.asdict(source)) if source else None
    return ExportedRun(run=run.run, values=run.values, sample=exported)


_DEVELOPMENT = "was measured outside a container, so it cannot start a baseline"


class RefusedItem(Struct, frozen=True):
    """An item that was not imported, with the reason."""

    what: str
    reason: str


class BaselineImport(Struct, frozen=True):
    """Items that may be proposed.

    Attributes:
        samples: with their workloads.
        baselines: with their workloads.
        refused: well-formed items that cannot be used here.
    """

    samples: list[tuple[Sample, Workload]]
    baselines: list[tuple[ExportedBaseline, Workload]]
    refused: list[RefusedItem]


def read_baseline_files(
    sources: Iterable[Source], workloads: Mapping[str, Workload], facts: Facts
) -> BaselineImport:
    """Read files of samples and of baselines.

    Args:
        sources: the files; the first line of each states its kind.
        workloads: by name, as they are now.
        facts: facts to identify GPUs.

    Raises:
        ManyProblems: an item is malformed; names file, line and field; then nothing is imported.
    """
    reader = _Reader(workloads, facts)
    for source in sources:
        reader.read(source)
    reader.problems.raise_if_any()
    return reader.found


class _Reader:
    def __init__(self, workloads: Mapping[str, Workload], facts: Facts) -> None:
        self.problems = Problems()
        self.found = BaselineImport([], [], [])
        self._workloads = workloads
        self._facts = facts
        self._seen: dict[object, str] = {}

    def read(self, source: Source) -> None:
        """Read a file according to its first line."""
        own = Problems()
        records = read_records(source, own)
        if not records or records[0].says == "sample":
            self._sample(source)
        elif records[0].says == "baselines":
            for problem in own:
                self.problems.add(problem)
            self._baselines(records)
        else:
            what = f"the first line is {records[0].says!r}"
            hint = (
                "use 'sample' or 'baselines', as compatgate canary sample and baselines export do"
            )
            self.problems.add(records[0].problem("type", what=what, hint=hint))

    def _sample(self, source: Source) -> None:
        head = read_sample_head(source, self.problems)
        if head is None:
            return
        workload = self._workloads.get(head.workload)
        why = self._absent(head.workload) if workload is None else find_stale_reason(head, workload)
        if workload is None or why:
            self._refuse(source.file, why)
        elif head.development:
            self._refuse(source.file, _DEVELOPMENT)
        elif sample := read_sample(source, workload, self.problems):
            if found := find_doubts(sample, workload, self._facts):
                self._refuse(source.file, "; ".join(found))
            else:
                self.found.samples.append((sample, workload))

    def _baselines(self, records: list[Record]) -> None:
        records[0].read(ExportHead, BASELINES_KIND, self.problems)
        for record in records[1:]:
            line = record.read(ExportedBaseline, BASELINES_KIND, self.problems)
            if line is not None and self._once(record, line):
                self._baseline(f"{record.file}:{record.line}", line)

    def _once(self, record: Record, line: ExportedBaseline) -> bool:
        key = (line.workload, line.sku, line.family, line.metric)
        here = f"{record.file}:{record.line}"
        first = self._seen.setdefault(key, here)
        if first != here:
            what = f"{line.metric} on {line.sku}, {line.family} is stated twice; first at {first}"
            self.problems.add(record.problem("metric", what=what, hint="keep one of them"))
        return first == here

    def _baseline(self, where: str, line: ExportedBaseline) -> None:
        name, _, content = line.workload.partition("@")
        workload = self._workloads.get(name)
        if workload is None:
            self._refuse(where, self._absent(name))
        elif why := self._unfit(line, workload, content):
            self._refuse(where, why)
        else:
            self.found.baselines.append((line, workload))

    def _unfit(self, line: ExportedBaseline, workload: Workload, content: str) -> str:
        """Return why a baseline does not belong to a workload that is here; "" if it does."""
        now = workload.digest.removeprefix("sha256:")[:12]
        if content != now:
            return f"{workload.name} differs here: measured was @{content}, here it is @{now}"
        spec = workload.metrics.get(line.metric)
        if spec is None:
            return f"{workload.name} declares no metric {line.metric}"
        if line.unit != spec.unit:
            return f"{line.metric} is in {line.unit}, but workload.toml declares {spec.unit}"
        try:
            if line.sku != NO_GPU_SKU and resolve_gpu(line.sku, self._facts.gpus).sku != line.sku:
                return f"{line.sku} is not a SKU as the facts write it"
        except BadInput as error:
            return error.detail
        return ""

    def _absent(self, name: str) -> str:
        return f"workload {name} does not exist ({suggest_name(name, self._workloads)})"

    def _refuse(self, what: str, reason: str) -> None:
        self.found.refused.append(RefusedItem(what, reason))


def make_sample_key(sample: Sample) -> BaselineKey:
    """Return the key of the baselines that a sample's values are compared with."""
    head = sample.head
    content = head.digest.removeprefix("sha256:")[:12]
    return BaselineKey(f"{head.workload}@{content}", head.sku, head.family)
