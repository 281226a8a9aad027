"""Read a kernel log into events: recognize errors, rate them, and count each of them once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.health.gpu_errors import (
    FALLEN_OFF,
    Rating,
    Sighting,
    describe_action,
    describe_rma,
    parse_device,
    parse_sighting,
    rate_sighting,
)
from compatgate.canary.health.host_causes import HOST, HostMessage, HostMessages
from compatgate.canary.health.records import CLOCK_ORDER, Clock, Record, RecordReader
from compatgate.core.facts.errors import Certainty, ErrorTable
from compatgate.core.facts.xid import SEVERITY_RANK, Severity, XidTable
from compatgate.core.versions import Version, parse_version

MAX_LINES = 100_000
"""Maximum number of distinct lines to remember; beyond it, a repetition may count again."""


class EventCount:
    """Number of occurrences of one kind of error of one device.

    Several logs may contain the same event, with several clocks: dmesg has seconds since boot,
    syslog has the hour. Lines with equal text and time on the same clock are one line printed
    twice. The clock with the most events gives the count.
    """

    def __init__(self) -> None:
        self._times: dict[int | str, Counter[str]] = {}
        self._followers: Counter[str] = Counter()
        self._first: dict[Clock, str] = {}
        self._last: dict[Clock, str] = {}

    def add(self, record: Record, what: Sighting, known: set[int], identity: object) -> None:
        """Count a line, unless the same line was counted before."""
        for stamp in record.at:
            self._first.setdefault(stamp.clock, stamp.text)
            self._last[stamp.clock] = stamp.text
        text = what.text if what.follows else hash(what.text)
        if len(known) >= MAX_LINES and text not in self._times and not what.follows:
            text = 0
        for at in record.at or (None,):
            sink = (at.clock if at else "none") + (", quoted" if record.quoted else "")
            mark = hash((identity, text, sink, at))
            if mark in known:
                continue
            if len(known) < MAX_LINES:
                known.add(mark)
            if what.follows:
                self._followers[f"{sink} {what.text[:4]}"] += 1
            else:
                self._times.setdefault(text, Counter())[sink] += 1

    @property
    def count(self) -> int:
        """Return the number of events, at least one."""
        counted = sum(max(counts.values(), default=0) for counts in self._times.values())
        return counted or max(self._followers.values(), default=1)

    @property
    def first(self) -> str | None:
        """Return the first time, on the best clock."""
        return next((self._first[clock] for clock in CLOCK_ORDER if clock in self._first), None)

    @property
    def last(self) -> str | None:
        """Return the last time, on the best clock."""
        return next((self._last[clock] for clock in CLOCK_ORDER if clock in self._last), None)


class Event(Struct, frozen=True, omit_defaults=False):
    """An error of one device, with its number of occurrences.

    Attributes:
        xid, sxid: the code; both None for a message of another kind (see ``kind``).
        kind: ``xid``, ``sxid``, ``rm-init-failed``, ``aer-fatal``, ``aer-nonfatal``,
            ``aer-corrected``; or the id of a cause that concerns the host: ``open-module-needed``.
        device: PCI domain, bus and device, ``0000:9b:00``; ``host`` where a message about the host
            names none.
        severity: ``fatal``: do not use the GPU before the action is done; ``warning``: the
            application was ended, or the effect is unknown; ``info``: no action is needed.
        action: NVIDIA's immediate action and its meaning; ``investigate``: what to do if the error
            comes again.
        known: whether the table has the code.
        message: the first message, as printed.
        first_seen, last_seen: as the log writes it; None if the log has no times.
        gpu_instance, compute_instance: of MIG, if the driver names them.
        pid, process: of the first message.
        uuid, serial: of the GPU, if the log names them.
        rma: when NVIDIA replaces a GPU with this error; None: it publishes no threshold.
        confidence: of a cause; ``likely``: other causes print the same words, and ``next`` has the
            command that settles it.
        fixes: of a cause, the usual first.
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
    guidance: str | None = None
    rma: str | None = None
    confidence: Certainty | None = None
    next: str | None = None
    fixes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


