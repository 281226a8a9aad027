"""Answer the server: health and known questions on the event loop, the rest in lanes of threads.

Health is answered on the event loop, and a question to the gate where memory has the answer. The
Flask application answers everything else in threads; each kind of request has its own pool, so
that none waits for another.

A repeated question wakes no thread except the one that commits a batch of decisions. What may
wait (a registry, an evaluation) happens in a thread; waiting for the log of decisions needs none.
Questions of a plain form need no ASGI either: the connection hands them over as values
(`compatgate.kit.http.direct`). One implementation, `QuestionApp.ask`, answers them all.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from compatgate.core.near_names import begin_budget
from compatgate.errors import CompatgateError
from compatgate.kit import logs, tracing
from compatgate.kit.http import connection, replies
from compatgate.kit.http.direct import DIRECT
from compatgate.kit.http.links import API_PREFIX, HOOKS_PREFIX, UI_PREFIX
from compatgate.kit.http.notes import NOTE, RequestNote
from compatgate.kit.http.requests import check_depth
from compatgate.kit.http.wsgi import Body, Lane, receive_body, send_whole
from compatgate.service.admission.api import DESK, MAX_BODY_BYTES
from compatgate.service.gate.decider import AnswerRecord, decode_question
from compatgate.service.gate.outages import mark_degraded
from compatgate.service.web.access import AccessLog
from compatgate.service.web.auth import (
    authenticate,
    authorize,
    cached_sender,
    note_refusal,
    remember_decision,
)
from compatgate.service.web.call import add_link
from compatgate.service.web.hook_app import HOOK_PATH, HookApp
from compatgate.service.web.log_waiters import LogWaiters
from compatgate.service.web.metrics import ALIVE_BODY
from compatgate.service.web.route import JSON

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from compatgate.kit.http.notes import RequestKind
    from compatgate.kit.http.replies import WholeAnswer
    from compatgate.kit.http.wsgi import Fields, Receive, Scope, Send
    from compatgate.service.tokens.principal import Principal
    from compatgate.service.web.call import Service

    Reply = Callable[[WholeAnswer], None]

_HEALTH_THREADS = 4
_HEALTH = ("/healthz", "/readyz", "/metrics")
_ORPHAN_SECONDS = 0.25
_RAW_JSON = JSON.encode()
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
        self._rest = Lane(app, "rest", threads)
        self._hooks = Lane(app, "hooks", threads)
        self._questions = Lane(app, "questions", threads)
        self._health = Lane(app, "health", _HEALTH_THREADS)
        waiters = LogWaiters()
        self._asking = QuestionApp(service, self._questions, waiters)
        self._reviewing = HookApp(app.extensions[DESK], service.metrics, self._hooks, waiters)
        self._kinds: dict[Lane, RequestKind] = {
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
            self._access.end(note)

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
            self._access.end(note)

        self._asking.ask(fields, body, note, end)

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

    def _lane(self, path: str) -> tuple[Lane, int]:
        """Return the lane for a path, and its maximum body size."""
        most = self._service.settings.max_request_size
        if path in _HEALTH:
            return self._health, most
        if path.startswith(f"{HOOKS_PREFIX}/"):
            return self._hooks, max(most, MAX_BODY_BYTES)
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


QUESTION_PATH = f"{API_PREFIX}/gate"
SOURCE = "rest"
_QUESTION_URL = QUESTION_PATH.encode()
_LARGEST_DIRECT = 64 * 1024
"""Bytes of a question that is answered without ASGI."""
_STRANGE_FIELDS = (b"content-encoding", b"transfer-encoding", b"x-forwarded-for")
"""Headers that need a closer look; the last one may change the address of the client."""


def answer_here(question: bytes, sender: Principal, service: Service) -> bytes:
    """Answer a question in this thread.

    Raises:
        CompatgateError: as `compatgate.service.gate.service.Gate.answer`.
    """
    began = perf_counter()
    check_depth(question, service.settings.max_depth)
    if sender.targets is not None:
        sender.require_question(decode_question(question))
    answer = service.gate.answer(question, asked_by=sender.name, source=SOURCE)
    service.metrics.decided(answer.verdict, SOURCE, perf_counter() - began)
    remember_decision(answer.verdict)
    body = add_link(answer.body, answer.verdict.id, service)
    return mark_degraded(body, service.gate.degraded())


class QuestionApp:
    """Answers questions on the event loop, by callbacks: no question needs a task of its own.

    Args:
        service: of the application.
        lane: threads for questions that may wait.
        waiters: for the log of decisions.
    """

    def __init__(self, service: Service, lane: Lane, waiters: LogWaiters) -> None:
        self.service = service
        self.lane = lane
        self.waiters = waiters

    def ask(self, fields: Fields, question: bytes, note: RequestNote, reply: Reply) -> None:
        """Answer a question, or say why not; never raise.

        Args:
            fields: headers of the request, by their names in small letters.
            question: the body.
            note: of the request.
            reply: called once with the answer, now or later.
        """
        _Question(self, fields, question, note, reply).begin()

    async def answer(self, fields: Fields, question: bytes, note: RequestNote, send: Send) -> None:
        """Answer a question to a server of ASGI; arguments are those of `ask`."""
        answered: asyncio.Future[WholeAnswer] = asyncio.get_running_loop().create_future()

        def reply(answer: WholeAnswer) -> None:
            if not answered.done():  # the client may be gone
                answered.set_result(answer)

        self.ask(fields, question, note, reply)
        found = await answered
        await send(found.start())
        await send({"type": "http.response.body", "body": found.body})


class _Question:
    """A question on its way: recalled or evaluated, then logged, then answered."""

    __slots__ = ("_app", "_began", "_decided", "_header", "_note", "_question", "_reply")

    def __init__(
        self, app: QuestionApp, fields: Fields, question: bytes, note: RequestNote, reply: Reply
    ) -> None:
        self._app = app
        self._question = question
        self._note = note
        self._reply = reply
        self._began = perf_counter()
        self._decided: AnswerRecord | None = None
        sender = fields.get(b"authorization")
        self._header = None if sender is None else sender.decode("latin-1")
        note.route = "ask"
        note.number = replies.request_id(fields.get(b"x-request-id", b"").decode("latin-1"))

    def begin(self) -> None:
        """Recall the answer, or evaluate the question in a thread."""
        try:
            decided = self._recall()
            if decided is not None:
                self._log(decided)
            else:
                self._app.lane.start(self._evaluate).add_done_callback(self._evaluated)
        except Exception as error:
            self._fail(error)

    def _recall(self) -> AnswerRecord | None:
        """Return the decision from memory; None: a thread must make it."""
        service = self._app.service
        sender = cached_sender(self._header, service)
        if sender is None or sender.targets is not None:
            return None
        authorize(sender, "gate")
        found = service.gate.known(self._question, asked_by=sender.name, source=SOURCE)
        if found is not None:  # else `_evaluate` counts the request
            service.limits.take(sender, self._note.peer)
        return found

    def _evaluate(self) -> AnswerRecord:
        """Decide in a thread of the lane; logging needs none."""
        service = self._app.service
        begin_budget()
        sender = authenticate(self._header, service, self._note.peer)
        service.limits.take(sender, self._note.peer)
        authorize(sender, "gate")
        check_depth(self._question, service.settings.max_depth)
        if sender.targets is not None:
            sender.require_question(decode_question(self._question))
        return service.gate.evaluate(self._question, asked_by=sender.name, source=SOURCE)

    def _evaluated(self, found: asyncio.Future[AnswerRecord]) -> None:
        try:
            self._log(found.result())
        except Exception as error:
            self._fail(error)

    def _log(self, decided: AnswerRecord) -> None:
        self._decided = decided
        self._app.waiters.call(self._app.service.gate.submit((decided,)), self._logged)

    def _logged(self, error: CompatgateError | None) -> None:
        try:
            if error is not None:
                raise error
            answer = self._conclude()
        except Exception as found:
            self._fail(found)
        else:
            self._reply(answer)

    def _conclude(self) -> WholeAnswer:
        """Return the answer of a decision that is logged."""
        assert self._decided is not None  # noqa: S101 - `_log` comes before
        service, note, verdict = self._app.service, self._note, self._decided.answer.verdict
        service.metrics.decided(verdict, SOURCE, perf_counter() - self._began)
        note.identity, note.verdicts, note.status = self._decided.decision.asked_by, (verdict,), 200
        body = add_link(self._decided.answer.body, verdict.id, service)
        service.metrics.requested("POST", "ask", 200)
        return replies.json_answer(mark_degraded(body, service.gate.degraded()), note.number)

    def _fail(self, error: Exception) -> None:
        """Answer with an error."""
        service, number = self._app.service, self._note.number
        environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": QUESTION_PATH}
        environ[replies.ENVIRON], environ[NOTE] = number, self._note
        if self._header is not None:
            environ["HTTP_AUTHORIZATION"] = self._header
        if isinstance(error, CompatgateError):
            note_refusal(error, f"POST {QUESTION_PATH}", service)
        else:
            error = replies.unexpected_error(error, environ)
        answer = replies.whole_problem(error, environ, number)
        service.metrics.requested("POST", "ask", answer.status)
        self._reply(answer)
