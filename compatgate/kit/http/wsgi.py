"""Run a WSGI application on an ASGI server: in threads, once the whole body has arrived.

A slow client holds no thread: its body is read before, and its answer is sent after.
"""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from compatgate.kit.http import replies
from compatgate.kit.http.lanes import SHORT_THREADS, Lane
from compatgate.kit.http.replies import TooBusy, WholeAnswer
from compatgate.kit.tracing import NOTE, note_of

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Coroutine[Any, Any, None]]
    Fields = Mapping[bytes, bytes]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

RECEIVE_SECONDS = 30.0
"""A request's body must have arrived in this time."""
SEND_SECONDS = 300.0
"""A piece of a streamed answer must have left in this time: a thread waits for it."""
_MAX_DRAINED = 64 * 1024 * 1024
CLIENT_GONE: ContextVar[threading.Event | None] = ContextVar("client_gone", default=None)
"""Set once the client of the present request has left; None: nobody looks."""
MOST_AHEAD = 1
"""Requests in a row that may arrive before the answer to the one in front of them has left.

After each answer the server reads and parses what has arrived since, so each costs a burst more.
"""
_CLOSE = (b"connection", b"close")


class Body(NamedTuple):
    """The received part of a request's body, from its beginning.

    ``late``: the rest missed the time limit; ``unread``: the body exceeds the size limit.
    """

    data: bytes
    rest: Literal["none", "late", "unread"] = "none"


async def receive_body(receive: Receive, most: int, *, drains: bool = False) -> Body | None:
    """Read a body up to its limits of size and time; None: the client is gone.

    ``drains``: read one that is too large to its end, within reason, and drop the rest; a client
    that is still sending would not see an answer.
    """
    data, dropped = bytearray(), 0
    try:
        async with asyncio.timeout(RECEIVE_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                if len(data) > most:
                    dropped += len(message["body"])
                else:
                    data += message["body"]
                if not message.get("more_body", False):
                    return Body(bytes(data), "unread" if dropped else "none")
                if len(data) > most and (not drains or dropped > _MAX_DRAINED):
                    return Body(bytes(data), "unread")
    except TimeoutError:
        return Body(bytes(data), "unread" if len(data) > most else "late")


async def send_answer(send: Send, answer: WholeAnswer) -> None:
    """Send an answer that is there as a whole."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})


class WsgiLane(Lane):
    """A lane whose requests a WSGI application answers.

    With ``watches`` it notices that a client leaves before its answer (`CLIENT_GONE`).
    """

    def __init__(
        self,
        app: WSGIApplication,
        name: str,
        threads: int,
        short: int = SHORT_THREADS,
        *,
        watches: bool = False,
    ) -> None:
        super().__init__(name, threads, short)
        self._app = app
        self._watches = watches

    async def answer(self, scope: Scope, body: Body, receive: Receive, send: Send) -> None:
        """Answer a request."""
        environ = make_environ(scope, body)
        exchange = _Exchange(self._app, environ, receive, send, closes=body.rest != "none")
        watch = asyncio.create_task(exchange.watch()) if self._watches else None
        try:
            answer = await self.start(exchange.run)
        except TooBusy as error:
            number = replies.request_id(environ.get("HTTP_X_REQUEST_ID", ""))
            if (note := note_of(environ)) is not None:
                note.number = number
            answer = replies.whole_problem(error, environ, number)
        finally:
            if watch is not None:
                watch.cancel()
        if answer is not None:
            await send_answer(send, answer)


class _Exchange:
    """One request and its answer, in a thread."""

    def __init__(
        self,
        app: WSGIApplication,
        environ: dict[str, Any],
        receive: Receive,
        send: Send,
        *,
        closes: bool,
    ) -> None:
        self._app = app
        self._environ = environ
        self._receive = receive
        self._send = send
        self._closes = closes
        self._loop = asyncio.get_running_loop()
        self._status = 500
        self._headers: replies.Headers = []
        self._gone = threading.Event()

    def run(self) -> WholeAnswer | None:
        """Return the answer; None: it was streamed."""
        CLIENT_GONE.set(self._gone)
        pieces = self._app(self._environ, self._start)
        try:
            if self._closes:
                self._headers.append(("Connection", "close"))
            headers = replies.to_raw(self._headers)
            if any(name == b"content-length" for name, _ in headers):
                return WholeAnswer(self._status, headers, b"".join(pieces))
            self._stream(pieces, headers)
            return None
        finally:
            getattr(pieces, "close", lambda: None)()

    def _start(self, status: str, headers: replies.Headers, exc_info: Any = None) -> Any:
        self._status, self._headers = int(status[:3]), headers
        return None

    def _stream(self, pieces: Iterable[bytes], headers: replies.RawHeaders) -> None:
        watch = asyncio.run_coroutine_threadsafe(self.watch(), self._loop)
        try:
            self._wait({"type": "http.response.start", "status": self._status, "headers": headers})
            for piece in pieces:
                if self._gone.is_set():
                    return
                self._wait({"type": "http.response.body", "body": piece, "more_body": True})
            self._wait({"type": "http.response.body", "body": b""})
        finally:
            watch.cancel()

    def _wait(self, message: dict[str, Any]) -> None:
        asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(self._send(message), SEND_SECONDS), self._loop
        ).result()

    async def watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()


class _TruncatedBody(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        """Read the received part; raise where more should follow."""
        if part := super().read(size):
            return part
        raise ConnectionError("the body is incomplete")


def make_environ(scope: Scope, body: Body) -> dict[str, Any]:
    """Return the WSGI environment of a request."""
    query = scope["query_string"].decode("latin-1")
    raw = scope.get("raw_path", b"").decode("latin-1")
    host, port = scope.get("server") or ("localhost", None)
    client = scope.get("client") or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode("utf-8", "surrogateescape").decode("latin-1"),
        "QUERY_STRING": query,
        "REQUEST_URI": f"{raw}?{query}" if query else raw,
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or ""),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": str(client[1]),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": _TruncatedBody(body.data) if body.rest == "late" else io.BytesIO(body.data),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    if NOTE in scope:
        environ[NOTE] = scope[NOTE]
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if "_" in name:  # could pass for another header
            continue
        key = name.upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = f"HTTP_{key}"
        separator = "; " if key == "HTTP_COOKIE" else ","
        environ[key] = f"{environ[key]}{separator}{value}" if key in environ else value
    return environ


class Pipelines:
    """Counts the requests of each connection that arrived ahead of an answer.

    The server starts such a request as soon as the answer has left. What a client sends once it has
    the answer comes a turn of the event loop later, when the connection is forgotten.
    """

    def __init__(self) -> None:
        self._ahead: dict[tuple[str, int], int] = {}

    def follow(self, scope: Scope, send: Send) -> tuple[Send, Callable[[], object]]:
        """Count a request; return what sends its answer, and what to call at its end.

        The last answer of a connection says that it is closed.
        """
        client: tuple[str, int] | None = scope.get("client")
        if client is None or not client[1]:  # a proxy's: it states no port, and sends none ahead
            return send, lambda: None
        number = self._ahead[client] = self._ahead.get(client, -1) + 1
        end = partial(asyncio.get_running_loop().call_soon, self._forget, client, number)
        if number < MOST_AHEAD:
            return send, end

        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], _CLOSE]
            await send(message)

        return send_closing, end

    def _forget(self, client: tuple[str, int], number: int) -> None:
        if self._ahead.get(client) == number:
            del self._ahead[client]
