"""Call Slurm's commands, parse their output, and translate Slurm's states into a job's status.

Sources: slurm_errno.c of Slurm, whose texts the commands print; squeue(1), "JOB STATE CODES" and
"JOB REASON CODES"; sacct(1).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from msgspec import Struct

from compatgate.canary.executors import Status, check_name
from compatgate.errors import BadInput, CompatgateError, InfrastructureError, NotFound

_TIMEOUT_S = 60
"""Longer than Slurm's own timeouts (``MessageTimeout``, and some retries)."""
_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "TZ", "SLURM_CONF", "SLURM_JWT")
"""Variables taken from the worker's environment; sbatch passes them on to the job."""
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
_ENDED_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY")
_KILLED = 137
_SLURM_EXIT_CODES = (143, _KILLED)
"""Exit codes that may come from Slurm or from the program; Slurm's state decides."""
_OUT_OF_MEMORY = re.compile(
    r"slurmstepd\S*: error: .*(?:exceeded (?:job|step)? ?memory limit|oom[-_]kill)", re.IGNORECASE
)


class Commands:
    """Slurm's commands on this machine.

    Without a folder they are on ``PATH``.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def submit(self, arguments: Sequence[str], script: str) -> str:
        """Submit a batch script, and return the job's number."""
        output = self._call("sbatch", *arguments, script)
        number = output.strip().splitlines()[-1].partition(";")[0] if output.strip() else ""
        if not number.isdecimal():
            raise InfrastructureError(
                f"sbatch printed no job number: {output[:128]!r}", field="host"
            )
        return number

    def look(self, number: str, run: str) -> Record | None:
        """Return a job as the controller knows it, else as accounting does; None if neither does.

        A controller that lost its state starts numbers again, so the name is checked as well.
        """
        done = self._run("scontrol", "--oneliner", "show", "job", number)
        if done.returncode == 0:
            result = read_scontrol(done.stdout)
        elif NO_JOB.search(done.stderr):
            fields = f"--format={','.join(SACCT_FIELDS)}"
            asked = ("--noheader", "--parsable2", "--allocations", f"--jobs={number}", fields)
            done = self._run("sacct", *asked)
            result = read_sacct(done.stdout) if done.returncode == 0 else None
        else:
            raise _unreachable_error(explain_command_error("scontrol", done.stderr))
        return result if result and result.name == job_name(run) else None

    def live(self, run: str) -> dict[str, str]:
        """Return number to state of the jobs of a run that Slurm has not finished."""
        output = self._ask_queue(f"--name={job_name(run)}", "--format=%A %T")
        return dict(line.split(maxsplit=1) for line in output.splitlines() if " " in line)

    def runs(self) -> set[str]:
        """Return the runs with jobs."""
        output = self._ask_queue("--format=%j")
        names = (line.strip() for line in output.splitlines())
        return {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}

    def cancel(self, numbers: Sequence[str]) -> None:
        """End jobs, waiting or running; no error for those that have ended."""
        done = self._run("scancel", *numbers)
        if done.returncode != 0 and not NO_JOB.search(done.stderr):
            raise _unreachable_error(explain_command_error("scancel", done.stderr))

    def _ask_queue(self, *arguments: str) -> str:
        try:
            return self._call("squeue", "--me", "--noheader", *arguments)
        except CompatgateError as error:
            raise _unreachable_error(error) from None

    def _call(self, command: str, *arguments: str) -> str:
        done = self._run(command, *arguments)
        if done.returncode != 0:
            raise explain_command_error(command, done.stderr)
        return done.stdout

    def _run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = shutil.which(command, path=self._folder or os.environ.get("PATH"))
        if program is None:
            where = self._folder or "PATH"
            raise CompatgateError(
                f"this machine has no {command} on {where}",
                field="slurm.commands",
                hint="run the worker where jobs are submitted, or set the folder of the commands",
            )
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
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
            raise InfrastructureError(f"{command} did not answer in {_TIMEOUT_S} s") from None
        except OSError as error:
            raise InfrastructureError(f"cannot run {program}: {error.strerror}") from None


def _unreachable_error(error: CompatgateError) -> CompatgateError:
    """Return an infrastructure error: a failed question is never the job's fault."""
    return error if isinstance(error, InfrastructureError) else InfrastructureError(error.problem)


SACCT_FIELDS = ("JobIDRaw", "JobName", "State", "ExitCode", "NodeList")
"""Fields of ``sacct --parsable2 --format``, in this order."""
_EXIT = re.compile(r"(\d+):(\d+)")


