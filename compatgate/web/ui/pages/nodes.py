"""Nodes: what was seen of each, who says so, and what the matrix makes of it."""

from __future__ import annotations

from typing import Any, Literal

from compatgate.core.nodes import DriverState
from compatgate.errors import CompatgateError
from compatgate.gate.cluster.advice import advise, shares
from compatgate.gate.nodes.compared import ORDER, compare
from compatgate.gate.nodes.conclude import shown_gpus
from compatgate.gate.nodes.declared import (
    PoolBeside,
    belongings,
    beside_pools,
    kinds_of,
    only_pool,
)
from compatgate.gate.nodes.view import NodeView
from compatgate.gate.nodes.witnesses import Gpus
from compatgate.web.paging import Filter, Search
from compatgate.web.ui.forms import choices
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import Listing, LongListing, found_by, table_of
from compatgate.web.ui.page import Ask, Goto, Shown, page
from compatgate.web.ui.tables import Cell, Column, Empty, Table, make

Answer = Literal["yes", "no"]
STATES: dict[DriverState, str] = {"blessed": "pass", "not-blessed": "fail", "unknown": "unknown"}
"""Tones of what the matrix says of a driver."""
_COLUMNS = (
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
_NONE = Empty(
    "No nodes.",
    "Nodes appear here once they report: from the labels of a cluster, or from the driver itself.",
    "kubectl get nodes -o json | compatgate k8s nodes --file - --report --cluster prod-eu",
)


class NodeQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which nodes."""

    search: Search | None = None
    cluster: Filter | None = None
    target: Filter | None = None
    gpu: Filter | None = None
    driver: Filter | None = None
    driver_state: DriverState | None = None
    disagrees: Answer | None = None
    stale: Answer | None = None


class Where(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which node of that name."""

    cluster: Filter | None = None


def chosen(answer: Answer | None) -> bool | None:
    """``yes`` or ``no`` as the gate's lists take it."""
    return None if answer is None else answer == "yes"


@page("/nodes", nav="nodes", query=NodeQuery)
def listing(ask: Ask[NodeQuery]) -> Shown:
    """Nodes by cluster and name."""
    query, snapshot = ask.query, ask.gate.snapshot()
    answers = {"disagrees": chosen(query.disagrees), "stale": chosen(query.stale)}
    found = found_by(ask.gate.nodes.list, query, **answers)
    lines = [_line(view) for view in found.items]
    table = table_of("nodes", _COLUMNS, lines, found, query, _NONE)
    context = {
        "query": query,
        "targets": choices(snapshot.documents),
        "gpus": choices(pool.gpu for t in snapshot.documents.values() for pool in t.spec.pools),
        "states": tuple(STATES),
    }
    return Shown("nodes.html", "Nodes", context, table=table)


def _line(view: NodeView) -> tuple[Any, ...]:
    row, standing = view.row, view.standing
    first = standing.targets[0] if len(standing.targets) == 1 else None
    disagree = bool(row.disagreements)
    return (
        node_cell(view),
        Cell(standing.driver, tone=STATES[standing.driver], title=standing.why),
        row.driver,
        "; ".join(_short(one) for one in standing.differences),
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
    """A node's name, which leads to its page."""
    return Cell(view.row.name, node_link(view.row.cluster, view.row.name))


def node_link(cluster: str, name: str) -> str:
    """The page of a node; other clusters may have one of this name."""
    return link("nodes", name, cluster=cluster)


def gpus_of(view: NodeView) -> str:
    """``8 x L4``."""
    if not view.row.gpus:
        return "not known"
    return shown_gpus(Gpus(one["gpu"], one["count"]) for one in view.row.gpus)


def _short(one: Any) -> str:
    name = "GPU" if one.what == "gpu" else one.what
    return f"{name}, declared {', '.join(one.declared) or 'none'}"


@page("/nodes/<name>", nav="nodes", query=Where)
def show(ask: Ask[Where]) -> Shown:
    """One node: its witnesses, its targets, what to do about it."""
    name, cluster = ask.args["name"], ask.query.cluster
    clusters = ask.gate.nodes.clusters_of(name)
    if cluster is None and len(clusters) > 1:
        return Shown("node-clusters.html", name, {"clusters": clusters})
    return _shown(ask, ask.gate.nodes.show(name, cluster))


@page("/nodes/<name>/remove", scope="operate", method="POST", nav="nodes")
def remove(ask: Ask[Any]) -> Shown | Goto:
    """Forget a node that is gone."""
    name, cluster = ask.args["name"], ask.form.get("cluster") or None
    view = ask.gate.nodes.show(name, cluster)
    try:
        gone = ask.gate.nodes.remove(name, ask.by(), cluster)
    except CompatgateError as error:
        return _shown(ask, view, error)
    where = f"{gone.row.name} of {gone.row.cluster}"
    return Goto(link("nodes"), f"Removed {where}. It comes back with its next report.")


def _shown(ask: Ask[Any], view: NodeView, error: CompatgateError | None = None) -> Shown:
    snapshot, standing = ask.gate.snapshot(), view.standing
    drifts = standing.driver == "not-blessed"
    beside = shares(ask.gate.nodes.each(), standing.targets) if drifts else ()
    skus = [kind["gpu"] for kind in view.row.gpus]
    pool = {one.target: only_pool(one.target, skus, snapshot) for one in standing.differences}
    context = {
        "view": view,
        "row": view.row,
        "standing": standing,
        "tones": STATES,
        "gpus": gpus_of(view),
        "belongings": belongings(view, snapshot),
        "compared": compare(view.row),
        "order": ORDER,
        "kinds": kinds_of(view, snapshot),
        "pools": _pools(beside_pools(view, snapshot)),
        "advice": advise(view, beside),
        "tried": lambda one: tried(one, pool[one.target]),
        "error": error,
        "typed": ask.form,
    }
    return Shown("node.html", view.row.name, context, status=error.status if error else 200)


def tried(difference: Any, pool: str | None) -> str | None:
    """What if the target had what the node has; None: that is not known."""
    if difference.have is None:
        return None
    return link(
        "what-if", target=difference.target, pool=pool, **{difference.what: difference.have}
    )


def _pools(found: tuple[PoolBeside, ...]) -> Table:
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
            _same(one),
            one.pool.count,
        )
        for one in found
    ]
    empty = Empty(
        "No matching target.",
        "A target selects nodes by match.nodeLabels, or by the annotation compatgate.dev/target.",
    )
    return make("pools", columns, lines, empty, label="pools")


def _same(one: PoolBeside) -> Cell:
    if one.same_driver is None:
        return Cell("not known", tone="unknown")
    if one.same_driver:
        return Cell("the same", tone="pass")
    return Cell("another", tone="fail" if one.gpus else "muted")
