"""Packages of rpm databases, from memory: SQLite (RHEL 9), Berkeley DB (RHEL 8 and before), ndb."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from compatgate.discovery.image.rpm import berkeley, ndb, sqlite
from compatgate.discovery.image.rpm.header import package

LARGEST = 64 * 1024 * 1024
"""Bytes of the largest database that is read; it is in memory whole."""

__all__ = ["LARGEST", "rpm_packages"]

_Reader = Callable[[bytearray, Callable[[], None]], Iterator[bytes]]
_FORMS: tuple[tuple[Callable[[bytearray], bool], _Reader], ...] = (
    (sqlite.recognises, sqlite.headers),
    (berkeley.recognises, berkeley.headers),
    (ndb.recognises, ndb.headers),
)


def rpm_packages(data: bytearray, check: Callable[[], None]) -> Iterator[tuple[str, str]]:
    """Names and versions with release, of a database in any of rpm's forms.

    Args:
        data: the file ``rpmdb.sqlite``, ``Packages`` or ``Packages.db``; it may be changed.
        check: called now and then; raises when the time is over.

    Raises:
        ValueError: it is no such database, is damaged, or has what is not read; never is a part
            of it passed over silently.
    """
    for recognises, headers in _FORMS:
        if recognises(data):
            for header in headers(data, check):
                if found := package(header):
                    yield found
            return
    raise ValueError("it is no SQLite, Berkeley DB or ndb database")
