"""Define the result of pairs."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, to_builtins

from compatgate.canary.judge.rule import PAIRS
from compatgate.canary.run import Check
from compatgate.canary.workload import Better

FIRST_LOOK, USUAL_PAIRS = PAIRS.first, PAIRS.most
PAIRED_JUDGE = "paired-4"
"""Version of the statistics, stored with every judgement."""
PairedOutcome = Literal["regression", "inconclusive", "improvement", "ok"]
"""Outcomes, worst first."""


class PairedMetric(Struct, frozen=True):
    """Judgement of one metric.

    Attributes:
        effect: relative change, candidate over reference: 0.05 is 5 % higher; None without ratio.
        low, high: its interval; None if open.
        confidence: of the interval, 0.98 for 98 %; intervals of all looks hold together.
        missing: data that would make it conclusive; None if it is.
        needed: further pairs that would settle it; None if pairs would not help.
        noise: standard deviation of a pair's ratio, relative.
        history: degrees of freedom that other metrics and earlier sessions add to the noise.
        events: for rare events, blocks with events and all blocks, reference then candidate.
        explained: why a person accepts an implausible change.
    """

    metric: str
    outcome: PairedOutcome
    effect: float | None
    low: float | None
    high: float | None
    reason: str
    unit: str
    better: Better
    tolerance: float
    pairs: int
    confidence: float | None = None
    missing: str | None = None
    needed: int | None = None
    noise: float | None = None
    history: float = 0.0
    events: tuple[int, int, int, int] | None = None
    explained: str = ""


class PairedJudgement(Struct, frozen=True):
    """Judgement of a suite whose candidate and reference ran in pairs.

    Attributes:
        missing: data that would make it conclusive, a line each.
        pairs: complete pairs of the metric with the most.
        more: pairs to run now, then judge again; 0 if the answer is final.
    """

    outcome: Literal["passed", "failed", "inconclusive"]
    reason: str
    metrics: tuple[PairedMetric, ...]
    checks: tuple[Check, ...] = ()
    missing: tuple[str, ...] = ()
    pairs: int = 0
    more: int = 0
    waiting: tuple[str, ...] = ()
    judge: str = PAIRED_JUDGE

    def to_json(self) -> dict[str, Any]:
        """Return plain data, to be stored and shown."""
        body: dict[str, Any] = to_builtins(self)
        return body
