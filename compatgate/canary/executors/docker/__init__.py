"""Workloads in containers of a Docker engine, here or elsewhere.

No state is kept beside the engine's: containers, volumes and images carry labels that say which
run, attempt and step they belong to, so that any worker that reaches the engine can find and
remove them. docs/canaries.md says what a container may do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from compatgate.canary.executors.command import on_one_machine
from compatgate.canary.executors.docker import containers, files, images, logs, standing, sweep
from compatgate.canary.executors.docker.connect import Engine
from compatgate.canary.executors.docker.errors import starting, translated
from compatgate.canary.executors.docker.names import name_of
from compatgate.canary.executors.interface import Handle, Job, Prepared, Progress, Status
from compatgate.canary.hosts import Host


class DockerExecutor:
    """Runs jobs on one engine.

    Args:
        host: whose engine it is; nothing is asked of it before the first call of a method.
    """

    kind = "docker"
    development = False

    def __init__(self, host: Host) -> None:
        self._host = host
        self._engine = Engine(host)
        self._killed: set[str] = set()

    def prepare(self, job: Job, progress: Progress) -> Prepared:
        """Pull or build the image, or find it on the engine.

        Raises:
            NotFound: there is no such image, or it may not be read.
            BadInput: the workload needs an image under test, or does not build.
            Infrastructure: the engine or the registry does not answer.
        """
        on_one_machine(job, self._host.name)
        with self._talking() as api:
            return images.prepare(api, self._host, job, progress)

    def start(self, prepared: Prepared) -> Handle:
        """Start the container; its name is taken by a first start, so there is no second.

        Raises:
            Conflict: it was started before.
            CompatgateError: the engine has no GPUs or cannot hold the limits; the image has not
                what the command calls.
            Infrastructure: the engine does not answer.
        """
        job = prepared.job
        with self._talking() as api:
            containers.check_engine(api.info(), self._host, job)
            image = api.inspect_image(prepared.image)["Config"] or {}
            volume = files.put(api, prepared) if job.workload.folder else None
            tool = files.put_tool(api, prepared) if prepared.tool else None
            body = containers.body(job, prepared.image, image, volume, self._host.devices, tool)
            container = api.create_container_from_config(body, name_of(job))["Id"]
            with starting(job.workload.command[0], self._host.name):
                api.start(container)
        return Handle(container, job.run, job.attempt, job.step, prepared.image)

    def status(self, handle: Handle) -> Status:
        """How the container stands."""
        with self._talking() as api:
            return standing.status(api, handle.id, killed_here=handle.id in self._killed)

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Whole lines of both streams from the beginning, until the container has ended."""
        with self._talking() as api:
            yield from logs.follow(api, handle.id, stop)

    def kill(self, handle: Handle) -> None:
        """End the container at once; nothing happens where it has ended or is gone."""
        with self._talking() as api:
            if containers.kill(api, handle.id):
                self._killed.add(handle.id)

    def clean(self, run: str) -> int:
        """Remove the containers, volumes and built images of a run."""
        with self._talking() as api:
            return sweep.clean(api, run)

    def left(self) -> set[str]:
        """Runs of which containers, volumes or built images are on the engine."""
        with self._talking() as api:
            return sweep.runs(api)

    def close(self) -> None:
        """Let go of the connection."""
        self._engine.close()

    def _talking(self) -> AbstractContextManager[Any]:
        return translated(self._engine)
