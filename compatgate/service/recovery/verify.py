"""Verify a database or a backup, and say what was checked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import inspect, text
from sqlalchemy.orm import Session

from compatgate.errors import CompatgateError
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database, resolve_url
from compatgate.service.recovery.backup import (
    digest_of,
    load_dump,
    read_content,
    read_dump,
    read_kind,
    scratch_database,
    tables_of,
)
from compatgate.service.recovery.checks import Check, failed, guarded
from compatgate.service.recovery.verification import verify_chain

_MOST = 5
"""Problems that one line shows."""
_RESTORE = "restore a backup: compatgate db restore FILE --force"


def verify_backup(path: str, url: str | None, *, head: str | None = None) -> Iterator[Check]:
    """Yield the checks of a backup: it is restored into a scratch database, and that is verified.

    ``url``: of a database on the server that a dump is restored on; other backups need none.
    """
    try:
        kind = read_kind(path)
        if kind == "sqlite":
            with TemporaryDirectory(prefix="compatgate-verify-") as folder:
                copy = Path(folder) / "copy.db"
                shutil.copyfile(path, copy)
                yield from _verify_copy(path, f"sqlite:///{copy}", head)
            return
        read_dump(Path(path))
        server = resolve_url(url)
        if server.drivername == "sqlite":
            yield Check("backup", "ok", "a dump of PostgreSQL; every part of it can be read")
            yield Check("digest", "ok", f"sha256 {digest_of(Path(path))}")
            fix = "name a database of a PostgreSQL server with --database"
            yield Check("audit chain", "skip", "needs a server to restore the dump on", fix)
            return
        with scratch_database(server) as scratch:
            load_dump(Path(path), scratch)
            yield from _verify_copy(path, scratch.render_as_string(hide_password=False), head)
    except CompatgateError as error:
        yield failed("backup", error)


def _verify_copy(path: str, url: str, head: str | None) -> Iterator[Check]:
    database = Database.open(url)
    try:
        with database.reading() as session:
            content = read_content(database, session, path)
        yield Check(
            "backup",
            "ok",
            f"{content.latest_at or 'no audit record'}, {content.database}, schema"
            f" {content.schema}, {content.rows} rows in {content.tables} tables",
        )
        yield Check("digest", "ok", f"sha256 {digest_of(Path(path))}")
        tables.migrate_schema(database)
        yield from verify_database(database, head=head)
    finally:
        database.close()


def verify_database(database: Database, *, head: str | None = None) -> Iterator[Check]:
    """Yield the checks of a database: schema, pages, references and audit chain."""
    schema = list(guarded("schema", lambda: check_schema(database)))
    yield from schema
    yield from guarded("pages", lambda: check_pages(database, thorough=True))
    if any(check.state == "fail" for check in schema):
        yield Check("audit chain", "skip", "needs the schema of this program")
        return
    yield from guarded("audit chain", lambda: _check_chain(database, head))


def check_schema(database: Database) -> Check:
    """Compare version, tables and columns with those that this program needs."""
    with database.reading() as session:
        found, needed = tables.version_of(session), tables.expected_version()
        if found is None:
            return Check("schema", "fail", "the database is empty", "run: compatgate db upgrade")
        if found > needed:
            return failed("schema", tables.newer_schema(database.shown, found))
        if missing := _missing(session, found):
            return Check("schema", "fail", f"{found}, but {missing} is missing", _RESTORE)
    if found < needed:
        what = f"{found} of an older compatgate, needed {needed}"
        return Check("schema", "fail", what, "back up, then run: compatgate db upgrade")
    return Check("schema", "ok", f"{found}, {len(tables_of(found))} tables")


def _missing(session: Session, version: str) -> str:
    inspector = inspect(session.connection())
    names = set(inspector.get_table_names())
    for table in tables_of(version):
        if table.name not in names:
            return f"the table {table.name}"
        columns = {column["name"] for column in inspector.get_columns(table.name)}
        for column in table.columns:
            if column.name not in columns:
                return f"the column {table.name}.{column.name}"
    return ""


def check_pages(database: Database, *, thorough: bool) -> Iterator[Check]:
    """Check every page of SQLite, or have PostgreSQL read every row."""
    with database.reading() as session:
        if database.is_sqlite:
            yield _check_sqlite_pages(session, thorough=thorough)
        elif thorough:
            yield from _check_postgresql_rows(session)
        else:
            yield _checksums(session)


def _check_sqlite_pages(session: Session, *, thorough: bool) -> Check:
    name = "integrity_check" if thorough else "quick_check"
    found = [str(row[0]) for row in session.execute(text(f"PRAGMA {name}({_MOST})"))]
    if found != ["ok"]:
        return Check(
            "pages", "fail", f"the file is damaged: {' '.join(found[0].split())}", _RESTORE
        )
    pages = session.execute(text("PRAGMA page_count")).scalar()
    if thorough and (broken := session.execute(text("PRAGMA foreign_key_check")).first()):
        what = f"a row of {broken[0]} refers to a missing row of {broken[2]}"
        return Check("pages", "fail", what, _RESTORE)
    how = "pages, indexes and references" if thorough else "pages"
    return Check("pages", "ok", f"{pages} {how} are sound ({name})")


def _check_postgresql_rows(session: Session) -> Iterator[Check]:
    rows = 0
    version = tables.version_of(session)
    known = {table.name for table in tables_of(version)} if version else set()
    names = known & set(inspect(session.connection()).get_table_names())
    for name in sorted(names):
        query = f'SELECT count(*), sum(length(t::text)) FROM "{name}" AS t'  # noqa: S608
        rows += session.execute(text(query)).one()[0]
    yield Check("pages", "ok", f"PostgreSQL read all {rows} rows of {len(names)} tables")
    yield _checksums(session)


def _checksums(session: Session) -> Check:
    if session.execute(text("SHOW data_checksums")).scalar() == "on":
        return Check("checksums", "ok", "PostgreSQL checks every page that it reads")
    fix = "enable them with pg_checksums --enable while the server is stopped"
    return Check("checksums", "warn", "PostgreSQL does not notice damaged pages", fix)


def _check_chain(database: Database, head: str | None) -> Check:
    with database.reading() as session:
        found = verify_chain(session, expected_head=head).report
    if not found.ok:
        what = f"{len(found.problems)} problems, the first: {found.problems[0]}"
        return Check("audit chain", "fail", what, _RESTORE)
    return Check(
        "audit chain",
        "ok",
        f"{found.links} links, {found.decisions} decisions, {found.revisions} revisions,"
        f" {found.evidence} judged runs; head {found.head}",
    )
