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
from compatgate.service.gate.service import Gate
from compatgate.service.tokens import schemas
from compatgate.service.tokens import service as auth


def test_a_token_opens_what_its_scopes_say(gate: Gate) -> None:
    made = gate.tokens.create("ci", ["gate", "read"], by="tester")
    assert re.fullmatch(r"cg_[\w-]{43}", made.secret)
    principal = gate.tokens.verify(made.secret)
    assert (principal.name, principal.token_id) == ("ci", made.token.id)
    principal.require("gate")
    with pytest.raises(Forbidden, match="the scope bless is required"):
        principal.require("bless")


def test_admin_has_every_scope(gate: Gate) -> None:
    made = gate.tokens.create("root", ["admin"], by="tester")
    assert all(gate.tokens.verify(made.secret).may(scope) for scope in schemas.SCOPES)


@pytest.mark.parametrize("secret", ["", "cg_", "cg_" + "x" * 43, "\ud800", "a" * 10_000])
def test_an_unknown_secret_opens_nothing(gate: Gate, secret: str) -> None:
    gate.tokens.create("ci", ["gate"], by="tester")
    with pytest.raises(Unauthorized, match="token is unknown"):
        gate.tokens.verify(secret)


def test_a_revoked_token_opens_nothing_and_keeps_its_name(gate: Gate) -> None:
    made = gate.tokens.create("ci", ["gate"], by="tester")
    gate.tokens.verify(made.secret)
    revoked = gate.tokens.revoke("ci", by="tester")
    assert gate.tokens.revoke(made.token.id, by="other") == revoked
    with pytest.raises(Unauthorized, match="was revoked"):
        gate.tokens.verify(made.secret)
    with pytest.raises(Conflict):
        gate.tokens.create("ci", ["gate"], by="tester")
    assert [link.actor for link in gate.history.list_audit(action="token.revoke").items] == [
        "tester"
    ]


def test_a_token_that_another_process_revokes_opens_nothing_a_second_later(
    gate: Gate, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = gate.tokens.create("ci", ["gate"], by="tester")
    gate.tokens.verify(made.secret)
    other = Gate.open(database_url, overlays=[])
    other.tokens.revoke("ci", by="tester")
    other.close()
    monkeypatch.setattr(auth.time, "monotonic", lambda real=auth.time.monotonic: real() + 1.1)
    with pytest.raises(Unauthorized):
        gate.tokens.verify(made.secret)


def test_an_expired_token_opens_nothing(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = clock.now() + timedelta(hours=1)
    made = gate.tokens.create("ci", ["gate"], by="tester", expires_at=ends)
    gate.tokens.verify(made.secret)
    monkeypatch.setattr(clock, "now", lambda: ends)
    with pytest.raises(Unauthorized, match="has expired"):
        gate.tokens.verify(made.secret)


def test_a_token_cannot_be_made_to_end_in_the_past(gate: Gate) -> None:
    with pytest.raises(BadInput) as caught:
        gate.tokens.create("ci", ["gate"], by="t", expires_at=clock.now() - timedelta(seconds=1))
    assert caught.value.field == "expires"


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "é", "-x", "x" * 129])
def test_a_token_needs_a_proper_name(gate: Gate, name: str) -> None:
    with pytest.raises(BadInput):
        gate.tokens.create(name, ["gate"], by="tester")


def test_the_first_start_makes_one_admin_token_and_no_later_one_does(gate: Gate) -> None:
    first = gate.tokens.ensure_admin()
    assert first is not None
    assert gate.tokens.verify(first.secret).scopes == {"admin"}
    assert gate.tokens.ensure_admin() is None
    gate.tokens.revoke("admin", by="tester", even_last_admin=True)
    assert gate.tokens.ensure_admin() is None


def test_when_a_token_was_used_is_known_to_a_minute(gate: Gate) -> None:
    made = gate.tokens.create("ci", ["gate"], by="tester")
    assert made.token.last_used_at is None
    gate.tokens.verify(made.secret)
    (row,) = gate.tokens.list().items
    assert row.last_used_at is not None
    assert clock.now() - row.last_used_at < timedelta(minutes=1)


def test_tokens_are_listed_by_name_and_by_whether_they_open_anything(gate: Gate) -> None:
    for name in ("c", "a", "b"):
        gate.tokens.create(name, ["read"], by="tester")
    gate.tokens.revoke("a", by="tester")
    assert [t.name for t in gate.tokens.list().items] == ["a", "b", "c"]
    assert [t.name for t in gate.tokens.list(active=True).items] == ["b", "c"]
    assert [t.name for t in gate.tokens.list(active=False).items] == ["a"]
    page = gate.tokens.list(limit=2)
    assert [t.name for t in gate.tokens.list(cursor=page.next).items] == ["c"]


def test_a_token_that_does_not_exist_cannot_be_revoked(gate: Gate) -> None:
    with pytest.raises(NotFound, match="no token 'x'"):
        gate.tokens.revoke("x", by="tester")


def test_the_last_token_with_the_scope_admin_is_not_revoked_by_accident(gate: Gate) -> None:
    gate.tokens.create("boss", ["admin"], by="tester")
    gate.tokens.create("ci", ["gate"], by="tester")
    soon = clock.now() + timedelta(seconds=1)
    gate.tokens.create("ended", ["admin"], by="tester", expires_at=soon)
    gate.tokens.create("former", ["admin"], by="tester")
    gate.tokens.revoke("former", by="tester")
    time.sleep(1.1)
    with pytest.raises(Conflict, match="boss is the last one with the scope admin") as error:
        gate.tokens.revoke("boss", by="tester")
    assert "create another admin token first" in error.value.hint
    assert [t.name for t in gate.tokens.list(active=True).items] == ["boss", "ci"]
    assert gate.history.list_audit(action="token.revoke").items[0].subject == "former"
    for name in ("ended", "former", "ci"):
        gate.tokens.revoke(name, by="tester")
    gate.tokens.create("deputy", ["admin", "read"], by="tester")
    assert gate.tokens.revoke("boss", by="tester").revoked_at
    assert gate.tokens.revoke("deputy", by="tester", even_last_admin=True).revoked_at


def test_of_administrators_who_revoke_each_other_at_once_one_stays(gate: Gate) -> None:
    names = [f"boss-{number}" for number in range(6)]
    for name in names:
        gate.tokens.create(name, ["admin"], by="tester")
    start = threading.Barrier(len(names))

    def revoke(name: str) -> bool:
        start.wait()
        try:
            return gate.tokens.revoke(name, by="tester").revoked_at is not None
        except Conflict:
            return False

    with ThreadPoolExecutor(len(names)) as pool:
        revoked = list(pool.map(revoke, names))
    assert sorted(revoked) == [False] + [True] * 5
    assert len(gate.tokens.list(active=True).items) == 1
