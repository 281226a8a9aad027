"""Evidence that somebody wrote into the database: it is found, and does not count."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from canary_runs import DRIVER, GPU, STACK
from sqlalchemy import insert, select, update

from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.runs.evidence.evidence import EvidenceRecord

QUESTION = {"target": "prod", "stack": {**STACK, "arch": ["sm_80"]}}


def rules(url: str) -> set[str]:
    """What a gate that starts now says about evidence."""
    rooms = open_rooms(url, overlays=[])
    try:
        verdict = rooms.gate.decide(QUESTION, asked_by="t", source="test")
    finally:
        rooms.close()
    return {finding.rule for finding in verdict.findings if finding.rule.startswith("CG81")}


@pytest.fixture
def change(rooms: Rooms) -> Callable[..., None]:
    """Change the evidence of a run, as somebody with the database's password can."""

    def write(run: str, **values: Any) -> None:
        changed = update(EvidenceRecord).where(EvidenceRecord.run == run).values(**values)
        with rooms.gate.database.writing() as session:
            session.execute(changed)

    return write


@pytest.fixture(autouse=True)
def requires_evidence(
    rooms: Rooms, by: Authorship, target_body: Callable[..., dict[str, Any]]
) -> None:
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
    policy = {"canary": {"require": True, "suites": ["smoke"]}}
    rooms.matrix.change("Target", "prod", target_body("prod", pools=[pool], policy=policy), by)


@pytest.mark.parametrize(
    "edit",
    [{"finished": 2**31}, {"components": {"cuda": "13.0"}}, {"development": True},
     {"bound": {"content": "sha256:0"}}],
)  # fmt: skip
def test_an_edited_row_does_not_count(
    rooms: Rooms, run: Callable[..., str], change: Callable[..., None], database_url: str,
    edit: dict[str, Any], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    passed = run()
    assert rules(database_url) == set()
    change(passed, **edit)
    shown = rooms.runs.show(passed).to_json()["evidence"]
    assert shown["changed"] == "it was changed since the audit log noted it"
    with caplog.at_level(logging.ERROR):
        assert rules(database_url) == {"CG811"}
    assert f"run {passed} does not count: it was changed since the audit log" in caplog.text


def test_a_failure_that_was_edited_still_denies(
    run: Callable[..., str], change: Callable[..., None], database_url: str
) -> None:
    failed = run("failed")
    assert rules(database_url) == {"CG813"}
    change(failed, outcome="passed")
    assert rules(database_url) == {"CG813"}


def test_a_row_that_no_link_vouches_for_does_not_count(
    rooms: Rooms, run: Callable[..., str], submit: Callable[..., str], database_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    failed, waiting = run("failed"), submit()
    with rooms.gate.database.writing() as session:
        query = select(EvidenceRecord.__table__).where(EvidenceRecord.run == failed)
        row = dict(session.execute(query).one()._mapping)
        forged = {**row, "seq": 2, "run": waiting, "outcome": "passed", "finished": 2**31}
        session.execute(insert(EvidenceRecord.__table__), [forged])
    with caplog.at_level(logging.ERROR):
        assert rules(database_url) == {"CG813"}
    assert f"run {waiting} does not count: the audit log has no link about it" in caplog.text
