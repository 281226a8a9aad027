"""One execution of a workload on a host: started, listened to, stopped when its time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from compatgate.canary.engine.conclude_step import Ended
from compatgate.canary.executors.interface import Executor, Handle, Prepared, Status
from compatgate.errors import Infrastructure


class Stopped(Exception):
    """The work was dropped from outside: the run was cancelled, or the lease is lost."""


class Sink(Protocol):
    """Takes what a program prints."""

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        ...


def execute(
    executor: Executor,
    prepared: Prepared,
    sink: Sink,
    must_stop: Callable[[], bool],
    *,
    poll: float,
    waits: Callable[[str], None] | None = None,
) -> Ended:
    """Run a prepared job to its end.

    The time that a batch scheduler lets it wait does not count.

    Args:
        executor: of the host that it was prepared on.
        prepared: the job.
        sink: is given standard output and error as they come.
        must_stop: asked at least every second; the job is killed once it says so.
        poll: seconds between two looks at a silent job.
        waits: told why a job waits, each time for another reason; "" once it has begun.

    Raises:
        Stopped: ``must_stop`` said so.
        Infrastructure: the job was lost with its host.
    """
    handle = executor.start(prepared)
    try:
        _await_start(executor, handle, must_stop, poll, waits)
        deadline = time.monotonic() + prepared.job.workload.timeout_s

        def time_is_up() -> bool:
            return must_stop() or time.monotonic() >= deadline

        for piece in executor.output(handle, time_is_up):
            sink.feed(piece)
        status = _await_end(executor, handle, time_is_up, poll)
    finally:
        executor.kill(handle)
    if must_stop():
        raise Stopped
    return _ended(status)


def _await_start(
    executor: Executor,
    handle: Handle,
    must_stop: Callable[[], bool],
    poll: float,
    waits: Callable[[str], None] | None,
) -> None:
    said = ""
    while not must_stop() and (status := executor.status(handle)).state == "waiting":
        if waits and status.reason != said:
            waits(status.reason)
            said = status.reason
        time.sleep(poll)
    if waits and said:
        waits("")


def _await_end(
    executor: Executor, handle: Handle, time_is_up: Callable[[], bool], poll: float
) -> Status:
    while (status := executor.status(handle)).state == "running" and not time_is_up():
        time.sleep(poll)
    return status


def _ended(status: Status) -> Ended:
    if status.oom_killed:
        return Ended("memory", status.exit_code)
    if status.state == "exited":
        return Ended("exited", status.exit_code)
    if status.state == "lost":
        raise Infrastructure(f"the job was lost: {status.reason or 'its host does not know it'}")
    return Ended("timeout")
