"""A sample: where it was measured, and what was reported there."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

from compatgate.canary.judge.baseline import SampleSource
from compatgate.canary.judge.result import Samples
from compatgate.canary.report import Report
from compatgate.documents.specs import (
    DIGEST_PATTERN,
    LINE_PATTERN,
    MOMENT_PATTERN,
    NAME_PATTERN,
    SLUG_PATTERN,
    TEXT_PATTERN,
)

MOMENT = "%Y-%m-%dT%H:%M:%SZ"
SUFFIX = ".jsonl"
_LONGEST_FAMILY = 120
_UNUSUAL = re.compile(r"[^A-Za-z0-9.+-]")
_Line = Annotated[str, Meta(pattern=LINE_PATTERN)]


class SampleHead(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The first line of a sample; `matrix/schema/sample.schema.json` describes all of them.

    Attributes:
        digest: of the workload's content that was run.
        sku: MIG profile included; ``cpu`` on a host without GPUs.
        family: of the stack (see `compatgate.canary.judge.family`).
        measured_at: when the execution ended, UTC, to the second.
        executor: kind of it, as ``hosts.toml`` names it.
        development: it ran outside a container; it never starts a baseline.
        compatgate: version that took the sample.
        run, step: that it was taken from, on whichever gate that was.
        note: what else whoever took it wants known.
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
        """How baselines name it among the runs that they are learnt from."""
        return f"{self.run}:{self.step}"

    @property
    def file_name(self) -> str:
        """SKU, family and time of the execution, and its seed: unique in a workload's folder."""
        parts = (self.sku, self.family[:_LONGEST_FAMILY], self.measured_at.replace(":", ""))
        named = "_".join(_UNUSUAL.sub("-", part) for part in parts)
        return f"{named}_seed-{self.seed}{SUFFIX}"


class Sample(Struct, frozen=True):
    """One execution of a workload, as data."""

    head: SampleHead
    report: Report

    @property
    def source(self) -> SampleSource:
        """As a baseline keeps it beside the values."""
        env = self.report.env
        driver, versions = (env.driver, dict(env.versions)) if env else (None, {})
        return SampleSource(self.head.measured_at, driver, versions, self.head.note)

    def values(self) -> list[Samples]:
        """Every metric, as the judge takes it."""
        return [Samples(m.name, m.unit, (m.values,)) for m in self.report.metrics]
