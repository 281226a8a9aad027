"""Entries of the matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatgate.client.operation import Listing, Operation
from compatgate.client.request import Request, delete, document, get, pages, post, put
from compatgate.core.matrix import Status
from compatgate.wire.matrix import EntryBody, EntryChange, Made, Page

EntryDocument = EntryChange | Mapping[str, Any]


@Listing
def list_entries(
    *,
    target: str | None = None,
    status: Status | None = None,
    component: str | None = None,
    search: str | None = None,
) -> Request[Page[EntryBody]]:
    """List entries, by name.

    Args:
        target: that they concern.
        status: that they have.
        component: that they constrain.
        search: part of the name, in any case.
    """
    return pages(
        "/entries", EntryBody, target=target, status=status, component=component, search=search
    )


@Operation
def create_entry(entry: EntryDocument, *, reason: str) -> Request[EntryBody]:
    """Create a entry, and say why."""
    body = document(entry, reason)
    return post("/entries", EntryBody, body=body, reads=EntryChange)


@Operation
def show_entry(name: str) -> Request[EntryBody]:
    """Show a entry."""
    return get("/entries/{name}", EntryBody, name=name)


@Operation
def change_entry(
    name: str, entry: EntryDocument, *, reason: str, if_match: str | int | None = None
) -> Request[EntryBody]:
    """Replace a entry by the document that is sent, whole.

    Args:
        name: of the entry.
        entry: as it is to be.
        reason: why.
        if_match: entity tag, or revision, that it must still have.
    """
    body = document(entry, reason)
    return put(
        "/entries/{name}",
        EntryBody,
        body=body,
        reads=EntryChange,
        if_match=if_match,
        name=name,
    )


@Operation
def delete_entry(name: str, *, reason: str, if_match: str | int | None = None) -> Request[Made]:
    """Delete a entry; its history stays. Arguments as `change_entry`."""
    return delete("/entries/{name}", Made, if_match=if_match, name=name, reason=reason)
