"""Find when each Xid error was logged, and when the driver was loaded, for reports to a gate.

A gate counts an error once by its time and code, so the same line must give the same time in every
report: seconds since boot are added to the kernel's own time of boot, which does not drift.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from compatgate.canary.health.events import LOADING
from compatgate.canary.health.gpu_errors import parse_sighting
from compatgate.canary.health.records import CLOCK_ORDER, Record, Stamp

PROC_STAT = "/proc/stat"
_BOOT_TIME = re.compile(r"^btime (\d+)$", re.MULTILINE)
_AFTER_BOOT = " s after boot"


class XidTime(Struct, frozen=True):
    """An Xid error and its time."""

    xid: int
    at: datetime


class XidTimes(Struct, frozen=True):
    """The Xid errors of a log.

    Attributes:
        loaded: when the log says that a driver was loaded for the last time; None: it does not.
        unplaced: messages of errors whose time says no zone, or which have none.
    """

    found: tuple[XidTime, ...]
    loaded: datetime | None = None
    unplaced: tuple[str, ...] = ()


def read_boot_time(path: str = PROC_STAT) -> datetime | None:
    """Return when this machine booted, by its kernel; None: it does not say."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            match = _BOOT_TIME.search(stream.read())
    except OSError:
        return None
    return datetime.fromtimestamp(int(match[1]), UTC) if match else None


def list_xids(records: Iterable[Record], boot: datetime | None) -> XidTimes:
    """Return the errors of a log with their times.

    Args:
        records: of this machine's log.
        boot: when it booted; None: times since boot cannot be placed.
    """
    found: dict[XidTime, None] = {}
    loaded: datetime | None = None
    unplaced = []
    for record in records:
        if record.quoted:
            continue
        at = _place(record.at, boot)
        if LOADING.search(record.text):
            loaded = at or loaded
        seen = parse_sighting(record.text)
        if seen is None or seen.kind != "xid" or seen.code is None or seen.follows:
            continue
        if at is None:
            unplaced.append(seen.text)
        else:
            found[XidTime(seen.code, at)] = None
    return XidTimes(tuple(found), loaded, tuple(unplaced))


def _place(stamps: Iterable[Stamp], boot: datetime | None) -> datetime | None:
    """Return a time in UTC; None: no stamp has a zone."""
    for stamp in sorted(stamps, key=lambda one: CLOCK_ORDER.index(one.clock)):
        if stamp.clock in ("epoch", "iso"):
            at = datetime.fromisoformat(stamp.text.replace(" UTC", "+00:00").replace(",", "."))
            if at.tzinfo is not None:
                return at.astimezone(UTC)
        elif stamp.clock == "boot" and boot is not None:
            seconds = float(stamp.text.removesuffix(_AFTER_BOOT))
            return boot + timedelta(seconds=seconds)
    return None
