"""Run workloads as bare processes of this machine, for development: no image, no isolation.

`launch.py` runs each job in a session of its own. A variable that every process of a job inherits
lets any worker find and kill leftovers.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from compatgate.canary.executors import (
    Executor,
    Handle,
    Job,
    PreparedJob,
    Progress,
    Status,
    check_name,
    check_single_machine,
    make_command,
    make_environment,
    remove_all,
)
from compatgate.canary.executors.process.launch import read_stat
from compatgate.canary.hosts import Host
from compatgate.canary.witness.interpreter import OPTIONS, VARIABLE
from compatgate.canary.witness.processes import digest_program
from compatgate.canary.workloads.contents import write_files
from compatgate.errors import BadInput, Conflict, InfrastructureError, NotFound, quote_error

IMAGE = "process"
_LAUNCHER = Path(__file__).with_name("launch.py")
_PIECE = 1 << 16
_PATIENCE_S = 10.0
_KEPT_VARIABLES = (
    "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip
"""Variables of the worker that a program may see; tokens and proxies are not among them."""


class ProcessExecutor(Executor):
    """Executor of jobs on this machine, as the worker's user."""

    kind = "process"
    development = True

    def __init__(self, host: Host) -> None:
        self._host = host
        self._launchers: list[subprocess.Popen[bytes]] = []

    def prepare(self, job: Job, progress: Progress) -> PreparedJob:
        """Check that the program can run here; no image is needed."""
        check_single_machine(job, self._host.name)
        if job.image:
            raise BadInput(
                "the process executor does not run images",
                field="image",
                value=job.image,
                hint="run the workload on a docker host, or without an image",
            )
        if job.workload.folder is None:
            raise BadInput(f"the workload {job.workload.name} has no folder", field="workload")
        progress("looking for the program", None)
        program = _make_command(job)[0]
        where = str(job.workload.folder / program) if "/" in program else program
        if shutil.which(where, path=os.environ.get("PATH")) is None:
            raise NotFound(
                f"{self._host.name} cannot run {program!r}, which the workload's command calls",
                field="command",
                value=program,
            )
        return PreparedJob(job, IMAGE)

    def start(self, prepared: PreparedJob) -> Handle:
        """Start the launcher; its folder prevents a second start."""
        job = prepared.job
        folder = _root_folder() / check_name(job.run) / f"{job.attempt}-{check_name(job.step)}"
        try:
            folder.mkdir(parents=True, mode=0o700)
            write_files(job.workload, folder / "files")
            (folder / "tmp").mkdir()
            (folder / "output").touch()
            order = folder / "order.json"
            order.write_text(json.dumps(_make_order(job, folder)))
            self._launchers.append(
                subprocess.Popen(  # noqa: S603
                    [sys.executable, "-I", str(_LAUNCHER), str(order)],
                    env={MARK: make_mark(job), "PATH": os.environ.get("PATH", "")},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd=folder,
                )
            )
        except FileExistsError:
            raise Conflict(f"{job.step} of {job.run} was started before", field="step") from None
        except OSError as error:
            raise InfrastructureError(
                f"cannot start {job.step}: {quote_error(error)}", field="host"
            ) from error
        deadline = time.monotonic() + _PATIENCE_S
        while not (folder / "launcher.json").exists():
            if time.monotonic() > deadline or self._launchers[-1].poll() is not None:
                raise InfrastructureError("the launcher did not start", field="host")
            time.sleep(0.01)
        return Handle(str(folder), job.run, job.attempt, job.step, prepared.image)

    def status(self, handle: Handle) -> Status:
        """Return the status of the job."""
        self._reap()
        folder = Path(handle.id)
        launcher = _load_json(folder / "launcher.json")
        alive = launcher and read_start_time(launcher["pid"]) == launcher["started"]
        # Read last, because the job may have ended between the two looks.
        if ended := _load_json(folder / "ended.json"):
            return Status("exited", ended["code"], ended["oom"], ended["reason"])
        return Status("running") if alive else Status("lost", reason="its launcher is gone")

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Yield whole lines of both streams from the beginning, until the job has ended."""
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
            raise InfrastructureError(
                f"the output of {handle.step} was deleted: {quote_error(error)}"
            ) from error

    def main_process(self, handle: Handle) -> int | None:
        """Return the launcher, from which every process of the job descends."""
        launcher = _load_json(Path(handle.id) / "launcher.json")
        return launcher["pid"] if launcher else None

    def interpreter(self, handle: Handle) -> str:
        """Return the digest of the worker's Python if it runs the job; "" otherwise."""
        order = _load_json(Path(handle.id) / "order.json")
        if order is None or order["environment"].get(VARIABLE) != "worker":
            return ""
        return digest_program(Path(sys.executable))

    def kill(self, handle: Handle) -> None:
        """Let the launcher end the job; processes that it cannot end are killed by their mark."""
        launcher = _load_json(Path(handle.id) / "launcher.json")
        if launcher and self.status(handle).state == "running":
            with suppress(ProcessLookupError):
                os.kill(launcher["pid"], signal.SIGTERM)
            deadline = time.monotonic() + _PATIENCE_S
            while self.status(handle).state == "running" and time.monotonic() < deadline:
                time.sleep(0.05)
        kill_processes(make_mark(handle))
        self._reap()

    def clean(self, run: str) -> int:
        """Kill every process of the run and remove its folders."""
        killed = kill_processes(f"{check_name(run)}/")
        self._reap()
        folder = _root_folder() / run
        jobs = sum(1 for _ in folder.iterdir()) if folder.exists() else 0
        shutil.rmtree(folder, ignore_errors=True)
        return max(killed, jobs)

    def left(self) -> set[str]:
        """Return the runs with folders."""
        return {folder.name for folder in _root_folder().iterdir()}

    def close(self) -> None:
        """Do nothing: only ended launchers are held."""
        self._reap()

    def _reap(self) -> None:
        self._launchers = [launcher for launcher in self._launchers if launcher.poll() is None]


