"""History: numbered revisions, what each changed, and the matrix as it was."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from compatgate.errors import Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.matrix.documents import revisions

Body = Callable[..., dict[str, Any]]


def test_each_change_makes_one_numbered_revision(
    rooms: Rooms, by: Authorship, target_body: Body, entry_body: Body
) -> None:
    rooms.matrix.create("Target", target_body("t"), by)
    rooms.matrix.create("Entry", entry_body("e", targets=["t"]), Authorship("ann", "tested it"))
    rooms.matrix.change("Entry", "e", entry_body("e", targets=["t"], status="revoked"), by)
    rooms.matrix.delete("Entry", "e", by)
    rows = rooms.matrix.list_revisions().items
    assert [(r.number, r.action, r.author) for r in rows] == [
        (4, "delete", "tester"),
        (3, "change", "tester"),
        (2, "create", "ann"),
        (1, "create", "tester"),
    ]
    assert rows[2].reason == "tested it"


def test_a_revision_shows_both_sides_of_what_it_changed(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    rooms.matrix.create("Entry", entry_body("e"), by)
    rooms.matrix.change("Entry", "e", entry_body("e", status="revoked"), by)
    (change,) = rooms.matrix.show_revision(2).changes
    assert [(f.path, f.before, f.after) for f in change.fields] == [
        ("spec.status", "blessed", "revoked")
    ]


def test_an_equal_document_makes_no_revision(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    made = rooms.matrix.create("Entry", entry_body("e"), by)
    assert rooms.matrix.change("Entry", "e", entry_body("e", reason=""), by) == made
    assert rooms.gate.snapshot().revision == 1


def test_what_the_matrix_said_at_a_revision_can_be_read(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    rooms.matrix.create("Entry", entry_body("a"), by)
    rooms.matrix.create("Entry", entry_body("b"), by)
    rooms.matrix.change("Entry", "a", entry_body("a", status="deprecated"), by)
    rooms.matrix.delete("Entry", "b", by)

    def at(number: int) -> list[tuple[str, str]]:
        return [
            (body["metadata"]["name"], body["spec"]["status"])
            for body in rooms.matrix.export(revision=number)
        ]

    assert at(0) == []
    assert at(1) == [("a", "blessed")]
    assert at(2) == [("a", "blessed"), ("b", "blessed")]
    assert at(3) == [("a", "deprecated"), ("b", "blessed")]
    assert at(4) == [("a", "deprecated")]
    assert rooms.matrix.export(revision=4) == rooms.matrix.export()


def test_what_a_name_meant_survives_its_deletion_and_return(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    rooms.matrix.create("Entry", entry_body("e"), by)
    rooms.matrix.delete("Entry", "e", by)
    rooms.matrix.create("Entry", entry_body("e", status="candidate"), by)
    assert [len(rooms.matrix.export(revision=n)) for n in (1, 2, 3)] == [1, 0, 1]
    names = [row.number for row in rooms.matrix.list_revisions(name="e").items]
    assert names == [3, 2, 1]


def test_the_revision_of_a_moment_is_the_last_one_made_by_then(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    before = clock.now() - timedelta(seconds=1)
    for name in "abc":
        rooms.matrix.create("Entry", entry_body(name), by)
    made = [rooms.matrix.show_revision(n).made_at for n in (1, 2, 3)]
    assert made == sorted(made)
    elsewhere = made[1].astimezone(UTC) + timedelta(microseconds=1)
    with rooms.gate.database.reading() as session:
        found = [
            revisions.find_revision_at(session, t)
            for t in (before, made[1], clock.now(), elsewhere)
        ]
    assert found == [0, 2, 3, 2]


def test_a_clock_that_goes_back_does_not_take_the_history_with_it(
    rooms: Rooms, by: Authorship, entry_body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms.matrix.create("Entry", entry_body("a"), by)
    monkeypatch.setattr(clock, "now", lambda: datetime(2020, 1, 1, tzinfo=UTC))
    rooms.matrix.create("Entry", entry_body("b"), by)
    rows = rooms.matrix.list_revisions().items
    assert rows[0].made_at == rows[1].made_at


def test_a_revision_that_does_not_exist_is_named_with_the_last_one(rooms: Rooms) -> None:
    with pytest.raises(NotFound, match="no revisions yet"):
        rooms.matrix.show_revision(1)
    with pytest.raises(NotFound, match="revision 7 does not exist"):
        rooms.matrix.export(revision=7)
    with pytest.raises(NotFound, match="revision -1 does not exist"):
        rooms.matrix.diff(-1)


def test_differences_between_revisions_leave_out_what_came_and_went(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    rooms.matrix.create("Entry", entry_body("a"), by)
    rooms.matrix.create("Entry", entry_body("b"), by)
    rooms.matrix.delete("Entry", "b", by)
    assert rooms.matrix.diff(1, 3) == rooms.matrix.diff(1) == []
    assert [c.action for c in rooms.matrix.diff(0)] == ["create"]
    assert [c.action for c in rooms.matrix.diff(3, 0)] == ["delete"]


@pytest.mark.parametrize("field", ["author", "reason"])
@pytest.mark.parametrize("text", ["", "  ", "a\0b", "\ud800", "x" * 9000])
def test_a_change_says_who_and_why(rooms: Rooms, entry_body: Body, field: str, text: str) -> None:
    from compatgate.errors import BadInput

    by = Authorship(**{"author": "a", "reason": "b", field: text})
    with pytest.raises(BadInput) as caught:
        rooms.matrix.create("Entry", entry_body("e"), by)
    assert caught.value.field == field
    assert rooms.gate.snapshot().revision == 0


def test_revisions_are_filtered_by_author_document_and_time(
    rooms: Rooms, by: Authorship, entry_body: Body, target_body: Body
) -> None:
    rooms.matrix.create("Target", target_body("x"), Authorship("ann", "r"))
    rooms.matrix.create("Entry", entry_body("x"), Authorship("bob", "r"))

    def numbers(**filters: Any) -> list[int]:
        return [row.number for row in rooms.matrix.list_revisions(**filters).items]

    assert numbers(author="ann") == [1]
    assert numbers(kind="Entry") == [2]
    assert numbers(name="x") == [2, 1]
    assert numbers(kind="Waiver", name="x") == []
    assert numbers(since=clock.now()) == []
    assert numbers(until=clock.now()) == [2, 1]


def test_an_import_makes_one_revision_of_many_changes(stocked: Rooms, by: Authorship) -> None:
    row = stocked.matrix.show_revision(1)
    assert (row.action, row.count) == ("import", len(row.changes))
    assert len(row.changes) == 15
    assert {change.action for change in row.changes} == {"create"}


def test_a_change_made_from_an_old_version_is_refused(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    seen = rooms.matrix.create("Entry", entry_body("e"), by)
    rooms.matrix.change("Entry", "e", entry_body("e", reason="first"), by, expected=seen.revision)
    for attempt in (
        lambda: rooms.matrix.change("Entry", "e", entry_body("e"), by, expected=seen.revision),
        lambda: rooms.matrix.delete("Entry", "e", by, expected=seen.revision),
    ):
        with pytest.raises(Conflict, match="revision 2 changed the Entry"):
            attempt()
    assert rooms.matrix.get("Entry", "e").document["spec"]["reason"] == "first"


def test_a_version_keeps_when_it_was_made_and_when_it_was_changed(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    made = rooms.matrix.create("Entry", entry_body("e"), by)
    changed = rooms.matrix.change("Entry", "e", entry_body("e", reason="r"), by)
    assert changed.created_at == made.created_at == made.updated_at
    assert changed.updated_at > made.updated_at
    assert (made.etag, changed.etag) == ('"r1"', '"r2"')


def test_versions_since_a_revision_are_enough_to_catch_up(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    rooms.matrix.create("Entry", entry_body("a"), by)
    rooms.matrix.create("Entry", entry_body("b"), by)
    rooms.matrix.delete("Entry", "a", by)
    with rooms.gate.database.reading() as session:
        found = [
            (kind, name, document is None, number)
            for kind, name, document, number in revisions.read_versions_since(session, 1)
        ]
    assert found == [("Entry", "b", False, 2), ("Entry", "a", True, 3)]


def test_the_changes_of_one_document_are_listed_newest_first(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    rooms.matrix.create("Entry", entry_body("e"), by)
    rooms.matrix.create("Entry", entry_body("other"), by)
    rooms.matrix.change(
        "Entry", "e", entry_body("e", status="revoked"), Authorship("ann", "it crashes")
    )
    rooms.matrix.delete("Entry", "e", by)
    first = rooms.matrix.list_changes("Entry", "e", limit=2)
    rest = rooms.matrix.list_changes("Entry", "e", limit=2, cursor=first.next)
    rows = (*first.items, *rest.items)
    assert [(r.number, r.changes[0].action) for r in rows] == [
        (4, "delete"),
        (3, "change"),
        (1, "create"),
    ]
    assert rows[1].reason == "it crashes"
    assert [f.path for f in rows[1].changes[0].fields] == ["spec.status"]
    assert rooms.matrix.list_changes("Target", "e").items == ()
