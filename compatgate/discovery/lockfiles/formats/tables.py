"""Read a lock that lists its packages in tables: what the formats in TOML and JSON share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from compatgate.discovery.lockfiles.interface import ListedPackage, LockContents, LockFile
from compatgate.discovery.lockfiles.platform import Markers, Platform, find_python_conflict
from compatgate.discovery.lockfiles.text import read_tables, read_text
from compatgate.discovery.observations import Conflict
from compatgate.errors import BadInput

Table = dict[str, Any]


class TableLock(Struct, frozen=True):
    """A document of one lock, with what decides on its packages."""

    document: Table
    file: str
    markers: Markers

    @property
    def platform(self) -> Platform:
        """Return the target's platform."""
        return self.markers.platform

    def tables(self, key: str) -> list[Table]:
        """Return a list of tables of the document."""
        return read_tables(self.document.get(key), key, self.file)

    def text(self, table: Table, key: str) -> str:
        """Return a text of a table, without placeholders; empty where it is absent."""
        return read_text(table, key, self.file)


def read_table_lock(
    file: LockFile,
    platform: Platform,
    *,
    load: Callable[[LockFile, Platform], Table],
    requires: Callable[[Table, str], str],
    packages: Callable[[TableLock], Iterable[ListedPackage | None]],
    conflicts: Callable[[TableLock], tuple[Conflict, ...]] = lambda _: (),
    index: Callable[[TableLock], str] = lambda _: "",
    groups: str = "",
) -> LockContents:
    """Return the packages of a lock, by the functions in which its format differs from others.

    Args:
        load: reads the document of a file, for a platform.
        requires: the constraint on Python that a document states.
        packages: the packages of a lock; None for those that the platform leaves out.
        conflicts: contradictions with the target, besides its Python.
        index: the index that packages without one are asked of; empty for the installer's own.
        groups: key of the document's list of groups that are always installed.
    """
    document = load(file, platform)
    python = requires(document, file.name)
    always = list_texts(document.get(groups))
    markers = Markers(platform, file=file.name, requires_python=python, groups=always)
    lock = TableLock(document, file.name, markers)
    found = tuple(package for package in packages(lock) if package is not None)
    against = find_python_conflict(markers, file.name, platform, python) + conflicts(lock)
    return LockContents(found, conflicts=against, asked=(index(lock),))


def list_texts(value: Any) -> list[str]:
    """Return the items of a list as text; none for another value."""
    return [str(item) for item in value] if isinstance(value, list) else []


def list_rows(value: Any) -> list[Table]:
    """Return the tables of a list without its other items."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def read_table(value: Any, where: str, file: str) -> Table:
    """Return an object; an absent one is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput("must be an object", field=f"{file}: {where[:200]}")
    return value
