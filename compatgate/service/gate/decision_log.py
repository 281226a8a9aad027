"""Log decisions before their answers leave: one transaction per batch.

Concurrent decisions share a transaction. The first thread to join a batch leads it: the leader
waits until the previous batch is written and for its turn among processes, closes the batch,
writes it, and wakes the other threads. `record` leads in the caller's thread; `submit`, which must
not wait, leads in a thread of the log. A fork or an exit loses nothing: an answer leaves only
after its batch.

A batch is one transaction of a few plain statements on the driver's connection, however many
decisions it holds. The audit chain gets one link per batch, with the digest of its rows.

Committed decisions survive the death of any process, of the gate or of the database. PostgreSQL
commits synchronously, even if its server is set to ``synchronous_commit = off``: with that setting
the latest log records exist only in shared memory, and the death of one backend discards them.
`DecisionWriter` can accept that. SQLite (``synchronous = NORMAL``) commits when the kernel has its
log, before the disk has it: power loss or a kernel crash may lose the last decisions.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any, Literal

from msgspec import Struct

from compatgate.core.performance import sha256
from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import (
    MAX_LOG_PAGES,
    WRITER_LOCK,
    Checkpointer,
    Database,
    WriterTurn,
    unavailable,
)
from compatgate.service.audit import repository as audit
from compatgate.service.gate.decider import NewDecision
from compatgate.service.gate.repository import decision_line, encode_decision_lines

CAPACITY = 10_000
"""Most decisions in the queue; more means that the database is too slow."""
PATIENCE_SECONDS = 30.0
_MOST_KNOWN_VERDICTS = 100_000
_QUICK_SECONDS = 2.0
"""A write that failed sooner is tried once more, on a new connection."""
Row = tuple[NewDecision, str]
"""A decision, and the JSON of its verdict, stored if its id is new."""


class _Batch:
    """Decisions of one transaction."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.done: Future[None] = Future()


class DecisionLog:
    """A log of decisions in a database, written in batches for any number of threads.

    Args:
        database: to write to.
        commit: as for `DecisionWriter`.
    """

    def __init__(self, database: Database, commit: CommitMode = "sync") -> None:
        self._database = database
        self._writer = DecisionWriter(database, commit)
        self._turn = WriterTurn(database)
        self._known: set[str] = set()
        self._joining = threading.Lock()
        self._writing = threading.Lock()
        self._open = _Batch()
        self._process = os.getpid()
        self._leader: ThreadPoolExecutor | None = None

    def record(self, decision: NewDecision, body: str) -> None:
        """Store a decision, and wait until it is committed.

        Args:
            decision: to store.
            body: JSON of the verdict, stored if its id is new.

        Raises:
            Unavailable: the decision could not be stored, so the answer must not leave.
        """
        batch, leads = self._join([(decision, body)])
        if leads:
            self._lead(batch)
        wait_until_committed(batch.done, PATIENCE_SECONDS)

    def submit(self, rows: Sequence[Row]) -> Future[None]:
        """Queue decisions without waiting.

        Args:
            rows: at least one; they share a transaction.

        Returns:
            A future that is done once they are committed, and fails with `Unavailable` if they
            cannot be. Decisions of one batch share their future.

        Raises:
            Unavailable: the queue is full.
        """
        batch, leads = self._join(rows)
        if leads:
            try:
                self._leading().submit(self._lead, batch)
            except RuntimeError:  # the system has no threads left, or this process ends
                self._lead(batch)
        return batch.done

    def _join(self, rows: Sequence[Row]) -> tuple[_Batch, bool]:
        """Add decisions to the open batch, and tell whether they are its first."""
        with self._joining:
            batch = self._open
            leads = not batch.rows
            if len(batch.rows) >= CAPACITY:
                raise Unavailable(
                    "the decision log does not keep up", hint="the database is too slow or stuck"
                )
            batch.rows.extend(rows)
        return batch, leads

    def _leading(self) -> ThreadPoolExecutor:
        with self._joining:
            if self._leader is None or self._process != os.getpid():
                self._leader = ThreadPoolExecutor(1, "decisions")
                self._process = os.getpid()
            return self._leader

    def _lead(self, batch: _Batch) -> None:
        error: BaseException | None = None
        try:
            with self._writing, self._turn:
                self._close(batch)
                self._write(batch)
        except BaseException as raised:
            error = raised
            if not isinstance(error, Exception):
                raise
        finally:
            self._close(batch)
            if error is None:
                batch.done.set_result(None)
            else:
                known = isinstance(error, CompatgateError)
                batch.done.set_exception(error if known else unavailable(self._database, error))

    def _close(self, batch: _Batch) -> None:
        """Close a batch to further decisions."""
        with self._joining:
            if self._open is batch:
                self._open = _Batch()

    def _write(self, batch: _Batch) -> None:
        decisions = [decision for decision, _ in batch.rows]
        verdicts = {d.verdict_id: body for d, body in batch.rows}
        unknown = {key: body for key, body in verdicts.items() if key not in self._known}
        began = time.monotonic()
        try:
            self._writer.write(decisions, unknown)
        except Exception:
            if time.monotonic() - began > _QUICK_SECONDS:
                raise
            # The server restarted, or another program deleted verdicts that this one wrote.
            self._known.clear()
            self._writer.write(decisions, verdicts)
        if len(self._known) > _MOST_KNOWN_VERDICTS:
            self._known.clear()
        self._known.update(unknown)

    def rehearse(self) -> None:
        """Check that a decision can be recorded, without changing the log.

        Raises:
            Unavailable: no decision can be recorded now; says why.
        """
        decision = NewDecision(
            "vd_rehearsal", clock.now(), None, "unknown", False, 0, None, "readyz", "rehearsal", 0
        )
        try:
            with self._writing, self._turn:
                began = time.monotonic()
                try:
                    self._writer.rehearse(decision)
                except Exception:
                    if time.monotonic() - began > _QUICK_SECONDS:
                        raise
                    self._writer.rehearse(decision)  # the server restarted
        except Exception as error:
            raise unavailable(self._database, error) from error

    def close(self) -> None:
        """Write the queued decisions, and close the connection."""
        if self._leader is not None and self._process == os.getpid():
            self._leader.shutdown()
        with self._writing:
            self._writer.close()


