"""Run workloads in containers of a Docker engine, local or remote; their labels are all the state.

docs/how-to/staging-hosts.md says what a container may do.
"""

from __future__ import annotations

import math
import queue
import struct
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

from compatgate.background import BackgroundReader
from compatgate.canary.executors import (
    Executor,
    Handle,
    Job,
    LineJoiner,
    PreparedJob,
    Progress,
    Status,
    check_single_machine,
    remove_all,
)
from compatgate.canary.executors.docker import containers, images
from compatgate.canary.executors.docker.engine import (
    RUN,
    TIMEOUT_S,
    Engine,
    container_name,
    ignore_gone,
    translate_errors,
    translate_start_errors,
)
from compatgate.canary.hosts import Host
from compatgate.canary.protocol.jsonl import LOST_LINE
from compatgate.canary.witness.interpreter import PLACE, pack_interpreter
from compatgate.errors import InfrastructureError

_PATIENCE_S = 60


class DockerExecutor(Executor):
    """Executor of jobs on one Docker engine, which the first call contacts."""

    kind = "docker"
    runs_pairs = True

    def __init__(self, host: Host) -> None:
        self._host = host
        self._engine = Engine(host)
        self._killed: set[str] = set()

    def prepare(self, job: Job, progress: Progress) -> PreparedJob:
        """Pull or build the image, or find it on the engine."""
        check_single_machine(job, self._host.name)
        with self._talking() as api:
            return images.prepare_images(api, self._host, job, progress)

    def start(self, prepared: PreparedJob) -> Handle:
        """Start the container; its name prevents a second start."""
        job = prepared.job
        with self._talking() as api:
            info = api.info()
            containers.check_engine(info, self._host, job)
            image = api.inspect_image(prepared.image)["Config"] or {}
            volume = containers.put_files(api, prepared) if job.workload.folder else None
            tool = containers.put_tool(api, prepared) if prepared.tool else None
            python = pack_interpreter() if job.workload.interpreter == "worker" else None
            if python and python.machine != info.get("Architecture"):
                python = None
            if python:
                containers.put_interpreter(api, prepared, python)
            body = containers.make_container_body(
                job, prepared.image, image, volume, self._host.devices, tool, python
            )
            container = api.create_container_from_config(body, container_name(job))["Id"]
            if python:
                containers.check_preloads(api, container, prepared.image)
            with translate_start_errors(job.workload.command[0], self._host.name):
                api.start(container)
        return Handle(container, job.run, job.attempt, job.step, prepared.image)

    def status(self, handle: Handle) -> Status:
        """Return how the container stands."""
        with self._talking() as api:
            return read_status(api, handle.id, killed_here=handle.id in self._killed)

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Yield whole lines of both streams from the beginning, until the container has ended."""
        with self._talking() as api:
            yield from follow_log(api, handle.id, stop)

    def main_process(self, handle: Handle) -> int | None:
        """Return the container's first process if the engine may run on this machine."""
        if (self._host.endpoint or "unix://").partition("://")[0] != "unix":
            return None
        with self._talking() as api:
            return api.inspect_container(handle.id)["State"]["Pid"] or None

    def interpreter(self, handle: Handle) -> str:
        """Return the digest of the worker's loader if it starts the container; "" otherwise."""
        with self._talking() as api:
            started = api.inspect_container(handle.id)["Config"]["Entrypoint"][0]
        python = pack_interpreter() if started.startswith(f"{PLACE}/") else None
        return python.program if python else ""

    def kill(self, handle: Handle) -> None:
        """End the container at once; do nothing if it has ended or is gone."""
        with self._talking() as api, ignore_gone():
            api.kill(handle.id, "SIGKILL")
            self._killed.add(handle.id)

    def clean(self, run: str) -> int:
        """Remove the containers, volumes and built images of a run."""
        with self._talking() as api:
            return remove_all(
                lambda: {
                    name: (kind, name) for kind, name, _ in _list_objects(api, f"{RUN}={run}")
                },
                lambda thing, _: _remove(api, *thing),
                where=f"the engine of {self._engine.where}",
                patience_s=_PATIENCE_S,
            )

    def left(self) -> set[str]:
        """Return the runs with containers, volumes or built images on the engine."""
        with self._talking() as api:
            return {labels[RUN] for _, _, labels in _list_objects(api, RUN)}

    def close(self) -> None:
        """Close the connection."""
        self._engine.close()

    def _talking(self) -> AbstractContextManager[Any]:
        return translate_errors(self._engine)


