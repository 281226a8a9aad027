"""Build what sbatch is given: names, arguments and the batch script of a job. Pure.

Options travel in an argument vector, without ``#SBATCH`` lines and without a shell. Everything that
is put into the script is quoted for the shell.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from msgspec import Struct

from compatgate.canary.executors.interface import Handle, Job
from compatgate.canary.executors.jobs import check_name
from compatgate.canary.hosts import Slurm
from compatgate.errors import BadInput

PREFIX = "compatgate-"


def job_name(run: str) -> str:
    """Return the name of every job of a run: Slurm finds and cancels jobs by it."""
    return PREFIX + check_name(run)


def job_comment(job: Job) -> str:
    """For people who look at the queue."""
    return f"compatgate run={check_name(job.run)} attempt={job.attempt} step={check_name(job.step)}"


def folder_name(job: Job | Handle) -> str:
    """Return the folder of a job below that of its run."""
    return f"{job.attempt}-{check_name(job.step)}"


_GRACE_S = 60
"""The engine ends a job at the workload's timeout; Slurm's limit is for when no worker is left."""
_FETCH_S = 1800


def sbatch_arguments(job: Job, slurm: Slurm, folder: str) -> list[str]:
    """Return the arguments of ``sbatch`` but the script.

    The environment is handed on whole: it is the small one that the commands are called with.

    Args:
        job: what is run.
        slurm: of the host.
        folder: of the job.

    Raises:
        BadInput: it needs GPUs, and the host does not say which GRES they are.
    """
    workload = job.workload
    limits = workload.limits
    asked = [
        "--parsable",
        f"--job-name={job_name(job.run)}",
        f"--comment={job_comment(job)}",
        f"--chdir={folder}",
        f"--output={folder}/{LOG}",
        "--open-mode=append",
        "--no-requeue",
        "--export=ALL",
        "--propagate=NONE",
        f"--nodes={workload.nodes}",
        f"--ntasks={workload.nodes}",
        "--ntasks-per-node=1",
        f"--time={_minutes(job, slurm)}",
        f"--mem={math.ceil(limits.memory / (1 << 20))}M",
    ]
    if limits.cpus:
        asked.append(f"--cpus-per-task={math.ceil(limits.cpus)}")
    if workload.gpus:
        if not slurm.gres:
            raise BadInput(
                f"the workload {workload.name} needs GPUs, and the host names no GRES",
                field="slurm.gres",
                hint='like gres = "gpu:a100"',
            )
        asked.append(f"--gres={slurm.gres}:{workload.gpus}")
    for option in ("partition", "account", "qos", "constraint"):
        if value := getattr(slurm, option):
            asked.append(f"--{option}={value}")
    return [*asked, *slurm.extra]


def _minutes(job: Job, slurm: Slurm) -> int:
    fetch = _FETCH_S if slurm.container in ("pyxis", "wrapper") else 0
    return math.ceil((job.workload.timeout_s + fetch + _GRACE_S) / 60)


STAGE, OUTPUT, ERRORS, LOG = "stage", "output", "errors", "slurm.log"
"""Files in a job's folder: how far it came, what the program printed, what Slurm said."""

MARK = "COMPATGATE_JOB"
"""Variable that everything that a program starts inherits."""


class ScriptPlan(Struct, frozen=True):
    """What a script does.

    Attributes:
        folder: of the job, on every node.
        mark: of the job; its program carries it as `MARK`.
        inside: where the program is called.
        fetch: has the image on the node; () for nothing.
        program: the whole argument vector.
        wanted: looked for on the node before it is called; None: a container has it.
        room: bytes of each of the two streams that are kept.
        nodes: how many the job has.
        commands: folder of Slurm's commands; None: they are on the node's ``PATH``.
    """

    folder: str
    mark: str
    inside: str
    program: Sequence[str]
    room: int
    fetch: Sequence[str] = ()
    wanted: str | None = None
    nodes: int = 1
    commands: str | None = None


def batch_script(plan: ScriptPlan) -> str:
    """Return the text of the script.

    It stops at once where its folder is gone (the run was cleaned up while the job was on its way)
    or was used before (somebody requeued it). The program's streams are kept apart, so that they
    do not cut into each other's lines, and bounded; what comes beyond is read and dropped. Once
    the program has ended the script does, and with it Slurm ends what the program left behind; not
    every way in which Slurm tracks processes finds all of them, so the script looks for the mark.
    """
    parts = [
        _HEAD.format(
            folder=shlex.quote(plan.folder),
            room=plan.room,
            mark=shlex.quote(f"^{MARK}={plan.mark}$"),
        )
    ]
    if plan.commands:
        parts.append(f"export PATH={shlex.quote(plan.commands)}:$PATH\n")
    if plan.nodes > 1:
        parts.append(_NODES.format(nodes=plan.nodes))
    inside = shlex.quote(plan.inside)
    if plan.wanted:
        parts.append(_WANTED.format(inside=inside, program=shlex.quote(plan.wanted)))
    if plan.fetch:
        parts.append(_FETCH.format(fetch=shlex.join(plan.fetch)))
    parts.append(_RUN.format(inside=inside, program=shlex.join(plan.program)))
    return "".join(parts)


def on_every_node(program: Sequence[str]) -> list[str]:
    """Return a program that knows which of the nodes it is on; only the first one's output is read.

    The others' lines go to the log: they would be the same protocol over again.
    """
    return ["sh", "-c", _RANK, "sh", *program]


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
# Slurm's number makes the port: two jobs of one node do not meet.
_NODES = """\
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
COMPATGATE_NODES={nodes}
export MASTER_ADDR MASTER_PORT COMPATGATE_NODES
"""
_WANTED = """\
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
echo started >>stage
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
[ -n "$stopped" ] || echo "ended $code" >>stage
exit "$code"
"""
_RANK = """\
export COMPATGATE_NODE="$SLURM_NODEID"
[ "$SLURM_NODEID" = 0 ] || exec >&2
exec "$@"
"""
