"""Show what people review and approve, and act on it: proposals and upgrades."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from flask import Response
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from compatgate.core.entry_stacks import entry_stack_text
from compatgate.core.upgrade_state import State
from compatgate.documents.convert import to_entry
from compatgate.errors import BadInput, Conflict
from compatgate.kit import clock
from compatgate.kit.http.links import api_link, link
from compatgate.kit.http.requests import to_struct
from compatgate.kit.ui.filters import count_things
from compatgate.kit.ui.tables import Cell, list_rows, make_list_table, make_page_query
from compatgate.service.changes.comparison.matrix_sections import report_backtest
from compatgate.service.changes.upgrades.models import OPEN_STATES
from compatgate.service.changes.upgrades.schemas import (
    UpgradeFilters,
    UpgradeRequest,
    UpgradeSummary,
)
from compatgate.service.changes.upgrades.views import PHASES, TONES, arrange
from compatgate.service.matrix.documents.blessing import list_blessed
from compatgate.service.matrix.documents.waivers import split_words
from compatgate.service.matrix.proposals.merging import may_merge
from compatgate.service.matrix.proposals.readiness import ProposalView, describe
from compatgate.service.matrix.proposals.repository import ProposalState
from compatgate.service.matrix.proposals.schemas import DAYS, ProposalFilters
from compatgate.web.page import HtmlPage, PageRequest, Redirect, choices, listing, page, read_action
from compatgate.web.pages.change_acts import propose_text

_TONES: dict[ProposalState, str] = {
    "open": "waiting",
    "approved": "approved",
    "conflicted": "fail",
    "merged": "pass",
    "closed": "cancelled",
}
"""Badges of the states of proposals."""
_DONE = {
    "approve": "Approved",
    "retract": "Withdrew the approval of",
    "backtest": "Backtested",
    "close": "Closed",
    "merge": "Merged",
}
_MAX_SHOWN = 50
"""Documents whose differences a page shows."""
ProposalQuery = make_page_query(ProposalFilters)
_Text = Annotated[str, Meta(max_length=256)]
UpgradesQuery = make_page_query(UpgradeFilters)


@page("/proposals", nav="proposals", query=ProposalQuery)
def show_proposals(ask: PageRequest[Any]) -> HtmlPage:
    """Show proposals, newest first."""
    found = list_rows(ask.rooms.proposals.list, ask.query)
    table = make_list_table(listing("proposals"), found, ask.query, _proposal_cells)
    return HtmlPage("proposals.html", "Proposals", {"states": get_args(ProposalState)}, table)


def _proposal_cells(view: ProposalView) -> dict[str, Any]:
    row = view.row
    named = [f"{change.kind} {change.name}" for change in row.changes[:3]]
    more = [f"and {len(row.edits) - 3} more"] if len(row.edits) > 3 else []
    return {
        "state": Cell(view.state, tone=_TONES[view.state]),
        "reason": Cell(row.reason, link("proposals", row.id)),
        "changes": named + more,
        "approvals": [one.actor for one in row.approvals],
    }


@page("/proposals/new", scope="propose", nav="proposals")
def show_proposal_form(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form of a new proposal."""
    return HtmlPage("proposal-new.html", "Propose a change")


@page("/proposals/new", scope="propose", method="POST", nav="proposals", refused=show_proposal_form)
def create_proposal(ask: PageRequest[Any]) -> Redirect:
    """Propose the documents of a form."""
    return propose_text(ask, ask.form.get("documents", ""))


