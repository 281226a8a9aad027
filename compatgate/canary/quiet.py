"""Quiet hours: when a staging host takes no new run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, time
from zoneinfo import ZoneInfo

from compatgate.canary.hosts import Quiet
from compatgate.errors import BadInput

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def is_quiet(hours: Iterable[Quiet], at: datetime) -> bool:
    """Whether a moment lies in any of some quiet hours.

    Hours that last over midnight belong to the day on which they begin.

    Args:
        hours: of a host.
        at: aware.

    Raises:
        BadInput: a time, a day or a time zone that does not exist.
    """
    return any(_holds(quiet, at) for quiet in hours)


def _holds(quiet: Quiet, at: datetime) -> bool:
    start, end = _read(quiet.start, "start"), _read(quiet.end, "end")
    for day in quiet.days:
        if day not in DAYS:
            hint = f"one of {', '.join(DAYS)}"
            raise BadInput(f"{day!r} is not a day", field="quiet.days", value=day, hint=hint)
    local = at.astimezone(_zone(quiet.timezone))
    present = local.time()
    today, yesterday = DAYS[local.weekday()], DAYS[local.weekday() - 1]
    if start < end:
        return start <= present < end and _is_on(quiet, today)
    return (present >= start and _is_on(quiet, today)) or (
        present < end and _is_on(quiet, yesterday)
    )


def _is_on(quiet: Quiet, day: str) -> bool:
    return not quiet.days or day in quiet.days


def _read(text: str, which: str) -> time:
    if not (match := _TIME.fullmatch(text)):
        hint = "like 22:30"
        raise BadInput(f"{text!r} is not a time", field=f"quiet.{which}", value=text, hint=hint)
    return time(int(match[1]), int(match[2]))


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = "an IANA name like Europe/Berlin; UTC needs no time zone data"
        what = f"the time zone {name!r} is not known here"
        raise BadInput(what, field="quiet.timezone", value=name, hint=hint) from None
