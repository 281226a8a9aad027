import msgspec
import pytest

from compatgate.canary.engine.conclude import Conditions, Expectation, conclude_run
from compatgate.canary.run import Device, Env, Report, Run, StepResult, Witness
from compatgate.core.stack import parse_stack
from compatgate.core.versions import parse_version

A100 = "NVIDIA A100-SXM4-80GB"
STACK = {"cuda": "12.4", "torch": "2.4.1"}
LOADED = {"cuda": "12.4.1", "torch": "2.4.1+cu124", "cudnn": "9.1.0"}
RUN = Run(id="run_1", suite="smoke", state="judging", stack=STACK, gpu="A100-SXM4-80GB")


def env(driver="535.104.05", gpu=A100, versions=LOADED, mig=None):
    return Env(driver=driver, gpus=(Device(gpu, mig=mig),) if gpu else (), versions=versions)


def step(outcome="passed", measured=None, name="gemm-0", reason="", assurance=None):
    witness = Witness(assurance) if assurance else None
    report = msgspec.to_builtins(Report(env=measured, witness=witness)) if measured else None
    return StepResult(
        name=name, workload="gemm", seed=0, outcome=outcome, reason=reason, report=report
    )


@pytest.fixture
def conclude(facts):
    def conclude(
        *steps,
        sku="A100-SXM4-80GB",
        driver="535.104.05",
        stack=STACK,
        on_gpu=True,
        development=False,
        reference=(),
    ):
        expected = Expectation(
            parse_stack(stack), sku, parse_version("driver", driver) if driver else None
        )
        workloads = frozenset({"gemm"}) if on_gpu else frozenset()
        conditions = Conditions(
            expected,
            workloads,
            development=development,
            now=1_800_000_000,
            reference=reference,
        )
        return conclude_run(RUN, steps, conditions, facts.gpus)

    return conclude


def test_a_passed_run_is_evidence_for_what_was_measured(conclude):
    found = conclude(step(measured=env()))
    assert found.outcome == "passed"
    assert found.evidence.id == "run_1"
    assert found.evidence.suite == "smoke"
    assert found.evidence.sku == "A100-SXM4-80GB"
    assert str(found.evidence.driver) == "535.104.05"
    assert {n: str(v) for n, v in found.evidence.components.items()} == LOADED
    assert found.evidence.outcome == "passed"
    assert found.evidence.finished == 1_800_000_000


def test_evidence_covers_the_stack_that_was_under_test(conclude):
    assert conclude(step(measured=env())).evidence.is_about(parse_stack(STACK))


