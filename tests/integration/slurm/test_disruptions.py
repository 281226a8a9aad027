"""What a cluster does to jobs: they wait, are cancelled, lose their node or their controller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from slurm_cluster import Cluster

from compatgate.canary.executors import Job, Status
from compatgate.canary.executors.slurm import SlurmExecutor
from compatgate.errors import InfrastructureError

Make = Callable[..., Job]
Executors = Callable[..., SlurmExecutor]
Start = Callable[..., Any]

LONG = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.fixture
def whole(slurm: Cluster) -> Iterator[Cluster]:
    """The cluster, of which a test may break something."""
    yield slurm
    slurm.mend()


def test_a_job_waits_behind_busy_gpus_and_runs_once_one_is_free(
    executor: Executors, job: Make, start: Start
) -> None:
    on = executor()
    busy = [start(on, job(LONG)) for _ in range(2)]
    for each in busy:
        each.until("running")
    waiting = start(on, job("print('my turn')"))
    status = waiting.until("waiting")
    time.sleep(1)
    status = on.status(waiting.handle)
    assert status.state == "waiting"
    assert status.reason in ("Slurm: Resources", "Slurm: Priority")
    on.kill(busy[0].handle)
    assert waiting.to_the_end() == Status("exited", 0)
    assert waiting.output == b"my turn\n"
    assert on.status(busy[1].handle).state == "running"


def test_many_jobs_are_placed_by_slurm_and_all_end(
    executor: Executors, job: Make, start: Start
) -> None:
    on = executor()
    jobs = [start(on, job(f"print({number})")) for number in range(8)]
    for number, each in enumerate(jobs):
        assert each.to_the_end() == Status("exited", 0)
        assert each.output == b"%d\n" % number


def test_a_job_is_killed_while_it_waits_or_runs(
    slurm: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    on = executor()
    running = [start(on, job(LONG)) for _ in range(2)]
    for each in running:
        each.until("running")
    waiting = start(on, job(LONG))
    for each in (waiting, *running):
        on.kill(each.handle)
        on.kill(each.handle)
        assert each.until("exited").reason == "killed"


def test_a_job_that_somebody_cancels_in_slurm_is_lost(
    slurm: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    started = start(executor(), job(LONG))
    started.until("running")
    slurm.ask("scancel", started.handle.id)
    assert started.until("lost").reason == "it was cancelled in Slurm"


def test_cleaning_a_run_ends_its_jobs_of_every_attempt_and_no_others(
    slurm: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    on = executor()
    first = job(LONG)
    other = start(on, job(LONG))
    start(on, first).until("running")
    start(on, Job(first.run, 2, "made-0", first.workload))
    assert on.left() == {first.run, other.job.run}
    # Another worker, which has seen none of them.
    assert executor().clean(first.run) == 2
    assert slurm.jobs() == [f"compatgate-{other.job.run}"]
    assert on.left() == {other.job.run}
    assert on.clean(first.run) == 0


def test_a_job_whose_folder_was_cleaned_away_on_its_way_does_nothing(
    slurm: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    on = executor()
    busy = [start(on, job(LONG)) for _ in range(2)]
    for each in busy:
        each.until("running")
    stray = start(on, job("print('never')"))
    on._work.remove(stray.job.run)
    on.kill(busy[0].handle)
    assert stray.until("lost").reason.endswith("the node may not see the work directory)")


def test_a_job_that_an_operator_requeues_is_not_run_twice_as_one(
    slurm: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    started = start(executor(), job(LONG))
    started.until("running")
    slurm.ask("scontrol", "requeue", started.handle.id)
    time.sleep(1)
    status = started.executor.status(started.handle)
    assert status.state in ("running", "lost")
    assert (started.executor._work.of(started.job) / "stage").read_text() == "started\n"


def test_a_node_that_fails_in_mid_run_loses_the_job_and_nothing_of_it_is_left(
    whole: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    on = executor(extra=("--nodelist=n2",))
    started = start(on, job(LONG))
    started.until("running")
    whole.lose_node("n2")
    status = started.until("lost", patience=60)
    assert status.reason == "the node n2 failed"
    again = start(executor(), job("print('elsewhere')"))
    assert again.to_the_end() == Status("exited", 0)
    on.clean(started.job.run)
    assert whole.jobs() == []


def test_a_controller_that_restarts_costs_nothing(
    whole: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    on = executor()
    program = "import time; print('begun', flush=True); time.sleep(6); print('done')"
    running = start(on, job(program))
    others = [start(on, job(LONG)), start(on, job("print('waited')"))]
    running.until("running")
    whole.stop_controller()
    for _ in range(4):
        assert on.status(running.handle).state == "running"
        assert on.status(others[1].handle).state == "waiting"
        time.sleep(0.3)
    whole.start_controller()
    assert running.to_the_end() == Status("exited", 0)
    assert running.output == b"begun\ndone\n"
    assert others[1].to_the_end() == Status("exited", 0)
    assert others[1].output == b"waited\n"
    assert on.status(others[0].handle).state == "running"


def test_without_a_controller_nothing_is_handed_in_and_another_attempt_may(
    whole: Cluster, executor: Executors, job: Make
) -> None:
    on = executor()
    made = job("print('late')")
    prepared = on.prepare(made, lambda doing, share: None)
    whole.stop_controller()
    with pytest.raises(InfrastructureError, match=r"(?i)sbatch failed: .*contact slurm controller"):
        on.start(prepared)
    with pytest.raises(InfrastructureError, match=r"(?i)squeue failed"):
        on.clean(made.run)
    whole.start_controller()
    whole.await_nodes()
    assert on.clean(made.run) == 1


def test_a_job_that_slurm_has_forgotten_is_known_by_what_it_wrote(
    slurm: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    on = executor()
    started = start(on, job("raise SystemExit(5)"))
    started.to_the_end()
    handle = type(started.handle)("999999", *list_of(started.handle)[1:])
    assert on.status(handle) == Status("exited", 5, reason="Slurm has no record of the job")


def test_a_job_number_that_now_belongs_to_another_job_is_not_taken_for_it(
    slurm: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    on = executor()
    first, second = start(on, job(LONG)), start(on, job(LONG))
    first.until("running")
    handle = type(first.handle)(second.handle.id, *list_of(first.handle)[1:])
    assert executor().status(handle).state == "lost"


def list_of(handle: Any) -> list[Any]:
    return [getattr(handle, name) for name in handle.__struct_fields__]
