"""AdmissionReviews: on the event loop, in a thread and through the framework, the same answer."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from flask.testing import FlaskClient

from compatgate.errors import Unavailable
from compatgate.service.app import Rooms
from compatgate.service.cluster.schemas import REVIEW_EXAMPLES
from compatgate.web.admission_hook import DESK, AdmissionDesk
from compatgate.web.app import EXTENSION
from compatgate.web.asgi import Front

PATH = "/hooks/kubernetes/validate"
REVIEW: dict[str, Any] = REVIEW_EXAMPLES["pod"]


def reviews() -> Iterator[tuple[str, bytes]]:
    """Bodies of every kind, by name."""

    def changed(change: Callable[[dict[str, Any]], Any]) -> bytes:
        review = copy.deepcopy(REVIEW)
        change(review["request"])
        return json.dumps(review).encode()

    def notes(request: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = request["object"]["metadata"]["annotations"]
        return found

    container = REVIEW["request"]["object"]["spec"]["containers"][0]
    yield "allowed", json.dumps(REVIEW).encode()
    yield "denied", changed(lambda r: notes(r).update({"compatgate.dev/stack": "cuda=13.0"}))
    yield "no such target", changed(lambda r: notes(r).update({"compatgate.dev/target": "nope"}))
    yield "malformed stack", changed(lambda r: notes(r).update({"compatgate.dev/stack": "cuda"}))
    yield "no GPU", changed(lambda r: r["object"]["spec"]["containers"][0].pop("resources"))
    yield "dry run", changed(lambda r: r.update(dryRun=True))
    yield "deletion", changed(lambda r: r.update(operation="DELETE", object=None))
    yield (
        "large",
        changed(
            lambda r: r["object"]["spec"].update(
                containers=[{**container, "name": f"c{n}", "args": ["x" * 900]} for n in range(90)]
            )
        ),
    )
    yield "no uid", changed(lambda r: r.pop("uid"))
    yield "no object", changed(lambda r: r.pop("object"))
    yield "another version", json.dumps({**REVIEW, "apiVersion": "v2"}).encode()
    yield "broken", b"{"
    yield "empty", b""


def served(client: FlaskClient, *bodies: bytes, **headers: str) -> list[httpx.Response]:
    """As the server asks: on its event loop."""
    front = Front(client.application, client.application.extensions[EXTENSION], 2)

    async def ask() -> list[httpx.Response]:
        sent = {"Content-Type": "application/json", **headers}
        transport = httpx.ASGITransport(front)
        async with httpx.AsyncClient(transport=transport, base_url="http://gate") as asker:
            return [
                await asker.post(f"{PATH}?timeout=10s", content=body, headers=sent)
                for body in bodies
            ]

    return asyncio.run(ask())


@pytest.fixture
def in_thread(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what is done in a thread of the lane."""
    desk: AdmissionDesk = client.application.extensions[DESK]
    done: list[str] = []

    def note(name: str) -> None:
        real = getattr(desk, name)

        def noted(*arguments: Any) -> Any:
            done.append(name)
            return real(*arguments)

        monkeypatch.setattr(desk, name, noted)

    note("answer")
    note("decide")
    return done


def test_every_way_answers_alike(client: FlaskClient) -> None:
    for name, body in reviews():
        first, again = served(client, body, body)
        framed = client.post(
            f"{PATH}?timeout=10s",
            data=body,
            content_type="application/json",
            headers={"Host": "gate"},
        )
        for one in (first, again):
            assert (name, one.status_code) == (name, framed.status_code)
            assert (name, one.json()) == (name, framed.get_json())
            mine = {key.lower() for key in one.headers} - {"connection"}
            assert (name, mine) == (name, {key.lower() for key, _ in framed.headers})


def test_a_pod_like_one_before_needs_no_thread(
    client: FlaskClient, rooms: Rooms, in_thread: list[str]
) -> None:
    body = json.dumps(REVIEW).encode()
    (first,) = served(client, body)
    assert in_thread[-1] == "decide"
    in_thread.clear()
    rooms.gate.snapshot()  # a look at the database may be due
    again, without = served(client, body, dict(reviews())["no GPU"])
    assert in_thread == []
    assert first.json() == again.json()
    assert len(rooms.decisions.list_decisions().items) == 2
    assert without.json()["response"]["allowed"] is True
    metrics = client.get("/metrics").text
    assert 'route="validate_kubernetes",status="200"} 3.0' in metrics


def test_a_decision_that_cannot_be_logged_is_no_answer(
    client: FlaskClient, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps(REVIEW).encode()
    served(client, body)

    def away(_: Any) -> Any:
        raise Unavailable("the decision log cannot keep up")

    monkeypatch.setattr(rooms.gate, "submit", away)
    (found,) = served(client, body)
    assert found.status_code == 200
    assert found.json()["response"]["allowed"] is False
    assert "cannot keep up" in found.json()["response"]["status"]["message"]


def test_the_sender_is_checked_on_every_way(
    make_client: Callable[..., FlaskClient], rooms: Rooms
) -> None:
    client = make_client(anonymous=frozenset())
    body = json.dumps(REVIEW).encode()
    secrets = {s: rooms.tokens.create(s, [s], by="t").secret for s in ("read", "gate")}
    limited = rooms.tokens.create("other", ["gate"], by="t", targets=["elsewhere"]).secret
    for secret, status in (("", 401), ("nonsense", 401), (secrets["read"], 403), (limited, 200)):
        sent = {"Authorization": f"Bearer {secret}"} if secret else {}
        for found in served(client, body, body, **sent):
            assert found.status_code == status
            assert found.json()["response"]["uid"] == REVIEW["request"]["uid"]
            assert found.json()["response"]["allowed"] is False
    for found in served(client, body, body, Authorization=f"Bearer {secrets['gate']}"):
        assert found.json()["response"]["allowed"] is True
    assert {one.asked_by for one in rooms.decisions.list_decisions().items} == {"gate"}
