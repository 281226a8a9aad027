"""From a run to a verdict: evidence, promotion, warnings, bundles, and looking back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from canary_runs import DRIVER, GPU, MEASURED, STACK

from compatgate.kit import clock
from compatgate.service.gate.questions.decider import decide
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.documents.service import Authorship
from compatgate.service.matrix.snapshots.snapshot import open_bundle
from compatgate.service.runs.queue.queue import DatabaseQueue

QUESTION = {"target": "prod", "stack": {**STACK, "arch": ["sm_80"]}}
ENTRY = {"driver": ">=535.104.05", "cuda": "12.4.*", "torch": "~=2.4.0"}
Run = Callable[..., str]


@pytest.fixture
def policy(
    gate: Gate, by: Authorship, target_body: Callable[..., dict[str, Any]]
) -> Callable[..., None]:
    """Set the target's canary policy, and optionally its driver."""

    def change(driver: str = DRIVER, **canary: Any) -> None:
        pool = {"name": "a100", "gpu": GPU, "driver": driver}
        canary = {"require": True} | canary
        body = target_body("prod", pools=[pool], policy={"canary": canary})
        gate.matrix.change("Target", "prod", body, by)

    change()
    return change


@pytest.fixture
def candidate(gate: Gate, by: Authorship, entry_body: Callable[..., dict[str, Any]]) -> str:
    spec = {"targets": ["prod"], "components": ENTRY, "status": "candidate"}
    return gate.matrix.create("Entry", entry_body("torch24", **spec), by).name


def rules(gate: Gate) -> set[str]:
    found = gate.decide(QUESTION, asked_by="t", source="test").findings
    return {f.rule for f in found if f.rule.startswith("CG81")}


def status(gate: Gate, name: str = "torch24") -> str:
    return str(gate.matrix.get("Entry", name).document["spec"]["status"])


def said(gate: Gate, name: str = "torch24") -> dict[str, Any]:
    return gate.runs.remarks([name])[name].to_json()


def test_evidence_is_missing_then_there_then_stale_then_failed(
    gate: Gate, policy: Callable[..., None], run: Run, queue: DatabaseQueue
) -> None:
    assert rules(gate) == {"CG811"}
    first = run("passed")
    verdict = gate.decide(QUESTION, asked_by="t", source="test")
    assert rules(gate) == set()
    assert verdict.evidence == (first,)
    policy(driver="550.54.15")
    assert rules(gate) == {"CG812"}
    run("failed", driver="550.54.15")
    assert rules(gate) == {"CG813"}
    assert gate.history.verify().ok


def test_another_process_learns_of_evidence_and_forgets_its_answers(
    gate: Gate, database_url: str, policy: Callable[..., None], run: Run
) -> None:
    other = Gate.open(database_url, overlays=[])
    assert rules(other) == {"CG811"}
    before = other.decide(QUESTION, asked_by="t", source="test")
    run_id = run("passed")
    assert other.snapshots.refresh().evidence == 1
    after = other.decide(QUESTION, asked_by="t", source="test")
    assert (after.evidence, after.allowed) == ((run_id,), True)
    assert before.id != after.id
    assert before.matrix_revision == after.matrix_revision
    other.close()


def test_looking_back_uses_the_evidence_of_then(
    gate: Gate, policy: Callable[..., None], run: Run, time: Any
) -> None:
    time.forward(minutes=1)
    before = clock.now()
    time.forward(minutes=1)
    run("passed")
    passed = clock.now()
    time.forward(minutes=1)
    run("failed")

    def then(moment: Any) -> set[str]:
        return {f.rule for f in gate.what_would(QUESTION, at=moment).findings}

    assert "CG811" in then(before)
    assert not then(passed) & {"CG811", "CG813"}
    assert "CG813" in then(clock.now())


def test_development_evidence_counts_only_where_the_policy_says_so(
    gate: Gate, policy: Callable[..., None], run: Run
) -> None:
    run_id = run("passed", development=True)
    assert rules(gate) == {"CG811"}
    (finding,) = (
        f for f in gate.decide(QUESTION, asked_by="t", source="t").findings if f.rule == "CG811"
    )
    assert f"{run_id} ran outside a container" in finding.message
    policy(acceptDevelopment=True)
    assert rules(gate) == set()


