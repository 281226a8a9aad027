"""Store batches of decisions in the database, each at most once.

Batches are a few plain statements on the driver's connection, however many decisions they hold.

Committed decisions survive the death of any process, of the gate or of the database, and a loss of
power. PostgreSQL commits synchronously, even if its server is set to ``synchronous_commit = off``:
with that setting the latest log records exist only in shared memory, and the death of one backend
discards them. `DecisionWriter` can accept that. SQLite's log is synced after every commit, when the
next writer has its turn (`compatgate.kit.database.sqlite`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from typing import Any, Literal

from msgspec import Struct

from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.sqlite import MAX_LOG_PAGES, Checkpointer, LogSync, WriterTurn
from compatgate.service.gate.decisions.batches import (
    NUMBERS,
    DecisionBatch,
    WriterChain,
    encode_claims,
)
from compatgate.service.gate.decisions.heads import HeadNotes, read_heads, refuse_lost
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.gate.questions.verdict_bodies import pack_body

CommitMode = Literal["sync", "async"]
"""The time of PostgreSQL's answer to COMMIT: after or before its disk has the decisions."""
_COLUMNS = NewDecision.__struct_fields__
_VERDICTS_PER_STATEMENT = 50
_BATCH_COLUMNS = "writer, sequence, count, decided_at, late, verdicts, hash"
_CONFLICT = "ON CONFLICT (writer, sequence) DO NOTHING RETURNING id"
_INSERT_BATCH = (
    f"INSERT INTO decision_batches ({_BATCH_COLUMNS})"  # noqa: S608
    f" VALUES (%s, %s, %s, %s, %s, %s, %s) {_CONFLICT}"
)
_INSERT_BATCH_SQLITE = (
    f"INSERT INTO decision_batches (id, {_BATCH_COLUMNS}) VALUES (1 + max("  # noqa: S608
    "(SELECT coalesce(max(id), 0) FROM decision_batches),"
    f" (SELECT coalesce(max(id), 0) / {NUMBERS} FROM decisions)),"
    f" ?, ?, ?, ?, ?, ?, ?) {_CONFLICT}"
)
_SELECT_HASH = "SELECT hash FROM decision_batches WHERE writer = ? AND sequence = ?"
_VERDICT, _IMAGE = _COLUMNS.index("verdict_id"), _COLUMNS.index("image")
_OWN_IMAGE = (
    "nullif(coalesce({image}, ''), coalesce((SELECT image FROM verdicts WHERE id = {verdict}), ''))"
)
"""Null: the decision's image is that of the verdict's row; empty: it has none, unlike that row."""
_INSERT_DECISION = (
    f"INSERT INTO decisions (id, {', '.join(_COLUMNS)}) VALUES (%s, "  # noqa: S608
    + ", ".join(
        _OWN_IMAGE.format(image="%s", verdict="%s") if name == "image" else "%s"
        for name in _COLUMNS
    )
    + ")"
)
_FIELDS_SQLITE = [f"json_extract(value, '$[{index}]')" for index in range(len(_COLUMNS))]
_INSERT_DECISIONS_SQLITE = (
    f"INSERT INTO decisions (id, {', '.join(_COLUMNS)}) SELECT ? + key, "  # noqa: S608
    + ", ".join(
        _OWN_IMAGE.format(image=field, verdict=_FIELDS_SQLITE[_VERDICT])
        if index == _IMAGE
        else field
        for index, field in enumerate(_FIELDS_SQLITE)
    )
    + " FROM json_each(?)"
)
"""One statement per batch: the interpreter releases its lock at every statement."""
_BEGIN_SYNCHRONOUS = (
    "BEGIN ISOLATION LEVEL READ COMMITTED;"
    " SELECT set_config('synchronous_commit', 'local', true)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)
"""Stricter settings of the server, like ``on`` and ``remote_apply``, stay in effect."""
_BEGIN_ASYNCHRONOUS = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = off"
_HURRY_SQLITE = "PRAGMA busy_timeout = 1000"
_HURRY = (
    "SET lock_timeout = '1s'; SET statement_timeout = '10s';"
    " SET idle_in_transaction_session_timeout = '5s'"
)
"""The server rolls back what a process leaves that is cut off."""
Row = tuple[NewDecision, str]
"""A decision, and the JSON of its verdict, stored if its id is new."""


@cache
def _make_verdict_insert(count: int) -> str:
    marks = ", ".join(["(?, '', ?, ?, ?)"] * count)
    conflict = "ON CONFLICT (id) DO NOTHING"
    return f"INSERT INTO verdicts (id, body, packed, batch, image) VALUES {marks} {conflict}"  # noqa: S608


class Delivery(Struct, frozen=True, gc=False):
    """A batch on its way to the database; ``late``: a spool had it."""

    batch: DecisionBatch
    bodies: Mapping[str, str]
    """JSON of verdicts, by id; at least of those that the database may not have."""
    late: bool = False


class ForkedChain(Exception):
    """The database has another batch of this writer and sequence."""


class DecisionWriter:
    """The database as a destination, with one connection; one thread at a time may write.

    ``commit``: ``async`` lets PostgreSQL answer a COMMIT before the decisions are on its disk; the
    death of one of its processes can then lose them. ``is_hasty``: there is a spool, so wait for a
    lock for a second only.
    """

    name = ""
    is_direct = True
    longest_retry_s = 4.0

    def __init__(
        self, database: Database, commit: CommitMode = "sync", *, is_hasty: bool = False
    ) -> None:
        self._database = database
        self._is_hasty = is_hasty
        self._begin_postgresql = _BEGIN_SYNCHRONOUS if commit == "sync" else _BEGIN_ASYNCHRONOUS
        self.turn = WriterTurn(database)
        self.in_doubt = False
        self._connection: Any = None
        self._checkpointer = Checkpointer(database)
        self._log_sync = LogSync(database)
        self._heads = HeadNotes(database)

    @property
    def owner(self) -> str:
        """Return the database as messages show it."""
        return self._database.shown

    def divide(self, rows: Sequence[Row], _: Container[str]) -> Iterable[Sequence[Row]]:
        """Return the decisions as one batch."""
        return (rows,)

    def write(self, deliveries: Sequence[Delivery]) -> None:
        """Store batches, in order, in one transaction; batches that are stored stay as they are.

        Also those are on disk afterwards: another writer may not have synced them yet. The turn
        ends before the disk is waited for.
        """
        with self._transaction() as cursor:
            rows = self._store(cursor, deliveries)
        self._heads.note(one.batch for one in deliveries)
        self._checkpointer.wrote(rows)

    def rehearse(self) -> None:
        """Store a decision, undo it, and commit: the log does not change.

        The database does the same work as for a real decision, down to its disk.
        """
        decision = NewDecision(
            "vd_rehearsal", clock.now(), None, "unknown", False, 0, None, "readyz", "rehearsal", 0
        )
        batch = WriterChain().make([decision], {})
        with self._transaction() as cursor:
            cursor.execute("SAVEPOINT rehearsal")
            self._store(cursor, [Delivery(batch, {decision.verdict_id: "{}"})])
            cursor.execute("ROLLBACK TO SAVEPOINT rehearsal")
        self._checkpointer.wrote(2)  # SQLite writes the pages to its log anyway

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Give a cursor; commit, let the next writer begin, and wait for the disk."""
        cursor = None
        self.in_doubt = False
        try:
            cursor = self._cursor()
            if self._database.is_sqlite:
                self._log_sync.begin(cursor)
            else:
                cursor.execute(self._begin_postgresql)
            yield cursor
            self.in_doubt = True
            cursor.execute("COMMIT")
            self.turn.end()
            self._log_sync.sync()
            self._database.file.require()
        except BaseException:
            with suppress(Exception):  # SQLite is locked as long as an unfinished cursor exists
                if cursor is not None:
                    cursor.execute("ROLLBACK")
            with suppress(Exception):
                self._let_go()
            raise
        self.in_doubt = False

    def _cursor(self) -> Any:
        self._database.file.require()
        if self._log_sync.has_shrunk():  # look at the file with the eyes of a new connection
            self._let_go()
        if self._connection is None:
            self._connection = self._database.engine.raw_connection()
            if self._database.is_sqlite:
                self._connection.cursor().execute(f"PRAGMA wal_autocheckpoint = {MAX_LOG_PAGES}")
                self._log_sync.prepare(self._connection.cursor())
            else:
                self._connection.driver_connection.autocommit = True  # this class sends BEGIN
            if self._is_hasty:
                hurry = _HURRY_SQLITE if self._database.is_sqlite else _HURRY
                self._connection.cursor().execute(hurry)
            heads = read_heads(self._database.url)
            refuse_lost(self._connection.cursor().execute, heads, self._database)
        return self._connection.cursor()

    def _store(self, cursor: Any, deliveries: Sequence[Delivery]) -> int:
        """Store the batches that are not stored, and return the number of written rows.

        PostgreSQL gets all rows of a table together, in a pipeline: batches that waited for a
        network would otherwise wait for each answer of it.
        """
        new = self._store_batches(cursor, deliveries)
        verdicts = self._store_verdicts(cursor, new)
        if self._database.is_sqlite:
            for number, one in new:
                content = one.batch.content.decode()
                cursor.execute(_INSERT_DECISIONS_SQLITE, (number * NUMBERS, content))
        elif new:
            cursor.executemany(
                _INSERT_DECISION,
                [
                    [place, *line[: _IMAGE + 1], line[_VERDICT], *line[_IMAGE + 1 :]]
                    for number, delivery in new
                    for place, line in enumerate(delivery.batch.lines, number * NUMBERS)
                ],
            )
        return len(new) + verdicts + sum(one.batch.count for _, one in new)

    def _store_batches(
        self, cursor: Any, deliveries: Sequence[Delivery]
    ) -> list[tuple[int, Delivery]]:
        """Store batches without their decisions, and return the new ones by number."""
        new = []
        rows = [
            (
                one.batch.writer,
                one.batch.sequence,
                one.batch.count,
                one.batch.decided_at,
                one.late,
                encode_claims(one.batch.claims),
                bytes.fromhex(one.batch.hash),
            )
            for one in deliveries
        ]
        numbers = self._insert_batches(cursor, rows)
        for number, delivery in zip(numbers, deliveries, strict=True):
            batch = delivery.batch
            if number is not None:
                new.append((number, delivery))
            elif self.find_hash(cursor, batch.writer, batch.sequence) != batch.hash:
                raise ForkedChain(f"batch {batch.sequence} of writer {batch.writer} differs")
        return new

    def _insert_batches(self, cursor: Any, rows: Sequence[tuple[Any, ...]]) -> list[int | None]:
        # None: the batch is stored already.
        if self._database.is_sqlite or len(rows) < 2:  # a pipeline costs more than it saves
            statement = _INSERT_BATCH_SQLITE if self._database.is_sqlite else _INSERT_BATCH
            found = [cursor.execute(statement, row).fetchone() for row in rows]
        else:
            cursor.executemany(_INSERT_BATCH, rows, returning=True)
            found = [cursor.fetchone()]
            while cursor.nextset():
                found.append(cursor.fetchone())
        return [one[0] if one else None for one in found]

    def find_hash(self, cursor: Any, writer: str, sequence: int) -> str | None:
        """Return the hash of a stored batch, hex; None: it is not stored."""
        found = cursor.execute(self._sql(_SELECT_HASH), (writer, sequence)).fetchone()
        return None if found is None else bytes(found[0]).hex()

    def _store_verdicts(self, cursor: Any, new: Sequence[tuple[int, Delivery]]) -> int:
        """Store new verdicts, and return how many there are.

        They are stored in the order of ids, so that two writers never wait in a circle.
        """
        found: dict[str, tuple[str, bytes, int, str | None]] = {}
        for number, delivery in new:
            if delivery.bodies:
                images = {line[_VERDICT]: line[_IMAGE] for line in delivery.batch.lines}
                for key, body in delivery.bodies.items():
                    if key not in found:
                        found[key] = (key, pack_body(body), number, images.get(key))
        rows = iter(sorted(found.values()))
        while some := list(islice(rows, _VERDICTS_PER_STATEMENT)):
            statement = self._sql(_make_verdict_insert(len(some)))
            cursor.execute(statement, [value for row in some for value in row])
        return len(found)

    def _sql(self, statement: str) -> str:
        return statement if self._database.is_sqlite else statement.replace("?", "%s")

    def interrupt(self) -> None:
        """Let another thread's call fail that waits for the server; call this from any thread."""
        connection = self._connection
        if connection is None or self._database.is_sqlite:  # which waits for a second at most
            return
        with suppress(Exception):
            descriptor = os.dup(connection.driver_connection.fileno())
            with socket.socket(fileno=descriptor) as wire:
                wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self._checkpointer.wait()
        self._let_go()
        self._heads.close()
        self.turn.close()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        self._log_sync.close()
        if connection is not None:
            connection.invalidate()
