"""Answer questions to the gate on the event loop, by callbacks: recall or evaluate, log, conclude.

What may wait (a registry, an evaluation) happens in a thread of the lane; waiting for the log of
decisions needs none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from compatgate.core.performance import begin_budget
from compatgate.errors import CompatgateError
from compatgate.kit.http import replies
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.notes import NOTE
from compatgate.kit.http.replies import WholeAnswer
from compatgate.kit.http.requests import check_depth
from compatgate.service.gate.decider import AnswerRecord, decode_question
from compatgate.service.gate.outages import mark_degraded
from compatgate.service.web.auth import (
    authenticate,
    authorize,
    cached_sender,
    note_refusal,
    remember_decision,
)
from compatgate.service.web.call import add_link

if TYPE_CHECKING:
    from compatgate.kit.http.notes import RequestNote
    from compatgate.kit.http.wsgi import Fields, Lane, Send
    from compatgate.service.tokens.principal import Principal
    from compatgate.service.web.call import Service
    from compatgate.service.web.log_waiters import LogWaiters

QUESTION_PATH = f"{API_PREFIX}/gate"
SOURCE = "rest"
Reply = Callable[[WholeAnswer], None]
"""Takes the answer, on the event loop."""


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
