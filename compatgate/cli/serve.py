"""Run ``compatgate serve``: the gate as a service."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from msgspec.structs import replace

from compatgate.cli import serve_access, serve_far, serve_options
from compatgate.cli.serve_access import add_images, add_wheels, image_settings, wheel_settings
from compatgate.errors import BadInput, Unavailable
from compatgate.kit import logs
from compatgate.kit.cli.options import add_database, add_workloads
from compatgate.kit.cli.parser import add_overlays, bounded_count
from compatgate.service.attestations import cli as serve_signing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from compatgate.canary.allowed_images import AllowedImages
    from compatgate.service.gate.batch_store import CommitMode
    from compatgate.service.gate.images import ImageSettings
    from compatgate.service.gate.service import Gate
    from compatgate.service.gate.wheels import WheelSettings
    from compatgate.service.web.call import Settings
    from compatgate.service.web.server import Prepared

_UMASK = 0o077
"""Whatever the server writes is for its own user."""
_LOOPBACK_SCOPES = "read,gate,plan"
_NO_SCOPES = ("", "none")
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_FIGURES = "PROMETHEUS_MULTIPROC_DIR"
_HEADER = " -H 'Authorization: Bearer TOKEN'"
_EXAMPLES = """\
examples:
  compatgate serve --matrix matrix.yaml          the first start prints an admin token
  compatgate serve --port 0 --database /tmp/trial.db
  compatgate serve --host 0.0.0.0 --workers 4 --database postgresql://gate@db.example/gate
  compatgate serve --bundle https://gate.example --bundle-key gate.pub --bundle-token token

SIGTERM and Ctrl-C stop the service gracefully. exit status: 0 stopped, 2 the start failed
"""
_TRY = """\
try:
  curl -s {url}/api/v1/gate -H 'Content-Type: application/json'{token} -d '
    {{"pool": {{"driver": "535.104.05", "gpu": "A100-SXM4-80GB"}},
     "stack": {{"cuda": "12.4", "arch": ["sm_80", "compute_80"]}}}}'"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    add(
        "--port",
        type=serve_options.port,
        default=8080,
        help="port to listen on; 0 picks a free one (default: 8080)",
    )
    _add_processes(parser)
    add_database(parser)
    serve_options.add_commit(parser)
    outages = parser.add_argument_group("outages of the database")
    serve_options.add_state(outages)
    outages.add_argument(
        "--spool-size",
        type=_size,
        default=64 * 1024**2,
        metavar="BYTES",
        help="reserved disk space of each process, in the folder of --state, for undelivered"
        " decisions; if the space is full, the gate makes no decision (default: 64m)",
    )
    serve_far.add_far(parser.add_argument_group("far gate"))
    add(
        "--matrix",
        action="append",
        default=[],
        metavar="FILE|DIR",
        help="matrix files to import at start if the stored matrix is empty; may be repeated",
    )
    add(
        "--anonymous",
        metavar="SCOPES",
        help="scopes that need no token, or none"
        f" (default: {_LOOPBACK_SCOPES} on a loopback address, else none)",
    )
    _add_limits(parser)
    add_images(parser.add_argument_group("images that questions name"))
    add_wheels(parser.add_argument_group("packages without a record"))
    add_workloads(parser)
    _add_canary_images(parser)
    serve_access.add_access(parser.add_argument_group("callers"))
    serve_options.add_tls(parser.add_argument_group("TLS and links"))
    serve_access.add_verdict_links(parser.add_argument_group("verdicts without a token"))
    serve_options.add_admission(parser.add_argument_group("Kubernetes admission"))
    signed = parser.add_argument_group("signed verdicts")
    serve_signing.add_signing(signed)
    serve_signing.add_verifying(signed)
    serve_options.add_deploy_hooks(parser.add_argument_group("deploy webhooks"))
    serve_options.add_incidents(parser.add_argument_group("incidents"))
    serve_options.add_oidc(parser.add_argument_group("sign-in"))
    add_overlays(parser)
    serve_options.add_logging(parser)


