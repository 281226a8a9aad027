"""A server that answers what it was told: for what a real gate does not do on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple


class Told(NamedTuple):
    """An answer; ``cut`` ends it before it is whole."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = {}
    cut: bool = False


class Asked(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class StandIn(ThreadingHTTPServer):
    """Gives one answer after another, the last for ever, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Told] = [Told()]
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def tell(self, *answers: Told) -> None:
        """What to answer."""
        self.answers = list(answers)

    def next(self) -> Told:
        """The next answer."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def _respond(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        raw = self.rfile.read(length)
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        self.server.asked.append(Asked(self.command, self.path, dict(self.headers), body))
        told = self.server.next()
        self.send_response(told.status)
        for name, value in told.headers.items():
            self.send_header(name, value)
        if told.cut:
            self.send_header("Content-Length", str(len(told.body) + 1))
        self.end_headers()
        self.wfile.write(told.body)

    do_GET = do_POST = do_PUT = do_DELETE = _respond  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def standing_in() -> Iterator[StandIn]:
    """A stand-in that answers."""
    server = StandIn()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
