"""Describe answers: headers, bodies, entity tags, pages of lists, and problems (RFC 9457).

Every answer carries a request id and limits for browsers.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from flask import Flask, Response, current_app, request
from msgspec import Struct
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.routing import RequestRedirect

from compatgate.core.performance import begin_budget, end_budget
from compatgate.errors import (
    BadInput,
    CompatgateError,
    Forbidden,
    ManyProblems,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from compatgate.kit.http.schemas import ListQuery
from compatgate.kit.logs import fields
from compatgate.kit.tracing import note_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

REQUEST_ID = "X-Request-Id"
ENVIRON = "compatgate.request_id"
CSP = "Content-Security-Policy"
SECURITY = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
]
STATIC_CSP = (CSP, "default-src 'none'; frame-ancestors 'none'")
"""The policy of every answer that states none."""
PROBLEM_TYPE = "https://compatgate.dev/problems/"
PROBLEM_MEDIA = "application/problem+json"
_GIVEN_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_LONGEST_VALUE = 200
_MAX_PROBLEMS = 1000
_RAW_LENGTH, _RAW_REQUEST_ID = b"content-length", REQUEST_ID.lower().encode()
_log = logging.getLogger("compatgate.web")
_prefix = ""
_numbers = count(1)
Headers = list[tuple[str, str]]
RawHeaders = list[tuple[bytes, bytes]]
"""Names in small letters, and values, as a server sends them."""
Explain = Callable[[Exception, Mapping[str, Any]], CompatgateError]
"""Returns the error for an unexpected exception of a request with this WSGI environment."""


class Envelope:
    """A WSGI application that adds the headers to another application's answers."""

    def __init__(self, inner: WSGIApplication) -> None:
        self._inner = inner

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        number = request_id(environ.get("HTTP_X_REQUEST_ID", ""))
        environ[ENVIRON] = number
        if (note := note_of(environ)) is not None:
            note.number = number
        begin_budget()

        def start(
            status: str, headers: Headers, exc_info: Any = None, /
        ) -> Callable[[bytes], object]:
            return start_response(status, complete_headers(headers, number), exc_info)

        try:
            return self._inner(environ, start)
        finally:
            end_budget()


def complete_headers(headers: Headers, number: str) -> Headers:
    """Return the headers of an answer, with those that every answer carries."""
    headers.append((REQUEST_ID, number))
    headers += SECURITY
    if all(name != CSP for name, _ in headers):
        headers.append(STATIC_CSP)
    return headers


class HttpAnswer(NamedTuple):
    """An answer, whatever carries it, without the headers that every answer carries."""

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]] = ()


class WholeAnswer(NamedTuple):
    """An answer that is there as a whole, with every header it needs."""

    status: int
    headers: RawHeaders
    body: bytes


def to_raw(headers: Iterable[tuple[str, str]]) -> RawHeaders:
    """Return headers as a server sends them."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]


_JSON_HEADERS = to_raw(
    [("Content-Type", "application/json"), ("Cache-Control", "no-store"), *SECURITY, STATIC_CSP]
)


def json_answer(
    body: bytes, number: str, status: int = 200, sent: Iterable[tuple[str, str]] = ()
) -> WholeAnswer:
    """Return an answer in JSON."""
    own = [(_RAW_LENGTH, b"%d" % len(body)), (_RAW_REQUEST_ID, number.encode("latin-1"))]
    return WholeAnswer(status, [*_JSON_HEADERS, *own, *to_raw(sent)], body)


def request_id(given: str) -> str:
    """Return the client's request id if it is safe, else a new one."""
    return given if given and _GIVEN_ID.fullmatch(given) else f"{_prefix}-{next(_numbers):x}"


def _new_process() -> None:
    global _prefix, _numbers
    _prefix, _numbers = os.urandom(8).hex(), count(1)


_new_process()
os.register_at_fork(after_in_child=_new_process)


