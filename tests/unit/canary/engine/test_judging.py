import msgspec
from msgspec.structs import replace

from compatgate.canary.engine import BaselineKey
from compatgate.canary.engine.baseline_judge import BaselineJudge
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Check, Device, Env, Metric, Report, StepResult
from compatgate.canary.workload import ImageSpec, MetricSpec, Workload
from compatgate.catalog import load_facts

GEMM = Workload(
    name="gemm",
    description="-",
    command=("x",),
    image=ImageSpec(inside=True),
    metrics={"time": MetricSpec(unit="ms", better="lower")},
    digest="sha256:0123456789abcdef",
)
VALUES = tuple(10 + 0.01 * (i * 7 % 11) for i in range(30))


class Known:
    """Baselines in memory."""

    def __init__(self, **approved):
        self._approved = approved
        self.asked = []
        self.offers = []

    def approved(self, ground):
        self.asked.append(ground)
        return self._approved

    def offer(self, ground, metrics, run, found):
        self.offers.append((ground, run, list(found)))


def report(values=VALUES, versions=None):
    return Report(
        env=Env(versions=versions or {"cuda": "12.4.1", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}),
        metrics=(Metric("time", "ms", values),),
        checks=(Check("sound", ok=True),),
    )


def result(judged, reported):
    return StepResult(
        name="gemm-0",
        workload="gemm",
        seed=0,
        outcome=judged.outcome,
        report=msgspec.to_builtins(reported),
        judgement=msgspec.to_builtins(judged),
    )


def time(*values):
    return Samples("time", "ms", (values,))


def test_a_step_is_held_against_what_its_program_sku_and_family_are_known_for():
    known = Known(time=time(*VALUES))
    judged = BaselineJudge(known, "L4").judge(GEMM, [report()])
    assert judged.outcome == "passed"
    assert known.asked == [
        BaselineKey("gemm@0123456789ab", "L4", "cuda-12.4+cudnn-9+torch-2.4"),
    ]


def test_a_regression_fails_it():
    known = Known(time=time(*VALUES))
    slow = report(tuple(1.12 * value for value in VALUES))
    judged = BaselineJudge(known, "L4").judge(GEMM, [slow])
    assert judged.outcome == "failed"
    assert "time" in judged.reason


def test_without_a_baseline_it_is_inconclusive_and_offered():
    known = Known()
    judge = BaselineJudge(known, "L4")
    judged = judge.judge(GEMM, [report()])
    assert judged.outcome == "inconclusive"
    judge.offer("run_1", GEMM, result(judged, report()))
    [(ground, run, found)] = known.offers
    assert (ground.sku, run) == ("L4", "run_1:gemm-0")
    assert found == [time(*VALUES)]


def test_a_step_that_passed_is_offered_too():
    known = Known(time=time(*VALUES))
    judge = BaselineJudge(known, None)
    judge.offer("run_1", GEMM, result(judge.judge(GEMM, [report()]), report()))
    assert known.offers[0][0].sku == "cpu"


def test_a_regression_is_not_learnt():
    known = Known(time=time(*VALUES))
    judge = BaselineJudge(known, "L4")
    slow = report(tuple(1.12 * value for value in VALUES))
    judge.offer("run_1", GEMM, result(judge.judge(GEMM, [slow]), slow))
    assert known.offers == []


def test_a_regression_by_more_than_2_x_is_not_learnt():
    known = Known(time=time(*VALUES))
    judge = BaselineJudge(known, "L4")
    slow = report(tuple(3 * value for value in VALUES))
    judged = judge.judge(GEMM, [slow])
    assert judged.outcome == "failed"
    judge.offer("run_1", GEMM, result(judged, slow))
    assert known.offers == []


def test_an_improbable_improvement_is_learnt_only_with_a_reason():
    known = Known(time=time(*VALUES))
    judge = BaselineJudge(known, "L4")
    other = report(tuple(value / 3 for value in VALUES))
    judged = judge.judge(GEMM, [other])
    assert judged.outcome == "inconclusive"
    assert "needs time: a person's reason: canary run --explained REASON" in judged.explanation
    judge.offer("run_1", GEMM, result(judged, other))
    assert known.offers == []
    judged = judge.judge(GEMM, [other], explained="a new algorithm")
    assert judged.outcome == "passed"
    judge.offer("run_2", GEMM, result(judged, other))
    [(_, run, [offered])] = known.offers
    assert (run, offered.explained) == ("run_2:gemm-0", "a new algorithm")


def test_one_open_metric_does_not_keep_the_others_from_being_learnt():
    two = replace(GEMM, metrics={**GEMM.metrics, "other": MetricSpec(unit="ms", better="lower")})
    known = Known(time=time(*VALUES), other=Samples("other", "ms", (VALUES,)))
    judge = BaselineJudge(known, "L4")
    slower = tuple(value * 3**-1 for value in VALUES)
    said = replace(report(), metrics=(Metric("time", "ms", VALUES), Metric("other", "ms", slower)))
    judged = judge.judge(two, [said])
    assert judged.outcome == "inconclusive"
    judge.offer("run_1", two, result(judged, said))
    [(_, _, [offered])] = known.offers
    assert offered.name == "time"


def test_nothing_is_learnt_of_a_step_that_pairs_did_not_pass():
    known = Known(time=time(*VALUES))
    judge = BaselineJudge(known, "L4")
    step = result(judge.judge(GEMM, [report()]), report())
    for outcome in ("failed", "inconclusive"):
        judge.offer("run_1", GEMM, replace(step, outcome=outcome))
    assert known.offers == []


def test_more_than_the_published_peak_waits_for_a_person():
    gemm = replace(GEMM, metrics={"fp16": MetricSpec("TFLOP/s", "higher", peak="bf16")})
    values = tuple(2000 + n for n in range(30))
    said = Report(env=Env(gpus=(Device("NVIDIA H200"),)), metrics=(fp16(values),))
    facts = load_facts([])
    peak = "the candidate is at 204 % of the published peak, which is implausible"
    for approved in ({}, {"fp16": Samples("fp16", "TFLOP/s", (values,))}):
        judged = BaselineJudge(Known(**approved), "H200", facts).judge(gemm, [said])
        assert judged.outcome == "inconclusive"
        assert peak in judged.reason
    known = Known(fp16=Samples("fp16", "TFLOP/s", (values,), explained="sparse kernels"))
    assert BaselineJudge(known, "H200", facts).judge(gemm, [said]).outcome == "passed"
    assert BaselineJudge(known, "H200").judge(gemm, [said]).outcome == "passed"


def fp16(values):
    return Metric("fp16", "TFLOP/s", values)


def test_versions_that_cannot_be_read_are_inconclusive():
    judged = BaselineJudge(Known(), "L4").judge(GEMM, [report(versions={"cuda": "banana"})])
    assert judged.outcome == "inconclusive"
