"""What evidence keeps of the pairs of a run."""

from __future__ import annotations

import msgspec
import pytest

from compatgate.canary.judge.paired.blocks import (
    PairedJudgement,
    PairedMetric,
    PairsState,
    summarize_pairs,
)
from compatgate.core.binding import Comparison, digest_json

REFERENCE = f"sha256:{'a' * 64}"


def metric(name: str, outcome: str, effect: float | None, better: str = "lower") -> PairedMetric:
    low, high = (None, None) if effect is None else (effect - 0.01, effect + 0.01)
    return PairedMetric(
        f"gemm.{name}", outcome, effect, low, high, "", "ms", better, 0.05, 5, confidence=0.98
    )  # fmt: skip


def judged(*metrics: PairedMetric) -> PairsState:
    judgement = PairedJudgement("passed", "", metrics, pairs=5)
    return PairsState(images={"A": f"app@{REFERENCE}", "B": "app:2"}, judgement=judgement)


@pytest.mark.parametrize(
    ("metrics", "worst"),
    [
        ([metric("a", "ok", 0.01), metric("b", "ok", 0.02)], "b"),
        ([metric("a", "ok", 0.02), metric("b", "ok", -0.04, "higher")], "b"),
        ([metric("a", "improvement", -0.3), metric("b", "ok", 0.0)], "b"),
        ([metric("a", "ok", 0.04), metric("b", "inconclusive", 0.0)], "b"),
        ([metric("a", "inconclusive", 0.2), metric("b", "regression", 0.06)], "b"),
        ([metric("a", "ok", 0.0), metric("b", "regression", None)], "b"),
    ],
)
def test_evidence_keeps_the_worst_metric(metrics, worst):
    found = summarize_pairs(judged(*metrics), "torch24")
    assert (found.metric, found.metrics, found.pairs) == (f"gemm.{worst}", 2, 5)
    assert (found.reference, found.entry, found.confidence) == (REFERENCE, "torch24", 0.98)


def test_evidence_keeps_the_digest_of_the_whole_judgement():
    state = judged(metric("a", "ok", 0.01))
    body = msgspec.json.decode(msgspec.json.encode(state))
    assert summarize_pairs(state, None).judgement == digest_json(body["judgement"])
    assert summarize_pairs(msgspec.convert(body, PairsState), None) == summarize_pairs(state, None)


def test_nothing_is_kept_where_nothing_was_compared():
    assert summarize_pairs(PairsState("inconclusive", "no reference"), None) is None
    assert summarize_pairs(PairsState(judgement=PairedJudgement("passed", "", ())), None) is None


def test_the_worst_metric_is_told_in_a_line():
    assert summarize_pairs(judged(metric("a", "ok", 0.012)), None).words == (
        "gemm.a +1.2 %, interval +0.2 % to +2.2 % (the only metric, 5 pairs)"
    )
    rare = Comparison(pairs=5, metrics=3, metric="gemm.errors", outcome="regression")
    assert rare.words == "gemm.errors regression (worst of 3 metrics, 5 pairs)"
    open_one = Comparison(pairs=1, metrics=1, metric="m", effect=0.5)
    assert open_one.words == "m +50.0 %, interval open to open (the only metric, 1 pair)"
