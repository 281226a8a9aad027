"""PolicyReport and ClusterPolicyReport objects, small enough for a cluster to keep. Pure.

Source: kubernetes-sigs/wg-policy-prototypes, ``policy-report/crd``, ``wgpolicyk8s.io/v1alpha2``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.gate.admission.review import one_line
from compatgate.gate.cluster.audit import Outcome, Result

GROUP, VERSION = "wgpolicyk8s.io", "v1alpha2"
NAME = "compatgate"
LABELS = {"app.kubernetes.io/managed-by": NAME}
"""Reports without this label are somebody else's."""
LEFT_OUT = "compatgate.dev/results-left-out"
"""Annotation: how many results had no room; the summary counts them all the same."""
MOST_RESULTS = 2000
LARGEST = 768 * 1024
"""Bytes of results; the API server refuses objects beyond 1.5 MiB (etcd)."""
_LONGEST_MESSAGE = 500
_ORDER: tuple[Outcome, ...] = ("fail", "error", "warn", "skip", "pass")
_SEVERITY: dict[Outcome, str] = {"fail": "high", "error": "medium", "warn": "low"}


class Entry(Struct, frozen=True):
    """A result about one object, before it has a time."""

    outcome: Outcome
    rule: str
    message: str
    subject: dict[str, str]
    scored: bool
    properties: dict[str, str]


def of_pod(result: Result) -> Entry:
    """A result of the audit of pods."""
    pod = result.pod
    properties = {
        "target": result.target,
        "containers": ", ".join(result.containers),
        "image": result.image,
        "verdict": result.verdict,
        "mode": result.mode,
        "node": pod.node,
    }
    subject = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name}
    if pod.uid:
        subject["uid"] = pod.uid
    return Entry(result.outcome, result.rule, result.message, subject, result.scored, properties)


def of_node(node: Mapping[str, Any]) -> Entry:
    """What the gate makes of a node: its driver first, then what else it differs in.

    Args:
        node: as ``GET /api/v1/nodes`` shows it.
    """
    states: dict[str, Outcome] = {"blessed": "pass", "not-blessed": "fail", "unknown": "error"}
    outcome = states[node["driver_state"]]
    said = [node["driver_why"], *(one["message"] for one in node["drift"]), *node["disagreements"]]
    if outcome == "pass" and len(said) > 1:
        outcome = "warn"
    properties = {
        "targets": ", ".join(node["targets"]),
        "driver": node["driver"] or "",
        "driver_state": node["driver_state"],
    }
    subject = {"apiVersion": "v1", "kind": "Node", "name": node["name"]}
    return Entry(outcome, "driver", "; ".join(said), subject, outcome != "warn", properties)


def report_object(entries: Iterable[Entry], namespace: str | None, at: datetime) -> dict[str, Any]:
    """The report of a namespace, or of the cluster.

    The worst results come first, and what has no room is counted and left out from the end.

    Args:
        entries: all that was found.
        namespace: None: a ClusterPolicyReport.
        at: when it was found.
    """
    ordered = sorted(entries, key=lambda e: (_ORDER.index(e.outcome), sorted(e.subject.items())))
    kept: list[dict[str, Any]] = []
    size = 0
    for entry in ordered[:MOST_RESULTS]:
        result = _result(entry, at)
        size += len(msgspec.json.encode(result))
        if size > LARGEST:
            break
        kept.append(result)
    metadata: dict[str, Any] = {"name": NAME, "labels": dict(LABELS)}
    if namespace is not None:
        metadata["namespace"] = namespace
    if left := len(ordered) - len(kept):
        metadata["annotations"] = {LEFT_OUT: str(left)}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ClusterPolicyReport" if namespace is None else "PolicyReport",
        "metadata": metadata,
        "summary": {name: sum(e.outcome == name for e in ordered) for name in _ORDER},
        "results": kept,
    }


def is_ours(report: Mapping[str, Any]) -> bool:
    """Whether compatgate wrote a report."""
    labels = (report.get("metadata") or {}).get("labels") or {}
    return all(labels.get(key) == value for key, value in LABELS.items())


def with_known_times(new: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """A report whose results keep the time at which they were found first.

    Args:
        new: as it is to be.
        old: as it is in the cluster.
    """
    known = {_key(result): result.get("timestamp") for result in old.get("results") or ()}
    results = [
        {**result, "timestamp": known.get(_key(result)) or result["timestamp"]}
        for result in new["results"]
    ]
    return {**new, "results": results}


def says_the_same(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether a report need not be written again."""
    annotations = [(one["metadata"].get("annotations") or {}).get(LEFT_OUT) for one in (new, old)]
    return annotations[0] == annotations[1] and all(
        new[part] == old.get(part) for part in ("summary", "results")
    )


def _key(result: Mapping[str, Any]) -> bytes:
    rest = {key: value for key, value in result.items() if key != "timestamp"}
    return msgspec.json.encode(rest, order="deterministic")


def _result(entry: Entry, at: datetime) -> dict[str, Any]:
    result: dict[str, Any] = {
        "policy": NAME,
        "source": NAME,
        "category": "GPU compatibility",
        "result": entry.outcome,
        "scored": entry.scored,
        "message": one_line(entry.message, _LONGEST_MESSAGE),
        "resources": [entry.subject],
        "properties": {k: one_line(v, 256) for k, v in entry.properties.items() if v},
        "timestamp": {"seconds": int(at.timestamp()), "nanos": 0},
    }
    if entry.rule:
        result["rule"] = entry.rule
    if entry.outcome in _SEVERITY:
        result["severity"] = _SEVERITY[entry.outcome]
    return result


def by_namespace(results: Sequence[Result]) -> dict[str, list[Entry]]:
    """Results of pods by namespace."""
    found: dict[str, list[Entry]] = {}
    for result in results:
        found.setdefault(result.pod.namespace, []).append(of_pod(result))
    return found
