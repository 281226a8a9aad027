"""Check and migrate the schema of a database.

An SQLite file belongs to one installation and is migrated when it is opened. A PostgreSQL
database may serve several replicas; an operator decides when its schema changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import inspect, text
from sqlalchemy.orm import Session

from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit.database.database import Database
from compatgate.resources import migrations_dir

if TYPE_CHECKING:
    from alembic.config import Config

EXPECTED = "0006"
"""The newest migration."""


class SchemaMismatch(Unavailable):
    """An error: the database has another schema than this program needs."""

    exit_code = 2
    slug = "schema-mismatch"


def expected() -> str:
    """Return the schema version that this program needs."""
    return EXPECTED


def current(database: Database) -> str | None:
    """Return the schema version of a database; None: it is empty."""
    with database.reading() as session:
        return _version(session)


def _version(session: Session) -> str | None:
    if not inspect(session.connection()).has_table("alembic_version"):
        return None
    version: str | None = session.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version


def migrate(database: Database, to: str = "head") -> str | None:
    """Bring a database to a schema version, all or nothing; another process that tries waits.

    Args:
        database: empty, or of any older version.
        to: a version, ``head``, or ``base`` (everything is dropped).

    Returns:
        The version that it has now.

    Raises:
        SchemaMismatch: a newer program wrote the database.
    """
    from alembic import command

    with database.writing() as session:
        version = _version(session)
        if version is not None and version > EXPECTED:
            raise _newer(database, version)
        target = EXPECTED if to == "head" else to
        if version != target:
            config = _config()
            config.attributes["connection"] = session.connection()
            down = version is not None and (target == "base" or target < version)
            (command.downgrade if down else command.upgrade)(config, target)
        return _version(session)


def prepare(database: Database) -> None:
    """Migrate an SQLite file, or check the schema of another database.

    Raises:
        SchemaMismatch: names the command that mends it.
    """
    version = current(database)
    if version == EXPECTED:
        return
    if version is not None and version > EXPECTED:
        raise _newer(database, version)
    if database.is_sqlite:
        migrate(database)
        return
    raise SchemaMismatch(
        f"the database {database.shown} has schema {version or 'none'}, needed {EXPECTED}",
        field="database",
        hint=f"run: compatgate db upgrade --database {database.shown}",
    )


def _newer(database: Database, version: str) -> CompatgateError:
    return SchemaMismatch(
        f"a newer compatgate wrote {database.shown}: schema {version}, known is {EXPECTED}",
        field="database",
        hint="upgrade compatgate",
    )


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    return config


def write_migration(message: str, version: str) -> None:
    """Write the migration from the newest schema to the models, for a developer to review."""
    from tempfile import TemporaryDirectory

    from alembic import command

    with TemporaryDirectory() as folder:
        database = Database.open(str(Path(folder) / "scratch.db"))
        migrate(database)
        with database.writing() as session:
            config = _config()
            config.attributes["connection"] = session.connection()
            command.revision(config, message, autogenerate=True, rev_id=version)
        database.close()


if __name__ == "__main__":
    import sys

    write_migration(sys.argv[1], f"{int(EXPECTED) + 1:04}")
