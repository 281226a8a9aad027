"""Tokens: their secret is known once, what they open ends when it should."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from compatgate.errors import BadInput, Conflict, Forbidden, NotFound, Unauthorized
from compatgate.kit import clock
from compatgate.kit.principal import Authorship, matches
from compatgate.service.access import schemas
from compatgate.service.access import tokens as auth
from compatgate.service.access.browser_sessions import SessionLimits
from compatgate.service.app import Rooms, open_rooms


def test_a_token_opens_what_its_scopes_say(rooms: Rooms) -> None:
    made = rooms.tokens.create("ci", ["gate", "read"], by="tester")
    assert re.fullmatch(r"cg_[\w-]{43}", made.secret)
    principal = rooms.tokens.verify(made.secret)
    assert (principal.name, principal.token_id) == ("ci", made.token.id)
    principal.require("gate")
    with pytest.raises(Forbidden, match="the scope bless is required"):
        principal.require("bless")


def test_admin_has_every_scope(rooms: Rooms) -> None:
    made = rooms.tokens.create("root", ["admin"], by="tester")
    assert all(rooms.tokens.verify(made.secret).may(scope) for scope in schemas.SCOPES)


@pytest.mark.parametrize("secret", ["", "cg_", "cg_" + "x" * 43, "\ud800", "a" * 10_000])
def test_an_unknown_secret_opens_nothing(rooms: Rooms, secret: str) -> None:
    rooms.tokens.create("ci", ["gate"], by="tester")
    with pytest.raises(Unauthorized, match="token is unknown"):
        rooms.tokens.verify(secret)


def test_a_revoked_token_opens_nothing_and_keeps_its_name(rooms: Rooms) -> None:
    made = rooms.tokens.create("ci", ["gate"], by="tester")
    rooms.tokens.verify(made.secret)
    revoked = rooms.tokens.revoke("ci", by="tester")
    assert rooms.tokens.revoke(made.token.id, by="other") == revoked
    with pytest.raises(Unauthorized, match="was revoked"):
        rooms.tokens.verify(made.secret)
    with pytest.raises(Conflict):
        rooms.tokens.create("ci", ["gate"], by="tester")
    assert [link.actor for link in rooms.audit.list_audit(action="token.revoke").items] == [
        "tester"
    ]


def test_a_token_that_another_process_revokes_opens_nothing_a_second_later(
    rooms: Rooms, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rooms.tokens.create("ci", ["gate"], by="tester")
    rooms.tokens.verify(made.secret)
    other = open_rooms(database_url, overlays=[])
    other.tokens.revoke("ci", by="tester")
    other.close()
    monkeypatch.setattr(auth.time, "monotonic", lambda real=auth.time.monotonic: real() + 1.1)
    with pytest.raises(Unauthorized):
        rooms.tokens.verify(made.secret)


def test_an_expired_token_opens_nothing(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = clock.now() + timedelta(hours=1)
    made = rooms.tokens.create("ci", ["gate"], by="tester", expires_at=ends)
    rooms.tokens.verify(made.secret)
    monkeypatch.setattr(clock, "now", lambda: ends)
    with pytest.raises(Unauthorized, match="has expired"):
        rooms.tokens.verify(made.secret)


def test_a_token_cannot_be_made_to_end_in_the_past(rooms: Rooms) -> None:
    with pytest.raises(BadInput) as caught:
        rooms.tokens.create("ci", ["gate"], by="t", expires_at=clock.now() - timedelta(seconds=1))
    assert caught.value.field == "expires"


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "é", "-x", "x" * 129])
def test_a_token_needs_a_proper_name(rooms: Rooms, name: str) -> None:
    with pytest.raises(BadInput):
        rooms.tokens.create(name, ["gate"], by="tester")


def test_the_first_start_makes_one_admin_token_and_no_later_one_does(rooms: Rooms) -> None:
    first = rooms.tokens.ensure_admin()
    assert first is not None
    assert rooms.tokens.verify(first.secret).scopes == {"admin"}
    assert rooms.tokens.ensure_admin() is None
    rooms.tokens.revoke("admin", by="tester", even_last_admin=True)
    assert rooms.tokens.ensure_admin() is None


def test_when_a_token_was_used_is_known_to_a_minute(rooms: Rooms) -> None:
    made = rooms.tokens.create("ci", ["gate"], by="tester")
    assert made.token.last_used_at is None
    rooms.tokens.verify(made.secret)
    (row,) = rooms.tokens.list().items
    assert row.last_used_at is not None
    assert clock.now() - row.last_used_at < timedelta(minutes=1)


def test_tokens_are_listed_by_name_and_by_whether_they_open_anything(rooms: Rooms) -> None:
    for name in ("c", "a", "b"):
        rooms.tokens.create(name, ["read"], by="tester")
    rooms.tokens.revoke("a", by="tester")
    assert [t.name for t in rooms.tokens.list().items] == ["a", "b", "c"]
    assert [t.name for t in rooms.tokens.list(active=True).items] == ["b", "c"]
    assert [t.name for t in rooms.tokens.list(active=False).items] == ["a"]
    page = rooms.tokens.list(limit=2)
    assert [t.name for t in rooms.tokens.list(cursor=page.next).items] == ["c"]


def test_a_token_that_does_not_exist_cannot_be_revoked(rooms: Rooms) -> None:
    with pytest.raises(NotFound, match="token 'x' does not exist"):
        rooms.tokens.revoke("x", by="tester")


def test_the_last_token_with_the_scope_admin_is_not_revoked_by_accident(rooms: Rooms) -> None:
    rooms.tokens.create("boss", ["admin"], by="tester")
    rooms.tokens.create("ci", ["gate"], by="tester")
    soon = clock.now() + timedelta(seconds=1)
    rooms.tokens.create("ended", ["admin"], by="tester", expires_at=soon)
    rooms.tokens.create("former", ["admin"], by="tester")
    rooms.tokens.revoke("former", by="tester")
    time.sleep(1.1)
    with pytest.raises(Conflict, match="boss is the last one with the scope admin") as error:
        rooms.tokens.revoke("boss", by="tester")
    assert "create another admin token first" in error.value.hint
    assert [t.name for t in rooms.tokens.list(active=True).items] == ["boss", "ci"]
    assert rooms.audit.list_audit(action="token.revoke").items[0].subject == "former"
    for name in ("ended", "former", "ci"):
        rooms.tokens.revoke(name, by="tester")
    rooms.tokens.create("deputy", ["admin", "read"], by="tester")
    assert rooms.tokens.revoke("boss", by="tester").revoked_at
    assert rooms.tokens.revoke("deputy", by="tester", even_last_admin=True).revoked_at


def test_of_administrators_who_revoke_each_other_at_once_one_stays(rooms: Rooms) -> None:
    names = [f"boss-{number}" for number in range(6)]
    for name in names:
        rooms.tokens.create(name, ["admin"], by="tester")
    start = threading.Barrier(len(names))

    def revoke(name: str) -> bool:
        start.wait()
        try:
            return rooms.tokens.revoke(name, by="tester").revoked_at is not None
        except Conflict:
            return False

    with ThreadPoolExecutor(len(names)) as pool:
        revoked = list(pool.map(revoke, names))
    assert sorted(revoked) == [False] + [True] * 5
    assert len(rooms.tokens.list(active=True).items) == 1


def test_a_rotated_token_keeps_name_scopes_and_targets_and_its_old_secret_for_the_overlap(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rooms.tokens.create("ci", ["gate"], by="tester", targets=["prod-*"])
    turned = rooms.tokens.rotate("ci", by="boss", overlap=timedelta(hours=24))
    assert turned.secret != made.secret
    assert (turned.token.id, turned.token.scopes, turned.token.targets) == (
        made.token.id,
        ("gate",),
        ("prod-*",),
    )
    for secret in (made.secret, turned.secret):
        assert rooms.tokens.verify(secret).token_id == made.token.id
    assert "previous secret is valid until" in (rooms.tokens.find("ci").warning or "")
    third = rooms.tokens.rotate("ci", by="boss", overlap=timedelta(hours=1))
    with pytest.raises(Unauthorized):
        rooms.tokens.verify(made.secret)
    at = clock.now() + timedelta(hours=2)
    monkeypatch.setattr("compatgate.service.access.token_table.now", lambda: at)
    rooms.tokens._forget()
    with pytest.raises(Unauthorized):
        rooms.tokens.verify(turned.secret)
    assert rooms.tokens.verify(third.secret).name == "ci"
    links = rooms.audit.list_audit(action="token.rotate").items
    assert [(one.actor, one.subject) for one in links] == [("boss", "ci")] * 2
    assert links[0].detail["overlap_ends"]
    assert rooms.chain.verify().ok


def test_what_cannot_be_rotated_is_refused(rooms: Rooms) -> None:
    with pytest.raises(NotFound):
        rooms.tokens.rotate("nobody", by="t")
    rooms.tokens.create("ci", ["gate"], by="t")
    for days in (31, -1):
        with pytest.raises(BadInput) as caught:
            rooms.tokens.rotate("ci", by="t", overlap=timedelta(days=days))
        assert caught.value.field == "overlap"
    rooms.tokens.revoke("ci", by="t")
    with pytest.raises(Conflict, match="was revoked"):
        rooms.tokens.rotate("ci", by="t")


def test_an_expired_token_is_rotated_only_with_a_new_end(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms.tokens.create("ci", ["gate"], by="t", expires_at=clock.now() + timedelta(hours=1))
    at = clock.now() + timedelta(days=1)
    monkeypatch.setattr(clock, "now", lambda: at)
    with pytest.raises(Conflict, match="has expired"):
        rooms.tokens.rotate("ci", by="t")
    made = rooms.tokens.rotate("ci", by="t", expires_at=at + timedelta(days=1))
    assert rooms.tokens.verify(made.secret).name == "ci"


def test_the_last_admin_that_lasts_is_not_given_an_end_nor_revoked(rooms: Rooms) -> None:
    day = timedelta(days=1)
    rooms.tokens.create("boss", ["admin"], by="t")
    rooms.tokens.create("brief", ["admin"], by="t", expires_at=clock.now() + 7 * day)
    for act in (
        lambda: rooms.tokens.revoke("boss", by="t"),
        lambda: rooms.tokens.rotate("boss", by="t", expires_at=clock.now() + 90 * day),
    ):
        with pytest.raises(Conflict, match=r"last one .* that lasts \(brief expires on "):
            act()
    assert rooms.tokens.revoke("brief", by="t").revoked_at
    rooms.tokens.create("deputy", ["admin"], by="t", expires_at=clock.now() + 60 * day)
    assert rooms.tokens.rotate("boss", by="t", expires_at=clock.now() + 90 * day)
    assert rooms.tokens.revoke("boss", by="t").revoked_at


@pytest.mark.parametrize("targets", [[], [""], ["a b"], ["é"], ["-x"], ["x" * 129], ["a?"]])
def test_a_limit_is_of_proper_patterns(rooms: Rooms, targets: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        rooms.tokens.create("ci", ["gate"], by="t", targets=targets)
    assert caught.value.field == "targets"


def test_an_admin_token_has_no_limit(rooms: Rooms) -> None:
    with pytest.raises(BadInput, match="cannot be limited"):
        rooms.tokens.create("ci", ["admin"], by="t", targets=["prod-*"])


def test_a_token_that_expires_soon_says_so(rooms: Rooms) -> None:
    for days, warning in ((1, "expires within a day"), (5, "expires in 4 days"), (15, None)):
        end = clock.now() + timedelta(days=days)
        made = rooms.tokens.create(f"in-{days}", ["gate"], by="t", expires_at=end)
        assert made.token.warning == warning
    assert rooms.tokens.create("never", ["gate"], by="t").token.warning is None


def test_a_session_ends_with_its_secret(rooms: Rooms) -> None:
    made = rooms.tokens.create("ann", ["read"], by="t")
    cookie = rooms.sessions.sign_in(made.secret).cookie
    turned = rooms.tokens.rotate("ann", by="t", overlap=timedelta(hours=1))
    later = rooms.sessions.sign_in(turned.secret).cookie
    assert rooms.sessions.principal(cookie) is not None, "in the overlap"
    rooms.tokens.rotate("ann", by="t")
    rooms.sessions._known.clear()
    assert rooms.sessions.principal(cookie) is None
    assert rooms.sessions.principal(later) is None


def test_a_session_ends_when_it_is_idle_and_however_it_is_used(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms.sessions.limits = SessionLimits(timedelta(hours=3), timedelta(hours=1))
    made = rooms.tokens.create("ann", ["read"], by="t")
    used, idle = (rooms.sessions.sign_in(made.secret).cookie for _ in range(2))
    begin = clock.now()

    def alive(cookie: str, minutes: int) -> bool:
        at = begin + timedelta(minutes=minutes)
        monkeypatch.setattr(clock, "now", lambda: at)
        monkeypatch.setattr("compatgate.service.access.token_table.now", lambda: at)
        rooms.sessions._known.clear()
        return rooms.sessions.principal(cookie) is not None

    assert [alive(used, minutes) for minutes in (50, 100, 150)] == [True, True, True]
    assert not alive(idle, 150)
    assert not alive(used, 181)
    (link,) = rooms.audit.list_audit(action="session.close").items
    assert (link.actor, link.detail["why"]) == ("ann", "idle")


def test_signing_out_is_audited(rooms: Rooms) -> None:
    cookie = rooms.sessions.sign_in(rooms.tokens.create("ann", ["read"], by="t").secret).cookie
    rooms.sessions.sign_out(cookie)
    rooms.sessions.sign_out(cookie)
    (link,) = rooms.audit.list_audit(action="session.close").items
    assert link.detail["why"] == "signed out"


def test_targets_of_a_limit_match_alike_in_memory_and_in_the_database(rooms: Rooms) -> None:
    names = ["prod-a", "Prod-a", "prod_a", "prodxa", "a-prod-b", "prod-", "prod", "x.y", "xzy"]
    patterns = ["prod-*", "*-prod-*", "prod", "prod_a", "*", "*a", "p*d-*a", "x.y", "**", "a*a"]
    document = {"pools": [{"name": "p", "gpu": "A100-SXM4-80GB", "driver": "535.183.01"}]}
    for name in names:
        if not name.endswith("-"):
            body = {"metadata": {"name": name}, "spec": document}
            rooms.matrix.create("Target", body, Authorship("t", "x"))
    stored = [name for name in names if not name.endswith("-")]
    for pattern in patterns:
        expected = sorted(name for name in stored if matches((pattern,), name))
        found = rooms.matrix.list_targets(within=(pattern,)).items
        assert sorted(one.name for one in found) == expected, pattern
    assert rooms.matrix.list_targets(within=()).items == ()
    assert not matches(("prod-*",), "xprod-a")
    assert matches(("p*d-*a",), "prod-a")
    assert not matches(("a*a",), "a")
