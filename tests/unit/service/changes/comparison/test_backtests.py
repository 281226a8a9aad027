"""The backtest of a change, from the decision log of a gate."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient

from compatgate.core.rule import Verdict
from compatgate.documents.specs import decode
from compatgate.service.app import Rooms
from compatgate.service.changes.comparison.backtests import backtest_edits
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.runs.queue.schemas import RunRequest

STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}


def ask(rooms: Rooms, asked_by: str = "ci", **body: Any) -> Verdict:
    question = {"target": "prod-a100", "stack": STACK, **body}
    return rooms.gate.decide(question, asked_by=asked_by, source="rest")


@pytest.fixture
def revoked(rooms: Rooms) -> Edit:
    """The example entry, revoked."""
    stored = rooms.matrix.get("Entry", "torch24-cu124")
    spec = {**stored.document["spec"], "status": "revoked"}
    sides = (stored.document, {**stored.document, "spec": spec})
    return Edit(*(decode("Entry", msgspec.json.encode(body)) for body in sides))


def test_a_revocation_denies_those_who_asked_and_stores_nothing(
    rooms: Rooms, revoked: Edit
) -> None:
    first = ask(rooms)
    assert first.allowed
    ask(rooms, asked_by="train")
    ask(rooms, image="registry.example/app:1")
    found = backtest_edits(rooms.gate, [revoked])
    (group,) = found.groups
    assert (group.effect, group.rule) == ("newly_denied", "CG802")
    assert (group.questions, group.decisions, group.nodes) == (2, 3, 512)
    assert set(group.asked_by) == {"ci", "train"}
    assert group.examples[0].decisions == 2
    assert found.counts.newly_denied.decisions == 3
    assert found.complete
    assert ask(rooms).id == first.id


def test_questions_about_other_targets_and_what_if_questions_do_not_count(
    rooms: Rooms, revoked: Edit
) -> None:
    ask(rooms, set={"driver": "535.216.01"})
    pool = {"gpu": "L4", "driver": "550.54.15"}
    rooms.gate.decide({"pool": pool, "stack": STACK}, asked_by="ci", source="rest")
    found = backtest_edits(rooms.gate, [revoked])
    assert (found.questions, found.groups) == (0, [])
    assert found.summary == "nothing was asked in this period: nothing could be compared"


def test_a_stack_that_only_a_canary_run_had_counts(rooms: Rooms, revoked: Edit) -> None:
    rooms.runs.submit(RunRequest("smoke", target="prod-a100", stack=STACK), by="staging")
    (group,) = backtest_edits(rooms.gate, [revoked]).groups
    assert (group.examples[0].origin, group.decisions) == ("run", 0)
    assert group.asked_by == ["staging"]


def test_what_exceeds_the_bounds_is_said(rooms: Rooms, revoked: Edit) -> None:
    for number in range(3):
        ask(rooms, image=f"registry.example/app:{number}")
    found = backtest_edits(rooms.gate, [revoked], questions=1, shown=0)
    assert (found.questions, found.complete) == (1, False)
    assert "the latest 1 were decided" in found.remarks[0]
    assert found.groups[0].examples == []


def entry_text(status: str) -> str:
    return (
        "apiVersion: compatgate.dev/v1\nkind: Entry\nmetadata: {name: torch24-cu124}\n"
        "spec:\n  targets: [prod-a100]\n"
        '  components: {driver: ">=535.104.05,<536", cuda: "12.4.*", torch: "~=2.4.0"}\n'
        f"  status: {status}\n"
    )


def test_the_api_takes_yaml_documents_and_deletions(rooms: Rooms, client: FlaskClient) -> None:
    ask(rooms)
    sent = {"yaml": entry_text("revoked"), "days": 1}
    answer = client.post("/api/v1/backtests", json=sent).get_json()
    assert answer["groups"][0]["rule"] == "CG802"
    assert [change["action"] for change in answer["changes"]] == ["change"]
    sent = {"delete": [{"kind": "Entry", "name": "torch24-cu124"}]}
    answer = client.post("/api/v1/backtests", json=sent).get_json()
    assert answer["groups"][0]["rule"] == "CG801"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "documents"),
        ({"yaml": entry_text("blesed")}, "spec.status"),
        ({"delete": [{"kind": "Entry", "name": "no"}]}, "delete"),
        ({"delete": [{"kind": "Row", "name": "no"}]}, "delete[0].kind"),
        ({"yaml": entry_text("blessed"), "days": 0}, "days"),
        (
            {
                "yaml": entry_text("revoked"),
                "delete": [{"kind": "Entry", "name": "torch24-cu124"}],
            },
            "delete",
        ),
    ],
)
def test_a_change_that_cannot_be_read_is_named(
    shared_client: FlaskClient, body: dict[str, Any], field: str
) -> None:
    answer = shared_client.post("/api/v1/backtests", json=body)
    assert answer.status_code in (400, 404)
    problem = answer.get_json()
    fields = [problem.get("field"), *(one["field"] for one in problem.get("problems", ()))]
    assert field in fields
