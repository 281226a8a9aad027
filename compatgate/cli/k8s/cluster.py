"""Which cluster is meant: options that the actions share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.gate.cluster.connect import Api

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """How the cluster is reached."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="kubeconfig file (default: $KUBECONFIG, else ~/.kube/config)",
    )
    group.add_argument(
        "--context", metavar="NAME", help="context in that file (default: the current one)"
    )
    group.add_argument(
        "--in-cluster", action="store_true", help="use the service account of this pod"
    )


def add_name(parser: argparse.ArgumentParser) -> None:
    """What the cluster is called."""
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        default="default",
        help="name of the cluster in compatgate (default: default)",
    )


@contextmanager
def connected(args: argparse.Namespace) -> Iterator[Api]:
    """The API server that the options name.

    Raises:
        BadInput: they contradict each other.
    """
    from compatgate.gate.cluster.connect import Api
    from compatgate.kubernetes.connect import Access

    if args.in_cluster and (args.kubeconfig or args.context):
        raise BadInput("give --kubeconfig and --context, or --in-cluster", field="--in-cluster")
    api = Api(Access(args.kubeconfig, args.context, args.in_cluster))
    try:
        yield api
    finally:
        api.close()


def check_name(args: argparse.Namespace) -> None:
    """Refuse a name that the gate would.

    Raises:
        BadInput: it is none.
    """
    if not _NAME.fullmatch(args.cluster):
        hint = "lower-case letters, digits, '-' and '.'"
        what = f"{args.cluster!r} is no name for a cluster"
        raise BadInput(what, field="--cluster", value=args.cluster, hint=hint)
