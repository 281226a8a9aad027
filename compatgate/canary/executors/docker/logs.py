"""Follow a container's output in whole lines, and read how the container ended.

A container may end by itself, by lack of memory, or by an intervention.
"""

from __future__ import annotations

import queue
import struct
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from typing import Any

from compatgate.canary.executors.docker.engine import TIMEOUT_S
from compatgate.canary.executors.interface import Status
from compatgate.canary.executors.jobs import Pump
from compatgate.canary.protocol.lines import LOST
from compatgate.errors import Infrastructure

_HEADER = struct.Struct(">BxxxL")
_WAIT_S = 0.5
_ENDING_S = 10.0
_LOOK_S = 0.05
_LONGEST = 2 << 20
_PART = 16 << 10
"""Bytes of a part of a longer line (moby, daemon/logger/copier.go)."""
_RECORD = 128
"""Upper bound of a record's size in the file besides its text."""
_RUNNING = ("running", "paused", "restarting", "created")


def follow_log(api: Any, container: str, stop: Callable[[], bool]) -> Iterator[bytes]:
    """Yield both streams from the beginning, until the container ends or ``stop`` returns true.

    The engine splits long lines into parts; parts of one stream never appear within a line of the
    other. It stores two log files of limited size. Once it has started a third, lines may be lost,
    and a line of the protocol says so.

    Raises:
        Infrastructure: the engine ended the log while the container still ran.
        docker.errors.APIError, OSError, urllib3's: the engine went away.
    """
    config = api.inspect_container(container)["HostConfig"]["LogConfig"].get("Config") or {}
    room = int(config.get("max-size", 0))
    pump = _pump(api, container)
    try:
        for frame in _whole_lines(_fetched(pump, stop)):
            before, room = room, room - len(frame) - _RECORD * (1 + len(frame) // _PART)
            yield frame
            if room < 0 <= before:
                yield LOST
    finally:
        pump.close()
    _await_end(api, container, stop)


def _await_end(api: Any, container: str, stop: Callable[[], bool]) -> None:
    """Wait until the engine knows that the container has ended, soon after the log's end."""
    deadline = time.monotonic() + _ENDING_S
    while not stop() and api.inspect_container(container)["State"]["Status"] in _RUNNING:
        if time.monotonic() > deadline:
            raise Infrastructure("the engine ended the log of a running container")
        time.sleep(_LOOK_S)


def _whole_lines(frames: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    """Yield whole lines of either stream.

    Before Docker 23, the local driver drops the line feed of a line in parts; a part that is not
    full is the last.
    """
    buffers: dict[int, bytearray] = {}
    for number, data in frames:
        buffer = buffers.setdefault(number, bytearray())
        buffer += data
        if len(data) < _PART and not data.endswith(b"\n"):
            buffer += b"\n"
        end = len(buffer) if len(buffer) > _LONGEST else buffer.rfind(b"\n") + 1
        if end:
            yield bytes(buffer[:end])
            del buffer[:end]
    yield from (bytes(rest) for rest in buffers.values() if rest)


def _pump(api: Any, container: str) -> Pump[tuple[int, bytes]]:
    """Return the frames of the log from its beginning: number of the stream, and bytes."""
    response = api.get(
        f"{api.base_url}/v{api.api_version}/containers/{container}/logs",
        params={"stdout": 1, "stderr": 1, "follow": 1},
        stream=True,
        timeout=(TIMEOUT_S, None),
    )
    api._raise_for_status(response)

    def hang_up() -> None:
        from docker.types import CancellableStream

        CancellableStream(iter(()), response).close()

    return Pump(_frames(response.raw), hang_up)


def _frames(raw: Any) -> Generator[tuple[int, bytes]]:
    while header := raw.read(_HEADER.size):
        if len(header) < _HEADER.size:
            raise EOFError("the log was cut off")
        number, length = _HEADER.unpack(header)
        yield number, raw.read(length)


def _fetched(
    pump: Pump[tuple[int, bytes]], stop: Callable[[], bool]
) -> Iterator[tuple[int, bytes]]:
    while not stop():
        try:
            frame = pump.get(_WAIT_S)
        except queue.Empty:
            continue
        if frame is None:
            return
        yield frame


_REMEMBERED = 256
"""Maximum number of events that an engine stores; a restart clears them (moby, daemon/events)."""
_KILLED = (137, 143, 255)
_RESTARTED = "the engine was restarted, which ended the container"
_STOPPED = "the container was stopped on its host: manually, or with the engine"


def read_status(api: Any, container: str, *, killed_here: bool = False) -> Status:
    """Return the current status of a container.

    A container that was stopped with its engine looks like one that was killed, and says nothing
    about the program. The engine's events decide: they contain the stop, and an engine whose events
    contain the start has not been restarted since.

    Args:
        api: the engine's client.
        container: its id.
        killed_here: this worker killed the container.
    """
    from docker.errors import NotFound

    try:
        state = api.inspect_container(container)["State"]
    except NotFound:
        return Status("lost", reason="the engine does not know the container")
    match state["Status"]:
        case "created":
            return Status("waiting")
        case "running" | "paused" | "restarting":
            return Status("running")
    exit_code = int(state["ExitCode"])
    if killed_here:
        return Status("exited", exit_code, reason="killed")
    seen = _events(api)
    own = {e["Action"] for e in seen if (e.get("Actor") or {}).get("ID") == container}
    if state["OOMKilled"] or "oom" in own:
        return Status("exited", exit_code, oom_killed=True, reason="out of memory")
    killed = exit_code in _KILLED
    if "start" not in own and (killed or len(seen) < _REMEMBERED):
        return Status("lost", reason=_RESTARTED)
    if "kill" in own and killed:
        return Status("lost", reason=_STOPPED)
    return Status("exited", exit_code)


def _events(api: Any) -> list[dict[str, Any]]:
    """Return every event that the engine stores, up to now on its own clock."""
    whole, _, fraction = str(api.info()["SystemTime"]).partition(".")
    seconds = int(datetime.fromisoformat(whole.rstrip("Z")).replace(tzinfo=UTC).timestamp())
    nanoseconds = fraction.rstrip("Z").ljust(9, "0")[:9]
    until = f"{seconds}.{nanoseconds}"
    return list(api.events(since=1, until=until, decode=True))
