"""Close connections on which many requests arrive ahead of the answers.

For each answer the server (uvicorn) reads a connection again, and parses all that has arrived: a
client that sends without waiting has thousands of requests parsed for each answer, and everybody
waits meanwhile. No browser and no HTTP library sends more than a few ahead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compatgate.kit.http.wsgi import Message, Scope, Send

MOST_AHEAD = 6
"""Requests in a row that may arrive before the answer to the one in front of them has left."""
_CLOSE = (b"connection", b"close")


class Pipelines:
    """Counts the requests of each connection that arrived ahead of an answer.

    The server starts such a request as soon as the answer has left. What a client sends once it has
    the answer comes a turn of the event loop later, when the connection is forgotten.
    """

    def __init__(self) -> None:
        self._ahead: dict[tuple[str, int], int] = {}

    def follow(self, scope: Scope, send: Send) -> PipelinedAnswer:
        """Count a request, and return what sends its answer."""
        client: tuple[str, int] | None = scope.get("client")
        if client is None or not client[1]:  # a proxy's: it states no port, and sends none ahead
            return PipelinedAnswer({}, ("", 0), send)
        self._ahead[client] = self._ahead.get(client, -1) + 1
        return PipelinedAnswer(self._ahead, client, send)


class PipelinedAnswer:
    """Sends one answer; the last one of a connection says that it is closed."""

    def __init__(
        self, ahead: dict[tuple[str, int], int], client: tuple[str, int], send: Send
    ) -> None:
        self._ahead = ahead
        self._client = client
        self._number = ahead.get(client, 0)
        self._send = send

    async def __call__(self, message: Message) -> None:
        """Send a message of the server's protocol."""
        if self._number >= MOST_AHEAD and message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], _CLOSE]
        await self._send(message)

    def end(self) -> None:
        """Let the next turn of the event loop forget the connection."""
        asyncio.get_running_loop().call_soon(self._forget)

    def _forget(self) -> None:
        if self._ahead.get(self._client) == self._number:
            del self._ahead[self._client]
