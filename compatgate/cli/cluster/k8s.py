"""Run ``compatgate k8s``: choose an action and a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.kit.cluster_api import ClusterApi

EXAMPLES = """\
examples:
  helm template ./chart | compatgate k8s check - --server https://gate.example
  kubectl get nodes -o json | compatgate k8s nodes --file -
  compatgate k8s audit --namespace ml-train --server https://gate.example
  compatgate k8s reconcile --cluster prod-eu
"""
ACTIONS = {
    "check": (
        "compatgate.cli.cluster.check",
        "check rendered manifests before a cluster sees them, as admission would",
    ),
    "manifests": (
        "compatgate.cli.cluster.manifests",
        "print what the webhook of the Helm chart asks about",
    ),
    "nodes": (
        "compatgate.cli.cluster.nodes:nodes",
        "read the cluster's nodes; report them and suggest taints",
    ),
    "audit": (
        "compatgate.cli.cluster.audit",
        "re-evaluate running GPU pods, and write policy reports",
    ),
    "webhook": (
        "compatgate.cli.cluster.webhook",
        "set the failure policy of the webhook once the gate answers",
    ),
    "reconcile": (
        "compatgate.cli.cluster.nodes:reconcile",
        "label nodes by driver state, and taint nodes whose driver is not blessed",
    ),
}


_CLUSTER_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the cluster's API server."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="kubeconfig file (default: $KUBECONFIG, else ~/.kube/config)",
    )
    group.add_argument(
        "--context",
        metavar="NAME",
        help="context in the kubeconfig file (default: current context)",
    )
    group.add_argument(
        "--in-cluster", action="store_true", help="use the service account of this pod"
    )


def add_name(parser: argparse.ArgumentParser) -> None:
    """Add the option for the name of the cluster."""
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        default="default",
        help="name of the cluster in compatgate (default: default)",
    )


@contextmanager
def connect_cluster(args: argparse.Namespace) -> Iterator[ClusterApi]:
    """Connect to the API server that the options name."""
    from compatgate.kit.cluster_api import ClusterApi
    from compatgate.kit.kubernetes import ClusterAccess

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
