"""Incidents open, close and are posted; however many processes, each change is posted once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from incident_receiver import Receiver, web_receiver
from sqlalchemy import insert, text

from compatgate.core.incidents import IncidentKind
from compatgate.errors import BadInput, NotFound
from compatgate.kit.http.signatures import HEADER, Secret, verify
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.attention.repository import Incident
from compatgate.service.attention.worker import (
    IncidentWebhook,
    WebhookSender,
    pause_after,
    read_webhook,
)

OLD = {"name": "l4", "gpu": "L4", "driver": "470.82.01", "count": 3}
NEW = {**OLD, "driver": "580.95.05"}
STACK = {"cuda": "12.4"}
SECRET = Secret("incidents", b"0123456789abcdef")
BY = Authorship("tester", "for the test")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with web_receiver() as receiver:
        yield receiver


@pytest.fixture
def sender_of(receiver: Receiver) -> Iterator[Callable[[Rooms], WebhookSender]]:
    """Makes the sender of a gate to the receiver."""
    made: list[WebhookSender] = []

    def make(rooms: Rooms) -> WebhookSender:
        webhook = IncidentWebhook(f"{receiver.url}/hook?team=ml", SECRET, "https://gate.example/")
        made.append(WebhookSender(rooms.gate.database, webhook))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def clock_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Move the clock from a fixed start."""
    start = datetime.now(UTC)

    def move(by: timedelta) -> None:
        monkeypatch.setattr("compatgate.kit.clock.now", lambda: start + by)

    move(timedelta(0))
    return move


def add_target(rooms: Rooms, name: str, pool: dict[str, Any] = OLD, **metadata: Any) -> None:
    body = {"metadata": {"name": name, **metadata}, "spec": {"pools": [pool]}}
    rooms.matrix.create("Target", body, BY)
    rooms.snapshots.refresh()


def mend_target(rooms: Rooms, name: str) -> None:
    body = {"metadata": {"name": name}, "spec": {"pools": [NEW]}}
    rooms.matrix.change("Target", name, body, BY)
    rooms.snapshots.refresh()


def posted(receiver: Receiver) -> list[tuple[str, int, str]]:
    """Event, incident and state of each request."""
    bodies = [json.loads(one.body) for one in receiver.posted]
    return [(one["event"], one["incident"]["id"], one["incident"]["state"]) for one in bodies]


def test_an_incident_is_posted_when_it_opens_and_when_it_closes(
    rooms: Rooms, sender_of: Callable[[Rooms], WebhookSender], receiver: Receiver
) -> None:
    sender = sender_of(rooms)
    add_target(rooms, "a", owner="team-ml")
    (number,) = rooms.incidents.survey()
    assert sender.send_due() == 1
    add_target(rooms, "b")
    rooms.incidents.survey()
    assert sender.send_due() == 0, "another member is the same incident"
    for name in ("a", "b"):
        mend_target(rooms, name)
    rooms.incidents.survey()
    assert sender.send_due() == 1
    assert sender.send_due() == 0
    assert posted(receiver) == [("opened", number, "open"), ("closed", number, "ended")]
    body = json.loads(receiver.posted[0].body)
    assert body["schema"] == "compatgate.dev/incident/v1"
    assert body["url"] == f"https://gate.example/ui/incidents/{number}"
    assert body["incident"]["kind"] == "driver-branch"
    assert [one["name"] for one in body["incident"]["members"]] == ["a"]
    assert body["incident"]["owners"] == ["team-ml"]


def test_a_request_is_signed_with_the_time_the_path_and_the_body(
    rooms: Rooms, sender_of: Callable[[Rooms], WebhookSender], receiver: Receiver
) -> None:
    add_target(rooms, "a")
    rooms.incidents.survey()
    sender_of(rooms).send_due()
    (request,) = receiver.posted
    now = datetime.now(UTC).timestamp()
    header = request.headers[HEADER]
    assert verify([SECRET], header, now, "POST", "/hook?team=ml", request.body) == "incidents"


def test_a_snoozed_incident_waits(
    rooms: Rooms,
    sender_of: Callable[[Rooms], WebhookSender],
    receiver: Receiver,
    clock_at: Callable[[timedelta], None],
) -> None:
    sender = sender_of(rooms)
    add_target(rooms, "a")
    (number,) = rooms.incidents.survey()
    rooms.incidents.snooze(number, datetime.now(UTC) + timedelta(hours=2), BY)
    assert sender.send_due() == 0
    clock_at(timedelta(hours=3))
    sender.send_due()
    assert posted(receiver) == [("opened", number, "open")]


