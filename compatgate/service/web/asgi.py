"""Answer the server: health and known questions on the event loop, the rest in lanes of threads.

Health is answered on the event loop, and a question to the gate where memory has the answer. The
Flask application answers everything else in threads; each kind of request has its own pool, so
that none waits for another.

A repeated question wakes no thread except the one that commits a batch of decisions. What may
wait (a registry, an evaluation) happens in a thread; waiting for the log of decisions needs none.
Questions of a plain form need no ASGI either: the connection hands them over as values
(`compatgate.kit.http.direct`). One implementation, `question_app`, answers them all.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from compatgate.kit import logs, tracing
from compatgate.kit.http import connection, replies
from compatgate.kit.http.direct import DIRECT
from compatgate.kit.http.links import API_PREFIX, HOOKS_PREFIX, UI_PREFIX
from compatgate.kit.http.notes import NOTE, RequestNote
from compatgate.kit.http.wsgi import Body, WsgiLane, send_whole
from compatgate.service.admission.api import DESK, MAX_BODY_BYTES
from compatgate.service.web.access import AccessLog
from compatgate.service.web.hook_app import HOOK_PATH, HookApp
from compatgate.service.web.metrics import ALIVE_BODY
from compatgate.service.web.question_app import QUESTION_PATH, LogWaiters, QuestionApp
from compatgate.service.web.route import JSON

if TYPE_CHECKING:
    from flask import Flask

    from compatgate.kit.http.notes import RequestKind
    from compatgate.kit.http.replies import WholeAnswer
    from compatgate.kit.http.wsgi import Fields, Receive, Scope, Send
    from compatgate.service.web.call import Service
    from compatgate.service.web.question_app import Reply

_HEALTH_THREADS = 4
_HEALTH = ("/healthz", "/readyz", "/metrics")
_COMPUTING_THREADS = 16
"""Requests that wait for a process which computes; no page waits behind them."""
_COMPUTING = frozenset(
    f"{prefix}/{name}"
    for prefix in (API_PREFIX, UI_PREFIX)
    for name in ("what-if", "solve", "backtests")
)
_ORPHAN_SECONDS = 0.25
_RAW_JSON = JSON.encode()
_QUESTION_URL = QUESTION_PATH.encode()
_LARGEST_DIRECT = 64 * 1024
"""Bytes of a question that is answered without ASGI."""
_STRANGE_FIELDS = (b"content-encoding", b"transfer-encoding", b"x-forwarded-for")
"""Headers that need a closer look; the last one may change the address of the client."""
_SIZE_DIGITS = 8
_MAX_DRAINED = 64 * 1024 * 1024


class Front:
    """The ASGI application of one gate.

    Args:
        app: the Flask application.
        service: shared objects of its requests.
        threads: number of threads of each lane.
        parent: process id without which this process ends; None: its present parent.
    """

    def __init__(
        self, app: Flask, service: Service, threads: int, parent: int | None = None
    ) -> None:
        self._service = service
        self._rest = WsgiLane(app, "rest", threads)
        self._hooks = WsgiLane(app, "hooks", threads)
        self._questions = WsgiLane(app, "questions", threads, short=1)
        self._health = WsgiLane(app, "health", _HEALTH_THREADS)
        self._computing = WsgiLane(app, "computing", _COMPUTING_THREADS, watches=True)
        waiters = LogWaiters()
        self._asking = QuestionApp(service, self._questions, waiters)
        self._reviewing = HookApp(app.extensions[DESK], service.metrics, self._hooks, waiters)
        self._kinds: dict[WsgiLane, RequestKind] = {
            self._hooks: "hook",
            self._questions: "question",
            self._health: "health",
        }
        self._access = AccessLog(service.settings.access_log, service.metrics)
        self._parent = parent or os.getppid()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or follow the life of the process."""
        if scope["type"] == "lifespan":
            scope.get("state", {})[DIRECT] = self
            await self._live(receive, send)
            return
        note = scope[NOTE] = _new_note(scope)
        try:
            if tracing.is_on() and scope["path"] not in _HEALTH:
                with tracing.request(scope["headers"], note):
                    await self._answer(scope, note, receive, send)
            else:
                await self._answer(scope, note, receive, send)
        finally:
            self._end(note)

    def takes(self, url: bytes, fields: Fields) -> bool:
        """Return whether a POST is a question that needs no ASGI; see `DirectApp`."""
        if url != _QUESTION_URL or fields.get(b"content-type") != _RAW_JSON or tracing.is_on():
            return False
        size = fields.get(b"content-length", b"")
        most = min(_LARGEST_DIRECT, self._service.settings.max_request_size)
        return (
            0 < len(size) < _SIZE_DIGITS
            and size.isdigit()
            and int(size) <= most
            and not any(name in fields for name in _STRANGE_FIELDS)
        )

    def answer(self, fields: Fields, body: bytes, peer: str, reply: Reply) -> None:
        """Answer a question without ASGI; see `DirectApp`."""
        note = RequestNote("POST", "question", peer, perf_counter())

        def end(answer: WholeAnswer) -> None:
            reply(answer)
            self._end(note)

        self._asking.ask(fields, body, note, end)

    def _end(self, note: RequestNote) -> None:
        """Count a request that is answered, and log it if it is worth a line."""
        seconds = perf_counter() - note.began
        self._service.metrics.answered(note.kind, seconds)
        if note.error is not None or note.status >= self._access.lowest_status:
            self._access.end(note, seconds)

    async def _answer(self, scope: Scope, note: RequestNote, receive: Receive, send: Send) -> None:
        fields = dict(scope["headers"])
        path = scope["path"]
        if path == "/healthz" and scope["method"] == "GET":
            await self._alive(fields, note, send)
            return
        lane, most = self._lane(path)
        note.kind = self._kinds.get(lane) or ("page" if path.startswith(UI_PREFIX) else "api")
        body = await _receive(scope, receive, most, drains=lane is self._hooks)
        if body is None:
            return
        plain = _is_plain_json(scope, fields, body) and len(body.data) <= most
        if plain and path == QUESTION_PATH and not scope["query_string"]:
            await self._asking.answer(fields, body.data, note, send)
        elif plain and path == HOOK_PATH:
            await self._reviewing.answer(scope, body, note, send)
        else:
            await lane.answer(scope, body, receive, send)

    def _lane(self, path: str) -> tuple[WsgiLane, int]:
        """Return the lane for a path, and its maximum body size."""
        most = self._service.settings.max_request_size
        if path in _HEALTH:
            return self._health, most
        if path.startswith(f"{HOOKS_PREFIX}/"):
            return self._hooks, max(most, MAX_BODY_BYTES)
        if path in _COMPUTING or path.endswith("/plan"):
            return self._computing, most
        return (self._questions if path.startswith(QUESTION_PATH) else self._rest), most

    async def _alive(self, fields: Fields, note: RequestNote, send: Send) -> None:
        note.number = number = replies.request_id(
            fields.get(b"x-request-id", b"").decode("latin-1")
        )
        sent = replies.complete_headers(
            [("Content-Type", JSON), ("Cache-Control", "no-store")], number
        )
        note.route, note.status = "healthz", 200
        self._service.metrics.requested("GET", "healthz", 200)
        await send_whole(send, 200, sent, ALIVE_BODY)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Begin and end with the server."""
        await receive()
        tracing.start("compatgate")
        self._end_streams_at_stop()
        watches = (connection.end_late_connections(), self._end_without_parent())
        tasks = [asyncio.create_task(watch) for watch in watches]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in tasks:
            task.cancel()
        await asyncio.to_thread(self._service.gate.close)
        await asyncio.to_thread(tracing.stop)
        await asyncio.to_thread(logs.writer.flush)
        await send({"type": "lifespan.shutdown.complete"})

    def _end_streams_at_stop(self) -> None:
        """End followed logs as soon as the server begins to stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)

            def stop(number: int, frame: Any, before: Any = before) -> None:
                self._service.listeners.ending = True
                if callable(before):
                    before(number, frame)

            signal.signal(number, stop)

    async def _end_without_parent(self) -> None:
        """Stop when the process that would replace this one is gone."""
        while os.getppid() == self._parent:
            await asyncio.sleep(_ORPHAN_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)


