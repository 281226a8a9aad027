"""Add and read the options of ``compatgate serve`` for registries, commits, TLS and webhooks."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlsplit

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.kit.http.connection import CertificatePair
    from compatgate.service.admission.service import AdmissionOptions
    from compatgate.service.gate.decision_writer import Commit
    from compatgate.service.gate.images import ImageSettings
    from compatgate.service.gate.wheels import WheelSettings
    from compatgate.service.webhooks.signatures import Secret

_LONGEST_WAIT = 120.0
_REGISTRIES = "COMPATGATE_REGISTRIES"
_NETWORKS = "COMPATGATE_REGISTRY_NETWORKS"
_INDEXES = "COMPATGATE_INDEXES"
_INDEX_NETWORKS = "COMPATGATE_INDEX_NETWORKS"


def add_images(group: argparse._ArgumentGroup) -> None:
    """Add the options for images that questions name."""
    group.add_argument(
        "--registry",
        action="append",
        default=[],
        metavar="HOST[/PREFIX]",
        help="a registry whose images are read; may be repeated ($COMPATGATE_REGISTRIES, with"
        " commas; none: an image is a label, and the answer says that it was not read)",
    )
    group.add_argument(
        "--registry-network",
        action="append",
        default=[],
        metavar="CIDR",
        help="addresses that are not public and that these registries may lead to (blob stores,"
        " token services), like 10.20.0.0/16; may be repeated ($COMPATGATE_REGISTRY_NETWORKS, with"
        " commas; a registry itself may be anywhere)",
    )
    group.add_argument(
        "--image-deadline",
        type=wait_seconds,
        default=10.0,
        metavar="SECONDS",
        help="seconds that a question waits for its image (default: 10)",
    )


def add_wheels(group: argparse._ArgumentGroup) -> None:
    """Add the options for packages without a record."""
    group.add_argument(
        "--index",
        action="append",
        default=[],
        metavar="URL",
        help="a package index whose wheels are measured where a package has no record; questions"
        " do not wait for it; may be repeated ($COMPATGATE_INDEXES, with commas, for a URL with a"
        " password; none: such a package stays open)",
    )
    group.add_argument(
        "--index-network",
        action="append",
        default=[],
        metavar="CIDR",
        help="addresses that are not public and that these indexes may lead to, like 10.20.0.0/16;"
        " may be repeated ($COMPATGATE_INDEX_NETWORKS, with commas; an index itself may be"
        " anywhere)",
    )


def image_settings(args: argparse.Namespace) -> ImageSettings:
    """Return how images are read: registries, networks, deadline."""
    from msgspec.structs import replace

    from compatgate.discovery.cache import default_image_folder
    from compatgate.discovery.registry.limits import options_from_environment
    from compatgate.service.gate.images import ImageSettings, parse_networks, parse_places

    networks = (
        *parse_networks(args.registry_network, "--registry-network"),
        *parse_networks([os.environ.get(_NETWORKS, "")], _NETWORKS),
    )
    options = options_from_environment(cache=default_image_folder())
    return ImageSettings(
        (
            *parse_places(args.registry, "--registry"),
            *parse_places([os.environ.get(_REGISTRIES, "")], _REGISTRIES),
        ),
        args.image_deadline,
        waiting=max(1, args.threads // 2),
        options=replace(options, networks=networks),
    )


def wheel_settings(args: argparse.Namespace) -> WheelSettings:
    """Return how wheels are measured: indexes and networks."""
    from compatgate.discovery.cache import default_wheel_folder
    from compatgate.discovery.registry.limits import ImageOptions
    from compatgate.service.gate.images import parse_indexes, parse_networks
    from compatgate.service.gate.wheels import WheelSettings

    indexes = (
        *parse_indexes(args.index, "--index"),
        *parse_indexes([os.environ.get(_INDEXES, "")], _INDEXES),
    )
    networks = (
        *parse_networks(args.index_network, "--index-network"),
        *parse_networks([os.environ.get(_INDEX_NETWORKS, "")], _INDEX_NETWORKS),
    )
    hosts = frozenset(urlsplit(url).netloc.rpartition("@")[2] for url in indexes)
    transport = ImageOptions(registries=hosts, internal=False, networks=networks)
    return WheelSettings(indexes, default_wheel_folder(), transport=transport)


def wait_seconds(text: str) -> float:
    """Read an option that says how long to wait."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST_WAIT:
        raise ArgumentTypeError(f"'{text}' is not a number of seconds, up to {_LONGEST_WAIT:g}")
    return value