class Reply(Struct, frozen=True):
    """An answer: bytes as they are, an iterator of pieces to stream, or what JSON can carry.

    A GET without the strong ``etag`` gets the digest of its body; nobody may store what is
    ``secret``.
    """

    body: Any
    status: int = 200
    headers: dict[str, str] = {}
    etag: str | None = None
    media: str = "application/json"
    secret: bool = False


def etag_with_remarks(etag: str, remarks: object) -> str:
    """Return the entity tag of a document shown with remarks; `guarded` accepts either tag.

    Remarks come and go without a revision.
    """
    mark = hashlib.blake2b(msgspec.json.encode(remarks), digest_size=6).hexdigest()
    return f'{etag[:-1]}.{mark}"'


def is_not_modified(etag: str) -> bool:
    """Return whether the client has the current version (``If-None-Match``)."""
    return bool(request.headers.get("If-None-Match")) and request.if_none_match.contains_weak(
        etag.strip('"')
    )


class ListPart(Struct, frozen=True):
    """A page of a list that is in memory."""

    items: Sequence[Any]
    next: str | None


def page_reply(found: Any, render: Callable[[Any], Any] | None = None) -> Reply:
    """Return a page as an answer; without ``render`` its items are what the wire carries."""
    items = [render(item) for item in found.items] if render else found.items
    headers = {}
    if found.next:
        query = urlencode({**request.args.to_dict(), "cursor": found.next})
        headers["Link"] = f'<{request.script_root}{request.path}?{query}>; rel="next"'
    return Reply({"items": items, "next": found.next}, headers=headers)


def slice_page(items: Sequence[Any], paged: ListQuery) -> ListPart:
    """Return a page of a list that is in memory and does not change while the server runs."""
    cursor, start = paged.cursor, "0"
    if cursor is not None:
        try:
            start = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
        except ValueError:
            start = ""
        if not start.isdigit() or len(start) > 9:
            hint = "use the `next` of the previous page"
            raise BadInput("is not a cursor", field="cursor", value=cursor, hint=hint)
    end = int(start) + paged.limit
    following = urlsafe_b64encode(str(end).encode()).decode().rstrip("=")
    return ListPart(items[int(start) : end], following if end < len(items) else None)


class UnsupportedMediaType(BadInput):
    """An error: the route does not read this content type."""

    status = 415
    slug = "unsupported-media-type"


class HttpError(CompatgateError):
    """An error of Flask itself: an unknown route, or a method that a route lacks."""

    def __init__(self, status: int, slug: str, problem: str, *, hint: str = "") -> None:
        super().__init__(problem, hint=hint)
        self.status = status
        self.slug = slug


class TooBusy(Unavailable):
    """An error: too many requests of this kind wait already."""

    retry_after_s = 1


def whole_problem(error: CompatgateError, environ: Mapping[str, Any], number: str) -> WholeAnswer:
    """Return the answer that carries an error, with every header."""
    status, body, headers = problem_answer(error, environ)
    own = [*headers, ("Content-Length", str(len(body)))]
    return WholeAnswer(status, to_raw(complete_headers(own, number)), body)


def problem_answer(error: CompatgateError, environ: Mapping[str, Any]) -> HttpAnswer:
    """Return the answer that carries an error; the log names the request by its environment."""
    note_error(error, environ)
    if error.status >= 500:
        _log.error("%s: %s", _request_line(environ), error.detail, extra=_request_fields(environ))
    sent = [("Content-Type", PROBLEM_MEDIA), ("Cache-Control", "no-store")]
    if isinstance(error, Unauthorized):
        invalid = ', error="invalid_token"' if "HTTP_AUTHORIZATION" in environ else ""
        sent.append(("WWW-Authenticate", f'Bearer realm="compatgate"{invalid}'))
    elif isinstance(error, Forbidden):
        sent.append(("WWW-Authenticate", 'Bearer realm="compatgate", error="insufficient_scope"'))
    elif isinstance(error, TooBusy | TooManyRequests):
        sent.append(("Retry-After", str(error.retry_after_s)))
    return HttpAnswer(error.status, msgspec.json.encode(to_problem(error)), sent)


