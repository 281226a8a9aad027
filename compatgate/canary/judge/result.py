"""Define the judge's result for a metric, and the samples that it judges."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from compatgate.canary.workload import Better

JUDGE = "4"
"""Version of the statistics, stored with every judgement: another version may judge otherwise."""
MetricOutcome = Literal["regression", "inconclusive", "no-baseline", "improvement", "ok"]
"""Outcomes, worst first."""
AspectName = Literal["data", "centre", "tail", "spread"]


class Samples(Struct, frozen=True):
    """Measured values of one metric.

    Attributes:
        runs: one tuple of values per run, in the order measured, without warm-up.
        explained: why a person accepts improbably good values.
        oldest: runs of the oldest baseline that a person accepted; () if it is this one.
    """

    name: str
    unit: str
    runs: tuple[tuple[float, ...], ...]
    explained: str = ""
    oldest: tuple[tuple[float, ...], ...] = ()

    @property
    def values(self) -> tuple[float, ...]:
        """Return all values."""
        return tuple(value for run in self.runs for value in run)


class Aspect(Struct, frozen=True):
    """Result for one aspect.

    Attributes:
        repetitions: repetitions that the candidate should give to settle it, if computable.
    """

    name: AspectName
    outcome: MetricOutcome
    reason: str
    missing: str | None = None
    repetitions: int | None = None


class Numbers(Struct, frozen=True):
    """The figures behind a judgement, in the baseline's unit.

    Attributes:
        ratio: candidate over baseline, the median of all pairwise ratios.
        interval: 98 % confidence interval of the ratio; None for an open side.
        effect: Cliff's delta, -1 (every candidate value is below) to 1 (above).
        noise: of one repetition, relative, as (baseline, candidate).
        spread_ratio: candidate's noise over the baseline's; None if the baseline has none.
        tail_ratio: 95th percentile of the bad end, candidate over baseline.
        far: number of values far on the bad side, as (baseline, candidate).
        dropped: number of leading warm-up values removed from each run.
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
    """Judgement of one metric.

    Attributes:
        missing: data that would make it conclusive; None if it is.
        repetitions: repetitions that the candidate should then give, if computable.
        doubt: why the values are implausible, so that a person must explain them; "" if they are
            not, or somebody has.
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
    doubt: str = ""
    explained: str = ""


_ORDER: tuple[MetricOutcome, ...] = (
    "regression",
    "inconclusive",
    "no-baseline",
    "improvement",
    "ok",
)


def find_worst_outcome(outcomes: list[MetricOutcome]) -> MetricOutcome:
    """Return the outcome that decides among several."""
    return min(outcomes, key=_ORDER.index)
