"""A lease: states, heartbeats, fencing, retries, cancelling, and what is written under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from canary_runs import evidence, host

from compatgate.canary.engine import LeaseLost
from compatgate.canary.run import StepResult
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.queue import DatabaseQueue

from .conftest import take

Submit = Callable[..., str]


def test_a_run_goes_from_the_queue_through_its_states_to_its_end(
    rooms: Rooms, queue: DatabaseQueue, submit: Submit
) -> None:
    run_id = submit()
    assert rooms.runs.get(run_id).state == "queued"
    lease = take(queue)
    assert (lease.run.id, lease.attempt, lease.slots, lease.host) == (run_id, 1, (0,), "a100-1")
    assert not lease.abandoned
    for state in ("preparing", "running", "judging"):
        queue.enter(lease, state)  # type: ignore[arg-type]
        assert rooms.runs.get(run_id).state == state
    queue.say(lease, "comparing", 0.5)
    assert (rooms.runs.get(run_id).doing, rooms.runs.get(run_id).progress) == ("comparing", 0.5)
    queue.finish(lease, "passed", "all passed", evidence(lease))
    row = rooms.runs.get(run_id)
    assert (row.state, row.reason, row.has_ended) == ("passed", "all passed", True)
    assert row.started_at
    assert row.finished_at
    actions = [link.action for link in rooms.audit.list_audit(action="run.").items]
    wanted = ["passed", "judging", "running", "preparing", "leased", "queued"]
    assert actions == [f"run.{state}" for state in wanted]
    assert rooms.chain.verify().ok


def test_a_silent_worker_loses_its_run_to_the_next_one_of_its_host(
    queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    submit()
    old = take(queue)
    queue.enter(old, "running")
    time.forward(seconds=29)
    assert queue.lease("w2", [host()]) is None
    time.forward(seconds=2)
    assert queue.lease("w2", [host("a100-2")]) is None
    new = take(queue, worker="w2")
    assert new.abandoned
    assert (new.run.id, new.attempt, new.slots) == (old.run.id, 2, old.slots)


def test_a_heartbeat_keeps_a_run(queue: DatabaseQueue, submit: Submit, time: Any) -> None:
    submit()
    lease = take(queue)
    for _ in range(10):
        time.forward(seconds=10)
        assert queue.renew(lease) == "go"
        assert queue.lease("w2", [host()]) is None


def test_what_an_outdated_lease_writes_is_refused(
    rooms: Rooms, queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    run_id = submit()
    old = take(queue)
    time.forward(minutes=1)
    new = take(queue, worker="w1")  # the same name after a restart
    late: list[Callable[[], object]] = [
        lambda: queue.enter(old, "judging"),
        lambda: queue.say(old, "late", None),
        lambda: queue.write(old, "gemm-0", b"late"),
        lambda: queue.record(old, StepResult("gemm-0", "gemm", 0, "passed")),
        lambda: queue.results(old),
        lambda: queue.finish(old, "passed", "late", evidence(old)),
        lambda: queue.retry(old, "late"),
    ]
    for write in late:
        with pytest.raises(LeaseLost):
            write()
    assert queue.renew(old) == "lost"
    row = rooms.runs.get(run_id)
    assert (row.state, row.attempts, row.doing) == ("leased", 2, "")
    assert rooms.runs.show(run_id).steps == ()
    assert rooms.runs.output(run_id)[1] == []
    assert rooms.runs.evidence().items == ()
    queue.finish(new, "failed", "broke", None)
    with pytest.raises(LeaseLost):
        queue.finish(new, "passed", "twice", evidence(new))


def test_steps_that_an_abandoned_attempt_recorded_are_kept(
    queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    submit()
    old = take(queue)
    queue.record(old, StepResult("a-0", "a", 0, "passed", report={"lines": 3}))
    queue.record(old, StepResult("b-0", "b", 0, "error", reason="lost"))
    time.forward(minutes=1)
    new = take(queue)
    queue.record(new, StepResult("b-0", "b", 0, "passed"))
    found = queue.results(new)
    assert [(step.name, step.outcome) for step in found] == [("a-0", "passed"), ("b-0", "passed")]
    assert found[0].report == {"lines": 3}


def test_a_run_out_of_attempts_is_given_for_cleaning(
    queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    submit()
    attempts = []
    for _ in range(5):
        attempts.append(take(queue).attempt)
        time.forward(minutes=1)
    assert attempts == [1, 2, 3, 4, 5]  # beyond max_attempts its engine only cleans and ends it


def test_a_retry_waits_longer_each_time_and_the_last_is_inconclusive(
    rooms: Rooms, queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    run_id = submit()
    for pause in (15, 60):
        queue.retry(take(queue), "the engine is away")
        row = rooms.runs.get(run_id)
        assert (row.state, row.reason) == ("queued", "the engine is away")
        time.forward(seconds=pause - 1)
        assert queue.lease("w1", [host()]) is None
        time.forward(seconds=1)
    queue.retry(take(queue), "the engine is away")
    row = rooms.runs.get(run_id)
    assert row.state == "inconclusive"
    assert row.reason.startswith("the engine is away (attempt 3, the last); once that is fixed: ")
    assert rooms.runs.hosts().items[0].busy == 0


def test_a_retry_on_another_host_begins_anew(
    queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    submit()
    old = take(queue)
    queue.record(old, StepResult("a-0", "a", 0, "passed"))
    queue.retry(old, "the engine is away")
    time.forward(minutes=1)
    assert queue.results(take(queue, "a100-2")) == []


def test_cancelling_what_waits_ends_it(rooms: Rooms, queue: DatabaseQueue, submit: Submit) -> None:
    run_id = submit()
    row = rooms.runs.cancel(run_id, by="someone")
    assert (row.state, row.reason) == ("cancelled", "cancelled by someone")
    assert queue.lease("w1", [host()]) is None


@pytest.mark.parametrize("state", ["leased", "preparing", "running", "judging"])
def test_cancelling_what_runs_tells_its_worker(
    rooms: Rooms, queue: DatabaseQueue, submit: Submit, state: str
) -> None:
    run_id = submit()
    lease = take(queue)
    if state != "leased":
        queue.enter(lease, state)  # type: ignore[arg-type]
    row = rooms.runs.cancel(run_id, by="someone")
    assert row.state == state
    assert row.to_json()["cancelling"]
    rooms.runs.cancel(run_id, by="someone else")
    assert queue.renew(lease) == "cancel"
    queue.finish(lease, "cancelled", "cancelled by someone", None)
    row = rooms.runs.get(run_id)
    assert (row.state, row.to_json()["cancelling"]) == ("cancelled", False)


def test_cancelling_does_not_wait_for_a_worker_that_is_gone(
    rooms: Rooms, queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    run_id = submit()
    lease = take(queue)
    time.forward(minutes=30)
    assert rooms.runs.cancel(run_id, by="someone").state == "leased"
    time.forward(minutes=45)
    row = rooms.runs.cancel(run_id, by="someone")
    assert row.state == "cancelled"
    assert "its worker w1 is gone, and may have left it on a100-1" in row.reason
    assert queue.renew(lease) == "lost"
    assert rooms.runs.hosts().items[0].busy == 0


def test_a_cancelled_run_is_not_tried_again(
    rooms: Rooms, queue: DatabaseQueue, submit: Submit
) -> None:
    run_id = submit()
    lease = take(queue)
    rooms.runs.cancel(run_id, by="someone")
    queue.retry(lease, "the engine is away")
    assert rooms.runs.get(run_id).state == "cancelled"


def test_evidence_of_something_else_is_never_kept(queue: DatabaseQueue, submit: Submit) -> None:
    submit()
    lease = take(queue)
    for outcome, found in (
        ("inconclusive", evidence(lease)),
        ("timeout", evidence(lease, "failed")),
        ("failed", evidence(lease, "passed")),
    ):
        with pytest.raises(ValueError, match="is not evidence"):
            queue.finish(lease, outcome, "", found)  # type: ignore[arg-type]
    assert queue.renew(lease) == "go"


def test_output_is_kept_in_order_as_it_came(
    rooms: Rooms, queue: DatabaseQueue, submit: Submit
) -> None:
    run_id = submit()
    lease = take(queue)
    for piece in (b"a", b"", b"\xff\x00", b"c"):
        queue.write(lease, "gemm-0", piece)
    _, pieces = rooms.runs.output(run_id)
    assert b"".join(piece.data for piece in pieces) == b"a\xff\x00c"
    _, rest = rooms.runs.output(run_id, after=pieces[0].id, step="gemm-0")
    assert [piece.data for piece in rest] == [b"\xff\x00", b"c"]
