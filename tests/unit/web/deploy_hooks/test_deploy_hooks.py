"""Who may call deploy webhooks, and what they answer when nothing can be decided."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from compatgate.errors import Unavailable
from compatgate.kit import clock
from compatgate.kit.http.signatures import HEADER, Secret, sign
from compatgate.service.app import Rooms
from compatgate.web.routes import HOOKS

SECRET = Secret("ci", b"k" * 32)
QUESTION = {"target": "prod-a100", "stack": "cuda=12.4,torch=2.4.1+cu124,arch=sm_80"}
Make = Callable[..., FlaskClient]
PATHS = ("/hooks/generic", "/hooks/argo-rollouts", "/hooks/flagger", "/hooks/driver-rollout")


@pytest.fixture
def make_flask(make_client: Make) -> Make:
    """Makes clients that nobody without a token is let in by."""

    def make(**settings: Any) -> FlaskClient:
        return make_client(**{"anonymous": frozenset(), **settings})

    return make


def token(rooms: Rooms, *scopes: str) -> str:
    return rooms.tokens.create("hook", scopes, by="t").secret


def signed(path: str, body: bytes, key: bytes = SECRET.key, at: int | None = None) -> Any:
    stamp = int(clock.now().timestamp()) if at is None else at
    return {
        "data": body,
        "content_type": "application/json",
        "headers": {HEADER: sign(key, stamp, "POST", path, body)},
    }


def basic(user: str, password: str) -> dict[str, str]:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


@pytest.mark.parametrize("path", PATHS)
def test_nobody_asks_without_a_token_where_the_operator_says_so(
    make_flask: Make, path: str
) -> None:
    answer = make_flask().post(path, json=QUESTION)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert "token with the scope" in answer.text


def test_a_token_opens_the_hooks(make_flask: Make, rooms: Rooms) -> None:
    headers = {"Authorization": f"Bearer {token(rooms, 'gate')}"}
    assert make_flask().post("/hooks/generic", json=QUESTION, headers=headers).status_code == 200


def test_a_url_may_carry_the_token_as_its_password(make_flask: Make, rooms: Rooms) -> None:
    headers = basic("flagger", token(rooms, "gate"))
    assert make_flask().post("/hooks/generic", json=QUESTION, headers=headers).status_code == 200


def test_a_token_of_another_scope_is_forbidden(make_flask: Make, rooms: Rooms) -> None:
    answer = make_flask().post(
        "/hooks/generic?status=200", json=QUESTION, headers=basic("x", token(rooms, "read"))
    )
    assert answer.status_code == 403
    assert "lacks the scope gate" in answer.get_json()["reason"]


@pytest.mark.parametrize(
    "header", ["Basic", "Basic %%%", "Basic eA==", "Basic eDo=", "Digest x", "Bearer cg_unknown"]
)
def test_malformed_credentials_are_refused(make_flask: Make, header: str) -> None:
    answer = make_flask().post("/hooks/generic", json=QUESTION, headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.get_json()["decision"] == "error"


def test_a_signature_opens_the_hooks_without_a_token(make_flask: Make, rooms: Rooms) -> None:
    path = "/hooks/generic?status=200"
    options = signed(path, json.dumps(QUESTION).encode())
    answer = make_flask(hook_secrets=(SECRET,)).post(path, **options)
    assert answer.get_json()["decision"] == "allow"
    assert rooms.decisions.list_decisions(limit=1).items[0].asked_by == "hook:ci"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"at": 1_700_000_000}, "too old or in the future"),
        ({"key": b"x" * 32}, "no known key"),
        ({"path": "/hooks/generic?status=decision"}, "no known key"),
    ],
)
def test_a_signature_that_is_not_right_is_refused(
    make_flask: Make, change: dict[str, Any], said: str
) -> None:
    path = "/hooks/generic"
    options = signed(**{"path": path, "body": json.dumps(QUESTION).encode(), **change})
    answer = make_flask(hook_secrets=(SECRET,)).post(path, **options)
    assert answer.status_code == 401
    assert said in answer.get_json()["reason"]


def test_a_signature_without_a_key_here_is_refused(make_flask: Make) -> None:
    path = "/hooks/generic"
    answer = make_flask(anonymous=frozenset({"gate"})).post(
        path, **signed(path, json.dumps(QUESTION).encode())
    )
    assert answer.status_code == 401
    assert "this gate has no signing keys" in answer.get_json()["reason"]


def test_where_there_are_keys_nobody_comes_unsigned(make_flask: Make, rooms: Rooms) -> None:
    client = make_flask(anonymous=frozenset({"gate", "read"}), hook_secrets=(SECRET,))
    assert client.post("/hooks/generic", json=QUESTION).status_code == 401
    headers = {"Authorization": f"Bearer {token(rooms, 'gate')}"}
    assert client.post("/hooks/generic", json=QUESTION, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/hooks/generic", 424, '"decision":"unknown"'),
        ("/hooks/generic?status=200", 200, '"decision":"unknown"'),
        ("/hooks/argo-rollouts", 200, '"decision":"unknown"'),
        ("/hooks/flagger?type=confirm-rollout", 424, "no decision: "),
        ("/hooks/flagger?type=rollback", 424, "no decision: "),
    ],
)
@pytest.mark.parametrize(
    "error", [Unavailable("the database is unavailable"), RuntimeError("a defect")]
)
def test_what_cannot_be_decided_is_no_5xx_and_rolls_nothing_back(
    client: FlaskClient,
    rooms: Rooms,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    status: int,
    said: str,
    error: Exception,
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(rooms.gate, "answer", fail)
    body: dict[str, Any] = QUESTION
    if "flagger" in path:
        body = {"name": "a", "namespace": "b", "phase": "Progressing", "metadata": QUESTION}
    answer = client.post(path, json=body)
    assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert "a defect" not in answer.text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("query", ["x=1", "timeout=10s&timeout=20s", "status=maybe", "%00"])
def test_a_query_that_is_not_known_is_named(
    shared_client: FlaskClient, path: str, query: str
) -> None:
    answer = shared_client.post(f"{path}?{query}", json=QUESTION)
    assert answer.status_code == (200 if "argo" in path else 400)
    assert "error: " in answer.text


def test_the_hooks_are_described_with_their_ways_to_sign(description: dict[str, Any]) -> None:
    operation = description["paths"]["/hooks/flagger"]["post"]
    ways = {name for way in operation["security"] for name in way}
    assert ways == {"token", "signature", "password"}
    assert operation["responses"]["409"]["content"].keys() == {"text/plain"}
    assert len(HOOKS) == 6
