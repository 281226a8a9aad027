"""Run ``compatgate serve``: the gate as a service."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from compatgate.canary.allowed_images import read_allowed_images
from compatgate.catalog import load_facts
from compatgate.cli.attest import read_signing
from compatgate.cli.serve_settings import LOOPBACK_SCOPES, ServeSettings
from compatgate.discovery.cache import default_image_folder, default_wheel_folder
from compatgate.discovery.registry.limits import ImageOptions, read_options
from compatgate.documents.quantities import describe_seconds
from compatgate.errors import BadInput, Unavailable, naming
from compatgate.gate_client import import_httpx
from compatgate.kit import logs
from compatgate.kit.cli.options import read_interval
from compatgate.kit.cli.output import say
from compatgate.kit.cli.usage import command
from compatgate.kit.database.opening import open_state_folder
from compatgate.kit.http.certificates import CertificatePair, load_certificate
from compatgate.service.cluster.claims import no_claims
from compatgate.service.cluster.kinds import load_kinds

if TYPE_CHECKING:
    from compatgate.service.app import Rooms
    from compatgate.service.cluster.admission import AdmissionOptions
    from compatgate.service.gate.decisions.batch_store import CommitMode
    from compatgate.service.gate.far.keeper import BundleKeeper
    from compatgate.service.gate.questions.images import ImageSettings
    from compatgate.service.gate.questions.wheels import WheelSettings
    from compatgate.web.service import Settings
    from compatgate.web.startup import Prepared

_UMASK = 0o077
"""Whatever the server writes is for its own user."""
_FIGURES = "PROMETHEUS_MULTIPROC_DIR"
_HEADER = " -H 'Authorization: Bearer TOKEN'"
_ASYNC_WARNING = """\
warning: --decision-commit async: if PostgreSQL crashes or its host loses power, the decisions of \
the last second are lost; sync keeps them"""
_TRY = """\
try:
  curl -s {url}/api/v1/gate -H 'Content-Type: application/json'{token} -d '
    {{"pool": {{"driver": "535.104.05", "gpu": "A100-SXM4-80GB"}},
     "stack": {{"cuda": "12.4", "arch": ["sm_80", "compute_80"]}}}}'"""
_NOT_FAR = {
    "--database": "it has none",
    "--decision-commit": "it has no database",
    "--start-empty": "it has no database",
    "--matrix": "the matrix comes with the bundle",
    "--facts": "the overlays of the central gate come with the bundle",
    "--signing-key": "it keeps no verdicts; the central gate signs",
    "--oidc": "sessions need a database; name callers with --caller-token",
}
"""Options that mean nothing for a far gate, and why."""


@command(
    ServeSettings.add_to,
    epilog="""\
examples:
  compatgate serve --matrix matrix.yaml          the first start prints an admin token
  compatgate serve --port 0 --database /tmp/trial.db
  compatgate serve --host 0.0.0.0 --workers 4 --database postgresql://gate@db.example/gate
  compatgate serve --bundle https://gate.example --bundle-key gate.pub --bundle-token token

SIGTERM and Ctrl-C stop the service gracefully. exit status: 0 stopped, 2 the start failed
""",
)
def run(args: argparse.Namespace) -> int:
    """Serve until a signal; return 0, or 2 when the start fails."""
    if args.workloads:
        os.environ["COMPATGATE_WORKLOADS"] = os.pathsep.join(args.workloads)
    figures = None
    if args.workers > 1 and not os.environ.get(_FIGURES):
        # Workers share counters in this folder; prometheus_client reads it when it is imported.
        figures = os.environ[_FIGURES] = tempfile.mkdtemp(prefix="compatgate-metrics-")
    try:
        return _serve(ServeSettings(args))
    except Unavailable as error:
        error.exit_code = BadInput.exit_code
        raise
    finally:
        if figures:
            shutil.rmtree(figures, ignore_errors=True)


def _serve(settings: ServeSettings) -> int:
    from compatgate.service.app import open_far_rooms
    from compatgate.web.app import create_front
    from compatgate.web.server import ServerOptions, is_loopback, listen, serve, url_of

    logs.configure(settings.args.log_format, settings.args.log_level)
    is_far, commit, tls = check_far(settings), read_commit(settings), read_certificate(settings)
    listener = listen(settings.host, settings.port)
    local = is_loopback(listener)
    web = read_web(settings, tls, local=local)
    url = url_of(listener, settings.host, secure=tls is not None)
    make_rooms: Callable[[], Rooms]
    if is_far:
        images, wheels = read_images(settings), read_wheels(settings)
        callers, bundle = settings.callers, get_bundle(settings)
        make_rooms = partial(open_far_rooms, bundle, callers, images, wheels, settings.spool_size)
    else:
        make_rooms = _prepare(settings, commit, local=local)
    open_scopes = web.anonymous - set(LOOPBACK_SCOPES.split(",") if local else ())
    if open_scopes:
        logs.tell(f"warning: {url} allows {', '.join(sorted(open_scopes))} without a token")

    def announce() -> None:
        token = "" if web.anonymous & {"gate", "admin"} else _HEADER
        print(f"compatgate is serving on {url}")
        if not is_far:
            print(f"its pages: {url}/ui/")
        print(_TRY.format(url=url, token=token), flush=True)

    os.umask(_UMASK)
    sys.stdout.flush()
    parent = os.getpid()  # the parent may be gone before a worker reads it
    level = settings.args.log_level
    options = ServerOptions(listener, settings.workers, level, tls, settings.proxies)
    status = serve(
        options,
        make_rooms,
        lambda rooms: create_front(rooms, web, settings.threads, parent=parent),
        announce,
    )
    return BadInput.exit_code if status else 0


