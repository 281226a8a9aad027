"""Questions without ASGI: the connection holds them, and the answers are those of ASGI."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from flask.testing import FlaskClient
from uvicorn.config import Config
from uvicorn.server import ServerState

from compatgate.errors import CompatgateError
from compatgate.kit.http import connection
from compatgate.kit.http.connection import Connection
from compatgate.kit.http.direct import DIRECT, encode_answer
from compatgate.kit.http.replies import WholeAnswer, json_answer
from compatgate.service.web.app import EXTENSION
from compatgate.service.web.asgi import Front

GATE = "/api/v1/gate"
QUESTION = json.dumps({"target": "prod-a100", "stack": {"cuda": "12.4"}}).encode()
HEAD = f"POST {GATE} HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\n"
PLAIN = f"{HEAD}Content-Length: {len(QUESTION)}\r\n\r\n".encode()
OTHER = b"GET /other HTTP/1.1\r\nHost: gate\r\n\r\n"


class Wire(asyncio.Transport):
    """The client's side of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.received = b""
        self.is_closed = False
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.received += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4711) if name == "peername" else default

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    @property
    def statuses(self) -> list[str]:
        """Return the status of each answer."""
        return re.findall(r"HTTP/1\.1 (\d+)", self.received.decode())


class Direct:
    """Takes questions, and answers them when told to."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.replies: list[Callable[[WholeAnswer], None]] = []

    def takes(self, url: bytes, fields: Mapping[bytes, bytes]) -> bool:
        return url == GATE.encode() and b"content-length" in fields

    def answer(
        self,
        fields: Mapping[bytes, bytes],
        body: bytes,
        peer: str,
        reply: Callable[[WholeAnswer], None],
    ) -> None:
        assert fields[b"host"] == b"gate"
        assert peer == "192.0.2.1"
        self.bodies.append(body)
        self.replies.append(reply)

    def reply(self) -> None:
        """Answer the oldest question."""
        self.replies.pop(0)(json_answer(b"{}", "r-1"))


class Talk:
    """A connection, its client, and the two applications that may answer."""

    def __init__(self) -> None:
        self.direct = Direct()
        self.by_asgi: list[bytes] = []
        config = Config(self._app, interface="asgi3", lifespan="off", access_log=False)
        config.load()
        self.wire = Wire()
        state = ServerState()
        state.default_headers = [(b"date", b"today")]
        self.connection = Connection(config, state, {DIRECT: self.direct})
        self.connection.connection_made(self.wire)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.by_asgi.append(body)
        found = WholeAnswer(201, [(b"content-length", b"0")], b"")
        await send(found.start())
        await send({"type": "http.response.body", "body": b""})

    def send(self, *pieces: bytes) -> None:
        """Send pieces of requests."""
        for piece in pieces:
            self.connection.data_received(piece)

    async def settle(self) -> None:
        """Let the event loop do what is due."""
        for _ in range(20):
            await asyncio.sleep(0)


def talk(conversation: Callable[[Talk], Any]) -> Talk:
    """Have a conversation on an event loop."""

    async def run() -> Talk:
        made = Talk()
        await conversation(made)
        await made.settle()
        made.connection.connection_lost(None)
        return made

    return asyncio.run(run())


@pytest.mark.parametrize("cut", [0, 1, 40, len(PLAIN), len(PLAIN) + 5])
def test_a_plain_question_needs_no_asgi_however_it_is_cut(cut: int) -> None:
    async def conversation(talk: Talk) -> None:
        whole = PLAIN + QUESTION
        talk.send(*([whole[:cut], whole[cut:]] if cut else [whole]))
        assert talk.wire.received == b""
        assert not talk.connection.is_idle
        talk.direct.reply()

    found = talk(conversation)
    assert found.direct.bodies == [QUESTION]
    assert found.by_asgi == []
    head, _, body = found.wire.received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: application/json\r\n")
    assert b"x-request-id: r-1" in head
    assert b"connection" not in head
    assert body == b"{}"


@pytest.mark.parametrize(
    "request_",
    [
        OTHER,
        PLAIN.replace(b"/gate ", b"/gate?x=1 ") + QUESTION,
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0") + QUESTION,
        PLAIN.replace(b"Host", b"Connection: close\r\nHost") + QUESTION,
        PLAIN.replace(b"Host: gate", b"Host: gate\r\nHost: gate") + QUESTION,
        PLAIN.replace(b"Host", b"Expect: 100-continue\r\nHost") + QUESTION,
        f"{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode(),
    ],
)
def test_asgi_answers_every_other_request(request_: bytes) -> None:
    async def conversation(talk: Talk) -> None:
        talk.send(request_)

    found = talk(conversation)
    assert found.direct.bodies == []
    assert len(found.by_asgi) == 1
    assert found.wire.statuses[-1] == "201"


def test_requests_sent_together_are_answered_in_their_order() -> None:
    async def conversation(talk: Talk) -> None:
        talk.send(PLAIN + QUESTION + OTHER + PLAIN + QUESTION)
        await talk.settle()
        assert talk.wire.received == b"", "the first one is not answered yet"
        talk.direct.reply()

    found = talk(conversation)
    assert found.wire.statuses == ["200", "201", "201"]
    assert found.by_asgi == [b"", QUESTION]


@pytest.mark.parametrize("first", [OTHER, PLAIN + QUESTION], ids=["asgi", "direct"])
@pytest.mark.parametrize("step", [300_000, 1500], ids=["at once", "in pieces"])
def test_a_burst_waits_outside_while_its_first_requests_are_answered(
    first: bytes, step: int
) -> None:
    burst = first + (PLAIN + QUESTION) * 500 + OTHER * 3000
    most = 0

    async def conversation(talk: Talk) -> None:
        nonlocal most
        sent = 0
        while len(talk.wire.statuses) < 3501:
            if sent < len(burst) and not talk.wire.is_paused:
                talk.send(burst[sent : sent + step])
                sent += step
                assert not talk.connection.is_idle
            if talk.direct.replies:
                talk.direct.reply()
            most = max(most, len(talk.connection.pipeline))
            await asyncio.sleep(0)

    found = talk(conversation)
    assert set(found.wire.statuses) <= {"200", "201"}
    assert found.by_asgi.count(QUESTION) + len(found.direct.bodies) >= 500
    assert most <= connection.PIECE_BYTES // len(OTHER) + 1
    assert not found.wire.is_paused


def test_a_body_that_is_late_is_waited_for_by_asgi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_HELD_SECONDS", 0.0)

    async def conversation(talk: Talk) -> None:
        talk.send(PLAIN + QUESTION[:5])
        talk.connection.end_if_late(talk.connection.loop.time() + 0.01)
        await talk.settle()
        talk.send(QUESTION[5:])

    found = talk(conversation)
    assert (found.direct.bodies, found.by_asgi) == ([], [QUESTION])


def test_a_server_that_stops_answers_what_it_has_and_closes() -> None:
    async def held(talk: Talk) -> None:
        talk.send(PLAIN)
        talk.connection.shutdown()
        talk.send(QUESTION)

    async def asked(talk: Talk) -> None:
        talk.send(PLAIN + QUESTION)
        talk.connection.shutdown()
        talk.direct.reply()

    for conversation, status in ((held, "201"), (asked, "200")):
        found = talk(conversation)
        assert found.wire.statuses == [status]
        assert b"connection: close" in found.wire.received
        assert found.wire.is_closed


def test_a_client_that_only_listens_gets_its_answer() -> None:
    async def conversation(talk: Talk) -> None:
        talk.send(PLAIN + QUESTION)
        assert talk.connection.eof_received()
        talk.direct.reply()

    found = talk(conversation)
    assert found.wire.statuses == ["200"]
    assert found.wire.is_closed


def test_nothing_is_sent_to_a_client_that_is_gone() -> None:
    async def conversation(talk: Talk) -> None:
        talk.send(PLAIN + QUESTION)
        talk.connection.connection_lost(None)
        talk.direct.reply()

    assert talk(conversation).wire.received == b""


def test_an_answered_connection_that_stays_idle_is_closed() -> None:
    async def conversation(talk: Talk) -> None:
        talk.send(PLAIN + QUESTION)
        talk.direct.reply()
        assert talk.connection.is_idle
        await talk.settle()
        now, most = talk.connection.loop.time(), talk.connection.timeout_keep_alive
        talk.connection.end_if_late(now + most - 1)
        assert not talk.wire.is_closed
        talk.connection.end_if_late(now + most + 1)

    assert talk(conversation).wire.is_closed


def test_a_header_of_two_lines_is_never_sent() -> None:
    broken = WholeAnswer(200, [(b"x-request-id", b"a\r\nset-cookie: b")], b"")
    with pytest.raises(ValueError, match="more than one line"):
        encode_answer(broken, [], closes=False)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (QUESTION, {}),
        (QUESTION.replace(b"a100", b"a10"), {}),
        (b'{"target": 1}', {}),
        (b"{", {}),
        (b"[" * 100 + b"]" * 100, {}),
        (QUESTION, {"Authorization": "Bearer cg_wrong"}),
        (QUESTION, {"Authorization": "Basic eA=="}),
    ],
)
def test_the_answers_are_those_of_asgi(
    client: FlaskClient, body: bytes, headers: dict[str, str]
) -> None:
    front = Front(client.application, client.application.extensions[EXTENSION], 2)
    sent = {"Content-Type": "application/json", "X-Request-Id": "r-1", **headers}
    fields = {name.lower().encode(): value.encode() for name, value in sent.items()}
    fields[b"content-length"] = str(len(body)).encode()
    assert front.takes(GATE.encode(), fields)

    async def both() -> tuple[httpx.Response, WholeAnswer]:
        transport = httpx.ASGITransport(front)
        async with httpx.AsyncClient(transport=transport, base_url="http://gate") as asker:
            by_asgi = await asker.post(GATE, content=body, headers=sent)
        answered: asyncio.Future[WholeAnswer] = asyncio.get_running_loop().create_future()
        front.answer(fields, body, "127.0.0.1", answered.set_result)
        return by_asgi, await answered

    by_asgi, direct = asyncio.run(both())
    assert direct.status == by_asgi.status_code
    assert sorted(direct.headers) == sorted(
        (name.lower(), value) for name, value in by_asgi.headers.raw
    )
    shown = {**json.loads(direct.body), "decided_at": ""}
    assert shown == {**by_asgi.json(), "decided_at": ""}


@pytest.mark.parametrize(
    "body", [b"{", b'{"target": 1}', QUESTION.replace(b"a100", b"a10"), b"[" * 100 + b"]" * 100]
)
def test_a_refused_question_is_freed_without_the_collector(
    client: FlaskClient, body: bytes
) -> None:
    front = Front(client.application, client.application.extensions[EXTENSION], 2)
    fields = {b"content-type": b"application/json", b"content-length": str(len(body)).encode()}

    async def ask() -> WholeAnswer:
        answered: asyncio.Future[WholeAnswer] = asyncio.get_running_loop().create_future()
        front.answer(fields, body, "127.0.0.1", answered.set_result)
        return await answered

    def errors() -> int:
        return sum(isinstance(found, CompatgateError) for found in gc.get_objects())

    async def count() -> int:
        assert (await ask()).status >= 400  # what is made once is made now
        gc.collect()
        others = errors()  # of tests before this one
        gc.disable()
        try:
            assert (await ask()).status >= 400
            await asyncio.sleep(0.05)  # the thread forgets after it told the result
            return errors() - others
        finally:
            gc.enable()

    assert asyncio.run(count()) <= 0


@pytest.mark.parametrize(
    "strange",
    [
        {b"content-type": b"text/plain"},
        {b"content-length": b"70000"},
        {b"content-length": b"-1"},
        {b"content-encoding": b"gzip"},
        {b"x-forwarded-for": b"192.0.2.7"},
    ],
)
def test_requests_of_an_unusual_form_are_left_to_asgi(
    client: FlaskClient, strange: dict[bytes, bytes]
) -> None:
    front = Front(client.application, client.application.extensions[EXTENSION], 2)
    fields = {b"content-type": b"application/json", b"content-length": b"10"}
    assert front.takes(GATE.encode(), fields)
    assert not front.takes(GATE.encode(), {**fields, **strange})
    assert not front.takes(b"/api/v1/gate/preview", fields)
