"""Tell and read times, in UTC everywhere."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from compatgate.errors import BadInput


def now() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.now(UTC)


def iso(when: datetime) -> str:
    """Format a time as ``2026-11-03T09:30:00.123456Z``; the fixed width sorts like time."""
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


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

    Args:
        text: ``2026-11-03``, ``2026-11-03T09:30``, ``2026-11-03T09:30:00+01:00``.
        field: what to name in an error.
        end_of_day: a date alone means its end, as in "until the 3rd", instead of its beginning.

    Raises:
        BadInput: not a time.
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
