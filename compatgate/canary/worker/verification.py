"""Which blessed stacks are due to be verified again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from msgspec import Struct

MONTH_S = 30 * 86400
PAUSE_S = 86400
"""After an attempt that showed nothing, such as on a host that was away."""
_JITTER = 0.2


class Shown(Struct, frozen=True):
    """The latest passed run that a blessed entry rests on, for one suite on one SKU.

    Attributes:
        finished: seconds since the epoch.
        tried: when it was last asked for again, whatever came of that; None: it was not.
        underway: a later run of the same is queued or running.
    """

    run: str
    entry: str
    suite: str
    sku: str
    finished: int
    tried: int | None = None
    underway: bool = False


def due(shown: Iterable[Shown], now: int, *, every_s: int = MONTH_S) -> list[Shown]:
    """What is to be run again now, longest waiting first.

    Each is due between 0.8 and 1 times ``every_s`` after its last run: always at the same point for
    the same entry, suite and SKU, so that a matrix that was blessed in one day is not verified in
    one day, and never later than asked.
    """
    waiting = [item for item in shown if _is_due(item, now, every_s)]
    return sorted(waiting, key=lambda item: (item.finished, item.run))


def _is_due(item: Shown, now: int, every_s: int) -> bool:
    if item.underway or (item.tried is not None and now < item.tried + PAUSE_S):
        return False
    return now >= item.finished + _after(item, every_s)


def _after(item: Shown, every_s: int) -> int:
    key = "\0".join((item.entry, item.suite, item.sku)).encode()
    share = int.from_bytes(hashlib.sha256(key).digest()[:4]) / 2**32
    return int(every_s * (1 - _JITTER * share))
