"""Show upgrades and freezes, and take part in them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any

from flask import Response
from msgspec import Meta, Struct

from compatgate.errors import BadInput, CompatgateError, Conflict
from compatgate.kit import clock
from compatgate.kit.clock import parse_moment
from compatgate.kit.http.links import api_link, link
from compatgate.kit.http.replies import Filter
from compatgate.kit.http.requests import to_struct
from compatgate.kit.ui.tables import (
    NO_MATCHES,
    Cell,
    Column,
    EmptyNotice,
    PagedTableQuery,
    list_rows,
    make_list_table,
)
from compatgate.service.upgrades.models import FreezeRow, UpgradeOutline
from compatgate.service.upgrades.picture import Axis, Tick
from compatgate.service.upgrades.schemas import FreezeRequest, StateName, UpgradeRequest
from compatgate.service.upgrades.service import UpgradeView
from compatgate.service.upgrades.views import PHASES, TONES, arrange, is_live, list_causes
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, choices, page

STATES: tuple[StateName, ...] = ("proposed", "rolling", "stopped", "rolled back", "done")
_COLUMNS = (
    Column("name", "Upgrade", "name"),
    Column("state", "State", "badge"),
    Column("target", "Target", "name"),
    Column("driver", "Driver", "code"),
    Column("finished", "Waves finished"),
    Column("nodes", "Nodes", "number"),
    Column("reason", "Reason"),
    Column("author", "Author"),
    Column("made", "Proposed", "time"),
)
_EMPTY = EmptyNotice(
    "No upgrades.",
    "An upgrade carries out a plan in waves. Each wave starts only when it is allowed.",
    "compatgate upgrade create prod-580 --target prod-a100 --driver 580 --reason 'fixes Xid 119'",
)
_SEPARATORS = re.compile(r"[\s,]+")
_Text = Annotated[str, Meta(max_length=256)]


class UpgradesQuery(PagedTableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of upgrades."""

    state: StateName | None = None
    target: Filter | None = None


@page("/upgrades", nav="upgrades", query=UpgradesQuery)
def show_upgrades(ask: PageRequest[UpgradesQuery]) -> HtmlPage:
    """Show upgrades, newest first."""
    query = ask.query
    found = list_rows(ask.gate.upgrades.list, query)
    rows = map(_row, found.items)
    table = make_list_table("upgrades", _COLUMNS, rows, found, query, _EMPTY, unfit=NO_MATCHES)
    context = {
        "filters": [
            ("state", "State", query.state, STATES),
            ("target", "Target", query.target, choices(ask.gate.snapshot().documents)),
        ],
        "active": any(row.is_open for row in found.items),
        "frozen": [one for one in ask.gate.freezes.list() if one.since <= clock.now()],
    }
    return HtmlPage("upgrades.html", "Upgrades", context, table)


def _row(row: UpgradeOutline) -> tuple[Any, ...]:
    place = link("upgrades", row.name)
    tone = TONES["wave" if row.state == "rolling" else row.state]
    return (
        Cell(row.name, href=place),
        Cell(row.state, tone=tone, note=row.why),
        Cell(row.target, href=link("targets", row.target)),
        row.driver,
        f"{row.finished} of {row.waves}",
        row.nodes,
        row.reason,
        row.author,
        row.made_at,
    )


