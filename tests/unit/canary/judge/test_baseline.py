"""Baselines: learnt from accepted runs, shown with their distribution, kept by stack family."""

from __future__ import annotations

import random

import msgspec
import pytest

from compatgate.canary.judge.baseline import (
    Baseline,
    describe_distribution,
    find_family,
    find_nearest_family,
    learn,
)
from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.result import Samples
from compatgate.canary.workload import MetricSpec
from compatgate.errors import BadInput

SPEC = MetricSpec("ms", "lower", repetitions=10)


def run(seed: int, n: int = 30, centre: float = 1.0, unit: str = "ms") -> tuple[str, Samples]:
    rng = random.Random(seed)
    values = tuple(centre * rng.lognormvariate(0, 0.02) for _ in range(n))
    return f"run_{seed}", Samples("t", unit, (values,))


def learnt(*runs: tuple[str, Samples], spec: MetricSpec = SPEC) -> Baseline:
    return learn("gemm", "A100-SXM4-80GB", "cuda-12.4", "t", spec, runs)


def test_a_baseline_keeps_values_by_run():
    baseline = learnt(run(1), run(2))
    assert [r.run for r in baseline.runs] == ["run_1", "run_2"]
    assert len(baseline.samples.runs) == 2
    assert baseline.approved_by is None
    assert baseline.thin
    assert not learnt(run(1), run(2), run(3)).thin


def test_the_judge_takes_it_as_it_is():
    found = judge_metric("t", SPEC, learnt(run(1), run(2), run(3)).samples, run(4)[1])
    assert found.outcome == "ok"


def test_only_the_latest_runs_are_kept():
    baseline = learnt(*(run(i) for i in range(12)))
    assert [r.run for r in baseline.runs] == [f"run_{i}" for i in range(2, 12)]
    assert [d.run for d in baseline.discarded] == ["run_0", "run_1"]
    assert "latest 10" in baseline.discarded[0].reason


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (run(9, n=4), "4 values, 10 are needed"),
        (run(9, centre=1.3), "its median differs from the other runs' by +"),
        (run(9, unit="GB"), "does not convert"),
        (("run_9", Samples("t", "ms", ((float("nan"),) * 10,))), "not finite and positive"),
        (("run_9", Samples("t", "ms", ((0.0,) * 10,))), "not finite and positive"),
    ],
)
def test_a_run_that_does_not_belong_is_discarded_with_the_reason(odd, reason):
    baseline = learnt(run(1), run(2), odd, run(3))
    assert [r.run for r in baseline.runs] == ["run_1", "run_2", "run_3"]
    assert [d.run for d in baseline.discarded] == ["run_9"]
    assert reason in baseline.discarded[0].reason


def test_counts_of_zero_are_a_baseline():
    zeros = ("run_1", Samples("t", "errors", ((0.0,) * 30,)))
    assert (
        learnt(zeros, spec=MetricSpec("errors", "lower", repetitions=10)).samples.values
        == (0.0,) * 30
    )


def test_values_are_kept_in_the_workloads_unit():
    assert learnt(run(1, centre=0.001, unit="s")).samples.values[0] == pytest.approx(1, rel=0.1)


def test_no_usable_run_is_an_error_that_names_each():
    with pytest.raises(BadInput, match="run_1: it has 3 values, 10 are needed"):
        learnt(run(1, n=3))
    with pytest.raises(BadInput, match="none was accepted"):
        learnt()


def test_the_distribution_is_what_a_person_looks_at():
    shown = describe_distribution(learnt(run(1), run(2)))
    assert shown.n == 60
    assert shown.runs == 2
    assert shown.min < shown.median < shown.p95 <= shown.p99 <= shown.max
    assert sum(b.count for b in shown.bins) == 60
    assert len(shown.bins) == 20


def test_a_constant_has_one_bar():
    shown = describe_distribution(learnt(("r", Samples("t", "ms", ((2.0,) * 10,)))))
    assert [(b.low, b.high, b.count) for b in shown.bins] == [(2.0, 2.0, 10)]


def test_the_json_form_comes_back():
    baseline = learnt(run(1), run(2), run(3, n=4))
    assert msgspec.json.decode(msgspec.json.encode(baseline), type=Baseline) == baseline


def test_a_family_is_releases_without_their_patches_and_without_the_driver():
    versions = {"driver": "550.54.15", "cuda": "12.4.1", "cudnn": "9.1.0.70", "nccl": "2.21.5"}
    assert find_family({**versions, "pytorch": "2.4.1+cu124", "python": "3.11.7"}) == (
        "cuda-12.4+cudnn-9+nccl-2+torch-2.4"
    )
    assert find_family({"driver": "550.54.15"}) == "none"


def test_a_cudnn_minor_stays_in_the_family_and_a_major_does_not():
    assert find_family({"cudnn": "9.1.0"}) == find_family({"cudnn": "9.5.1"})
    assert find_family({"cudnn": "8.9.7"}) != find_family({"cudnn": "9.1.0"})


def test_the_nearest_family_shares_most():
    known = ["cuda-12.1+cudnn-8+torch-2.2", "cuda-12.4+cudnn-9+torch-2.3", "cuda-11.8"]
    assert find_nearest_family("cuda-12.4+cudnn-9+torch-2.4", known) == known[1]
    assert find_nearest_family("cuda-13.0", known) is None
    assert find_nearest_family("cuda-12.4", []) is None
