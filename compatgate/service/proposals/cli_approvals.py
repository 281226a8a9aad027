"""List and refuse changes of the matrix that wait for a second person: approvals, refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.kit.cli.options import add_format, add_limit
from compatgate.kit.cli.output import format_json_time, print_json, print_table
from compatgate.service.gate_client import Body, ask, ask_all

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client


def approvals_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix approvals``."""
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="id of an approval request, to show with its changes"
    )
    parser.add_argument(
        "--all", action="store_true", help="include decided and expired approval requests"
    )
    add_limit(parser)
    add_format(parser)


def decision_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix refuse``."""
    parser.add_argument(
        "id", metavar="ID", help="approval id, as printed when the change was refused"
    )
    parser.add_argument(
        "--author",
        metavar="NAME",
        help="author of the decision, for a local database (default: your user name)",
    )
    add_format(parser)


def list_approvals(args: argparse.Namespace, gate: Client) -> int:
    """List changes that wait for a second person, or show one."""
    from compatgate.client.operations import Operations

    if args.id:
        found = ask(gate, Operations.show_approval, args.id)
        if args.format == "json":
            print_json(found)
        else:
            _print_approval(found)
        return 0
    waiting = None if args.all else True
    rows = ask_all(gate, args.limit, Operations.list_approvals, waiting=waiting)
    if args.format == "json":
        print_json(rows)
        return 0
    head = ("id", "author", "asked", "until", "state", "targets", "changes", "reason")
    print_table(head, [_row(one) for one in rows], empty="no change waits for a second person")
    return 0


def _row(one: Body) -> tuple[Any, ...]:
    return (
        one["id"],
        one["author"],
        format_json_time(one["made_at"]),
        format_json_time(one["expires_at"]),
        _state(one),
        ",".join(one["targets"]),
        ", ".join(f"{change['kind']} {change['name']}" for change in one["changes"][:3]),
        one["reason"],
    )


def _state(one: Body) -> str:
    if one["state"] == "waiting":
        return "waiting" if one["open"] else "expired"
    return f"{one['state']} by {one['decided_by']}"


def _print_approval(one: Body) -> None:
    when = format_json_time(one["made_at"])
    print(f"{one['id']}: {_state(one)}; {one['author']} asked on {when}")
    print(f"reason: {one['reason']}")
    for change in one["changes"]:
        print(f"{change['action']} {change['kind']} {change['name']}")
        for field in change["fields"]:
            print(f"  {field['path']}: {field['before']} -> {field['after']}")


def refuse(args: argparse.Namespace, gate: Client) -> int:
    """Refuse a change that waits for a second person, or withdraw your own."""
    from compatgate.client.operations import Operations

    return _print_decision(args, ask(gate, Operations.refuse_change, args.id), "nothing changed")


def _print_decision(args: argparse.Namespace, found: Body, result: str) -> int:
    if args.format == "json":
        print_json(found)
    else:
        print(f"{found['id']} was {found['state']} by {found['decided_by']}: {result}")
    return 0
