"""Headers that every answer carries: an id to find it again, and what a browser must not do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

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
NOTHING_ACTIVE = (CSP, "default-src 'none'; frame-ancestors 'none'")
"""For every answer that does not state a policy of its own."""
_GIVEN = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
Headers = list[tuple[str, str]]


class Envelope:
    """WSGI application around another, which adds the headers."""

    def __init__(self, inner: WSGIApplication) -> None:
        self._inner = inner

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        number = request_id(environ.get("HTTP_X_REQUEST_ID", ""))
        environ[ENVIRON] = number

        def start(
            status: str, headers: Headers, exc_info: Any = None, /
        ) -> Callable[[bytes], object]:
            return start_response(status, complete(headers, number), exc_info)

        return self._inner(environ, start)


def complete(headers: Headers, number: str) -> Headers:
    """The headers of an answer, with those that every answer carries."""
    headers.append((REQUEST_ID, number))
    headers += SECURITY
    if all(name != CSP for name, _ in headers):
        headers.append(NOTHING_ACTIVE)
    return headers


def request_id(given: str) -> str:
    """What the client calls the request, if that is harmless; else a number of our own."""
    return given if given and _GIVEN.fullmatch(given) else f"{_prefix}-{next(_numbers):x}"


_prefix = ""
_numbers = count(1)


def _new_process() -> None:
    global _prefix, _numbers
    _prefix, _numbers = os.urandom(8).hex(), count(1)


_new_process()
os.register_at_fork(after_in_child=_new_process)
