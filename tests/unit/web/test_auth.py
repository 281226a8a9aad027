"""Who may do what: every route, for every scope."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask.testing import FlaskClient

from compatgate.gate.service import Gate
from compatgate.web.api import ROUTES
from compatgate.web.route import Route

SCOPES = ("read", "gate", "operate", "bless", "admin")
NEEDS = {
    "ask": "gate",
    "preview": "gate",
    "what_if": "gate",
    "stack_badge": "gate",
    "list_keys": None,
    "create_target": "operate",
    "change_target": "operate",
    "delete_target": "operate",
    "create_entry": "bless",
    "change_entry": "bless",
    "delete_entry": "bless",
    "create_waiver": "bless",
    "change_waiver": "bless",
    "delete_waiver": "bless",
    "import_matrix": "bless",
    "submit_runs": "operate",
    "cancel_run": "operate",
    "rerun": "operate",
    "approve_baseline": "bless",
    "refuse_baseline": "bless",
    "import_baselines": "operate",
    "report_nodes": "operate",
    "remove_node": "operate",
    "verify_audit": "admin",
    "list_tokens": "admin",
    "create_token": "admin",
    "revoke_token": "admin",
    "openapi": None,
}
"""Scope by route; every other reads."""
NOBODY: dict[str, frozenset[str]] = {"anonymous": frozenset()}


def bearer(gate: Gate, scope: str) -> dict[str, str]:
    secret = gate.tokens.create(f"only-{scope}", [scope], by="test").secret
    return {"Authorization": f"Bearer {secret}"}


def request(client: FlaskClient, route: Route, headers: dict[str, str]) -> int:
    """Send nothing of use: whoever may not is told so before anything is looked at."""
    path = route.template
    for name, largest in route.parameters:
        path = path.replace(f"{{{name}}}", "7" if largest else "x")
    return client.open(f"/api/v1{path}", method=route.method, headers=headers).status_code


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_opens_what_its_scope_is_for(
    make_client: Callable[..., FlaskClient], gate: Gate, scope: str
) -> None:
    client = make_client(**NOBODY)
    headers = bearer(gate, scope)
    for route in ROUTES:
        needed = NEEDS.get(route.name, "read")
        may = needed is None or scope in (needed, "admin")
        status = request(client, route, headers)
        assert (status != 403) is may, f"{scope} on {route.name}: {status}"
        assert status != 401


def test_without_a_token_nothing_is_open_but_description_and_keys(
    make_client: Callable[..., FlaskClient],
) -> None:
    client = make_client(**NOBODY)
    for route in ROUTES:
        assert (request(client, route, {}) == 401) is (NEEDS.get(route.name, "read") is not None)


def test_anonymous_scopes_are_open_without_a_token(
    make_client: Callable[..., FlaskClient],
) -> None:
    client = make_client(anonymous=frozenset({"read", "gate"}))
    for route in ROUTES:
        needed = NEEDS.get(route.name, "read")
        assert (request(client, route, {}) == 401) is (needed not in ("read", "gate", None))


def test_a_401_says_how_to_authenticate(make_client: Callable[..., FlaskClient]) -> None:
    answer = make_client(**NOBODY).get("/api/v1/targets")
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="compatgate"'
    assert "compatgate token create" in answer.get_json(force=True)["hint"]


def test_a_403_says_which_scope_is_missing(
    make_client: Callable[..., FlaskClient], gate: Gate
) -> None:
    answer = make_client(**NOBODY).get("/api/v1/tokens", headers=bearer(gate, "read"))
    assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]
    assert answer.get_json(force=True)["value"] == "admin"


@pytest.mark.parametrize(
    "header", ["Basic dXNlcjpwYXNz", "Bearer", "Bearer  ", "cg_x", "Bearer cg_wrong", "Bearer \xff"]
)
def test_a_token_that_is_none_is_not_taken_for_nobody(client: FlaskClient, header: str) -> None:
    answer = client.get("/api/v1/targets", headers={"Authorization": header})
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


def test_a_revoked_token_opens_nothing(make_client: Callable[..., FlaskClient], gate: Gate) -> None:
    client, headers = make_client(**NOBODY), bearer(gate, "read")
    assert client.get("/api/v1/targets", headers=headers).status_code == 200
    gate.tokens.revoke("only-read", by="test")
    assert client.get("/api/v1/targets", headers=headers).status_code == 401


def test_a_secret_is_shown_once_and_never_repeated(client: FlaskClient) -> None:
    made = client.post("/api/v1/tokens", json={"name": "ci", "scopes": ["gate"], "expires": "9d"})
    secret = made.get_json()["secret"]
    assert made.headers["Cache-Control"] == "no-store"
    assert "ETag" not in made.headers
    assert secret not in client.get("/api/v1/tokens").text
    assert secret not in client.get("/api/v1/audit").text
    wrong = client.get("/api/v1/targets", headers={"Authorization": f"Bearer {secret}x"})
    assert secret not in wrong.text


def test_who_changes_is_named_in_the_revision(
    make_client: Callable[..., FlaskClient], gate: Gate
) -> None:
    client, headers = make_client(**NOBODY), bearer(gate, "bless")
    client.delete("/api/v1/waivers/legacy-ocr?reason=it+moved", headers=headers)
    newest = gate.matrix.list_revisions(limit=1).items[0]
    assert (newest.author, newest.reason) == ("only-bless", "it moved")