def _add_processes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=bounded_count,
        default=1,
        metavar="N",
        help="number of processes (default: 1)",
    )
    parser.add_argument(
        "--threads",
        type=bounded_count,
        default=32,
        metavar="N",
        help="concurrent requests per process and kind: questions, hooks, others (default: 32)",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-request-size",
        type=_size,
        default=1024**2,
        metavar="BYTES",
        help="largest request body, for example 512k or 8m (default: 1m)",
    )


def _add_canary_images(parser: argparse.ArgumentParser) -> None:
    parser.add_argument_group("canary runs").add_argument(
        "--canary-image",
        action="append",
        default=[],
        metavar="PATTERN",
        help="images that submitted runs may test, like registry.example/team/*, or none; may be"
        " repeated (default: $COMPATGATE_CANARY_IMAGES, comma-separated; else all images on a"
        " loopback address, none on others)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; return 0, or 2 when the start fails.

    Raises:
        CompatgateError: the address, the database or the matrix cannot be used.
    """
    if args.workloads:
        os.environ["COMPATGATE_WORKLOADS"] = os.pathsep.join(args.workloads)
    figures = _share_figures(args.workers)
    try:
        return _serve(args)
    except Unavailable as error:
        error.exit_code = BadInput.exit_code
        raise
    finally:
        if figures:
            shutil.rmtree(figures, ignore_errors=True)


def _serve(args: argparse.Namespace) -> int:
    from compatgate.service.web.app import create_front
    from compatgate.service.web.server import (
        ServerOptions,
        is_loopback,
        listen,
        serve,
        url_of,
    )

    logs.configure(args.log_format, args.log_level)
    settings, commit = _read_settings(args), serve_options.commit_of(args)
    proxies = serve_access.trusted_proxies(args)
    images, wheels = image_settings(args), wheel_settings(args)
    listener = listen(args.host, args.port)
    local = is_loopback(listener)
    if args.anonymous is None and local:
        settings = replace(settings, anonymous=_scopes(_LOOPBACK_SCOPES))
    under_test = _canary_images(args, local=local)
    url = url_of(listener, args.host, secure=settings.certificate is not None)
    open_gate = _prepare(args, settings.overlays, images, wheels, under_test, commit)
    _warn(settings.anonymous, url, local=local)

    def announce() -> None:
        token = "" if settings.anonymous & {"gate", "admin"} else _HEADER
        print(f"compatgate is serving on {url}")
        if not serve_far.is_far(args):  # a far gate has none
            print(f"its pages: {url}/ui/")
        print(_TRY.format(url=url, token=token), flush=True)

    os.umask(_UMASK)
    sys.stdout.flush()
    parent = os.getpid()  # the parent may be gone before a worker reads it
    options = ServerOptions(
        listener,
        args.workers,
        args.log_level,
        settings.certificate,
        proxies,
    )
    status = serve(
        options,
        open_gate,
        lambda gate: create_front(gate, settings, args.threads, parent=parent),
        announce,
    )
    return BadInput.exit_code if status else 0


def _read_settings(args: argparse.Namespace) -> Settings:
    """Read the settings of the application; callers without a token may do nothing by default."""
    from compatgate.service.web.call import Settings

    public_url = serve_options.public_url(args)
    return Settings(
        frozenset() if args.anonymous is None else _scopes(args.anonymous),
        args.max_request_size,
        overlays=None if args.facts is None else tuple(args.facts),
        max_listeners=args.threads // 2,
        admission=serve_options.admission_options(args),
        hook_secrets=serve_options.hook_secrets(args),
        public_url=public_url,
        signing=serve_signing.read_signing(args, public_url),
        access_log=args.access_log,
        metric_targets=args.metrics_targets,
        certificate=serve_options.tls_pair(args),
        identity=serve_options.identity_settings(args),
        failed=serve_access.rate_limit(args, "--failed-auth-rate"),
        rate=serve_access.rate_limit(args, "--rate"),
        anonymous_rate=serve_access.rate_limit(args, "--anonymous-rate"),
        sessions=serve_access.session_limits(args),
        incident_webhook=serve_options.incident_webhook(args, public_url),
        verdict_links=serve_access.verdict_links(args, public_url, far=serve_far.is_far(args)),
    )


def _prepare(
    args: argparse.Namespace,
    overlays: Sequence[str] | None,
    images: ImageSettings,
    wheels: WheelSettings,
    under_test: AllowedImages,
    commit: CommitMode,
) -> Callable[[], Gate]:
    """Prepare the gate, and return the function that opens it in each process."""
    from compatgate.service.web.server import StartOptions, prepare

    max_stale = serve_options.max_stale(args)
    if serve_far.is_far(args):
        callers = serve_far.callers(args)
        far = serve_far.prepare(args, max_stale)
        return lambda: far.open_gate(callers, images, wheels, args.spool_size)
    prepared = prepare(
        StartOptions(
            args.database,
            args.matrix,
            overlays,
            state=args.state,
            max_stale=max_stale,
            start_empty=args.start_empty,
        )
    )
    _report(prepared, args.matrix)
    return lambda: prepared.open_gate(
        images, under_test=under_test, commit=commit, wheels=wheels, spool_size=args.spool_size
    )


def _canary_images(args: argparse.Namespace, *, local: bool) -> AllowedImages:
    from compatgate.canary.allowed_images import read_allowed_images

    return read_allowed_images(
        args.canary_image, "serve --canary-image", otherwise=("*",) if local else ()
    )


def _report(prepared: Prepared, matrix: Sequence[str]) -> None:
    """Tell the results of the start on standard error; standard output begins with the URL.

    The first admin token is for the person who starts the service, and no line of the log.
    """
    if prepared.upgrade is not None and prepared.upgrade.before is not None:
        logs.tell(prepared.upgrade.sentence)
    if prepared.away is not None:
        at = prepared.confirmed_at.strftime("%Y-%m-%d %H:%M:%S UTC")
        text = f"warning: {prepared.away}; starting with the snapshot of {at}, matrix revision"
        logs.tell(f"{text} {prepared.revision}, until the database is back")
    elif prepared.imported is not None:
        count, revision = len(prepared.imported.changes), prepared.imported.revision
        logs.tell(f"imported {count} documents as revision {revision}")
    elif matrix:
        text = f"--matrix not imported: the stored matrix is at revision {prepared.revision}"
        logs.tell(text)
    if prepared.seen_revision:
        text = f"warning: the stored matrix is at revision {prepared.revision}, but was at revision"
        logs.tell(f"{text} {prepared.seen_revision} before: an older backup?")
    if prepared.admin is not None:
        text = f"admin token (shown only once): {prepared.admin.secret}\n"
        sys.stderr.write(text)  # in one piece: another thread logs meanwhile
        sys.stderr.flush()


def _warn(anonymous: frozenset[str], url: str, *, local: bool) -> None:
    """Warn about scopes without a token on an address that others can reach."""
    given = anonymous if not local else anonymous - {"read", "gate", "plan"}
    if given:
        logs.tell(f"warning: {url} allows {', '.join(sorted(given))} without a token")


def _share_figures(workers: int) -> str | None:
    """Create the folder in which workers share counters; must run before the first import."""
    if workers == 1 or os.environ.get(_FIGURES):
        return None
    os.environ[_FIGURES] = tempfile.mkdtemp(prefix="compatgate-metrics-")
    return os.environ[_FIGURES]


def _scopes(text: str) -> frozenset[str]:
    from compatgate.service.tokens.service import parse_scopes

    try:
        return frozenset() if text in _NO_SCOPES else parse_scopes(text)
    except BadInput as error:
        error.field = "--anonymous"
        raise


def _size(text: str) -> int:
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, "")
    if not number.isdecimal() or unit not in _UNITS or int(number) < 1:
        raise ArgumentTypeError(f"'{text}' is not a size in bytes, like 1048576, 512k or 8m")
    return int(number) * _UNITS[unit]
