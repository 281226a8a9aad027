"""Serve nodes, node reports and drift."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.kit.http.schemas import Filter
from compatgate.service.gate.questions.service import Gate
from compatgate.service.nodes.health import store_health
from compatgate.service.nodes.schemas import (
    EXAMPLE,
    HEALTH_EXAMPLE,
    DriftBody,
    DriftFilters,
    HealthReport,
    HealthStored,
    NodeBody,
    NodeFilters,
    NodesReported,
    Report,
)
from compatgate.service.nodes.service import Nodes

routes = Routes("nodes", scope="operate")

ClusterFilter = Annotated[
    Filter, Meta(description="required if several clusters have a node with this name")
]


class NodeQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters that select a node of a name."""

    cluster: ClusterFilter | None = None


class NodeRemovalQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of a removal: the node's cluster, and the reason."""

    cluster: ClusterFilter | None = None
    reason: (
        Annotated[str, Meta(description="reason; or use the header X-Compatgate-Reason")] | None
    ) = None


class ReportQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of a report."""

    dry_run: Annotated[bool, Meta(description="return the result without storing it")] = False


@routes.pages("/nodes", NodeBody, "A page of nodes", query=NodeFilters)
def list_nodes(call: Call[NodeFilters]) -> Reply:
    """List nodes by cluster and name, each compared with the current matrix."""
    return page_reply(call.use(Nodes).list(**call.query.filters()), lambda view: view.to_body())


@routes.post(
    "/nodes",
    Returns(NodesReported, "The current state of the reported nodes"),
    query=ReportQuery,
    body=Body(Report, examples={"nodes": EXAMPLE}),
    repeatable=True,
)
def report_nodes(call: Call[ReportQuery]) -> Reply:
    """Report nodes: labels, the kubelet's resources, the node's own report.

    The node's own report names its driver, GPUs, platform and observed parts. A repeated report
    changes only the time. A target that a report names is added to those that its labels lead
    to; with the scope `bless` it replaces them. The first report of another cluster needs `bless`,
    too. The node shows disagreeing sources, and its own report decides. New
    nodes, other drivers, other GPUs and other parts are audited.
    """
    report = to_struct(call.document(), Report)
    views = call.use(Nodes).report(
        report, by=call.principal.name, principal=call.principal, dry_run=call.query.dry_run
    )
    return Reply(NodesReported([view.to_body() for view in views]))


@routes.post(
    "/nodes/health",
    Returns(HealthStored, "The new information"),
    body=Body(HealthReport, examples={"health": HEALTH_EXAMPLE}, argument="report"),
    repeatable=True,
)
def report_health(call: Call[NoQuery]) -> Reply:
    """Report the GPU errors of nodes in a period; a period without errors is worth reporting, too.

    Upgrades compare the rate of fatal Xid errors on a new driver with the rate before. Reports may
    be late, repeated and overlapping: an error counts once by its time and code.
    """
    report = to_struct(call.document(), HealthReport)
    return Reply(store_health(call.use(Gate).database, report, call.use(Gate).facts))


@routes.shows("/nodes/{name}", NodeBody, "The node", query=NodeQuery, errors=(404, 409))
def show_node(call: Call[NodeQuery]) -> Reply:
    """Show a node with the report of each source."""
    return Reply(call.use(Nodes).show(call.args["name"], call.query.cluster).to_body())


@routes.delete(
    "/nodes/{name}",
    Returns(NodeBody, "The removed node"),
    query=NodeRemovalQuery,
    reason="query",
    errors=(404, 409),
)
def remove_node(call: Call[NodeRemovalQuery]) -> Reply:
    """Remove a node that no longer exists; it returns with its next report."""
    removed = call.use(Nodes).remove(call.args["name"], call.by(), call.query.cluster)
    return Reply(removed.to_body())


@routes.pages("/drift", DriftBody, "A page of nodes that drifted", query=DriftFilters)
def list_drift(call: Call[DriftFilters]) -> Reply:
    """List nodes whose driver, GPUs, platform or parts differ from their target.

    An unreported driver or GPU counts as a difference too; `have` is null then. An unreported
    platform or part is a note of the node.
    """
    return page_reply(call.use(Nodes).drift(**call.query.filters()), lambda view: view.to_drift())
