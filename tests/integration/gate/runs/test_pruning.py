"""What old runs and hosts leave in the database goes; what anything rests on stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from canary_runs import GPU, evidence, host
from sqlalchemy import select

from compatgate.canary.engine import BaselineKey, Lease
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import StepResult
from compatgate.canary.workload import MetricSpec
from compatgate.cli.main import main
from compatgate.kit import clock
from compatgate.service.app import Rooms
from compatgate.service.runs.queue import logs
from compatgate.service.runs.queue.models import RunStep
from compatgate.service.runs.queue.pruning import PruneAges, PrunedRuns, PruneReport, prune_database
from compatgate.service.runs.queue.queue import DatabaseQueue

REPORT: dict[str, Any] = {"metrics": [{"name": "time", "unit": "ms", "values": [1.0] * 500}]}
DAY = timedelta(days=1)
ALL = PruneAges(logs=90 * DAY, reports=90 * DAY, hosts=30 * DAY)
Submit = Callable[..., str]


@pytest.fixture
def ended(queue: DatabaseQueue, submit: Submit) -> Callable[..., str]:
    """A run that has printed and reported, and has ended; its id."""

    def go(outcome: Any = "inconclusive", *, with_evidence: bool = False) -> str:
        lease = _leased(queue, submit())
        queue.finish(lease, outcome, "done", evidence(lease, outcome) if with_evidence else None)
        return lease.run.id

    return go


def _leased(queue: DatabaseQueue, run_id: str) -> Lease:
    """A run that a worker has, and that has printed and reported."""
    lease = queue.lease("w1", [host()])
    assert lease is not None
    assert lease.run.id == run_id
    queue.write(lease, "gemm-0", b"a line of log\n" * 10)
    step = StepResult("gemm-0", "gemm", 0, "inconclusive", "too noisy", 0, report=REPORT)
    queue.record(lease, step)
    return lease


def prune(rooms: Rooms, ages: PruneAges = ALL, **options: Any) -> PruneReport:
    return prune_database(rooms.gate.database, ages, by="keeper", **options)


def log(rooms: Rooms, run_id: str) -> bytes:
    return b"".join(piece.data for piece in rooms.runs.output(run_id)[1])


def reported(rooms: Rooms, run_id: str) -> bool:
    return rooms.runs.show(run_id).steps[0].body["report"] is not None


def test_old_logs_and_reports_go_and_the_runs_stay(
    rooms: Rooms, ended: Callable[..., str], time: Any
) -> None:
    old = [ended() for _ in range(3)]
    time.forward(days=100)
    recent = ended()
    ages = PruneAges(logs=ALL.logs, reports=ALL.reports)
    found = prune(rooms, ages)
    assert found.logs
    assert (found.logs.runs, found.logs.bytes) == (3, 3 * 140)
    assert found.reports
    assert found.reports.runs == 3
    assert found.reports.bytes > 3 * 500
    assert [log(rooms, run) for run in old] == [b""] * 3
    assert log(rooms, recent).startswith(b"a line")
    assert reported(rooms, recent)
    detail = rooms.runs.show(old[0])
    assert (detail.run.state, detail.run.reason) == ("inconclusive", "done")
    (step,) = detail.steps
    assert (step.body["outcome"], step.body["reason"], step.body["report"]) == (
        "inconclusive", "too noisy", None,
    )  # fmt: skip
    assert step.body["pruned_at"]
    assert rooms.chain.verify().ok
    links = rooms.audit.list_audit(action="prune.").items
    assert [(link.action, link.actor) for link in links] == [
        ("prune.reports", "keeper"), ("prune.logs", "keeper"),
    ]  # fmt: skip
    assert links[1].detail["runs"] == old
    assert prune(rooms, ages).nothing
    assert rooms.audit.list_audit(action="prune.").items == links


def test_what_evidence_warnings_and_baselines_rest_on_loses_its_log_alone(
    rooms: Rooms, ended: Callable[..., str], time: Any
) -> None:
    judged = [ended("passed", with_evidence=True), ended("failed", with_evidence=True)]
    learnt = ended()
    spec = {"time": MetricSpec("ms", "lower", repetitions=3)}
    values = [Samples("time", "ms", ((1.0, 1.1, 1.2),))]
    rooms.baselines.offer(
        BaselineKey("gemm@0f3c", GPU, "cuda-12.4"), spec, f"{learnt}:gemm-0", values
    )
    idle, newest = ended(), ended()
    before = rooms.runs.evidence().items
    time.forward(days=100)
    prune(rooms)
    assert [run for run in (*judged, learnt, idle, newest) if not reported(rooms, run)] == [idle]
    assert not any(log(rooms, run) for run in (*judged, learnt, idle, newest))
    assert rooms.runs.evidence().items == before
    assert len(rooms.baselines.list().items) == 1
    assert rooms.chain.verify().ok


def test_runs_that_have_not_ended_keep_everything(
    rooms: Rooms, queue: DatabaseQueue, submit: Submit, ended: Callable[..., str], time: Any
) -> None:
    lease = _leased(queue, submit())
    waiting = submit()
    time.forward(days=400)
    queue.register("w1", [host(), host("cpu", gpu=None, driver=None)])
    assert prune(rooms).nothing
    assert log(rooms, lease.run.id)
    assert rooms.runs.get(waiting).state == "queued"


def test_hosts_that_nobody_serves_go_but_for_those_that_a_run_has_or_names(
    rooms: Rooms, queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    queue.register("w2", [host("named"), host("gone")])
    _leased(queue, submit())  # on a100-1
    submit(host="named")
    time.forward(days=31)
    queue.register("w3", [host("served")])
    found = prune(rooms, PruneAges(hosts=30 * DAY))
    assert found.hosts
    assert list(found.hosts.hosts) == ["cpu", "gone"]
    assert [each.name for each in rooms.runs.hosts().items] == ["a100-1", "named", "served"]
    (link,) = rooms.audit.list_audit(action="prune.").items
    assert (link.action, link.detail) == ("prune.hosts", {"hosts": ["cpu", "gone"]})
    queue.register("w2", [host("gone")])
    assert "gone" in [each.name for each in rooms.runs.hosts().items]


def test_a_dry_run_says_what_would_go_and_removes_nothing(
    rooms: Rooms, ended: Callable[..., str], time: Any
) -> None:
    old, _ = ended(), ended()
    time.forward(days=100)
    found = prune(rooms, dry_run=True)
    assert found.logs
    assert found.reports
    assert found.hosts
    assert (found.logs.runs, found.reports.runs, len(found.hosts.hosts)) == (2, 1, 2)
    assert log(rooms, old)
    assert reported(rooms, old)
    assert len(rooms.runs.hosts().items) == 2
    assert not rooms.audit.list_audit(action="prune.").items


def test_many_runs_are_removed_in_parts_each_with_its_link(
    rooms: Rooms, ended: Callable[..., str], time: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compatgate.service.runs.queue.pruning._RUNS_PER_TRANSACTION", 2)
    old = [ended() for _ in range(5)]
    time.forward(days=100)
    found = prune(rooms, PruneAges(logs=90 * DAY))
    assert found.logs
    assert found.logs.runs == 5
    links = rooms.audit.list_audit(action="prune.logs").items
    assert [link.detail["runs"] for link in reversed(links)] == [old[:2], old[2:4], old[4:]]
    with rooms.gate.database.reading() as session:
        assert len(session.execute(select(RunStep.run)).all()) == 5


def test_whoever_asks_for_a_log_that_was_removed_is_told_by_which_link(
    rooms: Rooms,
    database_url: str,
    ended: Callable[..., str],
    time: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = ended()
    time.forward(days=100)
    recent = ended()
    prune(rooms)
    link = rooms.audit.list_audit(action="prune.logs").items[0]
    assert old in link.detail["runs"]
    part = logs.read_end(rooms.runs, old)
    assert part.pruned
    assert (part.text, part.pruned.by, part.pruned.link) == ("", "keeper", link.seq)
    assert logs.read_end(rooms.runs, recent).pruned is None
    logs.check_log_exists(rooms.runs, recent)
    for follow in ((), ("-f",)):
        capsys.readouterr()
        assert main(["canary", "logs", "--database", database_url, *follow, old]) == 2
        said = capsys.readouterr().err
        assert f"the log of this run was removed on {part.pruned.at:%Y-%m-%d}" in said
        assert f"by keeper (link {link.seq} of the audit log" in said
    assert prune(rooms, PruneAges(logs=DAY)).logs == PrunedRuns(clock.now() - DAY, 0, 0)


def test_the_command_says_what_it_removed(
    rooms: Rooms,
    database_url: str,
    ended: Callable[..., str],
    time: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended()
    time.forward(days=100)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["db", "prune", "--database", database_url, *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    _, out, _ = run("--run-logs-older-than", "90d", "--hosts-unseen-for", "30d", "--dry-run")
    assert "1 runs, 0.0 MiB\n" in out
    assert "  a100-1, last seen " in out
    assert out.endswith("dry run: no data was removed\n")
    status, out, _ = run("--run-logs-older-than", "90d", "--format", "json")
    assert (status, json.loads(out)["logs"]["runs"]) == (0, 1)
    assert run("--run-logs-older-than", "90d")[1].endswith("nothing to remove\n")
    for wrong, says in (
        ([], "no data to remove is selected"),
        (["--run-logs-older-than", "soon"], "--run-logs-older-than"),
        (["--hosts-unseen-for", "0d"], "is not a duration"),
    ):
        status, out, err = run(*wrong)
        assert (status, out) == (2, "")
        assert says in err
    assert main(["audit", "verify", "--database", database_url]) == 0
