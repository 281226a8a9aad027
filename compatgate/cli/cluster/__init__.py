"""Run ``compatgate k8s``: what a cluster asks the gate, its nodes, and an audit of its pods."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import ValidationError, convert
from msgspec.structs import replace

from compatgate.cli.commands import Body, Group, columns, format_rows
from compatgate.cli.gate import Client, Operations, gate_of
from compatgate.cli.nodes import print_nodes
from compatgate.core.matrix import Waiver
from compatgate.core.rule import Verdict
from compatgate.documents.convert import to_waiver
from compatgate.documents.quantities import parse_duration
from compatgate.documents.specs import TargetSpec, WaiverDoc
from compatgate.errors import BadInput, Unavailable, quote_error
from compatgate.gate_client import ask
from compatgate.kit.cli.options import FORMAT, PLACE, repeat
from compatgate.kit.cli.output import name_input, print_json, read_bytes, say
from compatgate.kit.cli.usage import action
from compatgate.kit.clock import today
from compatgate.kit.kubernetes import ClusterAccess, ClusterApi
from compatgate.service.cluster.chart import asked_objects
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

CLUSTER = """\
cluster:
--kubeconfig FILE  kubeconfig file (default: $KUBECONFIG, else ~/.kube/config)
--context NAME     context in the kubeconfig file (default: current context)
--in-cluster       use the service account of this pod
"""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_PATIENCE_S = 120.0
"""Timeout in seconds; the gate may have to read images first."""
_COLUMNS = columns(
    *("result: outcome", "pod.namespace", "pod: pod.name", "target", "rule", "why: message")
)
_SHOWN_OUTCOMES = ("fail", "error", "warn", "skip")
LARGEST = 512 * 1024 * 1024


@contextmanager
def connect_cluster(args: argparse.Namespace) -> Iterator[ClusterApi]:
    """Connect to the API server that the options name."""
    if args.in_cluster and (args.kubeconfig or args.context):
        raise BadInput("use --kubeconfig and --context, or --in-cluster", field="--in-cluster")
    api = ClusterApi(ClusterAccess(args.kubeconfig, args.context, args.in_cluster))
    try:
        yield api
    finally:
        api.close()


@action(
    "print what the webhook of the Helm chart asks about",
    """\
--chart-values    print what the webhook asks about, for the value webhook.asked of the Helm chart
--kinds FILE ...  additional workload kinds and GPU resources, as in compatgate serve
""",
    epilog="""\
The Helm chart makes all objects; it needs this output where the
gate knows additional kinds.

example:
  compatgate k8s manifests --chart-values --kinds kinds.yaml > asked.yaml
""",
)
def run_manifests(args: argparse.Namespace) -> int:
    """Print the value ``webhook.asked`` of the chart as YAML."""
    import yaml

    if not args.chart_values:
        hint = "the Helm chart makes the objects, and helm template prints them"
        raise BadInput("state what to print", field="--chart-values", hint=hint)
    values = {"webhook": {"asked": asked_objects(load_kinds(args.kinds))}}
    yaml.safe_dump(values, sys.stdout, sort_keys=False)
    return 0


@action(
    "set the failure policy of the webhook once the gate answers",
    CLUSTER,
    """\
--name NAME = compatgate  name of the ValidatingWebhookConfiguration
--failure-policy {Fail,Ignore} (required)
    result for a GPU pod while no gate answers: Ignore admits it unchecked, Fail refuses it
--wait DURATION = 4m      time to wait for the gate before Fail is set, like 90s
""",
    epilog="""\
Fail is set only after the gate answered at its Service with a certificate that the
API server trusts. Until then, and when it does not in time (exit status 3), the policy
stays as it is. The Helm chart runs this after each installation and upgrade.

example:
  compatgate k8s webhook --in-cluster --failure-policy Fail --wait 4m
""",
)
def run_webhook(args: argparse.Namespace) -> int:
    """Set the policy."""
    from compatgate.service.nodes.webhook import (
        read_webhook,
        set_policy,
        wait_until_ready,
    )

    wait_s = parse_duration(args.wait, field="--wait").total_seconds()
    with connect_cluster(args) as api:
        webhook = read_webhook(api, args.name)
        if args.failure_policy == "Fail" and webhook.policy != "Fail":
            webhook = wait_until_ready(lambda: read_webhook(api, args.name), wait_s)
        changed = set_policy(api, args.name, webhook, args.failure_policy)
    print(f"failurePolicy {'set to' if changed else 'is'} {args.failure_policy}")
    return 0


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
def run_audit(args: argparse.Namespace) -> int:
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
    "--cluster NAME = default  name of the cluster in compatgate",
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
    if not _NAME.fullmatch(args.cluster):
        hint = "lower-case letters, digits, '-' and '.'"
        what = f"{args.cluster!r} is not a valid cluster name"
        raise BadInput(what, field="--cluster", value=args.cluster, hint=hint)
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


run = Group(
    {
        "check": "cli.cluster.check:run",
        "manifests": run_manifests,
        "nodes": run_nodes,
        "audit": run_audit,
        "webhook": run_webhook,
    },
    epilog="""\
examples:
  helm template ./chart | compatgate k8s check - --server https://gate.example
  kubectl get nodes -o json | compatgate k8s nodes --file -
  compatgate k8s audit --namespace ml-train --server https://gate.example
""",
)
