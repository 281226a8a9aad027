"""Run clients that send one request after the other, several at once. Python 3.8 or newer."""

import contextlib
import math
import threading
import time
from collections import namedtuple

import canary_lines as say

REQUESTS = 512
"""Requests of all clients in a window: the 99th percentile is the sixth largest time."""

Window = namedtuple("Window", "p50 p99 rate")
"""Fields: milliseconds, milliseconds, and requests per second."""


def window(model, clients, requests):
    """Let a number of clients send requests until all are answered.

    Args:
        model: has ``client()``, a context for each client; ``answer(number)``; and
            ``keep(number, answer)``, which is called after the timing.
        clients: number of clients.
        requests: number of requests of all clients together.

    Returns:
        `Window`.
    """
    each = math.ceil(requests / clients)
    start = threading.Barrier(clients + 1)
    asking = [_Client(model, start, number, each) for number in range(clients)]
    for client in asking:
        client.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        start.wait()
    begin = time.perf_counter()
    for client in asking:
        client.join()
    elapsed = time.perf_counter() - begin
    for client in asking:
        if client.failure:
            raise client.failure
        # Checked after the timing.
        for number, answer in client.answers:
            model.keep(number, answer)
    latencies = sorted(latency for client in asking for latency in client.latencies)
    p50, p99 = (percentile(latencies, share) * 1e3 for share in (50, 99))
    return Window(p50, p99, len(latencies) / elapsed)


def percentile(ordered, share):
    """Return the value that a share of the values do not exceed: nearest rank."""
    return ordered[max(math.ceil(share / 100 * len(ordered)), 1) - 1]


class Windows:
    """Collector of successive windows."""

    def __init__(self):
        self._every = []

    def add(self, found):
        """Add the next window."""
        self._every.append(found)

    def report(self, name, warmup):
        """Print three metrics; the first windows are warm-up."""
        for part, unit in (("p50", "ms"), ("p99", "ms"), ("rate", "requests/s")):
            values = [getattr(each, part) for each in self._every]
            say.metric(f"{name}-{part}", unit, values[warmup:], warmup=values[:warmup])


class _Client(threading.Thread):
    """Client that sends a number of requests.

    Attributes:
        latencies: seconds of each request.
        answers: question numbers and answers.
        failure: error that stopped the client.
    """

    def __init__(self, model, start, number, requests):
        super().__init__(daemon=True)
        self._model, self._barrier = model, start
        self._questions = range(number, number + requests)
        self.latencies, self.answers, self.failure = [], [], None

    def run(self):
        """Wait for the other clients, then send requests."""
        try:
            with self._model.client():
                self._barrier.wait()
                for number in self._questions:
                    begin = time.perf_counter()
                    answer = self._model.answer(number)
                    self.latencies.append(time.perf_counter() - begin)
                    self.answers.append((number, answer))
        except threading.BrokenBarrierError:
            return
        except Exception as error:
            self.failure = error
            self._barrier.abort()
