"""Many processes at once: nothing is lost, revisions have no gaps, the chain holds."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from processes import forked

from compatgate.errors import Conflict
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms

PROCESSES = 4
EACH = 15
QUESTION = {"pool": {"driver": "535.104.05", "gpu": "L4"}, "stack": {"cuda": "12.1"}}


def _change_and_decide(url: str, worker: int) -> None:
    rooms = open_rooms(url, overlays=[])
    by = Authorship(f"worker-{worker}", "at the same time")
    for number in range(EACH):
        spec = {"targets": ["*"], "components": {"cuda": "12.*"}, "status": "blessed"}
        body = {"metadata": {"name": f"e-{worker}-{number}"}, "spec": spec}
        rooms.matrix.create("Entry", body, by)
        rooms.gate.decide(QUESTION, asked_by=by.author, source="test")
    rooms.close()


def _increment(url: str, worker: int) -> None:
    rooms = open_rooms(url, overlays=[])
    for _ in range(EACH):
        while True:
            seen = rooms.matrix.get("Entry", "counter")
            body = dict(seen.document)
            count = int(body["spec"]["reason"]) + 1
            body["spec"] = {**body["spec"], "reason": str(count)}
            try:
                by = Authorship(f"worker-{worker}", "counting")
                rooms.matrix.change("Entry", "counter", body, by, expected=seen.revision)
                break
            except Conflict:
                continue
    rooms.close()


def _together(work: Callable[[str, int], None], url: str) -> None:
    spawn = forked()
    workers = [spawn.Process(target=work, args=(url, index)) for index in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES


def test_processes_that_write_together_lose_nothing(rooms: Rooms, database_url: str) -> None:
    _together(_change_and_decide, database_url)
    total = PROCESSES * EACH
    rows = rooms.matrix.list_revisions(limit=1000).items
    assert [row.number for row in rows] == list(range(total, 0, -1))
    assert Counter(row.author for row in rows) == {f"worker-{i}": EACH for i in range(PROCESSES)}
    decisions = rooms.decisions.list_decisions(limit=1000).items
    assert Counter(d.asked_by for d in decisions) == Counter(row.author for row in rows)
    report = rooms.chain.verify()
    assert report.ok, report.problems
    assert len(rooms.snapshots.refresh().entries) == total


def test_changes_made_from_the_version_that_was_seen_are_never_lost(
    rooms: Rooms, database_url: str, by: Authorship, entry_body: Callable[..., dict[str, Any]]
) -> None:
    rooms.matrix.create("Entry", entry_body("counter", reason="0"), by)
    _together(_increment, database_url)
    counter = rooms.matrix.get("Entry", "counter")
    assert counter.document["spec"]["reason"] == str(PROCESSES * EACH)
    assert counter.revision == 1 + PROCESSES * EACH


def test_one_of_many_makes_a_name(
    rooms: Rooms, database_url: str, entry_body: Callable[..., dict[str, Any]]
) -> None:
    outcomes: list[str] = []

    def create(worker: int) -> None:
        try:
            rooms.matrix.create("Entry", entry_body("mine"), Authorship(f"w{worker}", "first"))
            outcomes.append("made")
        except Conflict:
            outcomes.append("taken")

    threads = [threading.Thread(target=create, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made"] + ["taken"] * 7
    assert rooms.gate.snapshot().revision == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_gate_made_before_a_fork_works_on_both_sides(
    rooms: Rooms, by: Authorship, entry_body: Callable[..., dict[str, Any]]
) -> None:
    rooms.matrix.create("Entry", entry_body("before"), by)
    rooms.gate.decide(QUESTION, asked_by="parent", source="test")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for _ in range(20):
                rooms.gate.decide(QUESTION, asked_by="child", source="test")
            rooms.matrix.create("Entry", entry_body("child"), by)
            status = 0
        finally:
            os._exit(status)
    for _ in range(20):
        rooms.gate.decide(QUESTION, asked_by="parent", source="test")
    assert os.waitpid(child, 0)[1] == 0
    asked = Counter(d.asked_by for d in rooms.decisions.list_decisions(limit=1000).items)
    assert asked == {"parent": 21, "child": 20}
    assert rooms.chain.verify().ok
    assert set(rooms.snapshots.refresh().entries) == {"before", "child"}
