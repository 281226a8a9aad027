"""Serve ``POST /hooks/kubernetes/validate``: the validating admission webhook.

Every request is answered with an AdmissionReview that carries its ``uid``: the API server takes
anything else for a failed webhook, and then does what ``failurePolicy`` says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from flask import Response, request
from msgspec import Meta, Struct

from compatgate.core.performance import begin_budget
from compatgate.core.rule import Verdict
from compatgate.errors import CompatgateError
from compatgate.kit.http import replies
from compatgate.kit.http import requests as bodies
from compatgate.kit.http.links import HOOKS_PREFIX
from compatgate.kit.http.replies import HttpAnswer, Reply, UnsupportedMediaType
from compatgate.kit.http.route import JSON, Body, Call, Returns, route
from compatgate.kit.principal import Principal
from compatgate.kit.tracing import RequestNote, note_of
from compatgate.service.cluster.admission import (
    SOURCE,
    Admission,
    MustWait,
    OpenReview,
    ReviewContext,
)
from compatgate.service.cluster.review import (
    Review,
    ReviewAnswer,
    find_uid,
    parse_review,
    parse_timeout,
)
from compatgate.service.cluster.schemas import (
    REVIEW_EXAMPLES,
    AdmissionReview,
    AdmissionReviewAnswer,
)
from compatgate.web.auth import authenticate, authorize, cached_sender, note_refusal
from compatgate.web.question_app import LogWaiters, answer_on_loop
from compatgate.web.service import Service, answer_link

if TYPE_CHECKING:
    from compatgate.kit.http.replies import WholeAnswer
    from compatgate.kit.http.wsgi import Lane

MAX_BODY_BYTES = 8 * 1024 * 1024
"""Bytes; the API server takes objects of 3 MiB, and sends two of them with an update."""
DESK = "compatgate.admission"
"""Key of the `AdmissionDesk` in a Flask application's extensions."""
HOOK_PATH = f"{HOOKS_PREFIX}/kubernetes/validate"
_PLACE = f"POST {HOOK_PATH}"
_ROUTE = "validate_kubernetes"
_BEGINNING = 64 * 1024
"""Bytes in which the uid of a review that is refused is looked for."""
_MAX_BYTES = 64 * 1024
"""Larger objects are read and placed in a thread."""


class Timeout(Struct, frozen=True):
    """The query parameter that the API server adds to a webhook's address."""

    timeout: Annotated[
        str | None, Meta(description="timeout of the API server", examples=["10s"])
    ] = None


@route(
    "POST",
    "/kubernetes/validate",
    prefix=HOOKS_PREFIX,
    scope="admission",
    tag="hooks",
    targets="checked",
    name=_ROUTE,
    query=Timeout,
    body=Body(AdmissionReview, examples=REVIEW_EXAMPLES, argument="review"),
    returns=Returns(AdmissionReviewAnswer, "The decision; denials also return 200"),
    refusal=AdmissionReviewAnswer,
)
def validate(call: Call[Timeout]) -> Reply:
    """Decide about a Kubernetes object, as a validating admission webhook.

    Reads AdmissionReview v1. Each container that requests GPUs becomes a question about its image
    and the target of the pod. The gate logs the decisions, except in a dry run. It refuses a
    malformed request in the same format, with the uid of the request if known.
    """
    raise NotImplementedError  # `make_view` answers: also what never becomes a call


def make_view(service: Service, desk: AdmissionDesk) -> Callable[[], Response]:
    """Make the view, with the authentication, limits and errors of the API in this hook's form."""

    def view() -> Response:
        environ = request.environ
        raw, error = _read(max(MAX_BODY_BYTES, service.settings.max_request_size))
        if error is not None:
            answer = _refuse(error, environ, find_uid(raw[:_BEGINNING]))
        else:
            answer = desk.answer(raw, environ)
        response = Response(answer.body, status=answer.status, content_type=JSON)
        response.headers["Cache-Control"] = "no-store"
        response.headers.extend(answer.headers)
        return response

    return view


class OpenRequest(Struct, frozen=True):
    """A request whose review is open."""

    uid: str
    review: OpenReview


