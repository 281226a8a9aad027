"""The queue: which run goes to which host, in which order, and which hosts there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from canary_runs import GPU, host

from compatgate.canary.hosts import MaintenanceWindow
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.clock import readable
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.queue import DatabaseQueue

from .conftest import take

Submit = Callable[..., str]


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


def test_a_host_in_quiet_hours_takes_no_new_run_but_cleans_old_ones(
    queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    submit()
    take(queue)
    submit()
    always = host(quiet=(MaintenanceWindow("00:00", "00:00"),))
    assert queue.lease("w1", [always]) is None
    time.forward(minutes=1)
    found = queue.lease("w1", [always])
    assert found
    assert found.abandoned


def test_a_host_that_is_away_is_named_by_the_runs_that_wait_for_it(
    rooms: Rooms, queue: DatabaseQueue, submit: Submit, time: Any
) -> None:
    queue.register("w1", [host("a100-2")])
    submit()
    held = take(queue)
    queue.enter(held, "preparing")
    waiting, named = submit(), submit(host="a100-2")
    queue.report_host("a100-1", "no engine; start it")
    since = time.present
    time.forward(minutes=5)
    queue.report_host("a100-1", "no route; look at it")
    queue.report_host("no-such-host", "gone")
    (away,) = rooms.runs.away_hosts()
    assert (away.name, away.away_since) == ("a100-1", since), "since it went, whatever is said now"
    said = f"waits for the host a100-1, away since {readable(since)}: no route; look at it"
    assert rooms.runs.get(held.run.id).doing == said
    assert rooms.runs.show(held.run.id).run.doing == said
    waits = "takes at most 20 min; no earlier run shows how long"
    assert {run.doing for run in rooms.runs.list().items} == {said, waits}
    assert rooms.runs.get(waiting).doing == waits, "another host could run it"
    queue.report_host("a100-2", "no engine; start it")
    assert rooms.runs.get(waiting).doing.startswith("waits for the host a100-1, away")
    assert rooms.runs.get(named).doing.startswith("waits for the host a100-2, away")
    for name in ("a100-1", "a100-2"):
        queue.report_host(name, "")
    assert rooms.runs.away_hosts() == []
    assert {run.doing for run in rooms.runs.list().items} == {"", waits}


def test_hosts_are_registered_and_seen(rooms: Rooms, queue: DatabaseQueue, time: Any) -> None:
    row = rooms.runs.hosts().items[0]
    assert (row.name, row.gpu, row.slots, row.worker, row.busy) == ("a100-1", GPU, 4, "w1", 0)
    time.forward(seconds=11)
    queue.lease("w2", [host(slots=2, endpoint="ssh://secret@host")])
    row = rooms.runs.hosts().items[0]
    assert (row.slots, row.worker, row.seen_at) == (2, "w2", clock.now())
    assert "secret" not in str(row.to_json())


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"gpu": "A1000000"}, "hosts.a100-1.gpu"),
        ({"gpu": "8.0"}, "hosts.a100-1.gpu"),
        ({"driver": "new"}, "hosts.a100-1.driver"),
        ({"slots": 0}, "hosts.a100-1.slots"),
        ({"quiet": (MaintenanceWindow("22:00", "06:00", timezone="Mars/Base"),)}, "quiet.timezone"),
    ],
)
def test_a_host_that_cannot_be_is_refused(queue: DatabaseQueue, wrong: dict, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        queue.lease("w1", [host(**wrong)])
    assert caught.value.field == field
