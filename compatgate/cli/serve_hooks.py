"""Options of ``compatgate serve`` for TLS and for webhooks."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.gate.admission.admit import AdmissionOptions
    from compatgate.gate.hooks.signatures import Secret
    from compatgate.web.tls import Pair

_SECRETS = "COMPATGATE_HOOK_SECRETS"


def add_tls(group: argparse._ArgumentGroup) -> None:
    """Describe the options for TLS."""
    group.add_argument(
        "--tls-cert",
        metavar="FILE",
        help="TLS certificate with its chain (PEM); reloaded when it changes",
    )
    group.add_argument("--tls-key", metavar="FILE", help="private key of the certificate (PEM)")
    group.add_argument(
        "--public-url",
        metavar="URL",
        help="public URL of this service, for links in messages (default: the URL of the request)",
    )


def add_admission(group: argparse._ArgumentGroup) -> None:
    """Describe the options for Kubernetes admission."""
    group.add_argument(
        "--unmatched",
        choices=("allow", "warn", "deny"),
        default="warn",
        help="result for a GPU workload without a target (default: warn)",
    )
    group.add_argument(
        "--on-failure",
        choices=("allow", "deny"),
        default="deny",
        help="result for a GPU workload without a decision (default: deny)",
    )
    group.add_argument(
        "--exempt",
        action="append",
        default=[],
        metavar="NAMESPACE=WAIVER",
        help="let in what is denied in these namespaces (glob), as long as the waiver holds and"
        " names CG822; may be repeated",
    )
    group.add_argument(
        "--kinds",
        action="append",
        default=[],
        metavar="FILE",
        help="additional workload kinds and GPU resources; may be repeated",
    )


def add_deploying(group: argparse._ArgumentGroup) -> None:
    """Describe the options for webhooks of deploy tools."""
    group.add_argument(
        "--hook-secret",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a key that requests to deploy webhooks may be signed with, in a file or as"
        f" NAME=env:VARIABLE; may be repeated, to change keys in turn (${_SECRETS}, with commas);"
        " where there is one, nobody asks there without a signature or a token",
    )


def hook_secrets(args: argparse.Namespace) -> tuple[Secret, ...]:
    """The keys that requests may be signed with.

    Raises:
        BadInput: one cannot be read.
    """
    from compatgate.gate.hooks.signatures import read_secrets

    named = [item.strip() for item in os.environ.get(_SECRETS, "").split(",") if item.strip()]
    return read_secrets([*args.hook_secret, *named], "--hook-secret")


def admission_options(args: argparse.Namespace) -> AdmissionOptions:
    """The hook's settings.

    Raises:
        BadInput: an exemption or a file of kinds is malformed.
    """
    from compatgate.gate.admission.admit import AdmissionOptions
    from compatgate.gate.admission.exemptions import parse_exemptions
    from compatgate.gate.admission.kinds import load_kinds

    exemptions = parse_exemptions(args.exempt, "--exempt")
    return AdmissionOptions(load_kinds(args.kinds), args.unmatched, args.on_failure, exemptions)


def tls_pair(args: argparse.Namespace) -> Pair | None:
    """The certificate and its key, loaded once to see that they are usable.

    Raises:
        BadInput: they are not, or one of them is missing.
    """
    from compatgate.web.tls import Pair, load

    if not args.tls_cert and not args.tls_key:
        return None
    if not args.tls_cert or not args.tls_key:
        missing = "--tls-key" if args.tls_cert else "--tls-cert"
        raise BadInput("a certificate and its key go together", field=missing)
    pair = Pair(args.tls_cert, args.tls_key)
    load(pair)
    return pair


def public_url(args: argparse.Namespace) -> str:
    """Where people reach the service, empty where nothing was said.

    Raises:
        BadInput: it is not an address.
    """
    url: str = args.public_url or ""
    if url and not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?", url):
        hint = "like https://gate.example"
        raise BadInput("is not an address", field="--public-url", value=url, hint=hint)
    return url
