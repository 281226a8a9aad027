"""CG601: the image's own requirements, apart from whether its programs would run."""

import pytest

A100 = "driver=535.104.05,gpu=A100-SXM4-80GB"


def found(verdict):
    return [f for f in verdict.findings if f.rule == "CG601"]


@pytest.fixture
def require(ask):
    def asked(*expressions, pool=A100, **stack):
        return ask(pool, {"cuda": "12.2", "arch": ["sm_80"], "require": list(expressions), **stack})

    return asked


def test_a_stack_without_requirements_is_not_asked(ask):
    assert "CG601" in ask(A100, "cuda=12.2,arch=sm_80").checked.not_applicable


def test_requirements_that_are_met_pass(require):
    verdict = require("cuda>=12.2", "driver>=535")
    assert found(verdict) == []
    assert "CG601" in verdict.checked.passed


def test_an_ngc_image_that_asks_for_cuda_9_passes_whatever_it_holds(require):
    assert found(require("cuda>=9.0")) == []


def test_the_clause_that_is_not_met_is_the_reason(require):
    (finding,) = found(require("cuda>=9.0", "cuda>=12.4"))
    assert finding.outcome == "fail"
    assert "cuda>=12.4" in finding.message
    assert "cuda>=9.0" not in finding.message
    assert "535.104.05" in finding.have
    assert "12.2" in finding.have


def test_a_refusal_offers_the_oldest_driver_that_is_accepted(require):
    (finding,) = found(require("cuda>=12.4"))
    assert finding.fixes[0].set == {"driver": ">=550.54.14"}


def test_disabled_requirements_warn(require):
    (finding,) = found(require("cuda>=12.4", **{"disable-require": True}))
    assert finding.outcome == "warn"
    assert "NVIDIA_DISABLE_REQUIRE" in finding.message


def test_a_brand_that_changed_across_branches_must_be_accepted_in_both_forms(require):
    assert found(require("cuda>=12.4 brand=tesla,driver>=535,driver<536"))[0].outcome == "fail"
    both = "cuda>=12.4 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=535,driver<536"
    assert found(require(both)) == []


def test_requirements_that_cannot_be_read_fail_and_say_so(require):
    (finding,) = found(require("cuda=>12"))
    assert finding.outcome == "fail"
    assert "cannot read" in finding.message


def test_without_a_driver_the_requirements_are_not_checked(require):
    (finding,) = found(require("cuda>=12.2", pool="gpu=A100-SXM4-80GB"))
    assert finding.outcome == "not-checked"


def test_a_bundled_compat_library_does_not_answer_for_the_host(require):
    """The requirement is about the host's driver, whatever library the image brings."""
    (finding,) = found(require("cuda>=12.4", **{"cuda-compat": "12.4"}))
    assert finding.outcome == "fail"
