"""Describe how the pairs of a run stand: stored with the run, shown to people, read as history."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, to_builtins

from compatgate.canary.judge.paired.blocks import PairedJudgement, PairedMetric
from compatgate.core.binding import Comparison, digest_json, find_digest


class PairMedians(Struct, frozen=True):
    """Medians of one pair's samples."""

    pair: int
    reference: float
    candidate: float


class MetricPairs(Struct, frozen=True):
    """Complete pairs of one metric.

    Attributes:
        workload: name and digest of its content, ``gemm@0f3c...``, as in baselines.
        medians: of each pair, in order.
        ratios: natural logarithms of candidate over reference, one per pair; () for rare events.
        step: variance that rounded samples hide.
    """

    workload: str
    unit: str
    medians: tuple[PairMedians, ...]
    ratios: tuple[float, ...] = ()
    step: float = 0.0


class PairsState(Struct, frozen=True):
    """Pairs of a run so far.

    Attributes:
        outcome: of the comparison; None while pairs are still run.
        reason: one line for people; says why nothing was compared.
        planned: pairs after which the judge looks again.
        images: image of each arm, by digest; ``A`` is the reference.
        judgement: the judge's answer to the pairs so far; None before the first pair.
        metrics: by ``WORKLOAD.METRIC``, as in the judgement.
        single: workloads that run in an image of their own, so that both arms would be the same.
    """

    outcome: Literal["passed", "failed", "inconclusive"] | None = None
    reason: str = ""
    done: int = 0
    planned: int = 0
    images: dict[Literal["A", "B"], str] = {}
    judgement: PairedJudgement | None = None
    metrics: dict[str, MetricPairs] = {}
    single: tuple[str, ...] = ()


def summarize_pairs(state: PairsState, entry: str | None) -> Comparison | None:
    """Return what evidence keeps of the pairs of a run; None if nothing was compared.

    The reference stands for ``entry``; None if an image was named.
    """
    judged = state.judgement
    if judged is None or not judged.metrics or not judged.pairs:
        return None
    worst = min(judged.metrics, key=_rank)
    return Comparison(
        reference=find_digest(state.images.get("A")),
        entry=entry or "",
        pairs=judged.pairs,
        metrics=len(judged.metrics),
        metric=worst.metric,
        outcome=worst.outcome,
        effect=worst.effect,
        low=worst.low,
        high=worst.high,
        confidence=worst.confidence,
        tolerance=worst.tolerance,
        judgement=digest_json(to_builtins(judged)),
    )


_ORDER = ("regression", "inconclusive", "ok", "improvement")


def _rank(metric: PairedMetric) -> tuple[int, float]:
    """Return a key that puts the worst metric first."""
    change = metric.effect or 0.0
    worse = {"lower": change, "higher": -change, "either": abs(change)}[metric.better]
    return min(_ORDER.index(metric.outcome), 2), -worse / metric.tolerance
