"""Open a database, and read and write it in transactions.

The URL comes from an option, the environment, or the user's data folder. Readers see one moment;
writers go one after another. Only its owner can read an SQLite file, because it holds token
digests and the names of callers.
"""

from __future__ import annotations

import copy
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from compatgate.errors import BadInput, CompatgateError, Conflict, Unavailable, quote_error
from compatgate.kit.database.sqlite import DatabaseFile, LostLog, keep_private, save_log
from compatgate.kit.database.watch import explain_failure
from compatgate.resources import install_hint

ENVIRONMENT = "COMPATGATE_DATABASE"
PLACE_HINT = f"name a place with --database, or in {ENVIRONMENT}"
P = ParamSpec("P")
R = TypeVar("R")
_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "sqlite": "sqlite",
}
WRITER_LOCK = 0x636F6D70617467  # "compatg"
"""Key of PostgreSQL's advisory lock; whoever numbers revisions or audit links holds it."""
_BUSY_SECONDS = 15
_CACHE_KIB = 4096
"""Pages that one connection to SQLite keeps; the system keeps the rest of the file in memory."""
_WRITING = "compatgate_writing"
_LONG_SECONDS = 5.0
_REFUSED_SECONDS = 2.0
"""The time for which changes are refused at once after one waited in vain for `_LONG_SECONDS`."""


def in_reading(query: Callable[Concatenate[Session, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a query as the method of a service, which reads its ``_database`` at one moment."""

    @wraps(query)
    def read(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._database.reading() as session:
            return query(session, *args, **kwargs)

    return read


def default_path() -> Path:
    """Return the SQLite file in the user's data folder."""
    from platformdirs import user_data_path

    try:
        return user_data_path("compatgate", appauthor=False) / "compatgate.db"
    except RuntimeError:
        what = "this user has no home folder for a database"
        raise BadInput(what, field="database", hint=PLACE_HINT) from None


def resolve_url(text: str | None = None) -> URL:
    """Resolve the URL of the database to use.

    Take a URL (``sqlite:///file``, ``postgresql://user@host/name``) or the path of an SQLite file;
    None: ``COMPATGATE_DATABASE``, else a file in the user's data folder.
    """
    text = text or os.environ.get(ENVIRONMENT) or str(default_path())
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).expanduser().absolute()))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise _bad_url(text, "not a database URL") from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise _bad_url(url.drivername, f"{url.drivername} is not supported")
    if driver == "sqlite" and url.database in (None, "", ":memory:"):
        raise _bad_url(text, "a database in memory ends with the command")
    return url.set(drivername=driver)


def display_url(url: URL) -> str:
    """Return the URL for messages, without its password, as a user would write it."""
    plain = url.set(drivername=url.drivername.partition("+")[0])
    return plain.render_as_string(hide_password=True)


def _bad_url(value: str, problem: str) -> CompatgateError:
    hint = "sqlite:///path/to/file.db or postgresql://user@host/name"
    return BadInput(problem, field="database", value=value, hint=hint)


