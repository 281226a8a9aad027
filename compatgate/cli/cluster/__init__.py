"""Run ``compatgate k8s``: manage what a cluster asks the gate."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from compatgate.cli.commands import Group
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.kit.cli.usage import action
from compatgate.kit.kubernetes import ClusterAccess, ClusterApi
from compatgate.service.cluster.chart import asked_objects
from compatgate.service.cluster.kinds import load_kinds

CLUSTER = """\
cluster:
--kubeconfig FILE  kubeconfig file (default: $KUBECONFIG, else ~/.kube/config)
--context NAME     context in the kubeconfig file (default: current context)
--in-cluster       use the service account of this pod
"""
CLUSTER_NAME = "--cluster NAME = default  name of the cluster in compatgate"
_CLUSTER_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


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


def check_name(args: argparse.Namespace) -> None:
    """Refuse a cluster name that the gate would refuse."""
    if not _CLUSTER_NAME.fullmatch(args.cluster):
        hint = "lower-case letters, digits, '-' and '.'"
        what = f"{args.cluster!r} is not a valid cluster name"
        raise BadInput(what, field="--cluster", value=args.cluster, hint=hint)


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


run = Group(
    {
        "check": "cli.cluster.check:run",
        "manifests": run_manifests,
        "nodes": "cli.cluster.audit:run_nodes",
        "audit": "cli.cluster.audit:run",
        "webhook": run_webhook,
    },
    epilog="""\
examples:
  helm template ./chart | compatgate k8s check - --server https://gate.example
  kubectl get nodes -o json | compatgate k8s nodes --file -
  compatgate k8s audit --namespace ml-train --server https://gate.example
""",
)
