"""Follow what a pod prints, in whole lines.

A stream that breaks is resumed where it was: a `LogPosition` gives what is new and nothing twice.
"""

from __future__ import annotations

import queue
import re
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from typing import Any

from compatgate.canary.executors.kubernetes.cluster import Cluster, response_lines, translate_errors
from compatgate.canary.executors.kubernetes.objects import CONTAINER
from compatgate.canary.executors.kubernetes.status import first_pod
from compatgate.canary.executors.kubernetes.view import PATIENCE_S, View
from compatgate.canary.protocol.lines import LOST
from compatgate.errors import BadInput, Infrastructure
from compatgate.kit.kubernetes import ObjectMissing

_TICK_S = 0.5
_SLOW_S = 5.0
"""That the log of a pod is waited for once its job has ended."""
_SKEW_S = 300
"""By which this machine's clock and the node's may differ."""


def follow_log(cluster: Cluster, view: View, stop: Callable[[], bool]) -> Iterator[bytes]:
    """Yield both streams from the beginning until the job has ended, or ``stop`` says so.

    A node keeps some files of a log, and hands over the newest alone to one who comes back: where
    the last line that came is not in it any more, a line of the protocol says that some may be
    missing.

    Raises:
        Infrastructure: the log cannot be had.
    """
    mark = LogPosition()
    heard = time.monotonic()
    while not stop() and (pod := first_pod(view.pods())):
        ended, response = _ended(view), None
        try:
            with translate_errors(cluster):
                response = _open(cluster, pod, mark)
                ended |= yield from _read_stream(response, view, mark, stop)
            if ended:
                return
        except ObjectMissing:
            return
        except (Infrastructure, BadInput) as error:
            # 400 is what a container answers that has not begun, or that is not there any more.
            if ended and isinstance(error, BadInput):
                return
            if response is None and time.monotonic() - heard > PATIENCE_S:
                raise
        heard = heard if response is None else time.monotonic()
        time.sleep(_TICK_S)


def _open(cluster: Cluster, pod: dict[str, Any], mark: LogPosition) -> Any:
    since = _since(mark.stamp)
    more: dict[str, Any] = {"since_seconds": since} if since else {}
    return cluster.open(
        "core",
        "read_namespaced_pod_log",
        pod["metadata"]["name"],
        container=CONTAINER,
        follow=True,
        timestamps=True,
        **more,
    )


def _read_stream(
    response: Any, view: View, mark: LogPosition, stop: Callable[[], bool]
) -> Generator[bytes, None, bool]:
    """Yield one stream, without what came before; whether it was left as its job had ended."""
    mark.rewind()
    lines = response_lines(response)
    slow: float | None = None
    try:
        while not stop():
            try:
                line = lines.get(timeout=_TICK_S)
            except queue.Empty:
                yield from mark.quiet()
                slow = slow or (time.monotonic() if _ended(view) else None)
                if slow and time.monotonic() - slow > _SLOW_S:
                    return True
                continue
            if line is None:
                yield from mark.end()
                break
            yield from mark.new(line)
        return False
    finally:
        lines.close()


def _ended(view: View) -> bool:
    return view.status().state not in ("waiting", "running")


def _since(stamp: str) -> int | None:
    """Return seconds back to the last line that came, and some more."""
    if not stamp:
        return None
    try:
        last = datetime.fromisoformat(stamp)
        return max(0, int((datetime.now(UTC) - last).total_seconds())) + _SKEW_S
    except (ValueError, TypeError):
        return None


_STAMPED = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|[+-]\d\d:\d\d) ", re.DOTALL
)
_HELD = 10_000
"""Newer lines among which the last one is looked for; two streams write them out of order."""


class LogPosition:
    """The last line that came, with the time that the node wrote before it.

    Attributes:
        stamp: that time; empty before the first line.
    """

    def __init__(self) -> None:
        self.stamp = ""
        self._last = b""
        self._same = 0
        self._missing = 0
        self._newer: list[bytes] = []

    def rewind(self) -> None:
        """The log is read again, from some point before the mark."""
        self._missing = self._same
        self._newer = []

    def new(self, line: bytes) -> Iterator[bytes]:
        """What a line of the log adds, without its time."""
        if not self._missing:
            yield self._take(line)
        elif line == self._last:
            self._missing -= 1
            self._newer = []
        elif self._newer or _time(line) > _time(self._last):
            self._newer.append(line)
            if len(self._newer) > _HELD:
                yield from self._without_it()

    def quiet(self) -> Iterator[bytes]:
        """Nothing more comes just now: newer lines that came without the last one are given."""
        if self._newer:
            yield from self._without_it()

    def end(self) -> Iterator[bytes]:
        """The log has ended; where the last line was not in it, what came after it is lost."""
        if self._missing:
            yield from self._without_it()

    def _without_it(self) -> Iterator[bytes]:
        newer, self._newer, self._missing = self._newer, [], 0
        yield LOST
        for line in newer:
            yield self._take(line)

    def _take(self, line: bytes) -> bytes:
        self._same = self._same + 1 if line == self._last else 1
        self._last = line
        match = _STAMPED.match(line)
        if not match:
            return line
        self.stamp = match[0].decode().rstrip()
        return line[match.end() :]


def _time(line: bytes) -> bytes:
    """Orders lines of one node by their times."""
    match = _STAMPED.match(line)
    return match[1] + (match[2] or b"").ljust(9, b"0") if match else b""