class Database:
    """SQLite or PostgreSQL behind one interface.

    Every method raises `Unavailable` if the database does not answer; ``patience_s`` limits the
    wait for a connection or a lock.

    Attributes:
        on_error: called for each failed transaction; ``refused``: the database answers, and
            refuses the statement.
        log_is_doubtful: a sync of SQLite's log failed in this process (`wal.LogSync`).
    """

    def __init__(self, url: URL, *, patience_s: int | None = None) -> None:
        self.url = url
        self.is_sqlite = url.drivername == "sqlite"
        self.on_error: Callable[..., None] = lambda refused: None
        make = _sqlite if self.is_sqlite else _postgresql
        self.engine = make(url, patience_s)
        self.outage: Callable[[], CompatgateError | None] = lambda: None
        """Returns why no transaction may begin now; None: one may."""
        self.is_silent: Callable[[], bool] = lambda: False
        """Returns whether the database is known neither to answer nor to refuse."""
        self.look: Callable[[], object] = lambda: None
        """Looks at once whether the database answers; returns after a moment at most."""
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        event.listen(self.engine, "connect", self._note)
        event.listen(self.engine, "close", lambda *_: self.file.note_close())
        self.log_is_doubtful = False
        self.file = DatabaseFile(url.database if self.is_sqlite else None)
        self._refused: tuple[float, Unavailable] | None = None
        if self.is_sqlite:
            event.listen(self.engine, "do_connect", self._before_connecting)
        alive = weakref.ref(self)

        def forget() -> None:  # two processes must not share a connection
            if (mine := alive()) is not None:
                mine.forget_connections()

        os.register_at_fork(after_in_child=forget)

    @classmethod
    def open(cls, url: str | None = None) -> Database:
        """Return the database that a URL or path names; see `resolve_url`."""
        return cls(resolve_url(url))

    def _before_connecting(self, *_: object) -> None:
        self.file.require()
        if not self.file.is_expected:
            keep_private(self.url.database or "")

    def _require_available(self, *, writing: bool) -> None:
        """Refuse a transaction at once while the database is known to be away."""
        if (error := self.outage()) is not None:
            raise error
        try:
            self.file.require()
        except LostLog:
            save_log(self)
            raise
        if writing and self._refused is not None and self._refused[0] > time.monotonic():
            raise copy.copy(self._refused[1])

    @property
    def shown(self) -> str:
        """Return the database's URL without the password."""
        return display_url(self.url)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Give a read-only transaction that sees one moment throughout."""
        with self._transaction(writing=False) as connection, Session(connection) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Give a transaction that no other writer of this database overlaps; commits at the end.

        Raise `Conflict` if a write contradicts what is stored.
        """
        with self._transaction(writing=True) as connection, Session(connection) as session:
            yield session
            session.flush()

    @contextmanager
    def working(self) -> Iterator[Session]:
        """Give a transaction that locks the rows it changes, while other writers run.

        PostgreSQL locks what is asked for with ``FOR UPDATE``; SQLite, which knows one writer,
        serves them one after another. Revisions, evidence and audit links need `writing`.
        """
        opened = self._transaction(writing=True, alone=False)
        with opened as connection, Session(connection) as session:
            yield session
            session.flush()

    @contextmanager
    def _transaction(self, *, writing: bool, alone: bool = True) -> Iterator[Connection]:
        self._require_available(writing=writing)
        began = time.monotonic()
        try:
            with self.engine.connect() as connection:
                if not self.is_sqlite and not writing:
                    connection = connection.execution_options(isolation_level="REPEATABLE READ")
                connection = connection.execution_options(**{_WRITING: writing})
                with connection.begin():
                    if writing and alone and not self.is_sqlite:
                        lock = text("SELECT pg_advisory_xact_lock(:key)")
                        connection.execute(lock, {"key": WRITER_LOCK})
                    yield connection
        except (DataError, UnicodeEncodeError, OverflowError) as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise BadInput(f"the database cannot store this value: {reason}") from error
        except IntegrityError as error:
            reason = quote_error(error.orig)
            raise Conflict(f"the change conflicts with stored data: {reason}") from error
        except (DBAPIError, PoolTimeoutError, OSError) as error:
            found = unavailable(self, error)
            if writing and time.monotonic() - began > _LONG_SECONDS:
                self._refused = (time.monotonic() + _REFUSED_SECONDS, found)
            raise found from error

    def _note(self, connection: Any, _: object) -> None:
        self.file.note_connection()
        if not self.is_sqlite:
            self._connections.add(connection)

    def cut(self) -> None:
        """Cut every connection to a PostgreSQL server that is silent: waiting threads get an error.

        SQLite has no server; its waits for locks end by themselves.
        """
        if self.is_sqlite:
            return
        for connection in list(self._connections):
            with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)

    def forget_connections(self) -> None:
        """Forget the connections of a parent process, without closing them."""
        self._connections = weakref.WeakSet()
        self.file.forget_connections()
        self.engine.dispose(close=False)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def unavailable(database: Database, error: BaseException) -> Unavailable:
    """Return the error for a database that does not answer, or answers with a refusal."""
    database.on_error(refused=isinstance(error, ProgrammingError))
    failure = explain_failure(database, error)
    words = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
    return Unavailable(
        f"the database {database.shown} {failure.verb}: {quote_error(words)}",
        field="database",
        hint=failure.hint,
    )


def _sqlite(url: URL, patience_s: int | None) -> Engine:
    folder = Path(url.database or "").parent
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        what = f"cannot make the folder {folder}: {quote_error(error)}"
        raise Unavailable(what, field="database", value=str(folder), hint=PLACE_HINT) from None
    engine = create_engine(
        url,
        connect_args={"check_same_thread": False, "timeout": patience_s or _BUSY_SECONDS},
        pool_size=32,
        max_overflow=32,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin in _begin_sqlite
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "case_sensitive_like = ON",
        f"cache_size = -{_CACHE_KIB}",
        "wal_autocheckpoint = 8192",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get(_WRITING)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _postgresql(url: URL, patience_s: int | None) -> Engine:
    if find_spec("psycopg") is None:
        what = "PostgreSQL needs a library that is not installed: psycopg"
        raise BadInput(what, field="database", hint=install_hint("postgresql"))
    patience = patience_s or _BUSY_SECONDS
    return create_engine(
        url,
        pool_size=16,
        max_overflow=16,
        pool_timeout=10,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": patience_s or 5,
            "application_name": "compatgate",
            "options": f"-c lock_timeout={patience}s",
            "tcp_user_timeout": patience * 1000,
            "keepalives": 1,
            "keepalives_idle": 5,  # a connection that was cut in silence ends after 11 seconds
            "keepalives_interval": 2,
            "keepalives_count": 3,
        },
    )