def _new_note(scope: Scope) -> RequestNote:
    client = scope.get("client")
    return RequestNote(scope["method"], "health", client[0] if client else "", perf_counter())


async def receive_body(receive: Receive, most: int, seconds: float | None) -> Body | None:
    """Read a body; None: the client is gone.

    Args:
        receive: of the request.
        most: bytes; what follows is not read.
        seconds: in which it must have arrived; None: it has.
    """
    data = bytearray()
    try:
        if seconds is None:
            return await _receive_into(data, receive, most)
        async with asyncio.timeout(seconds):
            return await _receive_into(data, receive, most)
    except TimeoutError:
        return Body(bytes(data), "late")


async def _receive_into(data: bytearray, receive: Receive, most: int) -> Body | None:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        more = message.get("more_body", False)
        if not more and not data:
            return Body(message["body"])
        data += message["body"]
        if not more or len(data) > most:
            return Body(bytes(data), "unread" if more else "none")


async def _receive(scope: Scope, receive: Receive, most: int, *, drains: bool) -> Body | None:
    """Read a body; None: the client is gone.

    Of one that is too large nothing is read; ``drains``: it is read to its end, within reason, as
    who is still sending does not see an answer.
    """
    stated = dict(scope["headers"]).get(b"content-length", b"")
    if stated.isdigit() and int(stated) > most and not drains:
        return Body(b"", "unread")
    seconds = None if scope.get(connection.BODY_ARRIVED) else connection.RECEIVE_SECONDS
    body = await receive_body(receive, most, seconds)
    if body is not None and body.rest == "unread" and drains:
        await _drain(receive)
    return body


async def _drain(receive: Receive) -> None:
    left, more = _MAX_DRAINED, True
    with suppress(TimeoutError):
        async with asyncio.timeout(connection.RECEIVE_SECONDS):
            while more and left > 0:
                message = await receive()
                more = message.get("more_body", False)
                left -= len(message.get("body", b""))


def _is_plain_json(scope: Scope, fields: Fields, body: Body) -> bool:
    """Return whether a request posts JSON that has arrived whole, without unusual headers."""
    stated = fields.get(b"content-length", b"")
    return (
        scope["method"] == "POST"
        and body.rest == "none"
        and fields.get(b"content-type") == _RAW_JSON
        and b"content-encoding" not in fields
        and len(fields) == len(scope["headers"])
        and (not stated or (stated.isdigit() and int(stated) == len(body.data)))
    )
