"""Answer questions to the gate: recall or evaluate, log, then conclude.

The server asks on its event loop (`QuestionApp`), where only an evaluation needs a thread; Flask
asks in a thread of its own (`answer_here`). Both take the same steps.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.core.performance import begin_budget
from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit.http import replies
from compatgate.kit.http.limits import peer_address
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.notes import NOTE
from compatgate.service.gate.decisions.decision_log import (
    PATIENCE_SECONDS,
    late_log_error,
    wait_until_committed,
)
from compatgate.service.gate.questions.decider import AnswerRecord, decode_question
from compatgate.strict_json import check_depth
from compatgate.web.auth import (
    authenticate,
    authorize,
    cached_sender,
    note_refusal,
    remember_decision,
)

if TYPE_CHECKING:
    from compatgate.kit.http.lanes import Lane
    from compatgate.kit.http.notes import RequestNote
    from compatgate.kit.http.replies import WholeAnswer
    from compatgate.kit.http.wsgi import Fields
    from compatgate.kit.principal import Principal
    from compatgate.web.service import Service

QUESTION_PATH = f"{API_PREFIX}/gate"
SOURCE = "rest"


def evaluate(question: bytes, sender: Principal, peer: str, service: Service) -> AnswerRecord:
    """Decide a question whose sender may ask; may wait. The answer must not leave unlogged."""
    check_depth(question, service.settings.max_depth)
    if sender.targets is not None:
        sender.require_question(decode_question(question))
    service.limits.take_question(sender, peer)
    return service.gate.evaluate(question, asked_by=sender.name, source=SOURCE)


def conclude(record: AnswerRecord, began: float, service: Service) -> bytes:
    """Count a decision that is logged, and return the body of its answer.

    ``degraded`` is there while the gate is; the stored verdict has none.
    """
    service.metrics.decided(record.answer.verdict, SOURCE, perf_counter() - began)
    body, degraded = record.answer.body, service.gate.degraded()
    if degraded is None:
        return body
    return b'%b,"degraded":%b}' % (body[:-1], msgspec.json.encode(degraded.to_json()))


def answer_here(question: bytes, sender: Principal, service: Service) -> bytes:
    """Answer a question in this thread.

    Raise if the decision cannot be logged.
    """
    began = perf_counter()
    record = evaluate(question, sender, peer_address(), service)
    wait_until_committed(service.gate.submit((record,)), PATIENCE_SECONDS)
    remember_decision(record.answer.verdict)
    return conclude(record, began, service)


class LogWaiters:
    """The requests that wait for batches of decisions; one call of the event loop wakes a batch."""

    def __init__(self) -> None:
        self._batches: dict[Future[None], asyncio.Future[BaseException | None]] = {}

    async def wait_for(self, batch: Future[None], seconds: float | None = None) -> None:
        """Wait until a batch is committed; at most some seconds, or as long as a batch may take."""
        committed = self._batches.get(batch) or self._follow(batch)
        if seconds is not None:
            await asyncio.wait((committed,), timeout=seconds)
            if not committed.done():
                raise late_log_error()
        error = await committed
        if isinstance(error, CompatgateError):  # each request has its own: it is raised in many
            raise Unavailable(error.problem, field=error.field, hint=error.hint)
        if error is not None:
            raise error

    def _follow(self, batch: Future[None]) -> asyncio.Future[BaseException | None]:
        loop = asyncio.get_running_loop()
        committed = self._batches[batch] = loop.create_future()

        def settle() -> None:
            timer.cancel()
            self._batches.pop(batch, None)
            if not committed.done():
                committed.set_result(batch.exception() if batch.done() else late_log_error())

        timer = loop.call_later(PATIENCE_SECONDS, settle)
        batch.add_done_callback(lambda _: loop.call_soon_threadsafe(settle))
        return committed


class QuestionApp:
    """Answers questions on the event loop."""

    def __init__(self, service: Service, lane: Lane, waiters: LogWaiters) -> None:
        self._service = service
        self._lane = lane
        self._waiters = waiters

    async def answer(self, fields: Fields, question: bytes, note: RequestNote) -> WholeAnswer:
        """Answer a question, or say why not; never raise."""
        began, service = perf_counter(), self._service
        note.route = "ask"
        note.number = replies.request_id(fields.get(b"x-request-id", b"").decode("latin-1"))
        sender = fields.get(b"authorization")
        header = None if sender is None else sender.decode("latin-1")
        try:
            record = self._recall(header, question, note.peer)
            if record is None:
                record = await self._lane.start(self._evaluate, header, question, note.peer)
            await self._waiters.wait_for(service.gate.submit((record,)))
            body = conclude(record, began, service)
        except Exception as error:
            answer = self._refuse(error, header, note)
        else:
            note.status, note.identity = 200, record.decision.asked_by
            note.verdicts = (record.answer.verdict,)
            answer = replies.json_answer(body, note.number)
        service.metrics.requested("POST", "ask", answer.status)
        return answer

    def _recall(self, header: str | None, question: bytes, peer: str) -> AnswerRecord | None:
        """Return the decision from memory; None: `_evaluate` must make it."""
        service = self._service
        sender = cached_sender(header, service)
        if sender is None or sender.targets is not None:
            return None
        authorize(sender, "gate")
        record = service.gate.known(question, asked_by=sender.name, source=SOURCE)
        if record is not None:  # else `_evaluate` counts the request
            service.limits.take(sender, peer)
            service.limits.take_question(sender, peer)
        return record

    def _evaluate(self, header: str | None, question: bytes, peer: str) -> AnswerRecord:
        """Decide in a thread of the lane; logging needs none."""
        begin_budget()
        sender = authenticate(header, self._service, peer)
        self._service.limits.take(sender, peer)
        authorize(sender, "gate")
        return evaluate(question, sender, peer, self._service)

    def _refuse(self, error: Exception, header: str | None, note: RequestNote) -> WholeAnswer:
        environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": QUESTION_PATH}
        environ[replies.ENVIRON], environ[NOTE] = note.number, note
        if header is not None:
            environ["HTTP_AUTHORIZATION"] = header
        if isinstance(error, CompatgateError):
            note_refusal(error, f"POST {QUESTION_PATH}", self._service)
        else:
            error = self._service.explain(error, environ)
        return replies.whole_problem(error, environ, note.number)
