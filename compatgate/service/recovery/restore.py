"""Restore a backup into SQLite or PostgreSQL, whatever kind of database it came from.

An SQLite file is built under another name and takes its place at the end; the old file stays next
to it. PostgreSQL is filled in one transaction; what it held before is written to a backup first.
A backup of an older schema is loaded as it is, and then migrated.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from msgspec import Struct
from sqlalchemy import inspect, text
from sqlalchemy.orm import Session

from compatgate.errors import BadInput, CompatgateError, Conflict, NotFound, quote_error
from compatgate.kit import clock
from compatgate.kit.cli.options import user_name
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database, display_url, resolve_url
from compatgate.kit.files import sync_folder
from compatgate.service.audit import repository as audit
from compatgate.service.audit.schemas import ChainBody
from compatgate.service.audit.verification import verify_chain
from compatgate.service.recovery.backup import tables_of, write_backup
from compatgate.service.recovery.backup_file import (
    BackupHeader,
    BackupTrailer,
    DamagedBackup,
    TableHeader,
    read_backup,
)

SIDE_FILES = ("-wal", "-shm", "-turn")
"""Endings of the files that SQLite and compatgate keep next to a database."""
_LOCK_BYTES = (512, 0x40000000)
"""Length and start of SQLite's lock-byte page, https://www.sqlite.org/fileformat2.html 1.3."""


class RestoreReport(Struct, frozen=True):
    """A database that was restored.

    Attributes:
        database: its URL without the password.
        header: of the backup.
        trailer: of the backup.
        schema: schema version now.
        chain: of the restored database.
        aside: file that holds what was there before; None: the database was empty.
    """

    database: str
    header: BackupHeader
    trailer: BackupTrailer
    schema: str | None
    chain: ChainBody
    aside: str | None


def restore(
    path: str,
    url: str | None,
    *,
    force: bool,
    unverified: bool = False,
    keep_schema: bool = False,
) -> RestoreReport:
    """Restore a backup; nothing changes unless all of it succeeds.

    Args:
        path: of the backup.
        url: of the database, as for `resolve_url`.
        force: replace a database that holds data; it is kept aside.
        unverified: accept a backup whose audit chain is not intact.
        keep_schema: do not migrate: the version of compatgate that wrote the data is to use it.

    Raises:
        NotFound: the file does not exist.
        DamagedBackup: the file is damaged, or its audit chain is not intact.
        SchemaMismatch: a newer program wrote the backup.
        Conflict: the database holds data, or programs use it.
        Unavailable: the database does not answer, or its disk is full.
    """
    with open_backup(path) as file:
        header, trailer = check_backup(file, path)
        loaded = _Loading(file, path, header, trailer, unverified)
        if keep_schema and header.schema != tables.expected_version():
            loaded.chain = _verify_copy(path, unverified=unverified)
        resolved = resolve_url(url)
        into = _into_sqlite if resolved.drivername == "sqlite" else _into_postgresql
        chain, aside = into(loaded, url, force)
    schema = tables.expected_version() if loaded.chain is None else header.schema
    return RestoreReport(display_url(resolved), header, trailer, schema, chain, aside)


def _verify_copy(path: str, *, unverified: bool) -> ChainBody:
    """Verify the audit chain of a backup in a temporary file, which is migrated for that."""
    with TemporaryDirectory(prefix="compatgate-restore-") as folder:
        chain = rebuild(path, Path(folder) / "copy.db")[2]
    if not chain.ok and not unverified:
        raise _broken_chain(path, chain)
    return chain


def _broken_chain(path: str, chain: ChainBody) -> DamagedBackup:
    return DamagedBackup(
        f"the audit chain in {path} is not intact: {chain.problems[0]}",
        field="backup",
        hint="use an older backup; --unverified restores this one anyway",
    )


def open_backup(path: str) -> BinaryIO:
    """Open a backup.

    Raises:
        NotFound: the file does not exist.
        BadInput: the file cannot be read.
    """
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist", field="backup", value=path) from None
    except OSError as error:
        reason = quote_error(error)
        raise BadInput(f"cannot read {path}: {reason}", field="backup", value=path) from None


def check_backup(file: BinaryIO, path: str) -> tuple[BackupHeader, BackupTrailer]:
    """Read the whole file, and check its digest and that this program knows its schema.

    Raises:
        DamagedBackup: the file is damaged.
        SchemaMismatch: a newer program wrote it.
    """
    header, trailer = read_backup(file, path)
    if header.schema > tables.expected_version():
        raise tables.newer_schema(f"{path} (compatgate {header.program})", header.schema)
    return header, trailer


