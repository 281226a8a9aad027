"""What Slurm says of a job, and what that means for a run."""

from __future__ import annotations

import pytest

from compatgate.canary.executors import Status
from compatgate.canary.executors.slurm.commands import (
    Record,
    Stage,
    find_refusal,
    read_sacct,
    read_scontrol,
    read_stage,
    read_status,
)
from compatgate.canary.executors.slurm.submission import find_last_line
from compatgate.errors import BadInput, InfrastructureError, NotFound

SCONTROL = (
    "JobId=7 JobName=compatgate-run_1 UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 "
    "Nice=0 Account=(null) QOS=(null) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) "
    "Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=3:0 RunTime=00:00:02 NodeList=n1 "
    "BatchHost=n1 Comment=compatgate JobState=COMPLETED ExitCode=0:0 "
)
BEFORE, BEGUN = Stage(), Stage(started=True)


def ended(code: int) -> Stage:
    return Stage(started=True, exit_code=code)


def test_a_job_is_read_from_scontrol_and_free_text_cannot_pose_as_its_state() -> None:
    assert read_scontrol(SCONTROL) == Record(
        "compatgate-run_1", "FAILED", "NonZeroExitCode", exit_code=3, node="n1"
    )
    assert read_scontrol("No jobs in the system\n") is None


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("7|a|COMPLETED|0:0|n1", Record("a", "COMPLETED", node="n1")),
        ("7|a|CANCELLED by 1000|0:9|n1", Record("a", "CANCELLED", "by 1000", 0, 9, "n1")),
        ("7|a|NODE_FAIL|1:0|None assigned", Record("a", "NODE_FAIL", exit_code=1)),
        ("", None),
        ("half a line", None),
    ],
)
def test_a_job_is_read_from_accounting(line: str, record: Record | None) -> None:
    assert read_sacct(line + "\n") == record


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("", BEFORE),
        ("started\n", BEGUN),
        ("started\nended 0\n", ended(0)),
        ("started\nended 13", BEGUN),  # the number may be cut off
        ("missing\n", Stage(missing=True)),
        ("nonsense\n", BEFORE),
    ],
)
def test_the_script_says_how_far_it_came(text: str, stage: Stage) -> None:
    assert read_stage(text) == stage


@pytest.mark.parametrize(
    ("state", "stage", "state_here"),
    [
        ("PENDING", BEFORE, "waiting"),
        ("CONFIGURING", BEFORE, "waiting"),
        ("REQUEUED", BEFORE, "waiting"),
        ("RUNNING", BEFORE, "waiting"),
        ("RUNNING", BEGUN, "running"),
        ("RUNNING", ended(0), "running"),
        ("SUSPENDED", BEGUN, "running"),
        ("COMPLETING", BEGUN, "running"),
        ("COMPLETING", ended(0), "exited"),
        ("COMPLETING", ended(137), "running"),
        ("COMPLETED", ended(0), "exited"),
        ("COMPLETED", BEGUN, "exited"),
        ("FAILED", ended(3), "exited"),
        ("FAILED", BEGUN, "exited"),
        ("FAILED", BEFORE, "lost"),
        ("OUT_OF_MEMORY", BEGUN, "exited"),
        ("TIMEOUT", BEGUN, "timeout"),
        ("TIMEOUT", ended(143), "timeout"),
        ("TIMEOUT", ended(0), "exited"),
        ("TIMEOUT", BEFORE, "lost"),
        ("CANCELLED", BEGUN, "lost"),
        ("NODE_FAIL", BEGUN, "lost"),
        ("NODE_FAIL", ended(0), "lost"),
        ("BOOT_FAIL", BEFORE, "lost"),
        ("PREEMPTED", BEGUN, "lost"),
        ("DEADLINE", BEGUN, "lost"),
        ("REVOKED", BEFORE, "lost"),
        ("LAUNCH_FAILED", BEFORE, "lost"),
        ("SPECIAL_EXIT", BEFORE, "lost"),
    ],
)
def test_each_state_of_slurm_is_one_of_ours(state: str, stage: Stage, state_here: str) -> None:
    status = read_status(Record("a", state, node="n1"), stage)
    assert status.state == state_here
    assert status.reason or status.state in ("running", "exited")


def test_a_state_that_is_not_known_is_never_guessed() -> None:
    with pytest.raises(InfrastructureError, match="'BLESSED'"):
        read_status(Record("a", "BLESSED"), ended(0))


@pytest.mark.parametrize(
    ("record", "stage", "code"),
    [
        (Record("a", "FAILED", exit_code=3), BEGUN, 3),
        (Record("a", "FAILED", signal=11), BEGUN, 139),
        (Record("a", "FAILED", exit_code=1), ended(77), 77),
        (None, ended(5), 5),
    ],
)
def test_the_exit_code_is_the_programs(record: Record | None, stage: Stage, code: int) -> None:
    assert read_status(record, stage).exit_code == code


def test_memory_is_seen_in_the_state_or_in_slurms_log_and_never_from_the_code_alone() -> None:
    killed = Record("a", "FAILED", signal=9)
    log = "slurmstepd-n1: error: StepId=1.batch exceeded memory limit (4 > 1), being killed\n"
    assert read_status(Record("a", "OUT_OF_MEMORY"), BEGUN).oom_killed
    assert read_status(killed, BEGUN, log) == Status("exited", 137, True, "out of memory")
    assert not read_status(killed, BEGUN).oom_killed
    assert not read_status(Record("a", "FAILED", exit_code=3), ended(3), log).oom_killed


def test_the_last_words_are_those_of_who_knows_why() -> None:
    log = "slurmstepd: error: pyxis: no such image\nsrun: error: n1: task 0: Exited with 1\n\n"
    assert find_last_line(log) == "slurmstepd: error: pyxis: no such image"
    assert find_last_line("srun: error: alone\n") == "srun: error: alone"
    assert find_last_line("") == ""


def test_a_job_that_slurm_ran_twice_is_not_believed() -> None:
    assert read_status(Record("a", "COMPLETED", restarts=1), ended(0)).state == "lost"


def test_a_job_that_nobody_knows_and_that_wrote_no_end_is_lost() -> None:
    assert read_status(None, BEGUN).state == "lost"


def test_a_cancellation_is_told_apart_by_whose_it_was() -> None:
    cancelled = Record("a", "CANCELLED", "by 1000")
    assert read_status(cancelled, BEGUN, killed_here=True).state == "exited"
    assert read_status(cancelled, BEGUN).reason == "it was cancelled in Slurm by 1000"


@pytest.mark.parametrize(
    ("record", "stage", "error"),
    [
        (Record("a", "PENDING", "PartitionTimeLimit"), BEFORE, BadInput),
        (Record("a", "PENDING", "InvalidQOS"), BEFORE, BadInput),
        (Record("a", "FAILED", node="n1"), Stage(missing=True), NotFound),
        (Record("a", "PENDING", "Resources"), BEFORE, None),
        (Record("a", "PENDING", "ReqNodeNotAvail"), BEFORE, None),
        (Record("a", "FAILED"), ended(1), None),
        (None, BEFORE, None),
    ],
)
def test_what_another_attempt_would_not_mend_is_an_error(
    record: Record | None, stage: Stage, error: type[Exception] | None
) -> None:
    found = find_refusal(record, stage, "it is not there")
    assert found is None if error is None else isinstance(found, error)
