"""Run ``compatgate token``: create, rotate, list and revoke access tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput
from compatgate.kit.cli.options import add_format, add_limit
from compatgate.kit.cli.output import format_json_time, print_json, print_list
from compatgate.kit.cli.parser import server_of
from compatgate.service.gate_client import (
    Body,
    Operations,
    add_place,
    ask,
    ask_all,
    open_gate,
    run_action,
)
from compatgate.service.tokens.schemas import SCOPES

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client

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
_SCOPES = "\n".join(
    [
        "scopes:",
        *(f"  {name:9} {allows}" for name, allows in SCOPES.items()),
    ]
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES + _SCOPES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="create a token; its secret is printed only once")
    create.epilog = _SCOPES
    create.add_argument("--name", required=True, help="name of the user or service, shown in logs")
    create.add_argument(
        "--scope",
        required=True,
        metavar="SCOPES",
        help=f"separated by commas: {', '.join(SCOPES)}; see below",
    )
    create.add_argument(
        "--expires", metavar="DURATION", help="lifetime, for example 90d or 12h (default: no end)"
    )
    create.add_argument(
        "--target",
        action="append",
        default=None,
        metavar="PATTERN",
        help="limit the token to this target; * matches any characters; may be repeated (default:"
        " every target)",
    )
    rotate = actions.add_parser("rotate", help="give a token a new secret, printed only once")
    rotate.add_argument("name", metavar="NAME|ID", help="name of the token")
    rotate.add_argument(
        "--overlap",
        metavar="DURATION",
        help="keep the current secret valid for this time, at most 30d (default: revoke at once)",
    )
    rotate.add_argument(
        "--expires", metavar="DURATION", help="new lifetime of the token (default: unchanged)"
    )
    shown = actions.add_parser("list", help="list tokens")
    shown.add_argument("--all", action="store_true", help="include revoked and expired tokens")
    add_limit(shown)
    revoke = actions.add_parser("revoke", help="revoke a token immediately")
    revoke.add_argument("name", metavar="NAME|ID", help="name of the token")
    revoke.add_argument(
        "--last-admin",
        action="store_true",
        help="allow revoking the last admin token; only with --database",
    )
    add_place(create, rotate, shown, revoke)
    add_format(create, rotate, shown, revoke)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action.

    Raises:
        BadInput: a malformed name, scope or duration.
        Conflict: the name is taken.
        NotFound: the token does not exist.
        Conflict: the token is the last one with the scope admin.
    """
    if args.action == "revoke" and args.last_admin:
        return _revoke_last(args)
    actions = {"create": _create, "rotate": _rotate, "list": _list, "revoke": _revoke}
    return run_action(args, actions, making=["create"], name=_WHO)


def _create(args: argparse.Namespace, gate: Client) -> int:
    from compatgate.documents.quantities import parse_duration
    from compatgate.service.tokens.service import parse_scopes

    scopes: Any = sorted(parse_scopes(args.scope))
    if args.expires:
        parse_duration(args.expires, field="--expires")
    made = ask(
        gate,
        Operations.create_token,
        args.name,
        scopes,
        expires=args.expires,
        targets=args.target,
    )
    return _print_secret(args, made)


def _rotate(args: argparse.Namespace, gate: Client) -> int:
    from compatgate.documents.quantities import parse_duration

    for option in ("overlap", "expires"):
        if given := getattr(args, option):
            parse_duration(given, field=f"--{option}")
    operation = Operations.rotate_token
    made = ask(gate, operation, args.name, overlap=args.overlap, expires=args.expires)
    return _print_secret(args, made)


def _print_secret(args: argparse.Namespace, made: Body) -> int:
    if args.format == "json":
        print_json({"secret": made["secret"], **made["token"]})
    else:
        print(made["secret"])
    return 0


def _list(args: argparse.Namespace, gate: Client) -> int:
    active = None if args.all else True
    found = ask_all(gate, args.limit, Operations.list_tokens, active=active)
    rows = (
        (
            token["name"],
            token["id"],
            ",".join(token["scopes"]),
            ",".join(token.get("targets") or ()) or "all",
            format_json_time(token["created_at"]),
            format_json_time(token["expires_at"]) or "never",
            format_json_time(token["last_used_at"]) or "never",
            _state(token),
        )
        for token in found
    )
    head = ("name", "id", "scopes", "targets", "created", "expires", "last used", "state")
    return print_list(found, args.format, head, rows, empty="no tokens")


def _state(token: Body) -> str:
    if not token["active"]:
        return "revoked" if token["revoked_at"] else "expired"
    return f"active, {token['warning']}" if token.get("warning") else "active"


def _revoke(args: argparse.Namespace, gate: Client) -> int:
    return _print_revoked(args, ask(gate, Operations.revoke_token, args.name))


def _revoke_last(args: argparse.Namespace) -> int:
    """Revoke a token even if it is the last admin token, which no server does.

    Raises:
        BadInput: a server is named.
    """
    if server_of(args):
        what, hint = "does not work with --server", "run it with --database on the server's machine"
        raise BadInput(what, field="--last-admin", hint=hint)
    with open_gate(args) as gate:
        token = gate.tokens.revoke(args.name, by=_WHO, even_last_admin=True)
    return _print_revoked(args, token.to_json())


def _print_revoked(args: argparse.Namespace, token: Body) -> int:
    if args.format == "json":
        print_json(token)
    else:
        when = format_json_time(token["revoked_at"])
        print(f"{token['name']} ({token['id']}) was revoked on {when}")
    return 0
