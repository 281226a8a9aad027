"""Blessed entries are run again before what was shown of them is old."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from canary_runs import DRIVER, GPU, evidence, host

from compatgate.canary.hosts import MaintenanceWindow
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.models import RunRow
from compatgate.service.runs.queue.queue import DatabaseQueue

Run = Callable[..., str]
DAY = 86400
MONTH = 30 * DAY


@pytest.fixture
def bless(
    rooms: Rooms, by: Authorship, entry_body: Callable[..., dict[str, Any]]
) -> Callable[..., None]:
    """Bless what the tests' runs measure, on a target that asks for evidence."""
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
    policy = {"canary": {"require": True}}
    body = {"metadata": {"name": "prod"}, "spec": {"pools": [pool], "policy": policy}}
    rooms.matrix.change("Target", "prod", body, by)

    def make(name: str = "torch24", status: str = "blessed") -> None:
        spec = {"targets": ["prod"], "components": {"torch": "~=2.4.0"}, "status": status}
        if status == "blessed":
            spec["evidenceOverride"] = "known good; the tests run it again"
        rooms.matrix.create("Entry", entry_body(name, **spec), by)

    return make


def due(rooms: Rooms) -> tuple[RunRow, ...]:
    return rooms.runs.verify_due(by="w1", every_s=MONTH)


def test_a_blessed_entry_is_run_again_within_a_month_and_once(
    rooms: Rooms, bless: Callable[..., None], run: Run, queue: DatabaseQueue, time: Any
) -> None:
    bless()
    first = run()
    time.forward(days=23)
    assert due(rooms) == ()
    time.forward(days=7)
    (again,) = due(rooms)
    assert (again.purpose, again.asked_by, again.state) == ("verification", "w1", "queued")
    assert (again.suite, again.target, again.stack) == (
        "smoke", "prod", rooms.runs.get(first).stack,
    )  # fmt: skip
    assert due(rooms) == (), "while it waits"
    lease = queue.lease("w1", [host()])
    assert lease
    queue.finish(lease, "passed", "", evidence(lease))
    assert due(rooms) == (), "a month from now"
    time.forward(days=30)
    assert len(due(rooms)) == 1


def test_what_two_entries_rest_on_is_run_once(
    rooms: Rooms, bless: Callable[..., None], run: Run, time: Any
) -> None:
    bless("torch24")
    bless("torch24-too")
    run()
    time.forward(days=30)
    assert len(due(rooms)) == 1


def test_a_verification_that_shows_nothing_is_tried_again_after_a_day(
    rooms: Rooms, bless: Callable[..., None], run: Run, queue: DatabaseQueue, time: Any
) -> None:
    bless()
    run()
    time.forward(days=30)
    assert len(due(rooms)) == 1
    lease = queue.lease("w1", [host()])
    assert lease
    queue.finish(lease, "inconclusive", "the host was shared", None)
    time.forward(hours=23)
    assert due(rooms) == ()
    time.forward(hours=1)
    assert len(due(rooms)) == 1


def test_a_verification_that_fails_is_evidence_and_a_warning_on_the_entry(
    rooms: Rooms, bless: Callable[..., None], run: Run, queue: DatabaseQueue, time: Any
) -> None:
    bless()
    run()
    time.forward(days=30)
    (again,) = due(rooms)
    lease = queue.lease("w1", [host()])
    assert lease
    queue.finish(lease, "failed", "12 % slower", evidence(lease, "failed"))
    (warning,) = rooms.runs.remarks(["torch24"])["torch24"].warnings
    assert warning.run == again.id


def test_candidates_are_not_verified(
    rooms: Rooms, bless: Callable[..., None], run: Run, time: Any
) -> None:
    bless(status="candidate")
    run()
    time.forward(days=40)
    assert due(rooms) == ()


def test_an_entry_that_no_host_can_run_any_more_is_named_in_the_log(
    rooms: Rooms,
    bless: Callable[..., None],
    run: Run,
    queue: DatabaseQueue,
    time: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bless()
    run()
    time.forward(days=30)
    queue.register("w1", [host(gpu="L4", driver="550.54.15")])
    assert due(rooms) == ()
    assert "entry torch24 cannot be verified again: target: no staging host" in caplog.text


def test_a_verification_waits_for_the_end_of_the_quiet_hours(
    rooms: Rooms, bless: Callable[..., None], run: Run, queue: DatabaseQueue, time: Any
) -> None:
    office = host(quiet=(MaintenanceWindow("08:00", "18:00", ("mon", "tue", "wed", "thu", "fri")),))
    time.present = datetime(2026, 11, 23, 7, tzinfo=UTC)  # a Monday
    bless()
    run()
    time.forward(days=30)  # a Wednesday
    (again,) = due(rooms)
    time.forward(hours=2)
    assert queue.lease("w1", [office]) is None
    time.forward(hours=9)
    lease = queue.lease("w1", [office])
    assert lease
    assert lease.run.id == again.id
