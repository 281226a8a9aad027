"""Count the occurrences of an error in logs that may repeat it, on one clock or on several."""

from __future__ import annotations

from collections import Counter

from compatgate.canary.health.gpu_errors import Sighting
from compatgate.canary.health.records import CLOCK_ORDER, Clock, Record, Stamp

MAX_LINES = 100_000
"""Maximum number of distinct lines to remember; beyond it, a repetition may count again."""


class EventCount:
    """Number of occurrences of one kind of error of one device.

    Several logs may contain the same event, with several clocks: dmesg has seconds since boot,
    syslog has the hour. Lines with equal text and time on the same clock are one line printed
    twice. The clock with the most events gives the count.
    """

    def __init__(self) -> None:
        self._times: dict[int, Counter[Clock | str]] = {}
        self._followers: Counter[str] = Counter()
        self._first: dict[Clock, str] = {}
        self._last: dict[Clock, str] = {}

    def add(self, record: Record, what: Sighting, known: set[int], identity: object) -> None:
        """Count a line, unless the same line was counted before."""
        text = hash(what.text)
        for stamp in record.at:
            self._first.setdefault(stamp.clock, stamp.text)
            self._last[stamp.clock] = stamp.text
        if what.follows:
            for at in record.at or (None,):
                clock = _sink(at, record.quoted)
                if _is_new(known, (identity, what.text, clock, at)):
                    self._followers[f"{clock} {what.text[:4]}"] += 1
            return
        if len(known) >= MAX_LINES and text not in self._times:
            text = 0
        counts = self._times.setdefault(text, Counter())
        for at in record.at or (None,):
            clock = _sink(at, record.quoted)
            if _is_new(known, (identity, text, clock, at)):
                counts[clock] += 1

    @property
    def count(self) -> int:
        """Return the number of events, at least one."""
        counted = sum(max(counts.values(), default=0) for counts in self._times.values())
        return counted or max(self._followers.values(), default=1)

    @property
    def reported(self) -> bool:
        """Return whether a line reported the error, not only lines that follow such a line."""
        return bool(self._times)

    @property
    def first(self) -> str | None:
        """Return the first time, on the best clock."""
        return next((self._first[clock] for clock in CLOCK_ORDER if clock in self._first), None)

    @property
    def last(self) -> str | None:
        """Return the last time, on the best clock."""
        return next((self._last[clock] for clock in CLOCK_ORDER if clock in self._last), None)


def _sink(stamp: Stamp | None, quoted: bool) -> Clock | str:
    clock = stamp.clock if stamp else "none"
    return f"{clock}, quoted" if quoted else clock


def _is_new(known: set[int], line: object) -> bool:
    mark = hash(line)
    if mark in known:
        return False
    if len(known) < MAX_LINES:
        known.add(mark)
    return True
