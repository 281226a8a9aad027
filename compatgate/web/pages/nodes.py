"""Show nodes, their sources and targets, and drift."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

from msgspec import Struct
from sqlalchemy import select

from compatgate.core.request import DriftKind, DriverState, drift_title
from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.database.tables import Page as Part
from compatgate.kit.http.links import current_page_link, link
from compatgate.kit.http.schemas import Filter
from compatgate.kit.ui.tables import (
    SHOWN_ROWS,
    Cell,
    TableQuery,
    fetch_rows,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.changes.comparison.service import answer_what_if
from compatgate.service.matrix.documents.models import Target
from compatgate.service.nodes.comparison import NodeView
from compatgate.service.nodes.details import (
    ORDER,
    PoolComparison,
    compare_pools,
    compare_sources,
    gpu_kinds,
    single_pool,
    target_matches,
)
from compatgate.service.nodes.fleet import DriftGroup
from compatgate.service.nodes.reports import format_gpus
from compatgate.service.nodes.schemas import DriftFilters, GpusBody, NodeFilters
from compatgate.web.page import HtmlPage, PageRequest, Redirect, choices, listing, page

STATES: dict[DriverState, str] = {"blessed": "pass", "not-blessed": "fail", "unknown": "unknown"}
"""Tones of driver states."""
MAX_GROUPS = 20
_TRIED = 5
"""Number of groups with their failing entries; other groups have a link."""
_MAX_ENTRIES = 60
YesOrNo = Literal["yes", "no"]
NodeQuery = make_page_query(NodeFilters, disagrees=YesOrNo, stale=YesOrNo)
DriftQuery = make_page_query(DriftFilters, stale=YesOrNo, every=Literal["yes"])


class ClusterQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The cluster of a node."""

    cluster: Filter | None = None


def yes_or_no(answer: YesOrNo | None) -> bool | None:
    """Convert ``yes`` or ``no`` to a filter of the gate's lists."""
    return None if answer is None else answer == "yes"


@page("/nodes", nav="nodes", query=NodeQuery)
def show_nodes(ask: PageRequest[Any]) -> HtmlPage:
    """Show nodes by cluster and name."""
    query, names = ask.query, ask.gate.snapshot().documents
    answers = {"disagrees": yes_or_no(query.disagrees), "stale": yes_or_no(query.stale)}
    found = list_rows(ask.rooms.nodes.list, query, **answers)
    table = make_list_table(listing("nodes"), found, query, _node_cells)
    context = {"targets": choices(names), "states": tuple(STATES)}
    return HtmlPage("nodes.html", "Nodes", context, table)


def _node_cells(view: NodeView) -> dict[str, Any]:
    row, standing = view.row, view.standing
    sources, tone = ("agree", "pass") if len(row.witnesses) > 1 else ("only one", "muted")
    if row.disagreements:
        sources, tone = "disagree", "warn"
    drift = [
        f"{drift_title(one.what)}, declared {', '.join(one.declared) or 'none'}"
        for one in standing.differences
    ]
    only = link("targets", standing.targets[0]) if len(standing.targets) == 1 else None
    return {
        **_shared_cells(view),
        "drift": "; ".join(drift),
        "witnesses": Cell(sources, tone=tone, title="; ".join(row.disagreements)),
        "targets": Cell(", ".join(standing.targets) or None, only),
    }


def _shared_cells(view: NodeView) -> dict[str, Any]:
    row, state = view.row, view.standing.driver
    tone, note = ("warn", "stale") if view.stale else ("", "")
    return {
        "name": Cell(row.name, node_link(row.cluster, row.name)),
        "state": Cell(state, tone=STATES[state], title=view.standing.why),
        "gpus": gpus_of(view),
        "seen": Cell(row.seen_at, tone=tone, note=note),
    }


def node_link(cluster: str, name: str) -> str:
    """Return the link to a node's page; the name may exist in several clusters."""
    return link("nodes", name, cluster=cluster)


def gpus_of(view: NodeView) -> str:
    """Format GPUs as ``8 x L4``."""
    gpus = (GpusBody(one["gpu"], one["count"]) for one in view.row.gpus)
    return format_gpus(gpus) if view.row.gpus else "not known"


@page("/nodes/<name>", nav="nodes", query=ClusterQuery)
def show_node(ask: PageRequest[ClusterQuery]) -> HtmlPage:
    """Show a node: its sources and its targets."""
    name, cluster = ask.args["name"], ask.query.cluster
    clusters = ask.rooms.nodes.clusters_of(name)
    if cluster is None and len(clusters) > 1:
        return HtmlPage("node-clusters.html", name, {"clusters": clusters})
    return _node_page(ask, ask.rooms.nodes.show(name, cluster))


def _node_page(ask: PageRequest[Any], view: NodeView) -> HtmlPage:
    snapshot, standing = ask.gate.snapshot(), view.standing
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
        "pools": make_table(listing("node-pools"), compare_pools(view, snapshot), _pool_cells),
        "tried": lambda one: try_node_values(one, pool[one.target]),
    }
    return HtmlPage("node.html", view.row.name, context)


def _show_posted(ask: PageRequest[Any]) -> HtmlPage:
    cluster = ask.form.get("cluster") or None
    return _node_page(ask, ask.rooms.nodes.show(ask.args["name"], cluster))


