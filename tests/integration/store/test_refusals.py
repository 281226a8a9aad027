"""Refused attempts are in the audit chain, few links for many attempts.

What was denied most, on every database.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from compatgate.kit import clock
from compatgate.service.app import Rooms
from compatgate.service.audit import chain
from compatgate.service.audit.chain import RefusalLog


def links(rooms: Rooms) -> list[tuple[str, int]]:
    found = rooms.audit.list_audit(action="access.refused").items
    return [(one.actor, one.detail["attempts"]) for one in reversed(found)]


def wait_for(rooms: Rooms, count: int) -> list[tuple[str, int]]:
    end = time.monotonic() + 20
    while len(found := links(rooms)) < count and time.monotonic() < end:
        time.sleep(0.02)
    return found


def test_the_first_attempt_is_written_at_once_and_the_rest_of_the_minute_together(
    rooms: Rooms,
) -> None:
    log = RefusalLog(rooms.gate.database, window_s=0.5)
    log.note("token:ci", "ci", "DELETE /targets/prod", "the token ci lacks the scope bless")
    assert wait_for(rooms, 1) == [("ci", 1)]
    for _ in range(500):
        log.note("token:ci", "ci", "DELETE /targets/prod", "the token ci lacks the scope bless")
    found = wait_for(rooms, 2)
    log.close()
    assert sum(count for _, count in links(rooms)) == 501
    assert len(found) <= 3
    (first, *_) = rooms.audit.list_audit(action="access.refused", limit=1).items
    assert first.subject == "DELETE /targets/prod"
    assert first.detail["caller"] == "token:ci"
    assert "lacks the scope bless" in first.detail["reason"]
    assert rooms.chain.verify().ok


def test_callers_beyond_the_limit_are_counted_together(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "MAX_CALLERS", 3)
    log = RefusalLog(rooms.gate.database)
    for number in range(10):
        log.note(f"token:t{number}", f"t{number}", "POST /targets", "no")
    log.close()
    found = links(rooms)
    assert sum(count for _, count in found) == 10
    assert {name for name, _ in found} == {"t0", "t1", "t2", "others"}


def test_a_closed_log_writes_what_waited(rooms: Rooms) -> None:
    log = RefusalLog(rooms.gate.database)
    for _ in range(3):
        log.note("token:ci", "ci", "POST /targets", "no")
    log.close()
    log.note("token:ci", "ci", "POST /targets", "after the end")
    assert sum(count for _, count in links(rooms)) == 3


def test_a_flush_waits_for_what_is_being_written(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = threading.Event()
    writes = chain.append

    def append(*arguments: Any, **named: Any) -> Any:
        writing.set()
        time.sleep(0.3)
        return writes(*arguments, **named)

    monkeypatch.setattr(chain, "append", append)
    log = RefusalLog(rooms.gate.database)
    log.note("token:ci", "ci", "POST /ui/sign-in", "no")
    assert writing.wait(20)
    log.flush()
    assert links(rooms) == [("ci", 1)]
    log.close()


DENIED = {"target": "inference-l4", "stack": {"cuda": "12.4", "arch": "sm_70"}}


def test_verdicts_that_denied_are_counted_and_others_are_not(stocked: Rooms) -> None:
    for _ in range(3):
        denied = stocked.gate.decide(DENIED, asked_by="ci", source="rest")
    other = {**DENIED, "stack": {"cuda": "12.4", "arch": "sm_60"}}
    stocked.gate.decide(other, asked_by="ci", source="rest")
    allowed = {"target": "dev-rtx", "stack": {"cuda": "12.4", "arch": "sm_89"}}
    stocked.gate.decide(allowed, asked_by="ci", source="rest")
    since, until = clock.now() - timedelta(days=7), clock.now()
    found = stocked.decisions.list_denied(since, until, limit=10)
    assert next((row.verdict_id, row.count) for row in found) == (denied.id, 3)
    assert len(found) == 2
    assert found[0].target == "inference-l4"
    assert len(stocked.decisions.list_denied(since, until, limit=1)) == 1
