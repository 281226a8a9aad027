"""Sessions of people, on each database: one session for an ID token, and ends that hold."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from compatgate.errors import NotFound, Unauthorized
from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.service.access.sessions import IdentitySessions
from compatgate.service.access.settings import PeopleSettings, Person

PEOPLE = PeopleSettings("https://id.example", "compatgate", groups={"platform": ["read", "gate"]})
ADA = Person("https://id.example", "u-1", "ada", "ada@example.org", ("platform",))


@pytest.fixture
def sessions(database: Database) -> IdentitySessions:
    return IdentitySessions(database, PEOPLE)


def test_a_session_is_found_by_its_secret_alone(sessions: IdentitySessions) -> None:
    made = sessions.open(ADA, "command-line", "an ID token")
    assert sessions.at_hand(made.secret) is None
    person = sessions.verify(made.secret, "command-line")
    assert (person.name, person.kind) == ("ada@example.org (u-1)", "person")
    assert sessions.at_hand(made.secret) == person
    assert sessions.find(made.session.id) == made.session
    assert made.secret not in str(made.session)
    with pytest.raises(Unauthorized, match="unknown"):
        sessions.verify("cgs_guessed", "command-line")


def test_an_id_token_opens_one_session(sessions: IdentitySessions, database: Database) -> None:
    outcomes: list[str] = []

    def open_one() -> None:
        try:
            IdentitySessions(database, PEOPLE).open(ADA, "browser", "an ID token")
            outcomes.append("opened")
        except Unauthorized as error:
            outcomes.append(error.problem)

    threads = [threading.Thread(target=open_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["opened", *("the ID token was used before" for _ in range(3))]
    sessions.open(ADA, "browser", "another ID token")


def test_sessions_that_ended_are_deleted_later(
    sessions: IdentitySessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sessions.open(ADA, "browser", "an ID token")
    sessions.end(made.session.id, by="root")
    assert sessions.list().items == ()
    sessions.open(ADA, "browser", "a second")
    assert sessions.find(made.session.id).ended_at  # and its ID token opens no other one
    later = clock.now() + timedelta(hours=13)
    monkeypatch.setattr(clock, "now", lambda: later)
    sessions.open(ADA, "browser", "a third")
    with pytest.raises(NotFound):
        sessions.find(made.session.id)
    with pytest.raises(NotFound):
        sessions.end("is_none", by="root")


def test_the_migration_is_undone_and_done_again(empty_url: str) -> None:
    database = Database.open(empty_url)
    tables.migrate_schema(database)
    made = IdentitySessions(database, PEOPLE).open(ADA, "browser", "an ID token")
    assert tables.migrate_schema(database, "0008") == "0008"
    tables.migrate_schema(database)
    with pytest.raises(Unauthorized, match="unknown"):
        IdentitySessions(database, PEOPLE).verify(made.secret, "browser")
    database.close()
