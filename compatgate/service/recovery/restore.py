"""Restore a backup into the kind of database that it came from.

An SQLite file is prepared under another name and takes its place at the end; the old file stays
next to it. PostgreSQL is dumped next to the backup first, and gets that dump back if anything
fails. A backup of an older schema is loaded as it is, and then migrated.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.orm import Session

from compatgate.errors import BadInput, CompatgateError, Conflict, Unavailable, quote_error
from compatgate.kit import clock
from compatgate.kit.cli.options import user_name
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database, display_url, resolve_url
from compatgate.kit.files import PRIVATE_MODE, sync_path
from compatgate.service.audit import chain as audit
from compatgate.service.audit.schemas import ChainBody
from compatgate.service.recovery.backup import (
    VERSION_TABLE,
    Content,
    DamagedBackup,
    digest_of,
    load_dump,
    opened_copy,
    read_content,
    read_dump,
    read_kind,
    tables_of,
    write_backup,
)
from compatgate.service.recovery.verification import verify_chain

SIDE_FILES = ("-wal", "-shm", "-turn")
"""Endings of the files that SQLite and compatgate keep next to a database."""
_LEAVING_SECONDS = 2.0
"""A server still counts a connection for a moment after its end."""
_LOCK_BYTES = (512, 0x40000000)
"""Length and start of SQLite's lock-byte page, https://www.sqlite.org/fileformat2.html 1.3."""
_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'compatgate' AND datname = current_database() AND pid <> pg_backend_pid()
"""


class RestoreReport(Struct, frozen=True):
    """A database that was restored, and the file with what was there before; None: nothing."""

    database: str
    content: Content
    schema: str
    chain: ChainBody
    aside: str | None


class RestoreOptions(Struct, frozen=True):
    """How to restore: over data, which is kept aside; with a chain that is not intact; as it is.

    ``keep_schema``: do not migrate: the version of compatgate that wrote the data is to use it.
    """

    force: bool = False
    unverified: bool = False
    keep_schema: bool = False


class _Undo(Exception):
    """Ends a transaction that is not to be kept."""


def restore(path: str, url: str | None, options: RestoreOptions) -> RestoreReport:
    """Restore a backup; nothing changes unless all of it succeeds."""
    kind, resolved = read_kind(path), resolve_url(url)
    if kind != ("sqlite" if resolved.drivername == "sqlite" else "postgresql"):
        what = f"{path} is a backup of {kind}, and cannot be restored into another database"
        raise BadInput(what, field="database", hint=f"name a {kind} database with --database")
    into = _into_sqlite if kind == "sqlite" else _into_postgresql
    return into(path, url, options)


def _finish(
    database: Database, path: str, options: RestoreOptions, aside: str | None
) -> RestoreReport:
    hint = "use an older backup"
    try:
        with database.reading() as session:
            content = read_content(database, session, path)
    except tables.SchemaMismatch:
        raise
    except (BadInput, Unavailable) as error:
        what = f"{path} is damaged: {error.problem}"
        raise DamagedBackup(what, field="backup", value=path, hint=hint) from None
    stays = options.keep_schema and content.schema != tables.expected_version()
    with suppress(_Undo), database.writing() as session:
        tables.migrate_within(session)
        chain = verify_chain(session).report
        if stays:
            raise _Undo
    if not chain.ok and not options.unverified:
        what = f"the audit chain in {path} is not intact: {chain.problems[0]}"
        hint = f"{hint}; --unverified restores this one anyway"
        raise DamagedBackup(what, field="backup", hint=hint)
    if not stays:
        detail = {"sha256": digest_of(Path(path)), "head": content.audit_head}
        subject = f"backup of {content.latest_at or 'an empty log'}"
        with database.writing() as session:
            audit.append(session, user_name(), "database.restore", subject, detail)
    schema = content.schema if stays else tables.expected_version()
    return RestoreReport(database.shown, content, schema, chain, aside)


def _unused_path(folder: Path, beginning: str, ending: str = "") -> Path:
    """Return a path with the time in its name, and a number where a second has several."""
    first = f"{beginning}{clock.now():%Y%m%dT%H%M%SZ}"
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
    paths = (folder / f"{name}{ending}" for name in names)
    return next(path for path in paths if not path.exists())


# --- SQLite ---------------------------------------------------------------------------------


def _into_sqlite(path: str, url: str | None, options: RestoreOptions) -> RestoreReport:
    target = Path(str(resolve_url(url).database))
    new = target.with_name(f".{target.name}.restore-{os.getpid()}")
    holds_data = target.exists() and target.stat().st_size > 0 and not _is_empty_file(target)
    if holds_data and not options.force:
        raise _holds_data(str(target))
    try:
        refuse_used_file(target)
        shutil.copyfile(path, new)
        new.chmod(PRIVATE_MODE)
        with opened_copy(new) as database:
            report = _finish(database, path, options, None)
        sync_path(new)
        refuse_used_file(target)
        aside = _replace_file(target, new)
        return replace(report, database=display_url(resolve_url(url)), aside=aside)
    except OSError as error:
        what = f"cannot restore {path} to {target}: {quote_error(error)}"
        raise BadInput(what, field="database") from None
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


def refuse_used_file(path: Path) -> None:
    """Check that no other program has an SQLite file open."""
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
        aside = _unused_path(target.parent, f"{target.name}.before-restore-")
        os.link(target, aside)
    for end in SIDE_FILES:  # SQLite must not apply the old log to the new file
        with suppress(FileNotFoundError):
            if end == "-wal" and aside is not None:
                os.rename(f"{target}{end}", f"{aside}{end}")
            else:
                os.unlink(f"{target}{end}")
    os.replace(new, target)
    with suppress(OSError):  # some network file systems refuse it
        sync_path(target.parent)
    return str(aside) if aside else None


# --- PostgreSQL -----------------------------------------------------------------------------


def _into_postgresql(path: str, url: str | None, options: RestoreOptions) -> RestoreReport:
    read_dump(Path(path))
    database = Database.open(url)
    try:
        with database.reading() as session:
            empty = _is_empty(session)
        if not empty and not options.force:
            raise _holds_data(database.shown)
        _refuse_used_server(database)
        aside = None
        if not empty:
            beginning = f"{database.url.database}-before-restore-"
            aside = str(_unused_path(Path(path).parent, beginning, ".backup"))
            write_backup(database, aside)
        _drop_tables(database)
        try:
            load_dump(Path(path), database.url)
            return _finish(database, path, options, aside)
        except BaseException:
            _drop_tables(database)
            if aside:
                load_dump(Path(aside), database.url)
            raise
    finally:
        database.close()


def _refuse_used_server(database: Database) -> None:
    database.close()  # its own connections must not count
    deadline = time.monotonic() + _LEAVING_SECONDS
    while True:
        with database.writing() as session:
            count = session.execute(text(_OTHERS)).scalar_one()
        if not count:
            return
        if time.monotonic() > deadline:
            what = f"{count} connections of compatgate use {database.shown}"
            hint = "stop the gates and workers first"
            raise Conflict(what, field="database", hint=hint)
        time.sleep(0.1)


def _drop_tables(database: Database) -> None:
    with database.writing() as session:
        version = tables.version_of(session)
        if version is not None:
            names = [*(table.name for table in tables_of(version)), VERSION_TABLE]
            listed = ", ".join(f'"{name}"' for name in names)
            session.execute(text(f"DROP TABLE IF EXISTS {listed} CASCADE"))
