"""Show nodes, their sources and targets, and drift."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

from compatgate.core.request import DriftKind, DriverState, drift_title
from compatgate.errors import CompatgateError, NotFound
from compatgate.kit import clock
from compatgate.kit.http.links import current_page_link, link
from compatgate.kit.http.replies import Filter, Search
from compatgate.kit.ui.tables import (
    Cell,
    Column,
    EmptyNotice,
    PagedTableQuery,
    Table,
    TableQuery,
    fetch_rows,
    list_rows,
    make_list_table,
    make_table,
)
from compatgate.service.comparison.service import answer_what_if
from compatgate.service.matrix.models import StoredDocument
from compatgate.service.nodes.comparison import NodeView
from compatgate.service.nodes.details import (
    ORDER,
    PoolComparison,
    advise,
    compare_pools,
    compare_sources,
    count_shares,
    gpu_kinds,
    single_pool,
    target_matches,
)
from compatgate.service.nodes.drift import DriftGroup
from compatgate.service.nodes.reports import format_gpus
from compatgate.service.nodes.schemas import GpusBody
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, choices, page

YesOrNo = Literal["yes", "no"]
STATES: dict[DriverState, str] = {"blessed": "pass", "not-blessed": "fail", "unknown": "unknown"}
"""Tones of driver states."""
_NODE_COLUMNS = (
    Column("name", "Node"),
    Column("state", "Driver state", "badge"),
    Column("driver", "Driver", "name"),
    Column("drift", "Drift"),
    Column("witnesses", "Sources", "badge"),
    Column("targets", "Target", "name"),
    Column("gpus", "GPUs", "name"),
    Column("cluster", "Cluster", "name"),
    Column("since", "Since", "time"),
    Column("seen", "Last seen", "time"),
)
_NO_NODES = EmptyNotice(
    "No nodes.",
    "Nodes appear here once they report: from the labels of a cluster, or from the driver itself.",
    "kubectl get nodes -o json | compatgate k8s nodes --file - --report --cluster prod-eu",
)


class NodeQuery(PagedTableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of nodes."""

    search: Search | None = None
    cluster: Filter | None = None
    target: Filter | None = None
    gpu: Filter | None = None
    driver: Filter | None = None
    driver_state: DriverState | None = None
    disagrees: YesOrNo | None = None
    stale: YesOrNo | None = None


class ClusterQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The cluster of a node."""

    cluster: Filter | None = None


def yes_or_no(answer: YesOrNo | None) -> bool | None:
    """Convert ``yes`` or ``no`` to a filter of the gate's lists."""
    return None if answer is None else answer == "yes"


@page("/nodes", nav="nodes", query=NodeQuery)
def show_nodes(ask: PageRequest[NodeQuery]) -> HtmlPage:
    """Show nodes by cluster and name."""
    query, snapshot = ask.query, ask.gate.snapshot()
    answers = {"disagrees": yes_or_no(query.disagrees), "stale": yes_or_no(query.stale)}
    found = list_rows(ask.gate.nodes.list, query, **answers)
    lines = [_node_row(view) for view in found.items]
    table = make_list_table("nodes", _NODE_COLUMNS, lines, found, query, _NO_NODES)
    context = {
        "query": query,
        "targets": choices(snapshot.documents),
        "gpus": choices(pool.gpu for t in snapshot.documents.values() for pool in t.spec.pools),
        "states": tuple(STATES),
    }
    return HtmlPage("nodes.html", "Nodes", context, table=table)


def _node_row(view: NodeView) -> tuple[Any, ...]:
    row, standing = view.row, view.standing
    first = standing.targets[0] if len(standing.targets) == 1 else None
    disagree = bool(row.disagreements)
    return (
        node_cell(view),
        Cell(standing.driver, tone=STATES[standing.driver], title=standing.why),
        row.driver,
        "; ".join(_group_headline(one) for one in standing.differences),
        Cell(
            "disagree" if disagree else "agree" if len(row.witnesses) > 1 else "only one",
            tone="warn" if disagree else "pass" if len(row.witnesses) > 1 else "muted",
            title="; ".join(row.disagreements),
        ),
        Cell(", ".join(standing.targets) or None, link("targets", first) if first else None),
        gpus_of(view),
        row.cluster,
        row.since,
        Cell(row.seen_at, tone="warn" if view.stale else "", note="stale" if view.stale else ""),
    )


def node_cell(view: NodeView) -> Cell:
    """Return the cell of a node's name, with a link to its page."""
    return Cell(view.row.name, node_link(view.row.cluster, view.row.name))


