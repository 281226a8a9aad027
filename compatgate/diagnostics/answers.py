"""The HTTP answer that both apps give."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

METHODS = ("GET", "HEAD")


class Answer(NamedTuple):
    """Status, headers and body; the body of HEAD is left out by the apps."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


def answer(method: str, path: str, report: Callable[[], dict[str, Any]]) -> Answer:
    """Answer a request.

    Args:
        method: of HTTP.
        path: below the place where the app is mounted, ``""`` or ``/``.
        report: makes the document.
    """
    if path not in ("", "/"):
        return _problem(404, "Not Found", "there is nothing at this path")
    if method not in METHODS:
        problem = _problem(405, "Method Not Allowed", "this resource can only be read")
        return problem._replace(headers=[*problem.headers, ("Allow", ", ".join(METHODS))])
    try:
        body = json.dumps(report()).encode()
    except Exception as error:
        # A service must not fail for its diagnostics, nor show its insides.
        what = f"the report failed with {type(error).__name__}"
        return _problem(503, "Service Unavailable", what)
    return Answer(200, "OK", _headers("application/json", body), body)


def _problem(status: int, title: str, detail: str) -> Answer:
    body = json.dumps({"type": "about:blank", "status": status, "title": title, "detail": detail})
    encoded = body.encode()
    return Answer(status, title, _headers("application/problem+json", encoded), encoded)


def _headers(kind: str, body: bytes) -> list[tuple[str, str]]:
    return [
        ("Content-Type", kind),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
