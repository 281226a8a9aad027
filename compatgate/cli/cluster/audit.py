"""Run ``compatgate k8s audit``: re-evaluate running GPU pods, and write policy reports."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import ValidationError, convert
from msgspec.structs import replace

from compatgate.cli.cluster import CLUSTER, CLUSTER_NAME, check_name, connect_cluster
from compatgate.cli.cluster.nodes import decide_nodes
from compatgate.cli.commands import columns, format_rows
from compatgate.cli.gate import Client, Operations, gate_of
from compatgate.core.matrix import Waiver
from compatgate.core.rule import Verdict
from compatgate.documents.convert import to_waiver
from compatgate.documents.specs import TargetSpec, WaiverDoc
from compatgate.errors import Unavailable, quote_error
from compatgate.gate_client import ask
from compatgate.kit.cli.options import FORMAT, PLACE, repeat
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.terminal import say
from compatgate.kit.cli.usage import action
from compatgate.kit.clock import now, today
from compatgate.kit.kubernetes import ClusterApi
from compatgate.service.cluster.admission.kinds import load_kinds
from compatgate.service.cluster.admission.questions import parse_exemptions
from compatgate.service.nodes.kubernetes.connection import ClusterClaims, list_nodes

if TYPE_CHECKING:
    from compatgate.service.nodes.kubernetes.audit import AuditOptions, PodResult
    from compatgate.service.nodes.kubernetes.policy_reports import WriteCounts

_PATIENCE_S = 120.0
"""Timeout in seconds; the gate may have to read images first."""
_COLUMNS = columns(
    *("result: outcome", "pod.namespace", "pod: pod.name", "target", "rule", "why: message")
)
_MAX_FAILURES = 10
_WRITE_COUNTS = ("made", "changed", "unchanged", "removed")
_SHOWN_OUTCOMES = ("fail", "error", "warn", "skip")


@action(
    "re-evaluate running GPU pods, and write policy reports",
    CLUSTER,
    """\
--namespace NAME  audit only pods in this namespace (default: all)
--exclude-namespace NAME ...  namespace to skip, in addition to system namespaces; may be repeated
--write           write PolicyReports (wgpolicyk8s.io) and remove outdated reports of compatgate
--nodes           also write a ClusterPolicyReport about nodes
""",
    CLUSTER_NAME,
    """\
--every DURATION  repeat at this interval until stopped (default: 10m)
--unmatched {allow,warn,deny} = warn  result for GPU pods without a target
--exempt NAMESPACE=WAIVER ...  as in compatgate serve
--kinds FILE ...  as in compatgate serve
""",
    PLACE,
    FORMAT,
    epilog="""\
Evaluate every running pod that requests GPUs as admission would now, on the pod's
node. Exit status 1: admission would deny some pods (0 with --write, which reports
them); 3: a pod could not be decided, or a report could not be written.

examples:
  compatgate k8s audit --namespace ml-train
  compatgate k8s audit --write --in-cluster --every 10m --server https://gate.example
