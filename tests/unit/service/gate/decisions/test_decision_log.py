"""The group commit: shared transactions, in order, and an error reaches everyone it concerns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select

from compatgate.errors import Unavailable
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.database.sqlite import WriterTurn
from compatgate.service.gate.decisions import decision_log, delivery
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import DecisionBatch, StoredBatch, WriterChain
from compatgate.service.gate.decisions.decision_log import DecisionLog
from compatgate.service.gate.decisions.service import read_decision_lines
from compatgate.service.gate.decisions.spool import Spool, SpoolOptions
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.recovery.verification import AuditChain


def _decision(who: str, verdict: str = "vd_1") -> NewDecision:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    return NewDecision(verdict, now, None, "pass", True, 1, None, who, "test", 5)


_ASKED_BY = NewDecision.__struct_fields__.index("asked_by")


class _Writer:
    """Remembers batches; waits, or fails, when told to."""

    name, owner, is_direct, longest_retry_s = "", "", True, 0.1

    def __init__(self) -> None:
        self.turn: AbstractContextManager[None] = nullcontext()
        self.stored: list[DecisionBatch] = []
        self.verdicts: list[set[str]] = []
        self.in_doubt = False
        self.may_write = threading.Event()
        self.may_write.set()
        self.error: Exception | None = None
        self.busy = 0

    @property
    def batches(self) -> list[list[str]]:
        """Who asked, by batch."""
        return [[line[_ASKED_BY] for line in batch.lines] for batch in self.stored]

    def write(self, deliveries: Sequence[Delivery]) -> None:
        self.busy += 1
        assert self.busy == 1, "two transactions at once"
        self.may_write.wait(10)
        self.busy -= 1
        if self.error:
            raise self.error
        for one in deliveries:
            self.stored.append(one.batch)
            self.verdicts.append(set(one.bodies))

    def close(self) -> None:
        pass


def _joined(log: DecisionLog) -> int:
    """Number of decisions in the batch that is open."""
    return len(log._open.rows) if log._open is not None else 0


@pytest.fixture
def writer() -> _Writer:
    return _Writer()


@pytest.fixture
def log(writer: _Writer, tmp_path: object) -> DecisionLog:
    database = Database.open(f"{tmp_path}/unused.db")
    tables.prepare_schema(database)
    log = DecisionLog(database)
    writer.turn = log._destination.turn
    log._destination = writer  # type: ignore[assignment]
    return log


@pytest.fixture
def together() -> Callable[..., list[threading.Thread]]:
    def start(work: Callable[[int], None], count: int) -> list[threading.Thread]:
        threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
        for thread in threads:
            thread.start()
        return threads

    return start


def test_a_lone_decision_is_a_batch_of_its_own(log: DecisionLog, writer: _Writer) -> None:
    log.record(_decision("a"), "{}")
    log.record(_decision("b"), "{}")
    assert writer.batches == [["a"], ["b"]]


def test_decisions_that_come_during_a_write_share_the_next_one(
    log: DecisionLog, writer: _Writer, together: Callable[..., list[threading.Thread]]
) -> None:
    writer.may_write.clear()
    (first,) = together(lambda _: log.record(_decision("first"), "{}"), 1)
    while not writer.busy:
        time.sleep(0.001)
    rest = together(lambda n: log.record(_decision(f"r{n}"), "{}"), 10)
    while _joined(log) < 10:
        time.sleep(0.001)
    assert all(thread.is_alive() for thread in (first, *rest))
    writer.may_write.set()
    for thread in (first, *rest):
        thread.join(10)
    assert writer.batches[0] == ["first"]
    assert sorted(writer.batches[1]) == sorted(f"r{n}" for n in range(10))


def test_decisions_that_come_while_another_process_writes_share_a_batch(
    log: DecisionLog,
    writer: _Writer,
    together: Callable[..., list[threading.Thread]],
    tmp_path: object,
) -> None:
    with WriterTurn(Database.open(f"{tmp_path}/unused.db")):
        threads = together(lambda index: log.record(_decision(str(index)), "{}"), 3)
        deadline = time.monotonic() + 10
        while _joined(log) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert writer.batches == []
    for thread in threads:
        thread.join()
    assert [sorted(batch) for batch in writer.batches] == [["0", "1", "2"]]


def test_after_a_turn_that_could_not_be_had_the_next_decision_begins_a_batch_of_its_own(
    log: DecisionLog, writer: _Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise OSError("no locks are left")

    with monkeypatch.context() as patch:
        patch.setattr(WriterTurn, "__enter__", refuse)
        with pytest.raises(Unavailable, match="no locks are left"):
            log.record(_decision("a"), "{}")
    log.record(_decision("b"), "{}")
    assert writer.batches == [["b"]]


def test_nothing_is_lost_or_written_twice_under_load(
    log: DecisionLog, writer: _Writer, together: Callable[..., list[threading.Thread]]
) -> None:
    def work(thread: int) -> None:
        for number in range(200):
            log.record(_decision(f"{thread}-{number}"), "{}")

    for thread in together(work, 16):
        thread.join(30)
    written = [who for batch in writer.batches for who in batch]
    assert sorted(written) == sorted(f"{t}-{n}" for t in range(16) for n in range(200))


def test_a_verdict_is_handed_over_until_it_was_written_once(
    log: DecisionLog, writer: _Writer
) -> None:
    log.record(_decision("a", "vd_1"), "{}")
    log.record(_decision("b", "vd_1"), "{}")
    log.record(_decision("c", "vd_2"), "{}")
    assert writer.verdicts == [{"vd_1"}, set(), {"vd_2"}]


def test_an_error_reaches_every_decision_of_its_batch_and_no_other(
    log: DecisionLog, writer: _Writer, together: Callable[..., list[threading.Thread]]
) -> None:
    outcomes: list[str] = []

    def work(number: int) -> None:
        try:
            log.record(_decision(str(number)), "{}")
            outcomes.append("stored")
        except Unavailable as error:
            outcomes.append(error.problem)

    writer.error = OSError("disk full")
    for thread in together(work, 8):
        thread.join(10)
    assert len(outcomes) == 8
    assert all("disk full" in outcome for outcome in outcomes)
    writer.error = None
    log.record(_decision("later"), "{}")
    assert writer.batches == [["later"]]


def test_a_failed_write_is_tried_once_more_with_every_verdict(
    log: DecisionLog, writer: _Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.record(_decision("a"), "{}")
    real, calls = writer.write, []

    def fail_once(deliveries: Sequence[Delivery]) -> None:
        calls.append(set(deliveries[0].bodies))
        if len(calls) == 1:
            raise OSError("connection lost")
        real(deliveries)

    monkeypatch.setattr(writer, "write", fail_once)
    log.record(_decision("b"), "{}")
    assert calls == [set(), {"vd_1"}]


def test_a_full_queue_is_refused_at_once(
    log: DecisionLog,
    writer: _Writer,
    together: Callable[..., list[threading.Thread]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision_log, "CAPACITY", 4)
    writer.may_write.clear()
    threads = together(lambda _: log.record(_decision("first"), "{}"), 1)
    while not writer.busy:
        time.sleep(0.001)
    threads += together(lambda n: log.record(_decision(str(n)), "{}"), 3)
    while _joined(log) < 3:
        time.sleep(0.001)
    with pytest.raises(Unavailable, match="cannot keep up"):
        log.record(_decision("one too many"), "{}")
    writer.may_write.set()
    for thread in threads:
        thread.join(10)
    assert sum(map(len, writer.batches)) == 4


def test_whoever_waits_too_long_is_told(
    log: DecisionLog,
    writer: _Writer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision_log, "PATIENCE_SECONDS", 0.05)
    writer.may_write.clear()
    with pytest.raises(Unavailable, match="did not answer in time"):
        log.record(_decision("waits"), "{}")
    writer.may_write.set()
    log.close()


def test_what_is_submitted_is_written_without_waiting_for_it(
    log: DecisionLog, writer: _Writer
) -> None:
    writer.may_write.clear()
    first = log.submit([(_decision("a"), "{}")])
    while not writer.busy:
        time.sleep(0.001)
    second = log.submit([(_decision("b"), "{}"), (_decision("c"), "{}")])
    assert log.submit([(_decision("d"), "{}")]) is second, "they share a batch"
    assert not first.done()
    writer.may_write.set()
    decision_log.wait_until_committed(second, 10)
    assert writer.batches == [["a"], ["b", "c", "d"]]
    log.close()


def test_who_submits_learns_of_a_failure(log: DecisionLog, writer: _Writer) -> None:
    writer.error = RuntimeError("disk full")
    batch = log.submit([(_decision("a"), "{}")])
    for _ in range(2):
        with pytest.raises(Unavailable, match="disk full"):
            decision_log.wait_until_committed(batch, 10)


def test_nobody_waits_for_a_batch_without_end(log: DecisionLog, writer: _Writer) -> None:
    writer.may_write.clear()
    batch = log.submit([(_decision("a"), "{}")])
    with pytest.raises(Unavailable, match="in time"):
        decision_log.wait_until_committed(batch, 0.05)
    writer.may_write.set()
    decision_log.wait_until_committed(batch, 10)


def test_closing_writes_what_was_submitted(log: DecisionLog, writer: _Writer) -> None:
    for name in "abc":
        log.submit([(_decision(name), "{}")])
    log.close()
    assert sorted(name for batch in writer.batches for name in batch) == ["a", "b", "c"]


def test_a_closed_log_takes_no_decision(log: DecisionLog, writer: _Writer) -> None:
    log.record(_decision("before"), "{}")
    log.close()
    with pytest.raises(Unavailable, match="the decision log is closed"):
        log.record(_decision("after"), "{}")
    assert writer.batches == [["before"]]


def test_what_a_dead_process_left_does_not_hold_up_answers(
    writer: _Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_TOGETHER", 1)
    database = Database.open(f"{tmp_path}/gate.db")
    tables.prepare_schema(database)
    options = SpoolOptions(tmp_path / "spool", 1 << 20)
    dead, chain = Spool(options, writer.owner), WriterChain()
    for name in "abc":
        made = chain.make([_decision(name)], {"vd_1": "{}"})
        chain.take(made)
        dead.append(Delivery(made, {"vd_1": "{}"}, late=True))
    dead.close()
    writer.may_write.clear()
    log = DecisionLog(database, "sync", options, lambda: writer)
    while not writer.busy:
        time.sleep(0.001)
    own = log.submit([(_decision("own"), "{}")])
    writer.may_write.set()
    own.result(10)
    while len(writer.batches) < 4:
        time.sleep(0.001)
    assert writer.batches == [["a"], ["own"], ["b"], ["c"]]
    log.close()
    database.close()


def test_batches_continue_each_other(log: DecisionLog, writer: _Writer) -> None:
    for name in "abc":
        log.record(_decision(name), "{}")
    first, second, third = writer.stored
    assert [batch.sequence for batch in writer.stored] == [1, 2, 3]
    assert {batch.writer for batch in writer.stored} == {first.writer}
    assert (second.previous, third.previous) == (first.hash, second.hash)


def test_a_batch_that_is_certainly_not_stored_leaves_its_number_to_the_next(
    log: DecisionLog, writer: _Writer
) -> None:
    log.record(_decision("a"), "{}")
    writer.error = OSError("disk full")
    with pytest.raises(Unavailable):
        log.record(_decision("b"), "{}")
    writer.error = None
    log.record(_decision("c"), "{}")
    assert [(batch.writer, batch.sequence) for batch in writer.stored] == [
        (writer.stored[0].writer, 1),
        (writer.stored[0].writer, 2),
    ]


@pytest.mark.parametrize("commits", [2, 1])
def test_a_batch_in_doubt_is_written_again_as_it_is_and_never_replaced(
    log: DecisionLog, writer: _Writer, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """Also if the second attempt fails before its COMMIT: the first one may have stored it."""
    log.record(_decision("a"), "{}")
    tried: list[DecisionBatch] = []

    def lose_answer(deliveries: Sequence[Delivery]) -> None:
        tried.append(deliveries[0].batch)
        writer.in_doubt = len(tried) <= commits
        raise OSError("connection lost in COMMIT")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write", lose_answer)
        with pytest.raises(Unavailable, match="lost in COMMIT"):
            log.record(_decision("b"), "{}")
    writer.in_doubt = False
    log.record(_decision("c"), "{}")
    assert tried[0] == tried[1]
    assert writer.stored[1].writer != writer.stored[0].writer, "another chain begins"
    assert writer.stored[1].sequence == 1


def test_a_long_batch_is_divided(log: DecisionLog, writer: _Writer) -> None:
    writer.may_write.clear()
    first = log.submit([(_decision("first"), "{}")])
    while not writer.busy:
        time.sleep(0.001)
    waiting = [log.submit([(_decision(f"{n}"), "{}")] * 600) for n in range(3)]
    writer.may_write.set()
    for batch in (first, *waiting):
        decision_log.wait_until_committed(batch, 10)
    assert [len(batch) for batch in writer.batches] == [1, 600, 600, 600]


class _Stuck(DecisionWriter):
    """Hangs once, until its connection is cut."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, is_hasty=True)
        self.is_cut = threading.Event()

    def write(self, deliveries: Sequence[Delivery]) -> None:
        if not self.is_cut.is_set():
            self.is_cut.wait(10)
            raise OSError("the connection was cut")
        super().write(deliveries)

    def interrupt(self) -> None:
        self.is_cut.set()


