"""The report as a WSGI application (PEP 3333)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate import diagnostics
from compatgate.diagnostics.answers import answer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment


def wsgi_app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Serve `compatgate.diagnostics.report` at the place where it is mounted, for GET and HEAD."""
    method = str(environ.get("REQUEST_METHOD", "GET"))
    found = answer(method, str(environ.get("PATH_INFO", "")), diagnostics.report)
    start_response(f"{found.status} {found.reason}", found.headers)
    return [b"" if method == "HEAD" else found.body]