@page("/nodes/<name>/remove", scope="operate", method="POST", nav="nodes", refused=_show_posted)
def remove_node(ask: PageRequest[Any]) -> Redirect:
    """Remove a node that is gone."""
    cluster = ask.form.get("cluster") or None
    row = ask.rooms.nodes.remove(ask.args["name"], ask.by(), cluster).row
    done = f"Removed {row.name} of {row.cluster}. The node returns with its next report."
    return Redirect(link("nodes"), done)


def try_node_values(difference: Any, pool: str | None) -> str | None:
    """Return the link to a what-if with the node's value; None: the value is not known."""
    if difference.have is None:
        return None
    changes = {difference.what: difference.have}
    if difference.what not in ("driver", "gpu"):
        changes = {"set": f"{difference.what}={difference.have}"}
    return link("what-if", target=difference.target, pool=pool, **changes)


def _pool_cells(one: PoolComparison) -> dict[str, Any]:
    other = Cell("another", tone="fail" if one.gpus else "muted")
    answers = {None: Cell("not known", tone="unknown"), True: Cell("the same", tone="pass")}
    return {
        "gpu": one.pool.gpu.sku if one.pool.gpu else None,
        "driver": str(one.pool.driver) if one.pool.driver else None,
        "has": one.gpus or Cell("none of these", tone="muted"),
        "same": answers.get(one.same_driver, other),
    }


@page("/drift", nav="drift", query=DriftQuery)
def show_drift(ask: PageRequest[Any]) -> HtmlPage:
    """Show the groups of drifted nodes; then the nodes, if they are few, narrowed or asked for."""
    query, nodes = ask.query, ask.rooms.nodes
    wanted = {name: getattr(query, name) for name in ("target", "what", "cluster", "gpu")}
    wanted["stale"] = yes_or_no(query.stale)
    groups: Sequence[DriftGroup] = ()
    if not (query.cursor or query.format):  # the pages that follow, and a file, have nodes alone
        groups = nodes.group_drift(**wanted)
    total = sum(one.nodes for one in groups)
    table = None
    if total <= SHOWN_ROWS or query.every or query.sort or any(wanted.values()):
        found = fetch_rows(nodes.drift, query.cursor, **wanted)
        listed = Part(tuple(list_differences(found.items, query.target, query.what)), found.next)
        table = make_list_table(listing("drift"), listed, query, difference_cells)
    leading = groups[:MAX_GROUPS]
    context = {
        "kinds": get_args(DriftKind),
        "groups": leading,
        "total": total,
        "more": len(groups) - len(leading),
        "changed": _changed_targets(ask, leading),
        "lost": list(_lost_entries(ask, leading[:_TRIED])),
        "targets": choices(ask.gate.snapshot().documents),
        "tried": lambda one: try_node_values(one, one.pool),
        "among": lambda one: (
            current_page_link(target=one.target, what=one.what, cursor=None, sort=None)
            if one.have is None or one.what not in ("driver", "gpu")
            else link("nodes", target=one.target, **{one.what: one.have})
        ),
        "node_link": node_link,
    }
    return HtmlPage("drift.html", "Drift", context, table)


class NodeDifference(Struct, frozen=True):
    """A difference between a node and a target."""

    view: NodeView
    difference: Any


def list_differences(
    views: Iterable[NodeView], target: str | None = None, what: str | None = None
) -> Iterator[NodeDifference]:
    """Yield the differences of nodes: all, or those with a target, or of a kind."""
    for view in views:
        for one in view.standing.differences:
            if target in (None, one.target) and what in (None, one.what):
                yield NodeDifference(view, one)


def difference_cells(one: NodeDifference) -> dict[str, Any]:
    """Return the cells of a difference in the table of drift."""
    difference, shared = one.difference, _shared_cells(one.view)
    return {
        **shared,
        "node": shared["name"],
        "what": Cell(drift_title(difference.what), title=difference.message),
        "have": difference.have or Cell("not known", tone="muted"),
        "declared": difference.declared or "none",
    }


def _changed_targets(ask: PageRequest[Any], groups: Sequence[DriftGroup]) -> dict[str, Any]:
    """Return the targets that changed after their nodes did, by name: their drift is younger."""
    query = select(Target.name, Target.revision, Target.updated_at)
    query = query.where(Target.name.in_([one.target for one in groups]))
    with ask.gate.database.reading() as session:
        targets = {row.name: row for row in session.execute(query)}
    return {
        one.target: targets[one.target]
        for one in groups
        if one.target in targets and targets[one.target].updated_at > one.since
    }


def _lost_entries(ask: PageRequest[Any], groups: Sequence[DriftGroup]) -> Iterator[str]:
    """Yield, for each group, what would fail with its nodes' values; empty: not computed."""
    snapshot, now = ask.gate.snapshot(), clock.now()
    for one in groups:
        few = len(snapshot.matrix.entries.of(one.target)) <= _MAX_ENTRIES
        summary = ""
        if one.have and few and ask.principal.may("gate"):
            with suppress(CompatgateError):  # what the facts do not know cannot be tried
                question = {"target": one.target, "pool": one.pool, "set": {one.what: one.have}}
                summary = answer_what_if(question, snapshot, now).summary
        yield summary
