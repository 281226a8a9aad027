"""What must hold of every paired judgement, whatever the values."""

from __future__ import annotations

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from judged_pairs import judge_one, pairs_of

from compatgate.canary.judge.measurements import read_pairs
from compatgate.canary.judge.paired.blocks import Pair, PairedSamples

WORSE = ["ok", "inconclusive", "regression"]
ratio = st.floats(0.97, 1.08) | st.sampled_from([1.0, 1.01, 1.05])
ratios = st.lists(ratio, min_size=1, max_size=16)
directions = st.sampled_from(["lower", "higher"])


def rank(outcome: str) -> int:
    return WORSE.index("ok" if outcome == "improvement" else outcome)


def scale(samples: PairedSamples, factor: float) -> PairedSamples:
    def scaled(blocks):
        return tuple(tuple(v * factor for v in block) for block in blocks)

    pairs = tuple(Pair(p.number, scaled(p.reference), scaled(p.candidate)) for p in samples.pairs)
    return PairedSamples(samples.name, samples.unit, pairs)


@settings(max_examples=60)
@given(ratios, directions, st.sampled_from([1e-6, 0.125, 1000.0, 3e7]))
def test_a_change_of_unit_changes_nothing(found, better, factor):
    samples = pairs_of([10.0 + i / 7 for i in range(len(found))], found)
    one, other = judge_one(samples, better), judge_one(scale(samples, factor), better)
    assert (one.outcome, one.needed) == (other.outcome, other.needed)


@settings(max_examples=60)
@given(ratios, st.sampled_from([1.001, 1.02, 1.05, 1.2]), directions)
def test_a_worse_candidate_is_never_judged_better(found, factor, better):
    level = [10.0] * len(found)
    by = factor if better == "lower" else 1 / factor
    before = judge_one(pairs_of(level, found), better)
    after = judge_one(pairs_of(level, [r * by for r in found]), better)
    assert rank(after.outcome) >= rank(before.outcome)


@settings(max_examples=40)
@given(ratios)
def test_swapping_arms_and_direction_gives_the_same_outcome_for_rates(found):
    level = [10.0] * len(found)
    times = judge_one(pairs_of(level, found), "either")
    assert judge_one(pairs_of(level, found), "either") == times
    assert times.outcome in WORSE


@settings(max_examples=40)
@given(ratios, st.integers(0, 10**6))
def test_the_order_of_lines_means_nothing(found, seed):
    rng = random.Random(seed)
    lines = [
        json.dumps(
            {"type": "metric", "name": "m", "value": value * (1 + i / 997), "arm": arm,
             "unit": rng.choice(["ms"]), "pair": pair, "block": 1}
        )
        for pair, r in enumerate(found)
        for arm, value in (("A", 10.0), ("B", 10.0 * r))
        for i in range(5)
    ]  # fmt: skip
    shuffled = [*lines]
    rng.shuffle(shuffled)
    one, other = (
        read_pairs("\n".join(side).encode(), source="f").metrics["m"] for side in (lines, shuffled)
    )
    assert judge_one(one) == judge_one(other)


@settings(max_examples=60)
@given(ratios, directions)
def test_the_interval_agrees_with_the_outcome(found, better):
    judged = judge_one(pairs_of([10.0] * len(found), found), better)
    if judged.low is None or judged.high is None:
        return
    assert judged.low <= judged.effect <= judged.high
    bad = judged.high if better == "lower" else -judged.low
    if judged.outcome in ("ok", "improvement"):
        assert bad <= 0.05 + 1e-6
    if judged.outcome == "regression":
        assert bad >= 0.05 - 1e-6
