"""Make PolicyReport and ClusterPolicyReport objects, and write them into a cluster.

Reports are small enough for a cluster to keep. Only reports of compatgate are changed or
removed.

Source: kubernetes-sigs/wg-policy-prototypes, ``policy-report/crd``, ``wgpolicyk8s.io/v1alpha2``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.errors import CompatgateError, Conflict, NotFound, Unavailable
from compatgate.kit.kubernetes import ClusterApi, ObjectExists, ObjectMissing, to_one_line
from compatgate.service.nodes.kubernetes.audit import Outcome, PodResult

GROUP, VERSION = "wgpolicyk8s.io", "v1alpha2"
NAME = "compatgate"
LABELS = {"app.kubernetes.io/managed-by": NAME}
"""Label of compatgate's reports; others are never changed."""
OMITTED_ANNOTATION = "compatgate.dev/results-left-out"
"""Annotation: number of dropped results; the summary counts them too."""
MAX_RESULTS = 2000
MAX_REPORT_BYTES = 768 * 1024
"""Bytes of results; the API server refuses objects beyond 1.5 MiB (etcd)."""
_LONGEST_MESSAGE = 500
_ORDER: tuple[Outcome, ...] = ("fail", "error", "warn", "skip", "pass")
_SEVERITY: dict[Outcome, str] = {"fail": "high", "error": "medium", "warn": "low"}


class ReportEntry(Struct, frozen=True):
    """A result about one object, without a time."""

    outcome: Outcome
    rule: str
    message: str
    subject: dict[str, str]
    scored: bool
    properties: dict[str, str]


def pod_entry(result: PodResult) -> ReportEntry:
    """Return a result of the audit of pods."""
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
    return ReportEntry(
        result.outcome, result.rule, result.message, subject, result.scored, properties
    )


def node_entry(node: Mapping[str, Any]) -> ReportEntry:
    """Return the results about a node: its driver first, then its other differences.

    ``node``: as ``GET /api/v1/nodes`` shows it.
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
    return ReportEntry(outcome, "driver", "; ".join(said), subject, outcome != "warn", properties)


def report_object(
    entries: Iterable[ReportEntry], namespace: str | None, at: datetime
) -> dict[str, Any]:
    """Return the report of a namespace, or of the cluster.

    The worst results come first; results beyond the limit are counted and dropped.

    ``namespace`` is None: a ClusterPolicyReport.
    """
    ordered = sorted(entries, key=lambda e: (_ORDER.index(e.outcome), sorted(e.subject.items())))
    kept: list[dict[str, Any]] = []
    size = 0
    for entry in ordered[:MAX_RESULTS]:
        result = _result(entry, at)
        size += len(msgspec.json.encode(result))
        if size > MAX_REPORT_BYTES:
            break
        kept.append(result)
    metadata: dict[str, Any] = {"name": NAME, "labels": dict(LABELS)}
    if namespace is not None:
        metadata["namespace"] = namespace
    if left := len(ordered) - len(kept):
        metadata["annotations"] = {OMITTED_ANNOTATION: str(left)}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ClusterPolicyReport" if namespace is None else "PolicyReport",
        "metadata": metadata,
        "summary": {name: sum(e.outcome == name for e in ordered) for name in _ORDER},
        "results": kept,
    }


def is_own_report(report: Mapping[str, Any]) -> bool:
    """Return whether compatgate wrote a report."""
    labels = (report.get("metadata") or {}).get("labels") or {}
    return all(labels.get(key) == value for key, value in LABELS.items())


def keep_times(new: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report whose known results keep their first time."""
    known = {_key(result): result.get("timestamp") for result in old.get("results") or ()}
    results = [
        {**result, "timestamp": known.get(_key(result)) or result["timestamp"]}
        for result in new["results"]
    ]
    return {**new, "results": results}


