"""What was measured stays measured: records and members of wheels, by the wheel's digest, for ever.

A digest never means another wheel. Members are kept as well, so that a measurement that was cut off
goes on where it was. The name of a file includes `SCHEMA`, which grows with what is measured.
"""

from __future__ import annotations

import hashlib
import os
from typing import TypeVar

import msgspec
from msgspec import Struct
from platformdirs import user_cache_dir

from compatgate.core.facts.records import Library, Record
from compatgate.discovery.image import cache
from compatgate.not_json import NOT_JSON

SCHEMA = "wheel-record/3"
T = TypeVar("T")


class MemberResult(Struct, frozen=True):
    """What a member of a wheel gave.

    Attributes:
        library: None where it is no library or kernel file.
        complete: all of it could be read.
    """

    library: Library | None = None
    complete: bool = True


def default_folder() -> str | None:
    """Return the folder of the user's records; None for a user without a home."""
    try:
        return os.path.join(user_cache_dir("compatgate", appauthor=False), "wheels")
    except RuntimeError:
        return None


class Memory:
    """Earlier measurements of one wheel.

    Args:
        folder: None: nothing is found or kept.
        digest: SHA-256 of the wheel; None where nobody states it: nothing is found or kept.
    """

    def __init__(self, folder: str | None, digest: str | None) -> None:
        self._folder = folder if digest else None
        self._digest = digest
        self._names: set[str] = set()

    def record(self) -> Record | None:
        """Find the record of the whole wheel; a file of another wheel's record is none."""
        found = self._find(["record"], Record)
        return found if found is not None and found.sha256 == self._digest else None

    def keep_record(self, record: Record) -> None:
        """Keep the record of the whole wheel."""
        self._keep(["record"], record)

    def member(self, path: str, crc: int, size: int) -> MemberResult | None:
        """Find what a member gave."""
        return self._find(["member", path, crc, size], MemberResult)

    def keep_member(self, path: str, crc: int, size: int, result: MemberResult) -> None:
        """Keep what a member gave."""
        self._keep(["member", path, crc, size], result)

    def forget(self) -> None:
        """Forget the members that were found or kept: the wheel is not the one it should be."""
        for name in self._names:
            cache.forget(self._folder or "", name)

    def _find(self, key: list[object], kind: type[T]) -> T | None:
        if not self._folder:
            return None
        document = cache.find(self._folder, self._name(key))
        if document is None:
            return None
        try:
            return msgspec.convert(document, kind)
        except (msgspec.ValidationError, *NOT_JSON):
            return None

    def _keep(self, key: list[object], value: Struct) -> None:
        if self._folder:
            cache.keep(self._folder, self._name(key), msgspec.to_builtins(value))

    def _name(self, key: list[object]) -> str:
        text = msgspec.json.encode([SCHEMA, self._digest, *key])
        name = hashlib.sha256(text).hexdigest()
        self._names.add(name)
        return name
