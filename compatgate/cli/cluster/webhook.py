"""Run ``compatgate k8s webhook``: set the failure policy of the webhook once the gate answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.cluster.k8s import add_cluster, connect_cluster

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = (
        "Fail is set only after the gate answered at its Service with a certificate that the\n"
        "API server trusts. Until then, and when it does not in time (exit status 3), the policy\n"
        "stays as it is. The Helm chart runs this after each installation and upgrade.\n\n"
        "example:\n"
        "  compatgate k8s webhook --in-cluster --failure-policy Fail --wait 4m"
    )
    add_cluster(parser)
    add = parser.add_argument
    add(
        "--name",
        default="compatgate",
        metavar="NAME",
        help="name of the ValidatingWebhookConfiguration (default: compatgate)",
    )
    add(
        "--failure-policy",
        choices=("Fail", "Ignore"),
        required=True,
        help="result for a GPU pod while no gate answers: Ignore admits it unchecked, Fail"
        " refuses it",
    )
    add(
        "--wait",
        default="4m",
        metavar="DURATION",
        help="time to wait for the gate before Fail is set, like 90s (default: 4m)",
    )


def run(args: argparse.Namespace) -> int:
    """Set the policy."""
    from compatgate.documents.quantities import parse_duration
    from compatgate.service.nodes.kubernetes.webhook import (
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
