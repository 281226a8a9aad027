"""List and read the settings of ``compatgate serve``; errors name the option or variable."""

from __future__ import annotations

import ipaddress
import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Any

from compatgate.cli.attest import SIGNING, VERIFYING
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, naming, quote_error
from compatgate.kit.cli.options import DATABASE, add_log_format, add_workloads
from compatgate.kit.cli.parser import add_overlays
from compatgate.kit.cli.usage import (
    ABOVE_0,
    COUNT,
    PORT,
    CommandSettings,
    Heading,
    Repeated,
    Setting,
    Shared,
    bounded_seconds,
)
from compatgate.kit.http.limits import Rate, parse_rate
from compatgate.kit.http.signatures import Secret, read_secrets
from compatgate.kit.kubernetes import ClusterAccess, ClusterApi
from compatgate.service.gate.questions.images import (
    RegistryPlace,
    parse_indexes,
    parse_names,
    parse_networks,
    parse_places,
)

if TYPE_CHECKING:
    from compatgate.service.access.settings import IdentitySettings
    from compatgate.service.gate.decisions.batch_store import CommitMode

LOOPBACK_SCOPES = "read,gate,plan"
LOCAL_PROXIES = ("127.0.0.1", "::1")
_NONE = "none"
_SECONDS = bounded_seconds(" up to 120", ABOVE_0, 120)
_SHORTEST_SESSION_S = 60
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_ACCESS_HINT = "in-cluster in a pod with a service account token, or the path of a kubeconfig"


def read_size(text: str) -> int:
    """Read a size in bytes, with a unit or without."""
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, "")
    if not number.isdecimal() or unit not in _UNITS or int(number) < 1:
        raise ArgumentTypeError(f"'{text}' is not a size in bytes, like 1048576, 512k or 8m")
    return int(number) * _UNITS[unit]


def read_scopes(text: str | None, field: str) -> frozenset[str] | None:
    """Read scopes of callers without a token; None: nothing is stated."""
    from compatgate.service.access.tokens import parse_scopes

    if text is None:
        return None
    if text in ("", _NONE):
        return frozenset()
    with naming(field):
        return parse_scopes(text)


def read_commit(text: str | None, field: str) -> CommitMode:
    """Read how decisions are committed."""
    modes: dict[str, CommitMode] = {"sync": "sync", "async": "async"}
    stated = text or "sync"
    if stated not in modes:
        hint = f"one of {', '.join(modes)}"
        raise BadInput(f"{stated!r} is not a known value", field=field, value=stated, hint=hint)
    return modes[stated]


def read_session(text: str, field: str) -> timedelta:
    """Read the end of a session, at least a minute."""
    duration = parse_duration(text, field=field)
    if duration.total_seconds() < _SHORTEST_SESSION_S:
        raise BadInput("is too short", field=field, value=text, hint="at least 60s")
    return duration


def read_rate(text: str | None, field: str) -> Rate | None:
    """Read a limit; None: there is none."""
    return None if text in (None, _NONE) else parse_rate(text, field=field)


def read_proxies(texts: Sequence[str], field: str) -> tuple[str, ...]:
    """Read the addresses and networks of trusted proxies; every address is refused."""
    items = [item.strip() for text in texts for item in text.split(",")]
    if not items or items == [_NONE]:
        return () if items else LOCAL_PROXIES
    hint = "an address or a network, like 10.0.0.7 or 10.0.0.0/24"
    for item in items:
        try:
            is_all = ipaddress.ip_network(item).prefixlen == 0
        except ValueError as error:
            what = f"{item!r} is not a network: {quote_error(error)}"
            raise BadInput(what, field=field, value=item, hint=hint) from None
        if is_all:
            what = "every client could then state its own address"
            raise BadInput(what, field=field, value=item, hint=hint)
    return tuple(items)


def read_url(text: str | None, field: str) -> str:
    """Read the public URL of the service; empty without one."""
    if text and not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?", text):
        raise BadInput("is not a URL", field=field, value=text, hint="like https://gate.example")
    return text or ""


def read_access(named: str | None, field: str) -> ClusterAccess | None:
    """Return the access to a cluster, after a check of its credentials; it is not asked."""
    if named is None:
        return None
    in_cluster = named == "in-cluster"
    access = ClusterAccess(None if in_cluster else named, in_cluster=in_cluster)
    api = ClusterApi(access)
    try:
        api.connect()
    except BadInput as error:
        if error.field == "--kubeconfig":
            error.hint = _ACCESS_HINT
        error.field, error.value = field, named
        raise
    api.close()
    return access


def read_issuers(path: str | None, field: str) -> IdentitySettings:
    """Read the file of issuers that vouch for people and jobs."""
    from compatgate.service.access.settings import IdentitySettings
    from compatgate.service.access.settings_file import read_settings

    return read_settings(path, field) if path else IdentitySettings()


