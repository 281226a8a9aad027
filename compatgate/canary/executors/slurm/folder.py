"""Manage the folder of a job, in the work directory that this machine shares with the nodes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from errno import ENOENT
from pathlib import Path

from compatgate.canary.executors.interface import Handle, Job
from compatgate.canary.executors.jobs import check_name
from compatgate.canary.executors.slurm.states import Stage, read_stage
from compatgate.canary.executors.slurm.submission import ERRORS, LOG, OUTPUT, STAGE, folder_name
from compatgate.canary.workloads.pack import container_files
from compatgate.errors import CompatgateError, Conflict, Infrastructure

_PIECE = 1 << 16
_LONGEST = 2 << 20
_STAGE = 4096


class WorkFolder:
    """The work directory of a host.

    Args:
        root: absolute path, the same on the nodes.
    """

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def of(self, job: Job | Handle) -> Path:
        """Return the path of a job's folder, whether it exists or not."""
        return self._root / check_name(job.run) / folder_name(job)

    def make(self, job: Job) -> Path:
        """Create the folder, with the workload's files in it.

        Create the files that the node writes, too: over NFS a file that is known to be missing may
        stay missing for a minute, while an existing one is checked when it is opened.

        Raises:
            Conflict: the folder exists, so the job was started before.
            Infrastructure: the directory is not available, or full.
        """
        folder = self.of(job)
        if not self._root.is_dir():
            raise _unreachable_error(
                FileNotFoundError(ENOENT, os.strerror(ENOENT), str(self._root))
            )
        try:
            folder.mkdir(parents=True, mode=0o700)
            _fill(folder, job)
        except FileExistsError:
            raise Conflict(f"{job.step} of {job.run} was started before", field="step") from None
        except OSError as error:
            raise _unreachable_error(error) from None
        return folder

    def stage(self, job: Job | Handle) -> Stage:
        """Return how far the script came; the initial stage if there is no folder."""
        return read_stage(_read(self.of(job) / STAGE, _STAGE).decode(errors="replace"))

    def log(self, job: Job | Handle) -> str:
        """Return the beginning of the log of Slurm and the container tools."""
        return _read(self.of(job) / LOG, _PIECE).decode(errors="replace")

    def runs(self) -> set[str]:
        """Return the runs with folders."""
        try:
            return {entry.name for entry in os.scandir(self._root) if entry.is_dir()}
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise _unreachable_error(error) from None

    def remove(self, run: str) -> int:
        """Remove the folders of a run; return the number of jobs.

        Raises:
            Infrastructure: they cannot be removed.
        """
        folder = self._root / check_name(run)
        try:
            jobs = sum(1 for _ in folder.iterdir())
            shutil.rmtree(folder)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _unreachable_error(error) from None
        return jobs


class OutputFollower:
    """Reader of a program's output in whole lines, while the program runs.

    Args:
        folder: folder of the job.
    """

    def __init__(self, folder: Path) -> None:
        self._streams = [_Stream(folder / OUTPUT), _Stream(folder / ERRORS)]

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole lines that came since the last call."""
        for stream in self._streams:
            yield from stream.pieces()

    def rest(self) -> Iterator[bytes]:
        """Yield all that is left after the last write; each stream's last line gets an end."""
        yield from self.pieces()
        rests = [bytes(stream.rest) for stream in self._streams if stream.rest]
        if rests:
            yield b"\n".join(rests)


class _Stream:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.rest = bytearray()

    def pieces(self) -> Iterator[bytes]:
        while data := _read(self._path, _PIECE, self._at):
            self._at += len(data)
            self.rest += data
            end = len(self.rest) if len(self.rest) > _LONGEST else self.rest.rfind(b"\n") + 1
            if end:
                yield bytes(self.rest[:end])
                del self.rest[:end]


def last_line(log: str) -> str:
    """Return the last line of a log, without srun's line that a task ended."""
    lines = [" ".join(line.split()) for line in log.split("\n") if line.strip()]
    telling = [line for line in lines if not line.startswith("srun: ")]
    return (telling or lines or [""])[-1]


def _fill(folder: Path, job: Job) -> None:
    for file in container_files(job.workload):
        path = folder / "files" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(0o755 if file.executable else 0o644)
    (folder / "files").mkdir(exist_ok=True)
    (folder / "tmp").mkdir()
    for name in (STAGE, OUTPUT, ERRORS, LOG):
        (folder / name).touch(0o600)


def _read(path: Path, most: int, start: int = 0) -> bytes:
    """Read a piece of a file; open it each time, so that NFS shows what another machine wrote."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(most) or b""
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _unreachable_error(error) from None


def _unreachable_error(error: OSError) -> CompatgateError:
    return Infrastructure(
        f"the work directory cannot be used: {error.strerror} ({error.filename})",
        field="slurm.work",
        hint="share the directory with the nodes, and make the worker's user its owner",
    )
