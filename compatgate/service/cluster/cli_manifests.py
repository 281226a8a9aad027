"""Run ``compatgate k8s manifests``: print the objects that compatgate needs in a cluster."""

from __future__ import annotations

import base64
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, quote_error
from compatgate.service.cluster.cli import add_name, check_name

if TYPE_CHECKING:
    import argparse


NAMESPACE = "compatgate-canary"
WEBHOOK_NAMESPACE = "compatgate"
_GOES_WITH = {
    "failure_policy": ("webhook",),
    "timeout": ("webhook",),
    "ca": ("webhook",),
    "events": ("webhook",),
    "policy": ("webhook",),
    "namespaces": ("webhook",),
    "kinds": ("webhook", "chart_values"),
    "exclude_namespace": ("webhook", "audit"),
    "operator_namespace": ("webhook", "audit"),
    "taint": ("nodes",),
    "own": ("nodes",),
    "image": ("nodes", "audit"),
    "gate": ("nodes", "audit"),
    "cluster": ("nodes", "audit"),
    "every": ("nodes", "audit"),
}
"""Options, and the options of which one must be given with them."""
_FLAGS_AND_LISTS = (
    "taint",
    "own",
    "kinds",
    "events",
    "policy",
    "exclude_namespace",
    "operator_namespace",
)
"""Options whose value tells whether the user gave them."""
_NAMESPACE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def add_manifests_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = (
        "examples:\n"
        "  compatgate k8s manifests --namespace gpu-staging | kubectl apply -f -\n"
        "  compatgate k8s manifests --webhook | kubectl apply -f -\n"
        "  compatgate k8s manifests --webhook --policy warn --events | kubectl apply -f -\n"
        "  compatgate k8s manifests --webhook --failure-policy Fail | kubectl apply -f -  # later\n"
        "  compatgate k8s manifests --nodes --audit --image registry.example/compatgate:1 \\\n"
        "    --cluster prod-eu | kubectl apply -f -"
    )
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        help=f"existing namespace of the canaries (default: {NAMESPACE}), or with --webhook of the"
        f" gate (default: {WEBHOOK_NAMESPACE})",
    )
    parser.add_argument(
        "--worker-namespace",
        metavar="NAME",
        help="namespace of the worker (default: --namespace)",
    )
    parser.add_argument(
        "--chart-values",
        action="store_true",
        help="print what the webhook asks about, for the value webhook.asked of the Helm chart,"
        " and nothing else",
    )
    add_webhook_arguments(parser)
    add_watching_arguments(parser)


def run_manifests(args: argparse.Namespace) -> int:
    """Print the requested objects as YAML; by default those of the worker's namespace.

    Raises:
        BadInput: an option cannot be.
    """
    import yaml

    namespace, watched = args.namespace, wants_watching(args)
    _refuse_idle(args)
    if args.chart_values:
        print_chart_values(args)
        return 0
    if namespace is None:
        namespace = WEBHOOK_NAMESPACE if args.webhook or watched else NAMESPACE
    _check_namespace(namespace, "--namespace")
    for excluded in args.exclude_namespace:
        _check_namespace(excluded, "--exclude-namespace")
    for operator in args.operator_namespace:
        _check_namespace(operator, "--operator-namespace")
    advice: tuple[str, ...] = ()
    if args.webhook:
        found, advice = webhook_manifests(args, namespace)
    elif watched:
        found = []
    else:
        from compatgate.canary.executors.kubernetes.worker_objects import make_worker_objects

        if args.worker_namespace is not None:
            _check_namespace(args.worker_namespace, "--worker-namespace")
        found = make_worker_objects(namespace, args.worker_namespace)
    if watched:
        found += watching_manifests(args, namespace)
    _advise(args, advice)
    yaml.safe_dump_all(found, sys.stdout, sort_keys=False, explicit_start=True)
    return 0