def node_link(cluster: str, name: str) -> str:
    """Return the link to a node's page; the name may exist in several clusters."""
    return link("nodes", name, cluster=cluster)


def gpus_of(view: NodeView) -> str:
    """Format GPUs as ``8 x L4``."""
    if not view.row.gpus:
        return "not known"
    return format_gpus(GpusBody(one["gpu"], one["count"]) for one in view.row.gpus)


def _group_headline(one: Any) -> str:
    return f"{drift_title(one.what)}, declared {', '.join(one.declared) or 'none'}"


@page("/nodes/<name>", nav="nodes", query=ClusterQuery)
def show_node(ask: PageRequest[ClusterQuery]) -> HtmlPage:
    """Show a node: its sources, its targets, and advice."""
    name, cluster = ask.args["name"], ask.query.cluster
    clusters = ask.gate.nodes.clusters_of(name)
    if cluster is None and len(clusters) > 1:
        return HtmlPage("node-clusters.html", name, {"clusters": clusters})
    return _node_page(ask, ask.gate.nodes.show(name, cluster))


@page("/nodes/<name>/remove", scope="operate", method="POST", nav="nodes")
def remove_node(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Remove a node that is gone."""
    name, cluster = ask.args["name"], ask.form.get("cluster") or None
    view = ask.gate.nodes.show(name, cluster)
    try:
        gone = ask.gate.nodes.remove(name, ask.by(), cluster)
    except CompatgateError as error:
        return _node_page(ask, view, error)
    where = f"{gone.row.name} of {gone.row.cluster}"
    return Redirect(link("nodes"), f"Removed {where}. The node returns with its next report.")


def _node_page(
    ask: PageRequest[Any], view: NodeView, error: CompatgateError | None = None
) -> HtmlPage:
    snapshot, standing = ask.gate.snapshot(), view.standing
    drifts = standing.driver == "not-blessed"
    beside = [
        share
        for target in (standing.targets if drifts else ())
        for share in count_shares(ask.gate.nodes.of_target(target), [target])
    ]
    skus = [kind["gpu"] for kind in view.row.gpus]
    pool = {one.target: single_pool(one.target, skus, snapshot) for one in standing.differences}
    context = {
        "view": view,
        "row": view.row,
        "standing": standing,
        "tones": STATES,
        "gpus": gpus_of(view),
        "title_of": drift_title,
        "belongings": target_matches(view, snapshot),
        "compared": compare_sources(view.row),
        "order": ORDER,
        "kinds": gpu_kinds(view, snapshot),
        "pools": _pools(compare_pools(view, snapshot)),
        "advice": advise(view, beside),
        "tried": lambda one: try_node_values(one, pool[one.target]),
        "error": error,
        "typed": ask.form,
    }
    return HtmlPage("node.html", view.row.name, context, status=error.status if error else 200)


def try_node_values(difference: Any, pool: str | None) -> str | None:
    """Return the link to a what-if with the node's value; None: the value is not known."""
    if difference.have is None:
        return None
    changes = {difference.what: difference.have}
    if difference.what not in ("driver", "gpu"):
        changes = {"set": f"{difference.what}={difference.have}"}
    return link("what-if", target=difference.target, pool=pool, **changes)


def _pools(found: tuple[PoolComparison, ...]) -> Table:
    columns = (
        Column("target", "Target"),
        Column("pool", "Pool"),
        Column("gpu", "GPU declared"),
        Column("has", "Reported"),
        Column("driver", "Driver declared", "code"),
        Column("same", "Reported", "badge"),
        Column("nodes", "Nodes declared", "number"),
    )
    lines = [
        (
            Cell(one.target, link("targets", one.target)),
            one.pool.name,
            one.pool.gpu.sku if one.pool.gpu else None,
            ", ".join(one.gpus) or Cell("none of these", tone="muted"),
            str(one.pool.driver) if one.pool.driver else None,
            _driver_cell(one),
            one.pool.count,
        )
        for one in found
    ]
    empty = EmptyNotice(
        "No matching target.",
        "A target selects nodes by match.nodeLabels, or by the annotation compatgate.dev/target.",
    )
    return make_table("pools", columns, lines, empty, label="pools")


def _driver_cell(one: PoolComparison) -> Cell:
    if one.same_driver is None:
        return Cell("not known", tone="unknown")
    if one.same_driver:
        return Cell("the same", tone="pass")
    return Cell("another", tone="fail" if one.gpus else "muted")


MAX_GROUPS = 20
_TRIED = 5
"""Number of groups with their failing entries; other groups have a link."""
_MAX_ENTRIES = 60
_DRIFT_COLUMNS = (
    Column("node", "Node"),
    Column("what", "Difference", "name"),
    Column("have", "Reported", "name"),
    Column("declared", "Declared", "name"),
    Column("state", "Driver state", "badge"),
    Column("target", "Target", "name"),
    Column("gpus", "GPUs", "name"),
    Column("cluster", "Cluster", "name"),
    Column("since", "Since", "time"),
    Column("seen", "Last seen", "time"),
)
_NO_DRIFT = EmptyNotice(
    "No drifted nodes.",
    "Only reported nodes are compared. Report the nodes of a cluster:",
    "kubectl get nodes -o json | compatgate k8s nodes --file - --report --cluster prod-eu",
)


class DriftQuery(PagedTableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of drifted nodes."""

    target: Filter | None = None
    what: DriftKind | None = None
    gpu: Filter | None = None
    cluster: Filter | None = None
    stale: YesOrNo | None = None


@page("/drift", nav="drift", query=DriftQuery)
def show_drift(ask: PageRequest[DriftQuery]) -> HtmlPage:
    """Show the groups of drifted nodes, then every drifted node."""
    query, snapshot, nodes = ask.query, ask.gate.snapshot(), ask.gate.nodes
    stored: dict[str, Any] = {
        "cluster": query.cluster,
        "gpu": query.gpu,
        "stale": yes_or_no(query.stale),
    }
    wanted: dict[str, Any] = {"target": query.target, "what": query.what, **stored}
    groups: Sequence[DriftGroup] = ()
    if query.cursor or query.format:  # the pages that follow, and a file, have the nodes alone
        found = fetch_rows(nodes.drift, query.cursor, **wanted)
    else:
        groups, found = nodes.drift_together(**wanted)
    lines = [line for view in found.items for line in _drift_rows(view, query)]
    table = make_list_table(
        "drift", _DRIFT_COLUMNS, lines, found, query, _NO_DRIFT, label="differences"
    )
    shown = groups[:MAX_GROUPS]
    context = {
        "query": query,
        "kinds": get_args(DriftKind),
        "groups": shown,
        "more": len(groups) - len(shown),
        "changed": _changed_targets(ask, shown),
        "lost": list(_lost_entries(ask, shown[:_TRIED])),
        "targets": choices(snapshot.documents),
        "tried": lambda one: try_node_values(one, one.pool),
        "among": _group_link,
        "node_link": node_link,
    }
    return HtmlPage("drift.html", "Drift", context, table=table)


def _drift_rows(view: NodeView, query: DriftQuery) -> list[tuple[Any, ...]]:
    row, state = view.row, view.standing.driver
    return [
        (
            node_cell(view),
            drift_title(one.what),
            one.have if one.have else Cell("not known", tone="muted"),
            ", ".join(one.declared) or "none",
            Cell(state, tone=STATES[state], title=view.standing.why),
            Cell(one.target, link("targets", one.target)),
            gpus_of(view),
            row.cluster,
            row.since,
            Cell(
                row.seen_at, tone="warn" if view.stale else "", note="stale" if view.stale else ""
            ),
        )
        for one in view.standing.differences
        if query.target in (None, one.target) and query.what in (None, one.what)
    ]


def _changed_targets(
    ask: PageRequest[Any], groups: Sequence[DriftGroup]
) -> dict[str, StoredDocument]:
    """Return the targets that changed after their nodes did, by name: their drift is younger."""
    found = {}
    for one in groups:
        with suppress(NotFound):  # deleted meanwhile
            target = ask.gate.matrix.get("Target", one.target)
            if target.updated_at > one.since:
                found[one.target] = target
    return found


def _lost_entries(ask: PageRequest[Any], groups: Sequence[DriftGroup]) -> Iterator[str]:
    """Yield, for each group, what would fail with its nodes' values; empty: not computed."""
    snapshot, now = ask.gate.snapshot(), clock.now()
    for one in groups:
        few = len(snapshot.matrix.entries.of(one.target)) <= _MAX_ENTRIES
        said = ""
        if one.have and few and ask.principal.may("gate"):
            with suppress(CompatgateError):  # what the facts do not know cannot be tried
                asked = {"target": one.target, "pool": one.pool, "set": {one.what: one.have}}
                said = answer_what_if(asked, snapshot, now).summary
        yield said


def _group_link(one: DriftGroup) -> str:
    """Return the link to the nodes of a group."""
    if one.have is None or one.what not in ("driver", "gpu"):
        return current_page_link(target=one.target, what=one.what, cursor=None, sort=None)
    return link("nodes", target=one.target, **{one.what: one.have})
