"""The report as an ASGI application (ASGI 3.0: http and lifespan; web sockets are closed)."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from compatgate import diagnostics
from compatgate.diagnostics.answers import Answer, answer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def asgi_app(scope: Message, receive: Receive, send: Send) -> None:
    """Serve `compatgate.diagnostics.report` at the place where it is mounted, for GET and HEAD."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
    else:
        await _http(scope, send)


async def _http(scope: Message, send: Send) -> None:
    method = str(scope["method"])
    path = _below(str(scope["path"]), str(scope.get("root_path", "")))
    found: Answer = await _aside(answer, method, path, diagnostics.report)
    headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in found.headers]
    await send({"type": "http.response.start", "status": found.status, "headers": headers})
    body = b"" if method == "HEAD" else found.body
    await send({"type": "http.response.body", "body": body})


async def _aside(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run what reads files in a thread; at once where another event loop than asyncio's runs."""
    asyncio = sys.modules.get("asyncio")
    try:
        loop = asyncio.get_running_loop() if asyncio else None
    except RuntimeError:
        loop = None
    if loop is None:
        return function(*arguments)
    return await loop.run_in_executor(None, function, *arguments)


def _below(path: str, root: str) -> str:
    """The path below the mount: servers put the mount into the path or leave it out."""
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