def _advise(args: argparse.Namespace, lines: tuple[str, ...]) -> None:
    """Print advice as YAML comments and on standard error, so that nobody misses it in a pipe."""
    for line in lines:
        print(f"# {line}")
    if lines:
        word = "warning" if args.failure_policy == "Fail" else "note"
        print(f"{word}: {' '.join(lines)}", file=sys.stderr)


def _refuse_idle(args: argparse.Namespace) -> None:
    """Refuse options of objects that are not printed: they would have no effect."""
    stated = set(vars(args).get("_given", ()))
    stated |= {n for n in _FLAGS_AND_LISTS if getattr(args, n)}
    for name, owners in _GOES_WITH.items():
        if name in stated and not any(getattr(args, owner) for owner in owners):
            wanted = " or ".join(f"--{owner.replace('_', '-')}" for owner in owners)
            raise BadInput(f"needs {wanted}", field=f"--{name.replace('_', '-')}")


def _check_namespace(namespace: str, field: str) -> None:
    if not _NAMESPACE_NAME.fullmatch(namespace):
        hint = "lower-case letters, digits and '-', at most 63"
        what = f"{namespace!r} is not a namespace"
        raise BadInput(what, field=field, value=namespace, hint=hint)


_LARGEST_BUNDLE = 256 * 1024
_CERTIFICATE_BEGIN = b"-----BEGIN CERTIFICATE-----"
_MAX_SECONDS = 30


def add_webhook_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of the webhook."""
    group = parser.add_argument_group("admission webhook")
    group.add_argument(
        "--webhook",
        action="store_true",
        help="print the webhook's account, service, certificates and configuration instead",
    )
    group.add_argument(
        "--failure-policy",
        choices=("Fail", "Ignore"),
        default="Ignore",
        help="result for a GPU pod when the gate does not answer: Ignore admits it unchecked,"
        " Fail refuses it; choose Fail once the gate answers (default: Ignore)",
    )
    group.add_argument(
        "--timeout",
        type=int,
        default=10,
        metavar="SECONDS",
        help="seconds that the API server waits, 1 to 30 (default: 10)",
    )
    _add_namespaces(group)
    group.add_argument(
        "--ca",
        metavar="FILE",
        help="CA certificates (PEM; two during a rotation) of the webhook; without this option"
        " cert-manager issues the certificate",
    )
    group.add_argument(
        "--kinds",
        action="append",
        default=[],
        metavar="FILE",
        help="additional workload kinds and GPU resources, as in compatgate serve",
    )
    group.add_argument(
        "--events",
        action="store_true",
        help="also print the role to write events about denials, for serve --kubernetes-events"
        " in-cluster",
    )
    group.add_argument(
        "--policy",
        choices=("warn", "deny"),
        help="also print a ValidatingAdmissionPolicy, which needs no gate: the API server warns"
        " about or denies GPU pods with malformed or contradicting annotations, and pods that"
        " mount /dev/nvidia*",
    )


def _add_namespaces(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--exclude-namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="namespace to skip in admission and audit; may be repeated",
    )
    group.add_argument(
        "--namespaces",
        choices=("all", "opt-in", "opt-out"),
        default="all",
        help="namespaces to ask about: all, only those labelled compatgate.dev/admission=enabled,"
        " or all but those labelled compatgate.dev/admission=disabled (default: all)",
    )
    group.add_argument(
        "--operator-namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="namespace of the GPU Operator, whose pods request GPUs; these pods are not checked"
        " or audited; may be repeated (default: gpu-operator)",
    )


def webhook_manifests(
    args: argparse.Namespace, namespace: str
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the objects, and lines of advice on applying them.

    Args:
        args: of the options above.
        namespace: of the gate.

    Raises:
        BadInput: an option cannot be.
    """
    from compatgate.service.admission.kinds import load_kinds
    from compatgate.service.admission.manifests import WebhookOptions, advice, webhook_objects

    if not 1 <= args.timeout <= _MAX_SECONDS:
        hint = f"1 to {_MAX_SECONDS}"
        raise BadInput("is not a valid timeout", field="--timeout", value=args.timeout, hint=hint)
    options = WebhookOptions(
        namespace,
        args.failure_policy,
        args.timeout,
        tuple(args.exclude_namespace),
        operators(args),
        None if args.ca is None else _read_bundle(args.ca),
        args.namespaces,
        args.events,
        args.policy,
    )
    found = webhook_objects(options, load_kinds(args.kinds))
    return found, advice(options)


