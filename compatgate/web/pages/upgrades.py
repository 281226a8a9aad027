"""Show upgrades and freezes, and take part in them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from flask import Response
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from compatgate.core.upgrade_state import State
from compatgate.errors import BadInput, CompatgateError, Conflict
from compatgate.kit import clock
from compatgate.kit.clock import parse_moment
from compatgate.kit.http.links import api_link, link
from compatgate.kit.http.requests import to_struct
from compatgate.kit.ui.tables import (
    NO_MATCHES,
    Cell,
    Column,
    EmptyNotice,
    TableQuery,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.changes.upgrades.models import OPEN_STATES
from compatgate.service.changes.upgrades.schemas import (
    FreezeBody,
    FreezeRequest,
    UpgradeFilters,
    UpgradeRequest,
    UpgradeSummary,
)
from compatgate.service.changes.upgrades.service import UpgradeView
from compatgate.service.changes.upgrades.views import PHASES, TONES, arrange
from compatgate.web.page import HtmlPage, PageRequest, Redirect, choices, page

STATES: tuple[State, ...] = ("proposed", "rolling", "stopped", "rolled back", "done")
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
_FREEZE_COLUMNS = (
    Column("name", "Freeze", "name"),
    Column("state", "State", "badge"),
    Column("targets", "Targets"),
    Column("since", "From", "time"),
    Column("until", "To", "time"),
    Column("owner", "Owner", "name"),
    Column("reason", "Reason"),
    Column("by", "Made by"),
)
_NO_FREEZES = EmptyNotice(
    "No freezes.",
    "A freeze is a period in which no wave of an upgrade starts, for example a year-end change"
    " freeze.",
    "compatgate upgrade freeze year-end --from 2026-12-18 --to 2027-01-04 --owner team-sre"
    " --reason 'change stop'",
)
_FREEZE_FIELDS = ("name", "since", "until", "owner", "targets")
_SEPARATORS = re.compile(r"[\s,]+")
_Text = Annotated[str, Meta(max_length=256)]


UpgradesQuery = make_page_query(UpgradeFilters)


@page("/upgrades", nav="upgrades", query=UpgradesQuery)
def show_upgrades(ask: PageRequest[Any]) -> HtmlPage:
    """Show upgrades, newest first."""
    query = ask.query
    found = list_rows(ask.rooms.upgrades.list, query)
    rows = map(_row, found.items)
    table = make_list_table("upgrades", _COLUMNS, rows, found, query, _EMPTY, unfit=NO_MATCHES)
    context = {
        "filters": [
            ("state", "State", query.state, STATES),
            ("target", "Target", query.target, choices(ask.gate.snapshot().documents)),
        ],
        "active": any(row.state in OPEN_STATES for row in found.items),
        "frozen": [one for one in ask.rooms.freezes.list() if one.since <= clock.now()],
    }
    return HtmlPage("upgrades.html", "Upgrades", context, table)


def _row(row: UpgradeSummary) -> tuple[Any, ...]:
    tone = TONES["wave" if row.state == "rolling" else row.state]
    withdrawn = row.state == "rolled back" and row.started_at is None
    state = Cell("withdrawn", tone="cancelled") if withdrawn else Cell(row.state, tone=tone)
    return (
        Cell(row.name, href=link("upgrades", row.name)),
        replace(state, note=row.why),
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
    return _form_page(ask, asdict(ask.query) | {"health": "on"})


@page("/new-upgrade", scope="upgrade", method="POST", nav="upgrades")
def create_upgrade(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Propose an upgrade."""
    form = {name: ask.form.get(name, "").strip() for name in UpgradeForm.__struct_fields__}
    body: dict[str, Any] = {name: value for name, value in form.items() if value}
    for name in ("accepts", "rack_labels"):
        body[name] = _split(form[name])
    try:
        if not form["target"]:
            raise BadInput("choose a target", field="target")
        request = to_struct(body | {"health": bool(ask.form.get("health"))}, UpgradeRequest)
        name = ask.rooms.upgrades.propose(request, ask.by()).row.name
    except CompatgateError as error:
        if error.status >= 500:
            raise
        return _form_page(ask, ask.form, error)
    return Redirect(link("upgrades", name), f"Proposed {name}. No wave has started.")


