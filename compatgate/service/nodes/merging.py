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
from compatgate.service.admission.node_index import TIMESTAMPS
from compatgate.service.nodes.reports import (
    SourceKind,
    SourceReport,
    seen_node,
    source_reports,
    weigh_sources,
)
from compatgate.service.nodes.repository import NodeRow
from compatgate.service.nodes.schemas import NodeReport, Report

_MAX_AHEAD = timedelta(minutes=5)
_MAX_AGE = timedelta(days=366)
_NAMED = 50
"""Maximum number of nodes named in an audit link."""


class ReportedNode(Struct, frozen=True):
    """A node of a report, with its sources."""

    node: NodeReport
    at: datetime
    witnesses: dict[SourceKind, SourceReport]


def reported_nodes(report: Report, now: datetime, facts: Facts) -> dict[str, ReportedNode]:
    """Return the nodes of a report by name.

    Raises:
        BadInput: one is named twice, was seen in the future or long ago, or states a part that no
            node has; names the field.
    """
    found: dict[str, ReportedNode] = {}
    for number, node in enumerate(report.nodes):
        at = node.seen_at or now
        if node.name in found:
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
        found[node.name] = ReportedNode(node, at, sources)
    return found


def merge_nodes(
    report: Report,
    seen: Mapping[str, ReportedNode],
    known: Mapping[str, NodeRow],
    by: str,
    *,
    assigns: bool = False,
) -> list[NodeRow]:
    """Merge the nodes of a report with the stored ones.

    Args:
        report: nodes of one cluster.
        seen: the nodes, by name.
        known: as they are stored, by name.
        by: who reports.
        assigns: the targets that the report names replace those that labels lead to.
    """
    return [
        _merge_node(report.cluster, one, known.get(name), by, assigns=assigns)
        for name, one in seen.items()
    ]


def _merge_node(
    cluster: str, seen: ReportedNode, old: NodeRow | None, by: str, *, assigns: bool
) -> NodeRow:
    """Merge a node with its new report; an older report does not replace a newer one."""
    before = msgspec.convert(old.witnesses if old else {}, dict[SourceKind, SourceReport])
    heard = {
        who: witness
        for who, witness in seen.witnesses.items()
        if who not in before or before[who].seen_at <= witness.seen_at
    }
    witnesses = {**before, **heard}
    concluded = weigh_sources(witnesses)
    gpus: list[dict[str, Any]] = [msgspec.to_builtins(kind) for kind in concluded.gpus]
    read = "labels" in heard
    stored: dict[str, dict[str, Any]] = {
        who: witness.to_json() for who, witness in sorted(witnesses.items())
    }
    same = old is not None and (old.driver, old.gpus) == (concluded.driver, gpus)
    same = same and old is not None and not changed_parts(old.witnesses, stored)
    return NodeRow(
        cluster=cluster,
        name=seen.node.name,
        driver=concluded.driver,
        gpus=gpus,
        disagreements=list(concluded.disagreements),
        target=seen.node.target if read or old is None else old.target,
        labels=dict(seen.node.labels or {}) if read or old is None else old.labels,
        witnesses=stored,
        reported_by=by,
        first_seen_at=min(old.first_seen_at, seen.at) if old else seen.at,
        seen_at=max(old.seen_at, seen.at) if old else seen.at,
        since=old.since if old is not None and same else seen.at,
        taints=_reported_taints(seen.node, old) if read or old is None else old.taints,
        assigned=_assigned(seen.node, old, read=read, assigns=assigns),
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
    same = _steady(node.labels or {}) == _steady(old.labels) and node.target == old.target
    return old.assigned if same else None


def _steady(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in TIMESTAMPS}


def _reported_taints(node: NodeReport, old: NodeRow | None) -> list[dict[str, str]]:
    """Return the taints of a report; a reporter that names none keeps the previous ones."""
    if node.taints is None:
        return old.taints if old else []
    found = [msgspec.to_builtins(taint) for taint in node.taints]
    return sorted(found, key=lambda taint: (taint["key"], taint["effect"]))


def mark_changes(
    rows: Iterable[NodeRow], known: Mapping[str, NodeRow], now: datetime
) -> list[NodeRow]:
    """Note in each row when the gate stored what placement and drift read of it.

    Args:
        rows: of one cluster, as they are now.
        known: as they were, by name.
        now: by the gate's clock.
    """
    return [
        replace(row, changed_at=now)
        if (old := known.get(row.name)) is None or _noted_of(old) != _noted_of(row)
        else replace(row, changed_at=old.changed_at)
        for row in rows
    ]


def _noted_of(row: NodeRow) -> tuple[Any, ...]:
    """Return what gates keep in memory of a node."""
    return *_placement_of(row), row.since, seen_node(row.witnesses)


def _placement_of(row: NodeRow) -> tuple[Any, ...]:
    resources = row.witnesses.get("kubelet", {}).get("resources", {})
    offered = sorted(name for name, count in resources.items() if count)
    named = row.target, row.assigned
    return row.labels, row.taints, named, row.driver, [g["gpu"] for g in row.gpus], offered


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


def _audited_change(old: NodeRow, new: NodeRow) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (old.driver, old.gpus) != (new.driver, new.gpus):
        found |= {"driver": [old.driver, new.driver], "gpus": [old.gpus, new.gpus]}
    if parts := changed_parts(old.witnesses, new.witnesses):
        found["node"] = parts
    for name in ("target", "assigned"):
        values = [getattr(row, name) for row in (old, new)]
        if values[0] != values[1]:
            found[name] = values
    return found


def audit_details(rows: list[NodeRow], known: Mapping[str, NodeRow]) -> dict[str, Any]:
    """Return the details for the audit log: new nodes; changed drivers, GPUs, parts and targets."""
    new = [row.name for row in rows if row.name not in known]
    changed = {
        row.name: change
        for row in rows
        if (old := known.get(row.name)) and (change := _audited_change(old, row))
    }
    if not new and not changed:
        return {}
    named = dict(sorted(changed.items())[:_NAMED])
    counts = {"new": len(new), "changed": len(changed)}
    return {"counts": counts, "new": sorted(new)[:_NAMED], "changed": named}
