"""CG811 to CG813 on evidence given as data."""

from datetime import UTC, datetime, timedelta

import pytest

from compatgate.core.binding import Binding
from compatgate.core.matrix import Evidence, Matrix
from compatgate.core.request import CanaryPolicy, Policy
from compatgate.core.versions import parse_version

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
POOL = "driver=580.65.06,gpu=A100-SXM4-80GB"
STACK = {"cuda": "12.4", "cudnn": "9.1.0.70", "torch": "2.4.1+cu124", "arch": ["sm_80"]}
MEASURED = {"cuda": "12.4", "cudnn": "90100", "torch": "2.4.1+cu124"}
DAY = timedelta(days=1)


def run(run_id="run_1", *, ago=DAY, driver="580.65.06", components=None, **fields):
    fields = {"suite": "smoke", "sku": "A100-SXM4-80GB", "outcome": "passed"} | fields
    measured = {c: parse_version(c, v) for c, v in (components or MEASURED).items()}
    return Evidence(
        id=run_id,
        driver=parse_version("driver", driver),
        components=measured,
        finished=int((NOW - ago).timestamp()),
        **fields,
    )


@pytest.fixture
def judge(ask):
    """The canary findings for some runs, as rule to outcome, with the verdict."""

    def judged(*runs, pool=POOL, require=True, suites=("smoke",), **policy):
        canary = CanaryPolicy(require=require, suites=suites, max_age_s=30 * 86400, **policy)
        return ask(
            pool,
            STACK,
            target="t",
            policy=Policy(canary=canary),
            matrix=Matrix(evidence=runs),
            now=NOW,
        )

    return judged


def said(verdict):
    return [(f.rule, f.outcome) for f in verdict.findings if f.rule.startswith("CG81")]


def test_a_fresh_pass_on_this_sku_and_driver_is_enough(judge):
    verdict = judge(run())
    assert said(verdict) == []
    assert verdict.verdict == "pass"
    assert verdict.evidence == ("run_1",)


def test_a_policy_that_asks_for_no_evidence_gets_none(judge):
    verdict = judge(run(outcome="failed"), require=False)
    assert verdict.verdict == "pass"
    assert verdict.evidence == ()
    assert {"CG811", "CG812", "CG813"} <= set(verdict.checked.not_applicable)


def test_without_a_run_the_canary_is_missing(judge):
    verdict = judge()
    assert said(verdict) == [("CG811", "fail")]
    (finding,) = verdict.findings
    assert "smoke" in finding.message
    assert "A100-SXM4-80GB" in finding.message
    assert "on staging" in finding.need


@pytest.mark.parametrize(
    "other",
    [
        run(suite="dl-core"),
        run(sku="L4"),
        run(sku="A100-SXM4-80GB-MIG-1g.10gb"),
        run(components={**MEASURED, "cudnn": "90101"}),
        run(components={**MEASURED, "torch": "2.4.0+cu124"}),
        run(components={"cuda": "12.4", "torch": "2.4.1+cu124"}),
        run(outcome="inconclusive"),
    ],
    ids=["suite", "sku", "slice", "cudnn", "torch", "not measured", "inconclusive"],
)
def test_a_run_of_something_else_is_no_evidence(other, judge):
    assert said(judge(other)) == [("CG811", "fail")]


def test_every_suite_that_the_policy_names_must_have_a_run(judge):
    verdict = judge(run(), suites=("smoke", "dl-core", "nccl"))
    missing = [f.message for f in verdict.findings if f.rule == "CG811"]
    assert len(missing) == 2
    assert any("dl-core" in message for message in missing)
    assert any("nccl" in message for message in missing)


def test_evidence_on_a_slice_counts_for_that_slice(judge):
    pool = "driver=580.65.06,gpu=A100-SXM4-80GB-MIG-1g.10gb"
    assert said(judge(run(sku="A100-SXM4-80GB-MIG-1g.10gb"), pool=pool)) == []
    assert said(judge(run(), pool=pool)) == [("CG811", "fail")]


@pytest.mark.parametrize(
    ("ago", "stale"),
    [
        (timedelta(0), False),
        (30 * DAY - timedelta(seconds=1), False),
        (30 * DAY + timedelta(seconds=1), True),
        (400 * DAY, True),
    ],
)
def test_a_pass_older_than_the_policy_allows_is_stale(ago, stale, judge):
    verdict = judge(run(ago=ago))
    assert said(verdict) == ([("CG812", "fail")] if stale else [])


def test_a_pass_on_another_driver_is_stale(judge):
    verdict = judge(run(driver="550.54.15"))
    assert said(verdict) == [("CG812", "fail")]
    (finding,) = verdict.findings
    assert "550.54.15" in finding.message
    assert "580.65.06" in finding.message
    assert finding.have == "run_1"


