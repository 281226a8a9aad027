"""CG901: what is missing is named, with the way to provide it."""

import pytest


def found(verdict):
    return {f.component: f for f in verdict.findings if f.rule == "CG901"}


def test_a_complete_question_passes(ask):
    verdict = ask("driver=580.65.06,gpu=L4", "cuda=12.4,arch=sm_89")
    assert "CG901" in verdict.checked.passed


@pytest.mark.parametrize(
    ("pool", "stack", "missing", "how"),
    [
        ("gpu=L4", "cuda=12.4,arch=sm_89", "driver", "nvidia-smi"),
        ("driver=580.65.06", "cuda=12.4,arch=sm_89", "gpu", "gpu="),
        ("driver=580.65.06,gpu=L4", "arch=sm_89", "cuda", "cuda="),
    ],
)
def test_what_is_always_needed_is_unknown_when_it_is_missing(pool, stack, missing, how, ask):
    verdict = ask(pool, stack)
    assert verdict.verdict == "unknown"
    assert list(found(verdict)) == [missing]
    assert how in found(verdict)[missing].need


def test_kernels_that_the_driver_compiles_need_no_cuda(ask, facts, monkeypatch):
    monkeypatch.setattr(type(facts.packages), "carries", lambda *_: "driver")
    monkeypatch.setattr(facts, "memory", {})
    verdict = ask("driver=580.65.06,gpu=L4", "lightgbm=4.6.0")  # OpenCL
    assert (verdict.verdict, found(verdict)) == ("pass", {})


def test_everything_that_is_missing_is_named_at_once(ask):
    verdict = ask("gpu=L4", "python=3.11")
    assert list(found(verdict)) == ["driver", "cuda"]


def test_a_framework_without_its_cuda_is_asked_for_the_build(ask):
    need = found(ask("driver=580.65.06,gpu=L4", "cupy=13.3.0"))["cuda"].need
    assert "cuda=11.x" in need
    assert "cuda=12.x" in need


def test_a_version_without_a_label_is_the_indexs_own_wheel_and_is_said(ask):
    verdict = ask("driver=580.65.06,gpu=L4", "torch=2.4.1")
    (finding,) = [f for f in verdict.findings if f.rule == "CG901"]
    assert finding.outcome == "not-checked"
    assert "torch 2.4.1 is assumed to be the package index's wheel" in finding.message
    assert verdict.stack["cuda"] == "12.1"


def test_toolkit_libraries_say_the_cuda_of_a_stack_without_a_framework(ask):
    verdict = ask(
        "driver=580.65.06,gpu=L4", "nvidia-nvjitlink-cu12=12.1.105,nvidia-cufft-cu12=11.2.1.3"
    )
    assert verdict.stack["cuda"] == "12.4"
    (finding,) = [f for f in verdict.findings if f.rule == "CG901"]
    assert "CUDA is assumed to be 12.4, the toolkit of nvidia-cufft-cu12 11.2" in finding.message


def test_a_fix_of_an_assumed_build_is_verified_without_the_assumption(ask):
    verdict = ask("driver=535.104.05,gpu=L4", "torch=2.11.0")
    fixes = [fix.set for f in verdict.findings if f.rule == "CG101" for fix in f.fixes]
    assert {"driver": ">=580.65.06"} in fixes
    changed = ask("driver=535.104.05,gpu=L4", "torch=2.11.0", changes={"torch": "2.11.0+cu126"})
    assert "CG101" in changed.checked.passed


@pytest.mark.parametrize("gpu", ["8.9", "sm_89"])
def test_a_bare_capability_is_enough_and_says_what_was_not_checked(gpu, ask):
    verdict = ask(f"driver=580.65.06,gpu={gpu}", "cuda=12.4,arch=sm_89")
    assert verdict.verdict == "pass"
    assert [(f.rule, f.outcome) for f in verdict.findings] == [("CG105", "not-checked")]


def test_what_was_not_checked_never_weighs(ask):
    verdict = ask("driver=580.65.06,gpu=8.0", "cuda=12.4")
    assert {f.outcome for f in verdict.findings} == {"not-checked"}
    assert verdict.verdict == "pass"
    assert verdict.allowed
