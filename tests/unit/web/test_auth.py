"""Who may do what: every route, for every scope."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compatgate.cli.main import main
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.route import Route
from compatgate.kit.principal import SCOPES as ALLOWS
from compatgate.service.app import Rooms
from compatgate.web.routes import HOOKS, ROUTES

SCOPES = (
    "read", "admission", "gate", "plan", "deliver", "work", "propose", "approve", "upgrade",
    "operate", "bless", "admin",
)  # fmt: skip
CHANGES = {
    "POST /targets": "bless",
    "PUT /targets/{name}": "bless",
    "DELETE /targets/{name}": "bless",
    "POST /entries": "bless",
    "PUT /entries/{name}": "bless",
    "DELETE /entries/{name}": "bless",
    "POST /waivers": "bless",
    "PUT /waivers/{name}": "bless",
    "DELETE /waivers/{name}": "bless",
    "POST /matrix/import": "bless",
    "POST /proposals": "propose",
    "PUT /proposals/{id}": "propose",
    "POST /proposals/{id}/approve": "approve",
    "POST /proposals/{id}/retract": "approve",
    "POST /proposals/{id}/merge": "bless",
    "POST /proposals/{id}/backtest": "propose",
    "POST /proposals/{id}/close": "propose",
    "POST /revisions/{number}/revert": "propose",
    "POST /matrix/sync": "bless",
    "POST /baselines/{id}/approve": "bless",
    "POST /baselines/{id}/refuse": "bless",
    "POST /runs": "operate",
    "POST /runs/imports": "operate",
    "POST /runs/{id}/cancel": "operate",
    "POST /runs/{id}/discard": "bless",
    "POST /runs/{id}/rerun": "operate",
    "POST /incidents/{id}/snooze": "operate",
    "POST /incidents/{id}/reopen": "operate",
    "POST /nodes": "operate",
    "POST /nodes/health": "operate",
    "POST /upgrades": "upgrade",
    "POST /upgrades/{name}/approve": "approve",
    "POST /upgrades/{name}/retract": "approve",
    "POST /upgrades/{name}/stop": "upgrade",
    "POST /upgrades/{name}/resume": "upgrade",
    "POST /upgrades/{name}/roll-back": "upgrade",
    "POST /upgrades/{name}/leave-out": "upgrade",
    "DELETE /nodes/{name}": "operate",
    "POST /tokens": "admin",
    "POST /tokens/{name}/rotate": "admin",
    "DELETE /tokens/{name}": "admin",
    "POST /sessions": None,  # the ID token in the body opens it
    "DELETE /sessions/{id}": "admin",
    "DELETE /session": None,  # of the caller
    "POST /decisions/batches": "deliver",
    "PUT /hosts/{name}": "work",
    "POST /hosts/{name}/report": "work",
    "POST /hosts/{name}/lease": "work",
    "POST /hosts/{name}/ended-runs": "work",
    "POST /hosts/{name}/verifications": "work",
    "POST /hosts/{name}/baselines": "work",
    "POST /leases/{run}/{attempt}/heartbeat": "work",
    "POST /leases/{run}/{attempt}/output": "work",
    "POST /leases/{run}/{attempt}/steps": "work",
    "PUT /leases/{run}/{attempt}/pairs": "work",
    "POST /leases/{run}/{attempt}/end": "work",
    "POST /gate": "gate",
    "POST /gate/preview": "gate",
    "POST /k8s/check": "gate",
    "POST /what-if": "plan",
    "POST /solve": "plan",
    "POST /targets/{name}/plan": "plan",
    "POST /triage": "gate",
    "POST /backtests": "plan",
    "POST /hooks/kubernetes/validate": "admission",
    "POST /hooks/argo-rollouts": "gate",
    "POST /hooks/flagger": "gate",
    "POST /hooks/generic": "gate",
    "POST /hooks/driver-rollout": "gate",
}
"""The scope of every operation that is not a GET. A new one must be added here, on purpose: what
decides what the gate lets through (targets, entries, waivers, baselines) takes ``bless``; canary
runs and node reports take ``operate``; the decisions of far gates take ``deliver``, what a
worker writes takes ``work``; a proposal changes nothing and takes ``propose``."""
PARTS = {
    "PUT /targets/{name}": "operate",
    "POST /matrix/import": "operate",
    "POST /matrix/sync": "operate",
    "POST /proposals/{id}/merge": "operate",
}
"""The scope that is enough for what weakens nothing; the handler checks."""
INCLUDED = {
    "gate": {"admission"},
    "propose": {"plan"},
    "approve": {"propose", "plan"},
    "upgrade": {"plan"},
    "operate": {"propose", "plan"},
    "bless": {"propose", "approve", "plan"},
}
"""Scopes that another scope includes."""
READS = {
    "GET /keys": None,
    "GET /badge/{target}/{stack}.svg": "gate",
    "GET /hooks/generic": "gate",
    "GET /tokens": "admin",
    "GET /upgrades/{name}/may-start": "upgrade",
    "GET /sessions": "admin",
    "GET /sign-in": None,
    "GET /caller": None,
    "GET /audit/verify": "admin",
    "GET /openapi.json": None,
    "GET /hosts/{name}/baselines": "work",
    "GET /leases/{run}/{attempt}/steps": "work",
    "GET /leases/{run}/{attempt}/past": "work",
    "GET /leases/{run}/{attempt}/pairs": "work",
}
"""The scope of every GET that does not take ``read``."""
EVERY = (*ROUTES, *HOOKS)
NOBODY: dict[str, frozenset[str]] = {"anonymous": frozenset()}


def bearer(rooms: Rooms, scope: str) -> dict[str, str]:
    name = "x" if scope == "work" else f"only-{scope}"  # a worker's token has the host's name
    secret = rooms.tokens.create(name, [scope], by="test").secret
    return {"Authorization": f"Bearer {secret}"}


def title(route: Route) -> str:
    return f"{route.method} {'' if route.prefix == API_PREFIX else route.prefix}{route.template}"


def needed(route: Route) -> str | None:
    """The scope that the tables state; a change that they lack is a KeyError."""
    return READS.get(title(route), "read") if route.method == "GET" else CHANGES[title(route)]


def request(client: FlaskClient, route: Route, headers: dict[str, str]) -> int:
    """Send nothing of use: whoever may not is told so before anything is looked at.

    Hooks read a request before they look at its sender; their own tests ask them.
    """
    path = route.template
    for name, largest in route.parameters:
        path = path.replace(f"{{{name}}}", "7" if largest else "x")
    return client.open(API_PREFIX + path, method=route.method, headers=headers).status_code


def test_the_scope_of_every_change_is_listed_here() -> None:
    """A new route fails this until somebody has decided which scope it takes."""
    changes = {title(route): route.scope for route in EVERY if route.method != "GET"}
    assert changes == CHANGES
    assert {title(route): route.part for route in EVERY if route.part} == PARTS
    reads = {title(route): route.scope for route in EVERY if route.method == "GET"}
    assert {name: scope for name, scope in reads.items() if scope != "read"} == READS


def test_the_description_names_the_same_scopes(client: FlaskClient) -> None:
    paths = client.get("/api/v1/openapi.json").get_json()["paths"]
    described = {
        f"{method.upper()} {path.removeprefix(API_PREFIX)}": operation
        for path, of_path in paths.items()
        for method, operation in of_path.items()
    }
    assert set(described) == {title(route) for route in EVERY}
    for route in EVERY:
        operation, scope = described[title(route)], needed(route)
        tokens = [one["token"] for one in operation["security"] if "token" in one]
        part = PARTS.get(title(route))
        assert tokens == [[one] for one in (scope, part) if one]
        said = f"Needs the scope `{scope}`." if scope else "No token needed."
        if part:
            said = f"Needs the scope `{scope}`; `{part}` is enough for changes of targets that"
            said += " weaken nothing."
        assert operation["description"].endswith(said)


def test_page_help_and_description_say_what_each_scope_allows(
    client: FlaskClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tuple(ALLOWS) == SCOPES
    page = (Path(__file__).parents[3] / "docs" / "reference" / "rest.md").read_text()
    assert main(["token", "create", "--help"]) == 0
    printed = capsys.readouterr().out + "\n"
    schemas = client.get("/api/v1/openapi.json").get_json()["components"]["schemas"]
    described = schemas["TokenRequest"]["properties"]["scopes"]["description"]
    for scope, allows in ALLOWS.items():
        assert f"| `{scope}` | {allows} |" in page
        assert f"  {scope:9} {allows}\n" in printed
        assert f"`{scope}`: {allows}" in described
    assert "target" in ALLOWS["bless"]
    assert "targets where that weakens nothing" in ALLOWS["operate"]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_opens_what_its_scope_is_for(
    make_client: Callable[..., FlaskClient], rooms: Rooms, scope: str
) -> None:
    """No scope opens more than its own and those that it includes; ``admin`` opens everything."""
    client = make_client(**NOBODY)
    headers = bearer(rooms, scope)
    for route in ROUTES:
        wanted, part = needed(route), PARTS.get(title(route))
        may = wanted in (None, scope, *INCLUDED.get(scope, ())) or scope in (part, "admin")
        status = request(client, route, headers)
        assert (status != 403) is may, f"{scope} on {route.name}: {status}"
        assert status != 401


def test_without_a_token_nothing_is_open_but_description_and_keys(
    make_client: Callable[..., FlaskClient],
) -> None:
    client = make_client(**NOBODY)
    for route in ROUTES:
        assert (request(client, route, {}) == 401) is (needed(route) is not None)


def test_anonymous_scopes_are_open_without_a_token(
    make_client: Callable[..., FlaskClient],
) -> None:
    client = make_client(anonymous=frozenset({"read", "gate"}))
    for route in ROUTES:
        expected = needed(route) not in ("read", "gate", "admission", None)
        assert (request(client, route, {}) == 401) is expected


def test_who_operates_changes_what_weakens_no_target(
    make_client: Callable[..., FlaskClient], rooms: Rooms
) -> None:
    client, headers = make_client(**NOBODY), bearer(rooms, "operate")
    document = json.loads(json.dumps(rooms.matrix.get("Target", "prod-a100").document))
    document["metadata"]["labels"] = {"tier": "gold"}
    document["spec"]["pools"][0]["count"] = 7
    body = {**document, "reason": "more nodes"}
    assert client.put("/api/v1/targets/prod-a100", json=body, headers=headers).status_code == 200
    document["spec"]["pools"][0]["count"] = 8
    path = "/api/v1/matrix/import?reason=more"
    answer = client.post(path, json=[document], headers=headers)
    assert (answer.status_code, len(answer.get_json()["changes"])) == (200, 1)
    document["spec"]["policy"]["mode"] = "audit"
    for asked in (path, f"{path}&dry_run=true"):
        answer = client.post(asked, json=[document], headers=headers)
        assert answer.status_code == 403
        assert "to change spec.policy.mode" in answer.get_json(force=True)["detail"]
    assert rooms.matrix.get("Target", "prod-a100").document["spec"]["pools"][0]["count"] == 8


def test_an_import_by_who_operates_changes_no_entry_and_no_waiver(
    make_client: Callable[..., FlaskClient], rooms: Rooms
) -> None:
    client, headers = make_client(**NOBODY), bearer(rooms, "operate")
    path = "/api/v1/matrix/import?reason=x"
    entry = json.loads(json.dumps(rooms.matrix.get("Entry", "torch24-cu124").document))
    assert client.post(path, json=[entry], headers=headers).status_code == 200  # nothing changes
    entry["spec"]["reason"] = "another"
    waiver = json.loads(json.dumps(rooms.matrix.get("Waiver", "legacy-ocr").document))
    waiver["spec"]["reason"] = "another"
    for document, what in ((entry, "the entry torch24-cu124"), (waiver, "the waiver legacy-ocr")):
        answer = client.post(path, json=[document], headers=headers)
        assert answer.status_code == 403
        assert f"{what} needs it to change it" in answer.get_json(force=True)["detail"]


@pytest.mark.parametrize("change", ["policy", "match", "driver", "gpu", "delete", "create"])
def test_who_operates_weakens_no_target(
    make_client: Callable[..., FlaskClient], rooms: Rooms, change: str
) -> None:
    client, headers = make_client(**NOBODY), bearer(rooms, "operate")
    before = rooms.matrix.get("Target", "prod-a100")
    revision = rooms.matrix.list_revisions(limit=1).items[0].number
    document = json.loads(json.dumps(before.document))
    spec = document["spec"]
    if change == "policy":
        spec["policy"]["mode"] = "audit"
    elif change == "match":
        spec["match"] = {"namespaces": ["nowhere"]}
    elif change in ("driver", "gpu"):
        spec["pools"][0][change] = {"driver": "580.95.05", "gpu": "H100-SXM5-80GB"}[change]
    body = {"metadata": document["metadata"], "spec": spec, "reason": "x"}
    path = "/api/v1/targets/prod-a100"
    if change == "delete":
        answer = client.delete(f"{path}?reason=x", headers=headers)
    elif change == "create":
        body["metadata"]["name"] = "another"
        answer = client.post("/api/v1/targets", json=body, headers=headers)
    else:
        answer = client.put(path, json=body, headers=headers)
    problem = answer.get_json(force=True)
    assert (answer.status_code, problem["value"]) == (403, "bless")
    assert "lacks the scope bless" in problem["detail"]
    assert problem["hint"].endswith("compatgate token create --name NAME --scope bless")
    assert rooms.matrix.get("Target", "prod-a100") == before
    assert rooms.matrix.list_revisions(limit=1).items[0].number == revision


def test_a_401_says_how_to_authenticate(make_client: Callable[..., FlaskClient]) -> None:
    answer = make_client(**NOBODY).get("/api/v1/targets")
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="compatgate"'
    assert "compatgate token create" in answer.get_json(force=True)["hint"]


def test_a_403_says_which_scope_is_missing(
    make_client: Callable[..., FlaskClient], rooms: Rooms
) -> None:
    answer = make_client(**NOBODY).get("/api/v1/tokens", headers=bearer(rooms, "read"))
    assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]
    assert answer.get_json(force=True)["value"] == "admin"


@pytest.mark.parametrize(
    "header", ["Basic dXNlcjpwYXNz", "Bearer", "Bearer  ", "cg_x", "Bearer cg_wrong", "Bearer \xff"]
)
def test_a_token_that_is_none_is_not_taken_for_nobody(client: FlaskClient, header: str) -> None:
    answer = client.get("/api/v1/targets", headers={"Authorization": header})
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


def test_a_revoked_token_opens_nothing(
    make_client: Callable[..., FlaskClient], rooms: Rooms
) -> None:
    client, headers = make_client(**NOBODY), bearer(rooms, "read")
    assert client.get("/api/v1/targets", headers=headers).status_code == 200
    rooms.tokens.revoke("only-read", by="test")
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
    make_client: Callable[..., FlaskClient], rooms: Rooms
) -> None:
    client, headers = make_client(**NOBODY), bearer(rooms, "bless")
    client.delete("/api/v1/waivers/legacy-ocr?reason=it+moved", headers=headers)
    newest = rooms.matrix.list_revisions(limit=1).items[0]
    assert (newest.author, newest.reason) == ("only-bless", "it moved")


def test_the_last_admin_token_is_not_revoked(
    make_client: Callable[..., FlaskClient], rooms: Rooms
) -> None:
    headers = bearer(rooms, "admin")
    for one in rooms.tokens.list(active=True).items:
        if one.name != "only-admin" and "admin" in one.scopes:
            rooms.tokens.revoke(one.id, by="test")
    answer = make_client().delete("/api/v1/tokens/only-admin", headers=headers)
    assert answer.status_code == 409
    assert answer.get_json()["field"] == "token"
    assert "--last-admin" in answer.get_json()["hint"]
    assert rooms.tokens.find("only-admin").active