def check_far(settings: ServeSettings) -> bool:
    """Return whether the settings describe a far gate."""
    options = {f"--{name.replace('_', '-')}": one for name, one in vars(settings.args).items()}
    if settings.bundle is None:
        for option in ("--bundle-key", "--bundle-token", "--caller-token"):
            if options[option]:
                raise BadInput("needs --bundle URL", field=option)
        return False
    for option, why in _NOT_FAR.items():
        if options[option]:
            hint = f"a far gate: {why}"
            raise BadInput("cannot be combined with --bundle", field=option, hint=hint)
    if not settings.bundle_keys:
        hint = "the public key of the central gate's serve --signing-key"
        raise BadInput("--bundle needs a trusted key", field="--bundle-key", hint=hint)
    return True


def read_commit(settings: ServeSettings) -> CommitMode:
    """Return how decisions are committed; warn about ``async``, which needs PostgreSQL."""
    from compatgate.kit.database.database import resolve_url

    mode = settings.commit
    if mode == "async":
        if resolve_url(settings.args.database).drivername == "sqlite":
            stated = settings.args.decision_commit
            field = "--decision-commit" if stated else "COMPATGATE_DECISION_COMMIT"
            hint = "omit the option: SQLite always waits for the disk"
            raise BadInput("async needs PostgreSQL", field=field, value=mode, hint=hint)
        say(_ASYNC_WARNING)
    return mode


def read_certificate(settings: ServeSettings) -> CertificatePair | None:
    """Return the certificate and its key, loaded once as a check; None: plain HTTP."""
    certificate, key = settings.tls_cert, settings.tls_key
    if not certificate and not key:
        return None
    if not certificate or not key:
        missing = "--tls-key" if certificate else "--tls-cert"
        raise BadInput("TLS needs both --tls-cert and --tls-key", field=missing)
    pair = CertificatePair(certificate, key)
    load_certificate(pair)
    return pair


def read_web(settings: ServeSettings, tls: CertificatePair | None, *, local: bool) -> Settings:
    """Return the settings of the web application."""
    from compatgate.service.access.browser_sessions import SessionLimits
    from compatgate.service.attention.worker import read_webhook
    from compatgate.web.service import Settings

    overlays, lifetime = settings.args.facts, settings.session_lifetime
    anonymous, public_url, webhook = settings.anonymous, settings.public_url, None
    if settings.webhook_url:
        webhook = read_webhook(settings.webhook_url, settings.webhook_key, public_url)
    if anonymous is None:  # only a loopback address opens scopes by itself
        anonymous = frozenset(LOOPBACK_SCOPES.split(",") if local else ())
    return Settings(
        anonymous=anonymous,
        max_request_size=settings.max_request_size,
        overlays=None if overlays is None else tuple(overlays),
        max_listeners=settings.threads // 2,
        admission=read_admission(settings),
        hook_secrets=settings.hook_secrets,
        public_url=public_url,
        signing=read_signing(settings.args),
        access_log=settings.access_log,
        metric_targets=settings.metric_targets,
        certificate=tls,
        identity=settings.issuers,
        failed=settings.failed_rate,
        rate=settings.rate,
        anonymous_rate=settings.anonymous_rate,
        sessions=SessionLimits(lifetime, min(lifetime, settings.session_idle)),
        incident_webhook=webhook,
    )


def read_admission(settings: ServeSettings) -> AdmissionOptions:
    """Return the settings of the admission webhook."""
    from compatgate.service.cluster.admission import AdmissionOptions
    from compatgate.service.cluster.questions import parse_exemptions
    from compatgate.service.nodes.cluster_connection import ClusterClaims

    access = settings.claims
    return AdmissionOptions(
        load_kinds(settings.kinds),
        settings.unmatched,
        settings.on_failure,
        parse_exemptions(settings.exemptions),
        settings.cluster,
        claims=no_claims if access is None else ClusterClaims.connect(access).of,
    )


