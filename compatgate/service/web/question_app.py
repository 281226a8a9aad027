"""Answer questions to the gate on the event loop, by callbacks: recall or evaluate, log, conclude.

What may wait (a registry, an evaluation) happens in a thread of the lane; waiting for the log of
decisions needs none (`LogWaiters`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.core.performance import begin_budget
from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.http import replies
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.notes import NOTE
from compatgate.kit.http.replies import WholeAnswer
from compatgate.service.gate.decider import AnswerRecord, decode_question
from compatgate.service.gate.decision_log import PATIENCE_SECONDS, late_log_error
from compatgate.service.web.auth import (
    authenticate,
    authorize,
    cached_sender,
    note_refusal,
    peer_address,
    remember_decision,
)
from compatgate.strict_json import check_depth

if TYPE_CHECKING:
    from compatgate.kit.http.lanes import Lane
    from compatgate.kit.http.notes import RequestNote
    from compatgate.kit.http.wsgi import Fields, Send
    from compatgate.service.gate.decider import Answer
    from compatgate.service.tokens.principal import Principal
    from compatgate.service.web.call import Service

QUESTION_PATH = f"{API_PREFIX}/gate"
SOURCE = "rest"
Waiter = Callable[[CompatgateError | None], None]
"""Called on the event loop; with an error, the answers must not leave."""
Reply = Callable[[WholeAnswer], None]
"""Takes the answer, on the event loop."""
_log = logging.getLogger("compatgate.web")


def answer_here(question: bytes, sender: Principal, service: Service) -> bytes:
    """Answer a question in this thread.

    Raises:
        CompatgateError: as `compatgate.service.gate.service.Gate.answer`.
    """
    began = perf_counter()
    check_depth(question, service.settings.max_depth)
    if sender.targets is not None:
        sender.require_question(decode_question(question))
    service.limits.take_question(sender, peer_address())
    answer = service.gate.answer(question, asked_by=sender.name, source=SOURCE)
    service.metrics.decided(answer.verdict, SOURCE, perf_counter() - began)
    remember_decision(answer.verdict)
    return _complete_body(answer, service)


class LogWaiters:
    """The callers that wait for a batch of decisions; one call of the event loop wakes all."""

    def __init__(self) -> None:
        self._waiting: dict[Future[None], list[Waiter]] = {}

    def call(self, batch: Future[None], waiter: Waiter) -> None:
        """Call a function once a batch is committed, or cannot be, or takes too long.

        Args:
            batch: of decisions.
            waiter: whatever it raises is logged.
        """
        waiting = self._waiting.get(batch)
        if waiting is None:
            waiting = self._waiting[batch] = []
            loop = asyncio.get_running_loop()
            timer = loop.call_later(PATIENCE_SECONDS, self._wake, batch)
            batch.add_done_callback(lambda done: loop.call_soon_threadsafe(self._wake, done, timer))
        waiting.append(waiter)

    async def wait_for(self, batch: Future[None], seconds: float | None = None) -> None:
        """Wait until a batch is committed.

        Args:
            batch: of decisions.
            seconds: at most; None: as long as a batch may take.

        Raises:
            Unavailable: it cannot be, or takes too long.
        """
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(error: CompatgateError | None) -> None:
            if waiting.cancelled():
                return
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

        self.call(batch, wake)
        if seconds is None:
            await waiting
            return
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            raise late_log_error() from None

    def _wake(self, batch: Future[None], timer: asyncio.TimerHandle | None = None) -> None:
        if timer is not None:
            timer.cancel()
        error = batch.exception() if batch.done() else late_log_error()
        for waiter in self._waiting.pop(batch, ()):
            try:
                if isinstance(error, CompatgateError):  # each has its own: it may be raised
                    waiter(Unavailable(error.problem, field=error.field, hint=error.hint))
                else:
                    waiter(None)
            except Exception:  # the others must wake all the same
                _log.exception("a request could not be answered")


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
            service.limits.take_question(sender, self._note.peer)
        return found

    def _evaluate(self) -> AnswerRecord:
        """Decide in a thread of the lane; logging needs none."""
        service = self._app.service
        begin_budget()
        sender = authenticate(self._header, service, self._note.peer)
        service.limits.take(sender, self._note.peer)
        authorize(sender, "gate")
        service.limits.take_question(sender, self._note.peer)
        check_depth(self._question, service.settings.max_depth)
        if sender.targets is not None:
            sender.require_question(decode_question(self._question))
        return service.gate.evaluate(self._question, asked_by=sender.name, source=SOURCE)

    def _evaluated(self, found: asyncio.Future[AnswerRecord]) -> None:
        try:
            if isinstance(refusal := found.exception(), Exception):
                self._fail(refusal)  # not raised again: this frame and the error would be a cycle
            else:
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
        service.metrics.requested("POST", "ask", 200)
        return replies.json_answer(_complete_body(self._decided.answer, service), note.number)

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
            error = service.explain(error, environ)
        answer = replies.whole_problem(error, environ, number)
        service.metrics.requested("POST", "ask", answer.status)
        self._reply(answer)


def _complete_body(answer: Answer, service: Service) -> bytes:
    """Return the JSON of a verdict with ``link`` and ``degraded``, which the stored one never has.

    ``link`` is there where links need no token, ``degraded`` while the gate is.
    """
    links, degraded = service.settings.verdict_links, service.gate.degraded()
    parts = []
    if links is not None:  # a link needs no escape in JSON
        parts.append(b',"link":"%b"' % links.link(answer.verdict.id, clock.now()).encode())
    if degraded is not None:
        parts.append(b',"degraded":%b' % msgspec.json.encode(degraded.to_json()))
    return b"".join((answer.body[:-1], *parts, b"}")) if parts else answer.body
