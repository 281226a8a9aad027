"""Folders of jobs that run as processes: files, scratch, output and what became of them."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from compatgate.canary.executors.interface import Handle, Job
from compatgate.canary.executors.names import safe
from compatgate.canary.workloads.pack import container_files
from compatgate.errors import Conflict, Infrastructure


def make(job: Job) -> Path:
    """The folder of a job, with the workload's files in it.

    Raises:
        Conflict: there is one.
        Infrastructure: somebody else owns the place.
    """
    folder = _root() / safe(job.run) / f"{job.attempt}-{safe(job.step)}"
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise Conflict(f"{job.step} of {job.run} was started before", field="step") from None
    for file in container_files(job.workload):
        path = folder / "files" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(0o755 if file.executable else 0o644)
    (folder / "tmp").mkdir()
    (folder / "output").touch()
    return folder


def remove(run: str) -> int:
    """Remove the folders of a run; how many jobs there were."""
    folder = _root() / safe(run)
    if not folder.exists():
        return 0
    jobs = sum(1 for _ in folder.iterdir())
    shutil.rmtree(folder, ignore_errors=True)
    return jobs


def runs() -> set[str]:
    """Ids of the runs that have folders."""
    return {folder.name for folder in _root().iterdir()}


def mark(job: Job) -> str:
    """What names the job in the environment of its processes."""
    return f"{safe(job.run)}/{job.attempt}/{safe(job.step)}"


def mark_of(handle: Handle) -> str:
    """As `mark`, of a started job."""
    return f"{safe(handle.run)}/{handle.attempt}/{safe(handle.step)}"


def _root() -> Path:
    """One folder per user; in a place that everybody may write to, it must be this user's own."""
    root = Path(tempfile.gettempdir()) / f"compatgate-canary-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise Infrastructure(f"{root} belongs to somebody else", field="host", value=str(root))
    return root