def _settled(log: DecisionLog) -> None:
    deadline = time.monotonic() + 10
    while log.state.degraded:
        assert time.monotonic() < deadline, "what is in the spool is not delivered"
        time.sleep(0.02)


def test_a_batch_that_stalls_goes_to_the_spool_and_is_stored_once(tmp_path: Path) -> None:
    database = Database.open(f"{tmp_path}/gate.db")
    tables.prepare_schema(database)
    spool = SpoolOptions(tmp_path / "spool", 1 << 20)
    log = DecisionLog(database, "sync", spool, lambda: _Stuck(database))
    first = log.submit([(_decision("first"), "{}")])
    time.sleep(0.2)
    second = log.submit([(_decision("second"), "{}")])
    first.result(10)
    second.result(10)
    assert "takes longer than 1 s" in str(log.state.reason)
    _settled(log)
    log.close()
    report = AuditChain(database).verify()
    assert (report.ok, report.decisions, report.batches) == (True, 2, 2), report.problems
    database.close()


def test_a_silent_database_is_not_tried_before_the_spool(tmp_path: Path) -> None:
    database = Database.open(f"{tmp_path}/gate.db")
    tables.prepare_schema(database)
    log = DecisionLog(database, "sync", SpoolOptions(tmp_path / "spool", 1 << 20))
    database.is_silent = lambda: True
    log.record(_decision("first"), "{}")
    assert log.state.batches == 1
    database.is_silent = lambda: False
    _settled(log)
    log.record(_decision("second"), "{}")
    log.close()
    with database.reading() as session:
        late = session.execute(select(StoredBatch.late).order_by(StoredBatch.id)).scalars().all()
    assert late == [True, False]
    report = AuditChain(database).verify()
    assert (report.ok, report.decisions) == (True, 2), report.problems
    database.close()


