"""Compiled tables in the user's cache directory, for checkouts and overlays.

A table's file name is a digest of its sources and of the adapters, so that it never goes stale and
two versions of compatgate do not disturb each other.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from compatgate.catalog import compiled as form
from compatgate.catalog.compiled import Compiled
from compatgate.catalog.sources import file_digest
from compatgate.core.digest import combined

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_KEPT = 7
"""Earlier forms of a table that are kept: other overlays, other versions of compatgate."""
_SETTLED_S = 2
"""Seconds after which a file that changed is not expected to change within the same tick."""
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


def file_digests(paths: Mapping[str, str]) -> dict[str, str]:
    """SHA-256 of files by name, read again only when one of them changed.

    As version control does, files are told apart by size, inode and both times. What changed in the
    last seconds is not kept: it may change again within the same tick of the clock.

    Raises:
        CatalogError: a file cannot be read.
    """
    try:
        status = {name: os.stat(path) for name, path in paths.items()}
    except OSError:  # reading names the file
        return {name: file_digest(path) for name, path in paths.items()}
    stamps = {
        name: f"{s.st_size} {s.st_ino} {s.st_mtime_ns} {s.st_ctime_ns}"
        for name, s in status.items()
    }
    file = form.file_name(f"digests.{combined(stamps)[:32]}")
    found = form.read_digests(os.path.join(directory(), file))
    if found is not None and found.keys() == paths.keys():
        return found
    made = {name: file_digest(path) for name, path in paths.items()}
    newest = max((s.st_ctime for s in status.values()), default=0)
    if newest + _SETTLED_S < time.time():
        _keep_digests(file, made)
    return made


def _keep_digests(file: str, digests: dict[str, str]) -> None:
    try:
        form.write_bytes(directory(), file, msgspec.msgpack.encode(digests))
        _prune("digests", file)
    except OSError:
        return


def _file(table: str, digests: dict[str, str]) -> str:
    key = combined({"code": code_digest(), **digests})[:20]
    return form.file_name(f"{table}.{key}")
