"""Answers of REST as the rows that the service has."""

from __future__ import annotations

from typing import Any

import msgspec

from compatgate.client.operation import Listing
from compatgate.documents.changes import Change
from compatgate.store.rows import AuditRow, DecisionRow, RevisionRow, Stored, TokenRow
from compatgate.wire.matrix import Page

Body = dict[str, Any]
_BESIDE = ("revision", "created_at", "updated_at", "warnings", "promotion")
"""Members of a stored document that are no part of it."""


def page_of(client: Any, listing: Listing[..., Any], row: Any, **query: Any) -> Page[Any]:
    """A page of a list, its items as rows.

    Args:
        client: that asks.
        listing: the operation.
        row: makes one of plain data.
        query: filters of the operation, ``cursor`` and ``limit``.
    """
    cursor, limit = query.pop("cursor", None), query.pop("limit", None)
    items = client.items(listing.request(**query).plain())
    page = items.page(cursor, size=limit)
    return Page([row(item) for item in page.items], page.next)


def stored(body: Body) -> Stored:
    """A document as it is stored."""
    document = {name: value for name, value in body.items() if name not in _BESIDE}
    row = {
        **{name: body[name] for name in ("kind", "revision", "created_at", "updated_at")},
        "name": body["metadata"]["name"],
        "document": document,
    }
    return msgspec.convert(row, Stored)


def revision(body: Body) -> RevisionRow:
    """A revision, with its changes where it was shown in full."""
    changes = tuple(change(item) for item in body.get("changes", ()))
    row = msgspec.convert({**body, "changes": ()}, RevisionRow)
    return msgspec.structs.replace(row, changes=changes)


def change(body: Body) -> Change:
    """A document that is made, changed or deleted."""
    return msgspec.convert(body, Change)


def token(body: Body) -> TokenRow:
    """A token, without its secret."""
    return msgspec.convert(body, TokenRow)


def link(body: Body) -> AuditRow:
    """A link of the audit chain."""
    return msgspec.convert(body, AuditRow)


def decision(body: Body) -> DecisionRow:
    """A question that was answered."""
    return msgspec.convert(body, DecisionRow)