def test_a_receiver_that_fails_is_asked_again_later(
    rooms: Rooms,
    sender_of: Callable[[Rooms], WebhookSender],
    receiver: Receiver,
    clock_at: Callable[[timedelta], None],
) -> None:
    sender = sender_of(rooms)
    receiver.statuses = [500, 302, 429]
    receiver.location = "/elsewhere"
    add_target(rooms, "a")
    (number,) = rooms.incidents.survey()
    counts = []
    for seconds in (0, 5, 11, 20, 32, 40, 73):
        clock_at(timedelta(seconds=seconds))
        sender.send_due()
        counts.append(len(receiver.posted))
    assert counts == [1, 1, 2, 2, 3, 3, 4]
    assert {one.path for one in receiver.posted} == {"/hook?team=ml"}
    assert posted(receiver)[-1] == ("opened", number, "open")
    assert sender.send_due() == 0
    assert [pause_after(n).total_seconds() for n in (1, 2, 3, 20)] == [10, 20, 40, 600]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://hooks.example",
        "https://",
        "https://u:p@hooks.example",
        "https://a/b c",
        "hooks",
        "https://a:x",
    ],
)
def test_a_webhook_needs_a_url_and_a_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INCIDENT_KEY", "k" * 16)
    with pytest.raises(BadInput) as found:
        read_webhook(url, "env:INCIDENT_KEY", "")
    assert found.value.field == "--incident-webhook"
    monkeypatch.setenv("INCIDENT_KEY", "short")
    with pytest.raises(BadInput) as found:
        read_webhook("https://hooks.example/secret", "env:INCIDENT_KEY", "")
    assert (found.value.field or "").startswith("--incident-webhook-key")
    monkeypatch.setenv("INCIDENT_KEY", "k" * 16)
    assert "secret" not in repr(
        read_webhook("https://hooks.example/secret", "env:INCIDENT_KEY", "")
    )


def test_what_the_matrix_and_the_facts_do_to_stacks_in_use_becomes_incidents(rooms: Rooms) -> None:
    add_target(rooms, "a", NEW, owner="team-ml")
    spec = {"targets": ["a"], "components": {"cuda": "12.4.*"}, "status": "blessed"}
    rooms.matrix.create("Entry", {"metadata": {"name": "e"}, "spec": spec}, BY)
    rooms.snapshots.refresh()
    rooms.gate.decide(
        {"target": "a", "stack": {**STACK, "arch": ["sm_89"]}}, asked_by="t", source="t"
    )
    rooms.incidents.survey()
    assert not kinds(rooms) & {"entry-revoked", "verdict-flipped"}
    rooms.matrix.change(
        "Entry", "e", {"metadata": {"name": "e"}, "spec": {**spec, "status": "revoked"}}, BY
    )
    rooms.snapshots.refresh()
    rooms.incidents.survey()
    assert kinds(rooms) >= {"entry-revoked", "verdict-flipped"}
    (revoked,) = rooms.incidents.list(kind="entry-revoked").items
    assert (revoked.members[0].name, revoked.owners) == ("e", ["team-ml"])
    (flipped,) = rooms.incidents.list(kind="verdict-flipped").items
    assert "CG802" in flipped.message
    assert flipped.owners == ["team-ml"]


def kinds(rooms: Rooms) -> set[IncidentKind]:
    return {one.kind for one in rooms.incidents.list(state="open").items}


def test_workers_that_survey_and_post_together_post_each_event_once(
    rooms: Rooms,
    database_url: str,
    sender_of: Callable[[Rooms], WebhookSender],
    receiver: Receiver,
) -> None:
    add_target(rooms, "a")
    add_target(rooms, "b", {**OLD, "driver": "535.183.01"})
    gates = [open_rooms(database_url, overlays=[]) for _ in range(4)]
    senders = [sender_of(one) for one in gates]
    errors: list[BaseException] = []
    started = threading.Barrier(len(gates))

    def work(mine: Rooms, sender: WebhookSender) -> None:
        started.wait()
        try:
            for _ in range(3):
                mine.incidents.survey()
                sender.send_due()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=one) for one in zip(gates, senders, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    senders[0].send_due()
    for one in gates:
        one.close()
    assert errors == []
    assert sorted(event for event, _, _ in posted(receiver)) == ["opened", "opened"]
    assert len({number for _, number, _ in posted(receiver)}) == 2


def test_an_incident_that_goes_on_is_written_when_it_changes(
    rooms: Rooms, clock_at: Callable[[timedelta], None]
) -> None:
    add_target(rooms, "a")
    (number,) = rooms.incidents.survey()
    first = rooms.incidents.show(number)
    clock_at(timedelta(minutes=1))
    rooms.incidents.survey()
    assert rooms.incidents.show(number) == first
    add_target(rooms, "b")
    rooms.incidents.survey()
    assert [one.name for one in rooms.incidents.show(number).members] == ["a", "b"]
    changed = rooms.incidents.show(number)
    assert changed.last_seen == first.last_seen + timedelta(minutes=1)
    clock_at(timedelta(minutes=7))
    rooms.incidents.survey()
    assert rooms.incidents.show(number).last_seen == first.last_seen + timedelta(minutes=7)


def test_an_incident_of_a_kind_that_is_gone_is_hidden_and_pruned(rooms: Rooms) -> None:
    now = datetime.now(UTC)
    values = {
        "id": 77, "key": "channel-failing:1", "kind": "channel-failing", "level": "fail",
        "severity": 0, "state": "open", "episode": 1, "message": "m", "count": 1,
        "every_member": [], "members": [], "member_count": 0, "owner_lines": "",
        "first_seen": now, "last_seen": now,
    }  # fmt: skip
    with rooms.gate.database.working() as session:
        session.execute(insert(Incident).values(**values))
    rooms.incidents.survey()
    assert rooms.incidents.list().items == ()
    assert rooms.incidents.attention(4).leading == []
    with pytest.raises(NotFound):
        rooms.incidents.show(77)
    rooms.incidents.prune()
    with rooms.gate.database.reading() as session:
        assert session.execute(text("SELECT count(*) FROM incidents")).scalar() == 0


def test_one_process_surveys_at_a_time(rooms: Rooms, database_url: str) -> None:
    other = open_rooms(database_url, overlays=[])
    assert rooms.incidents.survey_if_due()
    assert not other.incidents.survey_if_due()
    assert not rooms.incidents.survey_if_due()
    other.close()
