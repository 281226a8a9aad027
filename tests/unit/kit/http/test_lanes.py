"""The application on a server of ASGI: kinds of requests that do not wait for each other."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any
from unittest.mock import AsyncMock, Mock

import httpx
import pytest
from flask import Flask, Response, request

from compatgate.kit.http import wsgi
from compatgate.kit.http.wsgi import Body, WsgiLane, make_environ, receive_body
from compatgate.service.app import Rooms
from compatgate.web import asgi
from compatgate.web.app import create_front
from compatgate.web.computing import get_ready
from compatgate.web.service import Settings

QUESTION = {"target": "prod-a100", "stack": {"cuda": "12.4"}}
Ask = Callable[[httpx.AsyncClient], Awaitable[Any]]


@pytest.fixture
def talk(rooms: Rooms) -> Callable[[Ask], Any]:
    """Runs a conversation with the application, of two threads for each kind of request."""
    front = create_front(rooms, Settings(anonymous=frozenset({"admin"}), overlays=()), 2)

    def run(ask: Ask) -> Any:
        async def whole() -> Any:
            transport = httpx.ASGITransport(front)
            async with httpx.AsyncClient(transport=transport, base_url="http://gate") as client:
                return await asyncio.wait_for(ask(client), 30)

        return asyncio.run(whole())

    return run


@pytest.fixture
def stalled(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes every list of targets wait until it is set."""
    released = threading.Event()
    real = rooms.matrix.list_targets

    def slow(**filters: Any) -> Any:
        assert released.wait(20)
        return real(**filters)

    monkeypatch.setattr(rooms.matrix, "list_targets", slow)
    return released


def test_health_and_questions_do_not_wait_for_slow_requests(talk: Any, stalled: Any) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        slow = [asyncio.create_task(client.get("/api/v1/targets")) for _ in range(16)]
        await asyncio.sleep(0.1)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await client.get(path)).status_code == 200
        assert (await client.post("/api/v1/gate", json=QUESTION)).status_code == 200
        hook = await client.post("/hooks/kubernetes/validate", json={"request": {"uid": "u-1"}})
        assert hook.json()["response"]["uid"] == "u-1"
        assert not any(task.done() for task in slow)
        stalled.set()
        assert {answer.status_code for answer in await asyncio.gather(*slow)} == {200}

    talk(ask)


