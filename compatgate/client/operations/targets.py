"""Targets, and their pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatgate.client.operation import Listing, Operation
from compatgate.client.request import Request, delete, document, get, pages, post, put
from compatgate.wire.matrix import Made, Page, TargetBody, TargetChange
from compatgate.wire.pools import PoolRowBody

TargetDocument = TargetChange | Mapping[str, Any]


@Listing
def list_targets(
    *,
    label: str | None = None,
    gpu: str | None = None,
    driver: str | None = None,
    search: str | None = None,
) -> Request[Page[TargetBody]]:
    """List targets, by name.

    Args:
        label: such as ``tier=prod``.
        gpu: of a pool, as written.
        driver: of a pool, as written.
        search: part of the name, in any case.
    """
    return pages("/targets", TargetBody, label=label, gpu=gpu, driver=driver, search=search)


@Operation
def create_target(target: TargetDocument, *, reason: str) -> Request[TargetBody]:
    """Create a target, and say why."""
    body = document(target, reason)
    return post("/targets", TargetBody, body=body, reads=TargetChange)


@Operation
def show_target(name: str) -> Request[TargetBody]:
    """Show a target."""
    return get("/targets/{name}", TargetBody, name=name)


@Operation
def change_target(
    name: str, target: TargetDocument, *, reason: str, if_match: str | int | None = None
) -> Request[TargetBody]:
    """Replace a target by the document that is sent, whole.

    Args:
        name: of the target.
        target: as it is to be.
        reason: why.
        if_match: entity tag, or revision, that it must still have.
    """
    body = document(target, reason)
    return put(
        "/targets/{name}",
        TargetBody,
        body=body,
        reads=TargetChange,
        if_match=if_match,
        name=name,
    )


@Operation
def delete_target(name: str, *, reason: str, if_match: str | int | None = None) -> Request[Made]:
    """Delete a target; its history stays. Arguments as `change_target`."""
    return delete("/targets/{name}", Made, if_match=if_match, name=name, reason=reason)


@Listing
def list_target_pools(name: str) -> Request[Page[PoolRowBody]]:
    """List the pools of a target."""
    return pages("/targets/{name}/pools", PoolRowBody, name=name)


@Listing
def list_pools(
    *, target: str | None = None, gpu: str | None = None, driver: str | None = None
) -> Request[Page[PoolRowBody]]:
    """List the pools of all targets, by target and name; GPU and driver as written."""
    return pages("/pools", PoolRowBody, target=target, gpu=gpu, driver=driver)
