"""Readings of images by digest, kept for ever: a digest never means another image.

One file a reading, named by a digest of everything that it depends on, so that it never goes
stale: another version of compatgate, of the published signals or of the settings has another name.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from typing import Any

import msgspec
from platformdirs import user_cache_dir

from compatgate.not_json import NOT_JSON

SCHEMA = "image-reading/1"
_LARGEST = 64 * 1024 * 1024


def default_folder() -> str | None:
    """Where a user's readings are kept; None for a user without a home, as a container's may be."""
    try:
        return os.path.join(user_cache_dir("compatgate", appauthor=False), "images")
    except RuntimeError:
        return None


def key(digest: str, depends_on: Any) -> str:
    """The name of a reading.

    Args:
        digest: of the image's manifest.
        depends_on: everything else that the reading depends on, as JSON.
    """
    text = msgspec.json.encode([SCHEMA, digest, depends_on], order="deterministic")
    return hashlib.sha256(text).hexdigest()


def find(folder: str, name: str) -> dict[str, Any] | None:
    """An earlier reading; None where there is none, or it is damaged."""
    try:
        with open(_path(folder, name), "rb") as file:
            data = file.read(_LARGEST)
    except OSError:
        return None
    checksum, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        return None
    try:
        document = msgspec.json.decode(body)
    except NOT_JSON:
        return None
    return document if isinstance(document, dict) else None


def keep(folder: str, name: str, document: dict[str, Any]) -> bool:
    """Keep a reading, whole or not at all; False where the folder cannot be written."""
    body = msgspec.json.encode(document)
    path = _path(folder, name)
    temporary = ""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".new-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        return False
    return True


def forget(folder: str, name: str) -> None:
    """Remove a reading, where there is one."""
    with suppress(OSError):
        os.unlink(_path(folder, name))


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, name[:2], f"{name}.json")
