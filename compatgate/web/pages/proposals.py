"""Show proposals: the list, a proposal with its diff, and forms that act on it."""

from __future__ import annotations

from typing import Any

from compatgate.core.entry_stacks import entry_stack_text
from compatgate.documents.convert import to_entry
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import Cell, list_rows, make_list_table, make_page_query
from compatgate.service.changes.comparison.matrix_sections import report_backtest
from compatgate.service.matrix.documents.blessing import list_blessed
from compatgate.service.matrix.proposals.merging import may_merge
from compatgate.service.matrix.proposals.readiness import ProposalView, describe
from compatgate.service.matrix.proposals.repository import ProposalState
from compatgate.service.matrix.proposals.schemas import DAYS, ProposalFilters
from compatgate.web.page import HtmlPage, PageRequest, Redirect, listing, page, read_action
from compatgate.web.pages.change_acts import propose_text

_STATES: tuple[ProposalState, ...] = ("open", "approved", "conflicted", "merged", "closed")
TONES: dict[ProposalState, str] = {
    "open": "waiting",
    "approved": "approved",
    "conflicted": "fail",
    "merged": "pass",
    "closed": "cancelled",
}
"""Badges of the states."""
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


@page("/proposals", nav="proposals", query=ProposalQuery)
def show_proposals(ask: PageRequest[Any]) -> HtmlPage:
    """Show proposals, newest first."""
    found = list_rows(ask.rooms.proposals.list, ask.query)
    table = make_list_table(listing("proposals"), found, ask.query, _cells)
    return HtmlPage("proposals.html", "Proposals", {"states": _STATES}, table)


def _cells(view: ProposalView) -> dict[str, Any]:
    row = view.row
    named = [f"{change.kind} {change.name}" for change in row.changes[:3]]
    more = [f"and {len(row.edits) - 3} more"] if len(row.edits) > 3 else []
    return {
        "state": Cell(view.state, tone=TONES[view.state]),
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
        "tone": TONES[view.state],
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
    return _act(ask, "approve", "retract", "close")


@page("/proposals/<id>/act", scope="propose", method="POST", nav="proposals", refused=show_proposal)
def act_on_proposal(ask: PageRequest[Any]) -> Redirect:
    """Backtest a proposal, or close your own."""
    return _act(ask, "close", "backtest")


@page(
    "/proposals/<id>/merge", scope="propose", method="POST", nav="proposals", refused=show_proposal
)
def merge_proposal(ask: PageRequest[Any]) -> Redirect:
    """Merge a proposal."""
    return _act(ask, "merge")


def _act(ask: PageRequest[Any], *allowed: str) -> Redirect:
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
