"""Add and read options of ``compatgate serve``: registries, commits, TLS and webhooks."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentTypeError
from datetime import timedelta
from typing import TYPE_CHECKING, get_args

from compatgate.errors import BadInput
from compatgate.kit import logs
from compatgate.kit.cli.parser import bounded_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from compatgate.kit.http.certificates import CertificatePair
    from compatgate.kit.kubernetes import ClusterAccess
    from compatgate.service.admission.claims import KnownClaims
    from compatgate.service.admission.service import AdmissionOptions
    from compatgate.service.gate.batch_store import CommitMode
    from compatgate.service.identity.settings import IdentitySettings
    from compatgate.service.notices.webhook import IncidentWebhook
    from compatgate.service.webhooks.signatures import Secret


OPTION = "--decision-commit"
ENVIRONMENT = "COMPATGATE_DECISION_COMMIT"
_CHOICES = ("sync", "async")  # of Commit, which is not imported for --help
_WARNING = f"""\
warning: {OPTION} async: if PostgreSQL crashes or its host loses power, the decisions of the last
second are lost; sync keeps them"""


def port(text: str) -> int:
    """Read the number of a port.

    Raises:
        ArgumentTypeError: not one; for argparse.
    """
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"'{text}' is not a port, 0 to 65535")
    return int(text)


def add_logging(parser: argparse.ArgumentParser) -> None:
    """Add the options for logs and metrics."""
    group = parser.add_argument_group("logs and metrics")
    add_log_format(group, level="warning")
    group.add_argument(
        "--access-log",
        choices=("off", "errors", "all"),
        default="errors",
        help="which requests to log; errors: those with a status of 400 or above (default: errors)",
    )
    group.add_argument(
        "--metrics-targets",
        type=bounded_count,
        default=100,
        metavar="N",
        help="number of targets with their own metrics, first by name; further targets count as"
        " other (default: 100)",
    )


def add_log_format(group: argparse._ActionsContainer, *, level: str) -> None:
    """Add the level and the format of the log.

    Args:
        group: parser or group.
        level: the default.
    """
    add = group.add_argument
    add("--log-level", choices=logs.LEVELS, default=level, help=f"log level (default: {level})")
    add(
        "--log-format",
        choices=logs.FORMATS,
        default="text",
        help="format of log lines; json: one object a line (default: text)",
    )


def add_commit(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        OPTION,
        choices=_CHOICES,
        help="when to answer on PostgreSQL: sync, after the decision is on disk; async, before that"
        " (a crash of the database loses the decisions of the last second)"
        f" (default: ${ENVIRONMENT}, else sync)",
    )


def commit_of(args: argparse.Namespace) -> CommitMode:
    """Return how decisions are committed; warn about ``async`` on standard error.

    Raises:
        BadInput: the value is unknown, or it is ``async`` on SQLite, where it has no effect.
    """
    from compatgate.kit.database.database import resolve_url
    from compatgate.service.gate.batch_store import CommitMode

    given = args.decision_commit or os.environ.get(ENVIRONMENT) or "sync"
    field = OPTION if args.decision_commit else ENVIRONMENT
    known: dict[str, CommitMode] = {choice: choice for choice in get_args(CommitMode)}
    if given not in known:
        hint = f"one of {', '.join(known)}"
        raise BadInput(f"{given!r} is not a known value", field=field, value=given, hint=hint)
    if given == "async":
        if resolve_url(args.database).drivername == "sqlite":
            hint = "omit the option: SQLite always waits for the disk"
            raise BadInput("async needs PostgreSQL", field=field, value=given, hint=hint)
        print(_WARNING, file=sys.stderr)
    return known[given]


def add_state(group: argparse._ArgumentGroup) -> None:
    """Add the options for outages of the database."""
    group.add_argument(
        "--state",
        metavar="DIR",
        help="folder of this replica for outages of the database, or of the central gate of"
        " --bundle: last snapshot and undelivered decisions (default: $COMPATGATE_STATE, else a"
        " folder next to the SQLite file, else one in the user's state folder)",
    )
    group.add_argument(
        "--max-stale",
        default="24h",
        metavar="DURATION",
        help="maximum age of the snapshot while the database, or the central gate of --bundle, is"
        " unavailable, for example 90m or 7d; an older snapshot gives no decision; 0: no"
        " decision without the database (default: 24h)",
    )
    group.add_argument(
        "--start-empty",
        action="store_true",
        help="start although the database is missing or empty and had a matrix before",
    )


def max_stale(args: argparse.Namespace) -> timedelta:
    """Return the greatest age of a snapshot while the database is unavailable.

    Raises:
        BadInput: the option is not a duration.
    """
    from compatgate.documents.quantities import parse_duration

    if args.max_stale == "0":
        return timedelta(0)
    return parse_duration(args.max_stale, field="--max-stale")


_IN_CLUSTER = "in-cluster"
_EVENTS_HINT = "in-cluster in a pod with a service account token, or the path of a kubeconfig"
_SECRETS = "COMPATGATE_HOOK_SECRETS"
_OIDC = "COMPATGATE_OIDC"
_INCIDENT_WEBHOOK = "COMPATGATE_INCIDENT_WEBHOOK"
_INCIDENT_KEY = "env:COMPATGATE_INCIDENT_WEBHOOK_KEY"


def add_tls(group: argparse._ArgumentGroup) -> None:
    """Add the options for TLS."""
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
    """Add the options for Kubernetes admission."""
    group.add_argument(
        "--unmatched",
        choices=("allow", "warn", "deny"),
        default="warn",
        help="result for a GPU workload without a target (default: warn)",
    )
    group.add_argument(
        "--cluster",
        metavar="NAME",
        help="cluster of the pods; only its nodes determine their pools (default: nodes of all"
        " clusters)",
    )
    group.add_argument(
        "--read-claims",
        metavar="in-cluster|KUBECONFIG",
        help="read the claims of pods from the cluster; claims of other devices then do not count"
        " as GPUs (default: every claim counts as a GPU)",
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
        help="admit denied workloads in these namespaces (glob) while the waiver is valid and names"
        " CG822; may be repeated",
    )
    group.add_argument(
        "--kinds",
        action="append",
        default=[],
        metavar="FILE",
        help="additional workload kinds and GPU resources; may be repeated",
    )
    group.add_argument(
        "--kubernetes-events",
        metavar="ACCESS",
        help="write a Kubernetes event about each denied workload, with the service account of this"
        " pod (in-cluster) or with a kubeconfig FILE (default: no events)",
    )


def add_deploy_hooks(group: argparse._ArgumentGroup) -> None:
    """Add the options for webhooks of deploy tools."""
    group.add_argument(
        "--hook-secret",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="key for signed requests to deploy webhooks, in a file or as NAME=env:VARIABLE; may be"
        f" repeated, for key rotation (default: ${_SECRETS}, comma-separated); with a key,"
        " requests need a signature or a token",
    )


def add_oidc(group: argparse._ArgumentGroup) -> None:
    """Add the option for sign-in by OpenID Connect."""
    group.add_argument(
        "--oidc",
        metavar="FILE",
        help="YAML or TOML file with trusted issuers for people and CI jobs, and their scopes"
        " (default: $COMPATGATE_OIDC; else tokens only)",
    )


def identity_settings(args: argparse.Namespace) -> IdentitySettings:
    """Return the issuers that vouch for people and jobs.

    Raises:
        BadInput: the file cannot be read, or the extra ``oidc`` is not installed.
        ManyProblems: every mistake in the file.
    """
    from compatgate.service.identity.settings import IdentitySettings
    from compatgate.service.identity.settings_file import read_settings

    if args.oidc:
        return read_settings(args.oidc)
    named = os.environ.get(_OIDC)
    return read_settings(named, _OIDC) if named else IdentitySettings()


def hook_secrets(args: argparse.Namespace) -> tuple[Secret, ...]:
    """Return the keys for signed requests.

    Raises:
        BadInput: a key cannot be read.
    """
    from compatgate.service.webhooks.signatures import read_secrets

    named = [item.strip() for item in os.environ.get(_SECRETS, "").split(",") if item.strip()]
    return read_secrets([*args.hook_secret, *named], "--hook-secret")


def admission_options(args: argparse.Namespace) -> AdmissionOptions:
    """Return the settings of the admission webhook.

    Raises:
        BadInput: an exemption or a file of kinds is malformed.
    """
    from compatgate.service.admission.kinds import load_kinds
    from compatgate.service.admission.questions import parse_exemptions
    from compatgate.service.admission.service import AdmissionOptions

    exemptions = parse_exemptions(args.exempt, "--exempt")
    return AdmissionOptions(
        load_kinds(args.kinds),
        args.unmatched,
        args.on_failure,
        exemptions,
        args.cluster,
        claims=_claims(_cluster_access(args.read_claims, "--read-claims")),
        events=_cluster_access(args.kubernetes_events, "--kubernetes-events"),
    )


def _claims(access: ClusterAccess | None) -> Callable[[str], KnownClaims]:
    from compatgate.service.admission.claims import no_claims
    from compatgate.service.cluster.claims import ClusterClaims

    return no_claims if access is None else ClusterClaims.connect(access).of


def _cluster_access(named: str | None, option: str) -> ClusterAccess | None:
    """Return the access to a cluster, after a check of its credentials; it is not asked."""
    from compatgate.kit.cluster_api import ClusterApi
    from compatgate.kit.kubernetes import ClusterAccess

    if named is None:
        return None
    in_cluster = named == _IN_CLUSTER
    access = ClusterAccess(None if in_cluster else named, in_cluster=in_cluster)
    api = ClusterApi(access)
    try:
        api.connect()
    except BadInput as error:
        if error.field == "--kubeconfig":
            error.hint = _EVENTS_HINT
        error.field, error.value = option, named
        raise
    api.close()
    return access


def tls_pair(args: argparse.Namespace) -> CertificatePair | None:
    """Return the certificate and its key, loaded once as a check.

    Raises:
        BadInput: they are not usable, or one of them is missing.
    """
    from compatgate.kit.http.certificates import CertificatePair, load_certificate

    if not args.tls_cert and not args.tls_key:
        return None
    if not args.tls_cert or not args.tls_key:
        missing = "--tls-key" if args.tls_cert else "--tls-cert"
        raise BadInput("TLS needs both --tls-cert and --tls-key", field=missing)
    pair = CertificatePair(args.tls_cert, args.tls_key)
    load_certificate(pair)
    return pair


def public_url(args: argparse.Namespace) -> str:
    """Return the public URL of the service; empty without one.

    Raises:
        BadInput: the text is not a URL.
    """
    url: str = args.public_url or ""
    if url and not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?", url):
        hint = "like https://gate.example"
        raise BadInput("is not a URL", field="--public-url", value=url, hint=hint)
    return url


def add_incidents(group: argparse._ArgumentGroup) -> None:
    """Add the options for the webhook of incidents."""
    group.add_argument(
        "--incident-webhook",
        metavar="URL",
        help="post each incident that opens or closes to this URL, as JSON with a signature"
        f" (default: ${_INCIDENT_WEBHOOK}, else nothing is posted)",
    )
    group.add_argument(
        "--incident-webhook-key",
        default=_INCIDENT_KEY,
        metavar="FILE",
        help="file with the key that signs these requests, or env:VARIABLE (default: %(default)s)",
    )


def incident_webhook(args: argparse.Namespace, public_url: str) -> IncidentWebhook | None:
    """Return the webhook of incidents; None: there is none.

    Raises:
        BadInput: not a URL, or no key of sufficient length.
    """
    from compatgate.service.notices.webhook import read_webhook

    url = args.incident_webhook or os.environ.get(_INCIDENT_WEBHOOK)
    return read_webhook(url, args.incident_webhook_key, public_url) if url else None
