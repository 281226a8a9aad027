"""Run a WSGI application on an ASGI server: in threads, once the whole body has arrived.

A slow client holds no thread: its body is read before, and its answer is sent after. Threads that
compute share one interpreter lock, so each further one makes all of them slower: a few are enough
for calls that compute. A call that lasts waits for somebody else (a database, a registry), needs no
lock meanwhile, and must not hold up the next call.
"""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct, field

from compatgate.kit import tracing
from compatgate.kit.http import replies
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

MAX_WAITING = 512
"""Requests that may wait for a thread of a lane."""
SHORT_THREADS = 3
"""Threads for short calls."""
_LONG_SECONDS = 0.02
"""A call that lasts longer counts no more among the short ones."""
_IDLE_SECONDS = 30
"""A thread ends after so long without a call."""
RECEIVE_SECONDS = 30.0
"""A request's body must have arrived in this time."""
SEND_SECONDS = 300.0
"""A piece of a streamed answer must have left in this time: a thread waits for it."""
_MAX_DRAINED = 64 * 1024 * 1024
CLIENT_GONE: ContextVar[threading.Event | None] = ContextVar("client_gone", default=None)
"""Set once the client of the present request has left; None: nobody looks."""


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


class _Call(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


def _run(call: _Call) -> None:
    if call.future.cancelled():
        return
    result, error = None, None
    try:
        result = call.function(*call.arguments)
    except BaseException as raised:
        error = raised  # the caller gets it
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        call.loop.call_soon_threadsafe(_settle, call.future, result, error)
    del call, error  # the error knows this frame: together they would wait for the collector


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class Lane:
    """Threads for requests of one kind; requests of another kind do not wait for them."""

    def __init__(self, name: str, threads: int, short: int = SHORT_THREADS) -> None:
        self._name = name
        self._most = threads
        self._short = short
        self._running = 0
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._began: dict[threading.Thread, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call a function in a thread; return the future of its result, on the running loop."""
        if self._running >= self._most + MAX_WAITING:
            what = f"{self._running} requests wait already"
            raise TooBusy(what, hint="retry in a moment; serve --threads allows more")
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._running += 1
        future.add_done_callback(self._end)
        self._calls.put(_Call(tracing.carry(function), arguments, future, loop))
        self._add_threads(loop)
        return future

    def _end(self, _: object) -> None:
        self._running -= 1

    def _add_threads(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start threads for waiting calls, where the limits allow; look again later otherwise."""
        with self._lock:
            while waits := self._calls.qsize() > len(self._threads) - len(self._began):
                alive = len(self._threads)
                if alive >= self._most or alive - self._long_calls() >= self._short:
                    break
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()
        if waits and self._timer is None and len(self._threads) < self._most:

            def look_again() -> None:
                self._timer = None
                self._add_threads(loop)

            self._timer = loop.call_later(_LONG_SECONDS, look_again)

    def _long_calls(self) -> int:
        since = perf_counter() - _LONG_SECONDS
        return sum(began < since for began in tuple(self._began.values()))

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            try:
                call = self._calls.get(timeout=_IDLE_SECONDS)
            except Empty:
                if self._may_leave(thread, idle=True):
                    return
                continue
            self._began[thread] = perf_counter()
            _run(call)
            del self._began[thread], call  # nothing of a call is kept until the next one
            if len(self._threads) > self._short and self._may_leave(thread):
                return

    def _may_leave(self, thread: threading.Thread, *, idle: bool = False) -> bool:
        """Let a thread end: it was idle, or the long calls that it stood in for end."""
        with self._lock:
            if idle:
                leaves = self._calls.empty()
            else:
                leaves = len(self._threads) - self._long_calls() > self._short
            if leaves:
                self._threads.discard(thread)
        return leaves


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
        environ, loop = make_environ(scope, body), asyncio.get_running_loop()
        exchange = _Exchange(self._app, environ, receive, send, body.rest != "none", loop)
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


class _Exchange(Struct):
    """One request and its answer, in a thread."""

    app: WSGIApplication
    environ: dict[str, Any]
    receive: Receive
    send: Send
    closes: bool
    loop: asyncio.AbstractEventLoop
    status: int = 500
    headers: replies.Headers = []
    gone: threading.Event = field(default_factory=threading.Event)

    def run(self) -> WholeAnswer | None:
        """Return the answer; None: it was streamed."""
        CLIENT_GONE.set(self.gone)
        pieces = self.app(self.environ, self._start)
        try:
            if self.closes:
                self.headers.append(("Connection", "close"))
            headers = replies.to_raw(self.headers)
            if any(name == b"content-length" for name, _ in headers):
                return WholeAnswer(self.status, headers, b"".join(pieces))
            self._stream(pieces, headers)
            return None
        finally:
            getattr(pieces, "close", lambda: None)()

    def _start(self, status: str, headers: replies.Headers, exc_info: Any = None) -> Any:
        self.status, self.headers = int(status[:3]), headers
        return None

    def _stream(self, pieces: Iterable[bytes], headers: replies.RawHeaders) -> None:
        watch = asyncio.run_coroutine_threadsafe(self.watch(), self.loop)
        try:
            self._wait({"type": "http.response.start", "status": self.status, "headers": headers})
            for piece in pieces:
                if self.gone.is_set():
                    return
                self._wait({"type": "http.response.body", "body": piece, "more_body": True})
            self._wait({"type": "http.response.body", "body": b""})
        finally:
            watch.cancel()

    def _wait(self, message: dict[str, Any]) -> None:
        asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(self.send(message), SEND_SECONDS), self.loop
        ).result()

    async def watch(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.gone.set()


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