def test_a_candidate_waits_for_every_suite_and_then_for_approval(
    gate: Gate, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(suites=["smoke", "dl-core"], soak=["soak"])
    assert [need["suite"] for need in said(gate)["promotion"]["needs"]] == [
        "smoke", "dl-core", "soak",
    ]  # fmt: skip
    first = run("passed", "smoke")
    run("passed", "dl-core")
    promotion = said(gate)["promotion"]
    assert promotion["state"] == "waiting"
    assert [need["suite"] for need in promotion["needs"]] == ["soak"]
    run("passed", "soak")
    promotion = said(gate)["promotion"]
    assert (promotion["state"], len(promotion["runs"])) == ("ready", 3)
    assert first in promotion["runs"]
    assert status(gate) == "candidate"


def test_a_candidate_is_blessed_by_the_gate_where_the_policy_lets_it(
    gate: Gate, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(promote="automatic", soak=["soak"])
    run("passed")
    assert status(gate) == "candidate"
    last = run("passed", "soak")
    assert status(gate) == "blessed"
    revision = gate.matrix.list_revisions(limit=1).items[0]
    assert revision.author == "canary"
    assert last in revision.reason
    assert last in gate.matrix.get("Entry", "torch24").document["spec"]["reason"]
    (link,) = gate.history.list_audit(action="run.passed", limit=1).items
    assert link.detail["blessed"] == ["torch24"]
    assert gate.history.verify().ok


@pytest.mark.parametrize(
    "other",
    [
        {"driver": "550.54.15"},
        {"sku": "L4"},
        {"components": {**MEASURED, "torch": "2.5.0+cu124"}},
        {"components": {"cuda": "12.4.1"}},
        {"development": True},
    ],
)
def test_a_run_about_something_else_blesses_nothing(
    gate: Gate, policy: Callable[..., None], candidate: str, run: Run, other: dict[str, Any]
) -> None:
    policy(promote="automatic")
    run("passed", **other)
    assert status(gate) == "candidate"


def test_a_failed_run_stands_in_the_way_of_a_candidate(
    gate: Gate, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(promote="automatic", suites=["smoke", "dl-core"])
    failed = run("failed", "dl-core")
    run("passed", "smoke")
    promotion = said(gate)["promotion"]
    assert promotion["state"] == "failed"
    assert promotion["needs"][0]["failed"] == failed
    run("passed", "dl-core")
    assert status(gate) == "blessed"


def test_a_failing_rerun_warns_and_a_passing_one_takes_it_back(
    gate: Gate, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(promote="automatic")
    run("passed")
    assert said(gate) == {}
    failed = run("failed")
    (warning,) = said(gate)["warnings"]
    assert (warning["run"], warning["suite"], warning["sku"]) == (failed, "smoke", GPU)
    assert status(gate) == "blessed"
    run("passed", components={**MEASURED, "torch": "2.4.0+cu124"})
    assert said(gate)["warnings"]  # another torch says nothing about this one
    run("passed", "dl-core")
    assert said(gate)["warnings"]
    run("passed")
    assert said(gate) == {}


def test_a_failing_rerun_revokes_where_the_policy_says_so(
    gate: Gate, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(promote="automatic", onFailure="revoke")
    run("passed")
    failed = run("failed", "dl-core")  # not a suite of the policy: a warning only
    assert status(gate) == "blessed"
    failed = run("failed")
    assert status(gate) == "revoked"
    revision = gate.matrix.list_revisions(limit=1).items[0]
    assert failed in revision.reason
    run("passed")
    assert status(gate) == "revoked"  # only a person takes that back
    assert "warnings" not in said(gate) or len(said(gate)["warnings"]) == 1


def test_a_failure_on_a_driver_that_no_pool_has_warns_nobody(
    gate: Gate, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(promote="automatic", onFailure="revoke")
    run("passed")
    run("failed", driver="550.54.15")
    assert status(gate) == "blessed"
    assert said(gate) == {}


def test_a_bundle_carries_the_evidence(gate: Gate, policy: Callable[..., None], run: Run) -> None:
    run("failed")
    last = run("passed")
    run("passed", development=True, suite="dl-core")
    exported = gate.export_bundle()
    assert exported == gate.export_bundle()
    snapshot = open_bundle(exported, "b").snapshot()
    verdict = decide(QUESTION, snapshot, clock.now())
    assert verdict.evidence == (last,)
    assert verdict.id == gate.decide(QUESTION, asked_by="t", source="t").id
    assert [run.development for run in snapshot.matrix.evidence if run.suite == "dl-core"] == [True]


def test_evidence_that_was_tampered_with_is_noticed(gate: Gate, run: Run) -> None:
    from sqlalchemy import text

    run("failed")
    assert gate.history.verify().ok
    with gate.database.writing() as session:
        session.execute(text("UPDATE evidence SET outcome = 'passed'"))
    report = gate.history.verify()
    assert "evidence 1: changed or missing" in report.problems[0]
