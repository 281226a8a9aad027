"""``compatgate serve``: the gate as a service."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from compatgate.cli import serve_decisions, serve_hooks, serve_signing
from compatgate.cli.database import add_database
from compatgate.cli.parser import add_overlays, count
from compatgate.errors import BadInput, Unavailable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from compatgate.canary.allowed_images import AllowedImages
    from compatgate.gate.images import ImageSettings
    from compatgate.gate.wheels import WheelSettings
    from compatgate.web.start import Prepared

_LOOPBACK_SCOPES = "read,gate"
_NOBODY = ("", "none")
_LEVELS = ("debug", "info", "warning", "error")
_LOG = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_LONGEST_WAIT = 120.0
_REGISTRIES = "COMPATGATE_REGISTRIES"
_NETWORKS = "COMPATGATE_REGISTRY_NETWORKS"
_INDEXES = "COMPATGATE_INDEXES"
_INDEX_NETWORKS = "COMPATGATE_INDEX_NETWORKS"
_FIGURES = "PROMETHEUS_MULTIPROC_DIR"
_HEADER = " -H 'Authorization: Bearer TOKEN'"
_EXAMPLES = """\
examples:
  compatgate serve --matrix matrix.yaml          the first start prints an admin token
  compatgate serve --port 0 --database /tmp/trial.db
  compatgate serve --host 0.0.0.0 --workers 4 --database postgresql://gate@db.example/gate

SIGTERM and Ctrl-C stop it gracefully. exit status: 0 stopped, 2 it cannot start
"""
_TRY = """\
try:
  curl -s {url}/api/v1/gate -H 'Content-Type: application/json'{token} -d '
    {{"pool": {{"driver": "535.104.05", "gpu": "A100-SXM4-80GB"}},
     "stack": {{"cuda": "12.4", "arch": ["sm_80", "compute_80"]}}}}'"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    add(
        "--port",
        type=_port,
        default=8080,
        help="port to listen on; 0 picks a free one (default: 8080)",
    )
    add("--workers", type=count, default=1, metavar="N", help="number of processes (default: 1)")
    add(
        "--threads",
        type=count,
        default=32,
        metavar="N",
        help="requests of a kind (questions, hooks, others) that a process answers at once (32)",
    )
    add_database(parser)
    serve_decisions.add_commit(parser)
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
        help=f"what needs no token, or none ({_LOOPBACK_SCOPES} on a loopback address, else none)",
    )
    add(
        "--max-request-size",
        type=_size,
        default=1024**2,
        metavar="BYTES",
        help="largest request body, for example 512k or 8m (default: 1m)",
    )
    _images(parser.add_argument_group("images that questions name"))
    _wheels(parser.add_argument_group("packages without a record"))
    parser.add_argument_group("canary runs").add_argument(
        "--canary-image",
        action="append",
        default=[],
        metavar="PATTERN",
        help="images that submitted runs may test, like registry.example/team/*, or none; may be"
        " repeated ($COMPATGATE_CANARY_IMAGES, with commas; every image on a loopback address,"
        " else none)",
    )
    serve_hooks.add_tls(parser.add_argument_group("TLS and links"))
    serve_hooks.add_admission(parser.add_argument_group("Kubernetes admission"))
    signed = parser.add_argument_group("signed verdicts")
    serve_signing.add_signing(signed)
    serve_signing.add_verifying(signed)
    serve_hooks.add_deploying(parser.add_argument_group("deploy webhooks"))
    add_overlays(parser)
    add("--log-level", choices=_LEVELS, default="warning", help="log level (default: warning)")


def _images(group: argparse._ArgumentGroup) -> None:
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
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="seconds that a question waits for its image (default: 10)",
    )


