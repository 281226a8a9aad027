"""A kernel log as events: read, recognised, counted, classified."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

from compatgate.canary.health.classify import Rating, advice, rate
from compatgate.canary.health.events import Event, Seen, in_order
from compatgate.canary.health.records import Reader, Record
from compatgate.canary.health.sightings import FALLEN_OFF, Sighting, device_of, sighting
from compatgate.core.facts.xid import XidTable
from compatgate.core.versions import Version, parse_version

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
        self._groups: dict[Key, tuple[Seen, Sighting, Rating, str | None]] = {}
        self._lines: set[int] = set()
        self._uuids: dict[str, str] = {}
        self._serials: dict[str, str] = {}
        self._device: str | None = None
        self._lost: str | None = None

    @property
    def driver(self) -> str | None:
        """The driver that decides: as stated, else the last one that the log saw loading."""
        version = self._stated or self._logged
        return str(version) if version else None

    def add(self, record: Record) -> bool:
        """Take in a record; whether it reports an error."""
        seen = sighting(record.text) or self._lost_gpu(record.text)
        if seen is None:
            self._learn(record.text)
            return False
        driver = self._stated or self._logged
        rating = rate(seen, self._table, driver)
        key: Key = (
            *(seen.kind, seen.code, seen.name, seen.device),
            *(seen.gpu_instance, seen.compute_instance),
            *((rating.severity, rating.action) if not seen.follows else ("", "")),
        )
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MOST:
                return False
            group = (Seen(), seen, rating, str(driver) if driver else None)
            self._groups[key] = group
        group[0].add(record, seen, self._lines, key)
        return True

    def events(self) -> tuple[Event, ...]:
        """Every error so far, the gravest first."""
        reported = {_error(seen) for _, seen, _, _ in self._groups.values() if not seen.follows}
        return in_order(
            self._event(*group)
            for group in self._groups.values()
            if not (group[1].follows and _error(group[1]) in reported)
        )

    def _event(self, seen: Seen, first: Sighting, rating: Rating, driver: str | None) -> Event:
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
    reader, errors, counted = Reader(), KernelErrors(table, driver), _Counted(stream)
    collect(reader.read(counted), errors)
    if not reader.seen:
        return errors, "the log is empty: nothing was checked"
    if counted.odd * 2 > counted.total:
        return errors, "most of the log is not text: what it said cannot be told"
    return errors, None


def collect(records: Iterable[Record], errors: KernelErrors) -> None:
    """Take in records."""
    for record in records:
        errors.add(record)


class _Counted:
    """A stream that counts the bytes that no text in ASCII or UTF-8 is made of."""

    _CONTROL = bytes(set(range(32)) - set(b"\t\n\r\x1b\x1e")) + b"\x7f"

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.total = self.odd = 0

    def read(self, size: int) -> bytes:
        """The next bytes."""
        chunk = self._stream.read(size)
        self.total += len(chunk)
        text = chunk.decode("utf-8", "ignore").encode()
        plain = text.translate(None, self._CONTROL)
        self.odd += len(chunk) - len(plain)
        return chunk