class _Loading:
    """A checked backup, to be loaded into an empty database."""

    def __init__(
        self,
        file: BinaryIO,
        path: str,
        header: BackupHeader,
        trailer: BackupTrailer,
        unverified: bool,
    ) -> None:
        self.path = path
        self._file = file
        self._header = header
        self._trailer = trailer
        self._unverified = unverified
        self.chain: ChainBody | None = None
        """Of a copy, if the schema is to stay; None: migrate."""

    def load(self, database: Database, session: Session) -> ChainBody:
        """Load a backup into a new schema, migrate, verify the chain, and log the restore.

        Raises:
            DamagedBackup: a row refers to one that is missing, or the chain is not intact.
        """
        self._load_rows(database, session)
        if self.chain is not None:
            return self.chain
        tables.migrate_within(session)
        found = self._verify(session)
        audit.append(
            session,
            at=clock.now(),
            actor=user_name(),
            action="database.restore",
            subject=f"backup of {self._header.made_at}",
            detail={"sha256": self._trailer.sha256, "head": self._header.audit_head},
        )
        return found

    def _load_rows(self, database: Database, session: Session) -> None:
        tables.migrate_within(session, self._header.schema)
        known = {one.name: [c.name for c in one.columns] for one in tables_of(self._header.schema)}
        for name in reversed(known):  # a migration may have made rows
            session.execute(text(f"DELETE FROM {name}"))  # noqa: S608 - our names
        into = _sqlite_loader if database.is_sqlite else _postgresql_loader

        def start(table: TableHeader) -> Callable[[list[list[Any]]], None]:
            columns = known.get(table.table, [])
            if not table.columns or not set(table.columns) <= set(columns):
                what = f"{self.path}: {table.table} is not a table of schema {self._header.schema}"
                raise DamagedBackup(what, field="backup")
            return into(session, table)

        read_backup(self._file, self.path, start)
        if database.is_sqlite:
            self._check_references(session)
        else:
            _set_sequences(session, known)

    def _check_references(self, session: Session) -> None:
        if broken := session.execute(text("PRAGMA foreign_key_check")).first():
            what = f"a row of {broken[0]} refers to a missing row of {broken[2]}"
            raise DamagedBackup(f"{self.path}: {what}", field="backup")

    def _verify(self, session: Session) -> ChainBody:
        found = verify_chain(session, expected_head=self._header.audit_head).report
        if found.ok or self._unverified:
            return found
        raise _broken_chain(self.path, found)


def _sqlite_loader(session: Session, table: TableHeader) -> Callable[[list[list[Any]]], None]:
    marks = ", ".join("?" * len(table.columns))
    columns = ", ".join(f'"{name}"' for name in table.columns)
    statement = f'INSERT INTO "{table.table}" ({columns}) VALUES ({marks})'  # noqa: S608
    cursor: Any = session.connection().connection.cursor()
    return lambda rows: cursor.executemany(statement, rows)


def _postgresql_loader(session: Session, table: TableHeader) -> Callable[[list[list[Any]]], None]:
    columns = ", ".join(f'"{name}"' for name in table.columns)
    statement = f'COPY "{table.table}" ({columns}) FROM STDIN'
    connection: Any = session.connection().connection.driver_connection

    def load(rows: list[list[Any]]) -> None:
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    return load


def _set_sequences(session: Session, names: Iterable[str]) -> None:
    """Let PostgreSQL number new rows after the restored ones."""
    for name in names:
        for column in inspect(session.connection()).get_columns(name):
            ask = text("SELECT pg_get_serial_sequence(:table, :column)")
            values = {"table": f'"{name}"', "column": column["name"]}
            if sequence := session.execute(ask, values).scalar():
                last = f'SELECT setval(:name, max("{column["name"]}")) FROM "{name}"'  # noqa: S608
                session.execute(text(last), {"name": sequence})


# --- SQLite ---------------------------------------------------------------------------------


def _into_sqlite(loading: _Loading, url: str | None, force: bool) -> tuple[ChainBody, str | None]:
    target = Path(str(resolve_url(url).database))
    new = target.with_name(f".{target.name}.restore-{os.getpid()}")
    holds_data = target.exists() and target.stat().st_size > 0 and not _is_empty_file(target)
    if holds_data and not force:
        raise _holds_data(str(target))
    try:
        refuse_used_file(target)
        chain = _build_file(loading, new)
        refuse_used_file(target)
        return chain, _replace_file(target, new)
    finally:
        for end in ("", *SIDE_FILES):
            with suppress(OSError):
                os.unlink(f"{new}{end}")


