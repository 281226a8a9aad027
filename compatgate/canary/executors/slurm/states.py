"""Translate Slurm's states into a job's status. Pure.

Source: squeue(1), "JOB STATE CODES" and "JOB REASON CODES"; sacct(1).
"""

from __future__ import annotations

import re

from msgspec import Struct

from compatgate.canary.executors.jobs import Status
from compatgate.canary.executors.slurm.commands import Record
from compatgate.errors import BadInput, CompatgateError, InfrastructureError, NotFound

REFUSAL_REASONS = {
    "BadConstraints": "no node meets the constraints of the job",
    "PartitionTimeLimit": "the partition allows less time than the workload's timeout",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the QOS is not valid",
    "AccountNotAllowed": "the partition does not admit the account",
    "QOSNotAllowed": "the partition or the account does not admit the QOS",
}
"""Reasons for waiting that never pass, with their meaning."""
WAITING_STATES = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUE_HOLD", "REQUEUED", "REQUEUE_FED", "RESV_DEL_HOLD"}
)
RUNNING_STATES = frozenset(
    {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
LOST_REASONS = {
    "NODE_FAIL": "the node {node} failed",
    "BOOT_FAIL": "the node {node} did not boot",
    "PREEMPTED": "Slurm preempted it for another job",
    "DEADLINE": "Slurm ended it at its deadline",
    "REVOKED": "another cluster of the federation took it",
    "SPECIAL_EXIT": "Slurm held it (special exit)",
    "LAUNCH_FAILED": "Slurm could not launch it on {node}",
    "RECONFIG_FAIL": "the node {node} could not be configured",
    "EXPIRED": "Slurm let it expire",
}
"""States that say nothing about the program."""
_KILLED = 137
_SLURM_EXIT_CODES = (143, _KILLED)
"""Exit codes that may come from Slurm or from the program; Slurm's state decides."""
_OUT_OF_MEMORY = re.compile(
    r"slurmstepd\S*: error: .*(?:exceeded (?:job|step)? ?memory limit|oom[-_]kill)", re.IGNORECASE
)


class Stage(Struct, frozen=True):
    """Progress of the batch script, from its own records.

    Attributes:
        started: the program was started; before that, its image is fetched.
        exit_code: exit code of the program; None if the script has not seen its end.
        missing: the node does not have the program of the command.
    """

    started: bool = False
    exit_code: int | None = None
    missing: bool = False


def read_stage(text: str) -> Stage:
    """Parse the lines that the script writes; the last may be cut off."""
    lines = text.split("\n")[:-1]
    ended = [line.removeprefix("ended ") for line in lines if line.startswith("ended ")]
    code = int(ended[-1]) if ended and ended[-1].isdecimal() else None
    return Stage("started" in lines, code, "missing" in lines)


def read_status(
    record: Record | None, stage: Stage, log: str = "", *, killed_here: bool = False
) -> Status:
    """Return the status of a job.

    ``record`` is None where neither controller nor accounting knows the job; Slurm and container
    tools write ``log``, the program does not.
    """
    if record is None:
        if stage.exit_code is not None:
            return Status("exited", stage.exit_code, reason="Slurm has no record of the job")
        return Status("lost", reason="Slurm no longer knows the job")
    if record.restarts:
        return Status("lost", reason="Slurm put the job back into its queue and ran it again")
    match record.state:
        case state if state in WAITING_STATES:
            return Status("waiting", reason=f"Slurm: {waiting_reason(record)}")
        case state if state in RUNNING_STATES:
            if stage.started:
                return Status("running", reason="suspended" if state == "SUSPENDED" else "")
            return Status("waiting", reason=f"fetching its image on {record.node}")
        case "COMPLETING":
            if stage.exit_code is not None and stage.exit_code not in _SLURM_EXIT_CODES:
                return Status("exited", stage.exit_code)
            return Status("running", reason="Slurm is cleaning up after it")
        case "COMPLETED" | "FAILED":
            return _ended_status(record, stage, log)
        case "OUT_OF_MEMORY":
            return Status("exited", _exit_code(record), oom_killed=True, reason="out of memory")
        case "TIMEOUT":
            if stage.exit_code is not None and stage.exit_code not in _SLURM_EXIT_CODES:
                return Status("exited", stage.exit_code)
            if stage.started:
                return Status("timeout", reason="Slurm ended it at its time limit")
            return Status("lost", reason="its time limit was used up before the program began")
        case "CANCELLED":
            if killed_here:
                return Status("exited", _exit_code(record), reason="killed")
            by = f" {record.reason}" if record.reason.startswith("by ") else ""
            return Status("lost", reason=f"it was cancelled in Slurm{by}")
    if reason := LOST_REASONS.get(record.state):
        return Status("lost", reason=reason.format(node=record.node or "?"))
    raise InfrastructureError(f"Slurm reports an unknown state: {record.state!r}")


def find_refusal(record: Record | None, stage: Stage, output: str) -> CompatgateError | None:
    """Return why every attempt would fail; None if another may succeed, or nothing is wrong."""
    if stage.missing:
        where = record.node if record else "the node"
        return NotFound(f"{where} cannot run the workload's command: {output}", field="command")
    if record and record.state == "PENDING" and (why := REFUSAL_REASONS.get(record.reason)):
        return BadInput(f"Slurm will never run the job: {why} ({record.reason})", field="host")
    return None


def is_out_of_memory(log: str) -> bool:
    """Return whether a log of Slurm says that a limit of memory was exceeded."""
    return _OUT_OF_MEMORY.search(log) is not None


def waiting_reason(record: Record) -> str:
    """Return why a job waits, in Slurm's words."""
    if record.state == "CONFIGURING":
        return f"the node {record.node} is being prepared"
    return record.reason or record.state.lower()


def _ended_status(record: Record, stage: Stage, log: str) -> Status:
    code = _exit_code(record) if stage.exit_code is None else stage.exit_code
    if code == _KILLED and is_out_of_memory(log):
        # Some sites have Slurm poll memory instead of a kernel limit; then only Slurm's log shows
        # it.
        return Status("exited", code, oom_killed=True, reason="out of memory")
    if stage.started or record.state == "COMPLETED":
        return Status("exited", code)
    why = f" ({record.reason})" if record.reason else ""
    if record.reason == "JobLaunchFailure" and not log:
        why = " (JobLaunchFailure: the node may not see the work directory)"
    return Status("lost", reason=f"it ended on {record.node or '?'} before the program began{why}")


def _exit_code(record: Record) -> int:
    """Return the exit code as shells count: above 128 a signal."""
    return 128 + record.signal if record.signal else record.exit_code
