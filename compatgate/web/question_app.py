"""Answer questions to the gate: recall or evaluate, log, then conclude.

The server asks on its event loop (`QuestionApp`), where only an evaluation needs a thread; Flask
asks in a thread of its own (`answer_here`). Both take the same steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from concurrent.futures import Future
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.core.performance import begin_budget
from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit.http import replies
from compatgate.kit.http.limits import peer_address
from compatgate.kit.http.links import API_PREFIX
from compatgate.kit.http.replies import HttpAnswer
from compatgate.kit.tracing import NOTE
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
    from compatgate.kit.http.replies import WholeAnswer
    from compatgate.kit.http.wsgi import Fields, Lane
    from compatgate.kit.principal import Principal
    from compatgate.kit.tracing import RequestNote
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


async def answer_on_loop(
    route: str,
    place: str,
    environ: dict[str, Any],
    service: Service,
    work: Awaitable[HttpAnswer],
) -> WholeAnswer:
    """Answer, or say why not; never raise.

    ``environ``: of WSGI, with the note of the request.
    """
    note: RequestNote = environ[NOTE]
    note.route = route
    note.number = environ[replies.ENVIRON] = number = replies.request_id(
        environ.get("HTTP_X_REQUEST_ID", "")
    )
    try:
        status, body, headers = await work
    except Exception as error:
        if isinstance(error, CompatgateError):
            note_refusal(error, place, service)
        else:
            error = service.explain(error, environ)
        answer = replies.whole_problem(error, environ, number)
    else:
        note.status = status
        answer = replies.json_answer(body, number, status, headers)
    service.metrics.requested("POST", route, answer.status)
    return answer


class QuestionApp:
    """Answers questions on the event loop."""

    def __init__(self, service: Service, lane: Lane, waiters: LogWaiters) -> None:
        self._service = service
        self._lane = lane
        self._waiters = waiters

    async def answer(self, fields: Fields, question: bytes, note: RequestNote) -> WholeAnswer:
        """Answer a question, or say why not; never raise."""
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": QUESTION_PATH, NOTE: note}
        environ["HTTP_X_REQUEST_ID"] = fields.get(b"x-request-id", b"").decode("latin-1")
        header = None
        if (sender := fields.get(b"authorization")) is not None:
            environ["HTTP_AUTHORIZATION"] = header = sender.decode("latin-1")
        work = self._decide(header, question, note)
        return await answer_on_loop("ask", f"POST {QUESTION_PATH}", environ, self._service, work)

    async def _decide(self, header: str | None, question: bytes, note: RequestNote) -> HttpAnswer:
        began, service = perf_counter(), self._service
        record = self._recall(header, question, note.peer)
        if record is None:
            record = await self._lane.start(self._evaluate, header, question, note.peer)
        await self._waiters.wait_for(service.gate.submit((record,)))
        note.identity, note.verdicts = record.decision.asked_by, (record.answer.verdict,)
        return HttpAnswer(200, conclude(record, began, service))

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
