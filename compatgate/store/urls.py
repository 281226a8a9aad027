"""Which database: from an option, the environment, or the user's data folder."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from compatgate.errors import BadInput, CompatgateError

ENVIRONMENT = "COMPATGATE_DATABASE"
ELSEWHERE = f"name a place with --database, or in {ENVIRONMENT}"
_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "sqlite": "sqlite",
}


def default_path() -> Path:
    """The SQLite file in the user's data folder.

    Raises:
        BadInput: this user has none.
    """
    from platformdirs import user_data_path

    try:
        return user_data_path("compatgate", appauthor=False) / "compatgate.db"
    except RuntimeError:
        what = "this user has no home folder to keep a database in"
        raise BadInput(what, field="database", hint=ELSEWHERE) from None


def resolve_url(text: str | None = None) -> URL:
    """The database that is meant.

    Args:
        text: a URL (``sqlite:///file``, ``postgresql://user@host/name``) or the path of an SQLite
            file; None: ``COMPATGATE_DATABASE``, else a file in the user's data folder.

    Raises:
        BadInput: not a URL, a kind of database that is not supported, or one kept in memory.
    """
    text = text or os.environ.get(ENVIRONMENT) or str(default_path())
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).expanduser().absolute()))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise _bad(text, "not a database URL") from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise _bad(url.drivername, f"{url.drivername} is not supported")
    if driver == "sqlite" and url.database in (None, "", ":memory:"):
        raise _bad(text, "a database in memory would not outlive the command")
    return url.set(drivername=driver)


def shown(url: URL) -> str:
    """The URL for messages, without its password, as a user would write it."""
    plain = url.set(drivername=url.drivername.partition("+")[0])
    return plain.render_as_string(hide_password=True)


def _bad(value: str, problem: str) -> CompatgateError:
    hint = "sqlite:///path/to/file.db or postgresql://user@host/name"
    return BadInput(problem, field="database", value=value, hint=hint)
