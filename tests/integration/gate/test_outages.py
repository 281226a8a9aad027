"""A gate whose database is unavailable, with a log that accepts decisions all the same."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from compatgate.errors import Unauthorized, Unavailable
from compatgate.kit import clock
from compatgate.kit.database import database as databases
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database, resolve_url
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.decisions import outages
from compatgate.service.gate.decisions.decision_log import DecisionLog
from compatgate.service.gate.decisions.last_known import SnapshotFile
from compatgate.service.gate.decisions.outages import OutageOptions
from compatgate.service.gate.questions import readiness
from compatgate.service.gate.questions.schemas import VerdictBody
from compatgate.web.app import create_app
from compatgate.web.service import Settings
from compatgate.web.startup import StartOptions, prepare

TARGET = {
    "apiVersion": "compatgate.dev/v1",
    "kind": "Target",
    "metadata": {"name": "prod"},
    "spec": {"pools": [{"name": "p", "gpu": "L4", "driver": "535.104.05"}]},
}
QUESTION = {"target": "prod", "stack": {"cuda": "12.1", "arch": ["sm_89"]}}
BY = Authorship("tester", "to see what happens")
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize(
    "database_url", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a log was given that never fails."""
    rows: list[Any] = []

    def submit(_: DecisionLog, given: list[Any]) -> Future[None]:
        rows.extend(given)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    monkeypatch.setattr(DecisionLog, "record", lambda _, *row: rows.append(row))
    monkeypatch.setattr(DecisionLog, "submit", submit)
    monkeypatch.setattr(DecisionLog, "rehearse", lambda _: None)
    monkeypatch.setattr(readiness, "REUSED_SECONDS", 0.0)
    return rows


