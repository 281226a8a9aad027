"""The short way for ``POST /gate``: no framework between the request and the answer.

It takes the plain case (JSON with a length, no query) and leaves every other to the route, of which
it is a copy: the same checks in the same order, the same answers, the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any

from compatgate.errors import CompatgateError
from compatgate.web import problems
from compatgate.web.auth import authenticate, authorize
from compatgate.web.body import check_depth, incomplete, too_large
from compatgate.web.route import JSON, PREFIX

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from compatgate.web.call import Service

PATH = f"{PREFIX}/gate"
EXTENSION = "compatgate.lane"
"""Under which the application carries its lane."""
STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}
_OK = (("Content-Type", JSON), ("Cache-Control", "no-store"))


class GateLane:
    """WSGI application before another, which it gives every request but the gate's."""

    def __init__(self, inner: WSGIApplication, service: Service) -> None:
        self._inner = inner
        self._service = service

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        if environ["PATH_INFO"] != PATH or not _is_plain(environ):
            return self._inner(environ, start_response)
        most = self._service.settings.max_request_size
        status, headers, body = self.reply(environ, lambda: _read(environ, most))
        start_response(STATUS_LINES[status], headers)
        return (body,)

    def reply(self, environ: dict[str, Any], read: Callable[[], bytes]) -> problems.Answer:
        """The answer to a question.

        Args:
            environ: as WSGI's; only method, path and ``HTTP_AUTHORIZATION`` are looked at.
            read: gives the body.
        """
        try:
            reply = problems.Answer(200, [*_OK], self._decide(environ, read))
        except CompatgateError as error:
            reply = problems.answer(error, environ)
        except Exception as error:
            reply = problems.answer(problems.defect(error, environ), environ)
        self._service.metrics.requested("POST", "ask", reply.status)
        reply.headers.append(("Content-Length", str(len(reply.body))))
        return reply

    def _decide(self, environ: dict[str, Any], read: Callable[[], bytes]) -> bytes:
        service = self._service
        principal = authenticate(environ.get("HTTP_AUTHORIZATION"), service)
        authorize(principal, "gate")
        began = perf_counter()
        question = read()
        check_depth(question, service.settings.max_depth)
        answer = service.gate.answer(question, asked_by=principal.name, source="rest")
        service.metrics.decided(answer.verdict, "rest", perf_counter() - began)
        return answer.body


def _is_plain(environ: WSGIEnvironment) -> bool:
    return (
        environ["REQUEST_METHOD"] == "POST"
        and environ.get("CONTENT_TYPE") == JSON
        and not environ.get("QUERY_STRING")
        and environ.get("CONTENT_LENGTH", "").isdecimal()
        and "HTTP_CONTENT_ENCODING" not in environ
        and "HTTP_TRANSFER_ENCODING" not in environ
    )


def _read(environ: WSGIEnvironment, most: int) -> bytes:
    length = int(environ["CONTENT_LENGTH"])
    if length > most:
        raise too_large(most)
    try:
        question: bytes = environ["wsgi.input"].read(length)
    except Exception:  # of the socket, or of the server's parser
        question = b""
    if len(question) < length:
        raise incomplete()
    return question
