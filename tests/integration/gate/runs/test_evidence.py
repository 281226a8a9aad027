"""From a run to a verdict: evidence, promotion, warnings, bundles, and looking back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from canary_runs import DRIVER, GPU, MEASURED, STACK

from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.questions.decider import decide
from compatgate.service.matrix.snapshots.snapshot import open_bundle
from compatgate.service.runs.queue.queue import DatabaseQueue

QUESTION = {"target": "prod", "stack": {**STACK, "arch": ["sm_80"]}}
ENTRY = {"driver": ">=535.104.05", "cuda": "12.4.*", "torch": "~=2.4.0"}
Run = Callable[..., str]


@pytest.fixture
def policy(
    rooms: Rooms, by: Authorship, target_body: Callable[..., dict[str, Any]]
) -> Callable[..., None]:
    """Set the target's canary policy, and optionally its driver."""

    def change(driver: str = DRIVER, **canary: Any) -> None:
        pool = {"name": "a100", "gpu": GPU, "driver": driver}
        canary = {"require": True} | canary
        body = target_body("prod", pools=[pool], policy={"canary": canary})
        rooms.matrix.change("Target", "prod", body, by)

    change()
    return change


@pytest.fixture
def candidate(rooms: Rooms, by: Authorship, entry_body: Callable[..., dict[str, Any]]) -> str:
    spec = {"targets": ["prod"], "components": ENTRY, "status": "candidate"}
    return rooms.matrix.create("Entry", entry_body("torch24", **spec), by).name


def rules(rooms: Rooms) -> set[str]:
    found = rooms.gate.decide(QUESTION, asked_by="t", source="test").findings
    return {f.rule for f in found if f.rule.startswith("CG81")}


def status(rooms: Rooms, name: str = "torch24") -> str:
    return str(rooms.matrix.get("Entry", name).document["spec"]["status"])


def said(rooms: Rooms, name: str = "torch24") -> dict[str, Any]:
    return rooms.runs.remarks([name])[name].to_json()


def test_evidence_is_missing_then_there_then_stale_then_failed(
    rooms: Rooms, policy: Callable[..., None], run: Run, queue: DatabaseQueue
) -> None:
    assert rules(rooms) == {"CG811"}
    first = run("passed")
    verdict = rooms.gate.decide(QUESTION, asked_by="t", source="test")
    assert rules(rooms) == set()
    assert verdict.evidence == (first,)
    policy(driver="550.54.15")
    assert rules(rooms) == {"CG812"}
    run("failed", driver="550.54.15")
    assert rules(rooms) == {"CG813"}
    assert rooms.chain.verify().ok


def test_another_process_learns_of_evidence_and_forgets_its_answers(
    rooms: Rooms, database_url: str, policy: Callable[..., None], run: Run
) -> None:
    other = open_rooms(database_url, overlays=[])
    assert rules(other) == {"CG811"}
    before = other.gate.decide(QUESTION, asked_by="t", source="test")
    run_id = run("passed")
    assert other.snapshots.refresh().evidence == 1
    after = other.gate.decide(QUESTION, asked_by="t", source="test")
    assert (after.evidence, after.allowed) == ((run_id,), True)
    assert before.id != after.id
    assert before.matrix_revision == after.matrix_revision
    other.close()


def test_looking_back_uses_the_evidence_of_then(
    rooms: Rooms, policy: Callable[..., None], run: Run, time: Any
) -> None:
    time.forward(minutes=1)
    before = clock.now()
    time.forward(minutes=1)
    run("passed")
    passed = clock.now()
    time.forward(minutes=1)
    run("failed")

    def then(moment: Any) -> set[str]:
        return {f.rule for f in rooms.gate.what_would(QUESTION, at=moment).findings}

    assert "CG811" in then(before)
    assert not then(passed) & {"CG811", "CG813"}
    assert "CG813" in then(clock.now())


def test_development_evidence_counts_only_where_the_policy_says_so(
    rooms: Rooms, policy: Callable[..., None], run: Run
) -> None:
    run_id = run("passed", development=True)
    assert rules(rooms) == {"CG811"}
    (finding,) = (
        f
        for f in rooms.gate.decide(QUESTION, asked_by="t", source="t").findings
        if f.rule == "CG811"
    )
    assert f"{run_id} ran outside a container" in finding.message
    policy(acceptDevelopment=True)
    assert rules(rooms) == set()


