"""Databases for tests: SQLite in a file, and PostgreSQL in a cluster of the tests' own.

``COMPATGATE_TEST_POSTGRESQL`` names a server to use instead (a URL whose user may create
databases). Without any server the PostgreSQL half is skipped, or fails where ``CI`` is set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from asking import ask, facts, gpus, now, pool_of, stack_of  # noqa: F401 - fixtures
from database_template import new_database
from postgresql import Cluster, programs, running
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError

from compatgate.core.facts import Facts
from compatgate.documents.sources import Source, read_paths
from compatgate.kit.database import tables
from compatgate.kit.database.database import WRITER_LOCK, Database, resolve_url
from compatgate.kit.database.tables import Base
from compatgate.kit.principal import Authorship
from compatgate.resources import matrix_dir
from compatgate.service.app import Rooms, open_rooms

_numbers = count(1)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """URL of a PostgreSQL server on which tests may create databases."""
    given = os.environ.get("COMPATGATE_TEST_POSTGRESQL")
    if given:
        yield given
        return
    with running(installed_postgresql(), fsync="off") as cluster:
        yield cluster.url


def installed_postgresql() -> Path:
    """The folder of PostgreSQL's programs; skips the test where there is none."""
    found = programs()
    if found is None:
        reason = (
            "no PostgreSQL server: install Debian's postgresql, or set COMPATGATE_TEST_POSTGRESQL"
        )
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture
def mortal_cluster() -> Iterator[Cluster]:
    """A server of the test's own, with the schema, that may be killed.

    A COMMIT takes long enough to be killed in, and what was not written to disk by it is not
    written by others soon.
    """
    slow = {"commit_delay": "20000", "commit_siblings": "0"}
    lazy = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}
    with running(installed_postgresql(), schema=True, **slow, **lazy) as cluster:
        yield cluster


def _on(server: str, name: str) -> str:
    return make_url(server).set(database=name).render_as_string(hide_password=False)


def _administer(server: str, statement: str) -> None:
    engine = create_engine(resolve_url(server), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


_KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]


@pytest.fixture(params=_KINDS)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without a schema."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/gate.db"
        return
    server = request.getfixturevalue("postgresql_server")
    name = f"compatgate_empty_{os.getpid()}_{next(_numbers)}"
    _administer(server, f"CREATE DATABASE {name}")
    try:
        yield _on(server, name)
    finally:
        _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgresql_empty(request: pytest.FixtureRequest) -> Iterator[str]:
    """A PostgreSQL database without a schema."""
    server = request.getfixturevalue("postgresql_server")
    name = f"compatgate_bare_{os.getpid()}_{next(_numbers)}"
    _administer(server, f"CREATE DATABASE {name}")
    try:
        yield _on(server, name)
    finally:
        _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=_KINDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with the schema and nothing else."""
    if request.param == "sqlite":
        return new_database(tmp_path / "gate.db")
    database: EmptiedDatabase = request.getfixturevalue("postgresql_database")
    database.empty()
    return database.url


@pytest.fixture(scope="session")
def postgresql_database(postgresql_server: str) -> Iterator[EmptiedDatabase]:
    """One database for all tests; `database_url` empties it for each."""
    database = EmptiedDatabase(postgresql_server, f"compatgate_test_{os.getpid()}")
    yield database
    database.drop()


_EMPTY = text("SELECT pg_temp.empty_tables()")


class EmptiedDatabase:
    """A database that is emptied again and again.

    One connection stays open for it: a server takes longer to begin one, and to plan sixty
    statements, than to look into sixty tables.
    """

    def __init__(self, server: str, name: str) -> None:
        self.url = _on(server, name)
        self._server, self._name = server, name
        self._engine = create_engine(resolve_url(self.url), pool_size=1, pool_pre_ping=True)
        event.listen(self._engine, "connect", _add_function)
        self._make()

    def empty(self) -> None:
        """Empty all tables; a database that a failed test left in disorder is made anew."""
        try:
            with self._engine.begin() as connection:
                version = connection.execute(_EMPTY).scalar()
        except DBAPIError:
            version = None
        if version != tables.EXPECTED_VERSION:
            self.drop()
            self._make()

    def _make(self) -> None:
        _administer(self._server, f"CREATE DATABASE {self._name}")
        database = Database.open(self.url)
        tables.migrate_schema(database)
        database.close()

    def drop(self) -> None:
        """Remove the database."""
        self._engine.dispose()
        _administer(self._server, f"DROP DATABASE {self._name} WITH (FORCE)")


def _add_function(connection: Any, _record: object) -> None:
    """Add the function that empties what is not empty; it returns the schema's version.

    TRUNCATE would make new files of all tables.
    """
    rows = "".join(
        f"IF EXISTS (SELECT FROM {table.name}) THEN DELETE FROM {table.name}; END IF;"
        for table in reversed(Base.metadata.sorted_tables)
    )
    connection.execute(
        f"""CREATE FUNCTION pg_temp.empty_tables() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_advisory_xact_lock({WRITER_LOCK});
            {rows}
            PERFORM setval(quote_ident(sequencename), start_value, false)
                FROM pg_sequences WHERE last_value IS NOT NULL;
            RETURN (SELECT version_num FROM alembic_version);
        END $$"""
    )
    connection.commit()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An open database with the schema."""
    opened = Database.open(database_url)
    tables.prepare_schema(opened)
    yield opened
    opened.close()


@pytest.fixture
def rooms(database_url: str, facts: Facts) -> Iterator[Rooms]:
    """A gate on an empty database."""
    opened = open_rooms(database_url, overlays=[])
    yield opened
    opened.close()


@pytest.fixture
def by() -> Authorship:
    """Who changes things in tests."""
    return Authorship("tester", "to see what happens")


@pytest.fixture
def stocked(rooms: Rooms, by: Authorship) -> Rooms:
    """A gate with the example matrix, as revision 1."""
    rooms.matrix.import_documents(read_paths([matrix_dir() / "examples"]), by)
    return rooms


@pytest.fixture(scope="session")
def entry_body() -> Callable[..., dict[str, Any]]:
    """An entry as a request carries it."""

    def body(name: str = "made", **spec: Any) -> dict[str, Any]:
        return {
            "metadata": {"name": name},
            "spec": {
                "targets": ["*"],
                "components": {"cuda": "12.4.*"},
                "status": "blessed",
                **spec,
            },
        }

    return body


@pytest.fixture(scope="session")
def target_body() -> Callable[..., dict[str, Any]]:
    """A target as a request carries it."""

    def body(name: str = "made", **spec: Any) -> dict[str, Any]:
        pool = {"name": "l4", "gpu": "L4", "driver": "550.54.15"}
        return {"metadata": {"name": name}, "spec": {"pools": [pool], **spec}}

    return body


@pytest.fixture(scope="session")
def source() -> Callable[[str], list[Source]]:
    """A text as the file ``matrix.yaml``."""
    return lambda content: [Source("matrix.yaml", content)]
