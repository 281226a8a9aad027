"""Workers that are killed at every point of a run: nothing is lost, and nothing is left behind.

Each run of the table has a host and a worker of its own. All are killed first; then their leases
run out, and one more worker finds all of them.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from engines import PYTHON, Engine
from sqlalchemy import update
from staging import GOOD, HANGS, Staging, host_table, until

from compatgate.service.runs.queue.models import Run

QUEUE = "compatgate.service.runs.queue.queue:DatabaseQueue"
DOCKER = "compatgate.canary.executors.docker:DockerExecutor"
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


class Death(NamedTuple):
    """A worker that is killed.

    Attributes:
        call: after which it is killed.
        state: of the run it leaves.
        attempts: of the run at its end.
        before: attempts whose workers died as well.
    """

    call: str
    state: str
    attempts: int = 2
    before: int = 0


IN_A_STATE = {
    "preparing": Death(f"{QUEUE}.enter:preparing", "preparing"),
    "running": Death(f"{DOCKER}.start", "running"),
    "judging": Death(f"{QUEUE}.enter:judging", "judging"),
}
DEATHS = IN_A_STATE | {
    "leased": Death(f"{QUEUE}.lease", "leased"),
    "recorded": Death(f"{QUEUE}.record", "running"),
    "cleaned": Death(f"{DOCKER}.clean", "judging"),
    "ended": Death(f"{QUEUE}.finish", "passed", attempts=1),
    "hopeless": Death(f"{DOCKER}.start", "running", attempts=4, before=2),
}
"""Name of host, workload and suite to the death."""


def kill_workers(staging: Staging, deaths: dict[str, Death], engine: Engine) -> dict[str, str]:
    """Submit a run for each death, and return the runs by name once each worker was killed."""
    tables = {name: host_table(name, engine) for name in deaths}
    staging.hosts(*tables.values())
    for name in deaths:
        staging.workload(name, HANGS if name == "running" else GOOD)
    runs = {name: staging.submit(name, host=name) for name in deaths}
    with staging.rooms.gate.database.writing() as session:
        for name, death in deaths.items():
            of_run = update(Run).where(Run.id == runs[name])
            session.execute(of_run.values(attempts=death.before))
    with ExitStack() as stack:
        workers = {}
        for name, death in deaths.items():
            own, log = (staging.folder / f"{name}.{end}" for end in ("toml", "log"))
            own.write_text(tables[name])
            worker = staging.worker(dies_after=death.call, lease=60, hosts=own, log=log)
            workers[name] = stack.enter_context(worker)
        for name, worker in workers.items():
            assert worker.wait(60) == -signal.SIGKILL, name
    return runs


def test_the_run_of_a_killed_worker_is_followed_to_its_end(
    staging: Staging, gpu_engine: Engine, database_url: str
) -> None:
    """All deaths on SQLite; on PostgreSQL, whose locks differ, one in each state."""
    deaths = DEATHS if database_url.startswith("sqlite") else IN_A_STATE
    runs = kill_workers(staging, deaths, gpu_engine)
    found = {name: staging.run(run).state for name, run in runs.items()}
    assert found == {name: death.state for name, death in deaths.items()}
    container = f"/compatgate-{runs['running']}-1-running-0"
    assert container in gpu_engine.left_of(runs["running"]), "it goes on without its worker"
    (judged,) = staging.show(runs["judging"]).steps
    staging.workload("running", GOOD)
    staging.workload("judging", GOOD.replace("True", "False"))

    staging.expire_leases()
    staging.work_until_ended(*runs.values())

    rows = {name: staging.run(run) for name, run in runs.items()}
    states = {name: "inconclusive" if death.before else "passed" for name, death in deaths.items()}
    assert {name: row.state for name, row in rows.items()} == states
    assert {n: r.attempts for n, r in rows.items()} == {n: d.attempts for n, d in deaths.items()}
    assert staging.show(runs["judging"]).steps == (judged,), "what was judged is not run again"
    assert staging.states(runs["running"]).count("leased") == 2
    assert [one for run in runs.values() for one in gpu_engine.left_of(run)] == []
    evidence = sorted(row.run for row in staging.rooms.runs.evidence().items)
    assert evidence == sorted(run for name, run in runs.items() if states[name] == "passed")
    assert {row.name: row.busy for row in staging.rooms.runs.hosts().items if row.busy} == {}
    assert staging.rooms.chain.verify().ok
    if "hopeless" in rows:
        reason = rows["hopeless"].reason
        assert reason.startswith("gave up after 3 attempts: workers stopped responding; ")
        assert reason.endswith(f"compatgate canary rerun {runs['hopeless']}")


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
