"""Serve the report as a WSGI application (PEP 3333) and as an ASGI application.

The ASGI application (3.0) supports http and lifespan and closes web sockets. Both applications give
the same HTTP answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment


def wsgi_app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Serve `compatgate.diagnostics.report` at the mount point, for GET and HEAD."""
    from compatgate import diagnostics

    method = str(environ.get("REQUEST_METHOD", "GET"))
    found = respond(method, str(environ.get("PATH_INFO", "")), diagnostics.report)
    start_response(f"{found.status} {found.reason}", found.headers)
    return [b"" if method == "HEAD" else found.body]


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def asgi_app(scope: Message, receive: Receive, send: Send) -> None:
    """Serve `compatgate.diagnostics.report` at the mount point, for GET and HEAD."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
    else:
        await _http(scope, send)


async def _http(scope: Message, send: Send) -> None:
    from compatgate import diagnostics

    method = str(scope["method"])
    path = _path_below_mount(str(scope["path"]), str(scope.get("root_path", "")))
    found: Response = await _run_in_thread(respond, method, path, diagnostics.report)
    headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in found.headers]
    await send({"type": "http.response.start", "status": found.status, "headers": headers})
    body = b"" if method == "HEAD" else found.body
    await send({"type": "http.response.body", "body": body})


async def _run_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a blocking function in a thread; directly on event loops other than asyncio's."""
    asyncio = sys.modules.get("asyncio")
    try:
        loop = asyncio.get_running_loop() if asyncio else None
    except RuntimeError:
        loop = None
    if loop is None:
        return function(*arguments)
    return await loop.run_in_executor(None, function, *arguments)


def _path_below_mount(path: str, root: str) -> str:
    """Return the path below the mount point; some servers include the mount point, some do not."""
    root = root.rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        return path[len(root) :]
    return path


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


METHODS = ("GET", "HEAD")


class Response(NamedTuple):
    """Status, headers and body; for HEAD the applications omit the body."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


def respond(method: str, path: str, report: Callable[[], dict[str, Any]]) -> Response:
    """Answer a request."""
    if path not in ("", "/"):
        return _problem(404, "Not Found", "no resource exists at this path")
    if method not in METHODS:
        problem = _problem(405, "Method Not Allowed", "this resource allows only GET and HEAD")
        return problem._replace(headers=[*problem.headers, ("Allow", ", ".join(METHODS))])
    try:
        body = json.dumps(report()).encode()
    except Exception as error:
        # A service must not fail because of its diagnostics, nor reveal its internals.
        what = f"the report failed with {type(error).__name__}"
        return _problem(503, "Service Unavailable", what)
    return Response(200, "OK", _headers("application/json", body), body)


def _problem(status: int, title: str, detail: str) -> Response:
    body = json.dumps({"type": "about:blank", "status": status, "title": title, "detail": detail})
    encoded = body.encode()
    return Response(status, title, _headers("application/problem+json", encoded), encoded)


def _headers(kind: str, body: bytes) -> list[tuple[str, str]]:
    return [
        ("Content-Type", kind),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
