"""Take a backup with the database's own tool, and look at it before it gets its name.

SQLite's backup API makes an SQLite file, ``pg_dump`` a dump in its custom format. Both show one
moment while others write, so a backup under load is consistent, and no writer waits for it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from msgspec import Struct
from sqlalchemy import URL, MetaData, Table, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from compatgate import version as program_version
from compatgate.errors import BadInput, CompatgateError, NotFound, Unavailable, quote_error
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.files import PRIVATE_MODE, sync_path
from compatgate.service.audit.chain import GENESIS
from compatgate.service.gate.decisions.batches import append_anchor

Kind = Literal["sqlite", "postgresql"]
VERSION_TABLE = "alembic_version"
SQLITE_MAGIC = b"SQLite format 3\0"
_OLD_MAGIC = b"\x28\xb5\x2f\xfd"
"""Zstandard: the form of backups until 0.1, JSON lines."""
_DUMP_MAGIC = b"PGDMP"
"""How a dump in the custom format begins."""
_HINT = "install the client programs of PostgreSQL, of the server's version or a newer one"


def dump_database(session: Session, url: URL, path: Path) -> None:
    """Dump the database as a reading session sees it, in the custom format."""
    snapshot = session.execute(text("SELECT pg_export_snapshot()")).scalar()
    _run("pg_dump", "--format=custom", *_target(url), f"--snapshot={snapshot}", f"--file={path}",
         password=url.password)  # fmt: skip


def load_dump(path: Path, url: URL) -> None:
    """Load a dump into a database without tables, all or nothing."""
    _run("pg_restore", "--single-transaction", *_target(url), "--no-owner", "--no-privileges",
         str(path), password=url.password)  # fmt: skip


def read_dump(path: Path) -> None:
    """Read every byte of a dump, without a server; raise as `load_dump`."""
    _run("pg_restore", f"--file={os.devnull}", str(path), password=None)


@contextmanager
def scratch_database(url: URL) -> Iterator[URL]:
    """Make a database on the same server, and drop it at the end."""
    name = f"compatgate_verify_{secrets.token_hex(6)}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
            try:
                yield url.set(database=name)
            finally:
                connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    except DBAPIError as error:
        what = f"cannot make a database to verify the backup in: {quote_error(error.orig)}"
        hint = "verifying a dump needs a server, and a user who may create databases"
        raise Unavailable(what, field="database", hint=hint) from None
    finally:
        engine.dispose()


def _target(url: URL) -> tuple[str, ...]:
    plain = url.set(drivername="postgresql", password=None)
    return (f"--dbname={plain.render_as_string()}", "--no-password")


def _run(name: Literal["pg_dump", "pg_restore"], *arguments: str, password: str | None) -> None:
    program = shutil.which(name)
    if program is None:
        raise NotFound(f"{name} is not installed", field="database", hint=_HINT)
    environment = {**os.environ, "PGAPPNAME": "compatgate backup"}
    if password is not None:
        environment["PGPASSWORD"] = password
    done = subprocess.run(  # noqa: S603 - the program of the server
        [program, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        first = next((line for line in lines if "error:" in line), lines[-1])
        raise Unavailable(f"{name}: {quote_error(first)}", field="database", hint=_HINT)


class DamagedBackup(CompatgateError):
    """An error: a file is not a backup, or not the backup that was written."""

    status = 422
    exit_code = 2
    slug = "damaged-backup"


class Content(Struct, frozen=True):
    """What a database or a backup holds; ``latest_at``: ISO time of the last audit record."""

    database: Kind
    schema: str
    tables: int
    rows: int
    latest_at: str
    audit_links: int
    audit_head: str


class BackupReport(Struct, frozen=True):
    """A backup that was written, as its command prints it."""

    file: str
    made_at: str
    schema: str
    program: str
    rows: int
    audit_links: int
    audit_head: str
    sha256: str


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

    ``path``: file to replace; ``-`` is standard output.
    """
    with suppress(CompatgateError):  # the head of the chain then covers the latest decisions
        if tables.current_version(database) == tables.expected_version():
            with database.writing() as session:
                append_anchor(session)
    try:
        parent = None if path == "-" else Path(path).absolute().parent
        with TemporaryDirectory(prefix=".compatgate-backup-", dir=parent) as folder:
            new = Path(folder) / "backup"
            made_at = iso(clock.now())
            content = _copy(database, new)
            digest = digest_of(new)
            if path == "-":
                with new.open("rb") as file:
                    shutil.copyfileobj(file, sys.stdout.buffer)
                    sys.stdout.buffer.flush()
            else:
                new.chmod(PRIVATE_MODE)
                sync_path(new)
                os.replace(new, path)
                with suppress(OSError):  # some network file systems refuse it
                    sync_path(Path(path).absolute().parent)
    except (OSError, sqlite3.Error) as error:
        reason = quote_error(error)
        raise BadInput(f"cannot write {path}: {reason}", field="backup", value=path) from None
    return BackupReport(
        path, made_at, content.schema, program_version(), content.rows, content.audit_links,
        content.audit_head, digest,
    )  # fmt: skip


