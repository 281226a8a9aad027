"""Merge a report with the stored nodes, and tell what changed for the audit log and for gates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.errors import BadInput
from compatgate.service.cluster.node_index import TIMESTAMPS
from compatgate.service.nodes.reports import seen_node, source_reports, weigh_sources
from compatgate.service.nodes.repository import NodeRow
from compatgate.service.nodes.schemas import NodeReport, Report, SourceKind, WitnessBody

_MAX_AHEAD = timedelta(minutes=5)
_MAX_AGE = timedelta(days=366)
_NAMED = 50
"""Maximum number of nodes named in an audit link."""


class ReportedNode(Struct, frozen=True):
    """A node of a report, with its sources."""

    node: NodeReport
    at: datetime
    witnesses: dict[SourceKind, WitnessBody]


def reported_nodes(report: Report, now: datetime, facts: Facts) -> dict[str, ReportedNode]:
    """Return the nodes of a report by name."""
    nodes: dict[str, ReportedNode] = {}
    for number, node in enumerate(report.nodes):
        at = node.seen_at or now
        if node.name in nodes:
            field = f"nodes[{number}].name"
            raise BadInput("is listed twice in the report", field=field, value=node.name)
        if at > now + _MAX_AHEAD:
            field, hint = f"nodes[{number}].seen_at", "set the reporter's clock"
            raise BadInput("is in the future", field=field, value=str(at), hint=hint)
        if at < now - _MAX_AGE:
            field, hint = f"nodes[{number}].seen_at", "report what was seen within the last year"
            raise BadInput("is long ago", field=field, value=str(at), hint=hint)
        at = min(at, now)
        try:
            sources = source_reports(node, at, facts)
        except BadInput as error:
            raise error.at(f"nodes[{number}].probe") from None
        nodes[node.name] = ReportedNode(node, at, sources)
    return nodes


def merge_nodes(
    report: Report,
    seen: Mapping[str, ReportedNode],
    known: Mapping[str, NodeRow],
    by: str,
    *,
    assigns: bool = False,
) -> list[NodeRow]:
    """Merge the nodes of a report, by name, with the stored ones.

    ``assigns``: the targets that the report names replace those that labels lead to.
    """
    return [
        _merge_node(report.cluster, one, known.get(name), by, assigns=assigns)
        for name, one in seen.items()
    ]


def _merge_node(
    cluster: str, seen: ReportedNode, old: NodeRow | None, by: str, *, assigns: bool
) -> NodeRow:
    """Merge a node with its new report; an older report does not replace a newer one."""
    before = msgspec.convert(old.witnesses if old else {}, dict[SourceKind, WitnessBody])
    newer = {
        kind: witness
        for kind, witness in seen.witnesses.items()
        if kind not in before or before[kind].seen_at <= witness.seen_at
    }
    witnesses = {**before, **newer}
    concluded = weigh_sources(witnesses)
    gpus = [msgspec.to_builtins(kind) for kind in concluded.gpus]
    stored: dict[str, dict[str, Any]] = {
        kind: msgspec.to_builtins(one) for kind, one in sorted(witnesses.items())
    }
    taints = old.taints if old else []
    if seen.node.taints is not None:  # a reporter that names none keeps the previous ones
        taints = [msgspec.to_builtins(taint) for taint in seen.node.taints]
        taints.sort(key=lambda taint: (taint["key"], taint["effect"]))
    row = NodeRow(
        cluster=cluster,
        name=seen.node.name,
        driver=concluded.driver,
        gpus=gpus,
        disagreements=list(concluded.disagreements),
        target=seen.node.target,
        labels=dict(seen.node.labels or {}),
        witnesses=stored,
        reported_by=by,
        first_seen_at=seen.at,
        seen_at=seen.at,
        since=seen.at,
        taints=taints,
        assigned=_assigned(seen.node, old, read="labels" in newer, assigns=assigns),
    )
    if old is None:
        return row
    if "labels" not in newer:  # target and taints are read with the labels
        row = replace(row, target=old.target, labels=old.labels, taints=old.taints)
    same = (old.driver, old.gpus) == (row.driver, gpus)
    same = same and not changed_parts(old.witnesses, stored)
    return replace(
        row,
        first_seen_at=min(old.first_seen_at, seen.at),
        seen_at=max(old.seen_at, seen.at),
        since=old.since if same else seen.at,
    )


def _assigned(node: NodeReport, old: NodeRow | None, *, read: bool, assigns: bool) -> str | None:
    """Return the target that the scope ``bless`` assigned a node to; empty: its labels decide.

    What others report changes no assignment; other labels than those seen with ``bless`` end the
    certainty that labels decide.
    """
    if assigns and (read or old is None):
        return node.target or ""
    if old is None or old.assigned or not read:
        return old.assigned if old else None
    labels, known = (
        {key: value for key, value in one.items() if key not in TIMESTAMPS}
        for one in (node.labels or {}, old.labels)
    )
    return old.assigned if labels == known and node.target == old.target else None


def mark_changes(
    rows: Iterable[NodeRow], known: Mapping[str, NodeRow], now: datetime
) -> list[NodeRow]:
    """Note in each row when, by the gate's clock, what placement and drift read of it changed."""
    marked = []
    for row in rows:
        old = known.get(row.name)
        same = old is not None and _noted_of(old) == _noted_of(row)
        marked.append(replace(row, changed_at=old.changed_at if old and same else now))
    return marked


def _noted_of(row: NodeRow) -> tuple[Any, ...]:
    resources = row.witnesses.get("kubelet", {}).get("resources", {})
    offered = sorted(name for name, count in resources.items() if count)
    skus, targets = [kind["gpu"] for kind in row.gpus], (row.target, row.assigned)
    placement = (row.labels, row.taints, targets, row.driver, skus, offered)
    return *placement, row.since, seen_node(row.witnesses)


def changed_parts(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Return the platform and parts whose values changed, as ``[old, new]``.

    A part that was not seen before, or is not seen any more, has not changed.
    """
    old, new = seen_node(before), seen_node(after)
    parts = dict(new.node)
    changed = {n: [v, parts[n]] for n, v in old.node if n in parts and parts[n] != v}
    if old.platform and new.platform and old.platform != new.platform:
        changed["platform"] = [old.platform, new.platform]
    return changed


def audit_details(rows: list[NodeRow], known: Mapping[str, NodeRow]) -> dict[str, Any]:
    """Return the details for the audit log: new nodes; changed drivers, GPUs, parts and targets."""
    new, changed = [row.name for row in rows if row.name not in known], {}
    for row in rows:
        if (old := known.get(row.name)) is None:
            continue
        change: dict[str, Any] = {}
        if (old.driver, old.gpus) != (row.driver, row.gpus):
            change |= {"driver": [old.driver, row.driver], "gpus": [old.gpus, row.gpus]}
        if parts := changed_parts(old.witnesses, row.witnesses):
            change["node"] = parts
        if old.target != row.target:
            change["target"] = [old.target, row.target]
        if old.assigned != row.assigned:
            change["assigned"] = [old.assigned, row.assigned]
        if change:
            changed[row.name] = change
    if not new and not changed:
        return {}
    named = dict(sorted(changed.items())[:_NAMED])
    counts = {"new": len(new), "changed": len(changed)}
    return {"counts": counts, "new": sorted(new)[:_NAMED], "changed": named}
