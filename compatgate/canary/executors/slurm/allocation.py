"""Hold one allocation of Slurm for the steps of a run, so that they share a node and its GPUs.

The first step submits a job that holds the nodes. Its script runs the steps' scripts one after
another, as the worker appends them to a file. A step that needs other resources, or that comes when
the job has ended or has too little time left, gets a new allocation. So does a pair of blocks that
would not end in time: both blocks of a pair need the same allocation.
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

from compatgate.canary.executors import Job, check_name
from compatgate.canary.executors.slurm.commands import RUNNING_STATES, WAITING_STATES, Commands
from compatgate.canary.executors.slurm.submission import (
    LOG,
    make_folder_error,
    make_sbatch_arguments,
)
from compatgate.canary.hosts import Slurm

_OPEN, _QUEUE, _NUMBER, _NEEDS = "open", "queue", "number", "needs.json"
_BEGAN, _LIMIT = "began", "limit"
"""Files with the time at which the job began, and with the seconds that steps have in it."""
_IDLE_S = 600
_GRACE_S = 120
"""Time that the job keeps for its own end."""
# NFS shows what another machine appended to a file at its next opening, but a new name in a folder
# only after a minute.
_HOLD = """\
#!/bin/bash
set -u
cd {folder} || exit 75
[ -s node ] && exit 75
umask 077
echo "${{SLURMD_NODENAME:-$(hostname)}}" >node
date +%s >began
number=1
idle=0
child=
trap 'rm -f open; [ -n "$child" ] && kill -TERM "$child"' TERM
while [ -e open ]; do
    read -r step seconds end < <(sed -n "${{number}}p" queue)
    if [ "${{end:-}}" != end ]; then
        idle=$((idle + 1))
        [ "$idle" -le {idle} ] || break
        sleep 0.25
        continue
    fi
    [ $((SECONDS + seconds)) -le {seconds} ] || break
    idle=0
    number=$((number + 1))
    bash "../$step/job.sh" >>"../$step/{log}" 2>&1 </dev/null &
    child=$!
    wait "$child"
    child=
done
rm -f open
exit 0
"""


class Allocations:
    """The allocations of a host's runs."""

    def __init__(self, slurm: Slurm, commands: Commands) -> None:
        self._slurm = slurm
        self._root = Path(slurm.work)
        self._commands = commands

    def add(self, job: Job, folder: str, seconds: int, room: int) -> str:
        """Run a step in the run's allocation; return the number of the allocation's job.

        The step may take ``seconds``; a new allocation has at least ``room`` seconds, for the steps
        that belong together.
        """
        try:
            held = self.find(job, seconds) or self._submit(job, max(seconds, room))
            with (held / _QUEUE).open("a") as queue:
                queue.write(f"{folder} {seconds} end\n")
            return (held / _NUMBER).read_text().strip()
        except OSError as error:
            raise make_folder_error(error) from None

    def close(self, run: str, attempt: int) -> None:
        """Let no further step begin in the allocations of an attempt."""
        for held in self._of(run, attempt):
            (held / _OPEN).unlink(missing_ok=True)

    def folder(self, run: str, attempt: int, number: str) -> Path | None:
        """Return the folder of an allocation."""
        each = self._of(run, attempt)
        return next((held for held in each if _read(held / _NUMBER) == number), None)

    def _of(self, run: str, attempt: int) -> list[Path]:
        return sorted((self._root / check_name(run)).glob(f"{attempt}-allocation-*"))

    def find(self, job: Job, seconds: int) -> Path | None:
        """Return the run's allocation with room for steps of so many seconds together."""
        for held in reversed(self._of(job.run, job.attempt)):
            number = _read(held / _NUMBER)
            if number and (held / _OPEN).exists() and _read(held / _NEEDS) == describe_needs(job):
                record = self._commands.look(number, job.run)
                live = record and record.state in WAITING_STATES | RUNNING_STATES
                # The time that steps still have; all of it before the job begins.
                limit, began = float(_read(held / _LIMIT) or 0), _read(held / _BEGAN)
                if live and limit - (time.time() - int(began) if began else 0.0) >= seconds:
                    return held
        self.close(job.run, job.attempt)
        return None

    def _submit(self, job: Job, seconds: int) -> Path:
        number = len(self._of(job.run, job.attempt)) + 1
        held = self._root / check_name(job.run) / f"{job.attempt}-allocation-{number}"
        held.mkdir(mode=0o700)
        for name in (_QUEUE, _OPEN, LOG):
            (held / name).touch(0o600)
        (held / _NEEDS).write_text(describe_needs(job))
        whole = max(self._slurm.allocation_s, seconds + _GRACE_S)
        script = held / "hold.sh"
        (held / _LIMIT).write_text(str(whole - _GRACE_S))
        script.write_text(make_hold_script(str(held), whole - _GRACE_S))
        asked = make_sbatch_arguments(job, self._slurm, str(held), whole)
        (held / _NUMBER).write_text(self._commands.submit(asked, str(script)))
        return held


def make_hold_script(folder: str, seconds: int) -> str:
    """Return the script of an allocation."""
    return _HOLD.format(folder=shlex.quote(folder), seconds=seconds, idle=4 * _IDLE_S, log=LOG)


def describe_needs(job: Job) -> str:
    """Return the resources of a step; steps share an allocation only if all are equal."""
    workload, limits = job.workload, job.workload.limits
    needs = {"nodes": workload.nodes, "gpus": workload.gpus}
    return json.dumps(needs | {"memory": limits.memory, "cpus": limits.cpus}, sort_keys=True)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
