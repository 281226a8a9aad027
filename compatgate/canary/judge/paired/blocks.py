"""Turn the samples of pairs into log-ratios, or say why a metric has none; hold how pairs stand.

A block is one process. Its samples are not independent of each other, so a block counts once: as
the mean of the middle third of the logarithms of its samples. A pair gives one log-ratio: the mean
over its candidate blocks minus that over its reference blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from math import fsum, isfinite, log
from typing import Literal

from msgspec import Struct, to_builtins

from compatgate.canary.judge.baseline import LEAST, MOST
from compatgate.canary.judge.noise import Noise
from compatgate.canary.judge.prepare import parse_unit, refuse
from compatgate.canary.judge.result import Aspect
from compatgate.canary.judge.rule import PAIRS
from compatgate.canary.judge.statistics import ROUNDING_SLACK
from compatgate.canary.run import Check
from compatgate.canary.workload import Better
from compatgate.core.binding import Comparison, digest_json, find_digest

Arm = Literal["A", "B"]
"""``A`` is the reference, ``B`` the candidate."""
Block = tuple[float, ...]
"""Samples of one process, at least one."""
_MEASURES = frozenset(
    {"time", "bytes", "bytes/s", "flop/s", "op/s", "frequency", "power", "energy"}
)
"""Dimensions in which a zero means that nothing was done."""

FIRST_LOOK, USUAL_PAIRS = PAIRS.first, PAIRS.most
PAIRED_JUDGE = "paired-4"
"""Version of the statistics, stored with every judgement."""
PairedOutcome = Literal["regression", "inconclusive", "improvement", "ok"]
"""Outcomes, worst first."""
_ORDER = ("regression", "inconclusive", "ok", "improvement")


class Pair(Struct, frozen=True):
    """Blocks of one pair, by its position in the session; a missing arm is empty."""

    number: int
    reference: tuple[Block, ...]
    candidate: tuple[Block, ...]

    @property
    def complete(self) -> bool:
        """Return whether both arms have a block."""
        return bool(self.reference) and bool(self.candidate)


class PairedSamples(Struct, frozen=True):
    """Samples of one metric."""

    name: str
    unit: str
    pairs: tuple[Pair, ...]

    @property
    def complete(self) -> tuple[Pair, ...]:
        """Return the pairs with blocks of both arms."""
        return tuple(pair for pair in self.pairs if pair.complete)

    @property
    def values(self) -> tuple[float, ...]:
        """Return all samples."""
        return tuple(chain(*_list_arms(self.pairs)))


class LogRatios(Struct, frozen=True):
    """Natural log-ratios of one metric, candidate over reference, one per complete pair, in order.

    ``step`` is the variance that rounded samples hide, that of rounding, once an arm.
    """

    values: tuple[float, ...]
    step: float = 0.0

    @property
    def noise(self) -> Noise:
        """Return the variance of a log-ratio."""
        if len(self.values) < 2:
            return Noise(0.0, 0.0)
        df = len(self.values) - 1
        mean = fsum(self.values) / len(self.values)
        squares = fsum((v - mean) ** 2 for v in self.values)
        return Noise(max(squares / df, self.step, ROUNDING_SLACK**2), df)


def summarize_block(block: Block) -> float:
    """Return the mean of the middle third of the logarithms; the order of samples is irrelevant."""
    ordered = sorted(block)
    cut = len(ordered) // 3
    kept = ordered[cut : len(ordered) - cut]
    return fsum(map(log, kept)) / len(kept)


def summarize_events(block: Block) -> float:
    """Return the logarithm of the mean number of events; half an event stands in for none."""
    return log((fsum(block) + 0.5) / len(block))


def compute_log_ratios(
    samples: PairedSamples, summarize: Callable[[Block], float] = summarize_block
) -> LogRatios:
    """Return the log-ratios of complete pairs, whose samples `summarize` must accept."""

    def average(blocks: Sequence[Block]) -> float:
        return fsum(map(summarize, blocks)) / len(blocks)

    pairs = samples.complete
    values = tuple(average(pair.candidate) - average(pair.reference) for pair in pairs)
    return LogRatios(values, 2 * find_step(_list_arms(pairs)) ** 2 / 12)


def find_refusal(samples: PairedSamples, tolerance: float) -> Aspect | None:
    """Return why samples have no log-ratios that mean something; None if they have."""
    values = samples.values
    if broken := sum(not isfinite(value) for value in values):
        what = f"{broken} of {len(values)} samples are not finite numbers"
        return refuse(what, "samples that are finite numbers")
    if any(value and not LEAST <= abs(value) <= MOST for value in values):
        return refuse("samples are too large or too small to compare", "samples of a usual size")
    zeros_count = counts_events(samples)
    arms = _list_arms(samples.pairs)
    for arm, results in zip(("reference", "candidate"), arms, strict=True):
        if not results:
            return refuse(f"the {arm} has no samples", f"samples of the {arm}")
        if min(results) < 0:
            return refuse(f"the {arm} has negative samples: no ratio", "a positive metric")
        if min(results) == 0 and not zeros_count:
            zeros = f"{results.count(0)} of {len(results)} samples of the {arm} are 0"
            return refuse(f"{zeros}: nothing was measured", f"a {arm} that does real work")
    open_pairs = [pair.number for pair in samples.pairs[:-1] if not pair.complete]
    if open_pairs:
        which = ", ".join(map(str, open_pairs[:5])) + (", ..." if len(open_pairs) > 5 else "")
        return refuse(f"pairs without a block of each arm: {which}", f"both arms of pairs {which}")
    step = 0.0 if zeros_count else find_step(_list_arms(samples.complete))
    if step > tolerance / 2:
        what = f"samples come in steps of {100 * step:.2g} %: too coarse for the tolerance"
        return refuse(what, f"samples in steps of at most {50 * tolerance:.2g} %")
    return None


def counts_events(samples: PairedSamples) -> bool:
    """Return whether a metric counts events, such as errors, so that a zero is a valid sample.

    This holds for counts with a zero, and for metrics without a known dimension whose reference is
    zero in at least half of its samples.
    """
    dimension = parse_unit(samples.unit).dimension
    values = samples.values
    if dimension in _MEASURES or not all(isfinite(v) and v >= 0 for v in values):
        return False
    if dimension == "count":
        return 0 in values
    reference, _ = _list_arms(samples.pairs)
    return bool(reference) and 2 * reference.count(0) >= len(reference)


def _list_arms(pairs: Sequence[Pair]) -> list[list[float]]:
    return [
        [value for pair in pairs for block in getattr(pair, arm) for value in block]
        for arm in ("reference", "candidate")
    ]


def find_step(arms: Iterable[Sequence[float]]) -> float:
    """Return the least relative step between samples of an arm if they repeat; else 0.

    A clock or a printed figure of few digits gives equal samples. Their spread understates the
    noise.
    """
    steps = []
    for values in arms:
        distinct = sorted(set(values))
        if 2 * len(distinct) <= len(values):
            steps += [
                b / a - 1 for a, b in pairwise(distinct) if a > 0 and b / a - 1 > ROUNDING_SLACK
            ]
    return min(steps, default=0.0)


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
    """Pairs of a run so far, and the judge's answer to them.

    ``outcome`` is None while pairs are still run. ``single`` are workloads that run in an image of
    their own, so that both arms would be the same.
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

    def rank(metric: PairedMetric) -> tuple[int, float]:
        change = metric.effect or 0.0
        worse = {"lower": change, "higher": -change, "either": abs(change)}[metric.better]
        return min(_ORDER.index(metric.outcome), 2), -worse / metric.tolerance

    worst = min(judged.metrics, key=rank)
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
