"""Answer the server: health and known questions on the event loop, the rest in lanes of threads.

Health is answered on the event loop, and so are questions and AdmissionReviews that memory knows:
they wake no thread except the one that commits a batch of decisions. The Flask application
answers everything else in threads; each kind of request has its own lane, so that none waits for
another.

An ended request has one line, in the format of the log: who asked what, the answer, how long it
took, and for a decision its verdict, target and deciding rules. A refused token has a line of its
own, so many a second at most. No line has a token, a path or a body.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from compatgate.errors import Unauthorized
from compatgate.kit import logs, tracing
from compatgate.kit.http import replies
from compatgate.kit.http.limits import Rate, RateLimiter
from compatgate.kit.http.links import API_PREFIX, HOOKS_PREFIX, UI_PREFIX
from compatgate.kit.http.route import JSON
from compatgate.kit.http.wsgi import (
    Body,
    WsgiLane,
    make_environ,
    receive_body,
    send_answer,
)
from compatgate.kit.tracing import NOTE, RequestNote
from compatgate.service.runs.queue.logs import LogListeners
from compatgate.web.admission_hook import DESK, HOOK_PATH, MAX_BODY_BYTES, AdmissionDesk
from compatgate.web.computing import get_ready
from compatgate.web.metrics import ALIVE_BODY
from compatgate.web.page import environment
from compatgate.web.question_app import QUESTION_PATH, LogWaiters, QuestionApp

if TYPE_CHECKING:
    from flask import Flask

    from compatgate.kit.http.wsgi import Fields, Message, Receive, Scope, Send
    from compatgate.kit.tracing import RequestKind
    from compatgate.web.metrics import Metrics
    from compatgate.web.service import AccessLevel, Service

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
_PARTING_SECONDS = 0.3
_RAW_JSON = JSON.encode()
_NAME = "compatgate.access"
_FIRST_DEFECT = 500
_LOWEST_STATUS: dict[AccessLevel, float] = {"all": 0, "errors": 400, "off": math.inf}
_log = logging.getLogger("compatgate.auth")
_REFUSED = Rate(20, 10.0)
"""Lines about refused tokens: so many at once, then two a second."""
MOST_AHEAD = 1
"""Requests in a row that may arrive before the answer to the one in front of them has left.

