"""Serve ``POST /hooks/kubernetes/validate``: the validating admission webhook.

Every request is answered with an AdmissionReview that carries its ``uid``: the API server takes
anything else for a failed webhook, and then does what ``failurePolicy`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

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
from compatgate.service.admission.events import DenialEvents
from compatgate.service.admission.outcome import ReviewOutcome
from compatgate.service.admission.review import (
    Review,
    ReviewAnswer,
    find_uid,
    parse_review,
    parse_timeout,
)
from compatgate.service.admission.schemas import EXAMPLES, AdmissionReview, AdmissionReviewAnswer
from compatgate.service.admission.service import SOURCE, Admission, ReviewContext
from compatgate.service.tokens.principal import Principal
from compatgate.service.web.auth import (
    authenticate,
    authorize,
    note_refusal,
    peer_address,
    remember,
)
from compatgate.service.web.call import Call, Service, base_url, verdict_link
from compatgate.service.web.route import JSON, Body, Returns, route

MAX_BODY_BYTES = 8 * 1024 * 1024
"""Bytes; the API server takes objects of 3 MiB, and sends two of them with an update."""
_BEGINNING = 64 * 1024
_PLACE = f"POST {HOOKS_PREFIX}/kubernetes/validate"


class Timeout(Struct, frozen=True):
    """The query parameter that the API server adds to a webhook's address."""

    timeout: Annotated[
        str | None, Meta(description="time that the API server waits", examples=["10s"])
    ] = None


@route(
    "POST",
    "/kubernetes/validate",
    prefix=HOOKS_PREFIX,
    scope="gate",
    tag="hooks",
    targets="checked",
    name="validate_kubernetes",
    query=Timeout,
    body=Body(AdmissionReview, examples=EXAMPLES),
    returns=Returns(AdmissionReviewAnswer, "The decision; a denial is answered 200 as well"),
    refusal=AdmissionReviewAnswer,
)
def validate(call: Call[Timeout]) -> Reply:
    """Decide about a Kubernetes object, as a validating admission webhook.

    Reads AdmissionReview v1. Each container that asks for GPUs becomes a question about its image
    and the target that the pod is bound for; the decisions are logged, except in a dry run. What
    cannot be read is refused in the same form, with the request's uid where it has one.
    """
    raise NotImplementedError  # `make_view` answers: also what never becomes a call


def make_view(service: Service) -> Callable[[], Response]:
    """Make the view, with the authentication, limits and errors of the API in this hook's form."""
    admission = Admission(service.gate, service.settings.admission)
    access = service.settings.admission.events
    events = DenialEvents(access, service.metrics.event) if access else None

    def view() -> Response:
        try:
            raw = _read(max(MAX_BODY_BYTES, service.settings.max_request_size))
        except CompatgateError as error:
            return _refuse(error, getattr(error, "uid", ""))
        uid, review = parse_review(raw)
        try:
            header = request.environ.get("HTTP_AUTHORIZATION")
            principal = remember(authenticate(header, service, peer_address()))
            authorize(principal, "gate")
        except CompatgateError as error:
            note_refusal(error, _PLACE, service)
            return _refuse(error, uid)
        if isinstance(review, CompatgateError):
            return _refuse(review, uid, status=200 if uid else 400)
        asked = ReviewContext(
            principal.name,
            parse_timeout(request.args.get("timeout", "")),
            partial(verdict_link, base_url(service)),
            partial(_count_decision, service, note_of(request.environ)),
            partial(_check_question, service, principal),
            partial(service.metrics.unmatched, review.namespace),
            service.metrics.admission_failed,
        )
        answer = admission.answer(review, asked)
        _tell_outcome(service, events, review, answer.outcome)
        return _to_response(answer, uid)

    return view


def _tell_outcome(
    service: Service, events: DenialEvents | None, review: Review, outcome: ReviewOutcome
) -> None:
    """Count how a review ended, and queue the event about a denial; a dry run leaves nothing."""
    if review.dry_run or outcome.result == "undecided":
        return
    service.metrics.reviewed(review.namespace, outcome)
    if events is not None:
        events.tell(review, outcome)


class _UnreadBody(RequestTooLarge):
    """An error: the body is too large or incomplete; ``uid`` was found at its start."""

    uid = ""


def _read(most: int) -> bytes:
    """Return the body.

    Raises:
        TooLarge: it is; carries the uid.
        BadInput: it is not complete; or not JSON in one piece.
    """
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


def _refuse(error: CompatgateError, uid: str, *, status: int | None = None) -> Response:
    """Return an error as an AdmissionReview; never a 5xx."""
    replies.note_error(error, request.environ)
    if error.status >= 500:
        replies.problem_answer(error, request.environ)  # logs it
        return _to_response(ReviewAnswer(False, f"compatgate: {error.detail}", 503), uid)
    answer = ReviewAnswer(False, f"compatgate: {error.detail}", error.status)
    response = _to_response(answer, uid, status or error.status)
    if error.status in (401, 403, 429):
        sent = dict(replies.problem_answer(error, request.environ).headers)
        for name in ("WWW-Authenticate", "Retry-After"):
            if name in sent:
                response.headers[name] = sent[name]
    return response


def _to_response(answer: ReviewAnswer, uid: str, status: int = 200) -> Response:
    body = msgspec.json.encode(answer.to_json(uid))
    response = Response(body, status=status, content_type=JSON)
    response.headers["Cache-Control"] = "no-store"
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