def _list_objects(api: Any, label: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield kind, name and labels of labelled objects, containers first: they use the others."""
    labels = {"label": label}
    for kind, name, listed in (
        ("container", "Id", api.containers(all=True, filters=labels)),
        ("volume", "Name", api.volumes(filters=labels)["Volumes"] or []),
        ("image", "Id", api.images(all=True, filters=labels)),
    ):
        yield from ((kind, thing[name], thing["Labels"]) for thing in listed)


def _remove(api: Any, kind: str, name: str) -> None:
    more = {"v": True} if kind == "container" else {}
    with ignore_gone():  # gone, or another removal is running: the next look shows which
        getattr(api, f"remove_{kind}")(name, force=True, **more)


_HEADER = struct.Struct(">BxxxL")
_WAIT_S = 0.5
_ENDING_S = 10.0
_LOOK_S = 0.05
_PART_BYTES = 16 << 10
"""Bytes of a part of a longer line (moby, daemon/logger/copier.go)."""
_RECORD_BYTES = 128
"""Upper bound of a record's size in the file besides its text."""
_RUNNING = ("running", "paused", "restarting", "created")


def follow_log(api: Any, container: str, stop: Callable[[], bool]) -> Iterator[bytes]:
    """Yield both streams from the beginning, until the container ends or ``stop`` returns true.

    The engine splits long lines into parts; parts of one stream never appear within a line of the
    other. It stores two log files of limited size. Once it has started a third, lines may be lost,
    and a line of the protocol says so. A log that breaks off after that is the program's doing.
    """
    config = api.inspect_container(container)["HostConfig"]["LogConfig"].get("Config") or {}
    room = int(config.get("max-size", 0))
    pump = _pump(api, container)
    try:
        for lines in _join_lines(pump, stop):
            before, room = room, room - len(lines) - _RECORD_BYTES * (1 + len(lines) // _PART_BYTES)
            yield lines
            if room < 0 <= before:
                yield LOST_LINE
    except EOFError:
        if room >= 0:
            raise
    finally:
        pump.close()
    deadline = time.monotonic() + (_ENDING_S if room >= 0 else math.inf)
    while not stop() and api.inspect_container(container)["State"]["Status"] in _RUNNING:
        if time.monotonic() > deadline:
            raise InfrastructureError("the engine ended the log of a running container")
        time.sleep(_LOOK_S)


def _join_lines(
    pump: BackgroundReader[tuple[int, bytes]], stop: Callable[[], bool]
) -> Iterator[bytes]:
    """Yield whole lines of either stream.

    Before Docker 23, the local driver drops the line feed of a line in parts; a part that is not
    full is the last.
    """
    streams: dict[int, LineJoiner] = {}
    while not stop():
        try:
            frame = pump.get(_WAIT_S)
        except queue.Empty:
            continue
        if frame is None:
            break
        number, data = frame
        if len(data) < _PART_BYTES and not data.endswith(b"\n"):
            data += b"\n"
        if lines := streams.setdefault(number, LineJoiner()).feed(data):
            yield lines
    yield from (bytes(stream.rest) for stream in streams.values() if stream.rest)


def _pump(api: Any, container: str) -> BackgroundReader[tuple[int, bytes]]:
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

    def read_frames(raw: Any) -> Generator[tuple[int, bytes]]:
        while header := raw.read(_HEADER.size):
            if len(header) < _HEADER.size:
                raise EOFError("the log was cut off")
            number, length = _HEADER.unpack(header)
            yield number, raw.read(length)

    return BackgroundReader(read_frames(response.raw), hang_up)


_MAX_EVENTS = 256
"""Maximum number of events that an engine stores; a restart clears them (moby, daemon/events)."""
_KILLED = (137, 143, 255)
_RESTART_REASON = "the engine was restarted, which ended the container"
_STOP_REASON = "the container was stopped on its host: manually, or with the engine"


def read_status(api: Any, container: str, *, killed_here: bool) -> Status:
    """Return the current status of a container.

    A container that was stopped with its engine looks like one that was killed, and says nothing
    about the program. The engine's events decide: they contain the stop, and an engine whose events
    contain the start has not been restarted since.
    """
    from docker.errors import NotFound

    try:
        state = api.inspect_container(container)["State"]
    except NotFound:
        return Status("lost", reason="the engine does not know the container")
    if state["Status"] in _RUNNING:
        return Status("waiting" if state["Status"] == "created" else "running")
    exit_code = int(state["ExitCode"])
    if killed_here:
        return Status("exited", exit_code, reason="killed")
    whole, _, fraction = str(api.info()["SystemTime"]).partition(".")
    seconds = int(datetime.fromisoformat(whole.rstrip("Z")).replace(tzinfo=UTC).timestamp())
    until = f"{seconds}.{fraction.rstrip('Z').ljust(9, '0')[:9]}"  # to the nanosecond
    seen = list(api.events(since=1, until=until, decode=True))
    own = {e["Action"] for e in seen if (e.get("Actor") or {}).get("ID") == container}
    if state["OOMKilled"] or "oom" in own:
        return Status("exited", exit_code, oom_killed=True, reason="out of memory")
    killed = exit_code in _KILLED
    if "start" not in own and (killed or len(seen) < _MAX_EVENTS):
        return Status("lost", reason=_RESTART_REASON)
    if "kill" in own and killed:
        return Status("lost", reason=_STOP_REASON)
    return Status("exited", exit_code)
