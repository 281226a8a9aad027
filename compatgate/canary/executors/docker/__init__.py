"""Run workloads in containers of a Docker engine, local or remote.

All state is in the engine: containers, volumes and images carry labels that name their run,
attempt and step, so any worker that reaches the engine can find and remove them.
docs/canaries.md says what a container may do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from compatgate.canary.executors.docker import containers, images, logs
from compatgate.canary.executors.docker.engine import (
    RUN,
    Engine,
    container_name,
    run_filter,
    translate_errors,
    translate_start_errors,
)
from compatgate.canary.executors.interface import Handle, Job, PreparedJob, Progress, Status
from compatgate.canary.executors.jobs import check_single_machine
from compatgate.canary.hosts import Host
from compatgate.errors import Infrastructure


class DockerExecutor:
    """Executor of jobs on one Docker engine.

    Args:
        host: host of the engine; the engine is not contacted before the first call of a method.
    """

    kind = "docker"
    development = False

    def __init__(self, host: Host) -> None:
        self._host = host
        self._engine = Engine(host)
        self._killed: set[str] = set()

    def prepare(self, job: Job, progress: Progress) -> PreparedJob:
        """Pull or build the image, or find it on the engine.

        Raises:
            NotFound: the image does not exist or cannot be read.
            BadInput: the workload needs an image under test, or its build fails.
            Infrastructure: the engine or the registry does not answer.
        """
        check_single_machine(job, self._host.name)
        with self._talking() as api:
            return images.prepare_images(api, self._host, job, progress)

    def start(self, prepared: PreparedJob) -> Handle:
        """Start the container; its name prevents a second start.

        Raises:
            Conflict: it was started before.
            CompatgateError: the engine has no GPUs or cannot enforce the limits, or the image does
                not have the program of the command.
            Infrastructure: the engine does not answer.
        """
        job = prepared.job
        with self._talking() as api:
            containers.check_engine(api.info(), self._host, job)
            image = api.inspect_image(prepared.image)["Config"] or {}
            volume = containers.put_files(api, prepared) if job.workload.folder else None
            tool = containers.put_tool(api, prepared) if prepared.tool else None
            body = containers.container_body(
                job, prepared.image, image, volume, self._host.devices, tool
            )
            container = api.create_container_from_config(body, container_name(job))["Id"]
            with translate_start_errors(job.workload.command[0], self._host.name):
                api.start(container)
        return Handle(container, job.run, job.attempt, job.step, prepared.image)

    def status(self, handle: Handle) -> Status:
        """Return how the container stands."""
        with self._talking() as api:
            return logs.read_status(api, handle.id, killed_here=handle.id in self._killed)

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Yield whole lines of both streams from the beginning, until the container has ended."""
        with self._talking() as api:
            yield from logs.follow_log(api, handle.id, stop)

    def kill(self, handle: Handle) -> None:
        """End the container at once; do nothing if it has ended or is gone."""
        with self._talking() as api:
            if containers.kill_container(api, handle.id):
                self._killed.add(handle.id)

    def clean(self, run: str) -> int:
        """Remove the containers, volumes and built images of a run."""
        with self._talking() as api:
            return remove_run(api, run)

    def left(self) -> set[str]:
        """Return the runs with containers, volumes or built images on the engine."""
        with self._talking() as api:
            return list_runs(api)

    def close(self) -> None:
        """Close the connection."""
        self._engine.close()

    def _talking(self) -> AbstractContextManager[Any]:
        return translate_errors(self._engine)


_PATIENCE_S = 60


def remove_run(api: Any, run: str) -> int:
    """Remove the containers, volumes and built images that carry the run's label.

    Returns:
        The number of objects removed.

    Raises:
        Infrastructure: an object could not be removed.
    """
    removed: set[str] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while left := _leftovers(api, run):
        for kind, name in left:
            removed.add(name)
            _remove(api, kind, name)
        if time.monotonic() > deadline:
            names = ", ".join(name[:64] for _, name in left)
            raise Infrastructure(f"the engine did not remove {names}")
        if _leftovers(api, run):
            time.sleep(0.2)
    return len(removed)


def list_runs(api: Any) -> set[str]:
    """Return the ids of the runs that labels on the engine name."""
    labelled = {"label": RUN}
    found = [
        *api.containers(all=True, filters=labelled),
        *(api.volumes(filters=labelled)["Volumes"] or []),
        *api.images(all=True, filters=labelled),
    ]
    return {thing["Labels"][RUN] for thing in found}


def _leftovers(api: Any, run: str) -> list[tuple[str, str]]:
    """Return the objects of a run, containers first because they use the others."""
    mine = run_filter(run)
    containers = [c["Id"] for c in api.containers(all=True, filters=mine)]
    volumes = [v["Name"] for v in api.volumes(filters=mine)["Volumes"] or []]
    images = [i["Id"] for i in api.images(all=True, filters=mine)]
    return [
        *(("container", name) for name in containers),
        *(("volume", name) for name in volumes),
        *(("image", name) for name in images),
    ]


def _remove(api: Any, kind: str, name: str) -> None:
    from docker.errors import APIError

    try:
        match kind:
            case "container":
                api.remove_container(name, v=True, force=True)
            case "volume":
                api.remove_volume(name, force=True)
            case _:
                api.remove_image(name, force=True)
    except APIError as error:
        # It is gone, or another removal is running: the next look shows which.
        if error.status_code not in (404, 409):
            raise
