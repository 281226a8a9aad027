"""The thread that looks at the database: nobody waits for it longer than a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from compatgate.errors import Unavailable
from compatgate.kit import clock
from compatgate.kit.database import watch as watching
from compatgate.kit.database.watch import DatabaseWatch


class _Database:
    """A database that answers, refuses or is silent."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.looks = 0

    def look(self, heard: Callable[[], None]) -> None:
        """Look at it."""
        self.looks += 1
        self.answers.wait(30)
        if self.error:
            raise self.error
        heard()


@pytest.fixture
def database() -> _Database:
    return _Database()


@pytest.fixture
def watch(database: _Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabaseWatch]:
    monkeypatch.setattr(watching, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(watching, "_RETRY_SECONDS", 0.05)
    made = DatabaseWatch(database.look, clock.now())
    made.start()
    yield made
    database.answers.set()
    made.end()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_look_is_shared_as_long_as_it_is_recent(
    watch: DatabaseWatch, database: _Database
) -> None:
    assert database.looks == 1
    watch.check()
    assert database.looks == 1
    watch.expire()
    watch.check()
    assert database.looks == 2


def test_silence_is_an_outage_for_which_one_request_waits_a_moment(
    watch: DatabaseWatch, database: _Database
) -> None:
    database.answers.clear()
    watch.check_now(0.5)
    outage = watch.outage()
    assert outage is not None
    assert "has not answered" in outage.reason
    began = time.monotonic()
    for _ in range(1000):
        watch.check_now()
    assert time.monotonic() - began < 5
    assert watch.is_silent()
    refusal = watch.refusal()
    assert refusal is not None
    assert refusal.status == 503
    database.answers.set()
    _until(lambda: watch.outage() is None)
    assert watch.refusal() is None


def test_an_error_is_an_outage_until_a_look_succeeds_by_itself(
    watch: DatabaseWatch, database: _Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.error = Unavailable("it refuses")
    watch.check_now()
    first = watch.outage()
    assert first is not None
    _until(lambda: database.looks > 4)
    assert watch.outage() == first  # since stays
    age = watch.age_s()
    database.error = None
    _until(lambda: watch.outage() is None)
    assert watch.age_s() < age
    assert caplog.text.count("the database is unavailable: it refuses") == 1
    assert "the database is back" in caplog.text


def test_a_defect_of_looking_is_an_outage_and_not_the_end_of_the_thread(
    watch: DatabaseWatch, database: _Database
) -> None:
    database.error = ZeroDivisionError("oops")
    watch.check_now()
    outage = watch.outage()
    assert outage is not None
    assert "oops" in outage.reason
    database.error = None
    _until(lambda: watch.outage() is None)