def read_images(settings: ServeSettings) -> ImageSettings:
    """Return the settings for reading images that questions name."""
    from compatgate.service.gate.questions.images import ImageSettings

    options = read_options(cache=default_image_folder())
    return ImageSettings(
        settings.registries,
        settings.image_deadline,
        waiting=max(1, settings.threads // 2),
        options=replace(options, networks=settings.registry_networks),
    )


def read_wheels(settings: ServeSettings) -> WheelSettings:
    """Return the settings for measuring wheels of packages without a record."""
    from compatgate.service.gate.questions.wheels import WheelSettings

    indexes, places = settings.indexes, frozenset(settings.wheel_places)
    hosts = frozenset(urlsplit(url).netloc.rpartition("@")[2] for url in indexes)
    transport = ImageOptions(registries=hosts, internal=False, networks=settings.index_networks)
    known = places and {one.name for one in load_facts(settings.args.facts).wheel_places.places}
    for name in sorted(places - known):
        hint = f"one of {', '.join(sorted(known))}"
        raise BadInput("is not a place of wheels", field="--wheel-place", value=name, hint=hint)
    return WheelSettings(indexes, places, default_wheel_folder(), transport=transport)


def _prepare(settings: ServeSettings, commit: CommitMode, *, local: bool) -> Callable[[], Rooms]:
    from compatgate.web.startup import StartOptions, prepare

    images, wheels = read_images(settings), read_wheels(settings)
    under_test = read_allowed_images(
        settings.canary_images, "serve --canary-image", otherwise=("*",) if local else ()
    )
    prepared = prepare(
        StartOptions(
            settings.args.database,
            settings.matrix,
            settings.args.facts,
            state=settings.state,
            max_stale=settings.max_stale,
            start_empty=settings.start_empty,
        )
    )
    _report(prepared, has_files=bool(settings.matrix))
    return lambda: prepared.open_rooms(
        images, under_test=under_test, commit=commit, wheels=wheels, spool_size=settings.spool_size
    )


def _report(prepared: Prepared, *, has_files: bool) -> None:
    """Tell the results of the start on standard error; standard output begins with the URL."""
    if prepared.upgrade is not None and prepared.upgrade.before is not None:
        logs.tell(prepared.upgrade.sentence)
    if prepared.away is not None:
        at = prepared.confirmed_at.strftime("%Y-%m-%d %H:%M:%S UTC")
        text = f"warning: {prepared.away}; starting with the snapshot of {at}, matrix revision"
        logs.tell(f"{text} {prepared.revision}, until the database is back")
    elif prepared.imported is not None:
        count, revision = len(prepared.imported.changes), prepared.imported.revision
        logs.tell(f"imported {count} documents as revision {revision}")
    elif has_files:
        logs.tell(f"--matrix not imported: the stored matrix is at revision {prepared.revision}")
    if prepared.seen_revision:
        text = f"warning: the stored matrix is at revision {prepared.revision}, but was at revision"
        logs.tell(f"{text} {prepared.seen_revision} before: an older backup?")
    if prepared.admin is not None:  # for the person who starts the service, and not for the log
        text = f"admin token (shown only once): {prepared.admin.secret}\n"
        sys.stderr.write(text)  # in one piece: another thread logs meanwhile
        sys.stderr.flush()


def get_bundle(settings: ServeSettings) -> BundleKeeper:
    """Get the bundle, and tell on standard error what the gate begins with."""
    from sqlalchemy import make_url

    from compatgate.client.settings import TOKEN, base_of
    from compatgate.service.gate.far.bundles import read_bundle_keys
    from compatgate.service.gate.far.keeper import BundleKeeper, BundleOptions, Central

    import_httpx()
    with naming("--bundle"):
        url = base_of(settings.bundle or "")
    every, max_stale = settings.bundle_every, settings.max_stale
    every_s = read_interval(every, "--bundle-every", 1)
    if max_stale.total_seconds() < 2 * every_s:
        hint = f"at least two polls; --bundle-every is {every}"
        stated = settings.args.max_stale
        raise BadInput("is too short", field="--max-stale", value=stated, hint=hint)
    token_file = Path(settings.bundle_token) if settings.bundle_token else None
    central = Central(url, "" if token_file else os.environ.get(TOKEN, ""), token_file)
    keys = read_bundle_keys(settings.bundle_keys, "--bundle-key")
    folder = open_state_folder(make_url(url), settings.state)
    bundle = BundleKeeper(BundleOptions(central, keys, folder, every_s, max_stale))
    bundle.prepare()
    revision = bundle.present.trusted.version.revision
    logs.tell(f"far gate {bundle.options.central.name} of {url}: matrix revision {revision}")
    if (degraded := bundle.degraded()) is not None:
        age = describe_seconds(degraded.snapshot_age_s)
        logs.tell(f"warning: {degraded.reason}; starting with the last good bundle, {age} old")
    return bundle