def test_a_run_on_the_pools_own_driver_speaks_before_a_later_one_on_another(judge):
    own, later = run("own", ago=5 * DAY), run("later", ago=DAY, driver="550.54.15")
    verdict = judge(own, later)
    assert said(verdict) == []
    assert verdict.evidence == ("own",)


def test_the_latest_judged_run_speaks(judge):
    assert said(judge(run("a", ago=3 * DAY, outcome="failed"), run("b"))) == []
    failed = judge(run("a", ago=3 * DAY), run("b", outcome="failed"))
    assert said(failed) == [("CG813", "fail")]
    assert failed.findings[0].have == "b"
    assert failed.evidence == ("b",)


def test_the_order_of_the_evidence_does_not_matter(judge):
    runs = [run("a", ago=3 * DAY), run("b", outcome="failed"), run("c", driver="550.54.15")]
    assert judge(*runs).findings == judge(*reversed(runs)).findings


def test_an_inconclusive_run_does_not_hide_the_judged_one_before_it(judge):
    verdict = judge(run("a", ago=2 * DAY), run("b", outcome="inconclusive"))
    assert said(verdict) == []
    assert verdict.evidence == ("a",)


def test_a_failure_does_not_grow_old(judge):
    assert said(judge(run(ago=300 * DAY, outcome="failed"))) == [("CG813", "fail")]


def test_a_failure_on_another_driver_still_speaks(judge):
    assert said(judge(run(outcome="failed", driver="550.54.15"))) == [("CG813", "fail")]


def test_a_failed_suite_is_named_with_its_day(judge):
    (finding,) = judge(run(outcome="failed")).findings
    assert "run_1" in finding.message
    assert "smoke" in finding.message
    assert "2026-11-20" in finding.message


def test_suites_are_judged_each_on_its_own(judge):
    verdict = judge(
        run("a"),
        run("b", suite="dl-core", outcome="failed"),
        run("c", suite="nccl", ago=90 * DAY),
        suites=("smoke", "dl-core", "nccl", "soak"),
    )
    assert sorted(said(verdict)) == [("CG811", "fail"), ("CG812", "fail"), ("CG813", "fail")]
    assert set(verdict.evidence) == {"a", "b", "c"}


def test_what_is_not_known_of_the_pool_is_not_a_failed_canary(judge):
    for pool in ("gpu=A100-SXM4-80GB", "driver=580.65.06"):
        verdict = judge(run(), pool=pool)
        assert ("CG901", "unknown") in [(f.rule, f.outcome) for f in verdict.findings]
        assert verdict.verdict == "unknown"


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_a_run_outside_a_container_is_no_evidence(judge, outcome):
    verdict = judge(run(outcome=outcome, development=True))
    assert said(verdict) == [("CG811", "fail")]
    (finding,) = verdict.findings
    assert "run_1 ran outside a container, for development" in finding.message
    assert verdict.evidence == ()


def test_a_run_outside_a_container_does_not_outdate_one_inside(judge):
    verdict = judge(run("run_1"), run("run_2", ago=DAY / 2, outcome="failed", development=True))
    assert said(verdict) == []
    assert verdict.evidence == ("run_1",)


def test_a_policy_may_ask_for_more_than_the_word_of_a_program(judge):
    ranks = ("", "self-reported", "challenged", "witnessed")
    for least, enough in (("self-reported", 0), ("challenged", 2), ("witnessed", 3)):
        for rank, stated in enumerate(ranks):
            verdict = judge(run(bound=Binding(assurance=stated)), assurance=least)
            assert said(verdict) == ([] if rank >= enough else [("CG811", "fail")])
    refused = judge(run(bound=Binding(assurance="challenged")), assurance="witnessed")
    (finding,) = [f for f in refused.findings if f.rule == "CG811"]
    assert "run_1 is challenged, and the policy requires witnessed runs" in finding.message
    bound = Binding(assurance="challenged", executor="slurm")
    (finding,) = [
        f for f in judge(run(bound=bound), assurance="witnessed").findings if f.rule == "CG811"
    ]
    assert "requires witnessed runs, which slurm hosts cannot give" in finding.message
    # A failed run speaks against the stack, whatever stands behind it.
    assert said(judge(run(outcome="failed"), assurance="witnessed")) == [("CG813", "fail")]


def test_a_policy_may_accept_runs_outside_containers(judge):
    passed = judge(run(development=True), accept_development=True)
    assert (said(passed), passed.evidence) == ([], ("run_1",))
    failed = judge(run(development=True, outcome="failed"), accept_development=True)
    assert said(failed) == [("CG813", "fail")]
