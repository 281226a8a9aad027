"""Show the audit log, and the verification of its chain."""

from __future__ import annotations

from typing import Any

from compatgate.kit.http.links import link
from compatgate.kit.ui.filters import format_compact
from compatgate.kit.ui.tables import (
    Cell,
    Column,
    EmptyNotice,
    list_rows,
    make_list_table,
    make_page_query,
)
from compatgate.service.audit.events.schemas import AuditBody, AuditFilters
from compatgate.web.page import HtmlPage, PageRequest, page

_COLUMNS = (
    Column("seq", "Record", "number"),
    Column("at", "Time", "time"),
    Column("actor", "Actor"),
    Column("action", "Action", "code"),
    Column("subject", "Subject"),
    Column("detail", "Detail"),
    Column("hash", "Hash", "code"),
)
_EMPTY = EmptyNotice("No matching records.", "The audit log holds every change and every decision.")


AuditQuery = make_page_query(AuditFilters)


@page("/audit", nav="audit", query=AuditQuery)
def show_audit(ask: PageRequest[Any]) -> HtmlPage:
    """Show changes and batches of decisions, newest first."""
    found = list_rows(ask.rooms.audit.list_audit, ask.query)
    table = make_list_table("audit", _COLUMNS, found, ask.query, _EMPTY, _cells, label="records")
    return HtmlPage("audit.html", "Audit", table=table)


@page("/audit/verify", scope="admin", nav="audit")
def show_verification(ask: PageRequest[Any]) -> HtmlPage:
    """Verify the chain, and show the result."""
    return HtmlPage(
        "audit-verify.html", "Audit chain", {"report": ask.rooms.chain.verify(full=False)}
    )


def _cells(one: AuditBody) -> dict[str, Any]:
    return {
        "subject": Cell(one.subject, _place(one)),
        "detail": format_compact(one.detail),
        "hash": Cell(one.hash[:12], title=one.hash),
    }


def _place(one: AuditBody) -> str | None:
    """Return the page of the subject, if it has one."""
    if one.subject.startswith("run_"):
        return link("runs", one.subject)
    revision = one.detail.get("revision")
    if one.action.startswith("matrix.") and isinstance(revision, int):
        return link("revisions", revision)
    return None
