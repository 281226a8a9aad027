"""Tell and read times, in UTC everywhere.

Waivers and tokens end at a time, so a clock that is set back must not revive them. `now` compares
the system's clock with the monotonic one, which nobody sets: where the system's clock falls behind,
`now` continues from the latest time that it told. Corrections below `TOLERANCE` pass.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, date, datetime, timedelta

from compatgate.errors import BadInput

TOLERANCE = timedelta(seconds=2)
"""The largest step back of the system's clock that is no fault."""
SKEW = timedelta(minutes=1)
"""The largest lead of another machine's clock that is no fault."""
_log = logging.getLogger(__name__)


class SteadyClock:
    """A clock that never goes back by more than `TOLERANCE`; any number of threads may ask."""

    def __init__(self) -> None:
        self._told = (datetime.min.replace(tzinfo=UTC), 0.0)
        self._warned = False

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        wall, steady = read_clocks()
        latest, at = self._told
        least = latest + timedelta(seconds=steady - at) if at else latest
        if wall >= least:
            self._told, self._warned = (wall, steady), False
            return wall
        if least - wall <= TOLERANCE:
            return wall
        if not self._warned:
            self._warned = True
            _log.warning(
                "the system's clock was set back by %.0f seconds, to %s; compatgate continues with"
                " %s, so that nothing that has expired becomes valid again: set the clock right",
                (least - wall).total_seconds(), iso(wall), iso(least),
            )  # fmt: skip
        return least

    def never_before(self, moment: datetime) -> None:
        """Never tell a time before a moment that has certainly passed."""
        if moment > self.now():
            self._told = (moment, read_clocks()[1])


def read_clocks() -> tuple[datetime, float]:
    """Return the system's time, and the monotonic time in seconds, which is never zero."""
    return datetime.now(UTC), time.monotonic() + 1.0


_steady = SteadyClock()


def now() -> datetime:
    """Return the current time, aware, in UTC; it never goes back by more than `TOLERANCE`."""
    return _steady.now()


def never_before(moment: datetime) -> None:
    """Never let `now` tell a time before this moment; see `SteadyClock.never_before`."""
    _steady.never_before(moment)


def iso(when: datetime) -> str:
    """Format a time as ``2026-11-03T09:30:00.123456Z``; the fixed width sorts like time."""
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def readable(when: datetime) -> str:
    """Format a time for people, as every page does: ``2026-11-03 09:30:12 UTC``."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def from_iso(text: str) -> datetime:
    """Parse the text of `iso`."""
    return datetime.fromisoformat(text).astimezone(UTC)


def today() -> date:
    """Return the date in UTC."""
    return now().date()


def is_past(when: datetime | None, at: datetime | None = None) -> bool:
    """Return whether a time has passed; None never passes."""
    return when is not None and when <= (at or now())


def parse_moment(text: str, *, field: str = "time", end_of_day: bool = False) -> datetime:
    """Parse a user's date or time; the default zone is UTC.

    With ``end_of_day`` a date alone means its end, as in "until the 3rd".
    """
    try:
        if len(text) == len("2026-11-03"):
            day = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
            return day + timedelta(days=1, microseconds=-1) if end_of_day else day
        when = datetime.fromisoformat(text)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        hint = "like 2026-11-03 or 2026-11-03T09:30:00Z"
        raise BadInput(f"{text!r} is not a time", field=field, value=text, hint=hint) from None
