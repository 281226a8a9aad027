"""Show the history of the matrix: revisions, and the difference between two."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from compatgate.documents.specs import KINDS, Kind
from compatgate.kit.http.links import here, link
from compatgate.kit.http.replies import Filter
from compatgate.kit.http.requests import Since, Until
from compatgate.kit.ui.tables import (
    NOTHING_FITS,
    Cell,
    Column,
    Empty,
    Listing,
    LongListing,
    found_by,
    table_of,
)
from compatgate.service.matrix.models import RevisionRow
from compatgate.service.web.page import HtmlPage, PageRequest, page
from compatgate.service.web.route import LARGEST

AT_ONCE = 50
"""Documents with their differences on one page."""
_COLUMNS = (
    Column("number", "Revision", "number"),
    Column("made_at", "Created", "time"),
    Column("author", "Author"),
    Column("reason", "Reason"),
    Column("action", "Action"),
    Column("count", "Documents", "number"),
)
_EMPTY = Empty(
    "No revisions yet.",
    "Each change of the matrix creates one, with author and reason.",
    "compatgate matrix import matrix/examples --reason 'a first matrix'",
)
Number = Annotated[int, Meta(ge=0, le=LARGEST["int"])]


class RevisionQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of revisions."""

    author: Filter | None = None
    kind: Kind | None = None
    name: Filter | None = None
    since: Since | None = None
    until: Until | None = None


@page("/revisions", nav="revisions", query=RevisionQuery)
def show_revisions(ask: PageRequest[RevisionQuery]) -> HtmlPage:
    """Show revisions, newest first, and a form to compare two."""
    query = ask.query
    found = found_by(ask.gate.matrix.list_revisions, query)
    lines = [_revision_row(row) for row in found.items]
    table = table_of("revisions", _COLUMNS, lines, found, query, _EMPTY, unfit=NOTHING_FITS)
    last = ask.gate.snapshot().revision
    context = {"query": query, "kinds": KINDS, "last": last}
    return HtmlPage("revisions.html", "Revisions", context, table=table)


def _revision_row(row: RevisionRow) -> tuple[Any, ...]:
    place = link("revisions", row.number)
    return (
        Cell(row.number, href=place),
        row.made_at,
        row.author,
        Cell(row.reason, href=place),
        row.action,
        row.count,
    )


class Part(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Position in a long list of changed documents."""

    skip: Number = 0


@page("/revisions/<int:number>", nav="revisions", query=Part)
def show_revision(ask: PageRequest[Part]) -> HtmlPage:
    """Show a revision and its changes."""
    row = ask.gate.matrix.show_revision(ask.args["number"])
    context = {
        "row": row,
        **_part(row.changes, ask.query.skip),
        "last": ask.gate.snapshot().revision,
    }
    return HtmlPage("revision.html", f"Revision {row.number}", context)


class Between(Part, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Revisions to compare; 0 is the empty matrix before the first."""

    older: Number | None = None
    newer: Number | None = None


@page("/revisions/diff", nav="revisions", query=Between)
def show_difference(ask: PageRequest[Between]) -> HtmlPage:
    """Show the changes between two revisions, document by document."""
    last = ask.gate.snapshot().revision
    newer = last if ask.query.newer is None else ask.query.newer
    older = max(newer - 1, 0) if ask.query.older is None else ask.query.older
    changes = ask.gate.matrix.diff(older, newer)
    context = {"older": older, "newer": newer, "last": last, **_part(changes, ask.query.skip)}
    return HtmlPage("revisions-diff.html", f"Revision {older} to {newer}", context)


def _part(changes: Any, skip: int) -> dict[str, Any]:
    end = skip + AT_ONCE
    counts = {
        action: sum(change.action == action for change in changes)
        for action in ("create", "change", "delete")
    }
    return {
        "changes": changes[skip:end],
        "counts": counts,
        "skip": skip,
        "total": len(changes),
        "following": here(skip=end) if end < len(changes) else None,
        "preceding": here(skip=max(0, skip - AT_ONCE) or None) if skip else None,
    }
