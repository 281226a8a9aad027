import pytest

from compatgate.canary.engine.conclude import ExecutionEnd, conclude_step
from compatgate.canary.run import Check, Device, Env, Metric, Report
from compatgate.canary.workload import ImageSpec, Limits, MetricSpec, Workload

WORKLOAD = Workload(
    name="gemm",
    description="multiplies",
    command=("python3", "program.py"),
    image=ImageSpec(inside=True),
    gpus=1,
    timeout_s=60,
    limits=Limits(memory=1 << 30),
    metrics={"time": MetricSpec(unit="ms", better="lower")},
    checks={"numerics": "agrees with the reference"},
)
ENV = Env(driver="535.104.05", gpus=(Device("NVIDIA A100-SXM4-80GB"),), versions={"cuda": "12.2"})
TIME = Metric("time", "ms", (1.0, 1.1))
GOOD = Check("numerics", ok=True)
SICK = Check("memory", ok=False, message="GPU 0: row remapped", host=True)
WHOLE = Report(env=ENV, metrics=(TIME,), checks=(GOOD,))
EXITED = ExecutionEnd("exited", 0)

CASES = {
    "all that was promised": (EXITED, WHOLE, "passed", ""),
    "a hang": (ExecutionEnd("timeout"), WHOLE, "inconclusive", "was stopped after 60 s"),
    "a hang of a host that was away": (
        ExecutionEnd("timeout", answered=False),
        WHOLE,
        "inconclusive",
        "the host did not answer meanwhile",
    ),
    "too much memory": (ExecutionEnd("memory", 137), WHOLE, "failed", "more than 1073741824 bytes"),
    "a crash": (ExecutionEnd("exited", 139), WHOLE, "failed", "ended with status 139 (SIGSEGV)"),
    "an error": (ExecutionEnd("exited", 1), WHOLE, "failed", "ended with status 1"),
    "a diagnosis of a sick GPU, whose exit status says the same": (
        ExecutionEnd("exited", 226),
        Report(env=ENV, checks=(SICK,)),
        "inconclusive",
        "the host, not the stack: check memory failed: GPU 0: row remapped",
    ),
    "an error on a sick GPU": (
        ExecutionEnd("exited", 1),
        Report(env=ENV, metrics=(TIME,), checks=(GOOD, SICK)),
        "failed",
        "ended with status 1",
    ),
    "no GPU found": (ExecutionEnd("exited", 77), WHOLE, "inconclusive", "found no GPU"),
    "nothing to test": (
        ExecutionEnd("exited", 78),
        Report(env=ENV),
        "inconclusive",
        "did not report check",
    ),
    "nothing to test, and yet all results": (
        ExecutionEnd("exited", 78),
        WHOLE,
        "inconclusive",
        "had nothing to test",
    ),
    "no exit status": (
        ExecutionEnd("exited", None),
        WHOLE,
        "inconclusive",
        "without an exit status",
    ),
    "no env": (EXITED, Report(metrics=(TIME,), checks=(GOOD,)), "inconclusive", "no env line"),
    "no output at all": (EXITED, Report(), "failed", "did not report check numerics"),
    "broken lines": (
        EXITED,
        Report(env=ENV, metrics=(TIME,), checks=(GOOD,), problems=("line 3: value is text",)),
        "inconclusive",
        "broke the line protocol: line 3",
    ),
    "lost output": (
        EXITED,
        Report(env=ENV, metrics=(TIME,), checks=(GOOD,), dropped_bytes=9),
        "inconclusive",
        "9 bytes more",
    ),
    "a failed check": (
        EXITED,
        Report(env=ENV, metrics=(TIME,), checks=(Check("numerics", ok=False, message="off by 2"),)),
        "failed",
        "check numerics failed: off by 2",
    ),
    "a failed check and no metric": (
        EXITED,
        Report(env=ENV, checks=(Check("numerics", ok=False),)),
        "failed",
        "check numerics failed",
    ),
    "no GPU seen": (
        EXITED,
        Report(env=Env(driver="535.104.05"), metrics=(TIME,), checks=(GOOD,)),
        "inconclusive",
        "names no GPU",
    ),
    "a check that does not apply": (
        EXITED,
        Report(env=ENV, metrics=(TIME,), checks=(Check("numerics", True, "none", skipped=True),)),
        "passed",
        "",
    ),
    "a check not reported": (
        EXITED,
        Report(env=ENV, metrics=(TIME,)),
        "failed",
        "did not report check numerics",
    ),
    "a metric not reported": (
        EXITED,
        Report(env=ENV, checks=(GOOD,)),
        "failed",
        "did not report metric time",
    ),
    "a metric with warm-up alone": (
        EXITED,
        Report(env=ENV, metrics=(Metric("time", "ms", (), warmup=(1.0,)),), checks=(GOOD,)),
        "failed",
        "did not report metric time",
    ),
}


ATTRIBUTABLE = {
    "a hang", "no GPU found", "no GPU seen", "nothing to test",
    "a check not reported", "a metric not reported",
    "a metric with warm-up alone", "no env", "no output at all", "broken lines", "lost output",
}  # fmt: skip
"""What the reference of the same pair may show to be the host's fault, or the candidate's."""


@pytest.mark.parametrize("case", CASES)
def test_an_execution_is_concluded_from_what_it_did_and_said(case):
    ended, report, outcome, reason = CASES[case]
    verdict = conclude_step(WORKLOAD, ended, report)
    assert verdict.outcome == outcome
    assert reason in verdict.reason
    assert verdict.attributable == (case in ATTRIBUTABLE)


@pytest.mark.parametrize("case", ["no GPU found", "no GPU seen"])
def test_a_gpu_that_the_hosts_own_probe_found_is_missed_by_the_candidate(case):
    ended, report, _, reason = CASES[case]
    verdict = conclude_step(WORKLOAD, ended, report, gpu_seen=True)
    assert verdict.outcome == "failed"
    assert f"{reason}, and the host's driver shows it" in verdict.reason


def test_a_workload_that_promises_nothing_and_reports_nothing_is_inconclusive():
    idle = Workload(name="idle", description="-", command=("true",), image=ImageSpec(inside=True))
    verdict = conclude_step(idle, EXITED, Report(env=Env()))
    assert (verdict.outcome, verdict.reason) == ("inconclusive", "reported no metric and no check")


def test_checks_that_do_not_apply_are_no_pass_by_themselves():
    only = Workload(
        name="only",
        description="-",
        command=("true",),
        image=ImageSpec(inside=True),
        checks={"numerics": "agrees"},
    )
    skipped = Check("numerics", True, "nothing to compare", skipped=True)
    verdict = conclude_step(only, EXITED, Report(env=Env(), checks=(skipped,)))
    assert (verdict.outcome, verdict.reason) == ("inconclusive", "reported no metric and no check")


def test_a_skip_of_a_workload_that_needs_no_gpu_is_a_failure():
    plain = Workload(name="plain", description="-", command=("x",), image=ImageSpec(inside=True))
    assert conclude_step(plain, ExecutionEnd("exited", 77), Report(env=Env())).outcome == "failed"
