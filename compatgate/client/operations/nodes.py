"""List and report nodes and their drift."""

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
    """List nodes by cluster and name, compared with the present matrix.

    Args:
        search: part of the name, in upper or lower case.
        cluster: cluster of the node.
        target: target of the node.
        gpu: GPU of the node, in any spelling.
        driver: effective driver of the node.
        driver_state: whether an entry admits the driver.
        disagrees: whether sources of the node report disagree.
        stale: whether the last report is older than a day.
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
    """Report nodes of one cluster; return their new state.

    Args:
        nodes: node reports, at most 500.
        cluster: cluster of the nodes.
        dry_run: store nothing.
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
    """Show a node with the report of each source.

    Args:
        name: name of the node.
        cluster: cluster, if several clusters have a node of this name.
    """
    return get("/nodes/{name}", NodeBody, name=name, cluster=cluster)


@Operation
def remove_node(name: str, *, reason: str, cluster: str | None = None) -> Request[NodeBody]:
    """Remove a node, with a reason. Arguments as `show_node`."""
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
    """List nodes whose driver or GPUs differ from every pool of their target.

    Args:
        cluster: cluster of the node.
        target: target of the node.
        what: kind of drift.
        gpu: GPU of the node, in any spelling.
        stale: whether the last report is older than a day.
    """
    return pages(
        "/drift", DriftBody, cluster=cluster, target=target, what=what, gpu=gpu, stale=stale
    )


def _plain(node: NodeReport | Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = dict(node) if isinstance(node, Mapping) else msgspec.to_builtins(node)
    return {key: value for key, value in plain.items() if value is not None}
