"""Hold what the judge says of a metric, and the samples that it judges."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from compatgate.canary.workload import Better

JUDGE = "1"
"""Version of the statistics, kept with every judgement: another may judge otherwise."""
MetricOutcome = Literal["regression", "inconclusive", "no-baseline", "improvement", "ok"]
"""Worst first."""
AspectName = Literal["data", "centre", "tail", "spread"]


class Samples(Struct, frozen=True):
    """Measured values of one metric.

    Attributes:
        runs: one tuple of values a run, each in the order measured, warm-up left out.
    """

    name: str
    unit: str
    runs: tuple[tuple[float, ...], ...]

    @property
    def values(self) -> tuple[float, ...]:
        """Return all values."""
        return tuple(value for run in self.runs for value in run)


class Aspect(Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        missing: what would make it conclusive.
        repetitions: that the candidate should give to settle it, where that can be computed.
    """

    name: AspectName
    outcome: MetricOutcome
    reason: str
    missing: str | None = None
    repetitions: int | None = None


class Numbers(Struct, frozen=True):
    """The figures behind a judgement, in the baseline's unit.

    Attributes:
        ratio: candidate over baseline, the middle of all pairwise ratios.
        interval: where the ratio lies with 98 % confidence; None: open on that side.
        effect: Cliff's delta, -1 (every candidate value is below) to 1 (above).
        noise: of one repetition, relative, as (baseline, candidate).
        spread_ratio: candidate's noise over the baseline's; None where the baseline has none.
        tail_ratio: the bad end's 95th percentile, candidate over baseline.
        far: values far out on the bad side, as (baseline, candidate).
        dropped: leading values left out as warm-up, of each run.
    """

    n: tuple[int, int]
    medians: tuple[float, float]
    ratio: float
    interval: tuple[float | None, float | None]
    effect: float
    noise: tuple[float, float]
    spread_ratio: float | None
    tail_ratio: float
    far: tuple[int, int]
    dropped: int = 0


class MetricJudgement(Struct, frozen=True):
    """The judge's word on one metric.

    Attributes:
        reason: one line for people.
        missing: what would make it conclusive, None where it is.
        repetitions: that the candidate should give then, where that can be computed.
    """

    name: str
    outcome: MetricOutcome
    reason: str
    unit: str
    better: Better
    tolerance: float
    numbers: Numbers | None = None
    missing: str | None = None
    repetitions: int | None = None
    aspects: tuple[Aspect, ...] = ()


_ORDER: tuple[MetricOutcome, ...] = (
    "regression",
    "inconclusive",
    "no-baseline",
    "improvement",
    "ok",
)


def worst(outcomes: list[MetricOutcome]) -> MetricOutcome:
    """Return the outcome that decides among several."""
    return min(outcomes, key=_ORDER.index)