MISMATCHES = {
    "another release": (env(versions={**LOADED, "cuda": "12.1"}), "cuda 12.4 is under test, but"),
    "another build": (
        env(versions={**LOADED, "torch": "2.4.0"}),
        "torch 2.4.1 is under test, but 2.4.0 was loaded",
    ),
    "not measured": (env(versions={"cuda": "12.4"}), "no workload measured torch"),
    "another GPU": (env(gpu="NVIDIA L4"), "declared with A100-SXM4-80GB, but the workloads saw L4"),
    "a slice of the GPU": (env(mig="1g.10gb"), "saw A100-SXM4-80GB-MIG-1g.10gb"),
    "no GPU": (env(gpu=None), "saw no GPU"),
    "another driver": (env(driver="550.54.15"), "has driver 535.104.05, but"),
    "no driver": (env(driver=None), "no workload reported the driver"),
    "a GPU of no catalogue": (env(gpu="Voodoo 5"), "names the GPU 'Voodoo 5'"),
    "a version of no shape": (env(versions={**LOADED, "cuda": "banana"}), "'banana'"),
    "a component of no name": (env(versions={**LOADED, "cudaa": "1"}), "cudaa"),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_an_env_that_is_not_the_stack_under_test_is_no_evidence(case, conclude):
    measured, reason = MISMATCHES[case]
    found = conclude(step(measured=measured))
    assert (found.outcome, found.evidence) == ("inconclusive", None)
    assert reason in found.reason


def test_steps_that_disagree_are_no_evidence(conclude):
    first = step(measured=env())
    second = step(measured=env(versions={**LOADED, "cudnn": "8.9.7"}), name="conv-0")
    found = conclude(first, second)
    assert found.outcome == "inconclusive"
    assert "cudnn 9.1.0 and 8.9.7" in found.reason


def test_a_failed_run_is_evidence_against_what_was_measured(conclude):
    found = conclude(step("failed", env(), reason="check numerics failed"))
    assert found.outcome == "failed"
    assert found.reason == "gemm-0: check numerics failed"
    assert found.evidence.outcome == "failed"


def test_a_crash_before_anything_was_measured_speaks_against_the_stack_under_test(conclude):
    found = conclude(step("failed", reason="ended with status 139 (SIGSEGV)"))
    assert found.evidence.outcome == "failed"
    assert found.evidence.is_about(parse_stack(STACK))
    assert str(found.evidence.driver) == "535.104.05"


def test_a_crash_on_a_host_of_unknown_driver_fails_without_evidence(conclude):
    found = conclude(step("failed"), driver=None)
    assert (found.outcome, found.evidence) == ("failed", None)
    assert "no evidence: the driver is not known; state it in hosts.toml" in found.reason


def test_a_crash_after_a_step_that_measured_less_speaks_against_the_whole_stack(conclude):
    less = step(measured=env(versions={"cuda": "12.4.1"}))
    found = conclude(less, step("failed", name="conv-0"))
    assert found.evidence.is_about(parse_stack(STACK))
    assert {str(v) for v in found.evidence.components.values()} == {"12.4.1", "2.4.1"}
    unlike = step(measured=env(versions={"cuda": "12.1"}))
    assert conclude(unlike, step("failed", name="conv-0")).evidence is None


def test_gpu_and_driver_of_a_candidate_that_found_no_gpu_are_those_of_its_reference(conclude):
    blind = step("failed", env(gpu=None, driver=None), reason="found no GPU")
    seen = env(versions={"cuda": "11.8"})
    evidence = conclude(blind, driver=None, reference=(seen, seen)).evidence
    assert (evidence.sku, str(evidence.driver)) == ("A100-SXM4-80GB", "535.104.05")
    assert {n: str(v) for n, v in evidence.components.items()} == LOADED
    assert conclude(blind, driver=None).evidence is None
    assert conclude(blind, reference=(env(gpu="NVIDIA L4"),)).evidence is None


def test_a_failed_run_of_something_else_is_no_evidence_and_says_so(conclude):
    found = conclude(step("failed", env(gpu="NVIDIA L4"), reason="ended with status 1"))
    assert (found.outcome, found.evidence) == ("failed", None)
    assert "no evidence" in found.reason


def test_the_host_of_unknown_driver_takes_the_measured_one(conclude):
    assert str(conclude(step(measured=env()), driver=None).evidence.driver) == "535.104.05"


def test_a_suite_that_needs_no_gpu_is_no_evidence_about_one(conclude):
    found = conclude(step(measured=env(gpu=None, driver=None)), on_gpu=False)
    assert (found.outcome, found.evidence) == ("passed", None)
    assert "not evidence" in found.reason


def test_a_host_without_a_gpu_gives_no_evidence(conclude):
    assert conclude(step(measured=env()), sku=None).evidence is None


def test_nothing_that_ran_is_inconclusive(conclude):
    assert conclude().outcome == "inconclusive"


@pytest.mark.parametrize(
    ("outcomes", "whole"),
    [
        (("passed", "failed", "timeout"), "failed"),
        (("passed", "timeout", "inconclusive"), "timeout"),
        ((), "inconclusive"),
        (("passed",), "passed"),
        (("passed", "inconclusive"), "inconclusive"),
        (("inconclusive", "failed", "passed"), "failed"),
        (("passed", "error", "inconclusive"), "error"),
        (("passed", "passed"), "passed"),
    ],
)
def test_the_worst_step_decides_and_a_failure_speaks_before_silence(outcomes, whole, conclude):
    steps = [step(o, env(), name=f"gemm-{i}") for i, o in enumerate(outcomes)]
    assert conclude(*steps).outcome == whole


def test_evidence_of_a_development_executor_is_marked(conclude):
    assert conclude(step(measured=env()), development=True).evidence.development
    assert not conclude(step(measured=env())).evidence.development


def test_baselines_learn_nothing_from_a_run_that_a_witness_contradicts(conclude):
    report = Report(env=env(), witness=Witness(contradictions=("it says 1, and 2 was seen",)))
    lied = StepResult("conv-0", "conv", 0, "failed", report=msgspec.to_builtins(report))
    assert conclude(step(measured=env())).sound
    assert not conclude(step(measured=env()), lied).sound


@pytest.mark.parametrize(
    ("assurances", "weakest"),
    [
        (("witnessed", "witnessed"), "witnessed"),
        (("witnessed", "challenged"), "challenged"),
        (("self-reported", "witnessed"), "self-reported"),
        (("witnessed", None), ""),
    ],
)
def test_the_weakest_step_says_what_stands_behind_evidence(assurances, weakest, conclude):
    found = conclude(*(step(measured=env(), assurance=one) for one in assurances))
    assert found.evidence.bound.assurance == weakest
