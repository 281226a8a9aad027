"""From bound runs to a verdict: content, pools, discards, their audit, bundles and migrations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from canary_runs import DRIVER, GPU, STACK, evidence, suites
from msgspec.structs import replace
from sqlalchemy import text

from compatgate.core.binding import Binding, define_suite
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.questions.decider import decide
from compatgate.service.matrix.snapshots.snapshot import open_bundle
from compatgate.service.runs.queue.queue import DatabaseQueue

from .conftest import take

ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")
SMOKE = define_suite({w.name: w.digest for w in suites().of_suite("smoke")})
ENTRY = {"driver": ">=535.104.05", "cuda": "12.4.*", "torch": "~=2.4.0"}
Run = Callable[..., str]


def question(content: str | None) -> dict[str, Any]:
    stack = {**STACK, "arch": ["sm_80"]}
    return {"target": "prod", "stack": {**stack, "content": content} if content else stack}


@pytest.fixture
def policy(
    rooms: Rooms, by: Authorship, target_body: Callable[..., dict[str, Any]]
) -> Callable[..., None]:
    def change(**canary: Any) -> None:
        pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
        body = target_body("prod", pools=[pool], policy={"canary": {"require": True} | canary})
        rooms.matrix.change("Target", "prod", body, by)

    change()
    return change


@pytest.fixture
def bound_run(run: Run) -> Run:
    def go(outcome: str = "passed", content: str | None = ONE, **bound: Any) -> str:
        bound = {"suite": SMOKE.digest, "workloads": SMOKE.workloads} | bound
        return run(outcome, bound=Binding(content=content, **bound))

    return go


def rules(rooms: Rooms, content: str | None) -> set[str]:
    found = rooms.gate.decide(question(content), asked_by="t", source="test").findings
    return {f.rule for f in found if f.rule.startswith("CG81")}


def said(rooms: Rooms) -> dict[str, Any]:
    return rooms.runs.remarks(["torch24"])["torch24"].to_json()


def test_a_slow_image_denies_itself_and_no_other(
    rooms: Rooms,
    by: Authorship,
    policy: Callable[..., None],
    entry_body: Callable[..., dict[str, Any]],
    bound_run: Run,
    time: Any,
) -> None:
    policy(promote="automatic", onFailure="revoke")
    spec = {"targets": ["prod"], "components": ENTRY, "status": "candidate"}
    rooms.matrix.create("Entry", entry_body("torch24", **spec), by)
    first = bound_run()
    document = rooms.matrix.get("Entry", "torch24").document
    assert document["spec"]["status"] == "blessed"
    assert document["spec"]["blessedBy"] == {"runs": [first], "contents": [ONE]}
    time.forward(minutes=1)
    slow = bound_run("failed", TWO)
    assert rooms.matrix.get("Entry", "torch24").document["spec"]["status"] == "blessed"
    assert [warning["run"] for warning in said(rooms)["warnings"]] == [slow]
    assert (rules(rooms, ONE), rules(rooms, TWO), rules(rooms, None)) == (
        set(),
        {"CG813"},
        {"CG813"},
    )
    time.forward(minutes=1)
    bound_run()
    assert [warning["run"] for warning in said(rooms)["warnings"]] == [slow]
    assert rules(rooms, TWO) == {"CG813"}
    pools = [(one.content, one.words, one.blessed) for one in rooms.runs.entry_pools("torch24")]
    assert pools == [(ONE, "2 of 2 passed", True), (TWO, "0 of 1 passed", False)]
    bound_run("failed")
    assert rooms.matrix.get("Entry", "torch24").document["spec"]["status"] == "revoked"


def test_reruns_are_pooled_until_a_person_discards_the_failure(
    rooms: Rooms, policy: Callable[..., None], bound_run: Run, time: Any, database_url: str
) -> None:
    outcomes = ("passed", "failed", "passed", "passed")
    runs = []
    for outcome in outcomes:
        runs.append(bound_run(outcome))
        time.forward(minutes=1)
    other = open_rooms(database_url, overlays=[])
    other.runs.catalogue = suites
    assert rules(rooms, ONE) == rules(other, ONE) == {"CG813"}
    found = rooms.runs.show(runs[0]).evidence
    assert found is not None
    assert found.words == "3 of 4 passed"
    assert [one.row.run for one in found.pool] == runs[::-1]
    before = clock.now()
    for reason in ("", "two\nlines", "x" * 1001):
        with pytest.raises(BadInput, match="reason"):
            rooms.runs.discard(runs[1], by="ann", reason=reason)
    with pytest.raises(NotFound):
        rooms.runs.discard("run_none", by="ann", reason="gone")
    time.forward(minutes=1)
    shown = rooms.runs.discard(runs[1], by="ann", reason="the host's PSU failed").to_json()
    assert shown["evidence"]["discarded"]["reason"] == "the host's PSU failed"
    assert (shown["evidence"]["pool"]["passed"], shown["evidence"]["pool"]["judged"]) == (3, 3)
    with pytest.raises(Conflict, match="ann has discarded"):
        rooms.runs.discard(runs[1], by="ann", reason="again")
    other.snapshots.refresh()
    assert rules(rooms, ONE) == rules(other, ONE) == set()
    then = {f.rule for f in rooms.gate.what_would(question(ONE), at=before).findings}
    assert "CG813" in then
    snapshot = open_bundle(rooms.gate.export_bundle(), "b").snapshot()
    assert decide(question(ONE), snapshot, clock.now()).evidence == tuple(
        run for run in reversed(runs) if run != runs[1]
    )
    assert rooms.chain.verify().ok
    other.close()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE discarded_runs SET reason = 'other'", "changed or missing"),
        ("DELETE FROM discarded_runs", "changed or missing"),
        ("UPDATE evidence SET content = NULL", "changed or missing"),
        ("UPDATE evidence SET bound = '{}'", "changed or missing"),
        (
            "INSERT INTO discarded_runs SELECT 2, id, 'x', 'y', '2026-11-23 00:00:00' FROM runs"
            " WHERE state = 'passed'",
            "2 runs are discarded, but 1 links say so",
        ),
    ],
)
def test_the_audit_log_vouches_for_bindings_and_discards(
    rooms: Rooms, policy: Callable[..., None], bound_run: Run, change: str, problem: str
) -> None:
    bound_run()
    rooms.runs.discard(bound_run("failed"), by="ann", reason="the host's PSU failed")
    assert rooms.chain.verify().ok
    with rooms.gate.database.writing() as session:
        session.execute(text(change))
    found = rooms.chain.verify()
    assert not found.ok
    assert any(problem in one for one in found.problems)


def test_a_run_of_a_redefined_suite_is_stale(
    rooms: Rooms, policy: Callable[..., None], submit: Run, queue: DatabaseQueue
) -> None:
    submit()
    lease = take(queue)
    redefined = suites()
    changed = replace(redefined.workloads["gemm"], digest="sha256:new")
    redefined.workloads = {**redefined.workloads, "gemm": changed}
    rooms.runs.catalogue = lambda: redefined
    bound = Binding(content=ONE, suite=SMOKE.digest, workloads=SMOKE.workloads)
    queue.finish(lease, "passed", "all passed", evidence(lease, bound=bound))
    answer = rooms.gate.decide(question(ONE), asked_by="t", source="test")
    (finding,) = (f for f in answer.findings if f.rule == "CG812")
    assert "suite smoke changed since the run" in finding.message


def test_bindings_and_older_rows_survive_the_migration_both_ways(
    rooms: Rooms, policy: Callable[..., None], run: Run, bound_run: Run
) -> None:
    run("passed")
    rooms.runs.discard(bound_run("failed"), by="ann", reason="the host's PSU failed")
    for version in ("0011", "head"):
        tables.migrate_schema(rooms.gate.database, version)
    rows = rooms.runs.evidence().items
    assert [(row.outcome, row.content, row.bound) for row in rows] == [
        ("failed", None, None),
        ("passed", None, None),
    ]
