"""The queue: leases, slots, fencing, retries, quiet hours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from canary_runs import GPU, evidence, host

from compatgate.canary.hosts import Quiet
from compatgate.canary.queue import Lease, LeaseLost
from compatgate.canary.run import StepResult
from compatgate.errors import BadInput
from compatgate.gate.runs.queue import DatabaseQueue
from compatgate.gate.service import Gate
from compatgate.store import clock

Submit = Callable[..., str]


def take(queue: DatabaseQueue, *hosts: str, worker: str = "w1") -> Lease:
    lease = queue.lease(worker, [host(name) for name in hosts or ("a100-1",)])
    assert lease is not None
    return lease


def test_a_run_goes_from_the_queue_through_its_states_to_its_end(
    gate: Gate, queue: DatabaseQueue, submit: Submit
) -> None:
    run_id = submit()
    assert gate.runs.get(run_id).state == "queued"
    lease = take(queue)
    assert (lease.run.id, lease.attempt, lease.slots, lease.host) == (run_id, 1, (0,), "a100-1")
    assert not lease.abandoned
    for state in ("preparing", "running", "judging"):
        queue.enter(lease, state)  # type: ignore[arg-type]
        assert gate.runs.get(run_id).state == state
    queue.say(lease, "comparing", 0.5)
    assert (gate.runs.get(run_id).doing, gate.runs.get(run_id).progress) == ("comparing", 0.5)
    queue.finish(lease, "passed", "all passed", evidence(lease))
    row = gate.runs.get(run_id)
    assert (row.state, row.reason, row.has_ended) == ("passed", "all passed", True)
    assert row.started_at
    assert row.finished_at
    actions = [link.action for link in gate.history.list_audit(action="run.").items]
    wanted = ["passed", "judging", "running", "preparing", "leased", "queued"]
    assert actions == [f"run.{state}" for state in wanted]
    assert gate.history.verify().ok


def test_an_empty_queue_gives_nothing(queue: DatabaseQueue) -> None:
    assert queue.lease("w1", [host()]) is None
    assert queue.lease("w1", []) is None


def test_a_run_is_given_to_one_worker_only(queue: DatabaseQueue, submit: Submit) -> None:
    submit()
    take(queue)
    assert queue.lease("w2", [host()]) is None


def test_a_run_of_several_nodes_waits_for_a_cluster_and_lets_machines_go_on(
    queue: DatabaseQueue, submit: Submit
) -> None:
    queue.register("w2", [host("grid", executor="kubernetes")])
    wide, narrow = submit("spread"), submit()
    assert take(queue).run.id == narrow
    assert queue.lease("w1", [host()]) is None
    lease = queue.lease("w2", [host("grid", executor="kubernetes")])
    assert lease is not None
    assert (lease.run.id, lease.slots) == (wide, (0, 1))


def test_runs_share_a_host_by_slots_and_wait_for_one_that_is_free(
    queue: DatabaseQueue, submit: Submit
) -> None:
    for _ in range(5):
        submit()
    leases = [take(queue, worker=f"w{index}") for index in range(4)]
    assert sorted(slot for lease in leases for slot in lease.slots) == [0, 1, 2, 3]
    assert queue.lease("w9", [host()]) is None
    queue.finish(leases[2], "failed", "broke", None)
    assert take(queue).slots == leases[2].slots


def test_a_suite_takes_as_many_slots_as_its_largest_workload_needs(
    queue: DatabaseQueue, submit: Submit
) -> None:
    submit("pair")
    assert take(queue).slots == (0, 1)


def test_higher_priority_goes_first_and_equals_in_order(
    queue: DatabaseQueue, submit: Submit
) -> None:
    first, second = submit(), submit()
    urgent = submit(priority=5)
    order = [take(queue).run.id for _ in range(3)]
    assert order == [urgent, first, second]


def test_who_waits_for_more_slots_is_not_overtaken(queue: DatabaseQueue, submit: Submit) -> None:
    small = [submit() for _ in range(3)]
    held = [take(queue) for _ in small]
    large = submit("pair")
    submit()
    assert queue.lease("w1", [host()]) is None  # one slot is free, and it is kept
    queue.finish(held[0], "passed", "", None)
    assert take(queue).run.id == large


def test_who_waits_keeps_one_host_and_others_go_on(queue: DatabaseQueue, submit: Submit) -> None:
    both = [host("a100-1", slots=2), host("a100-2", slots=2)]
    queue.register("w1", both)
    for name in ("a100-1", "a100-2"):
        submit(host=name)
        assert queue.lease("w1", both)
    submit("pair")
    small = submit()
    lease = queue.lease("w1", both)
    assert lease is not None
    assert lease.run.id == small


def test_a_run_goes_only_to_a_host_that_fits(queue: DatabaseQueue, submit: Submit) -> None:
    queue.register("w2", [host("l4", gpu="L4")])
    submit()
    assert queue.lease("w2", [host("l4", gpu="L4")]) is None
    assert queue.lease("w2", [host("cpu", gpu=None, driver=None)]) is None
    assert queue.lease("w2", [host("other", driver="550.54.15")]) is None
    assert queue.lease("w2", [host("unknown", gpu="NVIDIA A100-SXM4-80GB", driver=None)])


def test_a_run_that_names_its_host_goes_there_whatever_the_driver(
    queue: DatabaseQueue, submit: Submit
) -> None:
    newer = host("newer", driver="550.54.15")
    queue.register("w1", [newer])
    run_id = submit(host="newer")
    assert queue.lease("w1", [host()]) is None
    lease = queue.lease("w1", [newer])
    assert lease
    assert lease.run.id == run_id


def test_a_run_without_gpus_prefers_a_host_without(queue: DatabaseQueue, submit: Submit) -> None:
    submit("hello")
    lease = queue.lease("w1", [host(), host("cpu", gpu=None, driver=None)])
    assert lease
    assert lease.host == "cpu"


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
    gate: Gate, queue: DatabaseQueue, submit: Submit, time: Any
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
    row = gate.runs.get(run_id)
    assert (row.state, row.attempts, row.doing) == ("leased", 2, "")
    assert gate.runs.show(run_id).steps == ()
    assert gate.runs.output(run_id)[1] == []
    assert gate.runs.evidence().items == ()
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


def test_a_retry_waits_longer_each_time_and_then_ends_in_an_error(
    gate: Gate, queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    run_id = submit()
    for pause in (15, 60):
        queue.retry(take(queue), "the engine is away")
        row = gate.runs.get(run_id)
        assert (row.state, row.reason) == ("queued", "the engine is away")
        time.forward(seconds=pause - 1)
        assert queue.lease("w1", [host()]) is None
        time.forward(seconds=1)
    queue.retry(take(queue), "the engine is away")
    row = gate.runs.get(run_id)
    assert row.state == "error"
    assert row.reason == "the engine is away (attempt 3, the last)"
    assert gate.runs.hosts().items[0].busy == 0


def test_a_retry_on_another_host_begins_anew(
    queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    submit()
    old = take(queue)
    queue.record(old, StepResult("a-0", "a", 0, "passed"))
    queue.retry(old, "the engine is away")
    time.forward(minutes=1)
    assert queue.results(take(queue, "a100-2")) == []


def test_cancelling_what_waits_ends_it(gate: Gate, queue: DatabaseQueue, submit: Submit) -> None:
    run_id = submit()
    row = gate.runs.cancel(run_id, by="someone")
    assert (row.state, row.reason) == ("cancelled", "cancelled by someone")
    assert queue.lease("w1", [host()]) is None


@pytest.mark.parametrize("state", ["leased", "preparing", "running", "judging"])
def test_cancelling_what_runs_tells_its_worker(
    gate: Gate, queue: DatabaseQueue, submit: Submit, state: str
) -> None:
    run_id = submit()
    lease = take(queue)
    if state != "leased":
        queue.enter(lease, state)  # type: ignore[arg-type]
    row = gate.runs.cancel(run_id, by="someone")
    assert row.state == state
    assert row.to_json()["cancelling"]
    gate.runs.cancel(run_id, by="someone else")
    assert queue.renew(lease) == "cancel"
    queue.finish(lease, "cancelled", "cancelled by someone", None)
    row = gate.runs.get(run_id)
    assert (row.state, row.to_json()["cancelling"]) == ("cancelled", False)


def test_cancelling_does_not_wait_for_a_worker_that_is_gone(
    gate: Gate, queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    run_id = submit()
    lease = take(queue)
    time.forward(minutes=30)
    assert gate.runs.cancel(run_id, by="someone").state == "leased"
    time.forward(minutes=45)
    row = gate.runs.cancel(run_id, by="someone")
    assert row.state == "cancelled"
    assert "its worker w1 is gone, and may have left it on a100-1" in row.reason
    assert queue.renew(lease) == "lost"
    assert gate.runs.hosts().items[0].busy == 0


def test_a_cancelled_run_is_not_tried_again(
    gate: Gate, queue: DatabaseQueue, submit: Submit
) -> None:
    run_id = submit()
    lease = take(queue)
    gate.runs.cancel(run_id, by="someone")
    queue.retry(lease, "the engine is away")
    assert gate.runs.get(run_id).state == "cancelled"


def test_a_host_in_quiet_hours_takes_no_new_run_but_cleans_old_ones(
    queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    submit()
    take(queue)
    submit()
    always = host(quiet=(Quiet("00:00", "00:00"),))
    assert queue.lease("w1", [always]) is None
    time.forward(minutes=1)
    found = queue.lease("w1", [always])
    assert found
    assert found.abandoned


def test_hosts_are_registered_and_seen(gate: Gate, queue: DatabaseQueue, time: Any) -> None:
    row = gate.runs.hosts().items[0]
    assert (row.name, row.gpu, row.slots, row.worker, row.busy) == ("a100-1", GPU, 4, "w1", 0)
    time.forward(seconds=11)
    queue.lease("w2", [host(slots=2, endpoint="ssh://secret@host")])
    row = gate.runs.hosts().items[0]
    assert (row.slots, row.worker, row.seen_at) == (2, "w2", clock.now())
    assert "secret" not in str(row.to_json())


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"gpu": "A1000000"}, "hosts.a100-1.gpu"),
        ({"gpu": "8.0"}, "hosts.a100-1.gpu"),
        ({"driver": "new"}, "hosts.a100-1.driver"),
        ({"slots": 0}, "hosts.a100-1.slots"),
        ({"quiet": (Quiet("25:00", "06:00"),)}, "quiet.start"),
        ({"quiet": (Quiet("22:00", "06:00", timezone="Mars/Base"),)}, "quiet.timezone"),
    ],
)
def test_a_host_that_cannot_be_is_refused(queue: DatabaseQueue, wrong: dict, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        queue.lease("w1", [host(**wrong)])
    assert caught.value.field == field


def test_evidence_of_something_else_is_never_kept(queue: DatabaseQueue, submit: Submit) -> None:
    submit()
    lease = take(queue)
    for outcome, found in (
        ("inconclusive", evidence(lease)),
        ("timeout", evidence(lease, "failed")),
        ("failed", evidence(lease, "passed")),
    ):
        with pytest.raises(ValueError, match="is no evidence"):
            queue.finish(lease, outcome, "", found)  # type: ignore[arg-type]
    assert queue.renew(lease) == "go"


def test_output_is_kept_in_order_as_it_came(
    gate: Gate, queue: DatabaseQueue, submit: Submit
) -> None:
    run_id = submit()
    lease = take(queue)
    for piece in (b"a", b"", b"\xff\x00", b"c"):
        queue.write(lease, "gemm-0", piece)
    _, pieces = gate.runs.output(run_id)
    assert b"".join(piece.data for piece in pieces) == b"a\xff\x00c"
    _, rest = gate.runs.output(run_id, after=pieces[0].id, step="gemm-0")
    assert [piece.data for piece in rest] == [b"\xff\x00", b"c"]
