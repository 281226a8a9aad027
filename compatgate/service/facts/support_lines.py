"""Draw how long the vendor supports driver branches, as bars on a line of time.

Only published dates are drawn. A beginning or an end without one is an open end, with its sign.
"""

from __future__ import annotations

import calendar
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Literal

from msgspec import Struct

from compatgate.core.rules.driver import EOL_NOTICE

State = Literal["supported", "ends soon", "ended", "no date"]
WIDTH, LEFT, RIGHT, TOP, ROW = 960, 132, 944, 34, 24
_TONES: dict[State, str] = {
    "supported": "pass", "ends soon": "warn", "ended": "muted", "no date": "unknown",
}  # fmt: skip


class SupportedBranch(Struct, frozen=True):
    """The published support of a driver branch.

    Attributes:
        begin: day of its first release; None: not in the facts.
        last: day of the newest release seen.
        end: last day of its support, of two published ones the earlier; None: none is published.
        has_ended: published as ended, with or without a date.
        stated: dates as the facts write them: begin, last, end.
        remark: what the facts add about its end.
        targets: that declare a driver of this branch.
    """

    name: str
    kind: str
    begin: date | None
    last: date | None
    end: date | None
    has_ended: bool
    stated: tuple[str, str, str]
    remark: str
    targets: tuple[str, ...]

    def state(self, today: date) -> State:
        """Return the state of its support on a day."""
        if self.has_ended or (self.end and self.end < today):
            return "ended"
        if self.end is None:
            return "no date"
        return "ends soon" if self.end - today < EOL_NOTICE else "supported"


class SupportBar(Struct, frozen=True):
    """The bar of a branch, in the units of its drawing.

    Attributes:
        known: left and right of the part between two published dates; None: there is none.
        open_end: left and right of the part after the last known date; None: the end is known, or
            no date at all.
        begin_open: no beginning is known; the bar starts at its first known date.
        end: place of the published end; None: there is none in the drawing.
        label: the same in words.
    """

    branch: SupportedBranch
    y: float
    tone: str
    known: tuple[float, float] | None
    open_end: tuple[float, float] | None
    begin_open: bool
    end: float | None
    label: str


class SupportChart(Struct, frozen=True):
    """The bars, the line of today, and a line for each year."""

    height: float
    bars: tuple[SupportBar, ...]
    today: float
    years: tuple[tuple[float, int], ...]


def read_branches(
    records: Sequence[Mapping[str, Any]], targets: Mapping[int, Sequence[str]]
) -> list[SupportedBranch]:
    """Return the branches of the fact table ``driver_branches``, newest first.

    Args:
        records: of the list ``branches``.
        targets: names of targets by the branch of their drivers.
    """
    found = [_read(record, targets.get(int(record["branch"]), ())) for record in records]
    return sorted(found, key=lambda one: -int(one.name))


def _read(record: Mapping[str, Any], targets: Sequence[str]) -> SupportedBranch:
    names = ("first_release_date", "last_release_date", "eol")
    first, last, end = (str(record.get(name) or "") for name in names)
    conflict = [f"{one['edition']}: {one['eol']}" for one in record.get("eol_conflict") or ()]
    stated = [end, *(str(one["eol"]) for one in record.get("eol_conflict") or ())]
    end = min(filter(None, stated), default="")  # as rule CG104: the earlier one counts
    remarks = [str(record.get("eol_status") or ""), "; ".join(conflict)]
    return SupportedBranch(
        str(record["branch"]),
        str(record.get("type") or ""),
        read_day(first),
        read_day(last),
        read_day(end, last=True),
        bool(record.get("ended")),
        (first, last, end),
        "; ".join(filter(None, remarks)),
        tuple(targets),
    )


def read_day(text: str, *, last: bool = False) -> date | None:
    """Return the day of a date in the facts; a month stands for its first or last day.

    Args:
        text: ``2026-06-30``, ``2026-06``, or empty.
        last: the last day of a month.
    """
    if not text:
        return None
    if len(text) == len("2026-06-30"):
        return date.fromisoformat(text)
    year, month = map(int, text.split("-"))
    return date(year, month, calendar.monthrange(year, month)[1] if last else 1)


def draw_support(branches: Sequence[SupportedBranch], today: date) -> SupportChart:
    """Return the drawing of some branches.

    Args:
        branches: from top to bottom.
        today: marked by a line.
    """
    known = [day for one in branches for day in (one.begin, one.last, one.end) if day] + [today]
    first = date(min(known).year, 1, 1)
    final = date(max(max(known), today + timedelta(days=365)).year, 12, 31)

    def place(day: date) -> float:
        return round(LEFT + (RIGHT - LEFT) * (day - first).days / (final - first).days, 1)

    bars = tuple(_draw_bar(one, TOP + ROW * row, place, today) for row, one in enumerate(branches))
    years = tuple((place(date(year, 1, 1)), year) for year in range(first.year, final.year + 1))
    return SupportChart(TOP + ROW * len(branches) + 8, bars, place(today), years)


def _draw_bar(one: SupportedBranch, y: float, place: Any, today: date) -> SupportBar:
    days = sorted(day for day in (one.begin, one.last, one.end) if day)
    known = (place(days[0]), max(place(days[-1]), place(days[0]) + 3)) if days else None
    open_end = None
    if known and one.end is None and not one.has_ended:
        open_end = (known[1], max(known[1], place(today)) + 40)
    state = one.state(today)
    return SupportBar(
        one,
        y,
        _TONES[state],
        known,
        open_end,
        one.begin is None,
        place(one.end) if one.end else None,
        _describe(one, state),
    )


def _describe(one: SupportedBranch, state: State) -> str:
    first, last, end = one.stated
    words = [f"driver branch {one.name}{f' ({one.kind})' if one.kind else ''}: {state}"]
    words.append(f"first release {first}" if first else "first release not in the facts")
    words.append(f"supported until {end}" if end else "no date of its end is published")
    if not end and last:
        words.append(f"last release seen {last}")
    if one.targets:
        words.append(f"targets: {', '.join(one.targets)}")
    return ", ".join(words)
