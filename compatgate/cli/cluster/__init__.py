"""Name a cluster, and connect to its API server."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager

from compatgate.errors import BadInput
from compatgate.kit.cluster_api import ClusterApi
from compatgate.kit.kubernetes import ClusterAccess

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
