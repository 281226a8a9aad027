"""Tell and read times, in UTC everywhere."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from compatgate.errors import BadInput


def now() -> datetime:
    """Return the present, aware, in UTC."""
    return datetime.now(UTC)


def iso(when: datetime) -> str:
    """``2026-11-03T09:30:00.123456Z``: fixed width, so that text sorts like time."""
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def from_iso(text: str) -> datetime:
    """Read back what `iso` wrote."""
    return datetime.fromisoformat(text).astimezone(UTC)


def today() -> date:
    """Return the date in UTC."""
    return now().date()


def is_past(when: datetime | None, at: datetime | None = None) -> bool:
    """Return whether a moment has come; what has no end never does."""
    return when is not None and when <= (at or now())


def parse_moment(text: str, *, field: str = "time", end_of_day: bool = False) -> datetime:
    """Read a date or a time that a user wrote; without a zone it is UTC.

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
