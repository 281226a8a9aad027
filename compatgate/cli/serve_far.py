"""Add and read options of ``compatgate serve`` for a far gate: bundle, keys, token and callers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput
from compatgate.kit import logs

if TYPE_CHECKING:
    import argparse
    from datetime import timedelta

    from compatgate.service.far.gate import PreparedFarGate
    from compatgate.service.webhooks.signatures import Secret

_NOT_HERE = {
    "database": "it has none",
    "decision_commit": "it has no database",
    "start_empty": "it has no database",
    "matrix": "the matrix comes with the bundle",
    "facts": "the overlays of the central gate come with the bundle",
    "signing_key": "it keeps no verdicts; the central gate signs",
    "oidc": "sessions need a database; name callers with --caller-token",
}
"""Options that mean nothing for a far gate, and why."""


def add_far(group: argparse._ArgumentGroup) -> None:
    """Add the options."""
    add: Any = group.add_argument
    add(
        "--bundle",
        metavar="URL",
        help="decide from the signed bundle of this central gate, without a database; changes and"
        " pages are refused, and decisions are delivered to the central gate",
    )
    add(
        "--bundle-key",
        action="append",
        default=[],
        metavar="FILE",
        help="public key that is trusted to sign bundles (PEM or JSON Web Key Set); may be"
        " repeated, for key rotation",
    )
    add(
        "--bundle-token",
        metavar="FILE",
        help="file with the token for the central gate, with the scopes read and deliver; the"
        " token's name is the name of the far gate (default: $COMPATGATE_TOKEN)",
    )
    add(
        "--bundle-every",
        default="60s",
        metavar="DURATION",
        help="interval between checks for a newer bundle (default: 60s)",
    )
    add(
        "--caller-token",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="token for callers of this far gate, which does not know tokens of the central gate;"
        " in a file or as NAME=env:VARIABLE; may be repeated",
    )


def is_far(args: argparse.Namespace) -> bool:
    """Return whether the arguments describe a far gate.

    Raises:
        BadInput: an option does not go with ``--bundle``, or needs it.
    """
    if args.bundle is None:
        for name in ("bundle_key", "bundle_token", "caller_token"):
            if getattr(args, name):
                raise BadInput("needs --bundle URL", field=f"--{name.replace('_', '-')}")
        return False
    for name, why in _NOT_HERE.items():
        if getattr(args, name):
            field = f"--{name.replace('_', '-')}"
            raise BadInput(
                "cannot be combined with --bundle", field=field, hint=f"a far gate: {why}"
            )
    if not args.bundle_key:
        hint = "the public key of the central gate's serve --signing-key"
        raise BadInput("--bundle needs a trusted key", field="--bundle-key", hint=hint)
    return True


def callers(args: argparse.Namespace) -> tuple[Secret, ...]:
    """Return the tokens of callers.

    Raises:
        BadInput: one cannot be read, or is too short.
    """
    from compatgate.service.webhooks.signatures import read_secrets

    return read_secrets(args.caller_token, "--caller-token")


def prepare(args: argparse.Namespace, max_stale: timedelta) -> PreparedFarGate:
    """Get the bundle, and tell on standard error what the gate begins with.

    Raises:
        CompatgateError: an option is malformed, or there is no bundle to begin with.
    """
    from sqlalchemy import make_url

    from compatgate.client.settings import TOKEN, base_of
    from compatgate.kit.cli.options import read_interval
    from compatgate.kit.state import open_state_folder
    from compatgate.service.far.gate import prepare_far_gate
    from compatgate.service.far.keeper import BundleOptions
    from compatgate.service.far.log import Central
    from compatgate.service.gate.bundles import read_bundle_keys
    from compatgate.service.gate.outages import describe_seconds
    from compatgate.service.gate_client import import_httpx

    import_httpx()
    try:
        url = base_of(args.bundle)
    except BadInput as error:
        error.field = "--bundle"
        raise
    every_s = read_interval(args.bundle_every, "--bundle-every", 1)
    if max_stale.total_seconds() < 2 * every_s:
        hint = f"at least two polls; --bundle-every is {args.bundle_every}"
        raise BadInput("is too short", field="--max-stale", value=args.max_stale, hint=hint)
    token_file = Path(args.bundle_token) if args.bundle_token else None
    central = Central(url, "" if token_file else os.environ.get(TOKEN, ""), token_file)
    options = BundleOptions(
        central,
        read_bundle_keys(args.bundle_key, "--bundle-key"),
        open_state_folder(make_url(url), args.state),
        every_s,
        max_stale,
    )
    found = prepare_far_gate(options)
    payload = found.present.trusted.bundle.payload
    text = f"far gate {found.options.central.name} of {url}: matrix revision {payload.revision}"
    logs.tell(text)
    if found.away is not None:
        age = describe_seconds(found.confirmed_s)
        logs.tell(f"warning: {found.away}; starting with the last good bundle, {age} old")
    return found
