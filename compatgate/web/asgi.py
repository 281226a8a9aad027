"""The application as the server sees it: lanes that do not wait for each other.

Health is answered on the event loop, a question to the gate there as well where memory has the
answer; everything else is the Flask application's, in threads: a pool for each kind of request.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from compatgate.web import connection, headers
from compatgate.web.asking import PATH, Asking
from compatgate.web.health import ALIVE
from compatgate.web.hooks.kubernetes import LARGEST
from compatgate.web.route import HOOKS, JSON
from compatgate.web.wsgi import Body, Lane, receive_body, send_whole

if TYPE_CHECKING:
    from flask import Flask

    from compatgate.web.call import Service

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Coroutine[Any, Any, None]]
    Fields = Mapping[bytes, bytes]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEALTH_THREADS = 4
_HEALTH = ("/healthz", "/readyz", "/metrics")
_ORPHAN_SECONDS = 0.25
_MOST_DRAINED = 64 * 1024 * 1024


class Front:
    """ASGI application of one gate.

    Args:
        app: the Flask application.
        service: what its requests share.
        threads: of each lane.
        parent: process without which this one ends; None: whoever is its parent now.
    """

    def __init__(
        self, app: Flask, service: Service, threads: int, parent: int | None = None
    ) -> None:
        self._service = service
        self._rest = Lane(app, "rest", threads)
        self._hooks = Lane(app, "hooks", threads)
        self._questions = Lane(app, "questions", threads)
        self._health = Lane(app, "health", _HEALTH_THREADS)
        self._asking = Asking(service, self._questions)
        self._parent = parent or os.getppid()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or follow the life of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        fields = dict(scope["headers"])
        path = scope["path"]
        if path == "/healthz" and scope["method"] == "GET":
            await self._alive(fields, send)
            return
        lane, most = self._lane(path)
        body = await _receive(scope, receive, most, drains=lane is self._hooks)
        if body is None:
            return
        plain = path == PATH and body.rest == "none" and len(body.data) <= most
        if plain and _is_plain(scope, fields, len(body.data)):
            await self._asking.answer(fields, body.data, send)
        else:
            await lane.answer(scope, body, receive, send)

    def _lane(self, path: str) -> tuple[Lane, int]:
        """The lane for a path, and how large a body it reads."""
        most = self._service.settings.max_request_size
        if path in _HEALTH:
            return self._health, most
        if path.startswith(f"{HOOKS}/"):
            return self._hooks, max(most, LARGEST)
        return (self._questions if path.startswith(PATH) else self._rest), most

    async def _alive(self, fields: Fields, send: Send) -> None:
        number = headers.request_id(fields.get(b"x-request-id", b"").decode("latin-1"))
        sent = headers.complete([("Content-Type", JSON), ("Cache-Control", "no-store")], number)
        self._service.metrics.requested("GET", "healthz", 200)
        await send_whole(send, 200, sent, ALIVE)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Begin and end with the server."""
        await receive()
        self._end_streams_at_stop()
        watches = (connection.end_late_connections(), self._end_without_parent())
        tasks = [asyncio.create_task(watch) for watch in watches]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in tasks:
            task.cancel()
        await asyncio.to_thread(self._service.gate.close)
        await send({"type": "lifespan.shutdown.complete"})

    def _end_streams_at_stop(self) -> None:
        """Let those go who follow a log as soon as the server is told to stop."""
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


async def _receive(scope: Scope, receive: Receive, most: int, *, drains: bool) -> Body | None:
    """Read a body; None: the client is gone.

    Of one that is too large nothing is read; ``drains``: it is read to its end, within reason, as
    who is still sending does not see an answer.
    """
    stated = dict(scope["headers"]).get(b"content-length", b"")
    if stated.isdigit() and int(stated) > most and not drains:
        return Body(b"", "unread")
    seconds = None if scope.get(connection.WHOLE) else connection.RECEIVE_SECONDS
    body = await receive_body(receive, most, seconds)
    if body is not None and body.rest == "unread" and drains:
        await _drain(receive)
    return body


async def _drain(receive: Receive) -> None:
    left, more = _MOST_DRAINED, True
    with suppress(TimeoutError):
        async with asyncio.timeout(connection.RECEIVE_SECONDS):
            while more and left > 0:
                message = await receive()
                more = message.get("more_body", False)
                left -= len(message.get("body", b""))


def _is_plain(scope: Scope, fields: Fields, size: int) -> bool:
    """Whether a question comes as JSON of this size, with nothing that needs a second look."""
    stated = fields.get(b"content-length", b"")
    return (
        scope["method"] == "POST"
        and not scope["query_string"]
        and fields.get(b"content-type") == JSON.encode()
        and b"content-encoding" not in fields
        and len(fields) == len(scope["headers"])
        and (not stated or (stated.isdigit() and int(stated) == size))
    )
