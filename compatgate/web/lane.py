"""The short way for ``POST /gate``: no framework between the socket and the answer.

It takes the plain case (JSON with a length, no query) and leaves every other to the route, of which
it is a copy: the same checks in the same order, the same answers, the same errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING

from compatgate.errors import CompatgateError
from compatgate.web import problems
from compatgate.web.auth import authenticate, authorize
from compatgate.web.body import check_depth, incomplete, too_large
from compatgate.web.route import JSON, PREFIX

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from compatgate.web.call import Service

PATH = f"{PREFIX}/gate"
_PHRASES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


class GateLane:
    """WSGI application before another, which it gives every request but the gate's."""

    def __init__(self, inner: WSGIApplication, service: Service) -> None:
        self._inner = inner
        self._service = service

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        if environ["PATH_INFO"] != PATH or not _is_plain(environ):
            return self._inner(environ, start_response)
        try:
            status, body = 200, self._answer(environ)
            headers = [("Content-Type", JSON), ("Cache-Control", "no-store")]
        except CompatgateError as error:
            status, headers, body = problems.answer(error, environ)
        except Exception as error:
            status, headers, body = problems.answer(problems.defect(error, environ), environ)
        self._service.metrics.requested("POST", "ask", status)
        headers.append(("Content-Length", str(len(body))))
        start_response(_PHRASES[status], headers)
        return (body,)

    def _answer(self, environ: WSGIEnvironment) -> bytes:
        service = self._service
        principal = authenticate(environ.get("HTTP_AUTHORIZATION"), service)
        authorize(principal, "gate")
        began = perf_counter()
        question = _read(environ, service.settings.max_request_size)
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