def _split(text: str) -> list[str]:
    return [word for word in _SEPARATORS.split(text) if word]


def _form_page(
    ask: PageRequest[Any], typed: dict[str, str], error: CompatgateError | None = None
) -> HtmlPage:
    snapshot = ask.gate.snapshot()
    target = snapshot.targets.get(typed.get("target", ""))
    branches = ask.gate.facts.driver_branches.branches.values()
    context = {
        "typed": typed,
        "error": error,
        "targets": sorted(snapshot.documents),
        "pools": [pool.name for pool in target.pools] if target else [],
        "entries": sorted(snapshot.entries)[:200],
        "branches": [str(branch.branch) for branch in branches if branch.last is not None],
    }
    status = error.status if error else 200
    return HtmlPage("upgrade-new.html", "Propose an upgrade", context, status=status)


@page("/upgrades/<name>", nav="upgrades")
def show_upgrade(ask: PageRequest[Any]) -> HtmlPage:
    """Show an upgrade: waves, open requirements, plan and history."""
    return _upgrade_page(ask, ask.rooms.upgrades.show(ask.args["name"]))


def _upgrade_page(
    ask: PageRequest[Any], view: UpgradeView, error: CompatgateError | None = None
) -> HtmlPage:
    row, principal = view.row, ask.principal
    mine = row.identity == principal.identity
    agreed = principal.identity in {one.identity for one in row.approvals}
    may = row.is_open and principal.may("approve")
    is_withdrawn = row.state == "rolled back" and not row.began
    context = {
        **arrange(view, principal.name),
        "phase": "withdrawn" if is_withdrawn else PHASES[view.decision.phase],
        "may": row.is_open and principal.may("upgrade"),
        "may_approve": may and not mine and not agreed,
        "may_retract": may and agreed,
        "mine": mine,
        "api": api_link("upgrades", row.name),
        "error": error,
        "typed": ask.form,
    }
    status = error.status if error else 200
    return HtmlPage("upgrade.html", row.name, context, status=status)


class StampQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Stamp of the state that the page shows."""

    have: Annotated[str, Meta(max_length=64)] = ""


@page("/upgrades/<name>/state", nav="upgrades", query=StampQuery)
def show_upgrade_state(ask: PageRequest[StampQuery]) -> HtmlPage | Response:
    """Show the part that changes while it rolls; 204 where nothing has changed.

    A page that is not replaced keeps what is selected, opened and focused.
    """
    view = ask.rooms.upgrades.show(ask.args["name"])
    context = arrange(view, ask.principal.name)
    if context["live"] and ask.query.have == context["stamp"]:
        return Response(status=204)
    context["may"] = view.row.is_open and ask.principal.may("upgrade")
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
    name, what, service = ask.args["name"], ask.form.get("what", ""), ask.rooms.upgrades
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
    service = ask.rooms.upgrades
    match what:
        case "start":
            return _start(ask, name)
        case "approve":
            service.approve(name, ask.principal)
            return f"Approved {name}."
        case "retract":
            service.retract(name, ask.principal)
            return f"Withdrew the approval of {name}."
        case "stop":
            service.stop(name, ask.by())
            return f"Stopped {name}. Every wave waits until someone resumes the upgrade."
        case "resume":
            service.resume(name, ask.by())
            return f"Resumed {name}."
        case "roll-back":
            view = service.roll_back(name, ask.by())
            if not view.row.began:
                return f"Withdrew {name}. No wave had begun."
            return f"Rolled back {name}. Every tool that asks gets the answer to roll back."
    nodes = _split(ask.form.get("nodes", ""))
    if not nodes:
        raise BadInput("is missing", field="nodes", hint="like gpu-17 or prod-eu/gpu-17")
    service.leave_out(name, nodes, ask.by())
    return f"Excluded {len(nodes)} node{'' if len(nodes) == 1 else 's'} from {name}."


def _start(ask: PageRequest[Any], name: str) -> str:
    """Ask for a wave, as a tool does; raise what it waits for."""
    text = ask.form.get("wave", "")
    if not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise BadInput("is not the number of a wave", field="wave", value=text)
    view = ask.rooms.upgrades.ask(name, ask.principal, wave=int(text))
    answer = view.decision
    if answer.answer == "done":
        return f"Wave {answer.wave} is complete."
    if answer.answer != "start" or answer.wave is None:
        what, hint = f"wave {text} may not start: {answer.answer}", "; ".join(answer.reasons)
        raise Conflict(what, field="wave", value=int(text), hint=hint)
    until = view.row.waves[answer.wave - 1].held_until
    held = f" The hold ends {clock.readable(until)}; continue to extend it." if until else ""
    return f"Started wave {answer.wave}. Upgrade its nodes.{held}"


class FreezesQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the freezes on the page."""

    ended: bool = False