def _make_command(job: Job) -> list[str]:
    """Return the argument vector; there is no image, so the worker's own Python is at hand."""
    command = make_command(job)
    if job.workload.interpreter == "worker":
        return [sys.executable, *OPTIONS, *command[1:]]
    return command


def _make_order(job: Job, folder: Path) -> dict[str, Any]:
    limits = job.workload.limits
    tmp = str(folder / "tmp")
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    slots = ",".join(str(slot) for slot in job.gpu_slots)
    mark = {MARK: make_mark(job), "CUDA_VISIBLE_DEVICES": slots}
    if job.workload.interpreter == "worker":
        mark[VARIABLE] = "worker"
    return {
        "command": _make_command(job),
        "environment": {**kept, **make_environment(job, tmp, mark), **mark},
        "folder": str(folder / "files"),
        "memory": limits.memory,
        "pids": limits.pids,
        "file": limits.tmp,
        "output": 2 * limits.output,
        "timeout": job.workload.timeout_s + 60,
        "worker": os.getpid(),
    }


def _load_json(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        loaded: dict[str, Any] = json.loads(path.read_text())
        return loaded
    return None


def make_mark(job: Job | Handle) -> str:
    """Return the name of a job in the environment of its processes."""
    return f"{check_name(job.run)}/{job.attempt}/{check_name(job.step)}"


def _root_folder() -> Path:
    """Return the user's folder; in a world-writable place it must belong to this user."""
    root = Path(tempfile.gettempdir()) / f"compatgate-canary-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    result = root.lstat()
    if not stat.S_ISDIR(result.st_mode) or result.st_uid != os.getuid():
        raise InfrastructureError(f"{root} belongs to another user", field="host", value=str(root))
    return root


MARK = "COMPATGATE_JOB"


def read_start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it does not exist."""
    fields = read_stat(pid)
    return None if not fields or fields[0] in b"ZX" else fields[19]


def kill_processes(mark: str) -> int:
    """Kill every process that `find_marked` finds; return their number."""

    def kill(pid: int, _: float) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    # A process that is killed ends at once, unless the kernel holds it.
    where, patience = "this machine", _PATIENCE_S
    return remove_all(
        lambda: find_marked(mark), kill, where=where, patience_s=patience, pause_s=0.02
    )


def find_marked(mark: str) -> dict[str, int]:
    """Return the processes with a mark, or whose mark begins so if it ends with a slash."""
    wanted = f"{MARK}={mark}".encode()
    results = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            marked = any(
                part.startswith(wanted) if wanted.endswith(b"/") else part == wanted
                for part in file.read().split(b"\0")
            )
            if marked and read_start_time(int(name)) is not None:
                results[name] = int(name)
    return results