MAX_ERRORS = 10_000
"""Maximum number of different errors; a damaged log can contain endless devices and codes."""
LOADING = re.compile(
    r"(?:loading NVIDIA UNIX|NVRM version: NVIDIA UNIX).{0,60}?Kernel Module.{0,40}?\s"
    r"(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)(?!\S)"
)
_UUID = re.compile(
    r"GPU at (?P<place>[0-9A-Fa-f:.PCI]{5,22}?): (?P<uuid>GPU-[0-9a-f-]{36})", re.IGNORECASE
)
_SERIAL = re.compile(r"GPU Board Serial Number:\s*(\w{4,32})")
_LOST = re.compile(r"The NVIDIA GPU (?P<place>[0-9a-f:.]{7,16})", re.IGNORECASE)
_LOST_HOW = re.compile(r"(?:^|NVRM:\s+)fallen off the bus and is not responding")
ErrorKey = tuple[object, ...]


class KernelErrors:
    """Collector of one machine's errors from records in the order in which they were written.

    ``driver`` is for codes that depend on its version; None: the version in the log. With
    ``signatures`` it also looks for words about the host.
    """

    def __init__(
        self, table: XidTable, driver: Version | None = None, signatures: ErrorTable | None = None
    ) -> None:
        self._table = table
        self._host = HostMessages(signatures) if signatures else None
        self._causes: dict[ErrorKey, tuple[EventCount, HostMessage]] = {}
        self._last_cause: ErrorKey | None = None
        self._stated = driver
        self._logged: Version | None = None
        self._groups: dict[ErrorKey, tuple[EventCount, Sighting, Rating, str | None]] = {}
        self._lines: set[int] = set()
        self._uuids: dict[str, str] = {}
        self._serials: dict[str, str] = {}
        self._device: str | None = None
        self._lost: str | None = None

    @property
    def driver(self) -> str | None:
        """Return the driver that decides: the stated one, else the last that the log names."""
        version = self._stated or self._logged
        return str(version) if version else None

    def add_all(self, records: Iterable[Record]) -> None:
        """Add records."""
        for record in records:
            self.add(record)

    def add(self, record: Record) -> bool:
        """Add a record, and return whether it reports an error."""
        seen = parse_sighting(record.text) or self._lost_gpu(record.text)
        if seen is None:
            text = record.text
            if match := LOADING.search(text):
                self._logged = parse_version("driver", match[1])
            elif match := _UUID.search(text):
                device = parse_device(match["place"])
                if device and len(self._uuids) < MAX_ERRORS:
                    self._uuids[device] = match["uuid"]
                    self._device = device
            elif (match := _SERIAL.search(text)) and self._device:
                self._serials[self._device] = match[1]
            return self._add_causes(record)
        if self._host:
            self._host.interrupt()
        driver = self._stated or self._logged
        rating = rate_sighting(seen, self._table, driver)
        key: ErrorKey = (
            *(seen.kind, seen.code, seen.name, seen.device),
            *(seen.gpu_instance, seen.compute_instance),
            *((rating.severity, rating.action) if not seen.follows else ("", "")),
        )
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MAX_ERRORS:
                return False
            group = (EventCount(), seen, rating, str(driver) if driver else None)
            self._groups[key] = group
        group[0].add(record, seen, self._lines, key)
        return True

    def _add_causes(self, record: Record) -> bool:
        """Add what a line says about the host, and return whether it says something."""
        if self._host is None:
            return False
        more = self._host.continues(record)
        messages = tuple(self._host.read(record))
        if more and not messages and self._last_cause in self._causes:
            count, first = self._causes[self._last_cause]
            if count.count == 1:
                longer = replace(first, text=f"{first.text} {more}")
                self._causes[self._last_cause] = (count, longer)
        for message in messages:
            name = message.cause.id
            key: ErrorKey = (name, message.device)
            if message.again and key not in self._causes:  # the first words named the device
                key = next((k for k in reversed(self._causes) if k[0] == name), key)
            group = self._causes.get(key)
            if group is None:
                if len(self._causes) >= MAX_ERRORS:
                    continue
                group = self._causes[key] = (EventCount(), message)
            elif _weight(message) > _weight(group[1]):
                self._causes[key] = (group[0], replace(message, device=group[1].device))
            if not message.again:
                sighting = Sighting("notice", None, message.device, message.text, name=name)
                group[0].add(record._replace(at=message.at), sighting, self._lines, key)
                self._last_cause = key
        return bool(messages)

    def events(self) -> tuple[Event, ...]:
        """Return every error so far, the most severe first.

        A line that a cause about the host explains is left out: the action is that of the cause.
        """
        reported = {_error_key(seen) for _, seen, _, _ in self._groups.values() if not seen.follows}
        errors = [
            self._event(*group)
            for group in self._groups.values()
            if not (group[1].follows and _error_key(group[1]) in reported)
            and not (group[1].name and self._is_named(group[1].name, group[1].device))
        ]
        events = [*self._cause_events(), *errors]
        return tuple(sorted(events, key=lambda event: -SEVERITY_RANK[event.severity]))

    def _is_named(self, kind: str, device: str) -> bool:
        """Tell whether a cause explains what a kind of message says about a device."""
        return any(
            kind in message.cause.explains and message.device in (HOST, device)
            for _, message in self._causes.values()
        )

    def _cause_events(self) -> Iterator[Event]:
        for count, message in self._causes.values():
            if not self._is_named(message.cause.id, message.device):
                cause, signature = message.cause, message.signature
                yield Event(
                    xid=None,
                    sxid=None,
                    kind=cause.id,
                    device=message.device,
                    severity=signature.health or "warning",
                    action="; ".join(cause.fixes),
                    meaning=cause.means,
                    known=True,
                    message=message.text,
                    count=count.count,
                    first_seen=count.first,
                    last_seen=count.last,
                    uuid=self._uuids.get(message.device),
                    serial=self._serials.get(message.device),
                    driver=self.driver,
                    source=signature.source.url or signature.source.title,
                    confidence=signature.certainty,
                    next=cause.next,
                    fixes=cause.fixes,
                    rules=cause.rules,
                )

    def _event(
        self, seen: EventCount, first: Sighting, rating: Rating, driver: str | None
    ) -> Event:
        actions: dict[str, Any] = {"action": describe_action(rating.action, self._table)}
        if rating.investigate:
            actions["investigate"] = describe_action(rating.investigate, self._table)
        return Event(
            xid=first.code if first.kind == "xid" else None,
            sxid=first.code if first.kind == "sxid" else None,
            kind=first.name or first.kind,
            device=first.device,
            message=first.text[:1024],
            count=seen.count,
            first_seen=seen.first,
            last_seen=seen.last,
            gpu_instance=first.gpu_instance,
            compute_instance=first.compute_instance,
            pid=first.pid,
            process=first.process,
            uuid=self._uuids.get(first.device),
            serial=self._serials.get(first.device),
            driver=driver,
            rma=describe_rma(first.code, self._table) if first.kind == "xid" else None,
            **rating._asdict() | actions,
        )

    def _lost_gpu(self, text: str) -> Sighting | None:
        """Recognize a GPU that is gone when the driver loads: three lines, without an Xid."""
        if match := _LOST.search(text):
            self._lost = parse_device(match["place"])
        elif _LOST_HOW.search(text) and self._lost:
            device, self._lost = self._lost, None
            return Sighting("xid", FALLEN_OFF, device, "fallen off the bus", follows=True)
        return None


def _weight(message: HostMessage) -> tuple[int, bool]:
    signature = message.signature
    return SEVERITY_RANK[signature.health or "info"], signature.certainty == "certain"


def _error_key(seen: Sighting) -> ErrorKey:
    return (seen.kind, seen.code, seen.name, seen.device)


def read_log(
    stream: BinaryIO,
    table: XidTable,
    driver: Version | None = None,
    signatures: ErrorTable | None = None,
) -> tuple[KernelErrors, str | None]:
    """Return the errors in a log, and why an empty result proves nothing; None if it does.

    ``driver`` is as for `KernelErrors`.
    """
    reader, counted = RecordReader(), _ByteCounter(stream)
    errors = KernelErrors(table, driver, signatures)
    errors.add_all(reader.read(counted))
    if not reader.seen:
        return errors, "the log is empty: nothing was checked"
    if counted.odd * 2 > counted.total:
        return errors, "most of the log is not text: errors in it cannot be seen"
    return errors, None


class _ByteCounter:
    """Stream that counts the bytes that occur neither in ASCII nor in UTF-8 text."""

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
