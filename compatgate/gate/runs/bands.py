"""A run's metrics beside what is normal: the approved baseline's band, and earlier runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.canary.judge.baseline import Baseline
from compatgate.canary.judge.family import family_of
from compatgate.canary.judge.judged import JudgedRun
from compatgate.canary.judge.order import quantile
from compatgate.canary.judge.units import conversion
from compatgate.canary.report import Metric, Report
from compatgate.errors import BadInput
from compatgate.store.run_rows import BaselineRow, PastStep

_LOW, _HIGH = 0.05, 0.95


class Band(Struct, frozen=True):
    """Between which values nine of ten of an approved baseline lie, in the run's unit.

    Attributes:
        same: it is of the workload as it ran; another's judges nothing and is to compare with.
    """

    baseline: int
    version: int
    approved_at: datetime | None
    low: float
    middle: float
    high: float
    n: int
    runs: int
    same: bool


class Point(Struct, frozen=True):
    """A metric in one run: its middle, and between which values nine of ten lie."""

    run: str
    state: str
    at: datetime
    low: float
    middle: float
    high: float
    n: int
    outcome: str


def family_of_report(report: Report) -> str | None:
    """The stack family that a step measured; None where it cannot be told."""
    try:
        return family_of(report.env.versions if report.env else {})
    except BadInput:
        return None


def bands(
    rows: Iterable[BaselineRow], workload: str, digest: str | None, metrics: Sequence[Metric]
) -> dict[str, Band]:
    """The band of each metric for which a baseline is approved.

    Args:
        rows: approved ones of one SKU and family, newest first.
        workload: by name.
        digest: of its content as it ran; baselines of the same content come first.
        metrics: of the run.
    """
    wanted = f"{workload}@{(digest or '').removeprefix('sha256:')[:12]}"
    mine = [row for row in rows if row.workload.partition("@")[0] == workload]
    mine.sort(key=lambda row: row.workload != wanted)
    found: dict[str, Band] = {}
    for metric in metrics:
        row = next((row for row in mine if row.metric == metric.name), None)
        band = _band(row, metric.unit, same=row.workload == wanted) if row else None
        if band is not None:
            found[metric.name] = band
    return found


def _band(row: BaselineRow, unit: str, *, same: bool) -> Band | None:
    baseline = Baseline.from_json(row.body)
    factor = conversion(baseline.unit, unit)
    if factor is None:
        return None
    ordered = sorted(value * factor for value in baseline.samples.values)
    low, middle, high = _spread(ordered)
    counted = len(ordered), len(baseline.runs)
    return Band(row.id, row.version, row.decided_at, low, middle, high, *counted, same)


def _spread(ordered: Sequence[float]) -> tuple[float, float, float]:
    return quantile(ordered, _LOW), quantile(ordered, 0.5), quantile(ordered, _HIGH)


def history(past: Iterable[PastStep], family: str | None) -> dict[str, list[Point]]:
    """Each metric over runs of the same family, oldest first; units as the newest run has them.

    Args:
        past: results of one step, newest first.
        family: that the runs must have measured.
    """
    found: dict[str, list[Point]] = {}
    units: dict[str, str] = {}
    for step in past:
        report = _report(step.body)
        if report is None or family is None or family_of_report(report) != family:
            continue
        said = _said(step.body)
        for metric in report.metrics:
            factor = conversion(metric.unit, units.setdefault(metric.name, metric.unit))
            if metric.values and factor is not None:
                spread = _spread(sorted(value * factor for value in metric.values))
                outcome = said.get(metric.name, "")
                point = Point(
                    step.run, step.state, step.finished_at, *spread, len(metric.values), outcome
                )
                found.setdefault(metric.name, []).insert(0, point)
    return found


def _report(body: dict[str, Any]) -> Report | None:
    return msgspec.convert(body["report"], Report) if body.get("report") else None


def _said(body: dict[str, Any]) -> dict[str, str]:
    if not body.get("judgement"):
        return {}
    judged = msgspec.convert(body["judgement"], JudgedRun)
    return {metric.name: metric.outcome for metric in judged.metrics}
