"""Run ``compatgate login``, ``logout`` and ``whoami``: a person's session at a gate."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from compatgate.cli.gate.opening import Operations
from compatgate.errors import BadInput, CompatgateError, NotFound
from compatgate.gate_client import ask, make_client
from compatgate.kit.cli.options import FORMAT, SERVER
from compatgate.kit.cli.output import format_json_time, print_json
from compatgate.kit.cli.parser import server_of
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import command
from compatgate.kit.clock import iso

if TYPE_CHECKING:
    from compatgate.service.access.identity.device_flow import DeviceCode

_SERVER = "--server URL  URL of the gate (default: $COMPATGATE_SERVER)"


def _gate_url(args: argparse.Namespace) -> str:
    from compatgate.client.settings import base_of

    url = server_of(args)
    if not url:
        hint = "give --server URL, or set COMPATGATE_SERVER"
        raise BadInput("no gate URL is given", field="--server", hint=hint)
    return base_of(url)


@command(
    _SERVER,
    epilog="""\
The gate names its issuer. This command shows an address and a code: open the address with any
browser, on any machine, and enter the code. The session is kept in a file that only you can read,
and commands use it for this gate when no token is given.

examples:
  compatgate login --server https://gate.example
  COMPATGATE_SERVER=https://gate.example compatgate login
""",
)
def run_login(args: argparse.Namespace) -> int:
    """Sign a person in, and keep the session."""
    url = _gate_url(args)
    with make_client(url, stored=False) as gate:
        from compatgate.client.credentials import Credential, store
        from compatgate.service.access.identity.device_flow import sign_in

        described = gate.send(Operations.describe_sign_in.request())
        tokens = sign_in(described, _show)
        access_token = tokens.access_token if described.access_token else None
        request = Operations.open_session.request(
            tokens.id_token, access_token=access_token or None
        )
        made = gate.send(request)
    name = made.session.email or made.session.name or made.session.subject
    kept = store(Credential(url, made.secret, made.session.id, name, made.session.expires_at))
    end = format_json_time(iso(made.session.expires_at))
    print(f"signed in to {url} as {strip_controls(name)} until {end}")
    print(f"the session is kept in {kept}", file=sys.stderr)
    return 0


def _show(code: DeviceCode) -> None:
    print(f"open    {strip_controls(code.verification_uri)}")
    print(f"enter   {strip_controls(code.user_code)}")
    if code.verification_uri_complete:
        print(f"or open {strip_controls(code.verification_uri_complete)}")
    print("waiting for the sign-in ...", flush=True)


@command(
    _SERVER,
    epilog="""\
The session ends at the gate, too. Your session at the issuer stays open.

examples:
  compatgate logout --server https://gate.example
""",
)
def run_logout(args: argparse.Namespace) -> int:
    """End the session at the gate, and remove its file."""
    from compatgate.client.credentials import load, remove

    url = _gate_url(args)
    credential = load(url)
    if credential is None:
        remove(url)
        raise NotFound(f"not signed in to {url}", hint="run: compatgate login")
    try:
        with make_client(url, credential.secret) as gate:
            ask(gate, Operations.end_own_session)
    except CompatgateError as error:
        print(f"warning: the gate did not end the session: {error.detail}", file=sys.stderr)
    remove(url)
    print(f"signed out of {url}")
    return 0


@command(
    SERVER,
    FORMAT,
    epilog="""\
examples:
  compatgate whoami --server https://gate.example
  compatgate whoami --server https://gate.example --token "$TOKEN" --format json
""",
)
def run_whoami(args: argparse.Namespace) -> int:
    """Show who the gate takes this user for."""
    with make_client(_gate_url(args), args.token) as gate:
        caller = ask(gate, Operations.show_caller)
    if args.format == "json":
        print_json(caller)
    else:
        scopes = ", ".join(caller["scopes"]) or "none"
        print(f"{caller['name']} ({caller['kind']}), scopes: {scopes}")
    return 0
