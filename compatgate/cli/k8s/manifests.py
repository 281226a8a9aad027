"""``compatgate k8s manifests``."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

NAMESPACE = "compatgate-canary"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = "example: compatgate k8s manifests --namespace gpu-staging | kubectl apply -f -"
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        default=NAMESPACE,
        help=f"where the worker runs its canaries (default {NAMESPACE}); it must exist",
    )


def run(args: argparse.Namespace) -> int:
    """Print the role of the worker and the network policies of its jobs, as YAML."""
    import yaml

    from compatgate.canary.executors.kubernetes.access import worker_objects

    if not _LABEL.fullmatch(args.namespace):
        hint = "lower-case letters, digits and '-', at most 63"
        what = f"{args.namespace!r} is not a namespace"
        raise BadInput(what, field="--namespace", value=args.namespace, hint=hint)
    yaml.safe_dump_all(
        worker_objects(args.namespace), sys.stdout, sort_keys=False, explicit_start=True
    )
    return 0
