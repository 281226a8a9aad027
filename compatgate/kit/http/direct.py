"""Answer some requests without a cycle of ASGI.

ASGI gives each request a task, a scope and messages that are checked one by one, which costs more
than a question that memory knows. A `DirectApp` takes whole requests of a plain form as values, and
calls back with a whole answer. httptools still parses, and uvicorn still keeps the connection: it
sees a `DirectExchange` where it would keep the cycle of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

if TYPE_CHECKING:
    from compatgate.kit.http.replies import RawHeaders, WholeAnswer
    from compatgate.kit.http.wsgi import Fields

DIRECT = "compatgate.direct"
"""Key of the `DirectApp` in the state of the application's lifespan."""


class DirectApp(Protocol):
    """An application that answers some requests directly; the ASGI application answers the rest."""

    def takes(self, url: bytes, fields: Fields) -> bool:
        """Return whether it answers a POST.

        Args:
            url: of the request's line.
            fields: headers, by their names in small letters; none comes twice. One of them states
                the length of the body.
        """

    def answer(
        self, fields: Fields, body: bytes, peer: str, reply: Callable[[WholeAnswer], None]
    ) -> None:
        """Answer a request; never raise.

        Args:
            fields: as of `takes`.
            body: all of it.
            peer: address of the client.
            reply: called once with the answer, on the event loop, now or later.
        """


class DirectExchange:
    """A request and its answer, as the server looks at them.

    Attributes:
        keep_alive: the connection stays open after the answer.
        response_complete: it was answered.
        disconnected: the client is gone.
        more_body: the body is not complete; never so.
        message_event: wakes who waits for the client; nobody does.
    """

    __slots__ = ("disconnected", "keep_alive", "response_complete")
    more_body = False
    message_event = asyncio.Event()

    def __init__(self) -> None:
        self.keep_alive = True
        self.response_complete = False
        self.disconnected = False


def encode_answer(answer: WholeAnswer, default: RawHeaders, *, closes: bool) -> bytes:
    """Return an answer as it is sent.

    Args:
        answer: of the application.
        default: headers that the server adds to every answer.
        closes: the connection ends with it.
    """
    parts = [STATUS_LINE[answer.status]]
    for name, value in (*default, *answer.headers):
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"connection: close\r\n\r\n" if closes else b"\r\n")
    head = b"".join(parts)
    lines = 2 + len(default) + len(answer.headers) + closes
    if head.count(b"\n") != lines or head.count(b"\r") != lines:
        raise ValueError("a response header has more than one line")
    return head + answer.body
