"""The audit log, and whether its chain holds."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from compatgate.store.rows import AuditRow
from compatgate.web.query import Since, Until
from compatgate.web.ui.filters import compact
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import LongListing, found_by, table_of
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import Cell, Column, Empty

_COLUMNS = (
    Column("seq", "Record", "number"),
    Column("at", "Time", "time"),
    Column("actor", "Actor"),
    Column("action", "Action", "code"),
    Column("subject", "Subject"),
    Column("detail", "Detail"),
    Column("hash", "Hash", "code"),
)
_EMPTY = Empty("No matching records.", "The audit log holds every change and every decision.")


class AuditQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which links of the chain."""

    action: Annotated[str, Meta(max_length=200)] | None = None
    actor: Annotated[str, Meta(max_length=200)] | None = None
    since: Since | None = None
    until: Until | None = None


@page("/audit", nav="audit", query=AuditQuery)
def show(ask: Ask[AuditQuery]) -> Shown:
    """Changes and batches of decisions, newest first."""
    query = ask.query
    found = found_by(ask.gate.history.list_audit, query)
    rows = [_row(one) for one in found.items]
    table = table_of("audit", _COLUMNS, rows, found, query, _EMPTY, label="records")
    return Shown("audit.html", "Audit", {"query": query}, table)


@page("/audit/verify", scope="admin", nav="audit")
def verify(ask: Ask[Any]) -> Shown:
    """Recompute the chain."""
    return Shown("audit-verify.html", "Audit chain", {"report": ask.gate.history.verify()})


_PLACES = {"Target": "targets", "Entry": "entries", "Waiver": "waivers"}


def _row(one: AuditRow) -> tuple[Any, ...]:
    return (
        one.seq,
        Cell(one.at),
        one.actor,
        one.action,
        Cell(one.subject, _place(one)),
        compact(one.detail),
        Cell(one.hash[:12], title=one.hash),
    )


def _place(one: AuditRow) -> str | None:
    """The page of what was acted on, where there is one."""
    if one.subject.startswith("run_"):
        return link("runs", one.subject)
    revision = one.detail.get("revision")
    if one.action.startswith("matrix.") and isinstance(revision, int):
        return link("revisions", revision)
    return None
