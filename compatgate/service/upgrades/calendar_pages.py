"""Show the calendar of freezes: periods in which no wave starts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from compatgate.errors import BadInput, CompatgateError
from compatgate.kit import clock
from compatgate.kit.clock import parse_moment
from compatgate.kit.http.links import link
from compatgate.kit.http.requests import to_struct
from compatgate.service.upgrades.models import FreezeRow
from compatgate.service.upgrades.picture import Axis, Tick
from compatgate.service.upgrades.schemas import FreezeRequest
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, page

_LEAST = timedelta(days=30)
"""The shortest time that the calendar shows."""
_FIELDS = ("name", "since", "until", "owner", "targets")


class FreezeView(Struct, frozen=True):
    """A freeze as the calendar shows it: place and width in per cent."""

    row: FreezeRow
    state: str
    tone: str
    x: float
    width: float


class FreezesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Filters of the freezes on the page."""

    ended: bool = False


@page("/freezes", nav="upgrades", query=FreezesQuery)
def show_freezes(ask: PageRequest[FreezesQuery]) -> HtmlPage:
    """Show freezes by their start, on an axis of time."""
    return _page(ask, ended=ask.query.ended)


@page("/freezes/set", scope="upgrade", method="POST", nav="upgrades")
def set_freeze(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Create or replace a freeze."""
    form = {name: ask.form.get(name, "").strip() for name in _FIELDS}
    try:
        for name in ("name", "since", "until", "owner"):
            if not form[name]:
                raise BadInput("is missing", field=name)
        body = {
            "since": parse_moment(form["since"], field="since"),
            "until": parse_moment(form["until"], field="until"),
            "owner": form["owner"],
            "targets": form["targets"].replace(",", " ").split() or ["*"],
        }
        ask.gate.freezes.put(form["name"], to_struct(body, FreezeRequest), ask.by())
    except CompatgateError as error:
        if error.status >= 500:
            raise
        return _page(ask, error=error)
    return Redirect(link("freezes"), f"Stored the freeze {form['name']}.")


@page("/freezes/delete", scope="upgrade", method="POST", nav="upgrades")
def delete_freeze(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Delete a freeze."""
    name = ask.form.get("name", "")
    try:
        ask.gate.freezes.delete(name, ask.by())
    except CompatgateError as error:
        if error.status >= 500:
            raise
        return _page(ask, error=error)
    return Redirect(link("freezes"), f"Deleted {name}.")


def _page(
    ask: PageRequest[Any], *, ended: bool = False, error: CompatgateError | None = None
) -> HtmlPage:
    now = clock.now()
    rows = ask.gate.freezes.list(ended=ended)
    views, ticks, today = _draw(rows, now)
    context = {
        "freezes": views,
        "ticks": ticks,
        "today": today,
        "ended": ended,
        "error": error,
        "typed": ask.form if "since" in ask.form else {},
        "targets": sorted(ask.gate.snapshot().documents),
    }
    status = error.status if error else 200
    return HtmlPage("freezes.html", "Freezes", context, status=status)


def _draw(rows: list[FreezeRow], now: datetime) -> tuple[list[FreezeView], tuple[Tick, ...], float]:
    """Return freezes with their places, the labelled times, and the place of now."""
    since = min([now, *(row.since for row in rows)])
    until = max([since + _LEAST, *(row.until for row in rows)])
    room = (until - since) / 40
    axis = Axis(since - room, until + room)
    found = []
    for row in rows:
        state, tone = ("over", "cancelled") if row.until <= now else ("coming", "waiting")
        if row.since <= now < row.until:
            state, tone = "no wave starts", "warn"
        x = axis.place(row.since)
        found.append(FreezeView(row, state, tone, x, round(axis.place(row.until) - x, 2)))
    return found, axis.ticks, axis.place(now)
