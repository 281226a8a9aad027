"""Write decisions fast: one transaction per batch, plain statements on the driver's connection.

A batch is one transaction of a few statements, however many decisions it holds. The audit chain
gets one link per batch, with the digest of its rows.

Committed decisions survive the death of any process, of the gate or of the database. PostgreSQL
commits synchronously, even if its server is set to ``synchronous_commit = off``: with that setting
the latest log records exist only in shared memory, and the death of one backend discards them.
`DecisionWriter` can accept that. SQLite (``synchronous = NORMAL``) commits when the kernel has its
log, before the disk has it: power loss or a kernel crash may lose the last decisions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any, Literal

from msgspec import Struct

from compatgate.core.digest import sha256
from compatgate.kit.database.database import WRITER_LOCK, Database
from compatgate.kit.database.sqlite import LONGEST_LOG, Checkpointer
from compatgate.service.audit import repository as audit
from compatgate.service.gate.repository import NewDecision, encode_lines, line

Commit = Literal["sync", "async"]
"""When PostgreSQL answers a COMMIT: after or before its disk has the decisions."""
_COLUMNS = ("id", *NewDecision.__struct_fields__)
_LINK = ("seq", "at", "actor", "action", "subject", "detail", "previous", "hash")
_LAST = """
SELECT (SELECT max(id) FROM decisions), seq, hash FROM (SELECT 1) AS one
LEFT JOIN (SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1) AS link ON true
"""
_VERDICTS_AT_ONCE = 50


def _insert(table: str, columns: Sequence[str]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608


@cache
def _insert_verdicts(count: int) -> str:
    """Return one statement for many verdicts; its result is the new ids."""
    marks = ", ".join(["(?, ?)"] * count)
    conflict = "ON CONFLICT (id) DO NOTHING RETURNING id"
    return f"INSERT INTO verdicts (id, body) VALUES {marks} {conflict}"  # noqa: S608


_DECISION = _insert("decisions", _COLUMNS)
_DECISIONS_SQLITE = (
    f"INSERT INTO decisions ({', '.join(_COLUMNS)}) SELECT "  # noqa: S608
    + ", ".join(f"json_extract(value, '$[{index}]')" for index in range(len(_COLUMNS)))
    + " FROM json_each(?)"
)
"""One statement per batch: the interpreter releases its lock at every statement."""
_AUDIT = _insert("audit", _LINK)
_LINK_HASH = "SELECT hash FROM audit WHERE seq = ?"
_BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; {{}}; SELECT pg_advisory_xact_lock({WRITER_LOCK})"
_SYNCHRONOUS = _BEGIN.format(
    "SELECT set_config('synchronous_commit', 'local', true)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)
"""Stricter settings of the server, like ``on`` and ``remote_apply``, stay in effect."""
_ASYNCHRONOUS = _BEGIN.format("SET LOCAL synchronous_commit = off")
_INHERITED: list[Any] = []
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

    def __init__(self, database: Database, commit: Commit = "sync") -> None:
        self._database = database
        self._begin_postgresql = _SYNCHRONOUS if commit == "sync" else _ASYNCHRONOUS
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
        found = cursor.execute(self._sql(_LINK_HASH), (before.seq,)).fetchone()
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
            _INHERITED.append(self._connection)
            self._connection = None
            self._checkpointer.forget()
        if self._connection is None:
            self._connection = self._database.engine.raw_connection()
            self._process = os.getpid()
            if self._database.is_sqlite:
                self._connection.cursor().execute(f"PRAGMA wal_autocheckpoint = {LONGEST_LOG}")
            else:
                self._connection.driver_connection.autocommit = True  # this class sends BEGIN
        return self._connection.cursor()

    def _store(
        self, cursor: Any, batch: Sequence[NewDecision], verdicts: Mapping[str, str]
    ) -> _BatchWrite:
        last_id, *last_link = cursor.execute(_LAST).fetchone()
        first = (last_id or 0) + 1
        made = self._store_new(cursor, verdicts)
        lines = [line(first + index, decision) for index, decision in enumerate(batch)]
        content = encode_lines(lines)
        if self._database.is_sqlite:
            cursor.execute(_DECISIONS_SQLITE, (content.decode(),))
        else:
            cursor.executemany(self._sql(_DECISION), lines)
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
        cursor.execute(self._sql(_AUDIT), [link[name] for name in _LINK])
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
        while some := list(islice(rows, _VERDICTS_AT_ONCE)):
            values = [value for row in some for value in row]
            inserted = cursor.execute(self._sql(_insert_verdicts(len(some))), values).fetchall()
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
