"""Job tokens as bearer tokens of the REST interface and of hooks."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from jwt_issuer import GITHUB, JobIssuer

from compatgate.documents.sources import read_paths
from compatgate.kit.principal import Authorship
from compatgate.resources import matrix_dir
from compatgate.service.access.settings import IdentitySettings
from compatgate.service.app import Rooms
from compatgate.web.app import create_app
from compatgate.web.service import Settings

STACK = {"cuda": "12.4", "arch": ["sm_80", "compute_80"]}


@pytest.fixture
def client(
    rooms: Rooms, job_issuer: JobIssuer, settings_of: Callable[[dict[str, Any]], IdentitySettings]
) -> Iterator[FlaskClient]:
    rooms.matrix.import_documents(read_paths([matrix_dir() / "examples"]), Authorship("x", "y"))
    rule = {
        "name": "deploys",
        "claims": {"repository": "acme/*"},
        "scopes": ["gate"],
        "targets": ["prod-*"],
    }
    trusted = {"issuer": job_issuer.url, "audience": "https://gate.example", "rules": [rule]}
    with create_app(
        rooms, Settings(identity=settings_of({"jobs": [trusted]}))
    ).test_client() as made:
        yield made


def test_a_job_asks_about_its_targets_and_nothing_else(
    client: FlaskClient, job_issuer: JobIssuer, rooms: Rooms
) -> None:
    bearer = {"Authorization": f"Bearer {job_issuer.token(GITHUB)}"}
    question = {"target": "prod-a100", "stack": STACK}
    answer = client.post("/api/v1/gate", json=question, headers=bearer)
    assert answer.status_code == 200
    decided = rooms.decisions.list_decisions().items[0]
    assert decided.asked_by == "deploys (repo:acme/trainer:environment:prod)"
    outside = client.post("/api/v1/gate", json={**question, "target": "lab-a100"}, headers=bearer)
    assert outside.status_code == 403
    assert "is limited to prod-*: lab-a100 is outside" in outside.json["detail"]
    other = client.get("/api/v1/entries", headers=bearer)
    assert other.status_code == 403
    assert "lacks the scope read" in other.json["detail"]
    assert "--oidc" in other.json["detail"]
    caller = client.get("/api/v1/caller", headers=bearer).json
    assert (caller["kind"], caller["targets"]) == ("job", ["prod-*"])
    page = client.get("/ui/targets", headers=bearer)
    assert page.status_code == 403


def test_a_hook_takes_a_job_token_as_a_password(client: FlaskClient, job_issuer: JobIssuer) -> None:
    password = b64encode(f"job:{job_issuer.token(GITHUB)}".encode()).decode()
    question = {"target": "prod-a100", "stack": STACK}
    headers = {"Authorization": f"Basic {password}"}
    assert client.post("/hooks/generic", json=question, headers=headers).status_code in (200, 409)


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"aud": "https://another.example"}, 401, "aud does not match"),
        ({"exp": 7}, 401, "exp has passed"),
        ({"repository": "evil/x"}, 403, "repository is 'evil/x'"),
    ],
)
def test_a_refusal_says_which_claim(
    client: FlaskClient, job_issuer: JobIssuer, change: dict[str, Any], status: int, said: str
) -> None:
    bearer = {"Authorization": f"Bearer {job_issuer.token({**GITHUB, **change})}"}
    answer = client.post("/api/v1/gate", json={"stack": STACK}, headers=bearer)
    assert answer.status_code == status
    assert said in answer.json["detail"]
    assert "WWW-Authenticate" in answer.headers


def test_an_issuer_that_is_away_is_no_refusal(client: FlaskClient, job_issuer: JobIssuer) -> None:
    job_issuer.away = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compatgate.service.access.issuers.STALE_S", 0.0)
        patch.setattr("compatgate.service.access.issuers.FRESH_S", 0.0)
        patch.setattr("compatgate.service.access.issuers.FAILURE_PAUSE_S", 0.0)
        bearer = {"Authorization": f"Bearer {job_issuer.token(GITHUB)}"}
        answer = client.post("/api/v1/gate", json={"stack": STACK}, headers=bearer)
    assert answer.status_code == 503


def test_a_gate_without_issuers_says_so(rooms: Rooms, job_issuer: JobIssuer) -> None:
    client = create_app(rooms, Settings()).test_client()
    bearer = {"Authorization": f"Bearer {job_issuer.token(GITHUB)}"}
    answer = client.get("/api/v1/caller", headers=bearer)
    assert answer.status_code == 401
    assert "this gate trusts no job tokens" in answer.json["detail"]
    assert client.get("/api/v1/sign-in").status_code == 404
    assert client.post("/api/v1/sessions", json={"id_token": "x"}).status_code == 404
    assert "Sign in with " not in client.get("/ui/sign-in").text