def unexpected_error(error: Exception, environ: Mapping[str, Any]) -> CompatgateError:
    """Return the error for an unexpected exception: the client gets an id, the log the details."""
    number, extra = secrets.token_hex(6), _request_fields(environ)
    _log.error("%s: defect %s", _request_line(environ), number, exc_info=error, extra=extra)
    problem, hint = (
        f"internal error of the gate (error id {number})",
        "see the server log for this id",
    )
    return HttpError(500, "internal-error", problem, hint=hint)


def note_error(error: CompatgateError, environ: Mapping[str, Any]) -> None:
    """Note the error that a request is answered with."""
    if (note := note_of(environ)) is not None:
        note.error, note.status = error, error.status
        # Its frames know the note: only garbage collection would free them.
        cause: BaseException | None = error
        while cause is not None and cause.__traceback__ is not None:
            cause.__traceback__ = None
            cause = cause.__cause__ or cause.__context__


def install_problems(app: Flask, explain: Explain) -> None:
    """Answer every error of an application as a problem."""

    def unexpected(error: Exception) -> Response:
        return _to_response(explain(error, request.environ))

    app.register_error_handler(CompatgateError, _to_response)
    app.register_error_handler(HTTPException, _http_problem)
    app.register_error_handler(Exception, unexpected)


def _request_line(environ: Mapping[str, Any]) -> str:
    number = environ.get(ENVIRON, "-")
    return f"{environ.get('REQUEST_METHOD')} {environ.get('PATH_INFO')!r} (request {number})"


def _request_fields(environ: Mapping[str, Any]) -> dict[str, Any]:
    note, number = note_of(environ), environ.get(ENVIRON)
    return fields(request_id=number, identity=note and note.identity, peer=note and note.peer)


def to_problem(error: CompatgateError) -> dict[str, Any]:
    """Return the members of problem+json."""
    body: dict[str, Any] = {
        "type": PROBLEM_TYPE + error.slug,
        "title": error.slug.replace("-", " ").capitalize(),
        "status": error.status,
        "detail": error.problem if isinstance(error, ManyProblems) else error.detail,
        "field": error.field,
        "value": _shorten_value(error.value),
        "hint": error.hint or None,
    }
    if isinstance(error, ManyProblems):
        body["problems"] = [
            {
                **{name: getattr(one, name, None) or None for name in ("file", "line", "document")},
                "field": one.field,
                "problem": one.problem,
                "value": _shorten_value(one.value),
                "hint": one.hint or None,
            }
            for one in error.problems[:_MAX_PROBLEMS]
        ]
    return body


def _shorten_value(value: object) -> Any:
    """Return a value for a problem: scalars only, long texts truncated."""
    if isinstance(value, str):
        clean = value.encode("utf-8", "replace").decode()
        return clean if len(clean) <= _LONGEST_VALUE else f"{clean[:_LONGEST_VALUE]}..."
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def _to_response(error: CompatgateError) -> Response:
    status, body, headers = problem_answer(error, request.environ)
    return Response(body, status, headers)


def _http_problem(error: HTTPException) -> Response:
    if isinstance(error, RequestRedirect):
        return error.get_response()  # type: ignore[return-value]
    if isinstance(error, MethodNotAllowed):  # the router allows too large numbers
        adapter = current_app.create_url_adapter(request)
        if not adapter or not any(adapter.test(method=one) for one in error.valid_methods or ()):
            error = NotFound()
    slug = error.name.lower().replace(" ", "-")
    texts = {
        404: f"{request.path} does not exist; /api/v1/openapi.json lists every route",
        405: f"{request.method} is not possible on {request.path}",
    }
    code = error.code or 500
    response = _to_response(HttpError(code, slug, texts.get(code, error.name)))
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response
