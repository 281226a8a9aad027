"""Report what a running process uses: driver, GPUs and loaded CUDA libraries.

For services to expose, and for ``compatgate probe --pid``:

- `report` returns the probe document of this process, which ``compatgate check --probe`` reads;
- `wsgi_app` (PEP 3333) and `asgi_app` (3.0) serve it, mounted in Flask, Starlette or FastAPI, or
  standalone; both give the same HTTP answer;
- `compatgate.diagnostics.loaded` is a standalone file that needs only Python.

Importing this package imports almost nothing; the first report imports the rest. A report does not
initialise CUDA, loads no CUDA library and keeps no state. See docs/how-to/probe.md.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from compatgate.diagnostics.loaded import Library

__all__ = ["asgi_app", "loaded_libraries", "report", "wsgi_app"]
# A child forked while another thread imports would wait forever for the import lock. So a fork
# waits until the first report has finished its imports.
_importing = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.acquire,
        after_in_parent=_importing.release,
        after_in_child=_importing.release,
    )
_own: Callable[[], dict[str, Any]] | None = None


def report() -> dict[str, Any]:
    """Return the probe document of this process.

    Returns:
        ``{"compatgate": "probe/v1", "pools", "stack", "observations", "conflicts", "host",
        "process"}``, ready for JSON. ``host.notes`` lists unknown values; ``stack.open`` lists the
        unknowns that make a decision impossible.
    """
    return _ready()()


def loaded_libraries() -> list[Library]:
    """Return the CUDA libraries loaded in this process, each with its reported version."""
    with _importing:
        import ctypes  # noqa: F401 - asks the libraries

        from compatgate.diagnostics import loaded
    return loaded.loaded_libraries()


def _ready() -> Callable[[], dict[str, Any]]:
    global _own
    if _own is None:
        with _importing:
            import ctypes  # noqa: F401 - asks the libraries

            from compatgate.diagnostics.process import reporter

            _own = _own or reporter()
    return _own


def wsgi_app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Serve `report` at the mount point, for GET and HEAD."""
    method = str(environ.get("REQUEST_METHOD", "GET"))
    found = respond(method, str(environ.get("PATH_INFO", "")), report)
    start_response(f"{found.status} {found.reason}", found.headers)
    return [b"" if method == "HEAD" else found.body]


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def asgi_app(scope: Message, receive: Receive, send: Send) -> None:
    """Serve `report` at the mount point, for GET and HEAD."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
    else:
        await _http(scope, send)


async def _http(scope: Message, send: Send) -> None:
    method = str(scope["method"])
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    if root and f"{path}/".startswith(f"{root}/"):  # some servers include the mount point
        path = path[len(root) :]
    found: Response = await _run_in_thread(respond, method, path, report)
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
