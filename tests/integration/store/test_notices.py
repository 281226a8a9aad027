"""Incidents become messages: digested, retried, snoozed; however many processes, sent once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from notice_receivers import Receiver, web_receiver

from compatgate.core.incidents import IncidentKind
from compatgate.service.gate.service import Gate
from compatgate.service.matrix.service import Authorship
from compatgate.service.notices import outbox, repository
from compatgate.service.notices.schemas import ChannelRequest, SubscriptionRequest
from compatgate.service.notices.senders import read_options
from compatgate.service.notices.service import RELEASES
from compatgate.service.notices.survey import decode_releases, encode_releases

LOCAL = read_options(("127.0.0.0/8",), "", {})
OLD = {"name": "l4", "gpu": "L4", "driver": "470.82.01", "count": 3}
NEW = {**OLD, "driver": "580.95.05"}
STACK = {"cuda": "12.4"}
BY = Authorship("tester", "for the test")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with web_receiver() as receiver:
        yield receiver


@pytest.fixture
def tell(gate: Gate, receiver: Receiver) -> Callable[..., None]:
    """Make a channel to the receiver, and a subscription of it."""
    gate.notices.options = LOCAL

    def make(name: str = "all", **wanted: Any) -> None:
        hook = ChannelRequest("webhook", f"{receiver.url}/{name}", "0123456789abcdef")
        gate.notices.set_channel(name, hook, by="t")
        gate.notices.set_subscription(name, SubscriptionRequest(name, **wanted), by="t")

    return make


@pytest.fixture
def clock_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Move the clock from a fixed start."""
    start = datetime.now(UTC)

    def move(by: timedelta) -> None:
        monkeypatch.setattr("compatgate.kit.clock.now", lambda: start + by)

    return move


def add_target(gate: Gate, name: str, pool: dict[str, Any] = OLD, **metadata: Any) -> None:
    body = {"metadata": {"name": name, **metadata}, "spec": {"pools": [pool]}}
    gate.matrix.create("Target", body, BY)
    gate.snapshots.refresh()


def heard(receiver: Receiver) -> list[tuple[str, list[str]]]:
    """What each message said: its path and the names in it."""
    return [
        (one.path, [m["name"] for n in json.loads(one.body)["notices"] for m in n["members"]])
        for one in receiver.posted
    ]


def test_a_notice_goes_to_whom_it_concerns_and_only_once(
    gate: Gate, tell: Callable[..., None], receiver: Receiver
) -> None:
    tell("ml", owners=["team-ml"], urgency="page")
    tell("prod", labels={"tier": "prod"}, urgency="page")
    tell("lab", targets=["lab-*"], urgency="page")
    tell("broken", level="fail", urgency="page")
    add_target(gate, "a", owner="team-ml")
    add_target(gate, "b", labels={"tier": "prod"})
    for _ in range(2):
        gate.incidents.survey()
        gate.notices.sender.send_due()
    assert sorted(heard(receiver)) == [("/ml", ["a"]), ("/prod", ["b"])]
    add_target(gate, "c", owner="team-ml")
    gate.incidents.survey()
    gate.notices.sender.send_due()
    assert heard(receiver)[2:] == [("/ml", ["c"])]


def test_a_digest_waits_and_then_carries_everything(
    gate: Gate,
    tell: Callable[..., None],
    receiver: Receiver,
    clock_at: Callable[[timedelta], None],
) -> None:
    clock_at(timedelta(0))
    tell(digest="1h")
    add_target(gate, "a")
    gate.incidents.survey()
    gate.notices.sender.send_due()
    for minute, name in ((10, "b"), (20, "c")):
        clock_at(timedelta(minutes=minute))
        add_target(gate, name)
        gate.incidents.survey()
        gate.notices.sender.send_due()
    assert heard(receiver) == [("/all", ["a"])]
    clock_at(timedelta(minutes=61))
    gate.notices.sender.send_due()
    assert heard(receiver)[1:] == [("/all", ["b", "c"])]


def test_a_snoozed_incident_waits_and_a_resolved_one_is_not_sent(
    gate: Gate,
    tell: Callable[..., None],
    receiver: Receiver,
    clock_at: Callable[[timedelta], None],
) -> None:
    clock_at(timedelta(0))
    tell(urgency="page")
    add_target(gate, "a")
    (number,) = gate.incidents.survey()
    gate.incidents.snooze(number, datetime.now(UTC) + timedelta(hours=2), BY)
    gate.notices.sender.send_due()
    assert receiver.posted == []
    clock_at(timedelta(hours=3))
    gate.notices.sender.send_due()
    assert heard(receiver) == [("/all", ["a"])]
    add_target(gate, "b")
    gate.incidents.survey()
    gate.incidents.resolve(number, BY)
    gate.notices.sender.send_due()
    assert len(receiver.posted) == 1


