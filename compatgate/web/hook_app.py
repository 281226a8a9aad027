"""Answer AdmissionReviews on the event loop where memory has the decisions, else in a thread.

The API server waits for every answer, and most pods are like one before: they need no thread but
the one that commits the batch of decisions. Reading a registry, and deciding about a new stack,
happen in the lane of the hooks. Requests of an unusual form go through the Flask application.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from compatgate.core.performance import begin_budget
from compatgate.errors import CompatgateError
from compatgate.kit.http import replies
from compatgate.kit.http.links import HOOKS_PREFIX
from compatgate.kit.http.notes import RequestNote
from compatgate.kit.http.wsgi import Body, make_environ
from compatgate.service.cluster.admission.service import MustWait
from compatgate.web.admission_hook import AdmissionDesk, HookAnswer

if TYPE_CHECKING:
    from compatgate.kit.http.lanes import Lane
    from compatgate.kit.http.replies import WholeAnswer
    from compatgate.kit.http.wsgi import Scope
    from compatgate.web.metrics import Metrics
    from compatgate.web.question_app import LogWaiters

HOOK_PATH = f"{HOOKS_PREFIX}/kubernetes/validate"
_ROUTE = "validate_kubernetes"
_MAX_BYTES = 64 * 1024
"""Larger objects are read and placed in a thread."""


class HookApp:
    """Answers AdmissionReviews on the event loop."""

    def __init__(
        self, desk: AdmissionDesk, metrics: Metrics, lane: Lane, waiters: LogWaiters
    ) -> None:
        self._desk = desk
        self._metrics = metrics
        self._lane = lane
        self._waiters = waiters

    async def answer(self, scope: Scope, body: Body, note: RequestNote) -> WholeAnswer:
        """Answer a request whose whole body is there; never raise."""
        environ = make_environ(scope, body)
        note.route = _ROUTE
        note.number = number = replies.request_id(environ.get("HTTP_X_REQUEST_ID", ""))
        environ[replies.ENVIRON] = number
        try:
            decided = await self._decide(body.data, environ)
        except CompatgateError as error:
            answer = replies.whole_problem(error, environ, number)
        except Exception as error:
            answer = replies.whole_problem(self._desk.explain(error, environ), environ, number)
        else:
            note.status = decided.status
            answer = replies.json_answer(decided.body, number, decided.status, decided.headers)
        self._metrics.requested("POST", _ROUTE, answer.status)
        return answer

    async def _decide(self, raw: bytes, environ: dict[str, Any]) -> HookAnswer:
        sender = self._desk.known_sender(environ) if len(raw) <= _MAX_BYTES else None
        if sender is None:
            return await self._run(self._desk.answer, raw, environ)
        begin_budget()
        try:
            opened = self._desk.open(raw, environ, sender)
        except MustWait:
            return await self._run(self._desk.answer, raw, environ)
        if isinstance(opened, HookAnswer):
            return opened
        began = perf_counter()
        records = self._desk.recall(opened)
        if records is None:
            return await self._run(self._desk.decide, opened)
        if records:
            try:
                await self._waiters.wait_for(self._desk.submit(records), opened.review.left_s)
            except CompatgateError as error:
                return self._desk.fail(opened, error)
        return self._desk.conclude(opened, records, perf_counter() - began)

    async def _run(self, function: Any, *arguments: Any) -> HookAnswer:
        def run() -> HookAnswer:
            begin_budget()
            decided: HookAnswer = function(*arguments)
            return decided

        answer: HookAnswer = await self._lane.start(run)
        return answer
