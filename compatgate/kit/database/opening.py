"""Open the database that a command names, and upgrade its schema where that was asked for.

Commands refuse another schema: a gate of an older version may be using the database. Only `serve`
(an SQLite file) and ``db upgrade`` migrate. Before that they copy an SQLite file: the older version
refuses the newer schema, and the copy is the way back.

A replica's state folder holds what it needs to go on while its database is unavailable.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from msgspec import Struct
from sqlalchemy import URL

from compatgate.errors import BadInput, NotFound, Unavailable, quote_error
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database, resolve_url, unavailable
from compatgate.kit.database.sqlite import keep_private, refuse_lost_file
from compatgate.kit.files import sync_path

COPY_RESERVE = 16 * 2**20
"""Bytes that must stay free next to a copy, for the log of the migration."""
STATE_OPTION = "--state"
STATE_VARIABLE = "COMPATGATE_STATE"
_log = logging.getLogger(__name__)


def open_database(named: str | None, *, make: bool = False) -> Database:
    """Open the database that a command names, with the schema of this program.

    Refuse an SQLite file that is missing or empty, which would answer that nothing is blessed; with
    ``make`` create it.
    """
    if not make:
        refuse_missing(named)
    database = Database.open(named)
    try:
        tables.prepare_schema(database, make=make)
    except BaseException:
        database.close()
        raise
    return database


def refuse_missing(named: str | None) -> None:
    """Refuse an SQLite file that is missing or empty."""
    url = resolve_url(named)
    if url.drivername != "sqlite":
        return
    path = Path(str(url.database))
    with suppress(OSError):
        if path.stat().st_size:
            return
    refuse_lost_file(str(path))
    what = "is empty" if path.exists() else "does not exist"
    hint = "create it with compatgate db upgrade, serve, matrix import or token create"
    raise NotFound(f"{path} {what}", field="database", value=named, hint=hint)


class Upgrade(Struct, frozen=True):
    """The upgrade of a schema from one version to another; None: the database was empty.

    ``copy``: the SQLite file as it was; None: the database was empty, or is not SQLite.
    """

    database: str
    before: str | None
    after: str | None
    copy: str | None

    @property
    def sentence(self) -> str:
        """Return the upgrade as a line for people."""
        if self.before == self.after:
            return f"{self.database}: already at {self.after}"
        kept = f"; the database before the upgrade is in {self.copy}" if self.copy else ""
        return f"{self.database}: schema {self.before or 'empty'} -> {self.after}{kept}"


def upgrade_schema(database: Database) -> Upgrade:
    """Migrate a database to the schema of this program; copy an SQLite file first.

    Nobody writes between copy and migration. If the migration fails, nothing has changed, and the
    copy is removed.
    """
    copy = None
    try:
        with database.writing() as session:
            before = tables.version_of(session)
            tables.refuse_newer(database.shown, before)
            if before and before != tables.EXPECTED_VERSION and database.is_sqlite:
                copy = _copy_file(database, before)
            after = tables.migrate_within(session)
    except BaseException:
        if copy is not None:
            with suppress(OSError):
                os.unlink(copy)
        raise
    return Upgrade(database.shown, before, after, copy)


def prepare_to_serve(database: Database) -> Upgrade | None:
    """Migrate an SQLite file, or check the schema of another database.

    An SQLite file belongs to one installation. A PostgreSQL database may serve several replicas; an
    operator decides when its schema changes.

    Return the upgrade; None: the schema is that of this program.
    """
    if database.is_sqlite and tables.current_version(database) != tables.EXPECTED_VERSION:
        return upgrade_schema(database)
    tables.prepare_schema(database)
    return None


def _copy_file(database: Database, version: str) -> str:
    """Copy an SQLite file in use, and return the path; a copy of the same version is replaced."""
    path = str(database.url.database)
    copy, part = f"{path}.schema-{version}", f"{path}.schema-{version}.part"
    try:
        with closing(sqlite3.connect(path)) as source:
            about = ("count", "size")
            pages, size = (source.execute(f"PRAGMA page_{n}").fetchone()[0] for n in about)
            needed, disk = pages * size + COPY_RESERVE, os.statvfs(Path(copy).parent)
            if disk.f_bavail * disk.f_frsize < needed:
                room = f"it needs {needed / 2**20:.0f} MiB"
                what = f"no room for {copy}, the copy before the upgrade: {room}"
                hint = "free space, or move the database to a larger disk; nothing was changed"
                raise Unavailable(what, field="database", hint=hint)
            keep_private(part)
            with closing(sqlite3.connect(part)) as target:
                source.backup(target)
        os.replace(part, copy)
        sync_path(Path(copy).parent)
    except (OSError, sqlite3.Error) as error:
        raise unavailable(database, error) from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
    return copy


def state_folder(url: URL, given: str | None = None) -> Path:
    """Return the folder for the state of a replica; it need not exist.

    An operator's folder (``given``, ``COMPATGATE_STATE``) comes first, then a folder next to the
    SQLite file, then one for this database or central gate in the user's state folder.
    """
    from platformdirs import user_state_path

    if place := given or os.environ.get(STATE_VARIABLE):
        return Path(place).expanduser().absolute()
    if url.drivername == "sqlite":
        return Path(f"{url.database}-state").absolute()
    kind = "far" if url.drivername.startswith("http") else "postgresql"
    name = f"{url.host or 'local'}-{url.port or 5432}-{url.database}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    try:
        return user_state_path("compatgate", appauthor=False) / f"{kind}-{digest}"
    except RuntimeError:
        what = "this user has no home folder for the state of the service"
        hint = f"name a folder with {STATE_OPTION}, or in {STATE_VARIABLE}"
        raise BadInput(what, field=STATE_OPTION, hint=hint) from None


def open_state_folder(url: URL, given: str | None = None) -> Path:
    """Make the folder of `state_folder`, readable by its owner alone, and return it.

    A default folder that cannot be made is logged: the service runs, but outlives no outage.
    """
    folder = state_folder(url, given)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        what = f"cannot use the state folder {folder}: {quote_error(error)}"
        hint = f"name another with {STATE_OPTION}, or in {STATE_VARIABLE}"
        if given or os.environ.get(STATE_VARIABLE):
            raise Unavailable(what, field=STATE_OPTION, value=str(folder), hint=hint) from None
        if url.drivername != "sqlite" or folder.parent.is_dir():  # else the database says it
            missing = "without one, nothing is decided while the database is unavailable"
            _log.warning("%s; %s", what, missing)
    return folder
