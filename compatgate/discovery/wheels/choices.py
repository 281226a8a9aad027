"""Which wheel of a release was chosen for a platform: kept, so that no index is asked again.

A release may get another wheel later (a new Python, a rebuild): a choice holds for `DAYS`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from compatgate.discovery.image import cache
from compatgate.not_json import NOT_JSON

SCHEMA = "wheel-choice/1"
DAYS = 7.0


class Choice(Struct, frozen=True):
    """A wheel that was chosen.

    Attributes:
        wheel: its file name.
        sha256: its digest, under which its record is kept.
        at: when it was chosen, in seconds since the epoch.
    """

    wheel: str
    sha256: str
    at: float


def find_choice(folder: str | None, key: Sequence[object], *, aged: bool = False) -> Choice | None:
    """Return an earlier choice, where there is one.

    Args:
        folder: of the user's records; None: nothing is kept.
        key: everything that the choice depends on.
        aged: one that is older than `DAYS` counts, too: no index can be asked.
    """
    document = cache.find(folder, _name(key)) if folder else None
    if document is None:
        return None
    try:
        found = msgspec.convert(document, Choice)
    except (msgspec.ValidationError, *NOT_JSON):
        return None
    return found if aged or 0 <= time.time() - found.at < DAYS * 86400 else None


def keep_choice(folder: str | None, key: Sequence[object], wheel: str, sha256: str) -> None:
    """Keep a choice for next time."""
    if folder:
        choice = Choice(wheel, sha256, time.time())
        cache.keep(folder, _name(key), msgspec.to_builtins(choice))


def _name(key: Sequence[object]) -> str:
    return hashlib.sha256(msgspec.json.encode([SCHEMA, *key])).hexdigest()
