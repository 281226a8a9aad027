"""``compatgate k8s manifests --webhook``: what a cluster needs to ask the gate."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

_LARGEST = 256 * 1024
_BEGIN = b"-----BEGIN CERTIFICATE-----"
_MOST_SECONDS = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of the webhook."""
    group = parser.add_argument_group("admission webhook")
    group.add_argument(
        "--webhook",
        action="store_true",
        help="print account, service, certificates and ValidatingWebhookConfiguration instead",
    )
    group.add_argument(
        "--failure-policy",
        choices=("Fail", "Ignore"),
        default="Ignore",
        help="what becomes of a GPU pod when the gate does not answer: Ignore lets it in unchecked,"
        " Fail refuses it; choose Fail once the gate answers (Ignore)",
    )
    group.add_argument(
        "--timeout",
        type=int,
        default=10,
        metavar="SECONDS",
        help="seconds that the API server waits, 1 to 30 (default: 10)",
    )
    group.add_argument(
        "--exclude-namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="namespace to skip in admission and audit; may be repeated",
    )
    group.add_argument(
        "--operator-namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="where the GPU Operator runs, whose own pods ask for GPUs: never asked about, nor"
        " audited; may be repeated (gpu-operator)",
    )
    group.add_argument(
        "--ca",
        metavar="FILE",
        help="certificates of your own authority (PEM; two while it is rotated); without it"
        " cert-manager is told to make one",
    )
    group.add_argument(
        "--kinds", action="append", default=[], metavar="FILE", help="as in compatgate serve"
    )


def objects(
    args: argparse.Namespace, namespace: str
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the objects, and lines of advice on applying them.

    Args:
        args: of the options above.
        namespace: of the gate.

    Raises:
        BadInput: an option cannot be.
    """
    from compatgate.gate.admission.kinds import load_kinds
    from compatgate.gate.admission.manifests import WebhookOptions, advice, webhook_objects

    if not 1 <= args.timeout <= _MOST_SECONDS:
        hint = f"1 to {_MOST_SECONDS}"
        raise BadInput("is no timeout", field="--timeout", value=args.timeout, hint=hint)
    options = WebhookOptions(
        namespace,
        args.failure_policy,
        args.timeout,
        tuple(args.exclude_namespace),
        operators(args),
        None if args.ca is None else _bundle(args.ca),
    )
    found = webhook_objects(options, load_kinds(args.kinds))
    return found, advice(options)


def operators(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the namespaces of the GPU Operator, the usual one where none is named."""
    from compatgate.gate.admission.manifests import OPERATOR

    return tuple(args.operator_namespace or [OPERATOR])


def _bundle(path: str) -> str:
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"cannot read {path!r}: {reason}", field="--ca", value=path) from None
    if _BEGIN not in raw or len(raw) > _LARGEST or b"PRIVATE KEY" in raw:
        hint = "certificates in PEM, and no private key"
        raise BadInput(f"{path!r} holds no certificates", field="--ca", value=path, hint=hint)
    return base64.b64encode(raw).decode()