def _is_empty_file(path: Path) -> bool:
    """Return whether a file holds no row of ours; a damaged file does."""
    database = Database.open(f"sqlite:///{path}")
    try:
        with database.reading() as session:
            return _is_empty(session)
    except CompatgateError:
        return False
    finally:
        database.close()


def _is_empty(session: Session) -> bool:
    version = tables.version_of(session)
    if version is None:
        return True
    if version > tables.expected_version():
        return False
    asked = (f'SELECT 1 FROM "{one.name}" LIMIT 1' for one in tables_of(version))  # noqa: S608
    return all(session.execute(text(query)).first() is None for query in asked)


def _holds_data(name: str) -> Conflict:
    hint = "--force replaces it, and keeps what it holds aside"
    return Conflict(f"the database {name} holds data", field="database", hint=hint)


def rebuild(path: str, new: Path) -> tuple[BackupHeader, BackupTrailer, ChainBody]:
    """Build an SQLite file from a backup, to check that it can be restored.

    Args:
        path: of the backup.
        new: file to make.

    Raises:
        CompatgateError: as `restore`; a broken audit chain is reported instead.
    """
    with open_backup(path) as file:
        header, trailer = check_backup(file, path)
        chain = _build_file(_Loading(file, path, header, trailer, unverified=True), new)
    return header, trailer, chain


def _build_file(loading: _Loading, new: Path) -> ChainBody:
    database = Database.open(f"sqlite:///{new}")
    try:
        with database.writing() as session:
            session.connection().exec_driver_sql("PRAGMA defer_foreign_keys = ON")
            chain = loading.load(database, session)
        with closing(database.engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA journal_mode = DELETE")
    finally:
        database.close()
    descriptor = os.open(new, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return chain


def refuse_used_file(path: Path) -> None:
    """Check that no other program has an SQLite file open.

    Raises:
        Conflict: a program has.
    """
    if not path.exists():
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        reason = quote_error(error)
        raise BadInput(f"cannot open {path}: {reason}", field="database") from None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, *_LOCK_BYTES)
    except OSError:
        what = f"another program has {path} open"
        raise Conflict(what, field="database", hint="stop the gate and its workers first") from None
    finally:
        os.close(descriptor)


def _replace_file(target: Path, new: Path) -> str | None:
    """Give the new file its name; keep the old one, with its log, under another."""
    aside = None
    if target.exists():
        moment = clock.now().strftime("%Y%m%dT%H%M%SZ")
        aside = target.with_name(f"{target.name}.before-restore-{moment}")
        with suppress(FileExistsError):
            os.link(target, aside)
    for end in SIDE_FILES:  # SQLite must not apply the old log to the new file
        with suppress(FileNotFoundError):
            if end == "-wal" and aside is not None:
                os.rename(f"{target}{end}", f"{aside}{end}")
            else:
                os.unlink(f"{target}{end}")
    os.replace(new, target)
    with suppress(OSError):  # some network file systems refuse it
        sync_folder(target.parent)
    return str(aside) if aside else None


# --- PostgreSQL -----------------------------------------------------------------------------

_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'compatgate' AND datname = current_database() AND pid <> pg_backend_pid()
"""


def _into_postgresql(
    loading: _Loading, url: str | None, force: bool
) -> tuple[ChainBody, str | None]:
    database = Database.open(url)
    try:
        with database.reading() as session:
            empty, version = _is_empty(session), tables.version_of(session)
        if not empty and not force:
            raise _holds_data(database.shown)
        aside = None if empty else _keep_aside(database, loading.path)
        database.close()  # its connections must not count
        with database.writing() as session:
            _refuse_used_server(session, database)
            if version is not None:
                tables.migrate_within(session, "base")
            chain = loading.load(database, session)
    finally:
        database.close()
    return chain, aside


def _keep_aside(database: Database, near: str) -> str:
    moment = clock.now().strftime("%Y%m%dT%H%M%SZ")
    path = Path(near).with_name(f"{database.url.database}-before-restore-{moment}.backup")
    write_backup(database, str(path))
    return str(path)


def _refuse_used_server(session: Session, database: Database) -> None:
    if count := session.execute(text(_OTHERS)).scalar():
        what = f"{count} connections of compatgate use {database.shown}"
        raise Conflict(what, field="database", hint="stop the gates and workers first")
