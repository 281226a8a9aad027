"""Run ``compatgate token``: create, rotate, list and revoke access tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.gate.opening import open_rooms, run_row
from compatgate.errors import BadInput
from compatgate.gate_client import Body
from compatgate.kit.cli.commands import Option, Row, add_rows, find_row, print_answer, time_of
from compatgate.kit.cli.output import format_json_time
from compatgate.kit.cli.parser import server_of
from compatgate.kit.principal import SCOPES

if TYPE_CHECKING:
    import argparse

_EXAMPLES = """\
examples:
  compatgate token create --name ci --scope read,gate --expires 90d
  compatgate token create --name deploy --scope gate,operate --target 'prod-*' --target staging
  compatgate token rotate ci --overlap 24h
  compatgate token list --all
  compatgate token revoke ci

"""
_WHO = "command line"
"""Author of token changes in a local database, for the audit log."""
_SCOPES = "\n".join(["scopes:", *(f"  {name:9} {allows}" for name, allows in SCOPES.items())])
_NAME = Option("name", metavar="NAME|ID", help="name of the token")
_EXPIRES = Option("expires", metavar="DURATION")
_SCOPE_HELP = f"separated by commas: {', '.join(SCOPES)}; see below"
_TARGET_HELP = """\
limit the token to this target; * matches any characters; may be repeated (default: every target)"""


def _add_last_admin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--last-admin",
        action="store_true",
        help="allow revoking the last admin token; only with --database",
    )


def _state(token: Body) -> str:
    if not token["active"]:
        return "revoked" if token["revoked_at"] else "expired"
    return f"active, {token['warning']}" if token.get("warning") else "active"


def _revoked_line(token: Body) -> str:
    when = format_json_time(token["revoked_at"])
    return f"{token['name']} ({token['id']}) was revoked on {when}"


ROWS = (
    Row(
        "create",
        "create_token",
        "create a token; its secret is printed only once",
        options=(
            Option("name", "--name"),
            Option("scopes", "--scope", _SCOPE_HELP, "SCOPES", "commas"),
            _EXPIRES,
            Option("targets", "--target", _TARGET_HELP, "PATTERN"),
        ),
        text=lambda made: made["secret"],
        as_json=lambda made: {"secret": made["secret"], **made["token"]},
        epilog=_SCOPES,
        make=True,
    ),
    Row(
        "rotate",
        "rotate_token",
        "give a token a new secret, printed only once",
        options=(_NAME, Option("overlap", metavar="DURATION"), _EXPIRES),
        text=lambda made: made["secret"],
        as_json=lambda made: {"secret": made["secret"], **made["token"]},
    ),
    Row(
        "list",
        "list_tokens",
        "list tokens",
        options=(Option("active", "--all", "include revoked and expired tokens", form="unless"),),
        columns={
            "name": "name",
            "id": "id",
            "scopes": lambda token: ",".join(token["scopes"]),
            "targets": lambda token: ",".join(token.get("targets") or ()) or "all",
            "created": time_of("created_at"),
            "expires": time_of("expires_at", "never"),
            "last used": time_of("last_used_at", "never"),
            "state": _state,
        },
        empty="no tokens",
    ),
    Row(
        "revoke",
        "revoke_token",
        "revoke a token immediately",
        options=(_NAME,),
        text=_revoked_line,
        extend=_add_last_admin,
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES + _SCOPES
    add_rows(parser.add_subparsers(dest="action", required=True, metavar="ACTION"), ROWS)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    row = find_row(ROWS, args.action)
    if args.action == "revoke" and args.last_admin:
        return _revoke_last(args, row)
    return run_row(args, row, name=_WHO)


def _revoke_last(args: argparse.Namespace, row: Row) -> int:
    """Revoke a token even if it is the last admin token, which no server does."""
    if server_of(args):
        what, hint = "does not work with --server", "run it with --database on the server's machine"
        raise BadInput(what, field="--last-admin", hint=hint)
    from msgspec import to_builtins

    with open_rooms(args) as rooms:
        token = rooms.tokens.revoke(args.argument_name, by=_WHO, even_last_admin=True)
    return print_answer(args.format, row, to_builtins(token.to_body()))
