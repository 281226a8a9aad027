"""A kept-alive connection that asks the gate again and again, without the server's machinery.

Clients that ask much send requests of one plain shape. Such a request is read here; whatever has
another shape, is incomplete or comes with a header that is not known to be harmless is left to
gunicorn as it came. What is answered is `compatgate.web.lane`'s business.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from email.utils import formatdate
from enum import Enum
from socket import socket
from typing import Any

from compatgate.web import headers
from compatgate.web.lane import PATH, STATUS_LINES, GateLane
from compatgate.web.route import JSON

_LINE = f"POST {PATH} HTTP/1.1\r\n".encode()
_FIELDS = re.compile(rb"(?:[A-Za-z-]+: ?[!-~](?:[ -~]*[!-~])?\r\n)+\r\n")
_FIELD = re.compile(rb"([A-Za-z-]+): ?([ -~]+)\r\n")
_HARMLESS = {
    b"host",
    b"user-agent",
    b"accept",
    b"accept-encoding",
    b"authorization",
    b"connection",
    b"content-length",
    b"content-type",
    b"x-request-id",
}
_CHUNK = 65536
_LONGEST_LENGTH = 9


class End(Enum):
    """Why a connection left the express."""

    IDLE = "nothing came"
    OTHER = "something else came"
    CLOSED = "the client is gone"


class Express:
    """Answers the plain questions of one connection after the other."""

    def __init__(self, lane: GateLane, most: int) -> None:
        self._lane = lane
        self._most = most

    def serve(
        self, sock: socket, is_ready: Callable[[], bool], unread: Callable[[bytes], None]
    ) -> End:
        """Answer what a connection asks, as long as it asks plainly.

        Args:
            sock: of the connection; between two requests.
            is_ready: waits a moment for the next request.
            unread: takes back what is for others to read.
        """
        while is_ready():
            data = sock.recv(_CHUNK)
            if not data:
                return End.CLOSED
            request = parse(data, self._most)
            if request is None:
                unread(data)
                return End.OTHER
            sock.sendall(self._answer(*request))
        return End.IDLE

    def _answer(self, fields: dict[bytes, bytes], question: bytes) -> bytes:
        environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": PATH}
        if b"authorization" in fields:
            environ["HTTP_AUTHORIZATION"] = fields[b"authorization"].decode("latin-1")
        number = headers.request_id(fields.get(b"x-request-id", b"").decode("latin-1"))
        environ[headers.ENVIRON] = number
        reply = self._lane.reply(environ, lambda: question)
        sent = headers.complete(reply.headers, number)
        lines = "".join([f"{name}: {value}\r\n" for name, value in sent])
        start = f"HTTP/1.1 {STATUS_LINES[reply.status]}\r\nDate: {_date(int(time.time()))}\r\n"
        return f"{start}{lines}\r\n".encode("latin-1") + reply.body


def parse(data: bytes, most: int) -> tuple[dict[bytes, bytes], bytes] | None:
    """The headers and the body of a plain question; None for anything else.

    Args:
        data: what was received.
        most: bytes that a body may have.
    """
    if not data.startswith(_LINE):
        return None
    head = _FIELDS.match(data, len(_LINE))
    if head is None:
        return None
    fields: dict[bytes, bytes] = {}
    for name, value in _FIELD.findall(head[0]):
        key = name.lower()
        if key in fields or key not in _HARMLESS:
            return None
        fields[key] = value
    question = data[head.end() :]
    return (fields, question) if _is_plain(fields, len(question), most) else None


def _is_plain(fields: dict[bytes, bytes], length: int, most: int) -> bool:
    stated = fields.get(b"content-length", b"")
    return (
        len(stated) <= _LONGEST_LENGTH
        and stated.isdigit()
        and int(stated) == length <= most
        and b"host" in fields
        and fields.get(b"content-type") == JSON.encode()
        and fields.get(b"connection", b"keep-alive").lower() == b"keep-alive"
    )


_dated: tuple[int, str] = (0, "")


def _date(second: int) -> str:
    """The time as HTTP writes it; made once a second."""
    global _dated
    if _dated[0] != second:
        _dated = (second, formatdate(second, usegmt=True))
    return _dated[1]