After each answer the server reads and parses what has arrived since, so each costs a burst more.
"""
_CLOSE = (b"connection", b"close")


class Front:
    """The ASGI application of one gate.

    The process ends without its parent; None: its present parent.

    ``listeners``: descriptors of the sockets that the server accepts connections from.
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
        self._waiters = LogWaiters()
        self._asking = QuestionApp(service, self._questions, self._waiters)
        self._desk: AdmissionDesk = app.extensions[DESK]
        self._kinds: dict[WsgiLane, RequestKind] = {
            self._hooks: "hook",
            self._questions: "question",
            self._health: "health",
        }
        self._access = AccessLog(service.settings.access_log, service.metrics)
        self._pipelines = Pipelines()
        self._parent = parent or os.getppid()
        self.listeners: Sequence[int] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or follow the life of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        client = scope.get("client")
        note = RequestNote(scope["method"], "health", client[0] if client else "", perf_counter())
        scope[NOTE] = note
        send, end = self._pipelines.follow(scope, send)
        try:
            if tracing.is_on() and scope["path"] not in _HEALTH:
                with tracing.request(scope["headers"], note):
                    await self._answer(scope, note, receive, send)
            else:
                await self._answer(scope, note, receive, send)
        finally:
            end()
            seconds = perf_counter() - note.began
            self._service.metrics.answered(note.kind, seconds)
            if note.error is not None or note.status >= self._access.lowest_status:
                self._access.end(note, seconds)

    async def _answer(self, scope: Scope, note: RequestNote, receive: Receive, send: Send) -> None:
        fields = dict(scope["headers"])
        path = scope["path"]
        if path == "/healthz" and scope["method"] == "GET":
            number = replies.request_id(fields.get(b"x-request-id", b"").decode("latin-1"))
            note.route, note.status, note.number = "healthz", 200, number
            self._service.metrics.requested("GET", "healthz", 200)
            await send_answer(send, replies.json_answer(ALIVE_BODY, number))
            return
        lane, most = self._rest, self._service.settings.max_request_size
        if path.startswith(QUESTION_PATH):
            lane = self._questions
        elif path in _HEALTH:
            lane = self._health
        elif path.startswith(f"{HOOKS_PREFIX}/"):
            lane, most = self._hooks, max(most, MAX_BODY_BYTES)
        elif path in _COMPUTING or path.endswith("/plan"):
            lane = self._computing
        note.kind = self._kinds.get(lane) or ("page" if path.startswith(UI_PREFIX) else "api")
        drains = lane is self._hooks  # an API server that is still sending sees no answer
        stated = fields.get(b"content-length", b"")
        if stated.isdigit() and int(stated) > most and not drains:
            body: Body | None = Body(b"", "unread")
        else:
            body = await receive_body(receive, most, drains=drains)
        if body is None:  # the client is gone
            return
        is_plain = _is_plain_json(scope, fields, body) and len(body.data) <= most
        if is_plain and path == QUESTION_PATH and not scope["query_string"]:
            await send_answer(send, await self._asking.answer(fields, body.data, note))
        elif is_plain and path == HOOK_PATH:
            environ = make_environ(scope, body)
            desk, lane = self._desk, self._hooks
            await send_answer(send, await desk.answer_soon(body.data, environ, lane, self._waiters))
        else:
            await lane.answer(scope, body, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        tracing.start("compatgate")
        self._prepare_to_stop()
        watch = asyncio.create_task(self._end_without_parent())
        gate = self._service.gate
        await send({"type": "lifespan.startup.complete"})
        readying = self._computing.start(lambda: gate.compute(get_ready, gate.snapshot()))
        readying.add_done_callback(asyncio.Future.exception)  # the first question says what fails
        compiling = asyncio.create_task(_compile_templates())
        await receive()
        watch.cancel()
        compiling.cancel()
        await asyncio.to_thread(self._service.rooms.close)
        await asyncio.to_thread(tracing.stop)
        await asyncio.to_thread(logs.writer.flush)
        await send({"type": "lifespan.shutdown.complete"})

    def _prepare_to_stop(self) -> None:
        """Before the server begins to stop, end followed logs and accept no connection.

        The server closes connections that have no request yet. So those that it has accepted get a
        moment for theirs; the next ones are another process's: a socket that nobody connects to
        takes the place of each listener, in this process alone.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)

            def stop(number: int, frame: Any, before: Any = before) -> None:
                seconds = 0.0 if self._service.find(LogListeners).ending else _PARTING_SECONDS
                self._service.find(LogListeners).ending = True
                for descriptor in self.listeners:  # closing it would end it in all processes
                    with socket.socket(socket.AF_UNIX) as silent:
                        silent.setblocking(False)
                        silent.bind("")
                        silent.listen()
                        os.dup2(silent.fileno(), descriptor)
                loop.call_soon_threadsafe(loop.call_later, seconds, before, number, None)

            if callable(before):
                signal.signal(number, stop)

    async def _end_without_parent(self) -> None:
        while os.getppid() == self._parent:
            await asyncio.sleep(_ORPHAN_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)


async def _compile_templates() -> None:
    """Compile what the first look at each page would else wait for, and let requests go between."""
    templates = environment()
    for name in templates.list_templates():
        await asyncio.to_thread(templates.get_template, name)


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


class AccessLog:
    """The lines of ended requests, from a lowest status on; safe for any number of threads."""

    def __init__(self, shows: AccessLevel, metrics: Metrics) -> None:
        self.lowest_status = _LOWEST_STATUS[shows]
        self._metrics = metrics
        self._limiter = RateLimiter(_REFUSED)
        self._skipped = 0

    def end(self, note: RequestNote, seconds: float) -> None:
        """Note the end of a request that has a line or an error, and how long it took.

        A refused token counts whatever the status: a hook may answer errors with 200.
        """
        if isinstance(note.error, Unauthorized):
            self._refused(note, note.error)
        if note.status >= self.lowest_status and (form := logs.current_format()) is not None:
            logs.writer.put(request_line(note, seconds, form))

    def _refused(self, note: RequestNote, error: Unauthorized) -> None:
        self._metrics.refused(error.reason)
        if error.reason == "missing":
            return
        if self._limiter.take(_NAME):
            self._skipped += 1
            return
        skipped, self._skipped = self._skipped, 0
        if skipped:
            _log.warning("%d more refused tokens have no line", skipped)
        extra = logs.fields(
            reason=error.reason,
            token=error.token,
            peer=note.peer,
            route=note.route,
            request_id=note.number,
        )
        _log.warning("refused: %s", error.problem, extra=extra)


def request_line(note: RequestNote, seconds: float, form: logs.LogFormat) -> bytes:
    """Return the line of a request."""
    now, level = time.time(), "error" if note.status >= _FIRST_DEFECT else "info"
    message = f"{note.method} {note.route} {note.status}"
    fields: dict[str, Any] = {
        "duration_ms": round(seconds * 1000, 3),
        "identity": note.identity or "-",
        "peer": note.peer or "-",
        "request_id": note.number,
    }
    if (verdict := note.deciding_verdict) is not None:
        fields["verdict"], fields["allowed"] = verdict.verdict, verdict.allowed
        fields["target"], fields["rules"] = verdict.target or "-", verdict.deciding_rules
        if len(note.verdicts) > 1:
            fields["decisions"] = len(note.verdicts)
    if note.error is not None:
        fields["error"] = note.error.slug
    if form == "json":
        fields = {"method": note.method, "route": note.route, "status": note.status, **fields}
    line = logs.format_line(form, now, level, _NAME, message, fields)
    return f"{line}\n".encode("utf-8", "backslashreplace")