class Record(Struct, frozen=True):
    """A job as Slurm knows it: its base state (``NODE_FAIL``), and why it waits or ended.

    ``node`` is "" before it is placed; Slurm put it back into its queue ``restarts`` times.
    """

    name: str
    state: str
    reason: str = ""
    exit_code: int = 0
    signal: int = 0
    node: str = ""
    restarts: int = 0


def read_scontrol(text: str) -> Record | None:
    """Parse ``scontrol --oneliner show job``, in the form that it has had since Slurm 2.

    Return None if the text contains no job. ``--json`` came late, is missing if Slurm was built
    without it, and changed between releases. Free text (comment, paths) comes after the fields that
    are read.
    """
    if not text.startswith("JobId="):
        return None
    exit_code, signal = _parse_exit(_field(text, "ExitCode"))
    return Record(
        name=_field(text, "JobName"),
        state=_field(text, "JobState").partition("+")[0],
        reason=_clean_value(_field(text, "Reason")),
        exit_code=exit_code,
        signal=signal,
        node=_clean_value(_field(text, "NodeList")),
        restarts=int(restarts) if (restarts := _field(text, "Restarts")).isdecimal() else 0,
    )


def read_sacct(text: str) -> Record | None:
    """Parse the last line of ``sacct --parsable2 --noheader --allocations`` with `SACCT_FIELDS`.

    ``CANCELLED by 1000`` names the user.
    """
    lines = [line.split("|") for line in text.splitlines() if "|" in line]
    if not lines or len(lines[-1]) != len(SACCT_FIELDS):
        return None
    _, name, state, exit_text, node = lines[-1]
    exit_code, signal = _parse_exit(exit_text)
    word, _, by = state.partition(" ")
    return Record(
        name=name,
        state=word,
        reason=by,
        exit_code=exit_code,
        signal=signal,
        node=_clean_value(node),
    )


def _field(text: str, name: str) -> str:
    result = re.search(rf"(?:^| ){name}=(\S*)", text)
    return result[1] if result else ""


def _clean_value(value: str) -> str:
    return "" if value in ("None", "(null)", "N/A", "None assigned", "Unknown") else value


def _parse_exit(text: str) -> tuple[int, int]:
    result = _EXIT.fullmatch(text)
    return (int(result[1]), int(result[2])) if result else (0, 0)


_REFUSALS = (
    (r"invalid partition", "partition", "see 'sinfo' for its partitions"),
    (r"invalid account|account/partition combination", "account", "see 'sacctmgr show assoc'"),
    (r"invalid qos", "qos", "see 'sacctmgr show qos'"),
    (r"invalid (?:generic resource|gres)|invalid tres", "gres", "see 'sinfo -o %G' for its GRES"),
    (r"invalid feature|invalid constraint", "constraint", "see 'sinfo -o %f' for its features"),
    (r"not permitted to use this partition|not allowed to use this partition", "partition", ""),
    (
        r"requested node configuration is not available|node count specification invalid"
        r"|more processors requested than permitted|memory specification can not be satisfied",
        "host",
        "no node of the partition has enough GPUs, cores or memory",
    ),
    (r"requested time limit is invalid|time limit specification", "timeout", ""),
    (r"unrecognized option|invalid option|unknown option", "extra", ""),
    (r"requested reservation is invalid|reservation .*invalid", "extra", "see 'scontrol show res'"),
    (r"access/permission denied", "host", "the worker's user may not do this in Slurm"),
)
NO_JOB = re.compile(r"invalid job id specified", re.IGNORECASE)


def explain_command_error(command: str, output: str) -> CompatgateError:
    """Return the error for a command that failed.

    An error that is not known to be permanent may pass: the controller is down, a job limit is
    reached, munge does not answer.
    """
    what = " ".join(re.sub(rf"^{command}: (?:error: )?", "", line) for line in output.splitlines())
    what = " ".join(what.split())[-512:] or "no message"
    for pattern, field, hint in _REFUSALS:
        if re.search(pattern, what, re.IGNORECASE):
            return BadInput(f"Slurm refuses the job: {what}", field=field, hint=hint)
    return InfrastructureError(f"{command} failed: {what}", field="host")


PREFIX = "compatgate-"


def job_name(run: str) -> str:
    """Return the name of every job of a run; Slurm finds and cancels jobs by it."""
    return PREFIX + check_name(run)


