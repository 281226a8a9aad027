"""The audit chain notices whatever is changed behind the program's back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms

QUESTION = {
    "target": "prod-a100",
    "stack": {"cuda": "12.1", "cudnn": "9.1.0", "torch": "2.4.1", "nccl": "2.20.5"},
}


@pytest.fixture
def busy(stocked: Rooms, by: Authorship) -> Rooms:
    """A gate that has changed, decided, handed out tokens, and anchored its decisions."""
    stocked.gate.decide(QUESTION, asked_by="ci", source="rest")
    stocked.gate.decide({**QUESTION, "set": {"driver": "550.54.15"}}, asked_by="ci", source="rest")
    stocked.tokens.create("ci", ["gate"], by="tester")
    stocked.tokens.create("old", ["read"], by="tester")
    stocked.tokens.revoke("old", by="tester")
    stocked.matrix.delete("Waiver", "legacy-ocr", by)
    stocked.gate.decide(QUESTION, asked_by="ci", source="hook:kubernetes")
    assert stocked.chain.verify().unanchored == 0
    return stocked


def test_a_chain_that_was_left_alone_holds(busy: Rooms) -> None:
    report = busy.chain.verify()
    assert report.ok, report.problems
    assert (report.links, report.revisions, report.decisions) == (7, 2, 3)
    assert (report.batches, report.tokens, report.unanchored) == (3, 2, 0)
    assert busy.chain.verify(expected_head=report.head).ok


def test_an_empty_chain_holds(rooms: Rooms) -> None:
    report = rooms.chain.verify()
    assert (report.ok, report.links, report.head) == (True, 0, "0" * 64)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE audit SET actor = 'mallory' WHERE seq = 2", "link 2: was changed"),
        ("UPDATE audit SET detail = '{}' WHERE seq = 1", "link 1: was changed"),
        ("DELETE FROM audit WHERE seq = 3", "link 4: links 3 to 3 are missing"),
        ("DELETE FROM audit WHERE seq >= 5", "revisions 2 to 2 have no link"),
        ("DELETE FROM decisions WHERE id = 2000", "decisions 2000 to 2000: changed or missing"),
        (
            "UPDATE decisions SET allowed = NOT allowed WHERE id = 1000",
            "decisions 1000 to 1000: ch",
        ),
        ("UPDATE decisions SET asked_by = 'x' WHERE id = 3000", "decisions 3000 to 3000: changed"),
        ("UPDATE decisions SET id = 2001 WHERE id = 3000", "decisions 2000 to 2000: changed"),
        ("UPDATE decisions SET id = 999 WHERE id = 1000", "decisions 1 to 999 have no link"),
        ("DELETE FROM decision_batches WHERE sequence = 2", "1 decisions from 2000 on have no"),
        ("DELETE FROM decision_batches WHERE sequence = 2", "the batch before is missing"),
        ("UPDATE decision_batches SET sequence = 4 WHERE sequence = 3", "batch before is missing"),
        ("UPDATE decision_batches SET verdicts = NULL WHERE sequence = 1", "1000 to 1000: changed"),
        ("UPDATE decision_batches SET verdicts = '{' WHERE sequence = 1", "1000 to 1000: changed"),
        ("UPDATE decision_batches SET verdicts = 'YQ==' WHERE sequence = 1", "to 1000: changed"),
        ("UPDATE verdicts SET image = 'other'", "decisions 1000 to 1000: changed"),
        ("UPDATE decisions SET image = 'other' WHERE id = 1000", "decisions 1000 to 1000: changed"),
        ("DELETE FROM decision_batches WHERE sequence = 3", "batch 3 of writer"),
        ("UPDATE verdicts SET packed = NULL, body = '{}'", "changed or missing (batch"),
        ("UPDATE verdicts SET packed = NULL, body = '{}', batch = 3", "changed or missing (batch"),
        ("UPDATE tokens SET scopes = 'admin' WHERE name = 'ci'", ": was changed"),
        ("UPDATE tokens SET digest = 'of another' WHERE name = 'ci'", ": was changed"),
        ("UPDATE tokens SET expires_at = NULL, name = 'other' WHERE name = 'ci'", ": was changed"),
        ("UPDATE tokens SET revoked_at = NULL WHERE name = 'old'", "is not revoked, but"),
        ("UPDATE tokens SET revoked_at = created_at WHERE name = 'ci'", "is revoked, but"),
        ("DELETE FROM tokens WHERE name = 'ci'", "is missing"),
        (
            "INSERT INTO tokens (id, name, digest, scopes, created_at, created_by)"
            " SELECT 'tk_x', 'x', 'x', 'admin', created_at, 'x' FROM tokens WHERE name = 'ci'",
            "token tk_x: no link of the chain created it",
        ),
        ("UPDATE revisions SET reason = 'another' WHERE number = 1", "revision 1: changed"),
        ("UPDATE revisions SET author = 'another' WHERE number = 2", "revision 2: changed"),
        ("UPDATE changes SET after = before WHERE revision = 2", None),
        ("UPDATE changes SET before = NULL WHERE revision = 2", "revision 2: changed"),
        ("DELETE FROM changes WHERE name = 'dev-rtx'", "revision 1: changed"),
        (
            "UPDATE entries SET document = replace(document, 'revoked', 'blessed')",
            "Entry torch23-cu118: differs from its last revision",
        ),
        (
            "UPDATE entries SET document = '{' WHERE name = 'tf215-cu122'",
            "Entry tf215-cu122: differs",
        ),
        ("UPDATE entries SET name = 'other' WHERE name = 'tf215-cu122'", "Entry other: differs"),
        ("DELETE FROM entries WHERE name = 'tf215-cu122'", "Entry tf215-cu122: is missing"),
        (
            "UPDATE entries SET revision = 2 WHERE name = 'tf215-cu122'",
            "Entry tf215-cu122: differs",
        ),
    ],
)
def test_what_is_changed_behind_the_back_is_named(
    busy: Rooms, statement: str, says: str | None
) -> None:
    with busy.gate.database.writing() as session:
        session.execute(text(statement))
    report = busy.chain.verify()
    if says is None:  # deleting set "after" to null, so nothing was changed
        return
    assert not report.ok
    assert any(says in problem for problem in report.problems), report.problems


def test_a_chain_that_was_rewritten_as_a_whole_lacks_the_head_noted_elsewhere(
    busy: Rooms, by: Authorship, entry_body: Callable[..., dict[str, Any]]
) -> None:
    noted = busy.chain.verify().head
    busy.matrix.create("Entry", entry_body("later"), by)
    assert busy.chain.verify(expected_head=noted).ok
    report = busy.chain.verify(expected_head="f" * 64)
    assert [p.split(" head")[0] for p in report.problems] == [
        "the chain does not contain the expected"
    ]


def test_a_verification_goes_on_where_the_last_one_ended(
    busy: Rooms, by: Authorship, entry_body: Callable[..., dict[str, Any]]
) -> None:
    busy.gate.decide(QUESTION, asked_by="later", source="rest")
    busy.matrix.create("Entry", entry_body("later"), by)
    report = busy.chain.verify(full=False)
    assert report.ok, report.problems
    assert (report.since, report.links, report.checked_links) == (6, 9, 3)
    assert (report.decisions, report.batches, report.revisions) == (4, 4, 3)
    assert busy.chain.verify(full=False).checked_links == 1, "its own seal"
    assert busy.audit.list_audit().items[0].seq == 10, "what is sealed is not sealed again"
    whole = busy.chain.verify()
    assert (whole.ok, whole.since, whole.checked_links, whole.decisions) == (True, 0, 10, 4)


def test_a_verification_of_what_is_new_finds_what_was_changed_since(busy: Rooms) -> None:
    busy.gate.decide(QUESTION, asked_by="later", source="rest")
    with busy.gate.database.writing() as session:
        session.execute(text("UPDATE decisions SET asked_by = 'x' WHERE id = 4000"))
    report = busy.chain.verify(full=False)
    assert any("decisions 4000 to 4000: changed" in one for one in report.problems)
    assert not busy.chain.verify(full=False).ok, "nothing is sealed that is not in order"


def test_a_head_noted_before_the_seal_is_found_by_walking_from_it(busy: Rooms) -> None:
    noted = busy.audit.list_audit().items[4].hash
    report = busy.chain.verify(expected_head=noted, full=False)
    assert (report.ok, report.checked_links) == (True, 5)
    with busy.gate.database.writing() as session:
        session.execute(text("UPDATE audit SET actor = 'mallory' WHERE seq = 4"))
    report = busy.chain.verify(expected_head=noted, full=False)
    assert report.problems == ["link 4: was changed after it was written"]


def test_links_are_listed_newest_first_by_action_and_actor(busy: Rooms) -> None:
    links = busy.audit.list_audit().items
    assert [link.seq for link in links] == [7, 6, 5, 4, 3, 2, 1]
    assert [link.action for link in links[:2]] == ["audit.seal", "decisions.anchor"]
    assert {link.action for link in busy.audit.list_audit(action="matrix.").items} == {
        "matrix.import",
        "matrix.delete",
    }
    _, made = busy.audit.list_audit(action="token.create", actor="tester").items
    assert (made.subject, made.detail["scopes"]) == ("ci", ["gate"])
    first = busy.audit.list_audit(limit=5)
    assert [link.seq for link in busy.audit.list_audit(cursor=first.next).items] == [2, 1]


def test_no_secret_is_in_the_chain_or_in_the_tokens(busy: Rooms) -> None:
    made = busy.tokens.create("secretive", ["read"], by="tester")
    with busy.gate.database.reading() as session:
        kept = [
            *session.execute(text("SELECT * FROM tokens")),
            *session.execute(text("SELECT * FROM audit")),
        ]
    assert made.secret not in repr(kept)
