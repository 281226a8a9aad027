"""What was answered is in the log, whatever happens to the processes of PostgreSQL."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from postgresql import Cluster, DroppingProxy
from sqlalchemy import text

from compatgate.errors import Unavailable
from compatgate.kit.database.database import Database
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.decisions.batch_store import DecisionWriter

pytestmark = pytest.mark.postgresql
QUESTION = {"pool": {"driver": "535.104.05", "gpu": "L4"}, "stack": {"cuda": "12.1"}}
THREADS = 8
KILLS = 3
on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


class Load:
    """Threads that ask all the time, and remember who was answered."""

    def __init__(self, url: str) -> None:
        self.answered: list[str] = []
        self.refused = 0
        self._rooms = open_rooms(url, overlays=[])
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def _ask(self, thread: int) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            try:
                self._rooms.gate.decide(QUESTION, asked_by=f"{thread}-{number}", source="test")
            except Unavailable:
                self.refused += 1
                time.sleep(0.05)
            else:
                self.answered.append(f"{thread}-{number}")

    def wait_for_answers(self, count: int = 40) -> None:
        """Wait until some more were answered."""
        deadline = time.monotonic() + 60
        enough = len(self.answered) + count
        while len(self.answered) < enough:
            assert time.monotonic() < deadline, "nothing is answered any more"
            time.sleep(0.01)

    def end(self) -> None:
        """Ask no more."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        self._rooms.close()


def _logged(url: str) -> Counter[str]:
    rooms = open_rooms(url, overlays=[])
    try:
        with rooms.gate.database.reading() as session:
            rows = session.execute(text("SELECT asked_by FROM decisions")).scalars().all()
        report = rooms.chain.verify()
        assert report.ok, report.problems
        return Counter(rows)
    finally:
        rooms.close()


@pytest.fixture
def load(mortal_cluster: Cluster) -> Iterator[Load]:
    asking = Load(mortal_cluster.url)
    yield asking
    asking.end()


def test_no_answered_decision_is_lost_when_a_backend_dies_in_its_commit(
    load: Load, mortal_cluster: Cluster
) -> None:
    for _ in range(KILLS):
        load.wait_for_answers()
        mortal_cluster.kill_committing()
    load.wait_for_answers()
    load.end()
    assert load.refused
    logged = _logged(mortal_cluster.url)
    missing = set(load.answered) - set(logged)
    assert not missing, f"{len(missing)} of {len(load.answered)} answered decisions are lost"


def test_no_answered_decision_is_lost_when_the_server_is_stopped_at_once(
    load: Load, mortal_cluster: Cluster
) -> None:
    load.wait_for_answers()
    mortal_cluster.stop()
    load.end()
    mortal_cluster.start()
    missing = set(load.answered) - set(_logged(mortal_cluster.url))
    assert not missing, f"{len(missing)} of {len(load.answered)} answered decisions are lost"


@on_postgresql
@pytest.mark.parametrize("setting", ["off", "local", "remote_write", "on", "remote_apply"])
def test_a_setting_of_the_server_stays_unless_it_loses_decisions(
    rooms: Rooms, setting: str
) -> None:
    name = rooms.gate.database.url.database
    with rooms.gate.database.writing() as session:
        session.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = {setting}"))
    try:
        opened = Database(rooms.gate.database.url)
        writer = DecisionWriter(opened)
        with writer._transaction() as cursor:
            used = cursor.execute("SHOW synchronous_commit").fetchone()[0]
        writer.close()
        opened.close()
    finally:
        with rooms.gate.database.writing() as session:
            session.execute(text(f"ALTER DATABASE {name} RESET synchronous_commit"))
    assert used == ("local" if setting == "off" else setting)


@on_postgresql
def test_a_commit_whose_answer_was_lost_is_not_made_twice(database_url: str) -> None:
    open_rooms(database_url, overlays=[]).close()
    proxy = DroppingProxy(database_url)
    rooms = open_rooms(proxy.url, overlays=[])
    try:
        rooms.gate.decide(QUESTION, asked_by="before", source="test")
        proxy.drops = 1
        rooms.gate.decide(QUESTION, asked_by="in doubt", source="test")
        rooms.gate.decide(QUESTION, asked_by="after", source="test")
    finally:
        rooms.close()
        proxy.close()
    assert proxy.drops == 0
    assert _logged(database_url) == {"before": 1, "in doubt": 1, "after": 1}
