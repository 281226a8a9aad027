"""Nodes as they were seen, and drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from compatgate.client.operation import Listing, Operation
from compatgate.client.request import Request, delete, get, pages, post
from compatgate.core.matrix import DriftKind, DriverState
from compatgate.kit.http.schemas import Page
from compatgate.service.nodes.schemas import (
    CLUSTER,
    DriftBody,
    NodeBody,
    NodeReport,
    NodesReported,
    Report,
)


@Listing
def list_nodes(
    *,
    search: str | None = None,
    cluster: str | None = None,
    target: str | None = None,
    gpu: str | None = None,
    driver: str | None = None,
    driver_state: DriverState | None = None,
    disagrees: bool | None = None,
    stale: bool | None = None,
) -> Request[Page[NodeBody]]:
    """List nodes by cluster and name, each against the matrix as it is now.

    Args:
        search: part of their names, in any case.
        cluster: that they are in.
        target: that they belong to.
        gpu: that they have, in any spelling.
        driver: that counts.
        driver_state: whether an entry admits it.
        disagrees: whether their witnesses do.
        stale: nothing was heard of them for a day.
    """
    return pages(
        "/nodes",
        NodeBody,
        search=search,
        cluster=cluster,
        target=target,
        gpu=gpu,
        driver=driver,
        driver_state=driver_state,
        disagrees=disagrees,
        stale=stale,
    )


@Operation
def report_nodes(
    nodes: Sequence[NodeReport | Mapping[str, Any]],
    *,
    cluster: str = CLUSTER,
    dry_run: bool = False,
) -> Request[NodesReported]:
    """Report what was seen of nodes of one cluster; they are answered as they are then.

    Args:
        nodes: at most 500.
        cluster: that they are in.
        dry_run: keep nothing.
    """
    body = {"cluster": cluster, "nodes": [_plain(node) for node in nodes]}
    return post(
        "/nodes",
        NodesReported,
        body=body,
        reads=Report,
        repeatable=True,
        dry_run=dry_run or None,
    )


@Operation
def show_node(name: str, *, cluster: str | None = None) -> Request[NodeBody]:
    """Show a node with what each witness says of it.

    Args:
        name: of the node.
        cluster: where several clusters have such a node.
    """
    return get("/nodes/{name}", NodeBody, name=name, cluster=cluster)


@Operation
def remove_node(name: str, *, reason: str, cluster: str | None = None) -> Request[NodeBody]:
    """Forget a node that is gone. Arguments as `show_node`, and why."""
    return delete("/nodes/{name}", NodeBody, name=name, cluster=cluster, reason=reason)


@Listing
def list_drift(
    *,
    cluster: str | None = None,
    target: str | None = None,
    what: DriftKind | None = None,
    gpu: str | None = None,
    stale: bool | None = None,
) -> Request[Page[DriftBody]]:
    """List nodes whose driver or GPUs are not what a pool of their target declares.

    Args:
        cluster: that they are in.
        target: that they differ from.
        what: that differs.
        gpu: that they have, in any spelling.
        stale: nothing was heard of them for a day.
    """
    return pages(
        "/drift", DriftBody, cluster=cluster, target=target, what=what, gpu=gpu, stale=stale
    )


def _plain(node: NodeReport | Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = dict(node) if isinstance(node, Mapping) else msgspec.to_builtins(node)
    return {key: value for key, value in plain.items() if value is not None}
