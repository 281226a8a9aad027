"""Serve ``POST /hooks/kubernetes/validate``: the validating admission webhook.

Every request is answered with an AdmissionReview that carries its ``uid``: the API server takes
anything else for a failed webhook, and then does what ``failurePolicy`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from flask import Response, request
from msgspec import Meta, Struct

from compatgate.core.rule import Verdict
from compatgate.errors import CompatgateError, RequestTooLarge
from compatgate.kit.http import replies
from compatgate.kit.http import requests as bodies
from compatgate.kit.http.links import HOOKS_PREFIX
from compatgate.kit.http.notes import RequestNote, note_of
from compatgate.kit.http.replies import Reply, UnsupportedMediaType
from compatgate.kit.http.route import JSON, Body, Call, Returns, route
from compatgate.kit.principal import Principal
from compatgate.service.cluster.admission.review import (
    Review,
    ReviewAnswer,
    find_uid,
    parse_review,
    parse_timeout,
)
from compatgate.service.cluster.admission.schemas import (
    EXAMPLES,
    AdmissionReview,
    AdmissionReviewAnswer,
)
from compatgate.service.cluster.admission.service import (
    SOURCE,
    Admission,
    OpenReview,
    ReviewContext,
)
from compatgate.service.gate.questions.decider import AnswerRecord
from compatgate.web.auth import authenticate, authorize, cached_sender, note_refusal
from compatgate.web.service import Service, answer_link

MAX_BODY_BYTES = 8 * 1024 * 1024
"""Bytes; the API server takes objects of 3 MiB, and sends two of them with an update."""
DESK = "compatgate.admission"
"""Key of the `AdmissionDesk` in a Flask application's extensions."""
_BEGINNING = 64 * 1024
_PLACE = f"POST {HOOKS_PREFIX}/kubernetes/validate"


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
    name="validate_kubernetes",
    query=Timeout,
    body=Body(AdmissionReview, examples=EXAMPLES, argument="review"),
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
        try:
            raw = _read(max(MAX_BODY_BYTES, service.settings.max_request_size))
        except CompatgateError as error:
            return _to_response(_refuse(error, environ, getattr(error, "uid", "")))
        return _to_response(desk.answer(raw, environ))

    return view


class HookAnswer(NamedTuple):
    """An answer to the API server as HTTP, without the headers that every answer carries."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class OpenRequest(Struct, frozen=True):
    """A request whose review is open."""

    uid: str
    review: OpenReview


class AdmissionDesk:
    """Answer requests of API servers, whatever carries them; safe for any number of threads.

    Each request comes as its body and its WSGI environment. `answer` does everything; the other
    functions are its parts, for a caller that must not wait.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._admission = Admission(
            service.gate, service.settings.admission, service.rooms.nodes.inventory
        )

    def answer(self, raw: bytes, environ: Mapping[str, Any]) -> HookAnswer:
        """Answer a request; may wait for images, and for the log of decisions."""
        opened = self.open(raw, environ)
        return opened if isinstance(opened, HookAnswer) else self.decide(opened)

    def open(
        self, raw: bytes, environ: Mapping[str, Any], sender: Principal | None = None
    ) -> OpenRequest | HookAnswer:
        """Read a review and place its object, or return the answer to one that needs no decision.

        ``sender``: of the request, if memory knows it; then only memory is asked. None: it is
        authenticated first.
        """
        service = self._service
        uid, review = parse_review(raw)
        may_wait = sender is None
        try:
            if sender is None:
                header = environ.get("HTTP_AUTHORIZATION")
                sender = authenticate(header, service, environ.get("REMOTE_ADDR") or "")
            note = note_of(environ)
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
            return self._finish(uid, review, opened)
        return OpenRequest(uid, opened)

    def decide(self, opened: OpenRequest) -> HookAnswer:
        """Answer a request; may wait."""
        answer = self._admission.decide(opened.review)
        return self._finish(opened.uid, opened.review.review, answer)

    def explain(self, error: Exception, environ: Mapping[str, Any]) -> CompatgateError:
        """Return the error for an unexpected exception."""
        return self._service.explain(error, environ)

    def known_sender(self, environ: Mapping[str, Any]) -> Principal | None:
        """Return the sender from memory; None: `open` must look it up, or must check targets."""
        try:
            sender = cached_sender(environ.get("HTTP_AUTHORIZATION"), self._service)
        except CompatgateError:
            return None
        return None if sender is None or sender.targets is not None else sender

    def submit(self, records: Sequence[AnswerRecord]) -> Future[None]:
        """Log decisions without waiting."""
        return self._service.gate.submit(records)

    def recall(self, opened: OpenRequest) -> list[AnswerRecord] | None:
        """Return the decisions to log, where memory has all of them; never wait."""
        return self._admission.recall(opened.review)

    def conclude(
        self, opened: OpenRequest, records: Sequence[AnswerRecord], seconds: float
    ) -> HookAnswer:
        """Answer a request once the decisions of `recall` are logged."""
        review = opened.review
        for record in records:
            review.asked.decided(record.answer.verdict, seconds)
        return self._finish(opened.uid, review.review, self._admission.conclude(review, records))

    def fail(self, opened: OpenRequest, error: CompatgateError) -> HookAnswer:
        """Answer a request whose decisions cannot be logged."""
        review = opened.review
        answer = self._admission.fail(error, review.asked)
        return self._finish(opened.uid, review.review, answer)

    def _finish(self, uid: str, review: Review, answer: ReviewAnswer) -> HookAnswer:
        if not review.dry_run and answer.outcome.result != "undecided":
            self._service.metrics.reviewed(review.namespace, answer.outcome)
        return HookAnswer(200, msgspec.json.encode(answer.to_json(uid)))


