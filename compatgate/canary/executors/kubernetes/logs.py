"""Follow a pod's output in whole lines.

A stream that breaks is resumed at a `LogPosition`, so that no line is returned twice.
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
"""Time to wait for a pod's log once its job has ended."""
_SKEW_S = 300
"""Maximum difference between this machine's clock and the node's."""


def follow_log(cluster: Cluster, view: View, stop: Callable[[], bool]) -> Iterator[bytes]:
    """Yield both streams from the beginning until the job has ended, or ``stop`` returns true.

    A node stores several files of a log, but returns only the newest to a client that comes back.
    If that file does not contain the last line received, a line of the protocol says that lines may
    be missing.

    Raises:
        Infrastructure: the log cannot be read.
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
    """Yield a stream's new lines; return whether the stream was left because the job had ended."""
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
    """Return the seconds since the last line that came, plus a margin."""
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
"""Number of newer lines to search for the last one; two streams write them out of order."""


class LogPosition:
    """Last line received, with the time that the node wrote before it.

    Attributes:
        stamp: the time; empty before the first line.
    """

    def __init__(self) -> None:
        self.stamp = ""
        self._last = b""
        self._same = 0
        self._missing = 0
        self._newer: list[bytes] = []

    def rewind(self) -> None:
        """Prepare for reading the log again, from some point before the last line."""
        self._missing = self._same
        self._newer = []

    def new(self, line: bytes) -> Iterator[bytes]:
        """Yield what a line adds to the output, without its time."""
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
        """Yield newer lines that were held back, because the stream is silent now."""
        if self._newer:
            yield from self._without_it()

    def end(self) -> Iterator[bytes]:
        """Yield the lines held back; report a gap if the log did not contain the last line."""
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
    """Return a key that orders the lines of one node by time."""
    match = _STAMPED.match(line)
    return match[1] + (match[2] or b"").ljust(9, b"0") if match else b""
