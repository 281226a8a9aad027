"""Entries of the matrix."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from compatgate.core.matrix import Status
from compatgate.web.api.documents import document_routes
from compatgate.web.call import Call, Reply
from compatgate.web.paging import Filter, Paged, Search, page
from compatgate.web.route import Returns, route
from compatgate.wire.examples import ENTRY
from compatgate.wire.matrix import EntryBody, EntryChange


class EntryFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which entries to list."""

    target: Filter | None = None
    status: Status | None = None
    component: Annotated[Filter, Meta(description="that it constrains")] | None = None
    search: Search | None = None


@route(
    "GET",
    "/entries",
    scope="read",
    tag="entries",
    query=EntryFilters,
    returns=Returns(EntryBody, "A page of entries", paged=True, etag=True),
)
def list_entries(call: Call[EntryFilters]) -> Reply:
    """List entries, by name, with what canary runs have to say of them."""
    found = call.gate.matrix.list_entries(**call.query.filters())
    said = call.gate.runs.remarks(row.name for row in found.items)
    return page(found, lambda row: {**row.to_json(), **said[row.name].to_json()})


def _remarks(call: Call[Any], name: str) -> dict[str, Any]:
    return call.gate.runs.remarks([name])[name].to_json()


documents = document_routes(
    "Entry",
    "entries",
    scope="bless",
    body=EntryChange,
    shown=EntryBody,
    example=ENTRY,
    remarks=_remarks,
)