@page("/proposals/<id>", nav="proposals")
def show_proposal(ask: PageRequest[Any]) -> HtmlPage:
    """Show a proposal: its difference, what it needs and has, and what happened to it."""
    view, principal = ask.rooms.proposals.show(ask.args["id"]), ask.principal
    row = view.row
    mine = not row.names.isdisjoint(principal.names)
    agreed = row.has_approval_of(principal.names)
    may = row.is_open and view.state != "conflicted"
    one = describe(view)
    facts = ask.gate.facts
    blessed = [to_entry(document, facts.gpus, 0) for document in list_blessed(row.edits)]
    with ask.gate.database.reading() as session:
        merges = may_merge(session, row, principal)
    context = {
        "one": one,
        "stacks": {entry.name: entry_stack_text(entry, facts) for entry in blessed[:_MAX_SHOWN]},
        "backtest": report_backtest(one["backtest"]).parts if one["backtest"] else [],
        "changes": row.changes[:_MAX_SHOWN],
        "left": max(0, len(row.changes) - _MAX_SHOWN),
        "tone": _TONES[view.state],
        "is_open": row.is_open,
        "mine": mine,
        "may_approve": may and not mine and not agreed and principal.may("approve"),
        "may_retract": row.is_open and agreed,
        "may_merge": may and not view.readiness.list_lacks(row) and merges,
        "may_close": row.is_open and (mine or principal.may("approve")),
        "lacks_evidence": bool(view.readiness.evidence.required),
    }
    return HtmlPage("proposal.html", f"Proposal {row.id}", context)


@page(
    "/proposals/<id>/review", scope="approve", method="POST", nav="proposals", refused=show_proposal
)
def review_proposal(ask: PageRequest[Any]) -> Redirect:
    """Approve a proposal, withdraw the approval, or close another person's proposal."""
    return _act_on(ask, "approve", "retract", "close")


@page("/proposals/<id>/act", scope="propose", method="POST", nav="proposals", refused=show_proposal)
def act_on_proposal(ask: PageRequest[Any]) -> Redirect:
    """Backtest a proposal, or close your own."""
    return _act_on(ask, "close", "backtest")


@page(
    "/proposals/<id>/merge", scope="propose", method="POST", nav="proposals", refused=show_proposal
)
def merge_proposal(ask: PageRequest[Any]) -> Redirect:
    """Merge a proposal."""
    return _act_on(ask, "merge")


def _act_on(ask: PageRequest[Any], *allowed: str) -> Redirect:
    number, form, by, service = ask.args["id"], ask.form, ask.principal, ask.rooms.proposals
    digest, override = form.get("digest") or None, form.get("override", "").strip() or None
    match what := read_action(ask, *allowed):
        case "approve":
            view = service.approve(number, by, digest)
        case "retract":
            view = service.retract(number, by)
        case "close":
            view = service.close(number, by, text=form.get("comment", ""))
        case "backtest":
            view = service.run_backtest(number, DAYS, by)
        case _:
            view = service.merge(number, by, digest, override=override)
    revision = f" It is revision {view.row.revision}." if view.row.revision else ""
    return Redirect(link("proposals", number), f"{_DONE[what]} {number}.{revision}")


@page("/revisions/<int:number>/revert", scope="propose", method="POST", nav="revisions")
def revert_revision(ask: PageRequest[Any]) -> Redirect:
    """Revert a revision, directly or as a proposal."""
    number, propose = ask.args["number"], bool(ask.form.get("propose"))
    revision, proposal, _ = ask.rooms.proposals.revert(number, ask.by(), propose=propose)
    if proposal is not None:
        return Redirect(link("proposals", proposal.id), f"Proposed to revert revision {number}.")
    return Redirect(link("revisions", revision or 0), f"Reverted revision {number}.")


@page("/upgrades", nav="upgrades", query=UpgradesQuery)
def show_upgrades(ask: PageRequest[Any]) -> HtmlPage:
    """Show upgrades, newest first."""
    query = ask.query
    found = list_rows(ask.rooms.upgrades.list, query)
    table = make_list_table(listing("upgrades"), found, query, _upgrade_cells)
    context = {
        "states": get_args(State),
        "targets": choices(ask.gate.snapshot().documents),
        "active": any(row.state in OPEN_STATES for row in found.items),
    }
    return HtmlPage("upgrades.html", "Upgrades", context, table)


