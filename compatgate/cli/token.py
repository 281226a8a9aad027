"""``compatgate token``: make, list and end access tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.database import (
    add_format,
    add_limit,
    collect,
    print_json,
    print_table,
    seconds,
)
from compatgate.cli.service import add_place, perform
from compatgate.wire.trust import SCOPES

if TYPE_CHECKING:
    import argparse

    from compatgate.cli.service import Service

HELP = "create, list and revoke access tokens"

_EXAMPLES = """\
examples:
  compatgate token create --name ci --scope read,gate --expires 90d
  compatgate token list --all
  compatgate token revoke ci

"""
_SCOPES = "\n".join(
    [
        "scopes, of which none but admin includes another:",
        *(f"  {name:8} {allows}" for name, allows in SCOPES.items()),
    ]
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES + _SCOPES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a token; its secret is printed once")
    create.epilog = _SCOPES
    create.add_argument("--name", required=True, help="who or what it is for; logs show it")
    create.add_argument(
        "--scope",
        required=True,
        metavar="SCOPES",
        help=f"separated by commas: {', '.join(SCOPES)}; see below",
    )
    create.add_argument("--expires", metavar="DURATION", help="such as 90d or 12h (never)")
    shown = actions.add_parser("list", help="list tokens")
    shown.add_argument("--all", action="store_true", help="also those revoked or expired")
    add_limit(shown)
    revoke = actions.add_parser("revoke", help="end a token at once")
    revoke.add_argument("name", metavar="NAME|ID", help="of the token")
    revoke.add_argument(
        "--last-admin",
        action="store_true",
        help="also the last token with the scope admin; not over a server",
    )
    add_place(create, shown, revoke)
    add_format(create, shown, revoke)


def run(args: argparse.Namespace) -> int:
    """Do what was asked.

    Raises:
        BadInput: a malformed name, scope or duration.
        Conflict: the name is taken.
        NotFound: there is no such token.
        Conflict: it is the last token with the scope admin.
    """
    return perform(args, {"create": _create, "list": _list, "revoke": _revoke}, making=["create"])


def _create(args: argparse.Namespace, gate: Service) -> int:
    from compatgate.documents.durations import parse_duration
    from compatgate.gate.auth import parse_scopes
    from compatgate.store.clock import now

    scopes = parse_scopes(args.scope)
    expires = now() + parse_duration(args.expires, field="--expires") if args.expires else None
    made = gate.tokens.create(args.name, scopes, by="command line", expires_at=expires)
    if args.format == "json":
        print_json({"secret": made.secret, **made.token.to_json()})
    else:
        print(made.secret)
    return 0


def _list(args: argparse.Namespace, gate: Service) -> int:
    found = collect(gate.tokens.list, args.limit, active=None if args.all else True)
    if args.format == "json":
        print_json([token.to_json() for token in found])
        return 0
    rows = [
        (
            token.name,
            token.id,
            ",".join(token.scopes),
            seconds(token.created_at),
            seconds(token.expires_at) or "never",
            seconds(token.last_used_at) or "never",
            "active" if token.is_active else "revoked" if token.revoked_at else "expired",
        )
        for token in found
    ]
    head = ("name", "id", "scopes", "created", "expires", "last used", "state")
    print_table(head, rows, empty="no tokens")
    return 0


def _revoke(args: argparse.Namespace, gate: Service) -> int:
    token = gate.tokens.revoke(args.name, by="command line", even_last_admin=args.last_admin)
    if args.format == "json":
        print_json(token.to_json())
    else:
        print(f"{token.name} ({token.id}) is revoked since {seconds(token.revoked_at)}")
    return 0