def wait_until_committed(batch: Future[None], seconds: float) -> None:
    """Wait until submitted decisions are committed.

    Raises:
        Unavailable: they were not committed in time; their answers must not leave.
    """
    try:
        batch.result(seconds)
    except TimeoutError:
        raise late_log_error() from None
    except CompatgateError as error:  # other threads of the batch raise it, too
        raise Unavailable(error.problem, field=error.field, hint=error.hint) from error


def late_log_error() -> Unavailable:
    """Return the error for a log that did not answer in time."""
    return Unavailable("the decision log did not answer in time")


CommitMode = Literal["sync", "async"]
"""When PostgreSQL answers a COMMIT: after or before its disk has the decisions."""
_DECISION_COLUMNS = ("id", *NewDecision.__struct_fields__)
_LINK_COLUMNS = ("seq", "at", "actor", "action", "subject", "detail", "previous", "hash")
_SELECT_LAST = """
SELECT (SELECT max(id) FROM decisions), seq, hash FROM (SELECT 1) AS one
LEFT JOIN (SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1) AS link ON true
"""
_VERDICTS_PER_STATEMENT = 50


def _make_insert(table: str, columns: Sequence[str]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608


@cache
def _make_verdict_insert(count: int) -> str:
    """Return one statement for many verdicts; its result is the new ids."""
    marks = ", ".join(["(?, ?)"] * count)
    conflict = "ON CONFLICT (id) DO NOTHING RETURNING id"
    return f"INSERT INTO verdicts (id, body) VALUES {marks} {conflict}"  # noqa: S608


_INSERT_DECISION = _make_insert("decisions", _DECISION_COLUMNS)
_INSERT_DECISIONS_SQLITE = (
    f"INSERT INTO decisions ({', '.join(_DECISION_COLUMNS)}) SELECT "  # noqa: S608
    + ", ".join(f"json_extract(value, '$[{index}]')" for index in range(len(_DECISION_COLUMNS)))
    + " FROM json_each(?)"
)
"""One statement per batch: the interpreter releases its lock at every statement."""
_INSERT_LINK = _make_insert("audit", _LINK_COLUMNS)
_SELECT_LINK_HASH = "SELECT hash FROM audit WHERE seq = ?"
_BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; {{}}; SELECT pg_advisory_xact_lock({WRITER_LOCK})"
_BEGIN_SYNCHRONOUS = _BEGIN.format(
    "SELECT set_config('synchronous_commit', 'local', true)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)
"""Stricter settings of the server, like ``on`` and ``remote_apply``, stay in effect."""
_BEGIN_ASYNCHRONOUS = _BEGIN.format("SET LOCAL synchronous_commit = off")
_INHERITED_CONNECTIONS: list[Any] = []
"""Connections of a parent process: using or closing them could disturb the parent."""


class _BatchWrite(Struct, frozen=True):
    """A batch in a transaction, and its audit link."""

    batch: Sequence[NewDecision]
    first: int
    seq: int
    hash: str


class DecisionWriter:
    """A writer with one connection; one thread at a time may use it, at its `WriterTurn`.

    Args:
        database: to write to.
        commit: ``async`` lets PostgreSQL answer a COMMIT before the decisions are on its disk; the
            death of one of its processes can then lose them. No effect on SQLite.
    """

    def __init__(self, database: Database, commit: CommitMode = "sync") -> None:
        self._database = database
        self._begin_postgresql = _BEGIN_SYNCHRONOUS if commit == "sync" else _BEGIN_ASYNCHRONOUS
        self._in_doubt: _BatchWrite | None = None  # COMMIT sent, no answer yet
        self._connection: Any = None
        self._process = os.getpid()
        self._checkpointer = Checkpointer(database)

    def write(self, batch: Sequence[NewDecision], verdicts: Mapping[str, str]) -> int:
        """Store a batch of decisions, their new verdicts, and its audit link.

        Args:
            batch: at least one, in order.
            verdicts: JSON by id, of verdicts that may be new.

        Returns:
            The number of the first decision; the others follow without gaps.

        Raises:
            Exception: of the driver; the next call opens a new connection. Nothing was stored,
                unless the connection was lost during COMMIT. Write the same batch again to find
                out: it is not stored twice.
        """
        cursor = None
        try:
            cursor = self._cursor()
            self._begin(cursor)
            first = self._committed_after_all(cursor, batch)
            if first is None:
                self._in_doubt = self._store(cursor, batch, verdicts)
                first = self._in_doubt.first
            cursor.execute("COMMIT")
        except BaseException:
            self._abandon(cursor)
            raise
        self._in_doubt = None
        self._checkpointer.wrote(len(batch) + len(verdicts))
        return first

    def rehearse(self, decision: NewDecision) -> None:
        """Store a decision, undo it, and commit: the log does not change.

        The database does the same work as for a real decision, down to its disk.

        Args:
            decision: with a verdict that is not stored.

        Raises:
            Exception: of the driver; no decision can be stored now.
        """
        cursor = None
        try:
            cursor = self._cursor()
            self._begin(cursor)
            cursor.execute("SAVEPOINT rehearsal")
            self._store(cursor, [decision], {decision.verdict_id: "{}"})
            cursor.execute("ROLLBACK TO SAVEPOINT rehearsal")
            cursor.execute("COMMIT")
        except BaseException:
            self._abandon(cursor)
            raise
        self._checkpointer.wrote(2)  # SQLite writes the pages to its log anyway

    def _committed_after_all(self, cursor: Any, batch: Sequence[NewDecision]) -> int | None:
        """Return the first number of a batch whose COMMIT had no answer, if it was stored."""
        before, self._in_doubt = self._in_doubt, None
        if before is None or before.batch is not batch:
            return None
        found = cursor.execute(self._sql(_SELECT_LINK_HASH), (before.seq,)).fetchone()
        return before.first if found is not None and found[0] == before.hash else None

    def _abandon(self, cursor: Any) -> None:
        """Roll back: SQLite holds its lock as long as an unfinished cursor exists."""
        with suppress(Exception):
            if cursor is not None:
                cursor.execute("ROLLBACK")
        with suppress(Exception):
            self._let_go()

    def _cursor(self) -> Any:
        if self._connection is not None and self._process != os.getpid():
            _INHERITED_CONNECTIONS.append(self._connection)
            self._connection = None
            self._checkpointer.forget()
        if self._connection is None:
            self._connection = self._database.engine.raw_connection()
            self._process = os.getpid()
            if self._database.is_sqlite:
                self._connection.cursor().execute(f"PRAGMA wal_autocheckpoint = {MAX_LOG_PAGES}")
            else:
                self._connection.driver_connection.autocommit = True  # this class sends BEGIN
        return self._connection.cursor()

    def _store(
        self, cursor: Any, batch: Sequence[NewDecision], verdicts: Mapping[str, str]
    ) -> _BatchWrite:
        last_id, *last_link = cursor.execute(_SELECT_LAST).fetchone()
        first = (last_id or 0) + 1
        made = self._store_new(cursor, verdicts)
        lines = [decision_line(first + index, decision) for index, decision in enumerate(batch)]
        content = encode_decision_lines(lines)
        if self._database.is_sqlite:
            cursor.execute(_INSERT_DECISIONS_SQLITE, (content.decode(),))
        else:
            cursor.executemany(self._sql(_INSERT_DECISION), lines)
        detail: dict[str, Any] = {
            "first": first,
            "count": len(lines),
            "sha256": sha256(content),
        }
        if made:
            detail["verdicts"] = {key: sha256(body.encode()) for key, body in made.items()}
        link = audit.link(
            (last_link[0], last_link[1]) if last_link[0] else None,
            at=batch[-1].decided_at,
            actor="gate",
            action="decisions",
            subject=f"decisions {first} to {first + len(lines) - 1}",
            detail=detail,
        )
        cursor.execute(self._sql(_INSERT_LINK), [link[name] for name in _LINK_COLUMNS])
        return _BatchWrite(batch, first, link["seq"], link["hash"])

    def _begin(self, cursor: Any) -> None:
        if self._database.is_sqlite:
            cursor.execute("BEGIN IMMEDIATE")
        else:
            cursor.execute(self._begin_postgresql)

    def _store_new(self, cursor: Any, verdicts: Mapping[str, str]) -> dict[str, str]:
        """Store verdicts, and return the new ones."""
        new: set[str] = set()
        rows = iter(verdicts.items())
        while some := list(islice(rows, _VERDICTS_PER_STATEMENT)):
            values = [value for row in some for value in row]
            inserted = cursor.execute(self._sql(_make_verdict_insert(len(some))), values).fetchall()
            new.update(key for (key,) in inserted)
        return {key: body for key, body in verdicts.items() if key in new}

    def _sql(self, statement: str) -> str:
        return statement if self._database.is_sqlite else statement.replace("?", "%s")

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._checkpointer.wait()
        self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
