"""Baselines as lines of a file: what one gate's people have approved, for another gate's to judge.

The first line says who wrote the file; each further one is a baseline. `matrix/schema` has the
schema. What a metric is (its unit, which direction is better, its tolerance) is the workload's to
say, so a file has only the values.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from compatgate import __version__
from compatgate.canary.judge.baseline import Baseline, RunValues, SampleSource
from compatgate.canary.judge.result import Samples
from compatgate.documents.specs import (
    CONTENT_PATTERN,
    LINE_PATTERN,
    MOMENT_PATTERN,
    NAME_PATTERN,
    TEXT_PATTERN,
)

KIND = "baselines"
_Line = Annotated[str, Meta(pattern=LINE_PATTERN)]
_Note = Annotated[str, Meta(pattern=TEXT_PATTERN, max_length=2000)]
_Moment = Annotated[str, Meta(pattern=MOMENT_PATTERN)]


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    pass


class ExportHead(_Strict, frozen=True):
    """The first line."""

    type: Literal["baselines"]
    compatgate: _Line
    exported_at: _Moment


class ExportedSource(_Strict, frozen=True):
    """As `compatgate.canary.judge.baseline.SampleSource`."""

    measured_at: _Moment
    driver: _Line | None
    versions: dict[str, _Line]
    note: _Note = ""


class ExportedRun(_Strict, frozen=True):
    """As `compatgate.canary.judge.baseline.RunValues`."""

    run: _Line
    values: Annotated[tuple[float, ...], Meta(min_length=1, max_length=1_000_000)]
    sample: ExportedSource | None = None


class ExportedBaseline(_Strict, frozen=True):
    """A line: a version that runs were judged against where the file was written.

    Attributes:
        workload: name and the digest of its content, as `compatgate.canary.queue.Ground` has it.
        source: where that gate had imported it from.
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
        """Its runs, as `compatgate.canary.judge.baseline.learn` takes them."""
        return [(r.run, Samples(self.metric, self.unit, (r.values,))) for r in self.runs]

    @property
    def sources(self) -> dict[str, SampleSource]:
        """Of those runs that came as samples."""
        return {
            run.run: SampleSource(**msgspec.structs.asdict(run.sample))
            for run in self.runs
            if run.sample is not None
        }

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        there = f"version {self.version} of another gate, approved by {self.approved_by}"
        return f"{there} on {self.approved_at[:10]}"


def head_line(exported_at: str) -> dict[str, Any]:
    """The first line, as plain data."""
    return {"type": "baselines", "compatgate": __version__, "exported_at": exported_at}


def baseline_line(baseline: Baseline, *, approved_by: str, approved_at: str) -> dict[str, Any]:
    """A baseline as plain data."""
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