def is_unchanged(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether both reports say the same."""
    annotations = [
        (one["metadata"].get("annotations") or {}).get(OMITTED_ANNOTATION) for one in (new, old)
    ]
    return annotations[0] == annotations[1] and all(
        new[part] == old.get(part) for part in ("summary", "results")
    )


def _key(result: Mapping[str, Any]) -> bytes:
    rest = {key: value for key, value in result.items() if key != "timestamp"}
    return msgspec.json.encode(rest, order="deterministic")


def _result(entry: ReportEntry, at: datetime) -> dict[str, Any]:
    result: dict[str, Any] = {
        "policy": NAME,
        "source": NAME,
        "category": "GPU compatibility",
        "result": entry.outcome,
        "scored": entry.scored,
        "message": to_one_line(entry.message, _LONGEST_MESSAGE),
        "resources": [entry.subject],
        "properties": {k: to_one_line(v, 256) for k, v in entry.properties.items() if v},
        "timestamp": {"seconds": int(at.timestamp()), "nanos": 0},
    }
    if entry.rule:
        result["rule"] = entry.rule
    if entry.outcome in _SEVERITY:
        result["severity"] = _SEVERITY[entry.outcome]
    return result


def group_by_namespace(results: Sequence[PodResult]) -> dict[str, list[ReportEntry]]:
    """Group results of pods by namespace."""
    found: dict[str, list[ReportEntry]] = {}
    for result in results:
        found.setdefault(result.pod.namespace, []).append(pod_entry(result))
    return found


_TRIES = 5
_SELECTOR = f"app.kubernetes.io/managed-by={NAME}"
_CRD = "kubernetes-sigs/wg-policy-prototypes, policy-report/crd"


class WriteCounts(Struct, frozen=True):
    """The number of written reports, and the errors of the others."""

    made: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: tuple[str, ...] = ()


class ReportWriter:
    """The writer of reports of one kind."""

    def __init__(self, api: ClusterApi, *, cluster_wide: bool = False) -> None:
        self._api = api
        self._plural = "clusterpolicyreports" if cluster_wide else "policyreports"
        self._scope = "cluster" if cluster_wide else "namespaced"

    def ours(self, namespace: str | None = None) -> set[str]:
        """Return the namespaces with a report of compatgate (empty text: the cluster)."""

        def keep(body: dict[str, Any]) -> str | None:
            metadata = body.get("metadata") or {}
            return metadata.get("namespace", "") if metadata.get("name") == NAME else None

        try:
            if namespace is None:
                found = self._api.listed(
                    "custom", "list_cluster_custom_object", GROUP, VERSION, self._plural,
                    keep=keep, label_selector=_SELECTOR,
                )  # fmt: skip
            else:
                found = self._api.listed(
                    "custom", "list_namespaced_custom_object", GROUP, VERSION, namespace,
                    self._plural, keep=keep, label_selector=_SELECTOR,
                )  # fmt: skip
        except ObjectMissing as error:
            hint = f"install the CRDs of {_CRD}"
            what = f"the cluster has no {self._plural}.{GROUP}: {error.problem}"
            raise NotFound(what, field="--write", hint=hint) from None
        return set(found)

    def write(self, report: dict[str, Any]) -> WriteCounts:
        """Create or update a report, unless it already says the same."""
        namespace = report["metadata"].get("namespace")
        for _ in range(_TRIES):
            try:
                old = self._ask("get", namespace, NAME)
            except ObjectMissing:
                old = None
            try:
                if old is None:
                    self._ask("create", namespace, report)
                    return WriteCounts(made=1)
                return self._replace(namespace, report, old)
            except (ObjectExists, ObjectMissing):
                continue
        where = namespace or "the cluster"
        raise Conflict(f"the policy report {NAME} of {where} keeps being changed by other writers")

    def remove(self, namespace: str | None) -> WriteCounts:
        """Remove compatgate's report, if it exists."""
        try:
            if not is_own_report(self._ask("get", namespace, NAME)):
                return WriteCounts()
            self._ask("delete", namespace, NAME)
        except ObjectMissing:
            return WriteCounts()
        return WriteCounts(removed=1)

    def _replace(
        self, namespace: str | None, report: dict[str, Any], old: Mapping[str, Any]
    ) -> WriteCounts:
        if not is_own_report(old):
            where = namespace or "the cluster"
            hint = f"rename it, or label it {_SELECTOR.replace('=', ': ')}"
            raise Conflict(
                f"{where} has a policy report {NAME} that compatgate did not write", hint=hint
            )
        new = keep_times(report, old)
        if is_unchanged(new, old):
            return WriteCounts(unchanged=1)
        version = (old.get("metadata") or {}).get("resourceVersion", "")
        metadata = {**new["metadata"], "resourceVersion": version}
        self._ask("replace", namespace, NAME, {**new, "metadata": metadata})
        return WriteCounts(changed=1)

    def _ask(self, verb: str, namespace: str | None, *args: Any) -> dict[str, Any]:
        where = (namespace,) if self._scope == "namespaced" else ()
        operation = f"{verb}_{self._scope}_custom_object"
        return self._api.ask("custom", operation, GROUP, VERSION, *where, self._plural, *args)


def write_all(
    reports: Iterable[tuple[ReportWriter, dict[str, Any]]],
    outdated: Iterable[tuple[ReportWriter, str]],
) -> WriteCounts:
    """Write reports and remove others; a failed report does not stop the rest."""
    parts = [_try_write(partial(writer.write, report)) for writer, report in reports]
    parts += [_try_write(partial(writer.remove, namespace)) for writer, namespace in outdated]
    counts = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("made", "changed", "unchanged", "removed")
    }
    return WriteCounts(**counts, failed=tuple(why for part in parts for why in part.failed))


def _try_write(act: Callable[[], WriteCounts]) -> WriteCounts:
    try:
        return act()
    except Unavailable:
        raise
    except CompatgateError as error:
        return WriteCounts(failed=(error.detail,))