""",
)
def run(args: argparse.Namespace) -> int:
    """Audit once, or repeatedly."""
    from compatgate.service.nodes.kubernetes.audit import AuditOptions

    check_name(args)
    exemptions = parse_exemptions(args.exempt, "--exempt")
    options = AuditOptions(load_kinds(args.kinds), args.unmatched, exemptions)
    return repeat(lambda: _audit_once(args, options), args.every)


def _audit_once(args: argparse.Namespace, options: AuditOptions) -> int:
    from compatgate.service.nodes.kubernetes.audit import audit_pods, list_running_pods

    with connect_cluster(args) as api, gate_of(args, patience_s=_PATIENCE_S) as gate:
        options = replace(options, claims=ClusterClaims(api).of)
        nodes = list_nodes(api)
        excluded = {one.name for one in options.kinds.file.excluded_namespaces if not one.operator}
        excluded |= {*args.exclude_namespace}
        pods = list_running_pods(api, options.kinds, args.namespace, excluded)
        labels = {node.name: node.labels for node in nodes}
        results = audit_pods(pods, labels, _Previews(gate), options, today().isoformat())
        decided = None
        if args.nodes:
            with_gpus = [node for node in nodes if node.has_gpus]
            decided = decide_nodes(gate, with_gpus, args.cluster, dry_run=True)
        written = _write(api, args.namespace, results, decided) if args.write else None
    _print_results(results, decided, written, args.format)
    if written is not None:
        return 3 if written.failed else 0
    outcomes = {result.outcome for result in results}
    return 1 if "fail" in outcomes else 3 if "error" in outcomes else 0


class _Previews:
    """Decisions that are not logged; see `compatgate.service.nodes.kubernetes.audit.Gatekeeper`."""

    def __init__(self, gate: Client) -> None:
        self._gate = gate

    def targets(self) -> Mapping[str, TargetSpec]:
        return {item.metadata.name: item.spec for item in self._gate.list_targets()}

    def waivers(self) -> Mapping[str, Waiver]:
        documents = (
            WaiverDoc(item.apiVersion, item.metadata, item.spec)
            for item in self._gate.list_waivers()
        )
        return {document.metadata.name: to_waiver(document) for document in documents}

    def decide(self, body: dict[str, Any]) -> Verdict:
        try:
            return convert(ask(self._gate, Operations.preview, body), Verdict)
        except ValidationError as error:
            hint = "use a gate of the same version as this program"
            raise Unavailable(
                f"the gate's answer has an unexpected form: {quote_error(error)}", hint=hint
            ) from None


def _write(
    api: ClusterApi,
    namespace: str | None,
    results: list[PodResult],
    nodes: list[dict[str, Any]] | None,
) -> WriteCounts:
    """Write reports of namespaces with results; remove own reports of other namespaces."""
    from compatgate.service.nodes.kubernetes.policy_reports import (
        ReportWriter,
        group_by_namespace,
        node_entry,
        report_object,
        write_all,
    )

    at = now()
    writer = ReportWriter(api)
    standing = writer.ours(namespace)
    found = group_by_namespace(results)
    reports = [(writer, report_object(found[name], name, at)) for name in sorted(found)]
    if nodes is not None:
        whole = ReportWriter(api, cluster_wide=True)
        whole.ours()
        reports.append((whole, report_object(map(node_entry, nodes), None, at)))
    return write_all(reports, [(writer, name) for name in sorted(standing - set(found))])


def _print_results(
    results: Sequence[PodResult],
    nodes: Sequence[dict[str, Any]] | None,
    written: WriteCounts | None,
    form: str,
) -> None:
    """Print every result that is not a pass, and the counts."""
    if form == "json":
        body: dict[str, Any] = {"results": [_to_json(result) for result in results]}
        body |= {"nodes": list(nodes)} if nodes is not None else {}
        body |= {"written": msgspec.to_builtins(written)} if written else {}
        print_json(body)
        return
    shown = [one for outcome in _SHOWN_OUTCOMES for one in results if one.outcome == outcome]
    empty = "admission would admit every running GPU pod"
    print(format_rows(shown, _COLUMNS) if shown else empty)
    counts = Counter[str](r.outcome for r in results)
    pods = len({(r.pod.namespace, r.pod.name) for r in results})
    _note(f"{pods} GPU pods", {name: counts[name] for name in ("pass", *_SHOWN_OUTCOMES)})
    if nodes is not None:
        states = Counter(node["driver_state"] for node in nodes)
        _note(f"{len(nodes)} GPU nodes", dict(sorted(states.items())))
    if written is not None:
        made = ", ".join(f"{getattr(written, name)} {name}" for name in _WRITE_COUNTS)
        say(f"reports: {made}, {len(written.failed)} failed")
        for why in written.failed[:_MAX_FAILURES]:
            say(f"error: {why}")


def _note(what: str, counts: Mapping[str, int]) -> None:
    parts = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    say(f"{what}: {parts or 'none'}")


def _to_json(result: PodResult) -> dict[str, Any]:
    fields = ("outcome", "target", "rule", "message", "verdict", "mode", "image")
    return {
        "namespace": result.pod.namespace,
        "pod": result.pod.name,
        "node": result.pod.node,
        "containers": list(result.containers),
        **{name: getattr(result, name) for name in fields},
    }
