"""Turn errors into RFC 9457 problem details.

Nothing that a user sends ends in a stack trace.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import RequestRedirect

from compatgate.documents.sources import DocumentProblem
from compatgate.errors import (
    BadInput,
    CompatgateError,
    Forbidden,
    ManyProblems,
    Unauthorized,
    Unavailable,
)
from compatgate.kit.http import replies


class UnsupportedMedia(BadInput):
    """An error: the route does not read this content type."""

    status = 415
    slug = "unsupported-media-type"


class HttpError(CompatgateError):
    """An error of Flask itself: an unknown route, or a method that a route lacks."""

    def __init__(self, status: int, slug: str, problem: str, *, hint: str = "") -> None:
        super().__init__(problem, hint=hint)
        self.status = status
        self.slug = slug


class Busy(Unavailable):
    """An error: too many requests of this kind wait already."""

    retry_after_s = 1


TYPE = "https://compatgate.dev/problems/"
MEDIA = "application/problem+json"
_LONGEST_VALUE = 200
_MOST_PROBLEMS = 1000
_log = logging.getLogger("compatgate.web")


class ProblemAnswer(NamedTuple):
    """An error as HTTP, whatever carries it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def answer(error: CompatgateError, environ: Mapping[str, Any]) -> ProblemAnswer:
    """Return the answer that carries an error.

    Args:
        error: what went wrong.
        environ: the WSGI environment of the request, for the log and for who asked.
    """
    if error.status >= 500:
        _log.error("%s: %s", _request(environ), error.detail)
    sent = [("Content-Type", MEDIA), ("Cache-Control", "no-store")]
    if isinstance(error, Unauthorized):
        invalid = ', error="invalid_token"' if "HTTP_AUTHORIZATION" in environ else ""
        sent.append(("WWW-Authenticate", f'Bearer realm="compatgate"{invalid}'))
    elif isinstance(error, Forbidden):
        challenge = 'Bearer realm="compatgate", error="insufficient_scope"'
        sent.append(("WWW-Authenticate", challenge))
    elif isinstance(error, Busy):
        sent.append(("Retry-After", str(error.retry_after_s)))
    return ProblemAnswer(error.status, sent, msgspec.json.encode(to_problem(error)))


def defect(error: Exception, environ: Mapping[str, Any]) -> CompatgateError:
    """Return the error for an unexpected exception: the client gets an id, the log the details."""
    number = secrets.token_hex(6)
    _log.error("%s: defect %s", _request(environ), number, exc_info=error)
    return HttpError(
        500,
        "internal-error",
        f"internal error of the gate (error id {number})",
        hint="the server's log has the details under this id",
    )


def install(app: Flask) -> None:
    """Answer every error of an application as a problem."""

    def known(error: CompatgateError) -> Response:
        return _response(answer(error, request.environ))

    def unexpected(error: Exception) -> Response:
        return _response(answer(defect(error, request.environ), request.environ))

    app.register_error_handler(CompatgateError, known)
    app.register_error_handler(HTTPException, _of_http)
    app.register_error_handler(Exception, unexpected)


def _request(environ: Mapping[str, Any]) -> str:
    """Return the request as the log names it."""
    number = environ.get(replies.ENVIRON, "-")
    return f"{environ.get('REQUEST_METHOD')} {environ.get('PATH_INFO')!r} (request {number})"


def to_problem(error: CompatgateError) -> dict[str, Any]:
    """Return the members of problem+json."""
    body: dict[str, Any] = {
        "type": TYPE + error.slug,
        "title": error.slug.replace("-", " ").capitalize(),
        "status": error.status,
        "detail": error.problem if isinstance(error, ManyProblems) else error.detail,
        "field": error.field,
        "value": _shown(error.value),
        "hint": error.hint or None,
    }
    if isinstance(error, ManyProblems):
        body["problems"] = [_one(problem) for problem in error.problems[:_MOST_PROBLEMS]]
    return body


def _one(error: CompatgateError) -> dict[str, Any]:
    place = error if isinstance(error, DocumentProblem) else None
    return {
        "file": place.file if place else None,
        "line": place.line if place else None,
        "document": (place.document or None) if place else None,
        "field": error.field,
        "problem": error.problem,
        "value": _shown(error.value),
        "hint": error.hint or None,
    }


def _shown(value: object) -> Any:
    """Return a value for a problem: scalars only, long texts truncated."""
    if isinstance(value, str):
        clean = value.encode("utf-8", "replace").decode()
        return clean if len(clean) <= _LONGEST_VALUE else f"{clean[:_LONGEST_VALUE]}..."
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def _response(found: ProblemAnswer) -> Response:
    return Response(found.body, status=found.status, headers=found.headers)


def _of_http(error: HTTPException) -> Response:
    if isinstance(error, RequestRedirect):
        return error.get_response()  # type: ignore[return-value]
    slug = error.name.lower().replace(" ", "-")
    problem = HttpError(error.code or 500, slug, _said(error))
    response = _response(answer(problem, request.environ))
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response


def _said(error: HTTPException) -> str:
    if error.code == 404:
        return f"there is nothing at {request.path}; /api/v1/openapi.json lists every route"
    if error.code == 405:
        return f"{request.method} is not possible on {request.path}"
    return error.name