class Stage(Struct, frozen=True):
    """Progress of the batch script, from its own records: first it fetches the image.

    The exit code is None if it has not seen the program's end; ``missing``: the node lacks it.
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
    record: Record | None,
    stage: Stage,
    log: str = "",
    *,
    killed_here: bool = False,
    shared: bool = False,
) -> Status:
    """Return the status of a job, or of a step in an allocation that it ``shared`` with others.

    ``record`` is None where neither controller nor accounting knows the job; Slurm and container
    tools write ``log``, the program does not. In an allocation the step's own records decide, and
    what ends the allocation says nothing about the step.
    """
    code, job = stage.exit_code, "the allocation" if shared else "the job"
    if shared and code is not None and not (killed_here and code >= _KILLED):
        return _exited(code, log)
    if record is None:
        if code is not None and not shared:
            return Status("exited", code, reason="Slurm has no record of the job")
        return Status("lost", reason=f"Slurm no longer knows {job}")
    if record.restarts:
        return Status("lost", reason=f"Slurm put {job} back into its queue, to run it again")
    state, own_end = record.state, code is not None and code not in _SLURM_EXIT_CODES
    if state == "CONFIGURING":
        return Status("waiting", reason=f"Slurm: the node {record.node} is being prepared")
    if state in WAITING_STATES:
        return Status("waiting", reason=f"Slurm: {record.reason or state.lower()}")
    if state in RUNNING_STATES:
        if stage.started:
            return Status("running", reason="suspended" if state == "SUSPENDED" else "")
        doing = "for its turn" if shared else "fetching its image"
        return Status("waiting", reason=f"{doing} on {record.node}")
    if state == "COMPLETING":
        if own_end:
            return Status("exited", code)
        return Status("running", reason="Slurm is cleaning up after it")
    if killed_here and (shared or state == "CANCELLED"):
        return Status("exited", _KILLED if shared else _exit_code(record), reason="killed")
    if reason := LOST_REASONS.get(state):
        return Status("lost", reason=reason.format(node=record.node or "?"))
    if state not in _ENDED_STATES:
        raise InfrastructureError(f"Slurm reports an unknown state: {state!r}")
    if state == "OUT_OF_MEMORY" and (stage.started or not shared):
        code = _KILLED if shared else _exit_code(record)
        return Status("exited", code, oom_killed=True, reason="out of memory")
    if shared:
        when = "while the step ran" if stage.started else "before the step began"
        return Status("lost", reason=f"its allocation ended ({state.lower()}) {when}")
    if state == "TIMEOUT" and own_end:
        return Status("exited", code)
    return _read_end(record, stage, log)


def _read_end(record: Record, stage: Stage, log: str) -> Status:
    if record.state == "CANCELLED":
        by = f" {record.reason}" if record.reason.startswith("by ") else ""
        return Status("lost", reason=f"it was cancelled in Slurm{by}")
    if record.state == "TIMEOUT":
        if stage.started:
            return Status("timeout", reason="Slurm ended it at its time limit")
        return Status("lost", reason="its time limit was used up before the program began")
    code = _exit_code(record) if stage.exit_code is None else stage.exit_code
    ended = _exited(code, log)
    if ended.oom_killed or stage.started or record.state == "COMPLETED":
        return ended
    why = f" ({record.reason})" if record.reason else ""
    if record.reason == "JobLaunchFailure" and not log:
        why = " (JobLaunchFailure: the node may not see the work directory)"
    return Status("lost", reason=f"it ended on {record.node or '?'} before the program began{why}")


def _exited(code: int, log: str) -> Status:
    # Some sites have Slurm poll memory instead of a kernel limit; then only Slurm's log shows it.
    if code == _KILLED and _OUT_OF_MEMORY.search(log):
        return Status("exited", code, oom_killed=True, reason="out of memory")
    return Status("exited", code)


def find_refusal(record: Record | None, stage: Stage, output: str) -> CompatgateError | None:
    """Return why every attempt would fail; None if another may succeed, or nothing is wrong."""
    if stage.missing:
        where = record.node if record else "the node"
        return NotFound(f"{where} cannot run the workload's command: {output}", field="command")
    if record and record.state == "PENDING" and (why := REFUSAL_REASONS.get(record.reason)):
        return BadInput(f"Slurm will never run the job: {why} ({record.reason})", field="host")
    return None


def _exit_code(record: Record) -> int:
    """Return the exit code as shells count: above 128 a signal."""
    return 128 + record.signal if record.signal else record.exit_code