OPTION = "--decision-commit"
ENVIRONMENT = "COMPATGATE_DECISION_COMMIT"
_CHOICES = ("sync", "async")  # of Commit, which is not imported for --help
_WARNING = f"""\
warning: {OPTION} async: decisions that were answered in the last second are lost when a process of
PostgreSQL dies or its host loses power; sync keeps them"""


def add_commit(parser: argparse.ArgumentParser) -> None:
    """Describe the option."""
    parser.add_argument(
        OPTION,
        choices=_CHOICES,
        help="when a decision is answered on PostgreSQL: sync, once it is on the database's disk;"
        " async, before that, and the last second of answered decisions is lost when a process of"
        f" the database dies (${ENVIRONMENT}, else sync)",
    )


def commit_of(args: argparse.Namespace) -> Commit:
    """Return how decisions are committed; ``async`` is said on standard error.

    Raises:
        BadInput: the variable holds another word; or ``async`` would change nothing, on SQLite.
    """
    from compatgate.kit.database.database import resolve_url
    from compatgate.service.gate.decision_writer import Commit

    given = args.decision_commit or os.environ.get(ENVIRONMENT) or "sync"
    field = OPTION if args.decision_commit else ENVIRONMENT
    known: dict[str, Commit] = {choice: choice for choice in get_args(Commit)}
    if given not in known:
        hint = f"one of {', '.join(known)}"
        raise BadInput(f"{given!r} is not known", field=field, value=given, hint=hint)
    if given == "async":
        if resolve_url(args.database).drivername == "sqlite":
            hint = "leave it out: SQLite never waits for its disk"
            raise BadInput("async is for PostgreSQL", field=field, value=given, hint=hint)
        print(_WARNING, file=sys.stderr)
    return known[given]


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
    """Return the keys that requests may be signed with.

    Raises:
        BadInput: one cannot be read.
    """
    from compatgate.service.webhooks.signatures import read_secrets

    named = [item.strip() for item in os.environ.get(_SECRETS, "").split(",") if item.strip()]
    return read_secrets([*args.hook_secret, *named], "--hook-secret")


def admission_options(args: argparse.Namespace) -> AdmissionOptions:
    """Return the hook's settings.

    Raises:
        BadInput: an exemption or a file of kinds is malformed.
    """
    from compatgate.service.admission.kinds import load_kinds
    from compatgate.service.admission.questions import parse_exemptions
    from compatgate.service.admission.service import AdmissionOptions

    exemptions = parse_exemptions(args.exempt, "--exempt")
    return AdmissionOptions(load_kinds(args.kinds), args.unmatched, args.on_failure, exemptions)


def tls_pair(args: argparse.Namespace) -> CertificatePair | None:
    """Return the certificate and its key, loaded once to see that they are usable.

    Raises:
        BadInput: they are not, or one of them is missing.
    """
    from compatgate.kit.http.connection import CertificatePair, load_certificate

    if not args.tls_cert and not args.tls_key:
        return None
    if not args.tls_cert or not args.tls_key:
        missing = "--tls-key" if args.tls_cert else "--tls-cert"
        raise BadInput("a certificate and its key go together", field=missing)
    pair = CertificatePair(args.tls_cert, args.tls_key)
    load_certificate(pair)
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
