"""A receiver of incidents: a web server that remembers what it was sent."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Posted:
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """A web server: answers with ``statuses`` in order, then with 200."""

    url: str = ""
    posted: list[Posted] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    location: str = ""


@contextmanager
def web_receiver() -> Iterator[Receiver]:
    """Run a web server; its answer repeats the path, as some receivers do in errors."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.posted.append(Posted(self.path, dict(self.headers), body))
            answer = f"asked for {self.path}".encode()
            self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
            self.send_header("Content-Length", str(len(answer)))
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with _running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        receiver.url = f"http://127.0.0.1:{port}"
        yield receiver


@contextmanager
def _running(server: socketserver.BaseServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]  # type: ignore[index, misc]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