@lru_cache(maxsize=64)  # an API server sends the same one each time
def _find_wait(query: str) -> float:
    """Return the seconds for an answer, by the query parameter ``timeout``."""
    return parse_timeout(next((value for key, value in parse_qsl(query) if key == "timeout"), ""))


class _UnreadBody(RequestTooLarge):
    """An error: the body is too large or incomplete; ``uid`` was found at its start."""

    uid = ""


def _read(most: int) -> bytes:
    """Return the body."""
    environ = request.environ
    length = request.content_length
    raw, ended = _read_start(environ["wsgi.input"], most)
    if len(raw) > most:
        raise _too_large(raw, most)
    error: Any = None
    if not ended or (length is not None and len(raw) < length):
        error = bodies.incomplete_body()
    elif environ.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        what = environ["HTTP_CONTENT_ENCODING"]
        error = UnsupportedMediaType(
            "the body must not be encoded", field="Content-Encoding", value=what
        )
    elif request.mimetype != JSON:
        hint = f"send {JSON}"
        error = UnsupportedMediaType(
            "not JSON by its content type", field="Content-Type", hint=hint
        )
    if error is not None:
        error.uid = find_uid(raw)
        raise error
    return raw


def _read_start(stream: Any, most: int) -> tuple[bytes, bool]:
    """Read the body, or its beginning where it is larger than ``most``, and whether it ended."""
    raw = b""
    try:
        while len(raw) <= most and (chunk := stream.read(most + 1 - len(raw))):
            raw += chunk
    except Exception:  # of the socket, or of the server's parser
        return raw, False
    return raw, True


def _too_large(raw: bytes, most: int) -> CompatgateError:
    error = _UnreadBody("the body is too large", field="body", hint=f"at most {most} bytes")
    error.uid = find_uid(raw[:_BEGINNING])
    return error


def _refuse(
    error: CompatgateError, environ: Mapping[str, Any], uid: str, *, status: int | None = None
) -> HookAnswer:
    """Return an error as an AdmissionReview; never a 5xx."""
    replies.note_error(error, environ)
    said = f"compatgate: {error.detail}"
    if error.status >= 500:
        replies.problem_answer(error, environ)  # logs it
        return HookAnswer(200, msgspec.json.encode(ReviewAnswer(False, said, 503).to_json(uid)))
    sent: tuple[tuple[str, str], ...] = ()
    if error.status in (401, 403, 429):
        told = replies.problem_answer(error, environ).headers
        sent = tuple(one for one in told if one[0] in ("WWW-Authenticate", "Retry-After"))
    body = msgspec.json.encode(ReviewAnswer(False, said, error.status).to_json(uid))
    return HookAnswer(status or error.status, body, sent)


def _to_response(answer: HookAnswer) -> Response:
    response = Response(answer.body, status=answer.status, content_type=JSON)
    response.headers["Cache-Control"] = "no-store"
    response.headers.extend(answer.headers)
    return response


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
