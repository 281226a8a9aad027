"""Compile each SQL statement once in a process, and not for each database.

SQLAlchemy keeps what it compiles with the engine, and nearly every test opens a database of its
own: a fifth of the time of such a test went into compiling the same statements again.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

_COMPILED: LRUCache[Any, Any] = LRUCache(4000)


def _key(dialect: Any) -> tuple[Any, ...]:
    """Return what decides, in a process, how a dialect compiles; a server tells it its version."""
    escapes = getattr(dialect, "_backslash_escapes", None)
    return type(dialect), dialect.server_version_info, dialect.paramstyle, escapes


def _is_same(dialect: Any, other: object) -> bool:
    return dialect is other or (type(dialect) is type(other) and _key(dialect) == _key(other))


def _share(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_COMPILED)


def pytest_configure() -> None:
    """Share what is compiled; SQLAlchemy keeps it by dialect, and each engine has its own."""
    for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        dialect.__eq__ = _is_same  # type: ignore[assignment, method-assign]
        dialect.__hash__ = lambda self: hash(_key(self))  # type: ignore[method-assign]
    event.listen(Engine, "engine_connect", _share)