def test_a_candidate_waits_for_every_suite_and_then_for_approval(
    rooms: Rooms, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(suites=["smoke", "dl-core"], soak=["soak"])
    assert [need["suite"] for need in said(rooms)["promotion"]["needs"]] == [
        "smoke", "dl-core", "soak",
    ]  # fmt: skip
    first = run("passed", "smoke")
    run("passed", "dl-core")
    promotion = said(rooms)["promotion"]
    assert promotion["state"] == "waiting"
    assert [need["suite"] for need in promotion["needs"]] == ["soak"]
    run("passed", "soak")
    promotion = said(rooms)["promotion"]
    assert (promotion["state"], len(promotion["runs"])) == ("ready", 3)
    assert first in promotion["runs"]
    assert status(rooms) == "candidate"


def test_a_candidate_is_blessed_by_the_gate_where_the_policy_lets_it(
    rooms: Rooms, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(promote="automatic", soak=["soak"])
    run("passed")
    assert status(rooms) == "candidate"
    last = run("passed", "soak")
    assert status(rooms) == "blessed"
    revision = rooms.matrix.list_revisions(limit=1).items[0]
    assert revision.author == "canary"
    assert last in revision.reason
    assert last in rooms.matrix.get("Entry", "torch24").document["spec"]["reason"]
    (link,) = rooms.audit.list_audit(action="run.passed", limit=1).items
    assert link.detail["blessed"] == ["torch24"]
    assert rooms.chain.verify().ok


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
    rooms: Rooms, policy: Callable[..., None], candidate: str, run: Run, other: dict[str, Any]
) -> None:
    policy(promote="automatic")
    run("passed", **other)
    assert status(rooms) == "candidate"


def test_a_failed_run_stands_in_the_way_of_a_candidate(
    rooms: Rooms, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(promote="automatic", suites=["smoke", "dl-core"])
    failed = run("failed", "dl-core")
    run("passed", "smoke")
    promotion = said(rooms)["promotion"]
    assert promotion["state"] == "failed"
    assert promotion["needs"][0]["failed"] == failed
    run("passed", "dl-core")
    assert status(rooms) == "blessed"


def test_a_failing_rerun_warns_and_a_passing_one_takes_it_back(
    rooms: Rooms, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(promote="automatic")
    run("passed")
    assert said(rooms) == {}
    failed = run("failed")
    (warning,) = said(rooms)["warnings"]
    assert (warning["run"], warning["suite"], warning["sku"]) == (failed, "smoke", GPU)
    assert status(rooms) == "blessed"
    run("passed", components={**MEASURED, "torch": "2.4.0+cu124"})
    assert said(rooms)["warnings"]  # another torch says nothing about this one
    run("passed", "dl-core")
    assert said(rooms)["warnings"]
    run("passed")
    assert said(rooms) == {}


def test_a_failing_rerun_revokes_where_the_policy_says_so(
    rooms: Rooms, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(promote="automatic", onFailure="revoke")
    run("passed")
    failed = run("failed", "dl-core")  # not a suite of the policy: a warning only
    assert status(rooms) == "blessed"
    failed = run("failed")
    assert status(rooms) == "revoked"
    revision = rooms.matrix.list_revisions(limit=1).items[0]
    assert failed in revision.reason
    run("passed")
    assert status(rooms) == "revoked"  # only a person takes that back
    assert "warnings" not in said(rooms) or len(said(rooms)["warnings"]) == 1


def test_a_failure_on_a_driver_that_no_pool_has_warns_nobody(
    rooms: Rooms, policy: Callable[..., None], candidate: str, run: Run
) -> None:
    policy(promote="automatic", onFailure="revoke")
    run("passed")
    run("failed", driver="550.54.15")
    assert status(rooms) == "blessed"
    assert said(rooms) == {}


def test_a_bundle_carries_the_evidence(rooms: Rooms, policy: Callable[..., None], run: Run) -> None:
    run("failed")
    last = run("passed")
    run("passed", development=True, suite="dl-core")
    exported = rooms.gate.export_bundle()
    assert exported == rooms.gate.export_bundle()
    snapshot = open_bundle(exported, "b").snapshot()
    verdict = decide(QUESTION, snapshot, clock.now())
    assert verdict.evidence == (last,)
    assert verdict.id == rooms.gate.decide(QUESTION, asked_by="t", source="t").id
    assert [run.development for run in snapshot.matrix.evidence if run.suite == "dl-core"] == [True]


def test_evidence_that_was_tampered_with_is_noticed(rooms: Rooms, run: Run) -> None:
    from sqlalchemy import text

    run("failed")
    assert rooms.chain.verify().ok
    with rooms.gate.database.writing() as session:
        session.execute(text("UPDATE evidence SET outcome = 'passed'"))
    report = rooms.chain.verify()
    assert "evidence 1: changed or missing" in report.problems[0]
