"""A load generator: keep-alive connections that each send the next request once answered."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


@dataclass
class Figures:
    """What a round measured."""

    seconds: float = 0.0
    failures: int = 0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Requests answered per second."""
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        """Latency in milliseconds that this share of the requests stays under."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)]


class _Connection:
    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.began = 0.0
        self.received = b""

    def ask(self, request: bytes) -> None:
        self.began = time.perf_counter()
        self.socket.sendall(request)

    def status(self) -> bytes | None:
        """The status of the answer, once it is complete."""
        chunk = self.socket.recv(262144)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        self.received += chunk
        head, found, body = self.received.partition(HEAD_END)
        if not found:
            return None
        lower = head.lower()
        start = lower.index(_LENGTH) + len(_LENGTH)
        if len(body) < int(lower[start:].split(b"\r\n", 1)[0]):
            return None
        self.received = b""
        return head[9:12]


def post(path: str, body: bytes) -> bytes:
    """A request with a JSON body."""
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def drive(
    address: tuple[str, int], requests: Iterator[bytes], *, connections: int, seconds: float
) -> Figures:
    """Keep connections busy for some seconds.

    Args:
        address: of the server.
        requests: without end.
        connections: kept alive.
        seconds: of the round.
    """
    figures = Figures()
    selector = selectors.DefaultSelector()
    for _ in range(connections):
        connection = _Connection(address)
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        connection.ask(next(requests))
    began = time.perf_counter()
    end = began + seconds
    while (now := time.perf_counter()) < end:
        for key, _ in selector.select(1.0):
            connection = key.data
            if (status := connection.status()) is None:
                continue
            figures.latencies.append(time.perf_counter() - connection.began)
            figures.failures += status != b"200"
            connection.ask(next(requests))
    figures.seconds = now - began
    for key in list(selector.get_map().values()):
        key.data.socket.close()
    return figures
