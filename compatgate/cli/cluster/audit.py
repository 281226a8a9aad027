"""Run ``compatgate k8s`` nodes and audit: report nodes of a cluster, re-evaluate its GPU pods."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import ValidationError, convert
from msgspec.structs import replace

from compatgate.cli.cluster import CLUSTER, CLUSTER_NAME, check_name, connect_cluster
from compatgate.cli.commands import Body, columns, format_rows
from compatgate.cli.gate import Client, Operations, gate_of
from compatgate.cli.nodes import print_nodes
from compatgate.core.matrix import Waiver
from compatgate.core.rule import Verdict
from compatgate.documents.convert import to_waiver
from compatgate.documents.specs import TargetSpec, WaiverDoc
from compatgate.errors import Unavailable, quote_error
from compatgate.gate_client import ask
from compatgate.kit.cli.options import FORMAT, PLACE, repeat
from compatgate.kit.cli.output import name_input, print_json, read_bytes
from compatgate.kit.cli.terminal import say
from compatgate.kit.cli.usage import action
from compatgate.kit.clock import today
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.cluster.questions import parse_exemptions
from compatgate.service.nodes.cluster_connection import (
    ClusterClaims,
    list_nodes,
    make_reports,
    parse_nodes,
)

if TYPE_CHECKING:
    from compatgate.service.nodes.cluster_audit import AuditOptions, PodResult

_PATIENCE_S = 120.0
"""Timeout in seconds; the gate may have to read images first."""
_COLUMNS = columns(
    *("result: outcome", "pod.namespace", "pod: pod.name", "target", "rule", "why: message")
)
_SHOWN_OUTCOMES = ("fail", "error", "warn", "skip")
LARGEST = 512 * 1024 * 1024


@action(
    "re-evaluate running GPU pods",
    CLUSTER,
    """\
--namespace NAME  audit only pods in this namespace (default: all)
--exclude-namespace NAME ...  namespace to skip, in addition to system namespaces; may be repeated
""",
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
node. Exit status 1: admission would deny some pods; 3: a pod could not be decided.

examples:
  compatgate k8s audit --namespace ml-train
  compatgate k8s audit --in-cluster --every 10m --server https://gate.example
""",
)
def run(args: argparse.Namespace) -> int:
    """Audit once, or repeatedly."""
    from compatgate.service.nodes.cluster_audit import AuditOptions

    exemptions = parse_exemptions(args.exempt)
    options = AuditOptions(load_kinds(args.kinds), args.unmatched, exemptions)
    return repeat(lambda: _audit_once(args, options), args.every)


def _audit_once(args: argparse.Namespace, options: AuditOptions) -> int:
    from compatgate.service.nodes.cluster_audit import audit_pods, list_running_pods

    with connect_cluster(args) as api, gate_of(args, patience_s=_PATIENCE_S) as gate:
        options = replace(options, claims=ClusterClaims(api).of)
        nodes = list_nodes(api)
        excluded = {one.name for one in options.kinds.file.excluded_namespaces if not one.operator}
        excluded |= {*args.exclude_namespace}
        pods = list_running_pods(api, options.kinds, args.namespace, excluded)
        labels = {node.name: node.labels for node in nodes}
        results = audit_pods(pods, labels, _Previews(gate), options, today().isoformat())
    _print_results(results, args.format)
    outcomes = {result.outcome for result in results}
    return 1 if "fail" in outcomes else 3 if "error" in outcomes else 0


class _Previews:
    """Decisions that are not logged; see `compatgate.service.nodes.cluster_audit.Gatekeeper`."""

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
            what = f"the gate's answer has an unexpected form: {quote_error(error)}"
            hint = "use a gate of the same version as this program"
            raise Unavailable(what, hint=hint) from None


def _print_results(results: Sequence[PodResult], form: str) -> None:
    if form == "json":
        fields = ("outcome", "target", "rule", "message", "verdict", "mode", "image")
        listed = [
            {
                "namespace": one.pod.namespace,
                "pod": one.pod.name,
                "node": one.pod.node,
                "containers": list(one.containers),
                **{name: getattr(one, name) for name in fields},
            }
            for one in results
        ]
        print_json({"results": listed})
        return
    shown = [one for outcome in _SHOWN_OUTCOMES for one in results if one.outcome == outcome]
    empty = "admission would admit every running GPU pod"
    print(format_rows(shown, _COLUMNS) if shown else empty)
    counts = Counter[str](r.outcome for r in results)
    pods = len({(r.pod.namespace, r.pod.name) for r in results})
    named = (f"{counts[name]} {name}" for name in ("pass", *_SHOWN_OUTCOMES) if counts[name])
    say(f"{pods} GPU pods: {', '.join(named) or 'none'}")


@action(
    "read the cluster's nodes; report them",
    CLUSTER,
    "--file FILE  output of kubectl get nodes -o json; - for stdin",
    CLUSTER_NAME,
    "--report  send the nodes to the gate",
    PLACE,
    FORMAT,
    epilog="""\
examples:
  kubectl get nodes -o json | compatgate k8s nodes --file -
  compatgate k8s nodes --report --cluster prod-eu --server https://gate.example
""",
)
def run_nodes(args: argparse.Namespace) -> int:
    """Read nodes, and print or report them."""
    check_name(args)
    if args.file is None:
        with connect_cluster(args) as api:
            nodes = list_nodes(api)
    else:
        data = read_bytes(args.file, "--file", LARGEST)
        nodes = parse_nodes(data, name_input(args.file))
    shown: list[Body] = []
    report, dry_run = Operations.report_nodes, not args.report
    with gate_of(args) as gate:
        for part in make_reports([node for node in nodes if node.has_gpus], args.cluster):
            answer = ask(gate, report, part["nodes"], cluster=part["cluster"], dry_run=dry_run)
            shown += answer["nodes"]
    return print_nodes(args.format, shown, "no node of this cluster has NVIDIA GPU labels")
