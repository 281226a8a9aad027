"""Show changes that wait for a second person, and approve or refuse one."""

from __future__ import annotations

from typing import Any

from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import (
    Cell,
    Column,
    EmptyNotice,
    PagedTableQuery,
    fetch_rows,
    make_list_table,
)
from compatgate.service.matrix.approvals import ApprovalRow
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, page

_COLUMNS = (
    Column("id", "Approval", "code"),
    Column("state", "State", "badge"),
    Column("author", "Author"),
    Column("asked", "Asked", "time"),
    Column("targets", "Targets"),
    Column("reason", "Reason"),
    Column("decided", "Decided by"),
    Column("revision", "Revision"),
)
_EMPTY = EmptyNotice(
    "No change waits for a second person.",
    "Changes of targets with the policy approvals: 2 are listed here.",
)
_MOST_WAITING = 20
"""Most waiting changes that the page shows in full."""
_DECISIONS = ("approve", "refuse")


@page("/approvals", nav="revisions", query=PagedTableQuery)
def show_approvals(ask: PageRequest[PagedTableQuery]) -> HtmlPage:
    """Show changes that wait for a second person, and those that were decided."""
    return _approvals_page(ask)


@page("/approvals/decide", scope="bless", method="POST", nav="revisions")
def decide_approval(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Approve or refuse a change as the second person."""
    number, what = ask.form.get("id", ""), ask.form.get("what", "")
    try:
        if what not in _DECISIONS:
            hint = " or ".join(_DECISIONS)
            raise BadInput("is not a decision", field="what", value=what, hint=hint)
        if what == "refuse":
            refused = ask.gate.matrix.refuse_approval(number, ask.principal)
            return Redirect(link("approvals"), f"Refused {refused.id}.")
        found = ask.gate.matrix.approve(number, ask.principal)
    except CompatgateError as error:
        return _approvals_page(ask, error)
    return Redirect(link("revisions", found.revision or 0), f"Approved {found.id}.")


def _approvals_page(ask: PageRequest[Any], error: CompatgateError | None = None) -> HtmlPage:
    query = ask.query if isinstance(ask.query, PagedTableQuery) else PagedTableQuery()
    matrix = ask.gate.matrix
    found = fetch_rows(matrix.list_approvals, query.cursor)
    table = make_list_table("approvals", _COLUMNS, map(_row, found.items), found, query, _EMPTY)
    context = {
        "waiting": matrix.list_approvals(waiting=True, limit=_MOST_WAITING).items,
        "mine": ask.principal.identity,
        "error": error,
    }
    return HtmlPage(
        "approvals.html", "Approvals", context, table, status=error.status if error else 200
    )


def _row(one: ApprovalRow) -> tuple[Any, ...]:
    state = "expired" if one.state == "waiting" and not one.is_open else one.state
    revision = Cell(one.revision, href=link("revisions", one.revision)) if one.revision else None
    return (
        one.id,
        state,
        one.author,
        one.made_at,
        ", ".join(one.targets),
        one.reason,
        one.decided_by,
        revision,
    )
