"""What was found out for a question, kept for whoever asks it again, no longer than it holds."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from compatgate.gate.snapshot import Snapshot

SIZE = 4096
_LARGEST_QUESTION = 64 * 1024
_HOUR = 3600.0

T = TypeVar("T")


class Remembered(Generic[T]):
    """Values by question, for one snapshot; safe to use from any number of threads.

    Args:
        size: so many are kept; the one that was asked for longest ago goes first.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._values: OrderedDict[bytes, tuple[Snapshot, float, T]] = OrderedDict()

    def get(self, question: bytes, snapshot: Snapshot) -> T | None:
        """What was kept for this question, if it still holds."""
        with self._lock:
            found = self._values.get(question)
            if found is None:
                return None
            if found[0] is not snapshot or found[1] <= time.time():
                del self._values[question]
                return None
            self._values.move_to_end(question)
            return found[2]

    def put(
        self, question: bytes, snapshot: Snapshot, value: T, valid_until: str | None, now: datetime
    ) -> None:
        """Keep a value until the hour ends, or until a date that it rests on passes.

        Args:
            question: the key.
            snapshot: that the value rests on.
            value: to keep.
            valid_until: as `compatgate.core.verdict.Verdict.valid_until`.
            now: when it was found out.
        """
        if len(question) > _LARGEST_QUESTION:
            return
        expires = _expiry(valid_until, now)
        with self._lock:
            self._values[question] = (snapshot, expires, value)
            if len(self._values) > self._size:
                self._values.popitem(last=False)

    def clear(self, _: Any = None) -> None:
        """Forget everything; the snapshot was replaced."""
        with self._lock:
            self._values.clear()


def _expiry(valid_until: str | None, now: datetime) -> float:
    """Dates end at midnight UTC, which is also the end of an hour; times may end sooner."""
    present = now.timestamp()
    hour_ends = present - present % _HOUR + _HOUR
    if valid_until is None or len(valid_until) <= len("2026-11-03"):
        return hour_ends
    moment = datetime.fromisoformat(valid_until)
    ends = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return min(ends, hour_ends) if ends > present else hour_ends
