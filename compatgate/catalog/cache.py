"""Compiled tables in the user's cache directory, for checkouts and overlays.

A table's file name is a digest of its sources and of the adapters, so that it never goes stale and
two versions of compatgate do not disturb each other.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache

from compatgate.catalog import compiled as form
from compatgate.catalog.compiled import Compiled
from compatgate.core.digest import combined

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_KEPT = 7
"""Earlier forms of a table that are kept: other overlays, other versions of compatgate."""
_CODE = ("catalog/build", "core/facts", "core/versions", "core/components.py", "core/gpus")


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Digest of everything that turns a file into a table, by size and time of change."""
    stamps = {path: _stamp(path) for name in _CODE for path in _python_files(name)}
    return combined({"schema": str(form.SCHEMA), **stamps})


def _python_files(name: str) -> list[str]:
    path = os.path.join(_PACKAGE, *name.split("/"))
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(path, entry) for entry in os.listdir(path) if entry.endswith(".py")]


def _stamp(path: str) -> str:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "none"
    return f"{status.st_size} {status.st_mtime_ns}"


def directory() -> str:
    """Where compiled tables are kept."""
    if sys.platform == "linux":  # as platformdirs would answer, without the time to import it
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):
            base = os.path.join(os.path.expanduser("~"), ".cache")
        return os.path.join(base, "compatgate", "facts")
    from platformdirs import user_cache_dir

    return os.path.join(user_cache_dir("compatgate", appauthor=False), "facts")


def find(table: str, digests: dict[str, str]) -> Compiled | None:
    """The table as compiled earlier from exactly these sources by exactly this code."""
    found = form.read(os.path.join(directory(), _file(table, digests)))
    if found is None or found.sources != digests or found.code != code_digest():
        return None
    return found if found.table == table else None


def keep(compiled: Compiled) -> bool:
    """Keep a table for the next process; False where the directory cannot be written."""
    name = _file(compiled.table, compiled.sources)
    try:
        form.write(directory(), name, compiled)
        _prune(compiled.table, name)
    except OSError:
        return False
    return True


def _prune(table: str, newest: str) -> None:
    """Forget the oldest forms of a table."""
    prefix = form.file_name(table).removesuffix("msgpack")
    paths = [
        os.path.join(directory(), name)
        for name in os.listdir(directory())
        if name.startswith(prefix) and name != newest
    ]
    for path in sorted(paths, key=os.path.getmtime)[: -_KEPT or None]:
        os.unlink(path)


def _file(table: str, digests: dict[str, str]) -> str:
    key = combined({"code": code_digest(), **digests})[:20]
    return form.file_name(f"{table}.{key}")
