"""Turn a kernel log into events: read, recognized, classified, counted.

An error counts once, however often and into however many logs it was printed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from compatgate.canary.health.gpu_errors import (
    FALLEN_OFF,
    Rating,
    Sighting,
    advice,
    device_of,
    parse_sighting,
    rate_sighting,
)
from compatgate.canary.health.records import BEST, Clock, Reader, Record, Stamp
from compatgate.core.facts.xid import RANK, Severity, XidTable
from compatgate.core.versions import Version, parse_version

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
        """Return plain data, the code first."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class EventCount:
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
        """Return events; at least one."""
        counted = sum(max(counts.values(), default=0) for counts in self._times.values())
        return counted or max(self._followers.values(), default=1)

    @property
    def reported(self) -> bool:
        """Return whether a line of its own was seen, not only lines that follow one."""
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
    """Return whether this very line is new; remembers it while there is room."""
    mark = hash(line)
    if mark in known:
        return False
    if len(known) < REMEMBERED:
        known.add(mark)
    return True


def sort_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the gravest first; alike ones in the order in which they came."""
    return tuple(sorted(events, key=lambda event: -RANK[event.severity]))


MOST = 10_000
"""Different errors that are kept; damage can invent devices and codes without end."""
_LOADING = re.compile(
    r"(?:loading NVIDIA UNIX|NVRM version: NVIDIA UNIX).{0,60}?Kernel Module.{0,40}?\s"
    r"(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)(?!\S)"
)
_UUID = re.compile(
    r"GPU at (?P<place>[0-9A-Fa-f:.PCI]{5,22}?): (?P<uuid>GPU-[0-9a-f-]{36})", re.IGNORECASE
)
_SERIAL = re.compile(r"GPU Board Serial Number:\s*(\w{4,32})")
_LOST = re.compile(r"The NVIDIA GPU (?P<place>[0-9a-f:.]{7,16})", re.IGNORECASE)
_LOST_HOW = re.compile(r"(?:^|NVRM:\s+)fallen off the bus and is not responding")
Key = tuple[object, ...]


class KernelErrors:
    """Collects the errors of one machine from records in the order in which they were written.

    Args:
        table: codes, severities and actions.
        driver: decides where a code depends on it; None: what the log says.
    """

    def __init__(self, table: XidTable, driver: Version | None = None) -> None:
        self._table = table
        self._stated = driver
        self._logged: Version | None = None
        self._groups: dict[Key, tuple[EventCount, Sighting, Rating, str | None]] = {}
        self._lines: set[int] = set()
        self._uuids: dict[str, str] = {}
        self._serials: dict[str, str] = {}
        self._device: str | None = None
        self._lost: str | None = None

    @property
    def driver(self) -> str | None:
        """Return the driver that decides: as stated, else the last one that the log saw loading."""
        version = self._stated or self._logged
        return str(version) if version else None

    def add(self, record: Record) -> bool:
        """Take in a record; whether it reports an error."""
        seen = parse_sighting(record.text) or self._lost_gpu(record.text)
        if seen is None:
            self._learn(record.text)
            return False
        driver = self._stated or self._logged
        rating = rate_sighting(seen, self._table, driver)
        key: Key = (
            *(seen.kind, seen.code, seen.name, seen.device),
            *(seen.gpu_instance, seen.compute_instance),
            *((rating.severity, rating.action) if not seen.follows else ("", "")),
        )
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MOST:
                return False
            group = (EventCount(), seen, rating, str(driver) if driver else None)
            self._groups[key] = group
        group[0].add(record, seen, self._lines, key)
        return True

    def events(self) -> tuple[Event, ...]:
        """Return every error so far, the gravest first."""
        reported = {_error(seen) for _, seen, _, _ in self._groups.values() if not seen.follows}
        return sort_events(
            self._event(*group)
            for group in self._groups.values()
            if not (group[1].follows and _error(group[1]) in reported)
        )

    def _event(
        self, seen: EventCount, first: Sighting, rating: Rating, driver: str | None
    ) -> Event:
        return Event(
            xid=first.code if first.kind == "xid" else None,
            sxid=first.code if first.kind == "sxid" else None,
            kind=first.name or first.kind,
            device=first.device,
            severity=rating.severity,
            action=advice(rating.action, self._table),
            meaning=rating.meaning,
            known=rating.known,
            message=first.text[:1024],
            count=seen.count,
            first_seen=seen.first,
            last_seen=seen.last,
            mnemonic=rating.mnemonic,
            investigate=advice(rating.investigate, self._table) if rating.investigate else None,
            gpu_instance=first.gpu_instance,
            compute_instance=first.compute_instance,
            pid=first.pid,
            process=first.process,
            uuid=self._uuids.get(first.device),
            serial=self._serials.get(first.device),
            driver=driver,
            origin=rating.origin,
            source=rating.source,
        )

    def _learn(self, text: str) -> None:
        """Which driver is loaded, and which GPU sits where."""
        if match := _LOADING.search(text):
            self._logged = parse_version("driver", match[1])
        elif match := _UUID.search(text):
            device = device_of(match["place"])
            if device and len(self._uuids) < MOST:
                self._uuids[device] = match["uuid"]
                self._device = device
        elif (match := _SERIAL.search(text)) and self._device:
            self._serials[self._device] = match[1]

    def _lost_gpu(self, text: str) -> Sighting | None:
        """A GPU that is gone when the driver loads is reported in three lines, without an Xid."""
        if match := _LOST.search(text):
            self._lost = device_of(match["place"])
        elif _LOST_HOW.search(text) and self._lost:
            device, self._lost = self._lost, None
            return Sighting("xid", FALLEN_OFF, device, "fallen off the bus", follows=True)
        return None


def _error(seen: Sighting) -> Key:
    return (seen.kind, seen.code, seen.name, seen.device)


def read_log(
    stream: BinaryIO, table: XidTable, driver: Version | None = None
) -> tuple[KernelErrors, str | None]:
    """The errors in a log, and why that there are none may say nothing: no log, or not a log.

    Raises:
        BadInput: the log is compressed.
    """
    reader, errors, counted = Reader(), KernelErrors(table, driver), _ByteCounter(stream)
    collect_errors(reader.read(counted), errors)
    if not reader.seen:
        return errors, "the log is empty: nothing was checked"
    if counted.odd * 2 > counted.total:
        return errors, "most of the log is not text: what it said cannot be told"
    return errors, None


def collect_errors(records: Iterable[Record], errors: KernelErrors) -> None:
    """Take in records."""
    for record in records:
        errors.add(record)


class _ByteCounter:
    """A stream that counts the bytes that no text in ASCII or UTF-8 is made of."""

    _CONTROL = bytes(set(range(32)) - set(b"\t\n\r\x1b\x1e")) + b"\x7f"

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.total = self.odd = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        chunk = self._stream.read(size)
        self.total += len(chunk)
        text = chunk.decode("utf-8", "ignore").encode()
        plain = text.translate(None, self._CONTROL)
        self.odd += len(chunk) - len(plain)
        return chunk
