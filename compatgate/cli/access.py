"""Run ``compatgate token``, ``login``, ``logout`` and ``whoami``: tokens and sessions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from msgspec import to_builtins

from compatgate.cli.commands import Body, Group, Row, columns
from compatgate.cli.gate import Operations, open_rooms
from compatgate.errors import BadInput, CompatgateError, NotFound
from compatgate.gate_client import ask, make_client
from compatgate.kit.cli.options import FORMAT, SERVER
from compatgate.kit.cli.output import format_json_time, print_answer, say, strip_controls
from compatgate.kit.cli.parser import server_of
from compatgate.kit.cli.usage import command
from compatgate.kit.clock import iso
from compatgate.kit.principal import SCOPES

if TYPE_CHECKING:
    from compatgate.service.access.device_flow import DeviceCode

_WHO = "command line"
"""Author of token changes in a local database, for the audit log."""
_SERVER = "--server URL  URL of the gate (default: $COMPATGATE_SERVER)"
_SCOPES = "\n".join(["scopes:", *(f"  {name:9} {allows}" for name, allows in SCOPES.items())])


def _state(token: Body) -> str:
    if not token["active"]:
        return "revoked" if token["revoked_at"] else "expired"
    return f"active, {token['warning']}" if token.get("warning") else "active"


def _with_secret(made: Body) -> Body:
    return {"secret": made["secret"], **made["token"]}


def _revoke(args: argparse.Namespace) -> Body:
    """Revoke a token; with ``--last-admin`` even the last admin token, which no server does."""
    if not args.last_admin:
        return dict(REVOKE.ask(args))
    if server_of(args):
        what, hint = "does not work with --server", "run it with --database on the server's machine"
        raise BadInput(what, field="--last-admin", hint=hint)
    with open_rooms(args) as rooms:
        token = rooms.tokens.revoke(args.name, by=_WHO, even_last_admin=True)
    return dict(to_builtins(token.to_body()))


REVOKE = Row(
    "revoke_token",
    """\
name: NAME|ID  name of the token
--last-admin   allow revoking the last admin token; only with --database
""",
    text=lambda token: (
        f"{token['name']} ({token['id']}) was revoked on {format_json_time(token['revoked_at'])}"
    ),
    who=_WHO,
    answer=_revoke,
)
run_token = Group(
    {
        "create": Row(
            "create_token",
            f"""\
--name NAME
scopes: --scope SCOPES
    separated by commas: {", ".join(SCOPES)}; see below
expires: --expires DURATION
targets: --target PATTERN ...
    limit the token to this target; * matches any characters; may be repeated (default: every
    target)
person: --person NAME
""",
            text="{secret}",
            as_json=_with_secret,
            epilog=_SCOPES,
            make=True,
            who=_WHO,
            summary="create a token; its secret is printed only once",
        ),
        "rotate": Row(
            "rotate_token",
            """\
name: NAME|ID  name of the token
--overlap DURATION
--expires DURATION
""",
            text="{secret}",
            as_json=_with_secret,
            who=_WHO,
            summary="give a token a new secret, printed only once",
        ),
        "list": Row(
            "list_tokens",
            "--all  include revoked and expired tokens",
            columns(
                *("name", "id", "scopes", ("targets", lambda token: token.get("targets") or "all")),
                "created: created_at",
                ("expires", lambda token: token["expires_at"] or "never"),
                ("last used", lambda token: token["last_used_at"] or "never"),
                ("state", _state),
            ),
            who=_WHO,
            values=lambda args: {"active": None if args.all else True},
        ),
        "revoke": REVOKE,
    },
    epilog=_SCOPES,
)


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
        from compatgate.client.settings import Credential, store_credential
        from compatgate.service.access.device_flow import sign_in

        described = gate.send(Operations.describe_sign_in.request())
        tokens = sign_in(described, _show)
        access_token = tokens.access_token if described.access_token else None
        open_session = Operations.open_session.request
        made = gate.send(open_session(tokens.id_token, access_token=access_token or None))
    name = made.session.email or made.session.name or made.session.subject
    expires_at = made.session.expires_at
    kept = store_credential(Credential(url, made.secret, made.session.id, name, expires_at))
    end = format_json_time(iso(expires_at))
    print(f"signed in to {url} as {strip_controls(name)} until {end}")
    say(f"the session is kept in {kept}")
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
    from compatgate.client.settings import load_credential, remove_credential

    url = _gate_url(args)
    credential = load_credential(url)
    if credential is None:
        remove_credential(url)
        raise NotFound(f"not signed in to {url}", hint="run: compatgate login")
    try:
        with make_client(url, credential.secret) as gate:
            ask(gate, Operations.end_own_session)
    except CompatgateError as error:
        say(f"warning: the gate did not end the session: {error.detail}")
    remove_credential(url)
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
    scopes = ", ".join(caller["scopes"]) or "none"
    text = f"{caller['name']} ({caller['kind']}), scopes: {scopes}"
    return print_answer(args.format, caller, text)
