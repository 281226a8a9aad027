"""Workloads as bare processes of this machine, for development: no image, no isolation.

A launcher (`launch.py`) holds each job in a session of its own, with resource limits, bounded
output and a deadline, and ends it when the worker goes. Everything that a job starts inherits a
variable that names it, by which another worker finds and kills what an earlier one left.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from compatgate.canary.executors.command import command_of, environment_of, on_one_machine
from compatgate.canary.executors.interface import Handle, Job, Prepared, Progress, Status
from compatgate.canary.executors.names import safe
from compatgate.canary.executors.process import scratch, traces
from compatgate.canary.hosts import Host
from compatgate.errors import BadInput, Infrastructure, NotFound

IMAGE = "process"
_LAUNCHER = Path(__file__).with_name("launch.py")
_PIECE = 1 << 16
_PATIENCE_S = 10.0
_KEPT = (
    "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip
"""Variables of the worker that a program may see; tokens and proxies are not among them."""


class ProcessExecutor:
    """Runs jobs on this machine, as the worker's user.

    Args:
        host: that the worker declared; it has no endpoint.
    """

    kind = "process"
    development = True

    def __init__(self, host: Host) -> None:
        self._host = host
        self._launchers: list[subprocess.Popen[bytes]] = []

    def prepare(self, job: Job, progress: Progress) -> Prepared:
        """There is no image to fetch.

        Raises:
            BadInput: one is under test, or the workload has no folder.
            NotFound: this machine has not what the command calls.
        """
        on_one_machine(job, self._host.name)
        if job.image:
            raise BadInput(
                "the process executor runs no images",
                field="image",
                value=job.image,
                hint="run it on a docker host, or without an image",
            )
        if job.workload.folder is None:
            raise BadInput(f"the workload {job.workload.name} has no folder", field="workload")
        progress("looking for the program", None)
        program = command_of(job)[0]
        where = f"{job.workload.folder}{os.sep}{program}" if "/" in program else program
        if shutil.which(where, path=os.environ.get("PATH")) is None:
            raise NotFound(
                f"{self._host.name} cannot run {program!r}, which the workload's command calls",
                field="command",
                value=program,
            )
        return Prepared(job, IMAGE)

    def start(self, prepared: Prepared) -> Handle:
        """Start the launcher; its folder is taken by a first start, so there is no second.

        Raises:
            Conflict: it was started before.
            Infrastructure: there is no room, or no process to be had.
        """
        job = prepared.job
        try:
            folder = scratch.make(job)
            order = folder / "order.json"
            order.write_text(json.dumps(_order(job, folder)))
            self._launchers.append(
                subprocess.Popen(  # noqa: S603
                    [sys.executable, "-I", str(_LAUNCHER), str(order)],
                    env={traces.MARK: scratch.mark(job), "PATH": os.environ.get("PATH", "")},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd=folder,
                )
            )
        except OSError as error:
            raise Infrastructure(f"cannot start {job.step}: {error}", field="host") from error
        self._await_launcher(folder)
        return Handle(str(folder), job.run, job.attempt, job.step, prepared.image)

    def status(self, handle: Handle) -> Status:
        """How the job stands."""
        self._reap()
        folder = Path(handle.id)
        if ended := _load(folder / "ended.json"):
            return Status("exited", ended["code"], ended["oom"], ended["reason"])
        launcher = _load(folder / "launcher.json")
        if launcher and traces.is_alive(launcher["pid"], launcher["started"]):
            return Status("running")
        # It may have ended between the two looks.
        if ended := _load(folder / "ended.json"):
            return Status("exited", ended["code"], ended["oom"], ended["reason"])
        return Status("lost", reason="its launcher is gone")

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Whole lines of both streams from the beginning, until the job has ended."""
        try:
            with (Path(handle.id) / "output").open("rb") as file:
                while not stop():
                    ended = self.status(handle).state != "running"
                    while (piece := file.read(_PIECE)) and not stop():
                        yield piece
                    if ended:
                        return
                    time.sleep(0.1)
        except OSError as error:
            raise Infrastructure(f"the output of {handle.step} is gone: {error}") from error

    def kill(self, handle: Handle) -> None:
        """Have the launcher end the job; what it cannot end is killed by its mark."""
        launcher = _load(Path(handle.id) / "launcher.json")
        if launcher and self.status(handle).state == "running":
            traces.ask_to_end(launcher["pid"], launcher["started"])
            deadline = time.monotonic() + _PATIENCE_S
            while self.status(handle).state == "running" and time.monotonic() < deadline:
                time.sleep(0.05)
        traces.kill_marked(scratch.mark_of(handle))
        self._reap()

    def clean(self, run: str) -> int:
        """Kill every process of the run and remove its folders."""
        killed = traces.kill_marked(f"{safe(run)}/")
        self._reap()
        return max(killed, scratch.remove(run))

    def left(self) -> set[str]:
        """Runs that have folders."""
        return scratch.runs()

    def close(self) -> None:
        """Nothing is held but launchers that have ended."""
        self._reap()

    def _reap(self) -> None:
        self._launchers = [launcher for launcher in self._launchers if launcher.poll() is None]

    def _await_launcher(self, folder: Path) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not (folder / "launcher.json").exists():
            if time.monotonic() > deadline or self._launchers[-1].poll() is not None:
                raise Infrastructure("the launcher did not start", field="host")
            time.sleep(0.01)


def _order(job: Job, folder: Path) -> dict[str, Any]:
    limits = job.workload.limits
    tmp = str(folder / "tmp")
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    slots = ",".join(str(slot) for slot in job.gpu_slots)
    mark = {traces.MARK: scratch.mark(job), "CUDA_VISIBLE_DEVICES": slots}
    return {
        "command": command_of(job),
        "environment": {**kept, **environment_of(job, tmp, mark), **mark},
        "folder": str(folder / "files"),
        "memory": limits.memory,
        "pids": limits.pids,
        "file": limits.tmp,
        "output": 2 * limits.output,
        "timeout": job.workload.timeout_s + 60,
        "worker": os.getpid(),
    }


def _load(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        loaded: dict[str, Any] = json.loads(path.read_text())
        return loaded
    return None
