"""Make pairs for tests."""

from __future__ import annotations

import random
from collections.abc import Sequence

from compatgate.canary.judge.paired.blocks import Pair, PairedJudgement, PairedMetric, PairedSamples
from compatgate.canary.judge.paired.suite import Knowledge, judge_pairs
from compatgate.canary.workload import Better, MetricSpec


def pairs_of(reference: Sequence[float], ratios: Sequence[float], unit="ms") -> PairedSamples:
    """One block an arm, whose samples are equal; a ratio for each pair."""
    both = zip(reference, ratios, strict=True)
    found = tuple(Pair(i, ((a,) * 3,), ((a * r,) * 3,)) for i, (a, r) in enumerate(both, 1))
    return PairedSamples("m", unit, found)


def noisy(seed: int, pairs: int, ratio: float = 1.0, noise: float = 0.01) -> PairedSamples:
    """Pairs of two blocks of six samples in a session with a level of its own."""
    rng = random.Random(seed)
    level = 10 * rng.lognormvariate(0, 0.02)

    def block(factor: float) -> tuple[float, ...]:
        process = level * factor * rng.lognormvariate(0, noise / 2)
        return tuple(process * rng.lognormvariate(0, noise) for _ in range(6))

    return PairedSamples(
        "m", "ms", tuple(Pair(i + 1, (block(1),), (block(ratio),)) for i in range(pairs))
    )


def judge_one(
    samples: PairedSamples, better: Better = "lower", known: Knowledge | None = None
) -> PairedMetric:
    """Judge a suite of one metric."""
    spec = MetricSpec(samples.unit, better)
    return judge_pairs({"m": spec}, {"m": samples}, known={"m": known or Knowledge()}).metrics[0]


def judge_suite(samples: Sequence[PairedSamples], **settings) -> PairedJudgement:
    """Judge a suite of metrics m0, m1 and so on."""
    named = {f"m{i}": s for i, s in enumerate(samples)}
    return judge_pairs(
        {name: MetricSpec(s.unit, "lower") for name, s in named.items()}, named, **settings
    )
