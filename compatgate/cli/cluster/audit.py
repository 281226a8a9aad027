"""Run ``compatgate k8s audit``: re-evaluate running GPU pods, and write policy reports."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from compatgate.cli.cluster.k8s import add_cluster, add_name, check_name, connect_cluster
from compatgate.cli.gate.opening import Operations, add_place, gate_of
from compatgate.errors import Unavailable, quote_error
from compatgate.gate_client import ask
from compatgate.kit.cli.options import add_format, read_interval, repeat
from compatgate.kit.cli.output import print_json, print_table
from compatgate.kit.cli.terminal import strip_controls

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from compatgate.client import Client
    from compatgate.core.matrix import Waiver
    from compatgate.core.rule import Verdict
    from compatgate.documents.specs import TargetSpec
    from compatgate.kit.cluster_api import ClusterApi
    from compatgate.service.nodes.kubernetes.audit import AuditOptions, PodResult
    from compatgate.service.nodes.kubernetes.policy_reports import WriteCounts

_PATIENCE_S = 120.0
"""Timeout in seconds; the gate may have to read images first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = (
        "Evaluate every running pod that requests GPUs as admission would now, on the pod's\n"
        "node. Exit status 1: admission would deny some pods (0 with --write, which reports\n"
        "them); 3: a pod could not be decided, or a report could not be written.\n\n"
        "examples:\n"
        "  compatgate k8s audit --namespace ml-train\n"
        "  compatgate k8s audit --write --in-cluster --every 10m --server https://gate.example"
    )
    add_cluster(parser)
    add = parser.add_argument
    add("--namespace", metavar="NAME", help="audit only pods in this namespace (default: all)")
    add("--exclude-namespace", action="append", default=[], metavar="NAME",
        help="namespace to skip, in addition to system namespaces; may be repeated")  # fmt: skip
    add("--write", action="store_true", help="write PolicyReports (wgpolicyk8s.io) and remove"
        " outdated reports of compatgate")  # fmt: skip
    add("--nodes", action="store_true", help="also write a ClusterPolicyReport about nodes")
    add_name(parser)
    add("--every", metavar="DURATION", help="repeat at this interval until stopped (default: 10m)")
    add("--unmatched", choices=("allow", "warn", "deny"), default="warn",
        help="result for GPU pods without a target (default: warn)")  # fmt: skip
    add("--exempt", action="append", default=[], metavar="NAMESPACE=WAIVER",
        help="as in compatgate serve")  # fmt: skip
    add("--kinds", action="append", default=[], metavar="FILE", help="as in compatgate serve")
    add_place(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Audit once, or repeatedly."""
    from compatgate.service.cluster.admission.kinds import load_kinds
    from compatgate.service.cluster.admission.questions import parse_exemptions
    from compatgate.service.nodes.kubernetes.audit import AuditOptions

    check_name(args)
    exemptions = parse_exemptions(args.exempt, "--exempt")
    options = AuditOptions(load_kinds(args.kinds), args.unmatched, exemptions)
    if args.every is None:
        return _audit_once(args, options)
    return repeat(lambda: _audit_once(args, options), read_interval(args.every))


def _audit_once(args: argparse.Namespace, options: AuditOptions) -> int:

    with connect_cluster(args) as api, gate_of(args, patience_s=_PATIENCE_S) as gate:
        results, nodes = _results(args, options, api, gate)
        shown = _nodes(args, nodes, gate) if args.nodes else None
        written = _write(args, api, results, shown) if args.write else None
    print_results(results, shown, written, args.format)
    if written is not None:
        return 3 if written.failed else 0
    denied = any(result.outcome == "fail" for result in results)
    undecided = any(result.outcome == "error" for result in results)
    return 1 if denied else 3 if undecided else 0


def _results(
    args: argparse.Namespace, options: AuditOptions, api: ClusterApi, gate: Client
) -> tuple[list[PodResult], list[Any]]:
    from compatgate.kit.clock import today
    from compatgate.service.nodes.kubernetes.audit import audit_pods, list_running_pods
    from compatgate.service.nodes.kubernetes.connection import ClusterClaims, list_nodes

    options = replace(options, claims=ClusterClaims(api).of)
    nodes = list_nodes(api)
    labels = {node.name: node.labels for node in nodes}
    left_out = (one.name for one in options.kinds.file.excluded_namespaces if not one.operator)
    excluded = {*left_out, *args.exclude_namespace}
    pods = list_running_pods(api, options.kinds, args.namespace, excluded)
    return audit_pods(pods, labels, _Previews(gate), options, today().isoformat()), nodes


class _Previews:
    """Decisions that are not logged; see `compatgate.service.nodes.kubernetes.audit.Gatekeeper`."""

    def __init__(self, gate: Client) -> None:
        self._gate = gate

    def targets(self) -> Mapping[str, TargetSpec]:
        return {item.metadata.name: item.spec for item in self._gate.list_targets()}

    def waivers(self) -> Mapping[str, Waiver]:
        from compatgate.documents.convert import to_waiver
        from compatgate.documents.specs import WaiverDoc

        documents = (
            WaiverDoc(item.apiVersion, item.metadata, item.spec)
            for item in self._gate.list_waivers()
        )
        return {document.metadata.name: to_waiver(document) for document in documents}

    def decide(self, body: dict[str, Any]) -> Verdict:
        from msgspec import ValidationError, convert

        from compatgate.core.rule import Verdict

        try:
            return convert(ask(self._gate, Operations.preview, body), Verdict)
        except ValidationError as error:
            hint = "use a gate of the same version as this program"
            raise Unavailable(
                f"the gate's answer has an unexpected form: {quote_error(error)}", hint=hint
            ) from None


def _nodes(args: argparse.Namespace, nodes: list[Any], gate: Client) -> list[dict[str, Any]]:
    from compatgate.cli.cluster.nodes import decide_nodes

    with_gpus = [node for node in nodes if node.has_gpus]
    return decide_nodes(gate, with_gpus, args.cluster, dry_run=True)


def _write(
    args: argparse.Namespace,
    api: ClusterApi,
    results: list[PodResult],
    nodes: list[dict[str, Any]] | None,
) -> WriteCounts:
    """Write reports of namespaces with results; remove own reports of other namespaces."""
    from compatgate.kit.clock import now
    from compatgate.service.nodes.kubernetes.policy_reports import (
        ReportWriter,
        group_by_namespace,
        node_entry,
        report_object,
        write_all,
    )

    at = now()
    writer = ReportWriter(api)
    standing = writer.ours(args.namespace)
    found = group_by_namespace(results)
    reports = [(writer, report_object(found[name], name, at)) for name in sorted(found)]
    if nodes is not None:
        whole = ReportWriter(api, cluster_wide=True)
        whole.ours()
        reports.append((whole, report_object(map(node_entry, nodes), None, at)))
    return write_all(reports, [(writer, name) for name in sorted(standing - set(found))])


_COLUMNS = ("result", "namespace", "pod", "target", "rule", "why")
_MAX_FAILURES = 10
_WRITE_COUNTS = ("made", "changed", "unchanged", "removed")
_SHOWN_OUTCOMES = ("fail", "error", "warn", "skip")


def print_results(
    results: Sequence[PodResult],
    nodes: Sequence[dict[str, Any]] | None,
    written: WriteCounts | None,
    form: str,
) -> None:
    """Print every result that is not a pass, and the counts."""
    if form == "json":
        body: dict[str, Any] = {"results": [_result_json(result) for result in results]}
        body |= {"nodes": list(nodes)} if nodes is not None else {}
        body |= {"written": msgspec.to_builtins(written)} if written else {}
        print_json(body)
        return
    told = sorted(
        (r for r in results if r.outcome in _SHOWN_OUTCOMES),
        key=lambda r: _SHOWN_OUTCOMES.index(r.outcome),
    )
    rows = [
        (r.outcome, r.pod.namespace, r.pod.name, r.target, r.rule, strip_controls(r.message))
        for r in told
    ]
    print_table(_COLUMNS, rows, empty="admission would admit every running GPU pod")
    counts = {name: sum(r.outcome == name for r in results) for name in ("pass", *_SHOWN_OUTCOMES)}
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    pods = len({(r.pod.namespace, r.pod.name) for r in results})
    print(f"{pods} GPU pods: {said or 'none'}", file=sys.stderr)
    if nodes is not None:
        states = [node["driver_state"] for node in nodes]
        named = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        print(f"{len(states)} GPU nodes: {named or 'none'}", file=sys.stderr)
    if written is not None:
        counts = {name: getattr(written, name) for name in _WRITE_COUNTS}
        made = ", ".join(f"{count} {name}" for name, count in counts.items())
        print(f"reports: {made}, {len(written.failed)} failed", file=sys.stderr)
        for why in written.failed[:_MAX_FAILURES]:
            print(strip_controls(f"error: {why}"), file=sys.stderr)


def _result_json(result: PodResult) -> dict[str, Any]:
    fields = ("outcome", "target", "rule", "message", "verdict", "mode", "image")
    return {
        "namespace": result.pod.namespace,
        "pod": result.pod.name,
        "node": result.pod.node,
        "containers": list(result.containers),
        **{name: getattr(result, name) for name in fields},
    }
