"""Show a paired run: its metrics with the pairs' medians, and what differs between the arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from compatgate.canary.history import PartChange, compare_parts
from compatgate.canary.judge.paired.blocks import MetricPairs, PairedMetric, PairsState
from compatgate.canary.run import Report
from compatgate.service.runs.queue.models import StepRow
from compatgate.service.runs.queue.service import RunDetail

MAX_DRAWN = 6
"""Maximum number of drawn metrics; the table has all."""
_WORST_FIRST = ("regression", "inconclusive", "improvement", "ok")
Arm = Literal["A", "B"]


class MetricView(Struct, frozen=True):
    """A compared metric; its pairs are None if there are none yet."""

    judged: PairedMetric
    pairs: MetricPairs | None


class PairsView(Struct, frozen=True):
    """The pairs of a run, for its page.

    Attributes:
        metrics: the worst first.
        changes: components that differ, the driver among them.
    """

    state: PairsState
    metrics: tuple[MetricView, ...]
    changes: tuple[PartChange, ...]
    broken: tuple[StepRow, ...]

    @property
    def drawn(self) -> list[MetricView]:
        """Return the metrics that get a chart."""
        return [one for one in self.metrics[:MAX_DRAWN] if one.pairs and one.pairs.medians]


def view_pairs(detail: RunDetail) -> PairsView | None:
    """Return the pairs of a run; None if it was judged alone."""
    if detail.pairs is None:
        return None
    state = msgspec.convert(detail.pairs, PairsState)
    judged = sorted(
        state.judgement.metrics if state.judgement else (),
        key=lambda metric: _WORST_FIRST.index(metric.outcome),
    )
    blocks = [
        (row, msgspec.convert(row.body.get("report"), Report | None)) for row in detail.blocks
    ]
    views = tuple(MetricView(one, state.metrics.get(one.metric)) for one in judged)
    broken = tuple(row for row in detail.blocks if row.body["outcome"] != "passed")
    return PairsView(state, views, find_changes(blocks), broken)


def find_changes(blocks: Sequence[tuple[StepRow, Report | None]]) -> tuple[PartChange, ...]:
    """Return the components that the last blocks of both arms loaded in different versions."""
    seen: dict[Arm, dict[str, str]] = {"A": {}, "B": {}}
    for row, report in blocks:
        if report and report.env:
            arm = row.body["block"]["arm"]
            seen[arm].update(report.env.versions)
            if report.env.driver:
                seen[arm]["driver"] = report.env.driver
    return tuple(compare_parts(seen["A"], seen["B"]))
