"""``compatgate k8s manifests``."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from compatgate.cli.k8s import watching, webhook
from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

NAMESPACE = "compatgate-canary"
WEBHOOK_NAMESPACE = "compatgate"
_GOES_WITH = {
    "failure_policy": ("webhook",),
    "timeout": ("webhook",),
    "ca": ("webhook",),
    "kinds": ("webhook",),
    "exclude_namespace": ("webhook", "audit"),
    "operator_namespace": ("webhook", "audit"),
    "taint": ("nodes",),
    "own": ("nodes",),
    "image": ("nodes", "audit"),
    "gate": ("nodes", "audit"),
    "cluster": ("nodes", "audit"),
    "every": ("nodes", "audit"),
}
"""Options, and those of which one must be given for them to mean something."""
_FLAGS_AND_LISTS = ("taint", "own", "kinds", "exclude_namespace", "operator_namespace")
"""Options whose value shows whether they were given."""
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = (
        "examples:\n"
        "  compatgate k8s manifests --namespace gpu-staging | kubectl apply -f -\n"
        "  compatgate k8s manifests --webhook | kubectl apply -f -\n"
        "  compatgate k8s manifests --webhook --failure-policy Fail | kubectl apply -f -  # later\n"
        "  compatgate k8s manifests --nodes --audit --image registry.example/compatgate:1 \\\n"
        "    --cluster prod-eu | kubectl apply -f -"
    )
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        help=f"where the worker runs its canaries (default {NAMESPACE}), or else where"
        f" the gate runs ({WEBHOOK_NAMESPACE}); it must exist",
    )
    webhook.add_arguments(parser)
    watching.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print, as YAML, what the worker needs in its namespace; or what was asked for instead.

    Raises:
        BadInput: an option cannot be.
    """
    import yaml

    namespace, watched = args.namespace, watching.is_asked(args)
    _refuse_idle(args)
    if namespace is None:
        namespace = WEBHOOK_NAMESPACE if args.webhook or watched else NAMESPACE
    _check(namespace, "--namespace")
    for excluded in args.exclude_namespace:
        _check(excluded, "--exclude-namespace")
    for operator in args.operator_namespace:
        _check(operator, "--operator-namespace")
    advice: tuple[str, ...] = ()
    if args.webhook:
        found, advice = webhook.objects(args, namespace)
    elif watched:
        found = []
    else:
        from compatgate.canary.executors.kubernetes.access import worker_objects

        found = worker_objects(namespace)
    if watched:
        found += watching.objects(args, namespace)
    _advise(args, advice)
    yaml.safe_dump_all(found, sys.stdout, sort_keys=False, explicit_start=True)
    return 0


def _advise(args: argparse.Namespace, lines: tuple[str, ...]) -> None:
    """Say it to whoever reads the objects, and to whoever pipes them on unread."""
    for line in lines:
        print(f"# {line}")
    if lines:
        word = "warning" if args.failure_policy == "Fail" else "note"
        print(f"{word}: {' '.join(lines)}", file=sys.stderr)


def _refuse_idle(args: argparse.Namespace) -> None:
    """Refuse options of objects that were not asked for: they would change nothing."""
    stated = set(vars(args).get("_given", ()))
    stated |= {n for n in _FLAGS_AND_LISTS if getattr(args, n)}
    for name, owners in _GOES_WITH.items():
        if name in stated and not any(getattr(args, owner) for owner in owners):
            wanted = " or ".join(f"--{owner}" for owner in owners)
            raise BadInput(f"goes with {wanted}", field=f"--{name.replace('_', '-')}")


def _check(namespace: str, field: str) -> None:
    if not _LABEL.fullmatch(namespace):
        hint = "lower-case letters, digits and '-', at most 63"
        what = f"{namespace!r} is not a namespace"
        raise BadInput(what, field=field, value=namespace, hint=hint)