def print_chart_values(args: argparse.Namespace) -> None:
    """Print the value ``webhook.asked`` of the chart as YAML."""
    import yaml

    from compatgate.service.admission.kinds import load_kinds
    from compatgate.service.admission.manifests import asked_objects

    values = {"webhook": {"asked": asked_objects(load_kinds(args.kinds))}}
    yaml.safe_dump(values, sys.stdout, sort_keys=False)


def operators(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the namespaces of the GPU Operator; by default the usual one."""
    from compatgate.service.admission.manifests import OPERATOR

    return tuple(args.operator_namespace or [OPERATOR])


def _read_bundle(path: str) -> str:
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(_LARGEST_BUNDLE + 1)
    except (OSError, ValueError) as error:
        reason = quote_error(error)
        raise BadInput(f"cannot read {path!r}: {reason}", field="--ca", value=path) from None
    if _CERTIFICATE_BEGIN not in raw or len(raw) > _LARGEST_BUNDLE or b"PRIVATE KEY" in raw:
        hint = "certificates in PEM, and no private key"
        raise BadInput(f"{path!r} contains no certificates", field="--ca", value=path, hint=hint)
    return base64.b64encode(raw).decode()


_IMAGE = re.compile(r"[A-Za-z0-9][\x21-\x7e]{0,511}")


def add_watching_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    group = parser.add_argument_group("nodes and audit")
    add = group.add_argument
    add("--nodes", action="store_true", help="print the manifests for reporting nodes")
    add("--taint", action="store_true", help="with --nodes: also label and taint nodes")
    add("--own", action="store_true", help="with --nodes: a DaemonSet that reports driver and"
        " GPUs from each node itself")  # fmt: skip
    add("--audit", action="store_true", help="print the manifests for auditing running pods")
    add("--image", metavar="REF", help="image of compatgate (default: only accounts and roles)")
    add("--gate", metavar="URL", help="URL of the gate (default: the Service of --webhook)")
    add_name(parser)
    add(
        "--every",
        type=int,
        metavar="MINUTES",
        default=10,
        help="minutes between two audits, 1 to 30 (default: 10)",
    )


def wants_watching(args: argparse.Namespace) -> bool:
    """Return whether the command asks for these objects."""
    return bool(args.nodes or args.audit)


def watching_manifests(args: argparse.Namespace, namespace: str) -> list[dict[str, Any]]:
    """Return the objects.

    Raises:
        BadInput: an option cannot be.
    """
    from compatgate.service.cluster.manifests import WatchOptions, audit_objects, node_objects

    check_name(args)
    if not 1 <= args.every <= 30:
        raise BadInput(
            "is not a valid interval", field="--every", value=args.every, hint="1 to 30 minutes"
        )
    if args.image is not None and not _IMAGE.fullmatch(args.image):
        raise BadInput("is not an image", field="--image", value=args.image)
    gate = args.gate
    if gate is not None and not re.fullmatch(r"https?://[\x21-\x7e]+", gate):
        raise BadInput(
            "is not a URL", field="--gate", value=gate, hint="for example https://gate.example"
        )
    options = WatchOptions(
        namespace,
        args.cluster,
        args.image,
        gate,
        args.taint,
        args.own,
        args.every,
        (*operators(args), *args.exclude_namespace),
    )
    found = node_objects(options) if args.nodes else []
    return found + (audit_objects(options) if args.audit else [])
