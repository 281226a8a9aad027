"""The status of a step in an allocation that it shares with others."""

from __future__ import annotations

import pytest

from compatgate.canary.executors.slurm.allocation import make_hold_script
from compatgate.canary.executors.slurm.commands import Record, Stage, read_status
from compatgate.errors import InfrastructureError

NEW, BEGUN = Stage(), Stage(started=True)
OOM = "slurmstepd: error: Detected 1 oom-kill event(s) in step 7.batch cgroup."


def at(state: str, **fields: object) -> Record:
    return Record("compatgate-run_1", state, node="n1", **fields)  # type: ignore[arg-type]


CASES = [
    (at("PENDING", reason="Priority"), NEW, "", False, "waiting", "Slurm: Priority"),
    (at("RUNNING"), NEW, "", False, "waiting", "for its turn on n1"),
    (at("RUNNING"), BEGUN, "", False, "running", ""),
    (at("SUSPENDED"), BEGUN, "", False, "running", "suspended"),
    (at("RUNNING"), Stage(True, 3), "", False, "exited", ""),
    (at("RUNNING"), Stage(True, 137), OOM, False, "exited", "out of memory"),
    (at("RUNNING"), Stage(True, 137), "", False, "exited", ""),
    (at("OUT_OF_MEMORY"), BEGUN, "", False, "exited", "out of memory"),
    (at("CANCELLED"), BEGUN, "", True, "exited", "killed"),
    (at("COMPLETING"), BEGUN, "", True, "running", "Slurm is cleaning up after it"),
    (at("CANCELLED"), BEGUN, "", False, "lost", "(cancelled) while the step ran"),
    (at("COMPLETED"), NEW, "", False, "lost", "(completed) before the step began"),
    (at("TIMEOUT"), BEGUN, "", False, "lost", "(timeout) while the step ran"),
    (at("PREEMPTED"), BEGUN, "", False, "lost", "preempted it for another job"),
    (at("NODE_FAIL"), BEGUN, "", False, "lost", "the node n1 failed"),
    (at("RUNNING", restarts=1), BEGUN, "", False, "lost", "put the allocation back"),
    (None, BEGUN, "", False, "lost", "no longer knows the allocation"),
    (None, Stage(True, 0), "", False, "exited", ""),
]


def test_the_steps_own_record_decides_and_what_ends_the_allocation_says_nothing_of_it() -> None:
    for record, stage, log, killed, state, reason in CASES:
        found = read_status(record, stage, log, killed_here=killed, shared=True)
        assert (found.state, reason in found.reason) == (state, True), (record, stage, found)
    memory = read_status(at("RUNNING"), Stage(True, 137), OOM, shared=True)
    assert memory.oom_killed


def test_a_state_that_is_not_known_is_never_guessed() -> None:
    with pytest.raises(InfrastructureError, match="unknown state"):
        read_status(at("NEW_STATE"), BEGUN, shared=True)


def test_a_folder_with_any_name_is_one_word_of_the_script() -> None:
    assert "cd '/shared/a b' ||" in make_hold_script("/shared/a b", 60)