def _upgrade_cells(row: UpgradeSummary) -> dict[str, Any]:
    tone = TONES["wave" if row.state == "rolling" else row.state]
    withdrawn = row.state == "rolled back" and row.started_at is None
    state = Cell("withdrawn", tone="cancelled") if withdrawn else Cell(row.state, tone=tone)
    return {"state": replace(state, note=row.why), "finished": f"{row.finished} of {row.waves}"}


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
    typed = ask.form or asdict(ask.query) | {"health": "on"}
    snapshot = ask.gate.snapshot()
    target = snapshot.targets.get(typed.get("target", ""))
    branches = ask.gate.facts.driver_branches.branches.values()
    context = {
        "typed": typed,
        "targets": sorted(snapshot.documents),
        "pools": [pool.name for pool in target.pools] if target else [],
        "entries": sorted(snapshot.entries)[:200],
        "branches": [str(branch.branch) for branch in branches if branch.last is not None],
    }
    return HtmlPage("upgrade-new.html", "Propose an upgrade", context)


@page("/new-upgrade", scope="upgrade", method="POST", nav="upgrades", refused=show_upgrade_form)
def create_upgrade(ask: PageRequest[Any]) -> Redirect:
    """Propose an upgrade."""
    form = {name: ask.form.get(name, "").strip() for name in UpgradeForm.__struct_fields__}
    body: dict[str, Any] = {name: value for name, value in form.items() if value}
    for name in ("accepts", "rack_labels"):
        body[name] = split_words(form[name])
    if not form["target"]:
        raise BadInput("choose a target", field="target")
    request = to_struct(body | {"health": bool(ask.form.get("health"))}, UpgradeRequest)
    name = ask.rooms.upgrades.propose(request, ask.by()).row.name
    return Redirect(link("upgrades", name), f"Proposed {name}. No wave has started.")


@page("/upgrades/<name>", nav="upgrades")
def show_upgrade(ask: PageRequest[Any]) -> HtmlPage:
    """Show an upgrade: waves, open requirements, plan and history."""
    view, principal = ask.rooms.upgrades.show(ask.args["name"]), ask.principal
    row = view.row
    mine = not row.names.isdisjoint(principal.names)
    agreed = row.has_approval_of(principal.names)
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
    }
    return HtmlPage("upgrade.html", row.name, context)


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


@page("/upgrades/<name>/act", scope="upgrade", method="POST", nav="upgrades", refused=show_upgrade)
def act_on_upgrade(ask: PageRequest[Any]) -> Redirect:
    """Start a wave, stop, resume or roll back, or leave nodes out."""
    return _drive(ask, "start", "stop", "resume", "roll-back", "leave-out")


@page(
    "/upgrades/<name>/review", scope="approve", method="POST", nav="upgrades", refused=show_upgrade
)
def review_upgrade(ask: PageRequest[Any]) -> Redirect:
    """Approve another person's upgrade, or withdraw the approval."""
    return _drive(ask, "approve", "retract")


def _drive(ask: PageRequest[Any], *allowed: str) -> Redirect:
    name, service = ask.args["name"], ask.rooms.upgrades
    match read_action(ask, *allowed):
        case "start":
            done = _start(ask, name)
        case "approve":
            service.approve(name, ask.principal)
            done = f"Approved {name}."
        case "retract":
            service.retract(name, ask.principal)
            done = f"Withdrew the approval of {name}."
        case "stop":
            service.stop(name, ask.by())
            done = f"Stopped {name}. Every wave waits until someone resumes the upgrade."
        case "resume":
            service.resume(name, ask.by())
            done = f"Resumed {name}."
        case "roll-back":
            done = f"Rolled back {name}. Every tool that asks gets the answer to roll back."
            if not service.roll_back(name, ask.by()).row.began:
                done = f"Withdrew {name}. No wave had begun."
        case _:
            nodes = split_words(ask.form.get("nodes", ""))
            if not nodes:
                raise BadInput("is missing", field="nodes", hint="like gpu-17 or prod-eu/gpu-17")
            service.leave_out(name, nodes, ask.by())
            done = f"Excluded {count_things(len(nodes), 'node')} from {name}."
    return Redirect(link("upgrades", name), done)


def _start(ask: PageRequest[Any], name: str) -> str:
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
