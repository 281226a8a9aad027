"""Run ``compatgate token``: create, rotate, list and revoke access tokens."""

from __future__ import annotations

import argparse

from msgspec import to_builtins

from compatgate.cli.commands import Body, Group, Row, print_row, time_of
from compatgate.cli.gate.opening import open_rooms
from compatgate.errors import BadInput
from compatgate.kit.cli.output import format_json_time
from compatgate.kit.cli.parser import server_of
from compatgate.kit.principal import SCOPES

_WHO = "command line"
"""Author of token changes in a local database, for the audit log."""
_SCOPES = "\n".join(["scopes:", *(f"  {name:9} {allows}" for name, allows in SCOPES.items())])


def _state(token: Body) -> str:
    if not token["active"]:
        return "revoked" if token["revoked_at"] else "expired"
    return f"active, {token['warning']}" if token.get("warning") else "active"


def _revoked_line(token: Body) -> str:
    when = format_json_time(token["revoked_at"])
    return f"{token['name']} ({token['id']}) was revoked on {when}"


def _secret(made: Body) -> str:
    return str(made["secret"])


def _with_secret(made: Body) -> Body:
    return {"secret": made["secret"], **made["token"]}


def _revoke(args: argparse.Namespace) -> int:
    """Revoke a token; with ``--last-admin`` even the last admin token, which no server does."""
    if not args.last_admin:
        return print_row(args.format, REVOKE, REVOKE.ask(args))
    if server_of(args):
        what, hint = "does not work with --server", "run it with --database on the server's machine"
        raise BadInput(what, field="--last-admin", hint=hint)

    with open_rooms(args) as rooms:
        token = rooms.tokens.revoke(args.name, by=_WHO, even_last_admin=True)
    return print_row(args.format, REVOKE, to_builtins(token.to_body()))


REVOKE = Row(
    "revoke",
    "revoke_token",
    "revoke a token immediately",
    """\
name: NAME|ID  name of the token
--last-admin   allow revoking the last admin token; only with --database
""",
    text=_revoked_line,
    who=_WHO,
    act=_revoke,
)
run = Group(
    (
        Row(
            "create",
            "create_token",
            "create a token; its secret is printed only once",
            f"""\
--name NAME
scopes: --scope SCOPES
    separated by commas: {", ".join(SCOPES)}; see below
expires: --expires DURATION
targets: --target PATTERN ...
    limit the token to this target; * matches any characters; may be repeated (default: every
    target)
""",
            text=_secret,
            as_json=_with_secret,
            epilog=_SCOPES,
            make=True,
            who=_WHO,
        ),
        Row(
            "rotate",
            "rotate_token",
            "give a token a new secret, printed only once",
            """\
name: NAME|ID  name of the token
--overlap DURATION
--expires DURATION
""",
            text=_secret,
            as_json=_with_secret,
            who=_WHO,
        ),
        Row(
            "list",
            "list_tokens",
            "list tokens",
            "--all  include revoked and expired tokens",
            {
                "name": "name",
                "id": "id",
                "scopes": lambda token: ",".join(token["scopes"]),
                "targets": lambda token: ",".join(token.get("targets") or ()) or "all",
                "created": time_of("created_at"),
                "expires": time_of("expires_at", "never"),
                "last used": time_of("last_used_at", "never"),
                "state": _state,
            },
            "no tokens",
            who=_WHO,
            values=lambda args: {"active": None if args.all else True},
        ),
        REVOKE,
    ),
    epilog="""\
examples:
  compatgate token create --name ci --scope read,gate --expires 90d
  compatgate token create --name deploy --scope gate,operate --target 'prod-*' --target staging
  compatgate token rotate ci --overlap 24h
  compatgate token list --all
  compatgate token revoke ci

"""
    + _SCOPES,
)
