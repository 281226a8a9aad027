"""What a pod prints, as it comes, in whole lines; a stream that breaks is taken up where it was."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from typing import Any

from compatgate.canary.executors.kubernetes.connect import Cluster
from compatgate.canary.executors.kubernetes.errors import translated
from compatgate.canary.executors.kubernetes.mark import Mark
from compatgate.canary.executors.kubernetes.pod import CONTAINER
from compatgate.canary.executors.kubernetes.standing import first_pod
from compatgate.canary.executors.kubernetes.stream import lines_of
from compatgate.canary.executors.kubernetes.view import PATIENCE_S, View
from compatgate.errors import BadInput, Infrastructure
from compatgate.kubernetes.errors import Missing

_TICK_S = 0.5
_SLOW_S = 5.0
"""That the log of a pod is waited for once its job has ended."""
_SKEW_S = 300
"""By which this machine's clock and the node's may differ."""


def follow(cluster: Cluster, view: View, stop: Callable[[], bool]) -> Iterator[bytes]:
    """Both streams from the beginning until the job has ended, or ``stop`` says so.

    A node keeps some files of a log, and hands over the newest alone to one who comes back: where
    the last line that came is not in it any more, a line of the protocol says that some may be
    missing.

    Raises:
        Infrastructure: the log cannot be had.
    """
    mark = Mark()
    heard = time.monotonic()
    while not stop() and (pod := first_pod(view.pods())):
        ended, response = _ended(view), None
        try:
            with translated(cluster):
                response = _open(cluster, pod, mark)
                ended |= yield from _once(response, view, mark, stop)
            if ended:
                return
        except Missing:
            return
        except (Infrastructure, BadInput) as error:
            # 400 is what a container answers that has not begun, or that is not there any more.
            if ended and isinstance(error, BadInput):
                return
            if response is None and time.monotonic() - heard > PATIENCE_S:
                raise
        heard = heard if response is None else time.monotonic()
        time.sleep(_TICK_S)


def _open(cluster: Cluster, pod: dict[str, Any], mark: Mark) -> Any:
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


def _once(
    response: Any, view: View, mark: Mark, stop: Callable[[], bool]
) -> Generator[bytes, None, bool]:
    """One stream, without what came before; whether it was left as its job had ended."""
    mark.rewind()
    lines = lines_of(response)
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
    """Seconds back to the last line that came, and some more."""
    if not stamp:
        return None
    try:
        last = datetime.fromisoformat(stamp)
        return max(0, int((datetime.now(UTC) - last).total_seconds())) + _SKEW_S
    except (ValueError, TypeError):
        return None
