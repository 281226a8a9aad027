"""Workers that are killed at every point of a run: nothing is lost, and nothing is left behind."""

from __future__ import annotations

import signal

import pytest
from engines import PYTHON, Engine
from staging import GOOD, HANGS, Staging, until

QUEUE = "compatgate.service.runs.queue.queue:DatabaseQueue"
DOCKER = "compatgate.canary.executors.docker:DockerExecutor"
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def kill_after(staging: Staging, call: str) -> str:
    """A run whose worker is killed after a call; its id."""
    staging.workload("good", GOOD)
    run = staging.submit("good")
    with staging.worker(dies_after=call) as worker:
        assert worker.wait(60) == -signal.SIGKILL
    return run


def assert_ends_well(staging: Staging, engine: Engine, run: str, attempts: int = 2) -> None:
    staging.work_until_ended(run)
    found = staging.run(run)
    assert (found.state, found.attempts) == ("passed", attempts), found.reason
    assert engine.left_of(run) == []
    assert [kept.run for kept in staging.rooms.runs.evidence().items] == [run]
    assert staging.rooms.runs.hosts().items[0].busy == 0
    assert staging.rooms.chain.verify().ok


@pytest.mark.parametrize(
    ("call", "state"),
    [
        (f"{QUEUE}.enter:preparing", "preparing"),
        (f"{DOCKER}.start", "running"),
        (f"{QUEUE}.enter:judging", "judging"),
    ],
    ids=["preparing", "running", "judging"],
)
def test_a_worker_killed_in_any_state_is_followed_by_another(
    staging: Staging, gpu_engine: Engine, call: str, state: str
) -> None:
    run = kill_after(staging, call)
    assert staging.run(run).state == state
    assert_ends_well(staging, gpu_engine, run)


@ON_SQLITE
@pytest.mark.parametrize("call", [f"{QUEUE}.lease", f"{QUEUE}.record", f"{DOCKER}.clean"])
def test_a_worker_killed_between_two_states_is_followed_by_another(
    staging: Staging, gpu_engine: Engine, call: str
) -> None:
    run = kill_after(staging, call)
    assert not staging.run(run).has_ended
    assert_ends_well(staging, gpu_engine, run)


@ON_SQLITE
def test_a_worker_killed_once_the_end_is_written_leaves_it_as_it_is(
    staging: Staging, gpu_engine: Engine
) -> None:
    run = kill_after(staging, f"{QUEUE}.finish")
    assert staging.run(run).state == "passed"
    assert_ends_well(staging, gpu_engine, run, attempts=1)


@ON_SQLITE
def test_what_was_judged_is_not_run_again(staging: Staging, gpu_engine: Engine) -> None:
    run = kill_after(staging, f"{QUEUE}.enter:judging")
    (before,) = staging.show(run).steps
    staging.workload("good", GOOD.replace("True", "False"))
    assert_ends_well(staging, gpu_engine, run)
    (after,) = staging.show(run).steps
    assert after == before


@ON_SQLITE
def test_the_container_of_a_killed_worker_is_removed_before_the_next_one_starts(
    staging: Staging, gpu_engine: Engine
) -> None:
    staging.workload("good", HANGS)
    run = staging.submit("good")
    with staging.worker() as worker:
        staging.await_output(run, b"began")
        worker.kill()
        worker.wait()
    left = gpu_engine.left_of(run)
    assert f"/compatgate-{run}-1-good-0" in left, "what goes on without its worker"
    staging.workload("good", GOOD)
    assert_ends_well(staging, gpu_engine, run)
    assert staging.states(run).count("leased") == 2


@ON_SQLITE
def test_a_run_whose_workers_die_again_and_again_is_given_up(
    staging: Staging, gpu_engine: Engine
) -> None:
    run = kill_after(staging, f"{DOCKER}.start")
    for _ in range(2):
        with staging.worker(dies_after=f"{DOCKER}.start") as worker:
            assert worker.wait(60) == -signal.SIGKILL
    assert staging.run(run).attempts == 3
    staging.work_until_ended(run)
    found = staging.run(run)
    assert found.state == "inconclusive"
    assert found.reason.startswith("gave up after 3 attempts: workers stopped responding; ")
    assert found.reason.endswith(f"compatgate canary rerun {run}")
    assert gpu_engine.left_of(run) == []


@ON_SQLITE
def test_a_worker_that_was_frozen_finds_its_run_in_other_hands(
    staging: Staging, gpu_engine: Engine
) -> None:
    staging.workload("good", HANGS)
    run = staging.submit("good")
    with staging.worker("--name", "frozen") as frozen:
        staging.await_output(run, b"began")
        frozen.send_signal(signal.SIGSTOP)
        staging.workload("good", GOOD)
        staging.work_until_ended(run)
        assert staging.run(run).state == "passed"
        frozen.send_signal(signal.SIGCONT)
        log = staging.folder / "worker.log"
        until(lambda: "another worker has it" in log.read_text())
        again = staging.submit("good", image=PYTHON)
        staging.await_state(again, "passed", "failed", "error", "inconclusive", "timeout")
    assert staging.run(run).attempts == 2
    assert [e.run for e in staging.rooms.runs.evidence().items if e.run == run] == [run]
    assert gpu_engine.left_of(run) == []
