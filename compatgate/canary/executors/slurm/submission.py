"""Build the input of sbatch, quoted for every shell, and manage the folder of a job."""

from __future__ import annotations

import math
import os
import shlex
import shutil
from collections.abc import Iterator
from errno import ENOENT
from pathlib import Path

from compatgate.canary.executors import (
    Handle,
    Job,
    LineJoiner,
    check_name,
    make_command,
    make_environment,
)
from compatgate.canary.executors.slurm.commands import Stage, job_name, read_stage
from compatgate.canary.executors.slurm.containers import (
    SCRATCH,
    ContainerPlace,
    make_fetch_command,
    make_run_command,
)
from compatgate.canary.hosts import Slurm
from compatgate.canary.workloads.contents import write_files
from compatgate.errors import BadInput, CompatgateError, Conflict, InfrastructureError

_GRACE_S = 60
"""Margin over the workload's timeout: Slurm's limit matters only if no worker is left."""
_FETCH_S = 1800
_LOOK_S = 120


def make_sbatch_arguments(job: Job, slurm: Slurm, folder: str, seconds: int) -> list[str]:
    """Return the arguments of ``sbatch`` except the script, with Slurm's limit in seconds.

    The whole environment is passed on: it is the small one that the commands get.
    """
    workload = job.workload
    limits = workload.limits
    asked = [
        "--parsable",
        f"--job-name={job_name(job.run)}",
        # For people who look at the queue.
        f"--comment=compatgate run={job.run} attempt={job.attempt} step={check_name(job.step)}",
        f"--chdir={folder}",
        f"--output={folder}/{LOG}",
        "--open-mode=append",
        "--no-requeue",
        "--export=ALL",
        "--propagate=NONE",
        f"--nodes={workload.nodes}",
        f"--ntasks={workload.nodes}",
        "--ntasks-per-node=1",
        f"--time={math.ceil(seconds / 60)}",
        f"--mem={math.ceil(limits.memory / (1 << 20))}M",
    ]
    if limits.cpus:
        asked.append(f"--cpus-per-task={math.ceil(limits.cpus)}")
    if workload.gpus:
        if not slurm.gres:
            raise BadInput(
                f"the workload {workload.name} needs GPUs, but the host names no GRES",
                field="slurm.gres",
                hint='set gres, such as gres = "gpu:a100"',
            )
        asked.append(f"--gres={slurm.gres}:{workload.gpus}")
    for option in ("partition", "account", "qos", "constraint"):
        if value := getattr(slurm, option):
            asked.append(f"--{option}={value}")
    return [*asked, *slurm.extra]


def time_limit(job: Job, slurm: Slurm, *, looks: bool) -> int:
    """Return the seconds that a job may take, for when no worker is left to end it."""
    fetch = _FETCH_S if slurm.container in ("pyxis", "wrapper") else 0
    look = _LOOK_S if looks else 0
    return math.ceil(job.workload.timeout_s) + fetch + look + _GRACE_S


STAGE, OUTPUT, ERRORS, LOG = "stage", "output", "errors", "slurm.log"
"""Files in a job's folder: progress, output of the program, log of Slurm."""
MARK = "COMPATGATE_JOB"
"""Variable that every process of a program inherits."""


def make_batch_script(job: Job, slurm: Slurm, place: ContainerPlace, *, look: str = "") -> str:
    """Return the text of the script; ``look`` is a shell function that looks at the nodes' GPUs.

    The script stops at once if its folder is gone (the run was cleaned up) or was used before (the
    job was requeued). It stores the two streams separately, so that they do not cut into each
    other's lines, up to a limit; the rest is read and dropped. When the program has ended, the
    script ends the processes that it left behind, which it finds by their mark: not every process
    tracking of Slurm finds all of them.
    """
    bare, nodes, command = slurm.container == "none", job.workload.nodes, make_command(job)
    variables = make_environment(job, place.scratch if bare else SCRATCH, {MARK: place.name})
    program = ["env", *(f"{name}={value}" for name, value in variables.items()), *command]
    if nodes > 1:  # only the first node's output is read; the others would repeat the protocol
        program = ["sh", "-c", _RANK, "sh", *program]
    inside, mark = shlex.quote(place.files), shlex.quote(f"^{MARK}={place.name}$")
    room = 2 * job.workload.limits.output
    parts = [_HEAD.format(folder=shlex.quote(place.folder), room=room, mark=mark)]
    if slurm.commands:
        parts.append(f"export PATH={shlex.quote(slurm.commands)}:$PATH\n")
    if nodes > 1:
        parts.append(_NODES.format(nodes=nodes))
    if bare:
        parts.append(_CHECK.format(inside=inside, program=shlex.quote(command[0])))
    if fetch := make_fetch_command(slurm, place):
        parts.append(_FETCH.format(fetch=shlex.join(fetch)))
    before, after = ("look before\n", "look after\n") if look else ("", "")
    run = shlex.join(make_run_command(slurm, place, program, nodes))
    return "".join(
        [*parts, look, _RUN.format(inside=inside, program=run, before=before, after=after)]
    )