@pytest.fixture
def kept(rooms: Rooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rooms:
    """A gate with a target that keeps its snapshot in the folder ``state``."""
    monkeypatch.setattr(outages, "_WRITE_SECONDS", 0.05)
    monkeypatch.setattr(outages, "_TOKENS_SECONDS", 0.1)
    rooms.matrix.create("Target", TARGET, BY)
    (tmp_path / "state").mkdir()
    options = OutageOptions(tmp_path / "state", file=rooms.gate.database.file.expect())
    rooms.gate.keep_through_outages(rooms.tokens, options, clock.now())
    return rooms


@pytest.fixture
def file(kept: Rooms, tmp_path: Path) -> SnapshotFile:
    found = SnapshotFile(tmp_path / "state", kept.gate.url)
    until(lambda: found.path.with_name("confirmed.json").exists())
    return found


@pytest.fixture
def away(kept: Rooms, file: SnapshotFile) -> Iterator[Path]:
    """The SQLite file, moved away."""
    path = Path(kept.gate.database.url.database or "")
    aside = path.with_suffix(".aside")
    path.rename(aside)
    until(lambda: kept.gate.degraded() is not None)
    yield aside
    if aside.exists():
        aside.rename(path)


def post(rooms: Rooms, path: str, body: Any, **headers: str) -> Any:
    app = create_app(rooms, Settings(anonymous=frozenset({"gate", "plan", "read"})))
    return app.test_client().post(path, json=body, headers=headers)


@on_sqlite
def test_an_answer_says_that_it_is_degraded_and_the_stored_verdict_does_not(
    kept: Rooms, logged: list[Any], file: SnapshotFile
) -> None:
    before = post(kept, "/api/v1/gate", QUESTION).json
    path = Path(kept.gate.database.url.database or "")
    path.rename(path.with_suffix(".aside"))
    until(lambda: kept.gate.degraded() is not None)
    answer = post(kept, "/api/v1/gate", QUESTION)
    body = msgspec.json.decode(answer.data, type=VerdictBody)
    assert body.degraded is not None
    assert body.degraded.reason.endswith("was deleted")
    assert body.degraded.snapshot_age_s < 60
    assert body.id == before["id"]
    assert "degraded" not in before
    assert [b'"degraded"' in row[1].encode() for row in logged] == [False, False]
    what_if = {"target": "prod", "set": {"driver": "580.95.05"}}
    assert "degraded" in post(kept, "/api/v1/what-if", what_if).json
    hooked = post(kept, "/hooks/generic", QUESTION).json
    assert hooked["degraded"]["reason"] == body.degraded.reason
    assert "degraded" in hooked["reason"]


@on_sqlite
@pytest.mark.usefixtures("away", "logged")
def test_ready_while_a_snapshot_and_a_place_for_decisions_exist(
    kept: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = create_app(kept, Settings(anonymous=frozenset({"gate"}))).test_client()
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json["status"] == "ready"
    assert ready.json["degraded"]["reason"].endswith("was deleted")

    def full(_: DecisionLog) -> None:
        raise Unavailable("the spool is full")

    monkeypatch.setattr(DecisionLog, "rehearse", full)
    refused = client.get("/readyz")
    assert refused.status_code == 503
    assert "the spool is full" in refused.json["detail"]


@on_sqlite
@pytest.mark.usefixtures("away", "logged")
def test_pages_that_need_the_snapshot_alone_go_on_and_say_so(kept: Rooms) -> None:
    settings = Settings(anonymous=frozenset({"gate", "plan", "read"}))
    client = create_app(kept, settings).test_client()
    page = client.get("/ui/ask")
    assert page.status_code == 200
    assert b"the database has been unavailable since" in page.data
    stored = client.get("/ui/decisions")
    assert stored.status_code == 503
    assert b"nothing was read or changed" in stored.data


@on_sqlite
@pytest.mark.usefixtures("away")
def test_changes_are_refused_at_once_and_nothing_is_half_done(kept: Rooms, away: Path) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="nothing was read or changed"):
        kept.matrix.create("Target", {**TARGET, "metadata": {"name": "new"}}, BY)
    with pytest.raises(Unavailable):
        kept.tokens.create("new", ["gate"], by="tester")
    assert time.monotonic() - began < 5
    away.rename(kept.gate.database.url.database or "")
    until(lambda: kept.gate.degraded() is None)
    assert [target.name for target in kept.matrix.list_targets().items] == ["prod"]
    assert not kept.tokens.list().items


@on_sqlite
def test_a_browser_that_was_seen_lately_stays_signed_in(kept: Rooms, file: SnapshotFile) -> None:
    signed_in = kept.sessions.sign_in(kept.tokens.create("ann", ["read"], by="tester").secret)
    other = kept.sessions.sign_in(kept.tokens.create("bob", ["read"], by="tester").secret)
    assert kept.sessions.principal(signed_in.cookie) is not None
    path = Path(kept.gate.database.url.database or "")
    path.rename(path.with_suffix(".aside"))
    until(lambda: kept.gate.degraded() is not None)
    time.sleep(1.1)  # until the session is no longer cached
    found = kept.sessions.principal(signed_in.cookie)
    assert found is not None
    assert found.name == "ann"
    with pytest.raises(Unavailable):
        kept.sessions.principal(other.cookie)


@on_postgresql
@pytest.mark.usefixtures("logged")
def test_an_emptied_database_never_replaces_the_matrix(kept: Rooms, file: SnapshotFile) -> None:
    before = kept.gate.preview(QUESTION).id
    admin = Database(kept.gate.database.url)
    tables.migrate_schema(admin, "base")
    tables.migrate_schema(admin)
    until(lambda: kept.gate.degraded() is not None)
    degraded = kept.gate.degraded()
    assert degraded is not None
    assert kept.gate.preview(QUESTION).id == before
    until(
        lambda: "is empty, but had matrix revision 1" in (kept.gate.degraded() or degraded).reason
    )
    admin.close()


@on_sqlite
def test_a_change_is_written_and_the_same_state_only_confirmed(
    kept: Rooms, file: SnapshotFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "_CONFIRM_SECONDS", 0.2)
    first, confirmed = os.stat(file.path).st_ino, file.path.with_name("confirmed.json")
    noted = os.stat(confirmed).st_ino
    until(lambda: os.stat(confirmed).st_ino != noted)
    assert os.stat(file.path).st_ino == first
    kept.matrix.create("Target", {**TARGET, "metadata": {"name": "new"}}, BY)
    until(lambda: os.stat(file.path).st_ino != first)
    known = file.read()
    assert known is not None
    assert known.payload.revision == 2
    kept.tokens.create("ci", ["gate"], by="tester")
    until(lambda: len((file.read() or known).tokens) == 1)


def test_a_token_of_another_process_counts_at_once_and_ends_within_moments(
    kept: Rooms, file: SnapshotFile
) -> None:
    with_other = open_rooms(
        kept.gate.database.url.render_as_string(hide_password=False), overlays=[]
    )
    made = with_other.tokens.create("ci", ["gate"], by="tester")
    assert kept.tokens.verify(made.secret).name == "ci"
    until(lambda: with_other.tokens.find("ci").last_used_at is not None)
    with_other.tokens.revoke("ci", by="tester")

    def is_refused() -> bool:
        try:
            kept.tokens.verify(made.secret)
        except Unauthorized as error:
            return "revoked" in error.problem
        return False

    until(is_refused)
    with pytest.raises(Unauthorized, match="unknown"):
        kept.tokens.verify("cg_unknown")
    with_other.close()


def test_a_change_is_seen_by_the_next_question_of_the_same_process(kept: Rooms) -> None:
    for number in range(5):
        name = f"t{number}"
        kept.matrix.create("Target", {**TARGET, "metadata": {"name": name}}, BY)
        assert kept.gate.preview({**QUESTION, "target": name}).target == name


@on_sqlite
def test_a_clock_that_goes_back_revives_nothing_after_a_restart(
    kept: Rooms, file: SnapshotFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = file.read()
    assert known is not None
    back = known.confirmed_at - timedelta(days=30)
    monkeypatch.setattr(clock, "_steady", clock.SteadyClock())
    monkeypatch.setattr(clock, "read_clocks", lambda: (back, 100.0))
    assert clock.now() == back
    url = kept.gate.database.url.render_as_string(hide_password=False)
    prepare(StartOptions(url, state=str(file.path.parent)))
    assert clock.now() == known.confirmed_at


@on_sqlite
def test_a_start_without_the_database_needs_a_recent_snapshot(
    kept: Rooms, file: SnapshotFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> None:
        raise Unavailable("the database does not answer")

    monkeypatch.setattr(tables, "prepare_schema", fail)
    options = StartOptions(str(kept.gate.database.url.database), state=str(file.path.parent))
    prepared = prepare(options)
    assert prepared.away == "the database does not answer"
    assert prepared.snapshot.targets.keys() == {"prod"}
    time.sleep(1.1)
    with pytest.raises(Unavailable, match="older than --max-stale allows"):
        prepare(replace(options, max_stale=timedelta(seconds=1)))
    file.path.unlink()
    with pytest.raises(Unavailable, match="does not answer"):
        prepare(options)


@on_sqlite
def test_after_a_wait_for_a_lock_further_changes_do_not_queue(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "_LONG_SECONDS", 0.5)
    tables.prepare_schema(Database.open(database_url))
    impatient = Database(resolve_url(database_url), patience_s=1)
    other = sqlite3.connect(impatient.url.database or "", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Unavailable, match="locked"), impatient.writing():
        pass
    began = time.monotonic()
    for _ in range(20):
        with pytest.raises(Unavailable, match="locked"), impatient.writing():
            pass
    assert time.monotonic() - began < 1
    with impatient.reading():
        pass
    other.close()
    monkeypatch.setattr(databases, "_REFUSED_SECONDS", 0.0)
    until(lambda: _can_write(impatient))
    impatient.close()


def _can_write(database: Database) -> bool:
    try:
        with database.writing():
            return True
    except Unavailable:
        return False
