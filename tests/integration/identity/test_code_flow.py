"""Authorization code with PKCE, at the real issuer: what opens a session, and what does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import oidc_issuer
import pytest
from msgspec.structs import replace
from oidc_issuer import ADA, SETTINGS, Issuer

from compatgate.errors import Forbidden, Unauthorized, Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.service.access import people as module
from compatgate.service.access.identity import Identity
from compatgate.service.access.people import People
from compatgate.service.access.sessions import NewSession
from compatgate.service.audit.chain import AuditLog

Visit = Callable[..., Any]


def sign_in(people: People, visit: Visit, name: str = "ada") -> NewSession:
    return people.finish(*visit(people, name))


def test_a_person_has_the_scopes_of_their_groups(
    people: People, visit: Visit, database: Database
) -> None:
    made = sign_in(people, visit)
    assert made.session.groups == ["platform"]
    assert made.principal.scopes == {"read", "gate", "bless", "admin"}
    assert made.principal.name == "ada@example.org (ada)"
    assert people._sessions.verify(made.secret, "browser") == made.principal
    (record,) = AuditLog(database).list_audit(action="session.open").items
    assert record.actor == "ada@example.org (ada)"
    assert record.detail["issuer"] == people.settings.issuer
    assert record.detail["email"] == "ada@example.org"
    assert record.detail["rights"]["scopes"] == ["admin", "bless", "gate", "read"]
    assert made.secret not in str(record)


def test_a_session_of_the_browser_is_no_bearer_token(people: People, visit: Visit) -> None:
    made = sign_in(people, visit)
    with pytest.raises(Unauthorized, match="session is unknown"):
        people._sessions.verify(made.secret, "command-line")


def test_a_person_without_a_known_group_is_refused(people: People, visit: Visit) -> None:
    with pytest.raises(Forbidden, match="no group of this account"):
        sign_in(people, visit, "cy")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "of another"}, "another sign-in"),
        ({"iss": "https://id.example"}, "another issuer"),
        ({"iss": ""}, "another issuer"),
        ({"code": "guessed"}, "refused the code"),
        ({"code": ""}, "refused: no code"),
        ({"code": "", "error": "access_denied"}, "refused: access_denied"),
    ],
)
def test_a_changed_answer_opens_nothing(
    people: People, visit: Visit, change: dict[str, str], message: str
) -> None:
    attempt, response, back = visit(people)
    with pytest.raises(Unauthorized, match=message):
        people.finish(attempt, replace(response, **change), back)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nonce": "of another"}, "nonce"),
        ({"verifier": "x" * 43}, "refused the code"),
        ({"at": 0.0}, "took too long"),
    ],
)
def test_another_browser_opens_nothing(
    people: People, visit: Visit, change: dict[str, Any], message: str
) -> None:
    attempt, response, back = visit(people)
    with pytest.raises(Unauthorized, match=message):
        people.finish(replace(attempt, **change), response, back)


def test_a_code_opens_one_session(people: People, visit: Visit) -> None:
    visited = visit(people)
    people.finish(*visited)
    with pytest.raises(Unauthorized, match="refused the code"):
        people.finish(*visited)


def test_a_new_key_of_the_issuer_is_read(people: People, visit: Visit, issuer: Issuer) -> None:
    sign_in(people, visit)
    issuer.rotate()
    assert sign_in(people, visit).principal.may("bless")


def test_changed_groups_count_at_the_next_sign_in(
    people: People, visit: Visit, issuer: Issuer
) -> None:
    first = sign_in(people, visit)
    issuer.set_people({"ada": {"email": "new@example.org", "groups": ["readers"]}})
    assert people._sessions.verify(first.secret, "browser").may("bless")
    second = sign_in(people, visit)
    assert second.principal.scopes == {"read"}
    assert second.principal.name == "new@example.org (ada)"
    assert second.principal.identity == first.principal.identity  # nobody is two people


def test_a_person_with_few_targets_is_sent_to_the_command_line(
    people: People, visit: Visit
) -> None:
    with pytest.raises(Forbidden, match=r"limited to prod-\*, and the pages show all targets"):
        sign_in(people, visit, "bo")


def test_a_group_that_the_file_drops_opens_nothing_from_then_on(
    people: People, visit: Visit, database: Database, settings_of: Any
) -> None:
    made = sign_in(people, visit)
    document = {"issuer": people.settings.issuer, "client_id": "compatgate", "default": ["read"]}
    later = Identity(database, settings_of({"people": document}))
    assert later.sessions.verify(made.secret, "browser").scopes == {"read"}
    elsewhere = settings_of({"people": {**document, "issuer": "https://id.example"}})
    with pytest.raises(Unauthorized, match="no longer trusts"):
        Identity(database, elsewhere).sessions.verify(made.secret, "browser")


def test_a_session_ends_when_it_was_idle_and_at_its_absolute_end(
    people: People, visit: Visit, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sign_in(people, visit)
    begun = clock.now()

    def sessions_after(minutes: float) -> Any:
        monkeypatch.setattr(clock, "now", lambda: begun + timedelta(minutes=minutes))
        return type(people._sessions)(database, people.settings)  # without what was cached

    for minutes in range(50, 12 * 60, 50):
        sessions_after(minutes).verify(made.secret, "browser")
    with pytest.raises(Unauthorized, match="session has expired"):
        sessions_after(12 * 60).verify(made.secret, "browser")
    monkeypatch.setattr(clock, "now", lambda: begun)
    idle = sign_in(people, visit)
    with pytest.raises(Unauthorized, match="idle for too long"):
        sessions_after(61).verify(idle.secret, "browser")


def test_a_session_that_is_ended_opens_nothing_anywhere(
    people: People, visit: Visit, database: Database
) -> None:
    made = sign_in(people, visit)
    other = type(people._sessions)(database, people.settings)
    other.verify(made.secret, "browser")
    assert [row.id for row in other.list().items] == [made.session.id]
    people._sessions.end(made.session.id, by="root")
    with pytest.raises(Unauthorized, match="session has ended"):
        people._sessions.verify(made.secret, "browser")
    time.sleep(1.1)
    with pytest.raises(Unauthorized, match="session has ended"):
        other.verify(made.secret, "browser")
    assert other.list().items == ()
    (record,) = AuditLog(database).list_audit(action="session.close").items
    assert (record.actor, record.subject) == ("root", "ada")


def test_an_issuer_that_is_away_is_named(database: Database, settings_of: Any) -> None:
    document = {"issuer": "http://127.0.0.1:9", "client_id": "compatgate", "default": ["read"]}
    identity = Identity(database, settings_of({"people": document}))
    with pytest.raises(Unavailable, match=r"http://127.0.0.1:9 does not answer"):
        identity.require_people().begin("http://127.0.0.1/ui/sign-in/done", "/ui/")
    offer = identity.offer()
    assert offer
    assert "does not answer" in offer["problem"]


def test_claims_that_only_userinfo_has_are_read_there(
    database: Database, settings_of: Any, gate_url: str, visit: Visit, impatient: None
) -> None:
    with oidc_issuer.running({"ada": ADA}, gate_url, groupsOnlyInUserinfo=True) as issuer:
        document = {"issuer": issuer.url, **SETTINGS, "default": []}
        plain = Identity(database, settings_of({"people": document})).require_people()
        with pytest.raises(Forbidden):
            sign_in(plain, visit)
        asking = settings_of({"people": {**document, "userinfo": True}})
        made = sign_in(Identity(database, asking).require_people(), visit)
        assert made.principal.name == "ada@example.org (ada)"


def test_an_old_id_token_opens_nothing(
    people: People, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited = visit(people)
    monkeypatch.setattr(module, "_FRESH_S", -120)
    with pytest.raises(Unauthorized, match="too old"):
        people.finish(*visited)
