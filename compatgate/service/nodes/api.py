"""Serve nodes, node reports and drift."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from compatgate.core.matrix import DriftKind, DriverState
from compatgate.kit.http.replies import Filter, Paged, Reply, Search, page
from compatgate.kit.http.requests import to_struct
from compatgate.service.nodes.schemas import EXAMPLE, DriftBody, NodeBody, NodesReported, Report
from compatgate.service.web.call import Call
from compatgate.service.web.route import Body, Returns, route

Spelled = Annotated[Filter, Meta(description="in any spelling, with its MIG profile")]
Stale = Annotated[bool, Meta(description="nothing was heard of it for a day")]
Cluster = Annotated[Filter, Meta(description="needed where several clusters have such a node")]


class NodeFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which nodes to list."""

    search: Search | None = None
    cluster: Filter | None = None
    target: Filter | None = None
    gpu: Spelled | None = None
    driver: Filter | None = None
    driver_state: DriverState | None = None
    disagrees: Annotated[bool, Meta(description="its witnesses do")] | None = None
    stale: Stale | None = None


class DriftFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which drifted nodes to list."""

    cluster: Filter | None = None
    target: Filter | None = None
    what: Annotated[DriftKind, Meta(description="that differs")] | None = None
    gpu: Spelled | None = None
    stale: Stale | None = None


class Where(Struct, frozen=True, forbid_unknown_fields=True):
    """Which node of that name."""

    cluster: Cluster | None = None


class WhereAndWhy(Struct, frozen=True, forbid_unknown_fields=True):
    """Which node of that name, and why it goes."""

    cluster: Cluster | None = None
    reason: Annotated[str, Meta(description="why; or in the header")] | None = None


class HowReported(Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of a report."""

    dry_run: Annotated[bool, Meta(description="answer what would be shown; keep nothing")] = False


@route(
    "GET",
    "/nodes",
    scope="read",
    tag="nodes",
    query=NodeFilters,
    returns=Returns(NodeBody, "A page of nodes", paged=True, etag=True),
)
def list_nodes(call: Call[NodeFilters]) -> Reply:
    """List nodes by cluster and name, each against the matrix as it is now."""
    return page(call.gate.nodes.list(**call.query.filters()), lambda view: view.to_json())


@route(
    "POST",
    "/nodes",
    scope="operate",
    tag="nodes",
    query=HowReported,
    body=Body(Report, examples={"nodes": EXAMPLE}),
    returns=Returns(NodesReported, "The nodes of the report as they are now"),
)
def report_nodes(call: Call[HowReported]) -> Reply:
    """Report what was seen of nodes: labels, what the kubelet hands out, the driver's own report.

    The same report again changes nothing but the time. Where witnesses disagree the node says so,
    and the driver's own report decides. New nodes, other drivers and other GPUs are audited.
    """
    report = to_struct(call.document(), Report)
    found = call.gate.nodes.report(report, by=call.principal.name, dry_run=call.query.dry_run)
    return Reply({"nodes": [view.to_json() for view in found]})


@route(
    "GET",
    "/nodes/{name}",
    scope="read",
    tag="nodes",
    query=Where,
    returns=Returns(NodeBody, "The node", etag=True),
    errors=(404, 409),
)
def show_node(call: Call[Where]) -> Reply:
    """Show a node with what each witness says of it."""
    return Reply(call.gate.nodes.show(call.args["name"], call.query.cluster).to_json())


@route(
    "DELETE",
    "/nodes/{name}",
    scope="operate",
    tag="nodes",
    query=WhereAndWhy,
    reason="query",
    returns=Returns(NodeBody, "The node as it was"),
    errors=(404, 409),
)
def remove_node(call: Call[WhereAndWhy]) -> Reply:
    """Forget a node that is gone; one that is reported again comes back."""
    removed = call.gate.nodes.remove(call.args["name"], call.by(), call.query.cluster)
    return Reply(removed.to_json())


@route(
    "GET",
    "/drift",
    scope="read",
    tag="nodes",
    query=DriftFilters,
    returns=Returns(DriftBody, "A page of nodes that drifted", paged=True, etag=True),
)
def list_drift(call: Call[DriftFilters]) -> Reply:
    """List nodes whose driver or GPUs are not what a pool of their target declares.

    What no witness tells counts as a difference too: `have` is null then.
    """
    return page(call.gate.nodes.drift(**call.query.filters()), lambda view: view.to_drift())
