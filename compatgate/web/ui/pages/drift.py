"""Drift: nodes that are not what their targets declare, together and one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from compatgate.core.nodes import What
from compatgate.errors import CompatgateError, NotFound
from compatgate.gate.nodes.drifted import Drifted
from compatgate.gate.nodes.view import NodeView
from compatgate.gate.whatif import what_if
from compatgate.store import clock
from compatgate.store.rows import Stored
from compatgate.web.paging import Filter
from compatgate.web.ui.forms import choices
from compatgate.web.ui.links import here, link
from compatgate.web.ui.listing import LongListing, rows_of, table_of
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.pages.nodes import (
    STATES,
    Answer,
    chosen,
    gpus_of,
    node_cell,
    node_link,
    tried,
)
from compatgate.web.ui.tables import Cell, Column, Empty

MOST_GROUPS = 20
_TRIED = 5
"""Groups of which it is said what no longer holds there; the others lead to it."""
_MOST_ENTRIES = 60
_COLUMNS = (
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
_NONE = Empty(
    "No drifted nodes.",
    "Only reported nodes are compared. Report the nodes of a cluster:",
    "kubectl get nodes -o json | compatgate k8s nodes --file - --report --cluster prod-eu",
)


class DriftQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which drifted nodes."""

    target: Filter | None = None
    what: What | None = None
    gpu: Filter | None = None
    cluster: Filter | None = None
    stale: Answer | None = None


@page("/drift", nav="drift", query=DriftQuery)
def show(ask: Ask[DriftQuery]) -> Shown:
    """What differs, since when, on how many nodes of how many; then each of them."""
    query, snapshot, nodes = ask.query, ask.gate.snapshot(), ask.gate.nodes
    stored: dict[str, Any] = {
        "cluster": query.cluster,
        "gpu": query.gpu,
        "stale": chosen(query.stale),
    }
    wanted: dict[str, Any] = {"target": query.target, "what": query.what, **stored}
    groups: Sequence[Drifted] = ()
    if query.cursor or query.format:  # the pages that follow, and a file, have the nodes alone
        found = rows_of(nodes.drift, query.cursor, **wanted)
    else:
        groups, found = nodes.drift_together(**wanted)
    lines = [line for view in found.items for line in _lines(view, query)]
    table = table_of("drift", _COLUMNS, lines, found, query, _NONE, label="differences")
    shown = groups[:MOST_GROUPS]
    context = {
        "query": query,
        "groups": shown,
        "more": len(groups) - len(shown),
        "changed": _changed(ask, shown),
        "lost": list(_lost(ask, shown[:_TRIED])),
        "targets": choices(snapshot.documents),
        "tried": lambda one: tried(one, one.pool),
        "among": _among,
        "node_link": node_link,
    }
    return Shown("drift.html", "Drift", context, table=table)


def _lines(view: NodeView, query: DriftQuery) -> list[tuple[Any, ...]]:
    row, state = view.row, view.standing.driver
    return [
        (
            node_cell(view),
            "GPU" if one.what == "gpu" else one.what,
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


def _changed(ask: Ask[Any], groups: Sequence[Drifted]) -> dict[str, Stored]:
    """Targets that were changed after their nodes became what they are: the drift is younger."""
    found = {}
    for one in groups:
        with suppress(NotFound):  # deleted meanwhile
            target = ask.gate.matrix.get("Target", one.target)
            if target.updated_at > one.since:
                found[one.target] = target
    return found


def _lost(ask: Ask[Any], groups: Sequence[Drifted]) -> Iterator[str]:
    """What of each group's target would not hold with what its nodes have; empty: not tried."""
    snapshot, now = ask.gate.snapshot(), clock.now()
    for one in groups:
        few = len(snapshot.matrix.entries.of(one.target)) <= _MOST_ENTRIES
        said = ""
        if one.have and few and ask.principal.may("gate"):
            with suppress(CompatgateError):  # what the facts do not know cannot be tried
                changes: dict[str, Any] = {one.what: one.have}
                said = what_if(snapshot, one.target, changes, now, pool=one.pool).summary
        yield said


def _among(one: Drifted) -> str:
    """The nodes of a group in the list of nodes, or below."""
    if one.have is None:
        return here(target=one.target, what=one.what, cursor=None, sort=None)
    return link("nodes", target=one.target, **{one.what: one.have})
