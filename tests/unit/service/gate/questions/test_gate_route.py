"""``POST /gate``: by the short way of the server and by the framework, the same answer."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import httpx
import pytest
from flask.testing import FlaskClient
from werkzeug.datastructures import Headers
from werkzeug.test import TestResponse

from compatgate.service.app import Rooms
from compatgate.web.app import EXTENSION
from compatgate.web.asgi import Front

GATE = "/api/v1/gate"
PREVIEW = f"{GATE}/preview"
QUESTION = {
    "target": "prod-a100",
    "stack": {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "arch": ["sm_80"]},
}
DENIED = {"target": "prod-a100", "stack": {"cuda": "12.1", "arch": ["sm_90"]}}


def short(client: FlaskClient, body: bytes, **headers: str) -> TestResponse:
    """As the server asks: on its event loop."""
    front = Front(client.application, client.application.extensions[EXTENSION], 2)

    async def ask() -> httpx.Response:
        sent = {"Content-Type": "application/json", **headers}
        transport = httpx.ASGITransport(front)
        async with httpx.AsyncClient(transport=transport, base_url="http://gate") as asker:
            return await asker.post(GATE, content=body, headers=sent)

    got = asyncio.run(ask())
    request = client.application.test_request_context(GATE).request
    return TestResponse(
        [got.content], str(got.status_code), Headers(got.headers.multi_items()), request
    )


def framed(client: FlaskClient, body: bytes, **headers: str) -> TestResponse:
    """As an application of WSGI is asked."""
    return client.post(GATE, data=body, content_type="application/json", headers=headers)


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(QUESTION).encode(),
        json.dumps(DENIED).encode(),
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"target": "nope", "stack": {"cuda": "12.4"}}',
        b'{"target": "prod-a100", "stack": {"cuda": "12.4", "cuda": "12.1"}}',
        b'{"a":' * 40 + b"1" + b"}" * 40,
        b" " * 1_100_000,
    ],
    ids=[
        "allowed",
        "denied",
        "empty",
        "broken",
        "list",
        "utf8",
        "target",
        "twice",
        "deep",
        "large",
    ],
)
def test_both_ways_answer_alike(client: FlaskClient, body: bytes) -> None:
    one, other = short(client, body), framed(client, body)
    assert one.status_code == other.status_code
    assert one.mimetype == other.mimetype
    mine, theirs = one.get_json(force=True), other.get_json(force=True)
    assert {**mine, "decided_at": ""} == {**theirs, "decided_at": ""}
    names = {name.lower() for name, _ in one.headers} - {"connection"}
    assert names == {name.lower() for name, _ in other.headers}
    assert one.headers["Cache-Control"] == other.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("way", [short, framed])
def test_both_ways_look_at_the_token(make_client: Any, rooms: Rooms, way: Any) -> None:
    client = make_client(anonymous=frozenset())
    body = json.dumps(QUESTION).encode()
    assert way(client, body).status_code == 401
    secrets = {s: rooms.tokens.create(s, [s], by="t").secret for s in ("read", "gate")}
    assert way(client, body, Authorization=f"Bearer {secrets['read']}").status_code == 403
    assert way(client, body, Authorization=f"Bearer {secrets['gate']}").status_code == 200
    assert rooms.decisions.list_decisions().items[0].asked_by == "gate"


def test_the_same_question_has_the_same_id_and_two_decisions(
    client: FlaskClient, rooms: Rooms
) -> None:
    body = json.dumps(QUESTION).encode()
    one, two = short(client, body).get_json(), framed(client, body).get_json()
    assert one["id"] == two["id"]
    assert [d.verdict_id for d in rooms.decisions.list_decisions().items] == [one["id"]] * 2
    assert client.get(f"/api/v1/verdicts/{one['id']}").get_json()["id"] == one["id"]


def test_a_denial_is_an_answer_not_an_error(client: FlaskClient) -> None:
    answer = client.post(GATE, json=DENIED)
    assert answer.status_code == 200
    assert answer.get_json()["allowed"] is False
    assert answer.get_json()["findings"]


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ('{"target": "prod-a100", "stack": {"cuda": "12.4"}, "stack": {"cuda": "11.8"}}', "stack"),
        ('{"target":"prod-a100","stack":{"cuda":"12.4","cuda":"12.4"}}', "cuda"),
    ],
)
def test_a_key_twice_is_refused_and_named_however_the_question_comes(
    client: FlaskClient, rooms: Rooms, body: str, key: str
) -> None:
    raw = body.encode()
    answers = [way(client._client, raw) for way in (short, framed)]  # type: ignore[attr-defined]
    answers.append(client.post(PREVIEW, data=raw, content_type="application/json"))
    for answer in answers:
        problem = answer.get_json(force=True)
        assert (problem["status"], problem["field"]) == (400, key)
        assert f"the key '{key}' appears twice in one object" in problem["detail"]
    assert rooms.decisions.list_decisions().items == ()


def test_a_body_in_chunks_is_read_as_well(client: FlaskClient) -> None:
    answer = client.post(
        GATE,
        input_stream=io.BytesIO(json.dumps(QUESTION).encode()),
        content_type="application/json",
        environ_overrides={"wsgi.input_terminated": True},
        headers={"Transfer-Encoding": "chunked"},
    )
    assert answer.status_code == 200


def test_a_body_that_ends_early_is_bad_input(client: FlaskClient) -> None:
    for kind in ("application/json", "application/json; charset=utf-8"):
        answer = client.post(
            GATE,
            input_stream=io.BytesIO(b'{"tar'),
            content_type=kind,
            environ_overrides={"CONTENT_LENGTH": "100", "wsgi.input_terminated": True},
        )
        assert answer.status_code == 400
        assert "not complete" in answer.get_json(force=True)["detail"]


def test_a_preview_is_the_same_answer_and_is_not_logged(client: FlaskClient, rooms: Rooms) -> None:
    preview = client.post(PREVIEW, json=QUESTION).get_json()
    assert rooms.decisions.list_decisions().items == ()
    assert preview["id"] == client.post(GATE, json=QUESTION).get_json()["id"]


def test_a_preview_asks_an_older_matrix(client: FlaskClient) -> None:
    now = client.post(PREVIEW, json=QUESTION).get_json()
    then = client.post(f"{PREVIEW}?at=1", json=QUESTION).get_json()
    assert (now["matrix_revision"], then["matrix_revision"]) == (3, 1)
    assert "CG801" in [f["rule"] for f in then["findings"]]
    assert "CG801" not in [f["rule"] for f in now["findings"]]


def test_a_preview_asks_the_matrix_of_a_day(client: FlaskClient) -> None:
    end_of_days = client.post(f"{PREVIEW}?at=2098-01-01", json=QUESTION).get_json()
    assert end_of_days["matrix_revision"] == 3
    assert client.post(f"{PREVIEW}?at=2001-01-01", json=QUESTION).status_code == 404


def test_a_defect_is_a_500_that_tells_only_its_id(
    client: FlaskClient, rooms: Rooms, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("internal detail")

    monkeypatch.setattr(rooms.gate, "evaluate", broken)
    for way in (short, framed):
        caplog.clear()
        answer = way(client._client, json.dumps(QUESTION).encode())  # type: ignore[attr-defined]
        assert answer.status_code == 500
        problem = answer.get_json(force=True)
        assert "internal detail" not in answer.text
        number = problem["detail"].partition("error id ")[2][:12]
        assert number in caplog.text
        assert "internal detail" in caplog.text