class UpgradeForm(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The values of the form."""

    name: _Text = ""
    target: _Text = ""
    driver: _Text = ""
    pool: _Text = ""
    soak: _Text = "24h"
    accepts: Annotated[str, Meta(max_length=4000)] = ""
    rack_labels: Annotated[str, Meta(max_length=4000)] = ""


@page("/new-upgrade", scope="upgrade", nav="upgrades", query=UpgradeForm)
def show_upgrade_form(ask: PageRequest[UpgradeForm]) -> HtmlPage:
    """Show the form of a new upgrade, filled in from a plan."""
    typed = {name: getattr(ask.query, name) for name in UpgradeForm.__struct_fields__}
    return _form_page(ask, typed | {"health": "on"})


@page("/new-upgrade", scope="upgrade", method="POST", nav="upgrades")
def create_upgrade(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Propose an upgrade."""
    try:
        view = ask.gate.upgrades.propose(_read_form(ask.form), ask.by())
    except CompatgateError as error:
        if error.status >= 500:
            raise
        return _form_page(ask, ask.form, error)
    name = view.row.name
    return Redirect(link("upgrades", name), f"Proposed {name}. No wave has started.")


def _read_form(form: dict[str, str]) -> UpgradeRequest:
    given = {name: form.get(name, "").strip() for name in UpgradeForm.__struct_fields__}
    if not given["target"]:
        raise BadInput("choose a target", field="target")
    body: dict[str, Any] = {name: value for name, value in given.items() if value}
    for name in ("accepts", "rack_labels"):
        body[name] = [word for word in _SEPARATORS.split(given[name]) if word]
    return to_struct(body | {"health": bool(form.get("health"))}, UpgradeRequest)


def _form_page(
    ask: PageRequest[Any], typed: dict[str, str], error: CompatgateError | None = None
) -> HtmlPage:
    snapshot = ask.gate.snapshot()
    target = snapshot.targets.get(typed.get("target", ""))
    context = {
        "typed": typed,
        "error": error,
        "targets": sorted(snapshot.documents),
        "pools": [pool.name for pool in target.pools] if target else [],
        "entries": sorted(snapshot.entries)[:200],
        "branches": [
            str(branch.branch)
            for branch in ask.gate.facts.driver_branches.branches.values()
            if branch.last is not None
        ],
    }
    status = error.status if error else 200
    return HtmlPage("upgrade-new.html", "Propose an upgrade", context, status=status)


@page("/upgrades/<name>", nav="upgrades")
def show_upgrade(ask: PageRequest[Any]) -> HtmlPage:
    """Show an upgrade: picture, open requirements, plan and history."""
    return _upgrade_page(ask, ask.gate.upgrades.show(ask.args["name"]))


def _upgrade_page(
    ask: PageRequest[Any], view: UpgradeView, error: CompatgateError | None = None
) -> HtmlPage:
    row, principal = view.row, ask.principal
    mine = row.identity == principal.identity
    agreed = principal.identity in {one.identity for one in row.approvals}
    context = {
        **_live(ask, view),
        "phase": PHASES[view.decision.phase],
        "causes": list_causes(view),
        "may_approve": row.is_open and not mine and not agreed and principal.may("approve"),
        "may_retract": row.is_open and agreed and principal.may("approve"),
        "mine": mine,
        "api": api_link("upgrades", row.name),
        "error": error,
        "typed": ask.form,
    }
    status = error.status if error else 200
    return HtmlPage("upgrade.html", row.name, context, status=status)


def _live(ask: PageRequest[Any], view: UpgradeView) -> dict[str, Any]:
    """Return the context of the part that refreshes."""
    may = ask.principal.may("upgrade")
    asker = ask.principal.name
    return {**arrange(view, asker), "live": is_live(view), "may": may and view.row.is_open}


class StampQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Stamp of the state that the page shows."""

    have: Annotated[str, Meta(max_length=64)] = ""


@page("/upgrades/<name>/state", nav="upgrades", query=StampQuery)
def show_upgrade_state(ask: PageRequest[StampQuery]) -> HtmlPage | Response:
    """Show the part that changes while it rolls; 204 where nothing has changed.

    A page that is not replaced keeps what is selected, opened and focused.
    """
    context = _live(ask, ask.gate.upgrades.show(ask.args["name"]))
    if context["live"] and ask.query.have == context["stamp"]:
        return Response(status=204)
    return HtmlPage("upgrade-now.html", ask.args["name"], context)


@page("/upgrades/<name>/act", scope="upgrade", method="POST", nav="upgrades")
def act_on_upgrade(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Start a wave, stop, resume or roll back, or leave nodes out."""
    return _act(ask, ("start", "stop", "resume", "roll-back", "leave-out"))


@page("/upgrades/<name>/review", scope="approve", method="POST", nav="upgrades")
def review_upgrade(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Approve another person's upgrade, or withdraw the approval."""
    return _act(ask, ("approve", "retract"))


def _act(ask: PageRequest[Any], allowed: tuple[str, ...]) -> HtmlPage | Redirect:
    name, what, service = ask.args["name"], ask.form.get("what", ""), ask.gate.upgrades
    view = service.show(name)
    try:
        if what not in allowed:
            hint = f"one of {', '.join(allowed)}"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
        done = _carry_out(ask, name, what)
    except CompatgateError as error:
        if error.status >= 500:
            raise
        return _upgrade_page(ask, view, error)
    return Redirect(link("upgrades", name), done)


def _carry_out(ask: PageRequest[Any], name: str, what: str) -> str:
    """Do what a form asks for, and return what was done."""
    service, by = ask.gate.upgrades, ask.principal
    if what == "start":
        return _start(ask, name)
    if what == "approve":
        service.approve(name, by, text=ask.form.get("comment", ""))
        return f"Approved {name}."
    if what == "retract":
        service.retract(name, by, text=ask.form.get("comment", ""))
        return f"Withdrew the approval of {name}."
    if what == "stop":
        service.stop(name, ask.by())
        return f"Stopped {name}. Every wave waits until someone resumes the upgrade."
    if what == "resume":
        service.resume(name, ask.by())
        return f"Resumed {name}."
    if what == "roll-back":
        service.roll_back(name, ask.by())
        return f"Rolled back {name}. Every tool that asks gets the answer to roll back."
    nodes = [word for word in _SEPARATORS.split(ask.form.get("nodes", "")) if word]
    if not nodes:
        raise BadInput("is missing", field="nodes", hint="like gpu-17 or prod-eu/gpu-17")
    service.leave_out(name, nodes, ask.by())
    return f"Excluded {len(nodes)} node{'' if len(nodes) == 1 else 's'} from {name}."


def _start(ask: PageRequest[Any], name: str) -> str:
    """Ask for a wave, as a tool does; raise what it waits for."""
    text = ask.form.get("wave", "")
    if not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise BadInput("is not the number of a wave", field="wave", value=text)
    view = ask.gate.upgrades.ask(name, ask.principal, wave=int(text))
    found = view.decision
    if found.answer == "done":
        return f"Wave {found.wave} is complete."
    if found.answer != "start" or found.wave is None:
        raise Conflict(
            f"wave {text} may not start: {found.answer}", field="wave", value=int(text),
            hint="; ".join(found.reasons),
        )  # fmt: skip
    until = view.row.upgrade.waves[found.wave - 1].held_until
    held = f" The hold ends {clock.readable(until)}; continue to extend it." if until else ""
    return f"Started wave {found.wave}. Upgrade its nodes.{held}"


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
