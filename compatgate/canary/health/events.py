"""Errors, each counted once however often and into however many logs it was printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.canary.health.records import Record
from compatgate.canary.health.sightings import Sighting
from compatgate.canary.health.stamps import BEST, Clock, Stamp
from compatgate.core.facts.xid import RANK, Severity

REMEMBERED = 100_000
"""Distinct lines that are told apart; after so many a repetition may be counted again."""


class Event(Struct, frozen=True, omit_defaults=False):
    """An error of one device, however often it came.

    Attributes:
        xid, sxid: the code; both None for a message that is neither (``kind`` tells).
        kind: ``xid``, ``sxid``, ``rm-init-failed``, ``aer-fatal``, ``aer-nonfatal``,
            ``aer-corrected``.
        device: PCI domain, bus and device, ``0000:9b:00``.
        severity: ``fatal``: the GPU is not to be used before the action was done; ``warning``: the
            application was ended, or nobody knows; ``info``: nothing is to be done.
        action: NVIDIA's immediate action and what it means; ``investigate``: what to do if it
            comes again.
        known: whether the table has the code.
        message: of the first one, as printed.
        count: how often it happened.
        first_seen, last_seen: as the log writes it; None where it has no times.
        gpu_instance, compute_instance: of MIG, where the driver names them.
        pid, process: of the first one.
        uuid, serial: of the GPU, where the log names them.
        source: where severity and action are published.
    """

    xid: int | None
    sxid: int | None
    kind: str
    device: str
    severity: Severity
    action: str
    meaning: str
    known: bool
    message: str
    count: int
    first_seen: str | None = None
    last_seen: str | None = None
    mnemonic: str | None = None
    investigate: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    pid: int | None = None
    process: str | None = None
    uuid: str | None = None
    serial: str | None = None
    driver: str | None = None
    origin: tuple[str, ...] = ()
    source: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data, the code first."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Seen:
    """How often one kind of error of one device happened.

    The same event stands in several logs, on several clocks: in dmesg with the seconds since boot,
    in syslog with the hour. What is the same text at the same time on the same clock is one line
    printed twice; and as many events as the clock that shows most of them are counted.
    """

    def __init__(self) -> None:
        self._times: dict[int, Counter[Clock | str]] = {}
        self._followers: Counter[str] = Counter()
        self._first: dict[Clock, str] = {}
        self._last: dict[Clock, str] = {}

    def add(self, record: Record, what: Sighting, known: set[int], identity: object) -> None:
        """Count a line, unless the very same one was counted."""
        text = hash(what.text)
        for stamp in record.at:
            self._first.setdefault(stamp.clock, stamp.text)
            self._last[stamp.clock] = stamp.text
        if what.follows:
            self._follow(record, what, known, identity)
            return
        if len(known) >= REMEMBERED and text not in self._times:
            text = 0
        counts = self._times.setdefault(text, Counter())
        for at in record.at or (None,):
            clock = _sink(at, record.quoted)
            if _fresh(known, (identity, text, clock, at)):
                counts[clock] += 1

    def _follow(self, record: Record, what: Sighting, known: set[int], identity: object) -> None:
        for at in record.at or (None,):
            clock = _sink(at, record.quoted)
            if _fresh(known, (identity, what.text, clock, at)):
                self._followers[f"{clock} {what.text[:4]}"] += 1

    @property
    def count(self) -> int:
        """Events; at least one."""
        counted = sum(max(counts.values(), default=0) for counts in self._times.values())
        return counted or max(self._followers.values(), default=1)

    @property
    def reported(self) -> bool:
        """Whether a line of its own was seen, not only lines that follow one."""
        return bool(self._times)

    @property
    def first(self) -> str | None:
        """When it was first seen, on the best clock."""
        return next((self._first[clock] for clock in BEST if clock in self._first), None)

    @property
    def last(self) -> str | None:
        """When it was last seen, on the best clock."""
        return next((self._last[clock] for clock in BEST if clock in self._last), None)


def _sink(stamp: Stamp | None, quoted: bool) -> Clock | str:
    clock = stamp.clock if stamp else "none"
    return f"{clock}, quoted" if quoted else clock


def _fresh(known: set[int], line: object) -> bool:
    """Whether this very line is new; remembers it while there is room."""
    mark = hash(line)
    if mark in known:
        return False
    if len(known) < REMEMBERED:
        known.add(mark)
    return True


def in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    """The gravest first; alike ones in the order in which they came."""
    return tuple(sorted(events, key=lambda event: -RANK[event.severity]))
