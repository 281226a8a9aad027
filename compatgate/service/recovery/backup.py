"""Take a backup: every table in one read transaction, in a form that both databases can load.

SQLite and PostgreSQL both show a reader one moment while others write, so a backup under load is
consistent, and no writer waits for it. The tables of a schema version are those that its
migrations make in an empty database.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from msgspec import Struct
from sqlalchemy import MetaData, Table, column, select, text
from sqlalchemy import table as light_table
from sqlalchemy.orm import Session

from compatgate import version as program_version
from compatgate.errors import BadInput, CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.files import replacing
from compatgate.service.audit.repository import GENESIS
from compatgate.service.gate.anchors import append_anchor
from compatgate.service.recovery.backup_file import (
    FORMAT,
    BackupHeader,
    BackupTrailer,
    BackupWriter,
    Row,
)

_GROUP = 2000
VERSION_TABLE = "alembic_version"


class BackupReport(Struct, frozen=True):
    """A backup that was written."""

    header: BackupHeader
    trailer: BackupTrailer


@cache
def tables_of(version: str) -> tuple[Table, ...]:
    """Return the tables of a schema version; a table comes after those that it refers to."""
    with TemporaryDirectory(prefix="compatgate-schema-") as folder:
        database = Database.open(str(Path(folder) / "empty.db"))
        try:
            tables.migrate_schema(database, version)
            metadata = MetaData()
            with database.reading() as session:
                metadata.reflect(session.connection())
        finally:
            database.close()
    return tuple(table for table in metadata.sorted_tables if table.name != VERSION_TABLE)


def write_backup(database: Database, path: str) -> BackupReport:
    """Write a backup of a database, of this schema version or an older one.

    Args:
        database: to read; it does not change.
        path: file to replace; ``-`` is standard output.

    Raises:
        BadInput: the file cannot be written, or the database is empty.
        SchemaMismatch: a newer program wrote the database.
        Unavailable: the database does not answer, or is damaged.
    """
    _anchor(database)
    try:
        if path == "-":
            return _write(database, _Output(sys.stdout.buffer, path))
        with replacing(path) as file:
            return _write(database, _Output(file, path))
    except OSError as error:
        raise _unwritten(path, error) from None


def _anchor(database: Database) -> None:
    """Let the head of the audit chain cover the decisions until now, if the database allows it."""
    with suppress(CompatgateError):
        if tables.current_version(database) == tables.expected_version():
            with database.writing() as session:
                append_anchor(session, {})


class _Output:
    """A file whose errors are not taken for errors of the database that is read meanwhile."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self._path = path

    def write(self, content: bytes) -> int:
        try:
            return self._file.write(content)
        except OSError as error:
            raise _unwritten(self._path, error) from None

    def flush(self) -> None:
        self._file.flush()


def _unwritten(path: str, error: OSError) -> BadInput:
    reason = error.strerror or str(error)
    return BadInput(f"cannot write {path}: {reason}", field="backup", value=path)


def _write(database: Database, file: _Output) -> BackupReport:
    with database.reading() as session:
        header = _make_header(database, session)
        writer = BackupWriter(file, header)
        for table in tables_of(header.schema):
            names = [str(one.name) for one in table.columns]
            writer.add_table(str(table.name), names, _read_rows(session, table))
        trailer = writer.finish()
    file.flush()
    return BackupReport(header, trailer)


def _make_header(database: Database, session: Session) -> BackupHeader:
    version = tables.version_of(session)
    if version is None:
        hint = "name the database with --database"
        raise BadInput(f"{database.shown} has no tables", field="database", hint=hint)
    if version > tables.expected_version():
        raise tables.newer_schema(database.shown, version)
    check_pages(database, session)
    last = session.execute(
        text("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1")
    ).one_or_none()
    return BackupHeader(
        format=FORMAT,
        program=program_version(),
        schema=version,
        made_at=iso(clock.now()),
        database="sqlite" if database.is_sqlite else "postgresql",
        audit_links=last.seq if last else 0,
        audit_head=last.hash if last else GENESIS,
    )


def check_pages(database: Database, session: Session) -> None:
    """Check the pages of an SQLite file; PostgreSQL checks pages when it reads them.

    Raises:
        Unavailable: the file is damaged.
    """
    if not database.is_sqlite:
        return
    found = session.execute(text("PRAGMA quick_check(1)")).scalar()
    if found != "ok":
        raise damaged_file(database, str(found))


def damaged_file(database: Database, problem: str) -> CompatgateError:
    """Return the error for a damaged SQLite file."""
    first = problem.strip().splitlines()[-1]
    return Unavailable(
        f"the database {database.shown} is damaged: {first}",
        field="database",
        hint="stop the gate and restore a backup: compatgate db restore FILE --force",
    )


def _read_rows(session: Session, table: Table) -> Iterator[Sequence[Row]]:
    """Yield rows in groups, in the order of the primary key, times as text."""
    source = light_table(table.name, *(column(one.name) for one in table.columns))
    key = [source.c[one.name] for one in table.primary_key.columns]
    query = select(source).order_by(*key).execution_options(yield_per=_GROUP)
    for group in session.execute(query).partitions():
        yield [[iso(v) if isinstance(v, datetime) else v for v in row] for row in group]
