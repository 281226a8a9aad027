"""History: numbered revisions, what each changed, and the matrix as it was."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from compatgate.errors import Conflict, NotFound
from compatgate.kit import clock
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.documents import revisions
from compatgate.service.matrix.documents.service import Authorship

Body = Callable[..., dict[str, Any]]


def test_each_change_makes_one_numbered_revision(
    gate: Gate, by: Authorship, target_body: Body, entry_body: Body
) -> None:
    gate.matrix.create("Target", target_body("t"), by)
    gate.matrix.create("Entry", entry_body("e", targets=["t"]), Authorship("ann", "tested it"))
    gate.matrix.change("Entry", "e", entry_body("e", targets=["t"], status="revoked"), by)
    gate.matrix.delete("Entry", "e", by)
    rows = gate.matrix.list_revisions().items
    assert [(r.number, r.action, r.author) for r in rows] == [
        (4, "delete", "tester"),
        (3, "change", "tester"),
        (2, "create", "ann"),
        (1, "create", "tester"),
    ]
    assert rows[2].reason == "tested it"


def test_a_revision_shows_both_sides_of_what_it_changed(
    gate: Gate, by: Authorship, entry_body: Body
) -> None:
    gate.matrix.create("Entry", entry_body("e"), by)
    gate.matrix.change("Entry", "e", entry_body("e", status="revoked"), by)
    (change,) = gate.matrix.show_revision(2).changes
    assert [(f.path, f.before, f.after) for f in change.fields] == [
        ("spec.status", "blessed", "revoked")
    ]


def test_an_equal_document_makes_no_revision(gate: Gate, by: Authorship, entry_body: Body) -> None:
    made = gate.matrix.create("Entry", entry_body("e"), by)
    assert gate.matrix.change("Entry", "e", entry_body("e", reason=""), by) == made
    assert gate.snapshot().revision == 1


def test_what_the_matrix_said_at_a_revision_can_be_read(
    gate: Gate, by: Authorship, entry_body: Body
) -> None:
    gate.matrix.create("Entry", entry_body("a"), by)
    gate.matrix.create("Entry", entry_body("b"), by)
    gate.matrix.change("Entry", "a", entry_body("a", status="deprecated"), by)
    gate.matrix.delete("Entry", "b", by)

    def at(number: int) -> list[tuple[str, str]]:
        return [
            (body["metadata"]["name"], body["spec"]["status"])
            for body in gate.matrix.export(revision=number)
        ]

    assert at(0) == []
    assert at(1) == [("a", "blessed")]
    assert at(2) == [("a", "blessed"), ("b", "blessed")]
    assert at(3) == [("a", "deprecated"), ("b", "blessed")]
    assert at(4) == [("a", "deprecated")]
    assert gate.matrix.export(revision=4) == gate.matrix.export()


def test_what_a_name_meant_survives_its_deletion_and_return(
    gate: Gate, by: Authorship, entry_body: Body
) -> None:
    gate.matrix.create("Entry", entry_body("e"), by)
    gate.matrix.delete("Entry", "e", by)
    gate.matrix.create("Entry", entry_body("e", status="candidate"), by)
    assert [len(gate.matrix.export(revision=n)) for n in (1, 2, 3)] == [1, 0, 1]
    names = [row.number for row in gate.matrix.list_revisions(name="e").items]
    assert names == [3, 2, 1]


def test_the_revision_of_a_moment_is_the_last_one_made_by_then(
    gate: Gate, by: Authorship, entry_body: Body
) -> None:
    before = clock.now() - timedelta(seconds=1)
    for name in "abc":
        gate.matrix.create("Entry", entry_body(name), by)
    made = [gate.matrix.show_revision(n).made_at for n in (1, 2, 3)]
    assert made == sorted(made)
    assert gate.matrix.revision_at(before) == 0
    assert gate.matrix.revision_at(made[1]) == 2
    assert gate.matrix.revision_at(clock.now()) == 3
    elsewhere = made[1].astimezone(UTC) + timedelta(microseconds=1)
    assert gate.matrix.revision_at(elsewhere) == 2


def test_a_clock_that_goes_back_does_not_take_the_history_with_it(
    gate: Gate, by: Authorship, entry_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.matrix.create("Entry", entry_body("a"), by)
    monkeypatch.setattr(clock, "now", lambda: datetime(2020, 1, 1, tzinfo=UTC))
    gate.matrix.create("Entry", entry_body("b"), by)
    rows = gate.matrix.list_revisions().items
    assert rows[0].made_at == rows[1].made_at


def test_a_revision_that_does_not_exist_is_named_with_the_last_one(gate: Gate) -> None:
    with pytest.raises(NotFound, match="no revisions yet"):
        gate.matrix.show_revision(1)
    with pytest.raises(NotFound, match="revision 7 does not exist"):
        gate.matrix.export(revision=7)
    with pytest.raises(NotFound, match="revision -1 does not exist"):
        gate.matrix.diff(-1)


def test_differences_between_revisions_leave_out_what_came_and_went(
    gate: Gate, by: Authorship, entry_body: Body
) -> None:
    gate.matrix.create("Entry", entry_body("a"), by)
    gate.matrix.create("Entry", entry_body("b"), by)
    gate.matrix.delete("Entry", "b", by)
    assert gate.matrix.diff(1, 3) == gate.matrix.diff(1) == []
    assert [c.action for c in gate.matrix.diff(0)] == ["create"]
    assert [c.action for c in gate.matrix.diff(3, 0)] == ["delete"]


@pytest.mark.parametrize("field", ["author", "reason"])
@pytest.mark.parametrize("text", ["", "  ", "a\0b", "\ud800", "x" * 9000])
def test_a_change_says_who_and_why(gate: Gate, entry_body: Body, field: str, text: str) -> None:
    from compatgate.errors import BadInput

    by = Authorship(**{"author": "a", "reason": "b", field: text})
    with pytest.raises(BadInput) as caught:
        gate.matrix.create("Entry", entry_body("e"), by)
    assert caught.value.field == field
    assert gate.snapshot().revision == 0


def test_revisions_are_filtered_by_author_document_and_time(
    gate: Gate, by: Authorship, entry_body: Body, target_body: Body
) -> None:
    gate.matrix.create("Target", target_body("x"), Authorship("ann", "r"))
    gate.matrix.create("Entry", entry_body("x"), Authorship("bob", "r"))

    def numbers(**filters: Any) -> list[int]:
        return [row.number for row in gate.matrix.list_revisions(**filters).items]

    assert numbers(author="ann") == [1]
    assert numbers(kind="Entry") == [2]
    assert numbers(name="x") == [2, 1]
    assert numbers(kind="Waiver", name="x") == []
    assert numbers(since=clock.now()) == []
    assert numbers(until=clock.now()) == [2, 1]


def test_an_import_makes_one_revision_of_many_changes(stocked: Gate, by: Authorship) -> None:
    row = stocked.matrix.show_revision(1)
    assert (row.action, row.count) == ("import", len(row.changes))
    assert len(row.changes) == 15
    assert {change.action for change in row.changes} == {"create"}


def test_a_change_made_from_an_old_version_is_refused(
    gate: Gate, by: Authorship, entry_body: Body
) -> None:
    seen = gate.matrix.create("Entry", entry_body("e"), by)
    gate.matrix.change("Entry", "e", entry_body("e", reason="first"), by, expected=seen.revision)
    for attempt in (
        lambda: gate.matrix.change("Entry", "e", entry_body("e"), by, expected=seen.revision),
        lambda: gate.matrix.delete("Entry", "e", by, expected=seen.revision),
    ):
        with pytest.raises(Conflict, match="revision 2 changed the Entry"):
            attempt()
    assert gate.matrix.get("Entry", "e").document["spec"]["reason"] == "first"


def test_a_version_keeps_when_it_was_made_and_when_it_was_changed(
    gate: Gate, by: Authorship, entry_body: Body
) -> None:
    made = gate.matrix.create("Entry", entry_body("e"), by)
    changed = gate.matrix.change("Entry", "e", entry_body("e", reason="r"), by)
    assert changed.created_at == made.created_at == made.updated_at
    assert changed.updated_at > made.updated_at
    assert (made.etag, changed.etag) == ('"r1"', '"r2"')


def test_versions_since_a_revision_are_enough_to_catch_up(
    gate: Gate, by: Authorship, entry_body: Body
) -> None:
    gate.matrix.create("Entry", entry_body("a"), by)
    gate.matrix.create("Entry", entry_body("b"), by)
    gate.matrix.delete("Entry", "a", by)
    with gate.database.reading() as session:
        found = [
            (kind, name, document is None, number)
            for kind, name, document, number in revisions.read_versions_since(session, 1)
        ]
    assert found == [("Entry", "b", False, 2), ("Entry", "a", True, 3)]


def test_the_changes_of_one_document_are_listed_newest_first(
    gate: Gate, by: Authorship, entry_body: Body
) -> None:
    gate.matrix.create("Entry", entry_body("e"), by)
    gate.matrix.create("Entry", entry_body("other"), by)
    gate.matrix.change(
        "Entry", "e", entry_body("e", status="revoked"), Authorship("ann", "it crashes")
    )
    gate.matrix.delete("Entry", "e", by)
    first = gate.matrix.list_changes("Entry", "e", limit=2)
    rest = gate.matrix.list_changes("Entry", "e", limit=2, cursor=first.next)
    rows = (*first.items, *rest.items)
    assert [(r.number, r.changes[0].action) for r in rows] == [
        (4, "delete"),
        (3, "change"),
        (1, "create"),
    ]
    assert rows[1].reason == "it crashes"
    assert [f.path for f in rows[1].changes[0].fields] == ["spec.status"]
    assert gate.matrix.list_changes("Target", "e").items == ()
