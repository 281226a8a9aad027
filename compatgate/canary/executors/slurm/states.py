"""Translate Slurm's states into a job's status. Pure.

Source: squeue(1), "JOB STATE CODES" and "JOB REASON CODES"; sacct(1).
"""

from __future__ import annotations

import re

from msgspec import Struct

from compatgate.canary.executors.interface import Status
from compatgate.canary.executors.slurm.commands import Record
from compatgate.errors import BadInput, CompatgateError, Infrastructure, NotFound

NEVER = {
    "BadConstraints": "no node meets the constraints of the job",
    "PartitionTimeLimit": "the partition allows less time than the workload's timeout asks for",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the QOS is not valid",
    "AccountNotAllowed": "the partition does not admit the account",
    "QOSNotAllowed": "the partition or the account does not admit the QOS",
}
"""Reasons for waiting that no waiting mends, and what they mean."""
WAITING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUE_HOLD", "REQUEUED", "REQUEUE_FED", "RESV_DEL_HOLD"}
)
RUNNING = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
LOST = {
    "NODE_FAIL": "the node {node} failed",
    "BOOT_FAIL": "the node {node} did not boot",
    "PREEMPTED": "Slurm preempted it for another job",
    "DEADLINE": "Slurm ended it at its deadline",
    "REVOKED": "another cluster of the federation took it",
    "SPECIAL_EXIT": "Slurm put it aside (special exit)",
    "LAUNCH_FAILED": "Slurm could not launch it on {node}",
    "RECONFIG_FAIL": "the node {node} could not be configured",
    "EXPIRED": "Slurm gave it up",
}
"""States that say nothing about the program."""
_KILLED = 137
_BY_SLURM = (143, _KILLED)
"""Exit codes that a program may have got from Slurm; its word says which."""
_OUT_OF_MEMORY = re.compile(
    r"slurmstepd\S*: error: .*(?:exceeded (?:job|step)? ?memory limit|oom[-_]kill)", re.IGNORECASE
)


class Stage(Struct, frozen=True):
    """How far the batch script came, as it wrote itself.

    Attributes:
        started: the program was started; before, its image was fetched.
        exit_code: of the program; None: it has not ended, or not in sight of the script.
        missing: the node has not what the command calls.
    """

    started: bool = False
    exit_code: int | None = None
    missing: bool = False


def read_stage(text: str) -> Stage:
    """Return the lines that the script writes; the last may be cut off."""
    lines = text.split("\n")[:-1]
    ended = [line.removeprefix("ended ") for line in lines if line.startswith("ended ")]
    code = int(ended[-1]) if ended and ended[-1].isdecimal() else None
    return Stage("started" in lines, code, "missing" in lines)


def read_status(
    record: Record | None, stage: Stage, log: str = "", *, killed_here: bool = False
) -> Status:
    """Return how a job stands.

    Args:
        record: None: neither controller nor accounting knows the job any more.
        stage: from the job's folder.
        log: of Slurm and of container tools; the program does not write there.
        killed_here: this worker cancelled it.

    Raises:
        Infrastructure: a state that is not known.
    """
    if record is None:
        if stage.exit_code is not None:
            return Status("exited", stage.exit_code, reason="Slurm has forgotten the job")
        return Status("lost", reason="Slurm does not know the job any more")
    if record.restarts:
        return Status("lost", reason="Slurm put the job back into its queue and ran it again")
    match record.state:
        case state if state in WAITING:
            return Status("waiting", reason=f"Slurm: {_waits(record)}")
        case state if state in RUNNING:
            if stage.started:
                return Status("running", reason="suspended" if state == "SUSPENDED" else "")
            return Status("waiting", reason=f"its image is fetched on {record.node}")
        case "COMPLETING":
            return _completing(stage)
        case "COMPLETED" | "FAILED":
            return _ended(record, stage, log)
        case "OUT_OF_MEMORY":
            return Status("exited", _code(record), oom_killed=True, reason="out of memory")
        case "TIMEOUT":
            return _out_of_time(stage)
        case "CANCELLED":
            return _cancelled(record, killed_here=killed_here)
    if said := LOST.get(record.state):
        return Status("lost", reason=said.format(node=record.node or "?"))
    raise Infrastructure(f"Slurm says a state that is not known: {record.state!r}")


def find_refusal(record: Record | None, stage: Stage, said: str) -> CompatgateError | None:
    """Return why another attempt would not end otherwise; None where it may, or nothing is wrong.

    Args:
        record: of the job.
        stage: from its folder.
        said: the last line of its log.
    """
    if stage.missing:
        where = record.node if record else "the node"
        return NotFound(f"{where} cannot run the workload's command: {said}", field="command")
    if record and record.state == "PENDING" and (why := NEVER.get(record.reason)):
        return BadInput(f"Slurm will never run the job: {why} ({record.reason})", field="host")
    return None


def _waits(record: Record) -> str:
    if record.state == "CONFIGURING":
        return f"the node {record.node} is made ready"
    return record.reason or record.state.lower()


def _completing(stage: Stage) -> Status:
    """The program has ended, the node is cleaned up; only Slurm's last word tells of memory."""
    if stage.exit_code is not None and stage.exit_code not in _BY_SLURM:
        return Status("exited", stage.exit_code)
    return Status("running", reason="Slurm is cleaning up after it")


def _ended(record: Record, stage: Stage, log: str) -> Status:
    code = _code(record) if stage.exit_code is None else stage.exit_code
    if code == _KILLED and _OUT_OF_MEMORY.search(log):
        # Where Slurm polls memory instead of having the kernel limit it, only its log says so.
        return Status("exited", code, oom_killed=True, reason="out of memory")
    if stage.started or record.state == "COMPLETED":
        return Status("exited", code)
    why = f" ({record.reason})" if record.reason else ""
    if record.reason == "JobLaunchFailure" and not log:
        why = " (JobLaunchFailure: it may not see the work directory)"
    return Status("lost", reason=f"it ended on {record.node or '?'} before the program began{why}")


def _out_of_time(stage: Stage) -> Status:
    if stage.exit_code is not None and stage.exit_code not in _BY_SLURM:
        return Status("exited", stage.exit_code)
    if stage.started:
        return Status("timeout", reason="Slurm ended it at its time limit")
    return Status("lost", reason="its time limit was used up before the program began")


def _cancelled(record: Record, *, killed_here: bool) -> Status:
    if killed_here:
        return Status("exited", _code(record), reason="killed")
    by = f" {record.reason}" if record.reason.startswith("by ") else ""
    return Status("lost", reason=f"it was cancelled in Slurm{by}")


def _code(record: Record) -> int:
    """As shells count: above 128 a signal."""
    return 128 + record.signal if record.signal else record.exit_code