def _wheels(group: argparse._ArgumentGroup) -> None:
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


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends it: 0; 2 when it cannot start.

    Raises:
        CompatgateError: the address, the database or the matrix cannot be used.
    """
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
    from compatgate.web.app import create_front
    from compatgate.web.server import ServerOptions, serve
    from compatgate.web.settings import Settings
    from compatgate.web.start import is_loopback, listen, prepare, url_of

    given = _scopes(args.anonymous)
    commit = serve_decisions.commit_of(args)
    tls, admission = serve_hooks.tls_pair(args), serve_hooks.admission_options(args)
    public_url = serve_hooks.public_url(args)
    signing = serve_signing.signing(args, public_url)
    listener = listen(args.host, args.port)
    nobody = _scopes(_LOOPBACK_SCOPES if is_loopback(listener) else "") if given is None else given
    overlays = None if args.facts is None else tuple(args.facts)
    images, wheels = _image_settings(args), _wheel_settings(args)
    under_test = _under_test(args, local=is_loopback(listener))
    settings = Settings(
        nobody or frozenset(),
        args.max_request_size,
        overlays=overlays,
        max_listeners=args.threads // 2,
        admission=admission,
        hook_secrets=serve_hooks.hook_secrets(args),
        public_url=public_url,
        signing=signing,
    )
    url = url_of(listener, args.host, secure=tls is not None)
    prepared = prepare(args.database, args.matrix, overlays)
    _report(prepared, args.matrix)
    _warn(settings.anonymous, url, local=is_loopback(listener))

    def announce() -> None:
        token = "" if settings.anonymous & {"gate", "admin"} else _HEADER
        print(f"compatgate is serving on {url}")
        print(_TRY.format(url=url, token=token), flush=True)

    logging.basicConfig(level=args.log_level.upper(), format=_LOG)
    sys.stdout.flush()
    parent = os.getpid()  # it may be gone before a worker asks for it
    options = ServerOptions(listener, args.workers, args.log_level, tls)
    status = serve(
        options,
        lambda: prepared.open_gate(images, under_test, commit, wheels),
        lambda gate: create_front(gate, settings, args.threads, parent=parent),
        announce,
    )
    return BadInput.exit_code if status else 0


def _image_settings(args: argparse.Namespace) -> ImageSettings:
    from msgspec.structs import replace

    from compatgate.discovery.image import default_folder, options_from_environment
    from compatgate.gate.images import ImageSettings
    from compatgate.gate.registries import parse_networks, parse_places

    networks = (
        *parse_networks(args.registry_network, "--registry-network"),
        *parse_networks([os.environ.get(_NETWORKS, "")], _NETWORKS),
    )
    options = options_from_environment(cache=default_folder())
    return ImageSettings(
        (
            *parse_places(args.registry, "--registry"),
            *parse_places([os.environ.get(_REGISTRIES, "")], _REGISTRIES),
        ),
        args.image_deadline,
        waiting=max(1, args.threads // 2),
        options=replace(options, networks=networks),
    )


def _wheel_settings(args: argparse.Namespace) -> WheelSettings:
    from compatgate.discovery.image import ImageOptions
    from compatgate.discovery.wheels import default_folder
    from compatgate.gate.registries import parse_indexes, parse_networks
    from compatgate.gate.wheels import WheelSettings

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
    return WheelSettings(indexes, default_folder(), transport=transport)


def _under_test(args: argparse.Namespace, *, local: bool) -> AllowedImages:
    from compatgate.canary.allowed_images import allowed_images

    return allowed_images(
        args.canary_image, "serve --canary-image", otherwise=("*",) if local else ()
    )


def _report(prepared: Prepared, matrix: Sequence[str]) -> None:
    """What a start did, on standard error: standard output begins with the URL."""
    if prepared.imported is not None:
        count, revision = len(prepared.imported.changes), prepared.imported.revision
        print(f"imported {count} documents as revision {revision}", file=sys.stderr)
    elif matrix:
        text = f"--matrix not imported: the stored matrix is at revision {prepared.revision}"
        print(text, file=sys.stderr)
    if prepared.admin is not None:
        text = f"admin token, shown only this once: {prepared.admin.secret}"
        print(text, file=sys.stderr, flush=True)


def _warn(anonymous: frozenset[str], url: str, *, local: bool) -> None:
    """What whoever gives rights away should have meant."""
    given = anonymous if not local else anonymous - {"read", "gate"}
    if given:
        text = f"warning: whoever reaches {url} may {', '.join(sorted(given))} without a token"
        print(text, file=sys.stderr)


def _share_figures(workers: int) -> str | None:
    """A folder through which worker processes add up their counters; before the first import."""
    if workers == 1 or os.environ.get(_FIGURES):
        return None
    os.environ[_FIGURES] = tempfile.mkdtemp(prefix="compatgate-metrics-")
    return os.environ[_FIGURES]


def _scopes(text: str | None) -> frozenset[str] | None:
    from compatgate.gate.auth import parse_scopes

    if text is None:
        return None
    try:
        return frozenset() if text in _NOBODY else parse_scopes(text)
    except BadInput as error:
        error.field = "--anonymous"
        raise


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST_WAIT:
        raise ArgumentTypeError(f"'{text}' is not a number of seconds, up to {_LONGEST_WAIT:g}")
    return value


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"'{text}' is not a port, 0 to 65535")
    return int(text)


def _size(text: str) -> int:
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, "")
    if not number.isdecimal() or unit not in _UNITS or int(number) < 1:
        raise ArgumentTypeError(f"'{text}' is not a size in bytes, like 1048576, 512k or 8m")
    return int(number) * _UNITS[unit]
