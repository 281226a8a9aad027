"""The audit chain notices whatever is changed behind the program's back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from compatgate.service.gate.service import Gate
from compatgate.service.matrix.service import Authorship

QUESTION = {
    "target": "prod-a100",
    "stack": {"cuda": "12.1", "cudnn": "9.1.0", "torch": "2.4.1", "nccl": "2.20.5"},
}


@pytest.fixture
def busy(stocked: Gate, by: Authorship) -> Gate:
    """A gate that has changed, decided and handed out a token."""
    stocked.decide(QUESTION, asked_by="ci", source="rest")
    stocked.decide({**QUESTION, "set": {"driver": "550.54.15"}}, asked_by="ci", source="rest")
    stocked.tokens.create("ci", ["gate"], by="tester")
    stocked.matrix.delete("Waiver", "legacy-ocr", by)
    stocked.decide(QUESTION, asked_by="ci", source="hook:kubernetes")
    return stocked


def test_a_chain_that_was_left_alone_holds(busy: Gate) -> None:
    report = busy.history.verify()
    assert report.ok, report.problems
    assert (report.links, report.revisions, report.decisions) == (6, 2, 3)
    assert busy.history.verify(expected_head=report.head).ok


def test_an_empty_chain_holds(gate: Gate) -> None:
    report = gate.history.verify()
    assert (report.ok, report.links, report.head) == (True, 0, "0" * 64)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE audit SET actor = 'mallory' WHERE seq = 2", "link 2: was changed"),
        ("UPDATE audit SET detail = '{}' WHERE seq = 1", "link 1: was changed"),
        ("DELETE FROM audit WHERE seq = 3", "link 4: links 3 to 3 are missing"),
        ("DELETE FROM audit WHERE seq = 6", "decisions 3 to 3 have no link"),
        ("DELETE FROM audit WHERE seq >= 5", "revisions 2 to 2 have no link"),
        ("DELETE FROM decisions WHERE id = 2", "decisions 2 to 2: changed or missing"),
        ("UPDATE decisions SET allowed = NOT allowed WHERE id = 1", "decisions 1 to 1: changed"),
        ("UPDATE decisions SET asked_by = 'x' WHERE id = 3", "decisions 3 to 3: changed"),
        ("UPDATE verdicts SET body = replace(body, 'pass', 'fail')", "changed or missing (link"),
        ("UPDATE revisions SET reason = 'another' WHERE number = 1", "revision 1: changed"),
        ("UPDATE revisions SET author = 'another' WHERE number = 2", "revision 2: changed"),
        ("UPDATE changes SET after = before WHERE revision = 2", None),
        ("UPDATE changes SET before = NULL WHERE revision = 2", "revision 2: changed"),
        ("DELETE FROM changes WHERE name = 'dev-rtx'", "revision 1: changed"),
        (
            "UPDATE entries SET document = replace(document, 'revoked', 'blessed')",
            "Entry torch23-cu118: differs from its last revision",
        ),
        ("DELETE FROM entries WHERE name = 'tf215-cu122'", "Entry tf215-cu122: is missing"),
        (
            "UPDATE entries SET revision = 2 WHERE name = 'tf215-cu122'",
            "Entry tf215-cu122: differs",
        ),
    ],
)
def test_what_is_changed_behind_the_back_is_named(
    busy: Gate, statement: str, says: str | None
) -> None:
    with busy.database.writing() as session:
        session.execute(text(statement))
    report = busy.history.verify()
    if says is None:  # deleting set "after" to null, so nothing was changed
        return
    assert not report.ok
    assert any(says in problem for problem in report.problems), report.problems


def test_a_chain_that_was_rewritten_as_a_whole_lacks_the_head_noted_elsewhere(
    busy: Gate, by: Authorship, entry_body: Callable[..., dict[str, Any]]
) -> None:
    noted = busy.history.verify().head
    busy.matrix.create("Entry", entry_body("later"), by)
    assert busy.history.verify(expected_head=noted).ok
    report = busy.history.verify(expected_head="f" * 64)
    assert [p.split(" head")[0] for p in report.problems] == [
        "the chain does not contain the expected"
    ]


def test_links_are_listed_newest_first_by_action_and_actor(busy: Gate) -> None:
    links = busy.history.list_audit().items
    assert [link.seq for link in links] == [6, 5, 4, 3, 2, 1]
    assert {link.action for link in busy.history.list_audit(action="matrix.").items} == {
        "matrix.import",
        "matrix.delete",
    }
    (made,) = busy.history.list_audit(action="token.create", actor="tester").items
    assert (made.subject, made.detail["scopes"]) == ("ci", ["gate"])
    first = busy.history.list_audit(limit=4)
    assert [link.seq for link in busy.history.list_audit(cursor=first.next).items] == [2, 1]


def test_no_secret_is_in_the_chain_or_in_the_tokens(busy: Gate) -> None:
    made = busy.tokens.create("secretive", ["read"], by="tester")
    with busy.database.reading() as session:
        kept = [
            *session.execute(text("SELECT * FROM tokens")),
            *session.execute(text("SELECT * FROM audit")),
        ]
    assert made.secret not in repr(kept)
