"""SQLite files with the schema: it is made once in a process, and each test has a copy.

Making it runs every migration, which takes longer than most tests.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from compatgate.kit.database import tables
from compatgate.kit.database.database import Database

_KEPT: list[TemporaryDirectory[str]] = []
"""Folders that are removed when the process ends."""


@cache
def _template() -> Path:
    _KEPT.append(TemporaryDirectory(prefix="compatgate-template-"))
    path = Path(_KEPT[-1].name) / "gate.db"
    database = Database.open(str(path))
    tables.migrate_schema(database)
    database.close()
    return path


def new_database(path: Path) -> str:
    """Make an empty database with the schema; its URL."""
    shutil.copy(_template(), path)
    return f"sqlite:///{path}"
