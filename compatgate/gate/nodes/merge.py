"""A report laid over what is known: what changes, and what the audit log is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.errors import BadInput
from compatgate.gate.nodes.conclude import conclude
from compatgate.gate.nodes.witnesses import Who, Witness, witnesses_of
from compatgate.store.nodes import NodeRow
from compatgate.wire.node_reports import NodeReport, Report

_AHEAD = timedelta(minutes=5)
_AGO = timedelta(days=366)
_NAMED = 50
"""Nodes that an audit link names."""


class Seen(Struct, frozen=True):
    """A node of a report, and what its witnesses say."""

    node: NodeReport
    at: datetime
    witnesses: dict[Who, Witness]


def seen_in(report: Report, now: datetime, facts: Facts) -> dict[str, Seen]:
    """The nodes of a report by name.

    Raises:
        BadInput: one is named twice, or was seen in the future or long ago; names the field.
    """
    found: dict[str, Seen] = {}
    for number, node in enumerate(report.nodes):
        at = node.seen_at or now
        if node.name in found:
            field = f"nodes[{number}].name"
            raise BadInput("is in the report already", field=field, value=node.name)
        if at > now + _AHEAD:
            field, hint = f"nodes[{number}].seen_at", "set the reporter's clock"
            raise BadInput("is in the future", field=field, value=str(at), hint=hint)
        if at < now - _AGO:
            field, hint = f"nodes[{number}].seen_at", "report what was seen within the last year"
            raise BadInput("is long ago", field=field, value=str(at), hint=hint)
        at = min(at, now)
        found[node.name] = Seen(node, at, witnesses_of(node, at, facts))
    return found


def merged(
    report: Report, seen: Mapping[str, Seen], known: Mapping[str, NodeRow], by: str
) -> list[NodeRow]:
    """The nodes of a report as they are to be kept."""
    return [_merge(report.cluster, one, known.get(name), by) for name, one in seen.items()]


def _merge(cluster: str, seen: Seen, old: NodeRow | None, by: str) -> NodeRow:
    """A node with what was seen now; a witness that was heard later already is not set back."""
    before = msgspec.convert(old.witnesses if old else {}, dict[Who, Witness])
    heard = {
        who: witness
        for who, witness in seen.witnesses.items()
        if who not in before or before[who].seen_at <= witness.seen_at
    }
    witnesses = {**before, **heard}
    concluded = conclude(witnesses)
    gpus: list[dict[str, Any]] = [msgspec.to_builtins(kind) for kind in concluded.gpus]
    read = "labels" in heard
    same = old is not None and (old.driver, old.gpus) == (concluded.driver, gpus)
    return NodeRow(
        cluster=cluster,
        name=seen.node.name,
        driver=concluded.driver,
        gpus=gpus,
        disagreements=list(concluded.disagreements),
        target=seen.node.target if read or old is None else old.target,
        labels=dict(seen.node.labels or {}) if read or old is None else old.labels,
        witnesses={who: witness.to_json() for who, witness in sorted(witnesses.items())},
        reported_by=by,
        first_seen_at=min(old.first_seen_at, seen.at) if old else seen.at,
        seen_at=max(old.seen_at, seen.at) if old else seen.at,
        since=old.since if old is not None and same else seen.at,
    )


def told(rows: list[NodeRow], known: Mapping[str, NodeRow]) -> dict[str, Any]:
    """What the audit log is told: nodes that are new, or have another driver or other GPUs."""
    new = [row.name for row in rows if row.name not in known]
    changed = {
        row.name: {"driver": [old.driver, row.driver], "gpus": [old.gpus, row.gpus]}
        for row in rows
        if (old := known.get(row.name)) and (old.driver, old.gpus) != (row.driver, row.gpus)
    }
    if not new and not changed:
        return {}
    named = dict(sorted(changed.items())[:_NAMED])
    counts = {"new": len(new), "changed": len(changed)}
    return {"counts": counts, "new": sorted(new)[:_NAMED], "changed": named}
