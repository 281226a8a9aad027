"""Ways that work ends before its time: cancelling, signals, engines that go, what was left."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from engines import PYTHON, Engine, engine
from staging import GOOD, HANGS, Staging, host_table, until

from compatgate.canary.executors import Job
from compatgate.canary.executors.docker import DockerExecutor
from compatgate.canary.hosts import Host
from compatgate.cli.main import main

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def own_engine(gpu_engine: Engine) -> Iterator[Engine]:
    """An engine of the test's own, with simulated GPUs; the session's says whether one can be."""
    with engine(gpus=True) as running:
        yield running


def test_a_cancelled_run_ends_within_a_heartbeat(staging: Staging, gpu_engine: Engine) -> None:
    staging.workload("good", HANGS)
    run = staging.submit("good")
    with staging.worker():
        staging.await_output(run, b"began")
        staging.rooms.runs.cancel(run, by="somebody")
        found = staging.await_state(run, "cancelled", "error", "failed")
    assert (found.state, found.reason) == ("cancelled", "cancelled by somebody")
    assert gpu_engine.left_of(run) == []
    assert staging.rooms.runs.hosts().items[0].busy == 0


@ON_SQLITE
def test_a_worker_that_is_told_to_stop_lets_its_run_end(
    staging: Staging, gpu_engine: Engine
) -> None:
    waits = HANGS.replace("time.sleep(600)", 'time.sleep(1)\nsay.check("right", True)')
    staging.workload("good", waits)
    first, second = staging.submit("good"), staging.submit("good")
    with staging.worker("--grace", "60") as worker:
        staging.await_output(first, b"began")
        worker.terminate()
        assert worker.wait(60) == 0
    assert staging.run(first).state == "passed"
    assert staging.run(second).state == "queued"
    assert gpu_engine.left_of(first) == []


@ON_SQLITE
def test_a_dead_engine_is_named_wherever_its_host_and_run_are_shown(
    staging: Staging, own_engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*command: str) -> str:
        assert main(["canary", *command, "--database", staging.url]) == 0
        return " ".join(capsys.readouterr().out.split())

    why = f"the engine of stage ({own_engine.endpoint}) does not answer"
    staging.hosts(host_table("stage", own_engine))
    staging.workload("good", GOOD)
    with staging.worker():
        until(lambda: "serves stage" in (staging.folder / "worker.log").read_text())
        own_engine.stop()
        run = staging.submit("good")
        until(lambda: staging.run(run).doing.startswith("waits for the host stage, away since 20"))
    for command in (("hosts",), ("list",), ("show", run)):
        text = shown(*command)
        assert why in text, command
        assert "since 20" in text
        assert "start the engine" in text
    log = staging.folder / "once.log"
    with staging.worker("--once", log=log) as worker:
        assert worker.wait(60) == 3
    message = log.read_text()
    assert "stage is away since 20" in message
    assert why in message
    own_engine.start()
    staging.work_until_ended(run)
    assert staging.run(run).state == "passed"
    assert "away" not in shown("hosts").replace("AWAY", "")


@ON_SQLITE
def test_after_the_grace_a_run_goes_back_and_another_worker_finishes_it(
    staging: Staging, gpu_engine: Engine
) -> None:
    staging.workload("good", HANGS)
    run = staging.submit("good")
    with staging.worker("--grace", "0") as worker:
        staging.await_output(run, b"began")
        worker.terminate()
        assert worker.wait(60) == 0
    found = staging.run(run)
    assert (found.state, found.reason) == ("queued", "its worker was stopped")
    assert gpu_engine.left_of(run) == [], "not even while nobody has it"
    staging.workload("good", GOOD)
    staging.work_until_ended(run)
    assert staging.run(run).state == "passed"


@ON_SQLITE
def test_a_second_signal_ends_the_grace(staging: Staging, gpu_engine: Engine) -> None:
    staging.workload("good", HANGS)
    run = staging.submit("good")
    with staging.worker("--grace", "3600") as worker:
        staging.await_output(run, b"began")
        worker.terminate()
        log = staging.folder / "worker.log"
        until(lambda: "taking no new runs" in log.read_text())
        worker.send_signal(signal.SIGINT)
        assert worker.wait(60) == 0
    assert staging.run(run).state == "queued"
    assert gpu_engine.left_of(run) == []


@ON_SQLITE
def test_once_ends_when_nothing_is_left(staging: Staging) -> None:
    staging.workload("good", GOOD)
    runs = [staging.submit("good") for _ in range(2)]
    with staging.worker("--once") as worker:
        assert worker.wait(60) == 0
    assert [staging.run(run).state for run in runs] == ["passed", "passed"]


@ON_SQLITE
def test_an_engine_restarted_in_mid_run_costs_an_attempt_and_no_verdict(
    staging: Staging, own_engine: Engine
) -> None:
    staging.hosts(host_table("stage", own_engine))
    staging.workload("good", HANGS)
    run = staging.submit("good")
    with staging.worker():
        staging.await_output(run, b"began")
        staging.workload("good", GOOD)
        own_engine.restart()
        until(lambda: staging.run(run).attempts >= 2 or staging.run(run).state == "queued")
    staging.work_until_ended(run)
    found = staging.run(run)
    assert found.state == "passed", found.reason
    assert found.attempts >= 2
    assert own_engine.left_of(run) == []


@ON_SQLITE
def test_a_host_that_is_away_does_not_use_up_the_attempts_of_its_runs(
    staging: Staging, own_engine: Engine
) -> None:
    staging.hosts(host_table("stage", own_engine))
    staging.workload("good", GOOD)
    runs = [staging.submit("good") for _ in range(3)]
    own_engine.stop()
    log = staging.folder / "worker.log"
    with staging.worker():
        until(lambda: "host stage is excluded" in log.read_text())
        own_engine.start()
        for run in runs:
            found = staging.await_state(run, "passed", "error", "failed", "inconclusive")
            assert (found.state, found.attempts <= 2) == ("passed", True), found.reason
    assert re.search(r"host stage answers again", log.read_text())


@ON_SQLITE
def test_what_ended_runs_left_is_swept_and_nothing_else(
    staging: Staging, gpu_engine: Engine
) -> None:
    staging.workload("good", GOOD)
    known = staging.submit("good")
    staging.work_until_ended(known)
    executor = DockerExecutor(Host("stage", endpoint=gpu_engine.endpoint))
    workload = staging.library().workload("good")
    strange = f"run_of_another_database_{known}"
    for run in (known, strange):
        executor.start(executor.prepare(Job(run, 1, "s", workload, image=PYTHON), lambda *_: None))
    with staging.worker() as worker:
        until(lambda: gpu_engine.left_of(known) == [])
        worker.send_signal(signal.SIGINT)
        assert worker.wait(60) == 0
    assert len(gpu_engine.left_of(strange)) == 2, "a container and its volume"
    assert executor.clean(strange) == 2
    executor.close()
