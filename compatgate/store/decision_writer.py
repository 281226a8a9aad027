"""Writing decisions fast: one transaction a batch, plain statements on the driver's connection.

A batch is one transaction of a few statements, however many decisions it holds. The audit chain
gets one link for it, with the digest of its rows.

What is committed survives the death of this program and of the database's processes. As SQLite
does here (``synchronous = NORMAL``), PostgreSQL answers before its disk has (``synchronous_commit =
off``): a batch holds the writers' lock, and waiting for the disk would let one batch of all
replicas pass at a time. Power loss of the database's host may take the last half second.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any

from compatgate.core.digest import sha256
from compatgate.store import audit
from compatgate.store.checkpoint import LONGEST_LOG, Checkpointer
from compatgate.store.database import WRITER_LOCK, Database
from compatgate.store.decisions import NewDecision, encode_lines, line

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
    """One statement for many: it answers with the ids that were new."""
    marks = ", ".join(["(?, ?)"] * count)
    conflict = "ON CONFLICT (id) DO NOTHING RETURNING id"
    return f"INSERT INTO verdicts (id, body) VALUES {marks} {conflict}"  # noqa: S608


_DECISION = _insert("decisions", _COLUMNS)
_DECISIONS_SQLITE = (
    f"INSERT INTO decisions ({', '.join(_COLUMNS)}) SELECT "  # noqa: S608
    + ", ".join(f"json_extract(value, '$[{index}]')" for index in range(len(_COLUMNS)))
    + " FROM json_each(?)"
)
"""One statement for a whole batch: the interpreter's lock changes hands at every statement."""
_AUDIT = _insert("audit", _LINK)


_BEGIN_POSTGRESQL = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = off; "
    f"SELECT pg_advisory_xact_lock({WRITER_LOCK})"
)
_INHERITED: list[Any] = []
"""Connections of a parent process: not ours to use, and closing them could disturb it."""


class DecisionWriter:
    """Holds one connection of its own; one thread at a time may use it, at its `Turn`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Any = None
        self._process = os.getpid()
        self._checkpointer = Checkpointer(database)

    def write(self, batch: Sequence[NewDecision], verdicts: Mapping[str, str]) -> int:
        """Store a batch of decisions, the verdicts that are new, and the link that vouches for it.

        Args:
            batch: at least one, in order.
            verdicts: JSON by id, of those that may not be stored yet.

        Returns:
            The number of the first; the others follow without gaps.

        Raises:
            Exception: the driver's; nothing was stored, and the next call connects anew.
        """
        cursor = None
        try:
            cursor = self._cursor()
            first = self._write(cursor, batch, verdicts)
        except BaseException:
            self._abandon(cursor)
            raise
        self._checkpointer.wrote(len(batch) + len(verdicts))
        return first

    def _abandon(self, cursor: Any) -> None:
        """Undo what was begun: SQLite keeps its lock while an unfinished cursor lives."""
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
                self._connection.driver_connection.autocommit = True  # BEGIN is written out here
        return self._connection.cursor()

    def _write(self, cursor: Any, batch: Sequence[NewDecision], verdicts: Mapping[str, str]) -> int:
        self._begin(cursor)
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
        cursor.execute("COMMIT")
        return first

    def _begin(self, cursor: Any) -> None:
        if self._database.is_sqlite:
            cursor.execute("BEGIN IMMEDIATE")
        else:
            cursor.execute(_BEGIN_POSTGRESQL)

    def _store_new(self, cursor: Any, verdicts: Mapping[str, str]) -> dict[str, str]:
        """Store verdicts; those that were stored already stay as they are and are left out."""
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
        """Let go of the connection; what was not committed is undone."""
        self._checkpointer.wait()
        self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