def test_the_process_that_computes_is_ready_before_the_first_question(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    calls: SimpleQueue[Any] = SimpleQueue()
    monkeypatch.setattr(rooms.gate, "compute", lambda *call: calls.put(call))
    snapshot = rooms.gate.snapshot()

    async def live() -> None:
        events: asyncio.Queue[Any] = asyncio.Queue()
        events.put_nowait({"type": "lifespan.startup"})
        front = create_front(rooms, Settings(overlays=()), 2)
        life = asyncio.create_task(front({"type": "lifespan"}, events.get, AsyncMock()))
        assert await asyncio.to_thread(calls.get, timeout=20) == (get_ready, snapshot)
        events.put_nowait({"type": "lifespan.shutdown"})
        await life

    asyncio.run(live())


def test_templates_are_compiled_before_the_first_look_at_a_page(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(rooms.gate, "compute", lambda *_: None)
    compiled: SimpleQueue[str] = SimpleQueue()
    names = ["ask.html", "cells.html"]
    templates = Mock(list_templates=lambda: names, get_template=compiled.put)
    monkeypatch.setattr(asgi, "environment", lambda: templates)

    async def live() -> None:
        events: asyncio.Queue[Any] = asyncio.Queue()
        events.put_nowait({"type": "lifespan.startup"})
        front = create_front(rooms, Settings(overlays=()), 2)
        life = asyncio.create_task(front({"type": "lifespan"}, events.get, AsyncMock()))
        assert [await asyncio.to_thread(compiled.get, timeout=20) for _ in names] == names
        events.put_nowait({"type": "lifespan.shutdown"})
        await life

    asyncio.run(live())


def test_a_known_question_needs_no_thread(
    talk: Any, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        first = await client.post("/api/v1/gate", json=QUESTION)

        def answer(*_: Any, **__: Any) -> None:
            raise AssertionError("memory knows the answer")

        monkeypatch.setattr(rooms.gate, "answer", answer)
        second = await client.post("/api/v1/gate", json=QUESTION)
        assert second.status_code == 200
        assert second.json()["id"] == first.json()["id"]

    talk(ask)
    assert len(rooms.decisions.list_decisions().items) == 2


def test_a_decision_that_cannot_be_logged_is_not_answered(
    talk: Any, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("no room")

    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.post("/api/v1/gate", json=QUESTION)).status_code == 200
        monkeypatch.setattr(rooms.gate._log._destination, "write", full)
        answers = [client.post("/api/v1/gate", json=QUESTION) for _ in range(8)]
        for answer in await asyncio.gather(*answers):
            assert answer.status_code == 503
            assert "no room" in answer.json()["detail"]

    talk(ask)


def test_an_answer_is_not_waited_for_without_end(
    talk: Any, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr("compatgate.web.question_app.PATIENCE_SECONDS", 0.2)

    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.post("/api/v1/gate", json=QUESTION)).status_code == 200
        monkeypatch.setattr(rooms.gate._log._destination, "write", lambda *_: released.wait(20))
        answer = await client.post("/api/v1/gate", json=QUESTION)
        assert answer.status_code == 503
        assert "did not answer in time" in answer.json()["detail"]
        released.set()

    talk(ask)


def test_more_than_may_wait_are_told_to_ask_again(
    talk: Any, stalled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wsgi, "MAX_WAITING", 1)

    async def ask(client: httpx.AsyncClient) -> None:
        slow = [asyncio.create_task(client.get("/api/v1/targets")) for _ in range(3)]
        await asyncio.sleep(0.1)
        refused = await client.get("/api/v1/targets", headers={"X-Request-Id": "r-1"})
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        assert refused.headers["X-Request-Id"] == "r-1"
        assert "wait already" in refused.json()["detail"]
        stalled.set()
        assert {answer.status_code for answer in await asyncio.gather(*slow)} == {200}

    talk(ask)


def test_what_is_not_plain_takes_the_long_way_to_the_same_answer(talk: Any) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        usual = (await client.post("/api/v1/gate", json=QUESTION)).json()["id"]
        kind = {"Content-Type": "application/json; charset=utf-8"}
        again = await client.post("/api/v1/gate", json=QUESTION, headers=kind)
        assert again.json()["id"] == usual
        packed = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        assert (await client.post("/api/v1/gate", content=b"x", headers=packed)).status_code == 415
        query = await client.post("/api/v1/gate?a=b", json=QUESTION)
        assert query.status_code == 400
        twice = [("Authorization", "Bearer a"), ("Authorization", "Bearer b")]
        assert (await client.post("/api/v1/gate", json=QUESTION, headers=twice)).status_code == 401
        assert (await client.get("/api/v1/gate")).status_code == 405

    talk(ask)


def scope(**others: Any) -> dict[str, Any]:
    headers = others.pop("headers", [])
    return {
        "type": "http",
        "method": "GET",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "http_version": "1.1",
        "scheme": "http",
        "server": ("gate", 80),
        "client": ("10.0.0.1", 5),
        "headers": headers,
        **others,
    }


def messages(*parts: dict[str, Any], silent: bool = False) -> Any:
    """Gives one message after the other; then none, or that the client is gone."""
    rest = list(parts)

    async def receive() -> dict[str, Any]:
        if rest:
            return rest.pop(0)
        if silent:
            await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    return receive


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.parametrize(
    ("receive", "expected"),
    [
        (messages(part(b"ab", more=True), part(b"c")), Body(b"abc")),
        (messages(part(b"")), Body(b"")),
        (messages(part(b"abc", more=True), part(b"def"), silent=True), Body(b"abcdef")),
        (messages(part(b"abcdef", more=True)), Body(b"abcdef", "unread")),
        (messages(part(b"ab", more=True), silent=True), Body(b"ab", "late")),
        (messages(part(b"ab", more=True)), None),
    ],
    ids=["pieces", "empty", "just too much", "too much", "too slow", "gone"],
)
def test_a_body_is_received_as_far_as_it_may_come(
    receive: Any, expected: Body | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wsgi, "RECEIVE_SECONDS", 0.1)
    assert asyncio.run(receive_body(receive, 5)) == expected


def test_a_body_that_is_too_large_may_be_read_to_its_end() -> None:
    receive = messages(part(b"abcdef", more=True), part(b"ghi", more=True), part(b"jkl"))
    assert asyncio.run(receive_body(receive, 5, drains=True)) == Body(b"abcdef", "unread")
    assert asyncio.run(receive())["type"] == "http.disconnect", "everything was read"


def test_the_environment_is_what_wsgi_asks_for() -> None:
    sent = scope(
        path="/ü",
        raw_path=b"/%C3%BC",
        query_string=b"a=%20",
        headers=[
            (b"content-type", b"text/plain"),
            (b"x-one", b"1"),
            (b"x-one", b"2"),
            (b"cookie", b"a=1"),
            (b"cookie", b"b=2"),
            (b"x_one", b"forged"),
        ],
    )
    environ = make_environ(sent, Body(b"text"))
    assert environ["PATH_INFO"] == "/ü".encode().decode("latin-1")
    assert environ["REQUEST_URI"] == "/%C3%BC?a=%20"
    assert environ["CONTENT_TYPE"] == "text/plain"
    assert environ["HTTP_X_ONE"] == "1,2", "an underscore is not a dash"
    assert environ["HTTP_COOKIE"] == "a=1; b=2"
    assert environ["wsgi.input"].read() == b"text"
    assert environ["REMOTE_ADDR"] == "10.0.0.1"


def test_a_socket_without_an_address_is_a_client_as_well() -> None:
    environ = make_environ(scope(server=("/run/gate.sock", None), client=None), Body(b""))
    assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == ("/run/gate.sock", "")


class _Sent:
    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.began = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        self.messages.append(message)
        self.began.set()


def test_a_stream_ends_when_its_client_leaves() -> None:
    app, closed = Flask("streams"), threading.Event()
    taken: list[int] = []

    @app.get("/")
    def stream() -> Response:
        def pieces() -> Any:
            try:
                for number in range(100_000):
                    taken.append(number)
                    yield b"piece"
            finally:
                closed.set()

        return Response(pieces(), content_type="text/plain")

    async def run() -> None:
        sent = _Sent()

        async def receive() -> dict[str, Any]:
            await sent.began.wait()
            return {"type": "http.disconnect"}

        await WsgiLane(app, "test", 1).answer(scope(), Body(b""), receive, sent)
        assert sent.messages[0]["type"] == "http.response.start"

    asyncio.run(run())
    assert closed.wait(5)
    assert len(taken) < 100_000


def test_a_whole_answer_is_sent_at_once_and_a_cut_body_closes_the_connection() -> None:
    app = Flask("whole")

    @app.post("/")
    def whole() -> Response:
        return Response(str(len(request.get_data())))

    async def run(body: Body) -> list[Any]:
        sent = _Sent()
        length = [(b"content-length", str(len(body.data)).encode())]
        await WsgiLane(app, "test", 1).answer(
            scope(method="POST", headers=length), body, messages(), sent
        )
        return sent.messages

    start, body = asyncio.run(run(Body(b"abc")))
    assert (start["status"], body["body"]) == (200, b"3")
    assert b"connection" not in dict(start["headers"])
    start, _ = asyncio.run(run(Body(b"abc", "unread")))
    assert (b"connection", b"close") in start["headers"]