def test_a_receiver_that_fails_is_asked_again_later_and_becomes_an_incident(
    gate: Gate,
    tell: Callable[..., None],
    receiver: Receiver,
    clock_at: Callable[[timedelta], None],
) -> None:
    clock_at(timedelta(0))
    tell(urgency="page", kinds=["driver-branch"])
    receiver.statuses = [500, 503, 429]
    add_target(gate, "a")
    gate.incidents.survey()
    for seconds in (0, 5, 11, 20, 40):
        clock_at(timedelta(seconds=seconds))
        gate.notices.sender.send_due()
    assert len(receiver.posted) == 3
    assert len({one.body for one in receiver.posted}) == 1
    gate.incidents.survey()
    (failing,) = gate.incidents.list(kind="channel-failing").items
    assert failing.members[0].name == "all"
    assert "429" in failing.message
    clock_at(timedelta(seconds=120))
    gate.notices.sender.send_due()
    (delivery,) = gate.notices.list_deliveries().items
    assert (delivery.state, delivery.attempts) == ("sent", 4)
    gate.incidents.survey()
    assert gate.incidents.list(kind="channel-failing").items[0].state == "ended"


def test_a_message_that_nobody_takes_for_a_day_has_failed(
    gate: Gate,
    tell: Callable[..., None],
    receiver: Receiver,
    clock_at: Callable[[timedelta], None],
) -> None:
    clock_at(timedelta(0))
    tell(urgency="page")
    receiver.statuses = [500, 500]
    add_target(gate, "a")
    gate.incidents.survey()
    for hours in (0, 25, 50):
        clock_at(timedelta(hours=hours))
        gate.notices.sender.send_due()
    (delivery,) = gate.notices.list_deliveries(state="failed").items
    assert (delivery.attempts, delivery.answer) == (2, "500 asked for /all")
    assert [outbox.pause_after(n).total_seconds() for n in (1, 2, 3, 20)] == [10, 20, 40, 3600]


def test_what_the_matrix_and_the_facts_do_to_stacks_in_use_becomes_incidents(gate: Gate) -> None:
    add_target(gate, "a", NEW, owner="team-ml")
    spec = {"targets": ["a"], "components": {"cuda": "12.4.*"}, "status": "blessed"}
    gate.matrix.create("Entry", {"metadata": {"name": "e"}, "spec": spec}, BY)
    gate.snapshots.refresh()
    gate.decide({"target": "a", "stack": {**STACK, "arch": ["sm_89"]}}, asked_by="t", source="t")
    gate.incidents.survey()
    assert not kinds(gate) & {"entry-revoked", "verdict-flipped", "release"}
    gate.matrix.change(
        "Entry", "e", {"metadata": {"name": "e"}, "spec": {**spec, "status": "revoked"}}, BY
    )
    gate.snapshots.refresh()
    with gate.database.working() as session:
        known = decode_releases(repository.lock_mark(session, RELEASES))
        older = {**known.versions, "driver": known.versions["driver"][:-1]}
        before = msgspec.structs.replace(known, digest="", versions=older)
        repository.write_mark(session, RELEASES, encode_releases(before), datetime.now(UTC))
    gate.incidents.survey()
    assert kinds(gate) >= {"entry-revoked", "verdict-flipped", "release"}
    (revoked,) = gate.incidents.list(kind="entry-revoked").items
    assert (revoked.members[0].name, revoked.owners) == ("e", ("team-ml",))
    (flipped,) = gate.incidents.list(kind="verdict-flipped").items
    assert "CG802" in flipped.message
    assert flipped.owners == ("team-ml",)


def kinds(gate: Gate) -> set[IncidentKind]:
    return {one.kind for one in gate.incidents.list(state="open").items}


def test_workers_that_survey_and_send_together_send_each_message_once(
    gate: Gate, database_url: str, tell: Callable[..., None], receiver: Receiver
) -> None:
    for name in ("x", "y", "z"):
        tell(name, urgency="page", kinds=["driver-branch"])
    add_target(gate, "a")
    gates = [Gate.open(database_url, overlays=[]) for _ in range(4)]
    errors: list[BaseException] = []
    started = threading.Barrier(len(gates))

    def work(mine: Gate) -> None:
        mine.notices.options = LOCAL
        started.wait()
        try:
            for _ in range(3):
                mine.incidents.survey()
                mine.notices.sender.send_due()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in gates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for one in gates:
        one.close()
    assert errors == []
    assert Counter(one.path for one in receiver.posted) == {"/x": 1, "/y": 1, "/z": 1}


def test_one_process_surveys_at_a_time(gate: Gate, database_url: str) -> None:
    other = Gate.open(database_url, overlays=[])
    assert gate.incidents.survey_if_due()
    assert not other.incidents.survey_if_due()
    assert not gate.incidents.survey_if_due()
    other.close()