_HEAD = """\
#!/bin/bash
set -u
cd {folder} || exit 75
[ -s stage ] && exit 75
unset SLURM_JWT
umask 077
ulimit -c 0
room={room}
bounded() {{
    trap '' TERM
    stdbuf -o0 head -c "$room" >>"$1"
    exec cat >/dev/null
}}
leftovers() {{
    grep -lsz -- {mark} /proc/[0-9]*/environ | cut -d / -f 3
}}
"""
# Slurm's job number sets the port, so that two jobs of one node do not meet.
_NODES = """\
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
COMPATGATE_NODES={nodes}
export MASTER_ADDR MASTER_PORT COMPATGATE_NODES
"""
_CHECK = """\
if ! (cd {inside} && command -v -- {program} >/dev/null); then
    echo {program} is not there >&2
    echo missing >>stage
    exit 127
fi
"""
_FETCH = """\
{fetch} </dev/null >&2 || exit 76
"""
# TERM comes with a cancellation or at the time limit; KILL would follow after Slurm's KillWait.
_RUN = """\
{before}echo started >>stage
exec 3> >(bounded output)
out=$!
exec 4> >(exec 3>&-; bounded errors)
err=$!
(cd {inside} && exec {program}) >&3 2>&4 3>&- 4>&- </dev/null &
program=$!
stopped=
trap 'stopped=1; kill -KILL "$program"' TERM
wait "$program"
code=$?
exec 3>&- 4>&-
for pid in $(leftovers); do
    kill -KILL "$pid" 2>/dev/null
done
for _ in {{1..50}}; do
    kill -0 "$out" 2>/dev/null || kill -0 "$err" 2>/dev/null || break
    sleep 0.1
done
{after}[ -n "$stopped" ] || echo "ended $code" >>stage
exit "$code"
"""
_RANK = """\
export COMPATGATE_NODE="$SLURM_NODEID"
[ "$SLURM_NODEID" = 0 ] || exec >&2
exec "$@"
"""


_PIECE = 1 << 16
_STAGE = 4096


class WorkFolder:
    """The work directory of a host.

    The root is an absolute path, the same on the nodes.
    """

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def of(self, job: Job | Handle) -> Path:
        """Return the path of a job's folder, whether it exists or not."""
        return self._root / check_name(job.run) / f"{job.attempt}-{check_name(job.step)}"

    def make(self, job: Job) -> Path:
        """Create the folder, with the workload's files in it.

        Create the files that the node writes, too: over NFS a file that is known to be missing may
        stay missing for a minute, while an existing one is checked when it is opened.
        """
        folder = self.of(job)
        if not self._root.is_dir():
            raise make_folder_error(FileNotFoundError(ENOENT, os.strerror(ENOENT), str(self._root)))
        try:
            folder.mkdir(parents=True, mode=0o700)
            write_files(job.workload, folder / "files")
            (folder / "tmp").mkdir()
            for name in (STAGE, OUTPUT, ERRORS, LOG):
                (folder / name).touch(0o600)
        except FileExistsError:
            raise Conflict(f"{job.step} of {job.run} was started before", field="step") from None
        except OSError as error:
            raise make_folder_error(error) from None
        return folder

    def stage(self, job: Job | Handle) -> Stage:
        """Return how far the script came; the initial stage if there is no folder."""
        return read_stage(_read_piece(self.of(job) / STAGE, _STAGE).decode(errors="replace"))

    def log(self, job: Job | Handle, folder: Path | None = None) -> str:
        """Return the beginning of the log of Slurm and the container tools in a job's folder."""
        return _read_piece((folder or self.of(job)) / LOG, _PIECE).decode(errors="replace")

    def runs(self) -> set[str]:
        """Return the runs with folders."""
        try:
            return {entry.name for entry in os.scandir(self._root) if entry.is_dir()}
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise make_folder_error(error) from None

    def remove(self, run: str) -> int:
        """Remove the folders of a run; return the number of jobs."""
        folder = self._root / check_name(run)
        try:
            jobs = sum(1 for _ in folder.iterdir())
            shutil.rmtree(folder)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise make_folder_error(error) from None
        return jobs


class OutputFollower:
    """Reader of a program's output in whole lines, while the program runs."""

    def __init__(self, folder: Path) -> None:
        self._streams = {folder / name: LineJoiner() for name in (OUTPUT, ERRORS)}
        self._places = dict.fromkeys(self._streams, 0)

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole lines that came since the last call."""
        for path, stream in self._streams.items():
            while data := _read_piece(path, _PIECE, self._places[path]):
                self._places[path] += len(data)
                if lines := stream.feed(data):
                    yield lines

    def rest(self) -> Iterator[bytes]:
        """Yield all that is left after the last write; each stream's last line gets an end."""
        yield from self.pieces()
        rests = [bytes(stream.rest) for stream in self._streams.values() if stream.rest]
        if rests:
            yield b"\n".join(rests)


def find_last_line(log: str) -> str:
    """Return the last line of a log, without srun's line that a task ended."""
    lines = [" ".join(line.split()) for line in log.split("\n") if line.strip()]
    telling = [line for line in lines if not line.startswith("srun: ")]
    return (telling or lines or [""])[-1]


def _read_piece(path: Path, most: int, start: int = 0) -> bytes:
    """Read a piece of a file; open it each time, so that NFS shows what another machine wrote."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(most) or b""
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise make_folder_error(error) from None


def make_folder_error(error: OSError) -> CompatgateError:
    """Return the error for a work directory that this machine cannot use."""
    return InfrastructureError(
        f"the work directory cannot be used: {error.strerror} ({error.filename})",
        field="slurm.work",
        hint="share the directory with the nodes, and make the worker's user its owner",
    )