@page("/freezes", nav="upgrades", query=FreezesQuery)
def show_freezes(ask: PageRequest[FreezesQuery]) -> HtmlPage:
    """Show freezes by their start."""
    return _freezes_page(ask, ended=ask.query.ended, sort=ask.query.sort)


@page("/freezes/set", scope="upgrade", method="POST", nav="upgrades")
def set_freeze(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Create or replace a freeze."""
    form = {name: ask.form.get(name, "").strip() for name in _FREEZE_FIELDS}
    try:
        for name in ("name", "since", "until", "owner"):
            if not form[name]:
                raise BadInput("is missing", field=name)
        body = {
            "since": parse_moment(form["since"], field="since"),
            "until": parse_moment(form["until"], field="until"),
            "owner": form["owner"],
            "targets": _split(form["targets"]) or ["*"],
        }
        ask.rooms.freezes.put(form["name"], to_struct(body, FreezeRequest), ask.by())
    except CompatgateError as error:
        if error.status >= 500:
            raise
        return _freezes_page(ask, error=error)
    return Redirect(link("freezes"), f"Saved the freeze {form['name']}.")


@page("/freezes/delete", scope="upgrade", method="POST", nav="upgrades")
def delete_freeze(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Delete a freeze."""
    name = ask.form.get("name", "")
    try:
        ask.rooms.freezes.delete(name, ask.by())
    except CompatgateError as error:
        if error.status >= 500:
            raise
        return _freezes_page(ask, error=error)
    return Redirect(link("freezes"), f"Deleted {name}.")


def _freezes_page(
    ask: PageRequest[Any],
    *,
    ended: bool = False,
    sort: str | None = None,
    error: CompatgateError | None = None,
) -> HtmlPage:
    freezes = ask.rooms.freezes.list(ended=ended)
    rows = map(_freeze_row, freezes)
    context = {
        "freezes": freezes,
        "ended": ended,
        "error": error,
        "typed": ask.form,
        "targets": sorted(ask.gate.snapshot().documents),
    }
    table = make_table("freezes", _FREEZE_COLUMNS, rows, _NO_FREEZES, sort=sort, label="freezes")
    status = error.status if error else 200
    return HtmlPage("freezes.html", "Freezes", context, table, status)


def _freeze_row(one: FreezeBody) -> tuple[Any, ...]:
    now = clock.now()
    state, tone = "no wave starts", "warn"
    if one.until <= now:
        state, tone = "over", "cancelled"
    elif one.since > now:
        state, tone = "coming", "waiting"
    return (
        one.name,
        Cell(state, tone=tone),
        "every target" if "*" in one.targets else ", ".join(one.targets),
        one.since,
        one.until,
        one.owner,
        one.reason,
        one.made_by,
    )