def _copy(database: Database, new: Path) -> Content:
    with database.reading() as session:
        content = read_content(database, session)
        if database.is_sqlite:
            connection: Any = session.connection().connection.driver_connection
            with closing(sqlite3.connect(new)) as target:
                connection.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
        else:
            dump_database(session, database.url, new)
    if database.is_sqlite:
        with opened_copy(new) as copy, copy.reading() as session:
            if read_content(copy, session) != content:
                raise Unavailable("the backup is not what the database holds", field="backup")
    else:
        read_dump(new)
    return content


def read_content(database: Database, session: Session, name: str = "") -> Content:
    """Count what a database holds, and check the pages of an SQLite file.

    ``name``: for errors; empty: the database's own.
    """
    name = name or database.shown
    version = tables.version_of(session)
    if version is None:
        hint = "name the database with --database"
        raise BadInput(f"{name} has no tables", field="database", hint=hint)
    if version > tables.expected_version():
        raise tables.newer_schema(name, version)
    if database.is_sqlite:
        found = str(session.execute(text("PRAGMA quick_check(1)")).scalar())
        if found != "ok":
            what = f"the database {name} is damaged: {found.strip().splitlines()[-1]}"
            hint = "stop the gate and restore a backup: compatgate db restore FILE --force"
            raise Unavailable(what, field="database", hint=hint)
    known = tables_of(version)
    counts = (f'SELECT count(*) FROM "{table.name}"' for table in known)  # noqa: S608 - our names
    rows = sum(session.execute(text(query)).scalar_one() for query in counts)
    last = session.execute(
        text("SELECT seq, at, hash FROM audit ORDER BY seq DESC LIMIT 1")
    ).one_or_none()
    return Content(
        "sqlite" if database.is_sqlite else "postgresql",
        version,
        len(known),
        rows,
        last.at if last else "",
        last.seq if last else 0,
        last.hash if last else GENESIS,
    )


def require_file(path: str) -> bytes:
    """Return the first bytes of a backup."""
    try:
        with open(path, "rb") as file:
            return file.read(len(SQLITE_MAGIC))
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist", field="backup", value=path) from None
    except OSError as error:
        reason = quote_error(error)
        raise BadInput(f"cannot read {path}: {reason}", field="backup", value=path) from None


def read_kind(path: str) -> Kind:
    """Return which database's tool wrote a backup; raise as `require_file`."""
    start = require_file(path)
    if start == SQLITE_MAGIC:
        return "sqlite"
    if start.startswith(_DUMP_MAGIC):
        return "postgresql"
    if start.startswith(_OLD_MAGIC):
        what = f"{path} is a backup of an older compatgate, in a form that this one does not read"
        hint = "restore it with the compatgate that wrote it, then run: compatgate db upgrade"
        raise DamagedBackup(what, field="backup", value=path, hint=hint)
    what, hint = f"{path} is not a backup of compatgate", "take another backup of this database"
    raise DamagedBackup(what, field="backup", value=path, hint=hint)


@contextmanager
def opened_copy(path: Path) -> Iterator[Database]:
    """Open an SQLite file that nobody else uses; it is one file again at the end."""
    database = Database.open(f"sqlite:///{path}")
    try:
        yield database
        with closing(database.engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA journal_mode = DELETE")
    finally:
        database.close()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
