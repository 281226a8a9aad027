"""``compatgate k8s manifests --nodes`` and ``--audit``: what looking after a cluster needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compatgate.cli.k8s.cluster import add_name, check_name
from compatgate.cli.k8s.webhook import operators
from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

_IMAGE = re.compile(r"[A-Za-z0-9][\x21-\x7e]{0,511}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    group = parser.add_argument_group("nodes and audit")
    add = group.add_argument
    add("--nodes", action="store_true", help="print the manifests for reporting nodes")
    add("--taint", action="store_true", help="with --nodes: also label and taint nodes")
    add("--own", action="store_true", help="with --nodes: a DaemonSet that reports what each"
        " node's driver says of itself")  # fmt: skip
    add("--audit", action="store_true", help="print the manifests for auditing running pods")
    add("--image", metavar="REF", help="that has compatgate; without it only accounts and roles")
    add("--gate", metavar="URL", help="of the gate (the Service that --webhook makes)")
    add_name(parser)
    add(
        "--every",
        type=int,
        metavar="MINUTES",
        default=10,
        help="minutes between two audits, 1 to 30 (default: 10)",
    )


def is_asked(args: argparse.Namespace) -> bool:
    """Whether these objects are asked for."""
    return bool(args.nodes or args.audit)


def objects(args: argparse.Namespace, namespace: str) -> list[dict[str, Any]]:
    """The objects.

    Raises:
        BadInput: an option cannot be.
    """
    from compatgate.gate.cluster.manifests import WatchOptions, audit_objects, node_objects

    check_name(args)
    if not 1 <= args.every <= 30:
        raise BadInput("is no interval", field="--every", value=args.every, hint="1 to 30 minutes")
    if args.image is not None and not _IMAGE.fullmatch(args.image):
        raise BadInput("is no image", field="--image", value=args.image)
    gate = args.gate
    if gate is not None and not re.fullmatch(r"https?://[\x21-\x7e]+", gate):
        raise BadInput("is no URL", field="--gate", value=gate, hint="like https://gate.example")
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