def test_what_a_dead_process_left_is_delivered_by_a_log_that_is_never_idle(
    writer: _Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the file was still in use, or the database away, when the log began."""
    monkeypatch.setattr(decision_log, "_OTHERS_SECONDS", 0.3)
    database = Database.open(f"{tmp_path}/gate.db")
    tables.prepare_schema(database)
    options = SpoolOptions(tmp_path / "spool", 1 << 20)
    dead = Spool(options, writer.owner)
    made = WriterChain().make([_decision("dead")], {"vd_1": "{}"})
    dead.append(Delivery(made, {"vd_1": "{}"}, late=True))
    log = DecisionLog(database, "sync", options, lambda: writer)
    log.record(_decision("first"), "{}")
    time.sleep(0.1)
    dead.close()
    deadline = time.monotonic() + 5
    while ["dead"] not in writer.batches:
        assert time.monotonic() < deadline, "nobody delivers it"
        log.record(_decision("own"), "{}")
        time.sleep(0.02)
    log.close()
    database.close()


class _Down(DecisionWriter):
    """Refuses at once while it is down, and hangs while it is stuck."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, is_hasty=True)
        self.is_down = False
        self.may_rehearse = threading.Event()
        self.may_rehearse.set()

    def write(self, deliveries: Sequence[Delivery]) -> None:
        if self.is_down:
            raise OSError("connection refused")
        super().write(deliveries)

    def rehearse(self) -> None:
        self.may_rehearse.wait(10)
        super().rehearse()


@pytest.fixture
def downs(tmp_path: Path) -> Iterator[tuple[DecisionLog, _Down, Database]]:
    database = Database.open(f"{tmp_path}/gate.db")
    tables.prepare_schema(database)
    spool = SpoolOptions(tmp_path / "spool", 1 << 20)
    log = DecisionLog(database, "sync", spool, lambda: _Down(database))
    destination = log._destination
    assert isinstance(destination, _Down)
    yield log, destination, database
    log.close()
    database.close()


def test_a_second_outage_delays_no_answer(
    downs: tuple[DecisionLog, _Down, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, destination, _ = downs
    destination.is_down = True
    log.record(_decision("first"), "{}")
    destination.is_down = False
    _settled(log)
    destination.is_down = True
    destination.may_rehearse.clear()
    began = time.monotonic()
    log.record(_decision("second"), "{}")
    assert time.monotonic() - began < 0.8, "it waited for the end of a delivery"
    destination.is_down = False
    destination.may_rehearse.set()
    _settled(log)


def test_the_spooler_leaves_a_batch_that_was_written_while_it_waited(
    downs: tuple[DecisionLog, _Down, Database],
) -> None:
    """The database was back for a moment: the mode is the same again, the first batch is not."""
    log, destination, database = downs
    log.record(_decision("a"), "{}")
    destination.is_down = True
    destination.may_rehearse.clear()
    log.record(_decision("b"), "{}")
    log._spool_first(decision_log.Batch())
    log.record(_decision("c"), "{}")
    destination.is_down = False
    destination.may_rehearse.set()
    _settled(log)
    log.record(_decision("d"), "{}")
    with database.reading() as session:
        assert [line[8] for line in read_decision_lines(session)] == ["a", "b", "c", "d"]


def test_without_a_thread_for_its_chores_the_log_goes_on(
    downs: tuple[DecisionLog, _Down, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is stored counts as stored, though nobody moves the log or anchors the chain."""
    log, _, database = downs
    log._anchors._next = 0.0
    monkeypatch.setattr("compatgate.kit.database.sqlite.ROWS", 0)

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        log.submit([(_decision("a"), "{}")]).result(5)
        log.submit([(_decision("b"), "{}")]).result(5)
    assert not log.state.degraded
    log.close()
    report = AuditChain(database).verify()
    assert (report.ok, report.decisions, report.batches) == (True, 2, 2), report.problems