class ServeSettings(CommandSettings):
    """The settings of one start, in the order of the help."""

    host: Setting[str] = Setting("--host HOST = 127.0.0.1  address to listen on")
    port: Setting[int] = Setting(
        "--port PORT = 8080  port to listen on; 0 picks a free one", type=PORT
    )
    workers: Setting[int] = Setting("--workers N = 1  number of processes", type=COUNT)
    threads: Setting[int] = Setting(
        "--threads N = 32  concurrent requests per process and kind: questions, hooks, others",
        type=COUNT,
    )
    database = Shared(DATABASE)
    commit = Setting(
        "--decision-commit {sync,async}  when to answer on PostgreSQL: sync, after the decision is"
        " on disk; async, before that (a crash of the database loses the decisions of the last"
        " second) (default: $COMPATGATE_DECISION_COMMIT, else sync)",
        read_commit,
    )

    outages = Heading("outages of the database")
    state: Setting[str | None] = Setting(
        "--state DIR  folder of this replica for outages of the database, or of the central gate"
        " of --bundle: last snapshot and undelivered decisions (default: $COMPATGATE_STATE, else a"
        " folder next to the SQLite file, else one in the user's state folder)"
    )
    max_stale = Setting(
        "--max-stale DURATION = 24h  maximum age of the snapshot while the database, or the"
        " central gate of --bundle, is unavailable, for example 90m or 7d; an older snapshot gives"
        " no decision; 0: no decision without the database",
        lambda text, field: timedelta() if text == "0" else parse_duration(text, field=field),
    )
    start_empty: Setting[bool] = Setting(
        "--start-empty  start although the database is missing or empty and had a matrix before"
    )
    spool_size: Setting[int] = Setting(
        "--spool-size BYTES = 64m  reserved disk space of each process, in the folder of --state,"
        " for undelivered decisions; if the space is full, the gate makes no decision",
        type=read_size,
    )

    far = Heading("far gate")
    bundle: Setting[str | None] = Setting(
        "--bundle URL  decide from the signed bundle of this central gate, without a database;"
        " changes and pages are refused, and decisions are delivered to the central gate"
    )
    bundle_keys: Repeated[str] = Repeated(
        "--bundle-key FILE ...  public key that is trusted to sign bundles (PEM or JSON Web Key"
        " Set); may be repeated, for key rotation"
    )
    bundle_token: Setting[str | None] = Setting(
        "--bundle-token FILE  file with the token for the central gate, with the scopes read and"
        " deliver; the token's name is the name of the far gate (default: $COMPATGATE_TOKEN)",
        variable="",
    )
    bundle_every: Setting[str] = Setting(
        "--bundle-every DURATION = 60s  interval between checks for a newer bundle"
    )
    callers: Repeated[Secret] = Repeated(
        "--caller-token NAME=FILE ...  token for callers of this far gate, which does not know"
        " tokens of the central gate; in a file or as NAME=env:VARIABLE; may be repeated",
        read_secrets,
    )

    service = Heading("")
    matrix: Repeated[str] = Repeated(
        "--matrix FILE|DIR ...  matrix files to import at start if the stored matrix is empty; may"
        " be repeated"
    )
    anonymous = Setting(
        f"--anonymous SCOPES  scopes that need no token, or none (default: {LOOPBACK_SCOPES}"
        f" on a loopback address, else none)",
        read_scopes,
    )
    max_request_size: Setting[int] = Setting(
        "--max-request-size BYTES = 1m  largest request body, for example 512k or 8m",
        type=read_size,
    )

    images = Heading("images that questions name")
    registries: Repeated[RegistryPlace] = Repeated(
        "--registry HOST[/PREFIX] ...  registry to read images from; may be repeated (default:"
        " $COMPATGATE_REGISTRIES, comma-separated); without one, images are labels and the verdict"
        " says so",
        parse_places,
    )
    registry_networks: Repeated[IPv4Network | IPv6Network] = Repeated(
        "--registry-network CIDR ...  private network that these registries may redirect to (blob"
        " stores, token services), like 10.20.0.0/16; may be repeated (default:"
        " $COMPATGATE_REGISTRY_NETWORKS, comma-separated); the registry itself may have any"
        " address",
        parse_networks,
    )
    image_deadline: Setting[float] = Setting(
        "--image-deadline SECONDS = 10  timeout in seconds for reading the image of a question",
        type=_SECONDS,
    )

    packages = Heading("packages without a record")
    indexes: Repeated[str] = Repeated(
        "--index URL ...  package index for measuring packages without a record, in the"
        " background; may be repeated (default: $COMPATGATE_INDEXES, comma-separated, which also"
        " hides a password); without one, these packages stay unknown",
        parse_indexes,
    )
    wheel_places: Repeated[str] = Repeated(
        "--wheel-place NAME ...  place of wheels that these packages may be measured at, beside"
        " the indexes, like pytorch (compatgate facts show wheel_places); may be repeated (default:"
        " $COMPATGATE_WHEEL_PLACES, comma-separated; else none)",
        parse_names,
    )
    index_networks: Repeated[IPv4Network | IPv6Network] = Repeated(
        "--index-network CIDR ...  private network that these indexes may redirect to, like"
        " 10.20.0.0/16; may be repeated (default: $COMPATGATE_INDEX_NETWORKS, comma-separated); the"
        " index itself may have any address",
        parse_networks,
    )
    more = Heading("")
    workloads = Shared(add_workloads)

    runs = Heading("canary runs")
    canary_images: Repeated[str] = Repeated(
        "--canary-image PATTERN ...  images that submitted runs may test, like"
        " registry.example/team/*, or none; may be repeated (default: $COMPATGATE_CANARY_IMAGES,"
        " comma-separated; else all images on a loopback address, none on others)",
        variable="",  # read with the images
    )

    senders = Heading("callers")
    rate = Setting(
        "--rate N/s|N/m|N/h  limit of requests per token or anonymous address, in each process;"
        " above the limit the answer is 429; not for health and Kubernetes admission (default: no"
        " limit)",
        read_rate,
    )
    anonymous_rate = Setting(
        "--anonymous-rate N/s|N/m|N/h = 18000/h  limit of logged questions without a token per"
        " address, in each process, or none; above the limit the answer is 429; not for Kubernetes"
        " admission",
        read_rate,
    )
    failed_rate = Setting(
        "--failed-auth-rate N/s|N/m|N/h = 30/m  limit of failed authentications per address, in"
        " each process, or none; above the limit the answer is 429",
        read_rate,
    )
    proxies: Repeated[str] = Repeated(
        f"--trusted-proxy ADDRESS|CIDR ...  proxy whose X-Forwarded-For and X-Forwarded-Proto are"
        f" trusted, or none; may be repeated (default: {', '.join(LOCAL_PROXIES)})",
        read_proxies,
    )
    session_lifetime = Setting(
        "--session-lifetime DURATION = 12h  maximum duration of a browser session", read_session
    )
    session_idle = Setting(
        "--session-idle DURATION = 2h  idle timeout of a browser session", read_session
    )

    links = Heading("TLS and links")
    tls_cert: Setting[str | None] = Setting(
        "--tls-cert FILE  TLS certificate with its chain (PEM); reloaded when it changes"
    )
    tls_key: Setting[str | None] = Setting("--tls-key FILE  private key of the certificate (PEM)")
    public_url = Setting(
        "--public-url URL  public URL of this service, for links in messages (default: the URL of"
        " the request)",
        read_url,
    )

    kubernetes = Heading("Kubernetes admission")
    unmatched: Setting[Any] = Setting(
        "--unmatched {allow,warn,deny} = warn  result for a GPU workload without a target"
    )
    cluster: Setting[str | None] = Setting(
        "--cluster NAME  cluster of the pods; only its nodes determine their pools (default: nodes"
        " of all clusters)"
    )
    claims = Setting(
        "--read-claims in-cluster|KUBECONFIG  read the claims of pods from the cluster; claims of"
        " other devices then do not count as GPUs (default: every claim counts as a GPU)",
        read_access,
    )
    on_failure: Setting[Any] = Setting(
        "--on-failure {allow,deny} = deny  result for a GPU workload without a decision"
    )
    exemptions: Repeated[str] = Repeated(
        "--exempt NAMESPACE=WAIVER ...  admit denied workloads in these namespaces (glob) while"
        " the waiver is valid and names CG822; may be repeated"
    )
    kinds: Repeated[str] = Repeated(
        "--kinds FILE ...  additional workload kinds and GPU resources; may be repeated"
    )

    signatures = Heading("signed verdicts")
    signing = Shared(SIGNING)
    verifying = Shared(VERIFYING)

    webhooks = Heading("deploy webhooks")
    hook_secrets: Repeated[Secret] = Repeated(
        "--hook-secret NAME=FILE ...  key for signed requests to deploy webhooks, in a file or as"
        " NAME=env:VARIABLE; may be repeated, for key rotation (default: $COMPATGATE_HOOK_SECRETS,"
        " comma-separated); with a key, requests need a signature or a token",
        read_secrets,
    )

    incidents = Heading("incidents")
    webhook_url: Setting[str | None] = Setting(
        "--incident-webhook URL  post each incident that opens or closes to this URL, as JSON with"
        " a signature (default: $COMPATGATE_INCIDENT_WEBHOOK, else nothing is posted)"
    )
    webhook_key: Setting[str] = Setting(
        "--incident-webhook-key FILE = env:COMPATGATE_INCIDENT_WEBHOOK_KEY  file with the key that"
        " signs these requests, or env:VARIABLE"
    )

    sign_in = Heading("sign-in")
    issuers = Setting(
        "--oidc FILE  YAML or TOML file with trusted issuers for people and CI jobs, and their"
        " scopes (default: $COMPATGATE_OIDC; else tokens only)",
        read_issuers,
    )
    catalog = Heading("")
    facts = Shared(add_overlays)

    reports = Heading("logs and metrics")
    log_format = Shared(lambda group: add_log_format(group, level="warning"))
    access_log: Setting[Any] = Setting(
        "--access-log {off,errors,all} = errors  which requests to log; errors: those with a"
        " status of 400 or above"
    )
    metric_targets: Setting[int] = Setting(
        "--metrics-targets N = 100  number of targets with their own metrics, first by name;"
        " further targets count as other",
        type=COUNT,
    )
