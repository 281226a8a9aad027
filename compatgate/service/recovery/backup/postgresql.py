"""Run the backup tools of PostgreSQL: ``pg_dump`` and ``pg_restore``."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from compatgate.errors import NotFound, Unavailable, quote_error

MAGIC = b"PGDMP"
"""How a dump in the custom format begins."""
_HINT = "install the client programs of PostgreSQL, of the server's version or a newer one"


def dump(session: Session, url: URL, path: Path) -> None:
    """Dump the database as a reading session sees it, in the custom format."""
    snapshot = session.execute(text("SELECT pg_export_snapshot()")).scalar()
    _run("pg_dump", "--format=custom", *_target(url), f"--snapshot={snapshot}", f"--file={path}",
         password=url.password)  # fmt: skip


def load(path: Path, url: URL) -> None:
    """Load a dump into a database without tables, all or nothing."""
    _run("pg_restore", "--single-transaction", *_target(url), "--no-owner", "--no-privileges",
         str(path), password=url.password)  # fmt: skip


def read(path: Path) -> None:
    """Read every byte of a dump, without a server; raise as `load`."""
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
