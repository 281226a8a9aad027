"""Waivers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from compatgate.client.operation import Listing, Operation
from compatgate.client.request import Request, delete, document, get, pages, post, put
from compatgate.wire.matrix import Made, Page, WaiverBody, WaiverChange

WaiverDocument = WaiverChange | Mapping[str, Any]


@Listing
def list_waivers(
    *,
    target: str | None = None,
    owner: str | None = None,
    active_on: date | str | None = None,
    search: str | None = None,
) -> Request[Page[WaiverBody]]:
    """List waivers, by name.

    Args:
        target: that they concern.
        owner: who answers for them.
        active_on: not ended before this day.
        search: part of the name, in any case.
    """
    return pages(
        "/waivers", WaiverBody, target=target, owner=owner, active_on=active_on, search=search
    )


@Operation
def create_waiver(waiver: WaiverDocument, *, reason: str) -> Request[WaiverBody]:
    """Create a waiver, and say why."""
    body = document(waiver, reason)
    return post("/waivers", WaiverBody, body=body, reads=WaiverChange)


@Operation
def show_waiver(name: str) -> Request[WaiverBody]:
    """Show a waiver."""
    return get("/waivers/{name}", WaiverBody, name=name)


@Operation
def change_waiver(
    name: str, waiver: WaiverDocument, *, reason: str, if_match: str | int | None = None
) -> Request[WaiverBody]:
    """Replace a waiver by the document that is sent, whole.

    Args:
        name: of the waiver.
        waiver: as it is to be.
        reason: why.
        if_match: entity tag, or revision, that it must still have.
    """
    body = document(waiver, reason)
    return put(
        "/waivers/{name}",
        WaiverBody,
        body=body,
        reads=WaiverChange,
        if_match=if_match,
        name=name,
    )


@Operation
def delete_waiver(name: str, *, reason: str, if_match: str | int | None = None) -> Request[Made]:
    """Delete a waiver; its history stays. Arguments as `change_waiver`."""
    return delete("/waivers/{name}", Made, if_match=if_match, name=name, reason=reason)
