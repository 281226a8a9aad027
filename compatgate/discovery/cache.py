"""Cache readings of images and layers, and measurements of wheels, by digest.

A file holds one entry, named by a digest of everything that it depends on, so that it never
goes stale: another version of compatgate, of the published signals or of the settings has
another name. Results for members of wheels are stored too, so that an interrupted measurement
continues where it stopped. The schema in the name of a file grows with what is measured.

A release may get another wheel later (a new Python, a rebuild), so the choice of a wheel for a
platform expires after `DAYS`.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from platformdirs import user_cache_dir

from compatgate.core.facts.records import Library, Record
from compatgate.strict_json import DECODE_ERRORS

IMAGE_SCHEMA = "image-reading/1"
_LARGEST_ENTRY = 64 * 1024 * 1024
_CHECKSUM_BYTES = 65  # hexadecimal digits and a newline
T = TypeVar("T")


def default_image_folder() -> str | None:
    """Return the folder of the user's readings; None for a user without a home directory."""
    try:
        return os.path.join(user_cache_dir("compatgate", appauthor=False), "images")
    except RuntimeError:
        return None


def entry_key(digest: str, depends_on: Any) -> str:
    """Return the name of a cached reading."""
    text = msgspec.json.encode([IMAGE_SCHEMA, digest, depends_on], order="deterministic")
    return hashlib.sha256(text).hexdigest()


def read_struct(folder: str, name: str, kind: type[T]) -> T | None:
    """Return an entry as a type; None where it is missing, damaged or of another form."""
    try:
        with open(_entry_path(folder, name), "rb") as file:
            data = file.read(_LARGEST_ENTRY)
    except OSError:
        return None
    body = memoryview(data)[_CHECKSUM_BYTES:]
    if data[:_CHECKSUM_BYTES] != _checksum(body):
        return None
    try:
        return msgspec.json.decode(body, type=kind)
    except DECODE_ERRORS:
        return None


def write_entry(folder: str, name: str, document: Struct | dict[str, Any]) -> bool:
    """Write an entry atomically; return False where it is too large or cannot be written."""
    body = msgspec.json.encode(document)
    if len(body) > _LARGEST_ENTRY - _CHECKSUM_BYTES:
        return False
    path = _entry_path(folder, name)
    temporary = ""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".new-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(_checksum(body))
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        return False
    return True


def _checksum(body: bytes | memoryview) -> bytes:
    return hashlib.sha256(body).hexdigest().encode() + b"\n"


def _entry_path(folder: str, name: str) -> str:
    return os.path.join(folder, name[:2], f"{name}.json")


RECORD_SCHEMA = "wheel-record/3"


class MemberResult(Struct, frozen=True):
    """One member of a wheel, as read; ``library`` is None where it is no library or kernel file."""

    library: Library | None = None
    complete: bool = True


def default_wheel_folder() -> str | None:
    """Return the folder of the user's records; None for a user without a home directory."""
    try:
        return os.path.join(user_cache_dir("compatgate", appauthor=False), "wheels")
    except RuntimeError:
        return None


class WheelCache:
    """Earlier measurements of one wheel.

    ``folder`` or ``digest`` None disables the cache; ``part`` names the part of the wheel that a
    question needs (empty: all of it).
    """

    def __init__(self, folder: str | None, digest: str | None, part: str = "") -> None:
        self._folder = folder if digest else None
        self._digest = digest
        self._part = part
        self._names: set[str] = set()

    def record(self) -> Record | None:
        """Return the record of the wheel, or of the part; None where it names another wheel."""
        for key in (["record"], ["record", self._part]) if self._part else (["record"],):
            found = self._find([*key], Record)
            if found is not None and found.sha256 == self._digest:
                return found
        return None

    def keep_record(self, record: Record) -> None:
        """Store the record of the wheel, or of the part."""
        self._keep(["record", self._part] if record.skipped else ["record"], record)

    def member(self, path: str, crc: int, size: int) -> MemberResult | None:
        """Return the stored result of a member."""
        return self._find(["member", path, crc, size], MemberResult)

    def keep_member(self, path: str, crc: int, size: int, result: MemberResult) -> None:
        """Store the result of a member."""
        self._keep(["member", path, crc, size], result)

    def forget(self) -> None:
        """Remove the results of members that were read or stored: the wheel has another digest."""
        for name in self._names:
            with suppress(OSError):
                os.unlink(_entry_path(self._folder or "", name))

    def _find(self, key: list[object], kind: type[T]) -> T | None:
        return read_struct(self._folder, self._name(key), kind) if self._folder else None

    def _keep(self, key: list[object], value: Struct) -> None:
        if self._folder:
            write_entry(self._folder, self._name(key), value)

    def _name(self, key: list[object]) -> str:
        text = msgspec.json.encode([RECORD_SCHEMA, self._digest, *key])
        name = hashlib.sha256(text).hexdigest()
        self._names.add(name)
        return name


CHOICE_SCHEMA = "wheel-choice/1"
DAYS = 7.0


class WheelChoice(Struct, frozen=True):
    """The wheel chosen for a release and platform, ``at`` seconds since the epoch."""

    wheel: str
    sha256: str
    at: float


def read_choice(
    folder: str | None, key: Sequence[object], *, aged: bool = False
) -> WheelChoice | None:
    """Return an earlier choice; None where none is stored.

    ``aged`` accepts choices older than `DAYS`, where no index can be asked.
    """
    choice = read_struct(folder, _choice_name(key), WheelChoice) if folder else None
    if choice is None:
        return None
    return choice if aged or 0 <= time.time() - choice.at < DAYS * 86400 else None


def write_choice(folder: str | None, key: Sequence[object], wheel: str, sha256: str) -> None:
    """Store a choice."""
    if folder:
        write_entry(folder, _choice_name(key), WheelChoice(wheel, sha256, time.time()))


def _choice_name(key: Sequence[object]) -> str:
    return hashlib.sha256(msgspec.json.encode([CHOICE_SCHEMA, *key])).hexdigest()
