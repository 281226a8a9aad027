"""Sessions of people and job tokens open what a token of the same scopes and targets opens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient
from jwt_issuer import GITHUB, JobIssuer, serving_jobs

from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.principal import SCOPES
from compatgate.service.access.sessions import IdentitySessions
from compatgate.service.access.settings import (
    Grant,
    IdentitySettings,
    JobRule,
    PeopleSettings,
    Person,
)
from compatgate.service.access.settings import (
    JobIssuer as TrustedIssuer,
)
from compatgate.service.app import Rooms
from compatgate.web.routes import ROUTES

Make = Callable[..., FlaskClient]
OWN = {"end_own_session", "show_caller"}
"""Routes that answer each kind in its own way."""
LIMITS: list[tuple[str, list[str] | None]] = [
    *((scope, None) for scope in SCOPES),
    *((scope, ["prod-*"]) for scope in SCOPES if scope != "admin"),
]


def statuses(client: FlaskClient, secret: str) -> dict[str, int]:
    """Send nothing of use to every route."""
    found = {}
    for route in ROUTES:
        if route.name in OWN:
            continue
        path = route.template
        for name, largest in route.parameters:
            path = path.replace(f"{{{name}}}", "7" if largest else "x")
        headers = {"Authorization": f"Bearer {secret}"}
        answer = client.open(API_PREFIX + path, method=route.method, headers=headers)
        found[route.name] = answer.status_code
    return found


@pytest.fixture
def jobs() -> Any:
    with serving_jobs() as issuer:
        yield issuer


@pytest.mark.parametrize(("scope", "targets"), LIMITS)
def test_every_kind_of_caller_has_the_same_rights(
    make_client: Make, rooms: Rooms, jobs: JobIssuer, scope: Any, targets: list[str] | None
) -> None:
    people = PeopleSettings("http://127.0.0.1:9", "x", groups={"g": Grant([scope], targets)})
    rule = JobRule("r", {"sub": "**"}, [scope], targets)
    trusted = [TrustedIssuer(jobs.url, "https://gate.example", [rule])]
    client = make_client(anonymous=frozenset(), identity=IdentitySettings(people, trusted))
    token = rooms.tokens.create("t", [scope], by="test", targets=targets).secret
    person = Person(people.issuer, "u-1", "ada", "", ("g",))
    session = IdentitySessions(rooms.gate.database, people).open(
        person, "command-line", "an ID token"
    )
    expected = statuses(client, token)
    assert statuses(client, session.secret) == expected
    if scope != "admin":  # which no file may give to jobs
        assert statuses(client, jobs.token(GITHUB)) == expected
    assert 401 not in expected.values()


def test_a_session_that_ended_opens_nothing(make_client: Make, rooms: Rooms) -> None:
    people = PeopleSettings("http://127.0.0.1:9", "x", groups={"g": Grant(["read"])})
    client = make_client(anonymous=frozenset(), identity=IdentitySettings(people))
    sessions = IdentitySessions(rooms.gate.database, people)
    person = Person(people.issuer, "u-1", "ada", "", ("g",))
    made = sessions.open(person, "command-line", "an ID token")
    sessions.end(made.session.id, by="test")
    assert set(statuses(client, made.secret).values()) == {401}
