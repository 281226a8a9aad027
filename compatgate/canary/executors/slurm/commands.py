"""Calls Slurm's commands, without a shell and with a small environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from compatgate.canary.executors.slurm.names import PREFIX, job_name
from compatgate.canary.executors.slurm.record import (
    SACCT_FIELDS,
    Record,
    read_sacct,
    read_scontrol,
)
from compatgate.canary.executors.slurm.refusals import NO_JOB, refused
from compatgate.errors import CompatgateError, Infrastructure

_TIMEOUT_S = 60
"""Slurm's own patience is shorter (``MessageTimeout``, and some retries)."""
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "TZ", "SLURM_CONF", "SLURM_JWT")
"""Of the worker's environment: all that sbatch hands on to the job comes from it."""


class Commands:
    """Slurm's commands on this machine.

    Args:
        folder: where they are; None: on ``PATH``.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def submit(self, arguments: Sequence[str], script: str) -> str:
        """Hand in a batch script; the job's number.

        Raises:
            BadInput: Slurm will never take it.
            Infrastructure: it does not now.
        """
        said = self._call("sbatch", *arguments, script)
        number = said.strip().splitlines()[-1].partition(";")[0] if said.strip() else ""
        if not number.isdecimal():
            raise Infrastructure(f"sbatch gave no job number but {said[:128]!r}", field="host")
        return number

    def look(self, number: str, run: str) -> Record | None:
        """A job as the controller knows it, else as accounting does; None: neither does.

        Numbers begin anew where a controller lost its state, so the name is looked at as well.

        Raises:
            Infrastructure: the controller does not answer.
        """
        done = self._run("scontrol", "--oneliner", "show", "job", number)
        if done.returncode == 0:
            found = read_scontrol(done.stdout)
        elif NO_JOB.search(done.stderr):
            found = self._accounted(number)
        else:
            raise _away(refused("scontrol", done.stderr))
        return found if found and found.name == job_name(run) else None

    def live(self, run: str) -> dict[str, str]:
        """Number to state of the jobs of a run that Slurm has not done with.

        Raises:
            Infrastructure: the controller does not answer.
        """
        said = self._asked("squeue", "--me", "--noheader", f"--name={job_name(run)}",
                           "--format=%A %T")  # fmt: skip
        return dict(line.split(maxsplit=1) for line in said.splitlines() if " " in line)

    def runs(self) -> set[str]:
        """Runs that have jobs.

        Raises:
            Infrastructure: the controller does not answer.
        """
        said = self._asked("squeue", "--me", "--noheader", "--format=%j")
        names = (line.strip() for line in said.splitlines())
        return {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}

    def cancel(self, numbers: Sequence[str]) -> None:
        """End jobs, whether they wait or run; no error for those that have ended.

        Raises:
            Infrastructure: the controller does not answer.
        """
        done = self._run("scancel", *numbers)
        if done.returncode != 0 and not NO_JOB.search(done.stderr):
            raise _away(refused("scancel", done.stderr))

    def _accounted(self, number: str) -> Record | None:
        """From accounting, where the cluster has it."""
        done = self._run("sacct", "--noheader", "--parsable2", "--allocations",
                         f"--jobs={number}", f"--format={','.join(SACCT_FIELDS)}")  # fmt: skip
        return read_sacct(done.stdout) if done.returncode == 0 else None

    def _asked(self, command: str, *arguments: str) -> str:
        try:
            return self._call(command, *arguments)
        except CompatgateError as error:
            raise _away(error) from None

    def _call(self, command: str, *arguments: str) -> str:
        done = self._run(command, *arguments)
        if done.returncode != 0:
            raise refused(command, done.stderr)
        return done.stdout

    def _run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = shutil.which(command, path=self._folder or os.environ.get("PATH"))
        if program is None:
            where = self._folder or "PATH"
            raise CompatgateError(
                f"this machine has no {command} on {where}",
                field="slurm.commands",
                hint="run the worker where jobs are submitted, or name the folder of the commands",
            )
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            return subprocess.run(  # noqa: S603
                [program, *arguments],
                env={**environment, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                cwd="/",
            )
        except subprocess.TimeoutExpired:
            raise Infrastructure(f"{command} did not answer in {_TIMEOUT_S} s") from None
        except OSError as error:
            raise Infrastructure(f"cannot run {program}: {error.strerror}") from None


def _away(error: CompatgateError) -> CompatgateError:
    """A question that fails is never the job's fault."""
    return error if isinstance(error, Infrastructure) else Infrastructure(error.problem)
