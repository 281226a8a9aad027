"""Run ``compatgate k8s manifests``: print what the webhook of the Helm chart asks about."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = (
        "The Helm chart makes all objects; it needs this output where the\n"
        "gate knows additional kinds.\n\n"
        "example:\n"
        "  compatgate k8s manifests --chart-values --kinds kinds.yaml > asked.yaml"
    )
    parser.add_argument(
        "--chart-values",
        action="store_true",
        help="print what the webhook asks about, for the value webhook.asked of the Helm chart",
    )
    parser.add_argument(
        "--kinds",
        action="append",
        default=[],
        metavar="FILE",
        help="additional workload kinds and GPU resources, as in compatgate serve",
    )


def run(args: argparse.Namespace) -> int:
    """Print the value ``webhook.asked`` of the chart as YAML."""
    import yaml

    from compatgate.service.cluster.admission.kinds import load_kinds
    from compatgate.service.cluster.admission.manifests import asked_objects

    if not args.chart_values:
        hint = "the Helm chart makes the objects, and helm template prints them"
        raise BadInput("state what to print", field="--chart-values", hint=hint)
    values = {"webhook": {"asked": asked_objects(load_kinds(args.kinds))}}
    yaml.safe_dump(values, sys.stdout, sort_keys=False)
    return 0
