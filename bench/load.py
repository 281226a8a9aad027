"""Load generators: keep-alive connections that each send the next request once answered.

`drive` is Python, and takes as much of a core as a quick server does. `drive_with_wrk` runs wrk
(Debian's package), which takes a tenth of that.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_WRK_SCRIPT = """\
local requests, last = {}, 0
function init(arguments)
  local file = io.open(arguments[1], "rb")
  local size = file:read("*l")
  while size do
    requests[#requests + 1] = file:read(tonumber(size))
    size = file:read("*l")
  end
  file:close()
end
function request()
  last = last % #requests + 1
  return requests[last]
end
function done(summary, latency)
  local errors, shares = summary.errors, {}
  for share = 1, 100 do
    shares[share] = string.format("%d", latency:percentile(math.min(share, 99.999)))
  end
  local failures = errors.status + errors.connect + errors.read + errors.write + errors.timeout
  local answer = '{"answered": %d, "us": %d, "failures": %d, "latencies_us": [%s]}'
  print(answer:format(summary.requests, summary.duration, failures, table.concat(shares, ",")))
end
"""


@dataclass
class Figures:
    """What a round measured.

    Attributes:
        seconds: of the round.
        answered: number of requests.
        failures: those of them that were answered with an error.
        latencies: in seconds, of each request, or evenly spread quantiles.
    """

    seconds: float = 0.0
    answered: int = 0
    failures: int = 0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Requests answered per second."""
        return self.answered / self.seconds

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
            figures.answered += 1
            figures.failures += status != b"200"
            connection.ask(next(requests))
    figures.seconds = now - began
    for key in list(selector.get_map().values()):
        key.data.socket.close()
    return figures


def drive_with_wrk(
    address: tuple[str, int],
    requests: Iterator[bytes],
    *,
    connections: int,
    seconds: int,
    most: int,
) -> Figures:
    """Keep connections busy for some seconds, by one thread of wrk.

    Args:
        address: of the server.
        requests: without end.
        connections: kept alive.
        seconds: of the round.
        most: requests to prepare; a quicker server gets them again.

    Raises:
        FileNotFoundError: wrk is not installed.
        CalledProcessError: wrk failed.
    """
    host, port = address
    with tempfile.TemporaryDirectory() as folder:
        script, prepared = Path(folder, "requests.lua"), Path(folder, "requests")
        script.write_text(_WRK_SCRIPT)
        with prepared.open("wb") as file:
            file.writelines(b"%d\n%s" % (len(one), one) for one in islice(requests, most))
        shape = ["--threads=1", f"--connections={connections}", f"--duration={seconds}s"]
        command = [
            "wrk",
            *shape,
            f"--script={script}",
            f"http://{host}:{port}",
            "--",
            str(prepared),
        ]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(printed.splitlines()[-1])
    latencies = [number / 1e6 for number in found["latencies_us"]]
    return Figures(found["us"] / 1e6, found["answered"], found["failures"], latencies)
