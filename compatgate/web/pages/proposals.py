"""Show proposals: the list, a proposal with its diff, and forms that act on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compatgate.core.entry_stacks import entry_stack_text
from compatgate.documents.convert import to_entry
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import (
    Cell,
    Column,
    EmptyNotice,
    fetch_rows,
    make_list_table,
    make_page_query,
)
from compatgate.service.changes.comparison.matrix_sections import report_backtest
from compatgate.service.matrix.documents.blessing import list_blessed
from compatgate.service.matrix.proposals.merging import may_merge
from compatgate.service.matrix.proposals.models import ProposalState
from compatgate.service.matrix.proposals.readiness import ProposalView, describe
from compatgate.service.matrix.proposals.schemas import (
    DAYS,
    ProposalFilters,
    ProposalRequest,
    ProposedFile,
)
from compatgate.web.page import HtmlPage, PageRequest, Redirect, page

_COLUMNS = (
    Column("id", "Proposal", "code"),
    Column("state", "State", "badge"),
    Column("reason", "Reason"),
    Column("author", "Author"),
    Column("made", "Made", "time"),
    Column("targets", "Targets"),
    Column("changes", "Changes"),
    Column("approvals", "Approved by"),
    Column("revision", "Revision"),
)
_EMPTY = EmptyNotice(
    "No proposals.",
    "A proposal is a change of the matrix that others approve before it is made.",
    "compatgate matrix propose entry.yaml --reason 'torch 2.8 passed on staging'",
)
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
    query = ask.query
    asked = {"state": query.state, "target": query.target, "author": query.author}
    found = fetch_rows(ask.rooms.proposals.list, query.cursor, **asked)
    table = make_list_table("proposals", _COLUMNS, map(_row, found.items), found, query, _EMPTY)
    return HtmlPage("proposals.html", "Proposals", {"query": query, "states": _STATES}, table)


def _row(view: ProposalView) -> tuple[Any, ...]:
    row = view.row
    place = link("proposals", row.id)
    named = [f"{change.kind} {change.name}" for change in row.changes[:3]]
    more = [f"and {len(row.edits) - 3} more"] if len(row.edits) > 3 else []
    revision = Cell(row.revision, href=link("revisions", row.revision)) if row.revision else None
    return (
        Cell(row.id, href=place),
        Cell(view.state, tone=TONES[view.state]),
        Cell(row.reason, href=place),
        row.author,
        row.made_at,
        ", ".join(row.targets),
        ", ".join(named + more),
        ", ".join(one.actor for one in row.approvals),
        revision,
    )


@page("/proposals/new", scope="propose", nav="proposals")
def show_proposal_form(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form of a new proposal."""
    return _form_page(ask)


@page("/proposals/new", scope="propose", method="POST", nav="proposals")
def create_proposal(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Propose the documents of a form."""
    try:
        file = ProposedFile("documents", ask.form.get("documents", ""))
        most = ask.service.settings.max_values
        view = ask.rooms.proposals.propose(ProposalRequest(files=[file]), ask.by(), most=most)
    except CompatgateError as error:
        return _form_page(ask, error)
    warnings = (f" Warning: {text}." for text in view.warnings)
    return Redirect(link("proposals", view.row.id), f"Proposed {view.row.id}.{''.join(warnings)}")


def _form_page(ask: PageRequest[Any], error: CompatgateError | None = None) -> HtmlPage:
    context = {"typed": ask.form, "error": error}
    status = error.status if error else 200
    return HtmlPage("proposal-new.html", "Propose a change", context, status=status)


@page("/proposals/<id>", nav="proposals")
def show_proposal(ask: PageRequest[Any]) -> HtmlPage:
    """Show a proposal: its difference, what it needs and has, and what happened to it."""
    return _proposal_page(ask, ask.rooms.proposals.show(ask.args["id"]))


def _proposal_page(
    ask: PageRequest[Any], view: ProposalView, error: CompatgateError | None = None
) -> HtmlPage:
    row, principal = view.row, ask.principal
    mine = row.identity == principal.identity
    agreed = principal.identity in {one.identity for one in row.approvals}
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
        "error": error,
        "typed": ask.form,
    }
    status = error.status if error else 200
    return HtmlPage("proposal.html", f"Proposal {row.id}", context, status=status)


@page("/proposals/<id>/review", scope="approve", method="POST", nav="proposals")
def review_proposal(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Approve a proposal, withdraw the approval, or close another person's proposal."""
    return _act(ask, ("approve", "retract", "close"))


@page("/proposals/<id>/act", scope="propose", method="POST", nav="proposals")
def act_on_proposal(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Backtest a proposal, or close your own."""
    return _act(ask, ("close", "backtest"))


@page("/proposals/<id>/merge", scope="propose", method="POST", nav="proposals")
def merge_proposal(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Merge a proposal."""
    return _act(ask, ("merge",))


def _act(ask: PageRequest[Any], choices: tuple[str, ...]) -> HtmlPage | Redirect:
    number, what, form = ask.args["id"], ask.form.get("what", ""), ask.form
    by, service = ask.principal, ask.rooms.proposals
    digest = form.get("digest") or None
    service.show(number)
    acts: dict[str, Callable[[], ProposalView]] = {
        "approve": lambda: service.approve(number, by, digest),
        "retract": lambda: service.retract(number, by),
        "close": lambda: service.close(number, by, text=form.get("comment", "")),
        "backtest": lambda: service.run_backtest(number, DAYS, by),
        "merge": lambda: service.merge(
            number, by, digest, override=form.get("override", "").strip() or None
        ),
    }
    try:
        if what not in choices:
            hint = f"one of {', '.join(choices)}"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
        view = acts[what]()
    except CompatgateError as error:
        return _proposal_page(ask, service.show(number), error)
    revision = f" It is revision {view.row.revision}." if view.row.revision else ""
    return Redirect(link("proposals", number), f"{_DONE[what]} {number}.{revision}")


@page("/revisions/<int:number>/revert", scope="propose", method="POST", nav="revisions")
def revert_revision(ask: PageRequest[Any]) -> Redirect:
    """Revert a revision, directly or as a proposal."""
    propose = bool(ask.form.get("propose"))
    number = ask.args["number"]
    revision, proposal, _ = ask.rooms.proposals.revert(number, ask.by(), propose=propose)
    if proposal is not None:
        return Redirect(link("proposals", proposal.id), f"Proposed to revert revision {number}.")
    return Redirect(link("revisions", revision or 0), f"Reverted revision {number}.")
