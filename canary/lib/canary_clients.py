"""Clients that ask one question after the other, several at once. Python 3.8 or newer."""

import contextlib
import math
import threading
import time
from collections import namedtuple

import canary_lines as say

REQUESTS = 512
"""Of all clients in a window: the 99th percentile is the sixth largest time."""

Window = namedtuple("Window", "p50 p99 rate")
"""Milliseconds, milliseconds, and requests per second."""


def window(model, clients, requests):
    """Have a number of clients ask until all requests are answered.

    Args:
        model: has ``client()``, a context that each client is in; ``answer(number)``; and
            ``keep(number, answer)``, which is called when nobody is timed any more.
        clients: how many.
        requests: of all of them.

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
        # Looked at now that nobody is timed any more.
        for number, answer in client.answers:
            model.keep(number, answer)
    latencies = sorted(latency for client in asking for latency in client.latencies)
    p50, p99 = (percentile(latencies, share) * 1e3 for share in (50, 99))
    return Window(p50, p99, len(latencies) / elapsed)


def percentile(ordered, share):
    """The value that a share of the values do not exceed: nearest rank."""
    return ordered[max(math.ceil(share / 100 * len(ordered)), 1) - 1]


class Windows:
    """Windows one after the other."""

    def __init__(self):
        self._every = []

    def add(self, found):
        """Take the next window."""
        self._every.append(found)

    def report(self, name, warmup):
        """Print three metrics; the first windows are warm-up."""
        for part, unit in (("p50", "ms"), ("p99", "ms"), ("rate", "requests/s")):
            values = [getattr(each, part) for each in self._every]
            say.metric(f"{name}-{part}", unit, values[warmup:], warmup=values[:warmup])


class _Client(threading.Thread):
    """Asks a number of questions.

    Attributes:
        latencies: seconds, of each.
        answers: questions' numbers and answers.
        failure: what kept it from going on.
    """

    def __init__(self, model, start, number, requests):
        super().__init__(daemon=True)
        self._model, self._barrier = model, start
        self._questions = range(number, number + requests)
        self.latencies, self.answers, self.failure = [], [], None

    def run(self):
        """Wait for the others, then ask."""
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