class AdmissionDesk:
    """Answer requests of API servers, whatever carries them; safe for any number of threads.

    Each request comes as its body and its WSGI environment.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._admission = Admission(
            service.gate, service.settings.admission, service.rooms.nodes.inventory
        )

    def answer(self, raw: bytes, environ: Mapping[str, Any]) -> HttpAnswer:
        """Answer a request; may wait for images, and for the log of decisions."""
        opened = self._open(raw, environ)
        return opened if isinstance(opened, HttpAnswer) else self.decide(opened)

    def decide(self, opened: OpenRequest) -> HttpAnswer:
        """Answer a request; may wait."""
        return self._finish(opened, self._admission.decide(opened.review))

    async def answer_soon(
        self, raw: bytes, environ: dict[str, Any], lane: Lane, waiters: LogWaiters
    ) -> WholeAnswer:
        """Answer on the event loop, with a thread where that must wait; never raise."""
        work = self._decide_soon(raw, environ, lane, waiters)
        return await answer_on_loop(_ROUTE, _PLACE, environ, self._service, work)

    async def _decide_soon(
        self, raw: bytes, environ: Mapping[str, Any], lane: Lane, waiters: LogWaiters
    ) -> HttpAnswer:
        def in_thread(function: Callable[..., HttpAnswer], *args: Any) -> Awaitable[HttpAnswer]:
            def run() -> HttpAnswer:
                begin_budget()
                return function(*args)

            return lane.start(run)

        sender = None
        if len(raw) <= _MAX_BYTES:
            with suppress(CompatgateError):  # `_open` says what is wrong with it
                sender = cached_sender(environ.get("HTTP_AUTHORIZATION"), self._service)
        if sender is None or sender.targets is not None:  # it must be looked up, or checked
            return await in_thread(self.answer, raw, environ)
        begin_budget()
        try:
            opened = self._open(raw, environ, sender)
        except MustWait:
            return await in_thread(self.answer, raw, environ)
        if isinstance(opened, HttpAnswer):
            return opened
        review, began = opened.review, perf_counter()
        records = self._admission.recall(review)
        if records is None:
            return await in_thread(self.decide, opened)
        if records:
            try:
                await waiters.wait_for(self._service.gate.submit(records), review.left_s)
            except CompatgateError as error:
                return self._finish(opened, self._admission.fail(error, review.asked))
        for record in records:
            review.asked.decided(record.answer.verdict, perf_counter() - began)
        return self._finish(opened, self._admission.conclude(review, records))

    def _open(
        self, raw: bytes, environ: Mapping[str, Any], sender: Principal | None = None
    ) -> OpenRequest | HttpAnswer:
        """Read a review and place its object, or return the answer to one that needs no decision.

        ``sender``: of the request, if memory knows it; then only memory is asked. None: it is
        authenticated first.
        """
        service, note = self._service, note_of(environ)
        uid, review = parse_review(raw)
        may_wait = sender is None
        try:
            if sender is None:
                header = environ.get("HTTP_AUTHORIZATION")
                sender = authenticate(header, service, environ.get("REMOTE_ADDR") or "")
            if note is not None:
                note.identity = sender.name
            authorize(sender, "admission")
        except CompatgateError as error:
            note_refusal(error, _PLACE, service)
            return _refuse(error, environ, uid)
        if isinstance(review, CompatgateError):
            return _refuse(review, environ, uid, status=200 if uid else 400)
        asked = ReviewContext(
            sender.name,
            _find_wait(environ.get("QUERY_STRING", "")),
            partial(answer_link, service, environ=environ),
            partial(_count_decision, service, note),
            partial(_check_question, service, sender),
            partial(service.metrics.unmatched, review.namespace),
            service.metrics.admission_failed,
        )
        opened = self._admission.open(review, asked, may_wait=may_wait)
        if isinstance(opened, ReviewAnswer):
            return self._to_hook(uid, review, opened)
        return OpenRequest(uid, opened)

    def _finish(self, opened: OpenRequest, answer: ReviewAnswer) -> HttpAnswer:
        return self._to_hook(opened.uid, opened.review.review, answer)

    def _to_hook(self, uid: str, review: Review, answer: ReviewAnswer) -> HttpAnswer:
        if not review.dry_run and answer.outcome.result != "undecided":
            self._service.metrics.reviewed(review.namespace, answer.outcome)
        return HttpAnswer(200, msgspec.json.encode(answer.to_json(uid)))


@lru_cache(maxsize=64)  # an API server sends the same one each time
def _find_wait(query: str) -> float:
    return parse_timeout(next((value for key, value in parse_qsl(query) if key == "timeout"), ""))


def _read(most: int) -> tuple[bytes, CompatgateError | None]:
    environ, length, ended = request.environ, request.content_length, True
    raw = b""
    try:
        while len(raw) <= most and (chunk := environ["wsgi.input"].read(most + 1 - len(raw))):
            raw += chunk
    except Exception:  # of the socket, or of the server's parser
        ended = False
    encoding = environ.get("HTTP_CONTENT_ENCODING", "identity")
    if len(raw) > most:
        return raw, bodies.body_too_large(most)
    if not ended or (length is not None and len(raw) < length):
        return raw, bodies.incomplete_body()
    if encoding != "identity":
        what = "the body must not be encoded"
        return raw, UnsupportedMediaType(what, field="Content-Encoding", value=encoding)
    if request.mimetype != JSON:
        what = "not JSON by its content type"
        return raw, UnsupportedMediaType(what, field="Content-Type", hint=f"send {JSON}")
    return raw, None


def _refuse(
    error: CompatgateError, environ: Mapping[str, Any], uid: str, *, status: int | None = None
) -> HttpAnswer:
    """Return an error as an AdmissionReview; never a 5xx."""
    replies.note_error(error, environ)
    message, code = f"compatgate: {error.detail}", error.status
    headers: list[tuple[str, str]] = []
    if code >= 500:
        replies.problem_answer(error, environ)  # logs it
        status, code = 200, 503
    elif code in (401, 403, 429):
        every = replies.problem_answer(error, environ).headers
        headers = [one for one in every if one[0] in ("WWW-Authenticate", "Retry-After")]
    body = msgspec.json.encode(ReviewAnswer(False, message, code).to_json(uid))
    return HttpAnswer(status or code, body, headers)


def _check_question(service: Service, principal: Principal, question: dict[str, Any]) -> None:
    try:
        principal.require_question(question)
    except CompatgateError as error:
        note_refusal(error, _PLACE, service)
        raise


def _count_decision(
    service: Service, note: RequestNote | None, verdict: Verdict, seconds: float
) -> None:
    service.metrics.decided(verdict, SOURCE, seconds)
    if note is not None:  # in whichever thread the question was asked
        note.verdicts = (*note.verdicts, verdict)
